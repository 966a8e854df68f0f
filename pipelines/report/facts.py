"""Description of a run in words: its name, its data and stream, its key figures, and what it ran on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from pipelines.report.charts import Quality, judged
from pipelines.report.folder import (
    ReportedRun,
    checkpoints_failed,
    checkpoints_in_words,
    recovered_in_words,
    recoveries_of,
    repeated,
    unit_of,
)
from pipelines.run_folder import TIME
from raydt.learners.description import Column, Description
from raydt.messages import message
from raydt.presentation.blocks import Block, Fact, Facts, Row, Table, Text, pairs
from raydt.presentation.charts import (
    ABSENT,
    FEATURE_SHOWN,
    Form,
    clipped,
    count,
    counted,
    duration,
    figure,
    moment,
    names,
    number,
    share,
    size,
    time_in_words,
)
from raydt.presentation.trees import class_name, feature_count, feature_name

_DIGESTS = {
    "model_digest": "Model digest",
    "config_hash": "Model config hash",
    "source_fingerprint": "Source fingerprint",
}
#: Name, value, and how a number is written.
ComparedFigure: TypeAlias = tuple[str, float | str | None, Form | None]


def name_of(run: ReportedRun, location: str) -> str:
    """Return the name of the run, or of its folder."""
    return str(run.summary.get("name") or _folder_name(location))


def labels(runs: list[ReportedRun], locations: Sequence[str]) -> list[str]:
    """Return labels that tell runs apart: name and folder; the folder or its location alone where names collide."""
    names_of = [name_of(run, location) for run, location in zip(runs, locations, strict=True)]
    folders = [_folder_name(location) for location in locations]
    result = []
    for name, folder, location in zip(names_of, folders, locations, strict=True):
        if folders.count(folder) > 1:
            folder = location
        result.append(folder if name == folder or names_of.count(name) > 1 else f"{name} ({folder})")
    return result


def _folder_name(location: str) -> str:
    """Return the last part of a path or URI."""
    return location.rstrip("/").rpartition("/")[2] if "://" in location else Path(location).resolve().name


def f1_name(run: ReportedRun) -> str | None:
    """Return ``F1 (label)`` of the positive class, or None without one."""
    if number(run.summary.get("metrics"), "f1") is None:
        return None
    classes = run.names.classes
    return f"F1 ({classes[1]})" if len(classes) > 1 else "F1"


def what_ran(run: ReportedRun) -> str:
    """Return learner, data and stream in one line."""
    return f"{_learner(run)} on {_data(run)}, {_stream(run)}"


def common_to(runs: Sequence[ReportedRun]) -> str:
    """Return in one line what several runs have in common: data, stream, learner."""
    parts = [{part(run) for run in runs} for part in (_learner, _data, _stream)]
    learner, data, stream = (
        one.pop() if len(one) == 1 else f"different {name}"
        for one, name in zip(parts, ("learners", "data", "streams"), strict=True)
    )
    return f"{learner} on {data}, {stream}"


def facts(run: ReportedRun, location: str) -> list[tuple[str, str]]:
    """Return what ran, when, for how long, how it ended, and the path of its folder."""
    summary, labels = run.summary, run.names.classes
    label = summary.get("label")
    rows = [
        ("Learner", _learner(run)),
        ("Data", _data(run)),
        ("Stream", _stream(run)),
        ("Event times", event_times(run)),
        ("Features", count(feature_count(run.names.features) or None)),
        ("Label", ": ".join(part for part in (str(label or ""), names(labels)) if part) or ABSENT),
        ("Started", moment(summary.get("started"))),
        ("Processing time", duration(summary.get("seconds"))),
        ("Start-up", duration(summary.get("startup_seconds"))),
        ("Work", str(summary.get("where") or summary.get("backend") or ABSENT)),
        ("Status", _status(run)),
        ("Ended by", str(summary.get("exit_reason") or ABSENT).replace("_", " ")),
    ]
    for title, key in (("Refused updates", "refused"), ("Bad rows skipped", "skipped"), ("Restarts", "restarts")):
        if summary.get(key):
            rows.append((title, count(summary[key])))
    rows += [("Checkpoints", checkpoints_in_words(summary) or ABSENT), ("Run folder", location)]
    return [(title, value) for title, value in rows if value != ABSENT]


def event_times(run: ReportedRun) -> str:
    """Return from when to when the rows are; a dash of a stream without times."""
    times = run.summary.get("times")
    first, latest = number(times, "first"), number(times, "latest")
    if not isinstance(times, dict) or first is None or latest is None:
        return ABSENT
    ends = [time_in_words(end, times.get("kind") == "timestamp") for end in (first, latest)]
    return f"{ends[0]} to {ends[1]} ({times.get('column')})"


def key_figures(run: ReportedRun, own: Sequence[Fact]) -> list[Fact]:
    """Return the key figures; ``own`` are the learner's."""
    summary = run.summary
    scores, baselines = summary.get("metrics"), summary.get("baselines")
    quality = judged(summary)
    compared = [f"{name} {quality.form(number(baselines, key))}" for key, name in quality.baselines.items()]
    f1, macro, kappa = f1_name(run), share(number(scores, "macro_f1")), figure(number(scores, "kappa"))

    def total(key: str) -> str:
        return count(summary.get(key))

    second = Fact("macro F1", macro, f"kappa {kappa}")
    if "r2" in quality.titles:
        error = f"mean absolute error {figure(number(scores, 'mae'))}"
        second = Fact(quality.titles["r2"], figure(number(scores, "r2")), error)
    elif f1:
        second = Fact(f1, share(number(scores, "f1")), f"macro F1 {macro}, kappa {kappa}")
    refused = f", {total('refused')} refused" if summary.get("refused") else ""
    here = summary.get("backend") == "in_process"
    exchanged = "all in one process" if here else f"{size(summary.get('bytes_exchanged'))} exchanged"
    work = [
        Fact("updates", total("updates"), f"{total('inserts')} inserts, {total('deletes')} deletes{refused}"),
        Fact("updates per second", figure(summary.get("updates_per_second")), "start-up and report excluded"),
    ]
    trained = summary.get("holdout") is not None
    if trained:
        own = [fact for fact in own if fact.name not in ("rebuilds", "trainings")]  # of updates
        work = [Fact("rows trained at once", total("active"), f"in {duration(summary.get('seconds'))}{refused}")]
    figures = [
        *work,
        Fact(quality.name, quality.form(number(scores, quality.score)), ", ".join(compared)),
        second,
        *([] if trained else [Fact("live examples", total("active"), f"of {total('inserts')} inserted")]),
        *own,
        *([] if trained else [Fact("rounds with shards", total("rounds"), exchanged)]),
    ]
    return [fact for fact in figures if fact.value != ABSENT]


