"""Everything the template shows of one run, section by section; a section without data is empty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from pipelines.report import charts, identity, recovery, tables
from pipelines.report.folder import RunFolder
from pipelines.report.quality import quality_of
from pipelines.report.verdicts import AuditView, Verdict, against_baselines, audit_view
from raydt.learners.description import Figure, Gap
from raydt.presentation.blocks import Block, Row, Table
from raydt.presentation.charts import Chart, has_curve
from raydt.presentation.words import count, figure

#: Blocks of one kind that follow one another, under the name of the kind.
Groups = list[tuple[str, list[Block]]]


def grouped(blocks: Iterable[Block]) -> Groups:
    """Blocks by kind, in their order; tables without rows and remark are left out."""
    shown = (block for block in blocks if not isinstance(block, Table) or block.rows or block.remark)
    return [(kind, list(group)) for kind, group in groupby(shown, lambda block: type(block).__name__.lower())]


@dataclass(frozen=True, slots=True)
class RunView:
    """One run as the template sees it; ``prefix`` keeps the anchors of several runs apart."""

    prefix: str
    name: str
    label: str
    what: str
    error: str
    notes: list[str]
    facts: list[tuple[str, str]]
    figures: list[Figure]
    verdict: Verdict
    few_points: str
    quality_charts: list[Chart]
    rivals: list[str]
    scores: Table
    confusion: tuple[list[str], list[Row]] | None
    alarms: Table
    model: Groups
    model_title: str
    guarantee: Groups
    audit: AuditView
    gap: Gap | None
    audit_checked: list[Row]
    audit_worst: list[Row]
    work: Groups
    work_title: str
    stream_charts: list[Chart]
    skipped: Table
    recoveries: Table
    shards: Table
    config_text: str
    environment: list[tuple[str, str]]
    digests: list[tuple[str, str]]


def run_view(run: RunFolder, location: str, label: str, prefix: str = "") -> RunView:
    """The sections of ``run``; ``location`` is what commands call its folder, ``label`` tells it from other runs."""
    metrics = run.metrics
    drawn = has_curve(metrics, "seq")
    audit, description = audit_view(run.summary, location), run.description
    shown = description.present(run.records)

    def over_stream(here: Iterable[Chart]) -> list[Chart]:
        return [recovery.marked(chart, run) for chart in here]

    def laid_out(blocks: Iterable[Block]) -> Groups:
        return grouped(recovery.marked(block, run) if isinstance(block, Chart) else block for block in blocks)

    return RunView(
        prefix=prefix,
        name=identity.name_of(run, location),
        label=label,
        what=identity.what_ran(run),
        error=str(run.summary.get("error") or ""),
        notes=[*_ending(run), *run.notes],
        facts=identity.facts(run, location),
        figures=identity.key_figures(run, shown.figures),
        verdict=against_baselines(run.summary, metrics),
        few_points=_few_points(run),
        quality_charts=over_stream(_quality_charts(run)),
        rivals=[name.capitalize() for name in quality_of(run.summary.get("metrics")).baselines.values()],
        scores=tables.scores(run),
        confusion=tables.confusion(run),
        alarms=tables.alarms(run),
        model=laid_out(shown.model.blocks),
        model_title=shown.model.title,
        guarantee=laid_out(shown.guarantee),
        audit=audit,
        gap=shown.gap,
        audit_checked=[Row((key.replace("_", " "), count(value))) for key, value in audit.checked.items()],
        audit_worst=[
            Row((description.measures.get(key, key.replace("_", " ")), figure(value)))
            for key, value in audit.worst.items()
        ],
        work=laid_out(shown.work.blocks),
        work_title=shown.work.title,
        stream_charts=over_stream([charts.live_examples(metrics), charts.work_over_stream(metrics, description.curves)])
        if drawn
        else [],
        skipped=tables.skipped_rows(run),
        recoveries=tables.recoveries(run),
        shards=tables.shard_work(run),
        config_text=run.config_text,
        environment=identity.environment(run),
        digests=identity.digests(run),
    )


def _ending(run: RunFolder) -> list[str]:
    """That the run was stopped before its end, if it was."""
    if run.summary.get("status") != "interrupted":
        return []
    return [f"The run was interrupted ({run.summary.get('exit_reason')}): figures cover the updates up to that point."]


def _quality_charts(run: RunFolder) -> list[Chart]:
    quality, drawn = quality_of(run.metrics), []
    if has_curve(run.metrics, quality.window):
        drawn.append(charts.windowed_quality(run.metrics))
    if has_curve(run.metrics, quality.score):
        drawn.append(charts.cumulative_quality(run.metrics, identity.f1_name(run)))
    if all(has_curve(run.metrics, name) for name in (quality.window, "window_no_change", "window_majority")):
        drawn.append(charts.windowed_kappas(run.metrics))
    if has_curve(run.metrics, "r2"):
        drawn.append(charts.r2_so_far(run.metrics))
    return drawn


def _few_points(run: RunFolder) -> str:
    """Why there is no curve, where there is none."""
    if not len(run.metrics.get("seq", ())):
        return "No metrics were written."
    return (
        "Fewer than two rows of metrics have a value, too few for a curve. "
        "A smaller output.metrics_every writes more of them."
    )
