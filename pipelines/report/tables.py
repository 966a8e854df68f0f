"""The tables of one run's report as rows of text.

Invariant: what was not measured is called so; a time of 0 for work that was done is never shown as a time.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from pipelines.report.facts import f1_name
from pipelines.report.folder import ReportedRun
from pipelines.report.quality import judged
from pipelines.report.recovery import checkpoints_failed, recovered_in_words, recoveries_of, repeated, unit_of
from pipelines.run_files import TIME
from raydt.messages import message
from raydt.presentation.blocks import Block, Row, Table, Text
from raydt.presentation.clock import time_in_words
from raydt.presentation.trees import class_name, feature_name
from raydt.presentation.words import ABSENT, count, counted, duration, figure, moment, names, number, share

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
