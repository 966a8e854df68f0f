"""Writes the report about one or several runs: the article about a run, and the page around it."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import raydt
from pipelines.config import as_yaml
from pipelines.report import charts, facts, holdout
from pipelines.report.charts import Quality, judged
from pipelines.report.folder import ReportedRun, marked, read_run
from pipelines.run_folder import fitting
from raydt.arrays.elementary import Bools, Floats, Ints
from raydt.folders.folder import Folder
from raydt.messages import Message, escaped, message
from raydt.presentation.blocks import (
    OPEN_LEVELS,
    Article,
    Beside,
    Best,
    Block,
    Code,
    Fact,
    Facts,
    Fold,
    Heading,
    Items,
    Name,
    Row,
    Section,
    Table,
    Text,
    Tree,
    has_content,
    pairs,
)
from raydt.presentation.charts import (
    Chart,
    Columns,
    Form,
    count,
    counted,
    duration,
    figure,
    has_curve,
    moment,
    number,
    share,
    timed,
)
from raydt.sessions.receipt_chain import Chain, undone_by

# The document of every page: one HTML file with its style, its script and its drawings inside.
#
# The Content-Security-Policy forbids every network request and every script but the one whose hash it names, so that
# nothing a file of data or a config says can act in the page, even if it escaped the escaping.

_HERE = Path(__file__).parent
_ELEMENTS: dict[type, str] = {Best: "strong", Name: "code"}
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<path d="M8 3v3M4 12V9l4-3 4 3v3" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
    '<path d="M8 3h0M4 13h0M12 13h0" stroke="#e69f00" stroke-width="5" stroke-linecap="round"/>'
    "</svg>"
)


def document(title: str, kind: str, articles: Sequence[Article], overview: Article | None = None) -> str:
    """Return the text of a page: a report, a sweep (``kind``). An ``overview`` stands before articles that fold."""
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            kind=kind,
            articles=articles,
            overview=overview,
            icon=f"data:image/svg+xml,{quote(_ICON)}",
            version=raydt.__version__,
            style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            policy=_policy(script),
        )
    )


def is_page(file: Path) -> bool:
    """Return True if a file is a page that :func:`document` made, by the generator that its head names."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return b'<meta name="generator" content="raydt">' in stream.read(4096)


@cache
def _environment() -> Environment:
    """Return the templates, compiled once in a process."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "grouped": grouped,
        "json_data": embedded_json,
        "svg_path": charts.path,
        "svg_dots": charts.dots_of,
        "svg_kind": charts.kind,
        "svg_grid": charts.grid,
        "svg_uprights": charts.uprights,
        "svg_readout": charts.readout,
    }
    environment.globals["open_levels"] = OPEN_LEVELS
    return environment


def grouped(blocks: Iterable[Block]) -> list[tuple[str, list[Block]]]:
    """Group neighbouring blocks of one kind under the kind's name; empty blocks are left out."""
    groups = groupby((block for block in blocks if has_content(block)), lambda block: type(block).__name__.lower())
    return [(kind, list(group)) for kind, group in groups]


def _shown(value: Any) -> Any:
    """Escape characters of data that would show as others; keep our markup; mark cells that have a meaning."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = escaped(value, keep="\n\t")
    element = _ELEMENTS.get(type(value))
    return Markup("<{0}>{1}</{0}>").format(element, text) if element else text


def _policy(script: str) -> str:
    """Allow nothing from the network; allow the script by its hash; inline style, and the icon."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'",
        f"script-src 'sha256-{digest}'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def embedded_json(text: str) -> Markup:
    """Return JSON that can stand inside a script element: no character in it can end the element."""
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))


# Verdicts of the report in plain sentences: whether the learner beats the trivial baselines, and what the audit found.
#
# If a learner loses to a baseline, the top of the page states it.


