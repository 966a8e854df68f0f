"""The article about one run: its head and its sections."""

from __future__ import annotations

from dataclasses import replace

from pipelines.report import charts, facts, recovery, tables
from pipelines.report.folder import ReportedRun
from pipelines.report.quality import quality_of
from pipelines.report.verdicts import against_baselines, audit_blocks, audit_figure
from raydt.presentation.blocks import Article, Beside, Block, Code, Facts, Heading, Section, Text, pairs
from raydt.presentation.charts import has_curve


def run_article(run: ReportedRun, location: str, label: str = "", prefix: str = "") -> Article:
    """Return the article about ``run``, whose folder commands call ``location``.

    Among several runs, ``label`` tells it from the others, and ``prefix`` begins its anchors.
    """
    shown, metrics = run.description.present(run), run.metrics
    rivals = quality_of(run.summary.get("metrics")).baselines
    trivial = (
        "mean predicts the mean of the labels" if "mean" in rivals else "majority predicts the most frequent label"
    )
    scored: list[Block] = [*charts.quality_charts(metrics, facts.f1_name(run))]
    few, stream = Text(_few_points(run), "none"), list[Block]()
    if has_curve(metrics, "seq"):
        stream = [charts.live_examples(metrics), charts.work_over_stream(metrics, run.description.curves)]
    quality = Text(
        f"No-change predicts the last label seen; {trivial} so far. A learner that does not beat both is not worth its "
        "cost."
    )
    scores = Beside([tables.scores(run), tables.alarms(run), tables.confusion(run)])
    audit = audit_blocks(run, location, shown.gap)
    recovered, config = tables.recoveries(run), Text("There is no config.yaml.", "none")
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
        *(Text(note, "notice") for note in [*_ending(run), *run.notes]),
        against_baselines(run.summary, metrics),
        Facts([*facts.key_figures(run, shown.figures), audit_figure(run.summary)], "figures"),
        pairs(facts.facts(run, location)),
    ]
    marked = [
        replace(section, blocks=[recovery.marked(block, run) for block in section.blocks]) for section in sections
    ]
    return Article(label or facts.name_of(run, location), facts.what_ran(run), head, marked, prefix)


def _ending(run: ReportedRun) -> list[str]:
    """Return a sentence if the run was stopped before its end."""
    if run.summary.get("status") != "interrupted":
        return []
    return [f"The run was interrupted ({run.summary.get('exit_reason')}): figures cover the updates up to that point."]


def _few_points(run: ReportedRun) -> str:
    """Return the reason why there is no curve."""
    if not len(run.metrics.get("seq", ())):
        return "No metrics were written."
    return (
        "Fewer than two rows of metrics have a value, too few for a curve. "
        "A smaller output.metrics_every writes more of them."
    )