def compared_figures(
    run: ReportedRun, quality: Quality, own: Sequence[Column], *, brief: bool = False
) -> list[ComparedFigure]:
    """Return the figures that runs are compared by, with their learners' ``own``, which a run may lack.

    A terminal shows some of them: those that are ``brief``.
    """
    summary = run.summary
    scores, baselines = summary.get("metrics"), summary.get("baselines")
    has = run.description.values(summary)
    promised = {"True": "promised", "False": "none"}.get(str(summary.get("promised")), ABSENT)
    found: list[ComparedFigure] = [
        ("Status", _status(run), None),
        ("Updates", number(summary, "updates"), count),
        ("Updates/s", number(summary, "updates_per_second"), figure),
        (quality.titles[quality.score], number(scores, quality.score), quality.form),
        *((name.capitalize(), number(baselines, key), quality.form) for key, name in quality.baselines.items()),
        *((quality.titles[key], number(scores, key), form) for key, form in quality.compared.items()),
        ("Live", number(summary, "active"), count),
        *((column.title, _value(has, column), _FORMS[column.kind]) for column in own),
        ("Restarts", number(summary, "restarts"), count),
        ("Guarantee", promised, None),
        ("Audit", _audited(summary.get("audit")), None),
    ]
    shown = {*_BRIEF, quality.titles[quality.score], *(column.title for column in own if column.brief)}
    return [figure for figure in found if figure[0] in shown] if brief else found


