"""Writes the report about one or several runs: the article about a run, and the page around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipelines.report import charts, facts, recovery, tables
from pipelines.report.document import document
from pipelines.report.facts import labels
from pipelines.report.folder import ReportedRun, read_run
from pipelines.report.keyed_article import keyed_article
from pipelines.report.quality import judged
from pipelines.report.verdicts import against_baselines, audit_blocks, audit_figure
from pipelines.run_folder import fitting
from raydt.folders.folder import Folder
from raydt.messages import Message, message
from raydt.presentation.blocks import Article, Beside, Block, Code, Facts, Heading, Section, Text, pairs
from raydt.presentation.charts import has_curve
from raydt.presentation.clock import timed
from raydt.presentation.words import counted


def run_article(run: ReportedRun, location: str, label: str = "", prefix: str = "") -> Article:
    """Return the article about ``run``; among several, ``label`` names it and ``prefix`` begins anchors."""
    shown, metrics = run.description.present(run), run.metrics
    rivals = judged(run.summary).baselines
    scored: list[Block] = [*charts.quality_charts(metrics, facts.f1_name(run))]
    trained = run.summary.get("holdout") is not None
    why = message("reports.few_points" if len(metrics.get("seq", ())) else "reports.no_metrics")
    few, stream = Text("" if trained else f"{why}.", "none"), list[Block]()
    if has_curve(metrics, "seq") and not trained:
        stream = [charts.live_examples(metrics), charts.work_over_stream(metrics, run.description.curves)]
    quality = Text(f"{_judged_by(run, rivals)}.")
    scores = Beside([tables.scores(run), tables.alarms(run), tables.confusion(run)])
    audit = audit_blocks(run, location, shown.gap)
    recovered, config = tables.recoveries(run), Text(f"{message('reports.no_config')}.", "none")
    skipped = tables.skipped_rows(run)
    sections = [
        Section("Quality", [quality, *(scored or [few]), scores], "quality"),
        replace(shown.model, key="tree"),
        Section("Guarantee", [*shown.guarantee, Heading("audit", "Audit"), *audit], "guarantee"),
        replace(shown.work, key="rebuilds"),
        *([] if trained and not run.quarantined else [Section("Stream", [*(stream or [few]), skipped], "stream")]),
        *([Section("Chapters", [tables.chapters(run)], "chapters")] if run.chapters else []),
        *([Section("Recovery", recovered, "recovery")] if recovered else []),
        Section("Shards", tables.shard_work(run), "shards"),
        Section("Configuration", [Code(run.config_text) if run.config_text else config], "config"),
        Section("Environment and digests", facts.environment(run), "environment"),
    ]
    head: list[Block] = [
        Text(str(run.summary.get("error") or ""), "notice bad", lead="The run failed."),
        *(Text(f"{note}.", "notice") for note in [*_ending(run), *run.notes]),
        against_baselines(run.summary, metrics),
        Facts([*facts.key_figures(run, shown.figures), audit_figure(run.summary)], "figures"),
        pairs(facts.facts(run, location)),
    ]
    clock = run.clock
    marked = [
        replace(section, blocks=[timed(recovery.marked(block, run), clock) for block in section.blocks])
        for section in sections
    ]
    return Article(label or facts.name_of(run, location), facts.what_ran(run), head, marked, prefix)


def _judged_by(run: ReportedRun, rivals: Mapping[str, str]) -> Message:
    """Return a sentence about the baselines, and about the rows that a training run holds out."""
    numbers, holdout = "mean" in rivals, run.summary.get("holdout")
    if not isinstance(holdout, dict):
        return message("reports.numbers" if numbers else "reports.classes")
    if not holdout.get("rows"):
        return message("reports.nothing_held_out")
    held = {"rows": counted(holdout["rows"], "row"), "rest": holdout.get("trained_on", 0)}
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
        return _rendered([read_run(run, key) for run in runs], locations)


def _rendered(folders: list[ReportedRun], locations: Sequence[str]) -> str:
    if len(folders) == 1:
        article = _article(folders[0], locations[0])
        return document(article.title, "report", [article])
    from pipelines.report.compare import compare  # it reads data sets, whose import takes longer than one report

    named = labels(folders, locations)
    articles = [
        _article(folder, location, label, f"run-{number}-")
        for number, (folder, location, label) in enumerate(zip(folders, locations, named, strict=True), start=1)
    ]
    return document(f"{len(folders)} runs", "report", articles, compare(folders, named))


def _article(run: ReportedRun, location: str, label: str = "", prefix: str = "") -> Article:
    return (keyed_article if run.keys else run_article)(run, location, label, prefix)