def against_baselines(summary: dict[str, Any], metrics: Columns) -> Text:
    """Compare the learner's score with the trivial baselines, in the whole and window by window."""
    if holdout.of_training(summary):
        said, better = holdout.verdict(summary)
        return Text(" ".join(f"{sentence}." for sentence in said), "verdict good" if better else "verdict bad")
    quality = judged(summary)
    score = number(summary.get("metrics"), quality.score)
    known = {key: number(summary.get("baselines"), key) for key in quality.baselines}
    rivals = {key: value for key, value in known.items() if value is not None}
    if score is None:
        return Text(f"{message('reports.no_score', quality=quality.name)}.", "verdict plain")
    written = {"quality": quality.name, "score": quality.form(score)}
    if not rivals:
        return Text(f"{message('reports.no_baseline', **written)}.", "verdict plain")
    lost = [key for key, value in rivals.items() if quality.behind(score, value)]
    tied = [key for key, value in rivals.items() if score == value]
    won = [key for key, value in rivals.items() if quality.behind(value, score)]

    def against(keys: list[str]) -> str:
        return " and ".join(f"{quality.baselines[key]} ({quality.form(rivals[key])})" for key in keys)

    if lost:
        said = [message("reports.loses", rivals=against(lost), **written)]
        if won or tied:
            other = "reports.beats_another" if won else "reports.equals_another"
            said.append(message(other, rivals=against(won or tied)))
    else:
        said = [message("reports.equals" if tied else "reports.beats", rivals=against(tied or won), **written)]
    text = " ".join(f"{sentence}." for sentence in [*said, *_windows_lost(metrics, quality)])
    return Text(text, "verdict bad" if lost or tied else "verdict good")


def _windows_lost(metrics: Columns, quality: Quality) -> list[Message]:
    """Count the windows of the metrics table that the learner lost to the better baseline; empty if none was scored."""
    names = [quality.window, *(f"window_{key}" for key in quality.baselines)]
    learner, *rivals = (metrics.get(name, np.array([])) for name in names)
    scored = int(np.isfinite(learner).sum())
    if not scored or any(len(rival) != len(learner) for rival in rivals):
        return []
    lost = int(quality.behind(learner, quality.best(rivals)).sum())
    if scored == 1:
        return [message("reports.window_lost" if lost else "reports.window_kept")]
    if not lost:
        return [message("reports.windows_kept", scored=count(scored))]
    return [message("reports.windows_lost", lost=count(lost), scored=count(scored))]


_FEASIBILITY: dict[str, tuple[Literal["good", "bad", "plain"], str]] = {
    "proven": ("good", "proven"),
    "violated": ("bad", "violated"),
    "not_promised": ("plain", "not promised by these options"),
}


def _verdicts(summary: dict[str, Any]) -> list[Fact]:
    """Return the two verdicts of an audit; none of a run without an audit."""
    audit = summary.get("audit")
    if not audit:
        return []
    conformance, feasibility = str(audit.get("conformance")), str(audit.get("feasibility"))
    tone, text = _FEASIBILITY.get(feasibility, ("plain", feasibility))
    holds: Literal["good", "bad"] = "good" if conformance == "holds" else "bad"
    return [
        Fact("Conformance", conformance, "Is the model what its algorithm says?", holds),
        Fact("Feasibility", text, "Does the published guarantee hold?", tone),
    ]


def audit_figure(summary: dict[str, Any]) -> Fact:
    """Return the audit as a key figure."""
    verdicts = _verdicts(summary)
    if not verdicts:
        return Fact("audit", "not run", "see the command below", "plain")
    conformance, feasibility = verdicts
    return Fact("audit", conformance.value, f"guarantee: {feasibility.value}", conformance.tone)


def audit_blocks(run: ReportedRun, location: str, gap: Fact | None) -> list[Block]:
    """Return the audit of a run, or how to run one on the folder at ``location``."""
    summary, command = run.summary, f"raydt audit {shlex.quote(location)}"
    moment = Text(_moment(summary))
    audit, verdicts = summary.get("audit"), _verdicts(summary)
    if not audit:
        return [moment, Text(message("reports.no_audit")), Code(command)]
    return [
        moment,
        Facts([*verdicts, *([gap] if gap else [])], "verdicts"),
        pairs(facts.audit_facts(audit, run.description)[1:]),
        Text("To repeat the audit:", "quiet"),
        Code(command),
    ]


