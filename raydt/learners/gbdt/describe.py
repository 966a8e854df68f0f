"""The description of boosted trees: the first trees, the gain of features, and what each batch D' has touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from pydantic import ValidationError

from raydt.arrays.elementary import AnyArray, Bools, Floats
from raydt.learners.description import (
    Call,
    Column,
    Effects,
    Lines,
    Presentation,
    RebuildingDescription,
    ReceiptWords,
    RunRecords,
    features_of_names,
    leading_trees,
    rebuild_figures,
    shape_charts,
    shape_in_words,
)
from raydt.learners.gbdt.options import GBDTOptions
from raydt.presentation.blocks import Block, Fact, Row, Section, Table, Text, milliseconds
from raydt.presentation.charts import (
    Chart,
    Columns,
    Panel,
    Series,
    count,
    counted,
    duration,
    figure,
    line_panel,
    over_stream,
    share,
)
from raydt.presentation.trees import Names, feature_table

#: Batches that are listed, and points of the curves over batches.
DEAREST, POINTS = 10, 300


#: Numbers of a batch in the log, and their titles.
_BATCH = {
    "deletes": "Deleted",
    "inserts": "Inserted",
    "trees_checked": "Trees checked",
    "trees_retrained": "Trees retrained in part",
    "subtrees": "Subtrees",
    "rows": "Rows",
    "nodes": "Nodes",
    "refreshed": "Rows compared",
    "trained": "Rows trained on",
    "rounds": "Rounds",
}

#: Columns of the log that are not numbers of a receipt, or that it has under other names.
_ELSEWHERE = ("seq", "deletes", "inserts", "subtrees", "rows", "nodes", "depth")


class GBDTDescription(RebuildingDescription):
    """Boosted trees; batches D' retrain parts of them."""

    checked = True
    measures: ClassVar[Mapping[str, str]] = {
        "rank": "Rank of a split among the candidates of its node",
        "lack": "Share of the best gain a split falls short of",
        "stale": "Difference of a stored derivative from its present value",
    }

    columns: ClassVar[tuple[Column, ...]] = (
        *RebuildingDescription.columns,
        Column("trainings", "Trainings of all trees", brief=False),
    )

    def outcome(self, statistics: Mapping[str, int], name: Callable[[int], str]) -> dict[str, Any]:
        """Return ``trainings``: how often all trees were trained, with the first time."""
        return {"trainings": statistics["trainings"]} if "trainings" in statistics else {}

    def lines(self, summary: Mapping[str, Any]) -> Lines:
        """Return size, rebuilds of parts of trees, and trainings of all trees."""
        more = ("trainings", f"{counted(summary['trainings'], 'training')} of all trees")
        trees = 2 * summary["leaves"] - summary["nodes"]  # every node has two children or none
        size = ("trees", f"{counted(trees, 'tree')}, {shape_in_words(summary)}")
        return [size, *(line for line in super().lines(summary) if line[0] != "tree"), more]

    def effects(self, call: Call) -> Effects:
        """Return costs of the whole call, from the log: it is applied at once, and what is done has no single cause."""
        log = call.result.log
        total = {name: column.sum().item() for name, column in log.items()}
        return Effects(
            work={**call.grown, **{name: value for name, value in total.items() if name not in _ELSEWHERE}},
            rebuilds=int(total.get("subtrees", 0)),
            rebuilt_rows=int(total.get("rows", 0)),
            rebuilt_nodes=int(total.get("nodes", 0)),
            log=log,
        )

    def receipt(self, effects: Effects) -> ReceiptWords:
        """Return rebuilds or trainings of all trees, and what else the call took."""
        words = super().receipt(effects)
        trainings, rows = (int(effects.work.get(name, 0)) for name in ("trainings", "trained"))
        named = [(_BATCH.get(name.replace(" ", "_"), name).lower(), value) for name, value in words.lines]
        lines = [line for line in named if line[0] not in ("trainings", "rows trained on") and line != ("rounds", "0")]
        if not trainings:
            return replace(words, lines=lines)
        again = f"{counted(trainings, 'training')} of all trees, on {counted(rows, 'row')} in all"
        short = f"{again}; {words.short}" if effects.rebuilds else again
        return replace(words, short=short, lines=[("trainings", again), *lines])

    def drawable(self, arrays: Columns) -> Columns:
        """Return all trees, one after the other in preorder."""
        return arrays

    def present(self, run: RunRecords) -> Presentation:
        """Return what features gain, and what each batch D' has touched."""
        shape = shape_charts(run.metrics)
        blocks: list[Block] = [Text("There is no tree to show.", "none"), *shape]
        if "tree_nodes" in run.model:  # not before the first training
            trees = len(run.model["tree_nodes"])
            rounds = counted(trees // int(run.model["per"][0]), "iteration")
            many = Text(f"{counted(trees, 'tree')} in {rounds}; the scores of all trees are added up.")
            blocks = [many, importances(run.model, run.names), *_leading(run), *shape]
        trainings = count(run.summary.get("trainings"))
        figures = [*rebuild_figures(run.summary), Fact("trainings", trainings, "of all trees, with the first")]
        if "slope" in run.model:
            from raydt.learners.gbdt.model import CalibrationSlope

            slope = CalibrationSlope(run.model["slope"]).value
            figures.append(Fact("slope of predictions", figure(slope), "the share taken of what trees add to the mean"))
        return Presentation(figures, Section("Trees", blocks), updates_section(run.events))


def _leading(run: RunRecords) -> list[Block]:
    """Return the trees of a training run that matter most; none of options of another version."""
    from raydt.learners.gbdt.model import saved_predictor  # kernels, which a summary needs none of

    if not run.trained:
        return []
    try:
        options = GBDTOptions.model_validate(run.options)
    except ValidationError:
        return []
    classes = max(2, len(run.names.classes))
    return leading_trees(saved_predictor(run.model, options, features_of_names(run.names)).tree_sum(classes), run.names)


def updates_section(events: Columns) -> Section:
    """Return the batches over the stream, and the dearest."""
    batches = batches_of(events)
    several = len(batches.get("seq", ())) > 1
    return Section(
        "Updates",
        [
            Text(
                "Updates are collected in batches. A batch changes the sums of the nodes that its rows reach in every "
                "tree; a node whose split is then no longer among the best candidates has the part of the tree below "
                "it retrained on the live rows, and rows whose score moves get new derivatives in later trees. A "
                "batch trains all trees again instead, with new bins, when that is less work or many updates have "
                "passed."
            ),
            *([over_batches(batches)] if several else []),
            dearest(events),
        ],
    )


def importances(model: Columns, names: Names) -> Table:
    """Return the features by their share in the gain of all splits."""
    split = model["node_feature"] >= 0
    used, place, splits = np.unique(model["node_feature"][split], return_inverse=True, return_counts=True)
    gain = np.bincount(place, weights=model["node_gain"][split])
    total = float(gain.sum()) or None
    rows = []
    for i in sorted(range(len(used)), key=lambda i: (-gain[i], i)):
        part = float(gain[i]) / total if total else None
        rows.append(Row((names.feature(int(used[i])), count(splits[i]), share(part, 1)), part))
    return feature_table("What features gain", ("Feature", "Splits", "Share of the gain"), rows, names)


# ---------------------------------------------------------------- the batches


def first_training(events: Columns) -> Bools:
    """Return which entry is that of the first training, if any."""
    trained = events.get("trained", np.empty(0)) > 0
    first: Bools = trained & (np.cumsum(trained) == 1)
    return first


def batches_of(events: Columns) -> Columns:
    """Return the batches D' without the first training."""
    if not events:
        return {}
    there = ((events["trees_checked"] > 0) | (events["trained"] > 0)) & ~first_training(events)
    return {name: column[there] for name, column in events.items()} if there.any() else {}


def retrained_share(batches: Columns) -> str:
    """Return the share of the checked trees that have changed."""
    return share(batches["trees_retrained"].sum() / max(1, batches["trees_checked"].sum()), 1)


def over_batches(batches: Columns) -> Chart:
    """Return the work of the batches over the stream; means where several share a point."""
    n = len(batches["seq"])
    drawn = {name: _means(column, POINTS) for name, column in batches.items()}
    drawn["seq"] = batches["seq"][np.arange(1, len(drawn["seq"]) + 1) * n // len(drawn["seq"]) - 1] + 1
    points = len(drawn["seq"])
    each = "one point per batch" if points == n else f"{count(n)} batches in {count(points)} points, each a mean"

    def panel(unit: str, height: float, *lines: tuple[str, str, str]) -> Panel:
        return line_panel(drawn, [Series(drawn[key], name, tone) for key, name, tone in lines], unit, height)

    trees = ("trees_checked", "checked", "learner"), ("trees_retrained", "retrained", "delete")
    rows = (
        ("rows", "in retrained subtrees", "delete"),
        ("refreshed", "whose derivatives were compared", "f1"),
        ("trained", "all trees were trained on", "learner"),
    )
    numbers = ("nodes", "nodes built", "coordinator"), ("rounds", "rounds with the shards", "shards")
    time = line_panel(drawn, [Series(1e3 * drawn["seconds"], "time", "learner")], "ms", 7.0, milliseconds)
    return over_stream(
        "batches",
        "Work of each batch of updates",
        f"{counted(n, 'batch')} of updates, each applied at once; {each}. The deletions of a batch and its insertions "
        "check each tree separately. A row counts once for every retrained subtree that holds it.",
        drawn,
        (panel("trees", 8.0, *trees), panel("rows", 8.0, *rows), panel("number", 7.0, *numbers), time),
    )


def _means(column: AnyArray, limit: int) -> Floats:
    """Return at most ``limit`` means of neighbours, of about equally many each."""
    n = len(column)
    ends = np.arange(1, min(n, limit) + 1) * n // min(n, limit)
    begins = np.concatenate([[0], ends[:-1]])
    means: Floats = np.add.reduceat(column.astype(np.float64), begins) / (ends - begins)
    return means


def dearest(events: Columns) -> Table:
    """Return the batches that took longest; the remark has the time of all, and of the first training."""
    batches = batches_of(events)
    trained = first_training(events)
    first = ""
    if trained.any():
        n, took = int(events["trained"][trained].sum()), float(events["seconds"][trained].sum())
        first = f"The first training, on {counted(n, 'row')}, took {duration(took)}. "
    if not batches:
        return Table([], f"{first}No batch of updates was applied.")
    seconds = batches["seconds"]
    longest = float(seconds.max()) or None
    rows = []
    for i in np.argsort(-seconds, kind="stable")[:DEAREST].tolist():
        cells = [count(batches["seq"][i] + 1), *(count(batches[name][i]) for name in _BATCH), duration(seconds[i])]
        rows.append(Row(cells, float(seconds[i]) / longest if longest else None))
    again = int((batches["trained"] > 0).sum())
    trained_again = f", {count(again)} of them trained all trees again" if again else ""
    remark = (
        f"{first}All {counted(len(seconds), 'batch')} took {duration(float(seconds.sum()))}, half of them "
        f"{duration(float(np.median(seconds)))} or less{trained_again}; {retrained_share(batches)} of the trees that "
        "were checked have changed. Bars show the time relative to the longest."
    )
    columns = ("After update", *_BATCH.values(), "Time")
    return Table(rows, remark, "The batches that took longest", columns, style="bars")