#: Figures that a terminal shows of runs compared, with the score and the learners' own.
_BRIEF = ("Updates/s", "F1", "Kappa", "Guarantee")
_FORMS: dict[type, Form | None] = {int: count, float: figure, str: None}


def _value(values: Mapping[str, Any], column: Column) -> float | str | None:
    """Return a learner's own figure."""
    if column.kind is str:
        return clipped(str(values.get(column.name) or "none"), FEATURE_SHOWN) if column.name in values else ABSENT
    return number(values, column.name)


def _audited(audit: Any) -> str:
    """Return the verdicts of an audit in a word or two."""
    if not isinstance(audit, dict):
        return "not run"
    if audit.get("conformance") != "holds":
        return "not conformant"
    return str(audit.get("feasibility")).replace("_", " ")


def audit_facts(audit: Mapping[str, Any], description: Description) -> list[tuple[str, str]]:
    """Return the verdicts of an audit, what was checked for them and measured, and what failed."""
    feasibility, reason = str(audit.get("feasibility")), audit.get("reason")
    if reason:
        proven = feasibility == "proven"
        feasibility = f"proven that {reason}" if proven else f"{feasibility.replace('_', ' ')}: {reason}"
    rows = [("conformance", str(audit.get("conformance"))), ("feasibility", feasibility)]
    for name, value in (audit.get("checked") or {}).items():
        rows.append((name.replace("_", " "), f"{value:,} checked" if value else "not checked"))
    for name, value in (audit.get("worst") or {}).items():
        of, measure = description.shares.get(name), description.measures.get(name)
        about = (f" of {of}" if of else "") + (f": {measure[0].lower()}{measure[1:]}" if measure else "")
        rows.append((f"worst {name.replace('_', ' ')}", f"{value:.6g}{about}"))
    return [*rows, *(("failure", str(failure)) for failure in audit.get("failures") or [])]


def environment(run: ReportedRun) -> list[Block]:
    """Return versions of what the results could depend on, the memory used, and the digests."""
    summary = run.summary
    versions = summary.get("versions")
    found = {"raydt": summary.get("raydt_version") or ABSENT, **(versions if isinstance(versions, dict) else {})}
    found["Peak memory of all processes"] = size(summary.get("peak_rss_bytes"))
    digests = [Fact(title, str(summary[key])) for key, title in _DIGESTS.items() if summary.get(key)]
    return [
        pairs((str(name), str(value)) for name, value in found.items()),
        Text(f"{message('reports.digests')}." if digests else ""),
        Facts(digests, "digests"),
    ]


def _status(run: ReportedRun) -> str:
    return str(run.summary.get("status") or "unfinished")


def _learner(run: ReportedRun) -> str:
    return run.kind or "unknown learner"


def _data(run: ReportedRun) -> str:
    source = run.section("source")
    kind, generator, path = str(source.get("kind") or "unknown data"), source.get("generator"), source.get("path")
    if isinstance(path, list):
        return names([Path(str(part)).name for part in path], 3)
    return Path(str(path)).name if path else f"{kind} {generator}" if generator else kind


def window_in_words(summary: Mapping[str, Any]) -> str:
    """Return the window that has followed the stream, and how often it changed; nothing of any other stream."""
    found = summary.get("adaptive_window")
    if not isinstance(found, dict):
        return ""
    width = "all rows" if found.get("window") is None else f"the last {counted(found['window'], 'row')}"
    return f"{width} at the end, {counted(found['changes'], 'change')}"


def _stream(run: ReportedRun) -> str:
    stream = run.section("stream")
    model = str(stream.get("model") or "unknown stream")
    words = model.replace("_", " ")
    if model == "sliding_window":
        return f"{words} of {count(stream.get('window'))}"
    if followed := window_in_words(run.summary):
        return f"{words}: {followed}"
    if model == "random_updates":
        return f"{words}, inserts with probability {figure(stream.get('insert_probability'))}"
    if model == "batches":
        return f"{words} to {names([str(step) for step in stream.get('steps', ())], 5)}, {stream.get('removal_order')}"
    if model == "time_window":
        return f"{words} of {stream.get('duration')}"
    return words


