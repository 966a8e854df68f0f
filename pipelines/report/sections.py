"""Everything the template shows of one run, section by section; a section without data is empty."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.report import charts, identity, tables
from pipelines.report.charts import Chart
from pipelines.report.folder import RunFolder
from pipelines.report.formatting import count, figure
from pipelines.report.tables import Row, Table
from pipelines.report.tree import LEVELS, Node, class_name, top_levels
from pipelines.report.verdicts import AuditView, Verdict, against_baselines, audit_view


@dataclass(frozen=True, slots=True)
class RunView:
    """One run as the template sees it; ``prefix`` keeps the anchors of several runs apart."""

    prefix: str
    name: str
    label: str
    what: str
    compared: list[tuple[str, str]]
    error: str
    notes: list[str]
    facts: list[tuple[str, str]]
    figures: list[tuple[str, str, str]]
    verdict: Verdict
    few_points: str
    quality_charts: list[Chart]
    scores: Table
    confusion: tuple[list[str], list[Row]] | None
    stream_charts: list[Chart]
    skipped: Table
    rebuild_charts: list[Chart]
    rebuilds: Table
    shards: Table
    shape_charts: list[Chart]
    tree: Node | None
    levels: int
    legend: list[tuple[str, int]]
    features: Table
    audit: AuditView
    audit_checked: list[Row]
    audit_worst: list[Row]
    config_text: str
    environment: list[tuple[str, str]]
    digests: list[tuple[str, str]]


def run_view(run: RunFolder, location: str, label: str, prefix: str = "") -> RunView:
    """The sections of ``run``; ``location`` is what commands call its folder, ``label`` tells it from other runs."""
    metrics, classes = run.metrics, identity.classes_of(run)
    drawn = charts.has_curve(metrics, "seq")
    rebuilt = bool(len(run.events.get("rows", ()))) and {"seq", "place"} <= run.events.keys()
    audit = audit_view(run.summary, location)
    return RunView(
        prefix=prefix,
        name=identity.name_of(run, location),
        label=label,
        what=identity.what_ran(run),
        compared=identity.compared_figures(run),
        error=str(run.summary.get("error") or ""),
        notes=run.notes,
        facts=identity.facts(run, location),
        figures=identity.key_figures(run),
        verdict=against_baselines(run.summary, metrics),
        few_points=_few_points(run),
        quality_charts=_quality_charts(run),
        scores=tables.scores(run),
        confusion=tables.confusion(run),
        stream_charts=[charts.live_examples(metrics), charts.work_over_stream(metrics)] if drawn else [],
        skipped=tables.skipped_rows(run),
        rebuild_charts=_rebuild_charts(run) if rebuilt and len(run.events["rows"]) > 1 else [],
        rebuilds=tables.rebuild_work(run) if rebuilt else Table([]),
        shards=tables.shard_work(run),
        shape_charts=[charts.tree_shape(metrics)] if drawn else [],
        tree=top_levels(run.model, identity.features_of(run), classes, run.categories) if run.model else None,
        levels=LEVELS,
        legend=[(class_name(classes, k), k % 8) for k in range(run.model["counts"].shape[1])] if run.model else [],
        features=tables.features_used(run),
        audit=audit,
        audit_checked=[Row((key.replace("_", " "), count(value))) for key, value in audit.checked.items()],
        audit_worst=[Row((key.replace("_", " "), figure(value))) for key, value in audit.worst.items()],
        config_text=run.config_text,
        environment=identity.environment(run),
        digests=identity.digests(run),
    )


def _quality_charts(run: RunFolder) -> list[Chart]:
    quality = []
    if charts.has_curve(run.metrics, "accuracy"):
        quality.append(charts.cumulative_quality(run.metrics, identity.f1_name(run)))
    if charts.has_curve(run.metrics, "window_accuracy"):
        quality.append(charts.windowed_quality(run.metrics))
    return quality


def _few_points(run: RunFolder) -> str:
    """Why there is no curve, where there is none."""
    if not len(run.metrics.get("seq", ())):
        return "No metrics were written."
    return (
        "Fewer than two rows of metrics have a value, too few for a curve. "
        "A smaller output.metrics_every writes more of them."
    )


def _rebuild_charts(run: RunFolder) -> list[Chart]:
    return [
        charts.rebuild_sizes(run.events, "rebuilds"),
        charts.rebuild_sizes(run.events, "rows"),
        charts.rebuilds_over_stream(run.events, int(run.summary.get("updates") or 0)),
    ]