def _moment(summary: dict[str, Any]) -> str:
    """Return the moment of an unfinished stream that an audit checks; empty of a complete one."""
    status = summary.get("status")
    if status not in ("failed", "interrupted"):
        return ""
    updates = counted(int(number(summary, "updates") or 0), "update")
    ended = "failed" if status == "failed" else "was interrupted"
    return f"{message('reports.unfinished', ended=ended, updates=updates)}."


# The article about a run with a model for each key: how the keys differ, which are behind, where the time went.

#: Keys of a table.
SHOWN = 10
_QUANTILES = (
    (0.0, "least"),
    (0.05, "5 %"),
    (0.25, "25 %"),
    (0.5, "median"),
    (0.75, "75 %"),
    (0.95, "95 %"),
    (1, "most"),
)


def _of_keys(run: ReportedRun, location: str) -> _Part:
    """Return the part of a run whose table of keys was read."""
    quality, keys = judged(run.summary), run.keys
    sections = [
        Section("Keys", _distribution(keys, quality), "keys"),
        Section("Best and worst", _extremes(keys, quality), "extremes"),
        Section("Behind a baseline", _behind(keys, quality), "behind"),
        Section("Time and rows", _skew(run, keys, quality), "skew"),
        Section("Guarantee", audit_blocks(run, location, None), "guarantee"),
        Section("Rows passed over", [facts.skipped_rows(run)] if run.quarantined else [], "skipped"),
    ]
    return _Part([], _figures(run, keys, quality), sections)


def _figures(run: ReportedRun, keys: dict[str, Any], quality: Quality) -> list[Fact]:
    summary = run.summary
    pooled = (summary.get("metrics") or {}).get(quality.score)
    behind = int(np.count_nonzero(_loses(keys, quality)))
    return [
        Fact("keys", count(len(keys["key"])), f"{counted(behind, 'key')} behind a baseline"),
        Fact(quality.name, quality.form(pooled), "over the predictions of all keys"),
        Fact(f"{quality.name} of the median key", quality.form(_median(keys[quality.score])), "each key counts once"),
        Fact("updates", count(summary.get("updates")), f"{count(summary.get('active'))} examples live"),
        Fact("updates per second", figure(summary.get("updates_per_second")), "start-up and report excluded"),
    ]