# The tables of one run's report as rows of text.
#
# Invariant: what was not measured is called so; a time of 0 for work that was done is never shown as a time.

CONFUSION_CLASSES = 12
RECOVERIES_SHOWN = 50
ALARMS_SHOWN = 20
ALARM_COLUMNS = ("seq", "predictions", "error_before", "error_after")


def recoveries(run: ReportedRun) -> list[Block]:
    """Return a row for each recovery under what they cost; nothing if nothing was lost and no write failed."""
    entries, unit = recoveries_of(run.summary), unit_of(run.summary)
    rows = [
        Row(
            (
                count(number(entry, "at_update")),
                str(entry.get("what") or ABSENT),
                "by raydt resume" if entry.get("kind") == "resumed" else "by itself",
                _restored(number(entry, "from_update"), unit),
                count(repeated(entry)),
                duration(number(entry, "seconds")),
            )
        )
        for entry in entries[-RECOVERIES_SHOWN:]
    ]
    words, failed = recovered_in_words(run.summary), checkpoints_failed(run.summary)
    sentences = [f"{words[0].upper()}{words[1:]}."] if words else []
    if words and run.summary.get("model_digest"):
        sentences.append(f"{message('reports.same_model')}.")
    if len(entries) > len(rows):
        sentences.append(f"{message('reports.last_recoveries', shown=len(rows))}.")
    if failed:
        sentences.append(f"{message('reports.failed_checkpoints', checkpoints=counted(failed, 'checkpoint'))}.")
    columns = (f"After {unit}", "Lost", "Recovered", "Resumed from", "Repeated", "Time")
    table = Table(rows, title="Losses and recoveries", columns=columns, words=(1, 2, 3, 4))
    return [Text(" ".join(sentences)), table] if sentences else []


def chapters(run: ReportedRun) -> Table:
    """Return a row for each chapter of a run, the newest first."""
    quality, rows = judged(run.summary), []
    for chapter in reversed(run.chapters):
        known = chapter.get("chapter") or {}
        audit = chapter.get("audit") or {}
        rows.append(
            Row(
                (
                    str(known.get("number") or int(PurePath(chapter["folder"]).name)),
                    moment(chapter.get("ended")),
                    str(chapter.get("exit_reason") or message("reports.open_chapter")).replace("_", " "),
                    count(number(chapter, "updates")),
                    count(number(chapter, "active")),
                    quality.form(number(chapter.get("metrics"), quality.score)),
                    str(audit.get("conformance") or ABSENT),
                    str(chapter.get("model_digest") or ABSENT).removeprefix("sha256:")[:12],
                )
            )
        )
    columns = ("Chapter", "Ended", "By", "Updates", "Live", quality.name.capitalize(), "Audit", "Digest")
    remark = message("reports.chapters", folder=f"{PurePath(run.chapters[-1]['folder']).parent.name}/")
    return Table(rows, f"{remark}.", title="Chapters", columns=columns, words=(2, 3, 7, 8))


def _restored(place: float | None, unit: str) -> str:
    return ABSENT if place is None else f"checkpoint at {unit} {count(place)}" if place else "the beginning"


def scores(run: ReportedRun) -> Table:
    """Return every score, with the baselines where they have the same score."""
    values = run.summary.get("metrics") or {}
    quality = judged(run.summary)
    titles = {**quality.titles, "f1": f1_name(run)}
    rows = []
    for key in values:
        value, title = number(values, key), titles.get(key, key)
        if value is not None and title:
            baselines = [number(run.summary.get("baselines"), name) for name in quality.baselines]
            cells = [quality.form(known) if key == quality.score else ABSENT for known in baselines]
            form = quality.form if key == quality.score else quality.compared.get(key, figure)
            rows.append(Row((title, form(value), *cells)))
    rivals = [name.capitalize() for name in quality.baselines.values()]
    predicted = "Prequential scores" if run.summary.get("holdout") is None else "Scores of the rows held out"
    title = f"{predicted}, and the baselines on the same predictions"
    return Table(rows, title=title, columns=("Score", "Learner", *rivals))


