"""The description of a learner: for progress, summary, terminal, receipt, report, comparison and sweep.

The base class presents any tree that counts nodes, leaves and depth, and knows no particular method. Everything here is
plain data (:mod:`raydt.presentation`); how it is laid out is up to whoever shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Ints
from raydt.examples.updates import BatchResult, Features, Log
from raydt.messages import message
from raydt.presentation.blocks import (
    Block,
    Fact,
    Fold,
    Note,
    Section,
    Text,
    Tree,
    rebuild_sizes,
    rebuild_work,
    timeline,
)
from raydt.presentation.charts import (
    ABSENT,
    POINTS,
    Chart,
    Columns,
    Series,
    count,
    counted,
    figure,
    has_curve,
    line_panel,
    merged,
    number,
    over_stream,
    share,
)
from raydt.presentation.trees import (
    NOTHING,
    NUMBER,
    SIDES,
    TO_LEFT,
    Names,
    drawable,
    drawn_tree,
    features_used,
    legend,
    live_tree,
)

if TYPE_CHECKING:
    from raydt.trees.shapley import TreeSum

#: Names and values in two columns.
Lines: TypeAlias = list[tuple[str, str]]


@dataclass(slots=True)
class RunRecords:
    """Records of a run that a learner presents; a missing one is empty."""

    summary: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  #: of the learner, not validated
    metrics: Columns = field(default_factory=dict)
    events: Columns = field(default_factory=dict)
    model: Columns = field(default_factory=dict)  #: arrays of the model that :meth:`Description.drawable` has taken
    names: Names = field(default_factory=Names)

    @property
    def trained(self) -> bool:
        """Return True for a training run."""
        return self.summary.get("holdout") is not None

    @property
    def updates(self) -> int:
        """Return the updates of the run, 0 if the summary does not say."""
        return int(self.summary.get("updates") or 0)


@dataclass(frozen=True, slots=True)
class Presentation:
    """A learner's part of the report of one run."""

    figures: list[Fact]
    model: Section
    work: Section  #: what it took to keep the model
    guarantee: list[Block] = field(default_factory=list)  #: what is known of the guarantee without an audit
    gap: Fact | None = None  #: widest gap that an audit measured, with its share of the promised gap


@dataclass(frozen=True, slots=True)
class Curve:
    """A column of the metrics by which runs are compared: as it is or, if ``rate``, its increase per update."""

    key: str
    title: str
    column: str
    unit: str
    rate: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A figure by which runs are compared, and a column of a sweep's table."""

    name: str
    title: str
    kind: type[int] | type[float] | type[str] = int
    brief: bool = True  #: a terminal shows it, too


@dataclass(frozen=True, slots=True)
class ReceiptWords:
    """The learner's sentences for the receipt of a call."""

    short: str
    counts: str = ""  #: which counts have changed
    lines: Lines = field(default_factory=list)  #: costs of the call
    titles: Mapping[str, str] = field(default_factory=dict)  #: titles of columns of the deletions


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of deletions and insertions that was applied."""

    seq: Ints  #: numbers of its deletions among the updates, shape (m,), ascending
    path: AnyArray  #: their entries of ``BatchResult.path``, shape (m,)
    result: BatchResult  #: with the log of everything that was done
    grown: Mapping[str, int]  #: growth of each of ``Traits.counts``

    @property
    def work(self) -> dict[str, int | float]:
        """Return the changed class counts along the paths of all its examples, and the learner's own counts."""
        return {"counts_changed": int(self.result.path.sum()), **self.grown}

    @property
    def changed(self) -> Bools:
        """Return which deletions are in the log."""
        return np.isin(self.seq, self.result.log.get("seq", self.seq[:0]))


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """Changes made by a call, for its receipt."""

    columns: dict[str, AnyArray] = field(default_factory=dict)  #: the learner's columns of the deletions
    work: dict[str, int | float] = field(default_factory=dict)  #: costs of the whole call
    rebuilds: int = 0
    rebuilt_rows: int = 0
    rebuilt_nodes: int = 0
    log: Log = field(default_factory=dict)  #: the learner's own record of the call


def remaining(work: Mapping[str, int | float], *used: str) -> Lines:
    """Return the costs of a call that the receipt does not show elsewhere, one line each."""
    return [
        (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else f"{value:.3g}")
        for name, value in work.items()
        if name not in used
    ]


def worst_of(summary: Mapping[str, Any]) -> Any:
    """Return the measurements of a run's audit; None without an audit."""
    audit = summary.get("audit")
    return audit.get("worst") if isinstance(audit, Mapping) else None


