"""The article about one run: its head and its sections."""

from __future__ import annotations

from dataclasses import replace

from pipelines.report import charts, facts, recovery, tables
from pipelines.report.folder import ReportedRun
from pipelines.report.quality import quality_of
from pipelines.report.verdicts import against_baselines, audit_blocks, audit_figure
from raydt.messages import Message, message
from raydt.presentation.blocks import Article, Beside, Block, Code, Facts, Heading, Section, Text, pairs
from raydt.presentation.charts import has_curve
from raydt.presentation.clock import timed


def run_article(run: ReportedRun, location: str, label: str = "", prefix: str = "") -> Article:
    """Return the article about ``run``, whose folder commands call ``location``.

    Among several runs, ``label`` tells it from the others, and ``prefix`` begins its anchors.
    """
    shown, metrics = run.description.present(run), run.metrics
    rivals = quality_of(run.summary.get("metrics")).baselines
    scored: list[Block] = [*charts.quality_charts(metrics, facts.f1_name(run))]
    few, stream = Text(f"{_few_points(run)}.", "none"), list[Block]()
    if has_curve(metrics, "seq"):
        stream = [charts.live_examples(metrics), charts.work_over_stream(metrics, run.description.curves)]
    quality = Text(f"{message('reports.numbers' if 'mean' in rivals else 'reports.classes')}.")
    scores = Beside([tables.scores(run), tables.alarms(run), tables.confusion(run)])
    audit = audit_blocks(run, location, shown.gap)
    recovered, config = tables.recoveries(run), Text(f"{message('reports.no_config')}.", "none")
    sections = [
        Section("Quality", [quality, *(scored or [few]), scores], "quality"),
        replace(shown.model, key="tree"),
        Section("Guarantee", [*shown.guarantee, Heading("audit", "Audit"), *audit], "guarantee"),
        replace(shown.work, key="rebuilds"),
        Section("Stream", [*(stream or [few]), tables.skipped_rows(run)], "stream"),
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


def _ending(run: ReportedRun) -> list[Message]:
    """Return a sentence if the run was stopped before its end."""
    if run.summary.get("status") != "interrupted":
        return []
    return [message("reports.interrupted", reason=run.summary.get("exit_reason"))]


def _few_points(run: ReportedRun) -> Message:
    """Return the reason why there is no curve."""
    return message("reports.few_points" if len(run.metrics.get("seq", ())) else "reports.no_metrics")
