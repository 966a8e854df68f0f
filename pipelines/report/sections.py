"""Everything the template shows of one run, section by section; a section without data is empty."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.report import charts, identity, margins, rebuilds, recovery, tables, tree
from pipelines.report.best_split import BestSplit, best_split_of
from pipelines.report.boosting import Boosting, boosting_of
from pipelines.report.confidence import ConfidenceTree, confidence_tree_of
from pipelines.report.folder import RunFolder
from pipelines.report.margins import Margins
from pipelines.report.plot import Chart
from pipelines.report.quality import quality_of
from pipelines.report.tables import Row, Table
from pipelines.report.tree import Names, Node
from pipelines.report.verdicts import AuditView, Gap, Verdict, against_baselines, audit_view, gap_of, number
from pipelines.words import count, counted, figure

_WORST = {
    "gap": "Gap of a split to the best one",
    "leaf_gini": "Gini index of a leaf that may be split",
    "leaf_gain": "Gain that a leaf leaves unused",
    "change": "Updates since the build, c / s",
    "rank": "Rank of a split among the candidates of its node",
    "lack": "Share of the best gain that a split lacks",
    "stale": "Stored derivative, from what it would be now",
    "score": "Score of the split",
    "optimum": "Least score of all features",
    "ratio": "The one over the other",
    "lead": "Least lead of a split by the rule, of what it asks for",
    "theorem_lead": "The same, of two widths of Theorem 4",
}
#: The same of a tree whose splits a finder watches.
_WORST_WATCHED = {
    "gap": "Score above (1 + finder_alpha) times the least",
    "lack": "Score above the least",
    "dense_gap": "Gap to the best split by a number or category",
}
_REBUILT = "An update that has changed a node often enough rebuilds the part of the tree below it."
_REBUILT_WATCHED = (
    "After every update the topmost node of its path whose score is more than beta above that of the sparse feature "
    "which the finder has at hand is rebuilt, with the part of the tree below it."
)
_REBUILT_MIXED = (
    " So is a node that more than epsilon s updates have reached since it was built from s examples, for the sake of "
    "the features that are not sparse."
)


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
    figures: list[tuple[str, str, str]]
    verdict: Verdict
    few_points: str
    quality_charts: list[Chart]
    rivals: list[str]
    scores: Table
    confusion: tuple[list[str], list[Row]] | None
    boosting: Boosting | None
    split: BestSplit | None
    confidence: ConfidenceTree | None
    tree_title: str
    work_title: str
    tree: Node | None
    open_levels: int
    left_out: str
    legend: list[tuple[str, str]]
    icicle: list[tuple[str, str]]
    icicle_rows: int
    icicle_thin: str
    shape_charts: list[Chart]
    features: Table
    margins: str
    epsilon: str
    margin_legend: list[tuple[str, str]]
    margin_charts: list[Chart]
    next_rebuilds: Table
    audit: AuditView
    gap: Gap | None
    audit_checked: list[Row]
    audit_worst: list[Row]
    rebuild_charts: list[Chart]
    rebuilds: Table
    rebuild_rule: str
    stream_charts: list[Chart]
    skipped: Table
    recoveries: Table
    shards: Table
    config_text: str
    environment: list[tuple[str, str]]
    digests: list[tuple[str, str]]


def run_view(run: RunFolder, location: str, label: str, prefix: str = "") -> RunView:
    """The sections of ``run``; ``location`` is what commands call its folder, ``label`` tells it from other runs."""
    metrics, classes = run.metrics, identity.classes_of(run)
    names = Names(identity.features_of(run), classes, run.categories)
    drawn = charts.has_curve(metrics, "seq")
    rebuilt = bool(len(run.events.get("rows", ()))) and {"seq", "place", "depth"} <= run.events.keys()
    audit, margin = audit_view(run.summary, location), margins.margins_of(run)
    confidence = confidence_tree_of(run, names)
    told = confidence.told if confidence else {}
    root = tree.drawn_tree(run.model, names, margin, told=told) if run.model else None
    worst = {**_WORST, **_WORST_WATCHED} if margins.watched(run.learner) else _WORST
    split, boosting = best_split_of(run), boosting_of(run, names)
    cells, rows, thin = tree.icicle(run.model) if root and not root.leaf else ([], 0, 0)

    def over_stream(here: list[Chart]) -> list[Chart]:
        return recovery.marked(here, run, charts.last_of(metrics)) if here else []

    return RunView(
        prefix=prefix,
        name=identity.name_of(run, location),
        label=label,
        what=identity.what_ran(run),
        error=str(run.summary.get("error") or ""),
        notes=[*_ending(run), *run.notes],
        facts=identity.facts(run, location),
        figures=identity.key_figures(run, margin),
        verdict=against_baselines(run.summary, metrics),
        few_points=_few_points(run),
        quality_charts=over_stream(_quality_charts(run)),
        rivals=[name.capitalize() for name in quality_of(run.summary.get("metrics")).baselines.values()],
        scores=tables.scores(run),
        confusion=tables.confusion(run),
        boosting=boosting,
        split=split,
        confidence=confidence,
        tree_title="Best split" if split else "Trees" if boosting else "Tree",
        work_title="Structure" if split else "Updates" if boosting else "Splits" if confidence else "Rebuilds",
        tree=root,
        open_levels=tree.OPEN_LEVELS,
        left_out=_left_out(root, run),
        legend=tree.legend(run.model, classes) if run.model else [],
        icicle=cells,
        icicle_rows=rows,
        icicle_thin=f"{counted(thin, 'node')} too small or too deep to be seen {'is' if thin == 1 else 'are'} left out."
        if thin
        else "",
        shape_charts=over_stream([charts.tree_shape(metrics)]) if drawn and not split else [],
        features=tables.features_used(run),
        margins=margins.in_words(margin, margins.proven_gaps(run.model)) if margin else "",
        epsilon=figure(margin.epsilon) if margin else "",
        margin_legend=margins.legend() if margin else [],
        margin_charts=_margin_charts(margin, run) if margin else [],
        next_rebuilds=tables.next_rebuilds(run, margin, names),
        audit=audit,
        gap=gap_of(run.summary, run.learner),
        audit_checked=[Row((key.replace("_", " "), count(value))) for key, value in audit.checked.items()],
        audit_worst=[Row((worst.get(key, key.replace("_", " ")), figure(value))) for key, value in audit.worst.items()],
        rebuild_charts=_rebuild_charts(run) if rebuilt and len(run.events["rows"]) > 1 else [],
        rebuilds=tables.rebuild_work(run) if rebuilt else Table([]),
        rebuild_rule=_rebuild_rule(run),
        stream_charts=over_stream([charts.live_examples(metrics), charts.work_over_stream(metrics)]) if drawn else [],
        skipped=tables.skipped_rows(run),
        recoveries=tables.recoveries(run),
        shards=tables.shard_work(run),
        config_text=run.config_text,
        environment=identity.environment(run),
        digests=identity.digests(run),
    )


def _rebuild_rule(run: RunFolder) -> str:
    """When a node is rebuilt."""
    if not margins.watched(run.learner):
        return _REBUILT
    dense = any(feature.get("kind") != "sparse" for feature in identity.features_of(run))
    return _REBUILT_WATCHED + (_REBUILT_MIXED if dense else "")


def _ending(run: RunFolder) -> list[str]:
    """That the run was stopped before its end, if it was."""
    if run.summary.get("status") != "interrupted":
        return []
    return [f"The run was interrupted ({run.summary.get('exit_reason')}): figures are about what it had done by then."]


def _quality_charts(run: RunFolder) -> list[Chart]:
    quality, drawn = quality_of(run.metrics), []
    if charts.has_curve(run.metrics, quality.window):
        drawn.append(charts.windowed_quality(run.metrics))
    if charts.has_curve(run.metrics, quality.score):
        drawn.append(charts.cumulative_quality(run.metrics, identity.f1_name(run)))
    if charts.has_curve(run.metrics, "r2"):
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


def _left_out(root: Node | None, run: RunFolder) -> str:
    """How many nodes have no card."""
    if root is None:
        return ""
    nodes, drawn = len(run.model["feature"]), root.cards()
    if drawn == nodes:
        return f"All {counted(nodes, 'node')} can be opened." if nodes > 1 else ""
    return (
        f"{count(drawn)} of {counted(nodes, 'node')} have a card: those that most live examples pass, down to level "
        f"{tree.CARD_LEVELS}."
    )


def _margin_charts(margin: Margins, run: RunFolder) -> list[Chart]:
    return [
        margins.by_depth(margin, tree.depths(run.model)),
        margins.by_size(margin, run.model, number(run.learner, "beta")),
    ]


def _rebuild_charts(run: RunFolder) -> list[Chart]:
    updates = int(run.summary.get("updates") or 0)
    timeline = rebuilds.timeline(run.events, run.metrics, updates)
    return [*recovery.marked([timeline], run, updates), *rebuilds.sizes(run.events)]