class Description:
    """Presents a learner with some options; here a tree of which nothing is known but its size."""

    #: Whether arrays are drawn only once :meth:`raydt.learners.base.Learner.check` has passed them.
    checked: ClassVar[bool] = False
    #: What is the same of two runs with the same digest, and of one run with another.
    same: ClassVar[tuple[str, str]] = ("the same model, bit for bit", "a different model")
    #: Keys of :meth:`outcome` that are shown with the verdicts of an audit.
    audited_with: ClassVar[tuple[str, ...]] = ()
    #: What an audit's measures are, and on a terminal what they are a share of.
    measures: ClassVar[Mapping[str, str]] = {}
    shares: ClassVar[Mapping[str, str]] = {}
    curves: ClassVar[tuple[Curve, ...]] = (Curve("nodes", "Nodes of the tree", "nodes", "nodes"),)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("nodes", "Nodes", brief=False),
        Column("leaves", "Leaves"),
        Column("depth", "Depth"),
    )

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        """Take the options of the learner."""

    def owned(self, shard: int, shards: int) -> str:
        """Return what a shard owns besides columns, in a few words; empty if nothing."""
        return ""

    # ------------------------------------------------------------ progress, summary, terminal

    def size(self, statistics: Mapping[str, int]) -> str:
        """Return the size of the model, or its progress, in a few words."""
        return counted(statistics["leaves"], "leaf")

    def outcome(self, statistics: Mapping[str, int], name: Callable[[int], str]) -> dict[str, Any]:
        """Return the method's own results of a run as JSON values, for its summary.

        ``statistics`` are the coordinator's at the end, empty of a run without updates; ``name`` gives the name
        of a feature by its number.
        """
        return {}

    def lines(self, summary: Mapping[str, Any]) -> Lines:
        """Return the result of a run, for a terminal."""
        return [("tree", shape_in_words(summary))]

    def audited(self, summary: Mapping[str, Any]) -> Lines:
        """Return the lines a terminal shows of the run above the verdicts of its audit."""
        return []

    def values(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of :attr:`columns`; ``summary`` has statistics and :meth:`outcome`."""
        return {column.name: summary.get(column.name) for column in self.columns}

    # ------------------------------------------------------------ receipt

    def effects(self, call: Call) -> Effects:
        """Return the changes made by a call of deletions and insertions."""
        return Effects({"path": call.path, "changed": call.changed}, call.work, log=call.result.log)

    def receipt(self, effects: Effects) -> ReceiptWords:
        """Return a receipt in words."""
        changed = effects.work.get("counts_changed", 0)
        return ReceiptWords(
            short=f"{changed:,} counts changed",
            counts=node_counts(effects),
            lines=remaining(effects.work, "counts_changed"),
            titles={"path": "nodes changed", "changed": "tree changed"},
        )

    # ------------------------------------------------------------ report

    def drawable(self, arrays: Columns) -> Columns:
        """Return the arrays of a saved model as the report draws them; empty if there is nothing to draw.

        Raises
        ------
        ValueError
            They are damaged.
        """
        return drawable(arrays)

    def present(self, run: RunRecords) -> Presentation:
        """Return the learner's part of the report of a run."""
        return Presentation(
            tree_figures(run.summary),
            Section("Tree", tree_blocks(run)),
            Section("Work", [Text("The run recorded nothing about it.", "none")]),
        )


# ---------------------------------------------------------------- what descriptions of trees share


def shape_in_words(summary: Mapping[str, Any]) -> str:
    """Return nodes, leaves and depth of a tree, or of trees."""
    nodes, leaves = counted(summary["nodes"], "node"), counted(summary["leaves"], "leaf")
    return f"{nodes}, {leaves}, depth {summary['depth']}"


def node_counts(effects: Effects) -> str:
    """Return how many counts at the nodes of a tree changed; empty if none did."""
    changed = int(effects.work.get("counts_changed", 0))
    return f"counts changed at {counted(changed, 'node')} on their paths" if changed else ""


def tree_figures(summary: Mapping[str, Any]) -> list[Fact]:
    """Return the size of a tree as a key figure."""
    nodes, depth = number(summary, "nodes"), count(summary.get("depth"))
    leaves = number(summary, "leaves")
    many = f"{ABSENT} leaves" if leaves is None else counted(round(leaves), "leaf")
    return [Fact("node" if nodes == 1 else "nodes", count(nodes), f"{many}, depth {depth}")]


def shape_charts(metrics: Columns) -> Sequence[Chart]:
    """Return nodes, leaves and depth over the stream; none without metrics."""
    if not has_curve(metrics, "seq"):
        return []
    table = merged(metrics, POINTS)
    sizes = [Series(table["nodes"], "nodes", "learner"), Series(table["leaves"], "leaves", "delete")]
    depth = Series(table["depth"], "depth", "f1", step=True)
    panels = line_panel(table, sizes, "nodes", 10.0, count), line_panel(table, [depth], "depth", 6.0, count)
    return [over_stream("shape", "Nodes, leaves and depth over the stream", "", table, panels, metrics, wide=False)]


def tree_blocks(run: RunRecords, *trees: Block) -> list[Block]:
    """Return the tree (drawn plainly unless given), its size over the stream, and the features it uses."""
    if not run.model:
        return [Text("There is no tree to show.", "none"), *shape_charts(run.metrics)]
    drawn = trees or (live_tree(run.model, run.names, lambda node: NOTHING, ""),)
    return [*drawn, *shape_charts(run.metrics), features_used(run.model, run.names)]


#: Trees of an ensemble that a report of training shows, and cards of each.
LEADING, LEADING_CARDS = 3, 100


def leading_trees(trees: TreeSum, names: Names) -> list[Block]:
    """Return the trees of an ensemble that matter most, folded: those whose outputs differ most between examples.

    That is the variance of a tree's output over the live examples, summed over the outputs. Cards have the numbers of
    examples, and the mean output below; of trees that vote for classes the shares of the classes.
    """
    if trees.cover is None or trees.sparse:
        return []
    tree, inner = np.repeat(np.arange(trees.trees), np.diff(trees.starts)), trees.feature >= 0
    cover = (trees.cover / trees.unit)[:, None]
    sums, squares = np.where(inner[:, None], 0.0, cover * np.stack([trees.value, trees.value**2]))
    roots = trees.starts[:-1]
    n = np.maximum(cover[roots], 1.0)
    spread = (np.add.reduceat(squares, roots) / n - (np.add.reduceat(sums, roots) / n) ** 2).sum(axis=1)
    for node in np.flatnonzero(inner)[::-1].tolist():
        sums[node] = sums[trees.left[node]] + sums[trees.right[node]]
    of_classes = trees.mean and len(trees.codes) > 1
    found: list[Block] = []
    for place in np.argsort(-spread, kind="stable")[:LEADING].tolist():
        own, begin = np.flatnonzero(tree == place), int(trees.starts[place])
        single = np.diff(trees.first_member)[own] > 0
        threshold = trees.threshold[own].copy()
        threshold[single] = trees.members[trees.first_member[own][single]]
        model = {
            "feature": trees.feature[own],
            "threshold": threshold,
            SIDES: np.where(trees.missing_left[own], TO_LEFT, 0),
        }
        model |= {
            name: np.maximum(side[own] - begin, -1) for name, side in (("left", trees.left), ("right", trees.right))
        }
        if of_classes:
            counts = np.zeros((len(own), int(trees.codes.max()) + 1))
            counts[:, trees.codes] = np.rint(sums[own])
            model["counts"] = counts
        else:
            output = place % trees.outputs if not trees.mean else 0
            model |= {"counts": cover[own], NUMBER: sums[own, output] / np.maximum(cover[own, 0], 1e-300)}
        root = drawn_tree(model, names, cards=LEADING_CARDS)
        drawn, nodes = root.cards(), counted(len(own), "node")
        about = message("reports.leading_tree", number=place + 1, trees=trees.trees, nodes=nodes, drawn=drawn)
        found.append(Tree(root, f"{about}.", legend(model, names.classes)))
    return [Fold(f"Show the {counted(len(found), 'tree')} whose outputs differ most", found)] if found else []


def features_of_names(names: Names) -> Features:
    """Return the dense features of a run by the names that its summary has; sparse ones are left out."""
    dense = [one for one in names.features if one.get("kind") != "sparse"]
    sparse = sum(int(one.get("features", 0)) for one in names.features if one.get("kind") == "sparse")
    kinds = tuple(one.get("kind") == "categorical" for one in dense)
    return Features(tuple(str(one["name"]) for one in dense), kinds, sparse=sparse)


def measured(title: str, gap: float, beta: float | None) -> Fact:
    """Return a gap as a share of beta."""
    if not beta:
        return Fact(title, figure(gap), "no gap is promised" if beta is None else "beta is 0: no gap is promised")
    remark = f"{share(gap / beta, 1)} of beta = {figure(beta)}, the most it may be"
    return Fact(title, figure(gap), remark, share=gap / beta)


# How trees present themselves whose parts are rebuilt: how often, their log, and what each deletion caused.

#: What happens at leaves of trees whose subtrees are rebuilt.
LEAVES_ARE_RESET = "A leaf that stays a leaf is only reset."


class RebuildingDescription(Description):
    """A tree, or trees, of which parts are rebuilt."""

    curves: ClassVar[tuple[Curve, ...]] = (
        Curve("work", "Rows rebuilt per update", "rebuilt_rows", "rows/update", rate=True),
        *Description.curves,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        *Description.columns,
        Column("rebuilds", "Rebuilds"),
        Column("rebuilt_rows", "Rows rebuilt", brief=False),
    )

    def lines(self, summary: Mapping[str, Any]) -> Lines:
        """Return the size of the tree, and how much of it was rebuilt."""
        rebuilt = f"{summary['rebuilds']:,} of {counted(summary['rebuilt_rows'], 'row')} in all"
        return [*super().lines(summary), ("rebuilds", rebuilt)]

    def effects(self, call: Call) -> Effects:
        """Return the path of each deletion, and the rebuild that it caused, by the log: depth, rows and nodes."""
        log = call.result.log
        return Effects(
            {"path": call.path, **rebuilds_of(call.seq, log)},
            call.work,
            rebuilds=len(log["rows"]) if "rows" in log else 0,
            rebuilt_rows=int(log["rows"].sum()) if "rows" in log else 0,
            rebuilt_nodes=int(log["nodes"].sum()) if "nodes" in log else 0,
            log=log,
        )

    def receipt(self, effects: Effects) -> ReceiptWords:
        """Return rebuilds, and what else the call took."""
        rows, nodes = counted(effects.rebuilt_rows, "row"), counted(effects.rebuilt_nodes, "node")
        return ReceiptWords(
            short=f"{counted(effects.rebuilds, 'rebuild')} of {rows}",
            counts=node_counts(effects),
            lines=[
                ("rebuilds", f"{counted(effects.rebuilds, 'subtree')} of {rows} and {nodes} in all"),
                *remaining(effects.work, "counts_changed"),
            ],
            titles={"path": "nodes changed"} if effects.columns else {},
        )


def rebuilds_of(seq: Ints, log: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return depth, rows and nodes of the rebuild that each of some updates caused; ``seq`` ascends."""
    columns: dict[str, AnyArray] = {
        "rebuilt_depth": np.full(len(seq), -1, dtype=np.int32),
        "rebuilt_rows": np.zeros(len(seq), dtype=np.int64),
        "rebuilt_nodes": np.zeros(len(seq), dtype=np.int64),
    }
    if len(seq) and log:
        at = np.searchsorted(seq, log["seq"]).clip(max=len(seq) - 1)
        caused = seq[at] == log["seq"]
        for name, column in columns.items():
            column[at[caused]] = log[name.removeprefix("rebuilt_")][caused]
    return columns


def rebuild_figures(summary: Mapping[str, Any]) -> list[Fact]:
    """Return size and rebuilds as key figures."""
    rebuilt, rows = count(summary.get("rebuilds")), count(summary.get("rebuilt_rows"))
    return [*tree_figures(summary), Fact("rebuilds", rebuilt, f"{rows} rows in all")]


def rebuild_section(summary: Mapping[str, Any], events: Columns, rule: str, *, timed: bool = True) -> Section:
    """Return when, how large and how deep rebuilds were and, if ``timed``, their times; ``rule`` is for the text."""
    if not len(events.get("rows", ())) or not {"seq", "place", "depth"} <= events.keys():
        return Section("Rebuilds", [Text("The run recorded no rebuilds.", "none")])
    updates = int(summary.get("updates") or 0)
    several = len(events["rows"]) > 1
    charts: list[Block] = [timeline(events, updates), rebuild_sizes(events)] if several else []
    blocks = [Text(rule), *charts]
    work = [rebuild_work(events, number(summary, "seconds"))] if timed else []
    return Section("Rebuilds", [*blocks, *work])


def built_note(model: Columns, node: int) -> Note:
    """Return when a node was built, from how many examples, and the updates since, two half ones each."""
    if not {"built", "s", "c"} <= model.keys():
        return Note()
    stamp, since = int(model["built"][node]), int(model["c"][node])
    when = "at the start" if stamp < 0 else f"at {count(stamp >> 1)}"
    built = f"built {when} from {count(model['s'][node])}"
    return Note((built,), (f"{built}, {counted(since, 'update')} since",))