def alarms(run: ReportedRun) -> Table:
    """Return the last alarms of ADWIN; the title counts all."""
    total = len(run.alarms.get("seq", ()))
    found = zip(*(run.alarms[name][-ALARMS_SHOWN:].tolist() for name in ALARM_COLUMNS), strict=True) if total else ()
    rows: list[tuple[str, ...]] = [
        (count(seq), count(n), share(before), share(after)) for seq, n, before, after in found
    ]
    columns: tuple[str, ...] = ("After update", "Predictions", "Wrong before", "Wrong after")
    if TIME in run.alarms:
        times = run.alarms[TIME][-ALARMS_SHOWN:].tolist()
        rows = [(time_in_words(time, run.moments), *cells) for time, cells in zip(times, rows, strict=True)]
        columns = ("Time", *columns)
    cut = f", the last {count(len(rows))} shown" if len(rows) < total else ""
    title = f"Alarms of ADWIN, the share of errors has risen: {count(total)} in all{cut}"
    return Table([*map(Row, rows)], title=title, columns=columns)


def confusion(run: ReportedRun) -> Table:
    """Return one row per true class with the counts of each predicted class; no rows beyond a dozen classes."""
    matrix = (run.summary.get("metrics") or {}).get("confusion")
    if not isinstance(matrix, list) or not 0 < len(matrix) <= CONFUSION_CLASSES:
        return Table([])
    labels = [class_name(run.names.classes, k) for k in range(len(matrix))]
    rows = []
    for k, line in enumerate(matrix):
        hit = line[k] / sum(line) if sum(line) else None
        rows.append(Row((labels[k], *(count(cell) for cell in line), share(hit))))
    title = "Confusion: rows are true labels, columns predicted ones"
    return Table(rows, title=title, columns=("True label", *labels, "Right"))


def shard_work(run: ReportedRun) -> list[Block]:
    """Return the columns and work of each shard."""
    work = [entry for entry in run.summary.get("work") or [] if isinstance(entry, dict)]
    if not work:
        return [Text(f"{message('reports.no_work')}.")]
    features = run.names.features
    sparse = any(feature.get("kind") == "sparse" for feature in features)
    seconds = [number(entry, "seconds") or 0.0 for entry in work]
    total = sum(seconds)
    rows = []
    for index, (entry, spent) in enumerate(zip(work, seconds, strict=True)):
        columns = [int(column) for column in entry.get("columns") or []]
        owned = names([feature_name(features, column) for column in columns], 6) if columns else ""
        others = [run.description.owned(index, len(work)), "sparse features" if sparse else ""]
        owned = " and ".join(part for part in (owned, *others) if part) or "none"
        part = spent / total if total else None
        first = (str(entry.get("shard", ABSENT)), count(entry.get("requests")), duration(spent), share(part, 1))
        rows.append(Row((*first, count(len(columns)), owned), part, "shards"))
    titles = ("Shard", "Requests", "Time", "Share", "Columns", "What it owns")
    return [Text(_balance(work, seconds)), Table(rows, "", "Work of each shard", titles, (1, 6), "bars")]


def _balance(work: list[dict[str, Any]], seconds: list[float]) -> str:
    if not any(entry.get("requests") for entry in work):
        return f"{message('reports.idle_shard' if len(work) == 1 else 'reports.idle_shards')}."
    if not sum(seconds) or len(work) == 1:
        return ""
    times = figure(max(seconds) * len(work) / sum(seconds))
    said = message("reports.equal_shards") if times == "1" else message("reports.busiest_shard", times=times)
    return f"{said}."


def skipped_rows(run: ReportedRun) -> Table:
    """Return the first rows and updates that were skipped, and why."""
    rows = [
        Row((str(row.get("file") or ABSENT), count(row.get("source_row")), str(row.get("reason") or ABSENT)))
        for row in run.quarantine
    ]
    cut = f", the first {count(len(rows))} shown" if len(rows) < run.quarantined else ""
    title = f"Skipped rows and updates: {count(run.quarantined)} in all{cut}"
    return Table(rows, "", title, ("File", "Row", "Reason"), (1, 3))