def _median(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _distribution(keys: dict[str, Any], quality: Quality) -> list[Block]:
    """Return quantiles over keys, and for shares how many keys lie in each tenth."""
    columns: list[tuple[str, str, Form]] = [
        (quality.name, quality.score, quality.form),
        ("updates", "updates", count),
        ("live examples", "active", count),
        ("nodes", "nodes", count),
        ("seconds", "seconds", duration),
    ]
    rows = []
    for title, name, form in columns:
        values = np.asarray(keys[name], dtype=np.float64)
        values = values[~np.isnan(values)]
        if len(values):
            method: Any = "linear" if form is quality.form else "nearest"
            cells = [form(float(np.quantile(values, at, method=method))) for at, _ in _QUANTILES]
            rows.append(Row((title, *cells)))
    quantiles = Table(rows, title="Quantiles over keys", columns=("", *(name for _, name in _QUANTILES)))
    return [quantiles]


def _loses(keys: dict[str, Any], quality: Quality) -> Bools:
    """Return which keys are behind the better baseline."""
    return quality.behind(keys[quality.score], _rival(keys, quality))


def _rival(keys: dict[str, Any], quality: Quality) -> Floats:
    best: Floats = quality.best([keys[name] for name in quality.baselines])
    return best


def _table(keys: dict[str, Any], quality: Quality, places: Ints, title: str, seconds: float | None = None) -> Table:
    """Return a row for each key at ``places``, with a bar for its share of ``seconds``, if that is given."""
    columns: list[tuple[str, Any, Form]] = [
        (quality.name.capitalize(), keys[quality.score], quality.form),
        ("Better baseline", _rival(keys, quality), quality.form),
        *((name.capitalize(), keys[name], count) for name in ("predictions", "updates")),
        ("Live", keys["active"], count),
        ("Time", keys["seconds"], duration),
    ]
    rows = [
        Row(
            (str(keys["key"][i]), *(form(float(values[i])) for _, values, form in columns)),
            None if seconds is None else float(keys["seconds"][i]) / seconds,
        )
        for i in places.tolist()
    ]
    style: Literal["", "bars"] = "" if seconds is None else "bars"
    return Table(rows, "", title, ("Key", *(name for name, *_ in columns)), style=style)


def _extremes(keys: dict[str, Any], quality: Quality) -> list[Block]:
    """Return the best and the worst keys."""
    scores = np.asarray(keys[quality.score], dtype=np.float64)
    known = np.flatnonzero(~np.isnan(scores))
    order = known[np.argsort(-scores[known] if quality.more_is_better else scores[known], kind="stable")]
    if len(order) <= 2 * SHOWN:
        return [_table(keys, quality, order, "All keys, the best first")]
    ends = (("best", order[:SHOWN]), ("worst", order[::-1][:SHOWN]))
    return [_table(keys, quality, at, f"The {SHOWN} {name} keys") for name, at in ends]


def _behind(keys: dict[str, Any], quality: Quality) -> list[Block]:
    """Return the keys that lose most against the better baseline."""
    lost = np.flatnonzero(_loses(keys, quality))
    if not len(lost):
        return [Text(f"{message('keyed.none_behind')}.")]
    gap = np.abs(np.asarray(keys[quality.score])[lost] - _rival(keys, quality)[lost])
    worst = lost[np.argsort(-gap, kind="stable")][:SHOWN]
    said = message("keyed.behind", behind=counted(len(lost), "key"), keys=len(keys["key"]))
    title = "Those that lose most" if len(lost) > SHOWN else ""
    return [Text(f"{said}."), _table(keys, quality, worst, title)]


def _skew(run: ReportedRun, keys: dict[str, Any], quality: Quality) -> list[Block]:
    """Return the keys that took most of the time, and what bounds the speed of more processes."""
    seconds = np.asarray(keys["seconds"])
    total = float(seconds.sum()) or 1.0
    largest = float(seconds.max(initial=0.0)) / total
    said = message("keyed.bound", share=share(largest, 1), times=f"{1 / largest:,.1f}" if largest else "any")
    order = np.argsort(-seconds, kind="stable")[:SHOWN]
    dearest = _table(keys, quality, order, "Keys that took most of the time", total)
    return [Text(f"{said}."), dearest, *facts.shard_work(run)[1:]]


def _of_model(run: ReportedRun, location: str) -> _Part:
    """Return the part of a run with one model."""
    shown, metrics = run.description.present(run), run.metrics
    verdict = [against_baselines(run.summary, metrics)]
    figures = facts.key_figures(run, shown.figures)
    quality = Text(f"{_judged_by(run, judged(run.summary).baselines)}.")
    guarantee = [*shown.guarantee, Heading("audit", "Audit"), *audit_blocks(run, location, shown.gap)]
    skipped = facts.skipped_rows(run)
    if run.summary.get("holdout") is not None:
        trained, *others = figures  # the scores come first
        figures = [*others[:1], *holdout.figures(run.summary), *others[1:], trained]
        constant = bool(holdout.of_training(run.summary))
        compared = holdout.scores(run, facts.f1_name(run)) if constant else facts.scores(run)
        model: list[Block] = [
            Fold(f"Show the {shown.model.title.lower()}", [block]) if isinstance(block, Tree) else block
            for block in shown.model.blocks
            if not (isinstance(block, Chart) and block.span)
        ]
        sections = [
            Section("Hold-out", [quality, Beside([compared, facts.confusion(run)])], "quality"),
            *(Section(title, blocks, key) for title, key, blocks in holdout.sections(run)),
            replace(shown.model, key="tree", blocks=[*model, *_features(run)]),
            Section("Guarantee", guarantee, "guarantee"),
            Section("Rows passed over", [skipped] if run.quarantined else [], "skipped"),
        ]
        return _Part(verdict, figures, sections)
    scored: list[Block] = [*charts.quality_charts(metrics, facts.f1_name(run))]
    why = message("reports.few_points" if len(metrics.get("seq", ())) else "reports.no_metrics")
    few, stream = Text(f"{why}.", "none"), list[Block]()
    if has_curve(metrics, "seq"):
        stream = [charts.live_examples(metrics), charts.work_over_stream(metrics, run.description.curves)]
    scores = Beside([facts.scores(run), facts.alarms(run), facts.confusion(run)])
    sections = [
        Section("Quality", [quality, *(scored or [few]), scores], "quality"),
        replace(shown.model, key="tree"),
        Section("Guarantee", guarantee, "guarantee"),
        replace(shown.work, key="rebuilds"),
        Section("Stream", [*(stream or [few]), skipped], "stream"),
    ]
    return _Part(verdict, figures, sections)


def _features(run: ReportedRun) -> list[Block]:
    """Return the names of all features in full, folded."""
    named = [str(feature.get("name")) for feature in run.names.features]
    return [Fold(f"Names of {counted(len(named), 'column')} of features", [Items(named)])] if named else []


class _Part(NamedTuple):
    """The part of an article that differs between a run with one model and one with a model for each key."""

    verdict: list[Text]
    figures: list[Fact]
    sections: list[Section]


def run_article(run: ReportedRun, location: str, label: str = "", prefix: str = "") -> Article:
    """Return the article about ``run``; among several, ``label`` names it and ``prefix`` begins anchors."""
    part, clock = (_of_keys if run.keys else _of_model)(run, location), run.clock
    config: Block = Code(_without_nulls(run)) if run.config_text else Text(f"{message('reports.no_config')}.", "none")
    sections = [
        *part.sections,
        Section("Chapters", [facts.chapters(run)] if run.chapters else [], "chapters"),
        Section("Recovery", facts.recoveries(run), "recovery"),
        Section("Shards", [] if run.keys or _trained_alone(run) else facts.shard_work(run), "shards"),
        Section("Configuration", [config], "config"),
        Section("Environment and digests", facts.environment(run), "environment"),
    ]
    head: list[Block] = [
        Text(str(run.summary.get("error") or ""), "notice bad", lead="The run failed."),
        *(Text(f"{note}.", "notice") for note in [*_ending(run), *run.notes]),
        *part.verdict,
        Facts([*part.figures, audit_figure(run.summary)], "figures"),
        pairs(facts.facts(run, location)),
    ]
    drawn = [
        replace(section, blocks=[timed(marked(block, run), clock) for block in section.blocks])
        for section in sections
        if section.blocks
    ]
    return Article(label or facts.name_of(run, location), facts.what_ran(run), head, drawn, prefix)


def _trained_alone(run: ReportedRun) -> bool:
    """Return True of a training by one shard, which did all the work."""
    return run.summary.get("holdout") is not None and len(run.summary.get("work") or []) < 2


def _without_nulls(run: ReportedRun) -> str:
    """Return the config as YAML without keys that are not set; its text if that cannot be read."""
    return as_yaml(json.dumps(_set(run.config))) if run.config else run.config_text


def _set(value: Any) -> Any:
    """Return a plain value without entries of None, and without mappings that have no other entries."""
    if not isinstance(value, dict):
        return value
    found = {key: _set(entry) for key, entry in value.items() if entry is not None}
    return {key: entry for key, entry in found.items() if entry != {}}


def _judged_by(run: ReportedRun, rivals: Mapping[str, str]) -> Message:
    """Return a sentence about the baselines, and about the rows that a training run holds out."""
    numbers, held_out = "mean" in rivals, run.summary.get("holdout")
    if not isinstance(held_out, dict):
        return message("reports.numbers" if numbers else "reports.classes")
    if not held_out.get("rows"):
        return message("reports.nothing_held_out")
    held = {
        "rows": counted(held_out["rows"], "row"),
        "rest": held_out.get("trained_on", 0),
        "by": holdout.chosen(held_out),
    }
    rival = "the mean label" if numbers else "the most frequent label"
    return message("reports.held_out", name=next(iter(rivals.values())), rival=rival, **held)


def _ending(run: ReportedRun) -> list[Message]:
    """Return sentences if the run was stopped before its end, or its warm-up ended early."""
    found = []
    if run.summary.get("status") == "interrupted":
        found.append(message("reports.interrupted", reason=run.summary.get("exit_reason")))
    if isinstance(early := run.summary.get("early_warmup"), dict):
        found.append(message("runs.early_warmup", **early))
    return found


def write_report(
    runs: Sequence[Path], out: Path, *, locations: Sequence[str] | None = None, key: str | None = None
) -> Path:
    """Write one HTML file, at once or not at all, about one run or several; ``locations`` are for commands."""
    if not runs:
        raise ValueError(message("reports.no_runs"))
    page = render(runs, locations, key)
    Folder(out.parent).publish(out.name, page.encode())
    return out


def render(runs: Sequence[Path], locations: Sequence[str] | None = None, key: str | None = None) -> str:
    """Return the page about ``runs``; parameters as in :func:`write_report`."""
    locations = [str(run) for run in runs] if locations is None else locations
    with fitting(", ".join(locations)):
        folders = [read_run(run, key) for run in runs]
        if len(folders) == 1:
            article = run_article(folders[0], locations[0])
            return document(article.title, "report", [article])
        from pipelines.report.compare import compare  # it reads data sets, whose import takes longer than one report

        named = facts.labels(folders, locations)
        articles = [
            run_article(folder, location, label, f"run-{number}-")
            for number, (folder, location, label) in enumerate(zip(folders, locations, named, strict=True), start=1)
        ]
        return document(f"{len(folders)} runs", "report", articles, compare(folders, named))


# The article about one receipt of a chain: who asked, when, what was deleted, rebuilt, and where copies may remain.
#
# Invariant: everything on the page is in the entry, or a hash of its line. No id is on it: an entry has hashes of ids.


def receipt_article(chain: Chain, number: int, file: str) -> Article:
    """Return the article about entry ``number``, from 1 on, of the chain in ``file``."""
    entry, undone = chain.entries[number - 1], undone_by(chain).get(number)
    notes = [message("receipts.undone", by=undone)] if undone is not None else []
    notes += [message("receipts.after_gap")] if number in chain.gaps else []
    head: list[Block] = [
        Text(f"{in_words(entry)}.", "verdict plain" if undone is not None else "verdict good"),
        *(Text(f"{note}.", "notice bad") for note in notes),
        pairs(_facts(entry, number, len(chain.entries))),
    ]
    digests = {
        "Model before": entry["digest_before"],
        "Model after": entry["digest_after"],
        "Options of the learner": entry["options_hash"],
        "This receipt": chain.hashes[number - 1],
        "The receipt before it": entry["previous"],
        "Signed by": entry.get("public_key"),
        "Signature": entry.get("signature"),
    }
    shown = [Fact(name, str(value)) for name, value in digests.items() if value]
    sections = [
        *_sections(entry),
        Section("Digests", [Text(f"{message('receipts.digests')}."), Facts(shown, "digests")], "digests"),
        Section("Check it", [Text(f"{message('receipts.check')}."), Code(_command(file))], "check"),
    ]
    return Article(f"Receipt {number}", message("receipts.of_chain", file=file), head, sections)


def in_words(entry: Mapping[str, Any]) -> str:
    """Return in one sentence what a receipt is about."""
    at = moment(entry["time"])
    if "purged" in entry:
        ids = entry["purged"]["ids"]
        of = message("receipts.of_all") if ids is None else message("receipts.of_rows", rows=counted(len(ids), "row"))
        return message("receipts.what_purged", time=at, of=of)
    if "rolled_back" in entry:
        to = entry["rolled_back"]
        return message("receipts.what_back" if to else "receipts.what_back_first", time=at, to=to)
    if "source" in entry and not entry["deleted"]:
        return message("receipts.what_followed", time=at, updates=_updates(entry))
    deleted, inserted = counted(len(entry["deleted"]), "row"), counted(len(entry["inserted"]), "row")
    if not entry["inserted"]:
        return message("receipts.what_deleted", time=at, rows=deleted)
    return message("receipts.what_changed", time=at, deleted=deleted, inserted=inserted)


def _facts(entry: Mapping[str, Any], number: int, total: int) -> list[tuple[str, str]]:
    """Return who asked, when, and how much; whoever adds what a receipt is about adds a line here."""
    changed = "purged" not in entry and "rolled_back" not in entry
    return [
        ("Asked by, or case", entry.get("note") or message("receipts.no_note")),
        ("Asked for by the source in", entry.get("source", {}).get("place", "")),
        ("Updates of the run", _updates(entry)),
        ("Time", moment(entry["time"])),
        ("Rows deleted", count(len(entry["deleted"])) if changed else ""),
        ("Keys whose models changed", count(len(entry["keys"])) if entry.get("keys") else ""),
        ("Subjects", _subjects(entry)),
        ("Not there", _missing(entry)),
        ("Rows inserted", count(len(entry["inserted"])) if changed else ""),
        ("Rows in the model", f"{count(entry['active_before'])} before, {count(entry['active'])} after"),
        ("Learner", f"{entry['learner']}, raydt {entry['raydt_version']}"),
        ("Receipt", f"{number} of {total}"),
    ]


def _updates(entry: Mapping[str, Any]) -> str:
    """Return the updates of a run that an entry is about, the last one included."""
    first, stop = entry.get("source", {}).get("updates", (0, 0))
    return f"{count(first)} to {count(stop - 1)}" if stop > first else ""


def _subjects(entry: Mapping[str, Any]) -> str:
    """Return of how many persons, or other subjects, all rows were deleted."""
    named = len(entry.get("subjects", ()))
    return message("receipts.subjects", subjects=count(named)) if named else ""


def _missing(entry: Mapping[str, Any]) -> str:
    """Return how much of what was asked for had no live row."""
    named = len(entry.get("missing", ()))
    return message("receipts.missing", names=count(named)) if named else ""


def _sections(entry: Mapping[str, Any]) -> list[Section]:
    """Return what was done to the model, or to files, and where copies may remain."""
    purged = entry.get("purged")
    if purged is not None:
        files = [*purged["replaced"], *purged["rewritten"]]
        done: list[Block] = [Items(files) if files else Text(f"{message('receipts.no_files')}.", "none")]
        return [Section("Files changed", done, "files"), _remaining(purged["out_of_reach"])]
    if "rolled_back" in entry:
        return []
    rebuilt: Block = pairs((name.capitalize(), value) for name, value in entry.get("work", ()))
    if not entry.get("work"):
        said = "receipts.no_work" if "work" in entry else "receipts.not_recorded"
        rebuilt = Text(f"{message(said)}.", "none")
    return [
        Section("What was rebuilt", [rebuilt], "rebuilt"),
        *([_remaining(entry.get("copies"))] if entry["deleted"] else []),
    ]


def _remaining(places: list[str] | None) -> Section:
    """Return where copies of deleted rows may remain; None if the receipt does not say it."""
    blocks: list[Block] = [Text(f"{message('receipts.remains')}:"), Items(places or [])]
    if places is None:
        blocks = [Text(f"{message('receipts.not_recorded')}.", "none")]
    return Section("Where copies may remain", blocks, "copies")


def _command(file: str) -> str:
    return f"raydt verify {file} --id ID --receipt-key KEYFILE"
