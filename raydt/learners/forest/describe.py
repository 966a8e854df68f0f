"""The description of the exact forest: its size, how its trees differ, the features it uses, and its rebuilds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from raydt.arrays.elementary import Ints
from raydt.examples.updates import Features
from raydt.learners.description import (
    Curve,
    Effects,
    Lines,
    Presentation,
    RebuildingDescription,
    ReceiptWords,
    RunRecords,
    features_of_names,
    leading_trees,
    rebuild_section,
    shape_charts,
    shape_in_words,
    tree_figures,
)
from raydt.learners.forest.model import ForestPredictor
from raydt.presentation.blocks import Block, Fact, Row, Section, Table, Text
from raydt.presentation.charts import Columns, count, counted
from raydt.presentation.trees import feature_table, in_rows

_REPEATED = (
    "Every tree is a function of the rows that remain, the options and the seed. raydt verify RUN trains the forest "
    "again from these rows and compares the digests: whoever has the rows can repeat this proof of deletion."
)


class ForestDescription(RebuildingDescription):
    """Many trees, of which parts are rebuilt, if ``lazy`` only when trees are used; 0 ``trees`` are unknown."""

    checked: ClassVar[bool] = True
    measures: ClassVar[Mapping[str, str]] = {
        "out_of_sample_error": "share of wrong votes, of trees that do not hold the row",
        "out_of_sample_r2": "R2 of the votes of trees that do not hold the row",
    }
    same: ClassVar[tuple[str, str]] = ("the same trees, bit for bit", "other trees, or other examples")
    curves: ClassVar[tuple[Curve, ...]] = (
        *RebuildingDescription.curves[:1],
        Curve("nodes", "Nodes of all trees", "nodes", "nodes"),
    )

    def __init__(self, *, lazy: bool, trees: int = 0) -> None:
        self._lazy, self._trees = lazy, trees

    def owned(self, shard: int, shards: int) -> str:
        """Return the trees of a shard."""
        first, stop = (s * self._trees // shards for s in (shard, shard + 1))
        if not self._trees:
            return ""
        return f"trees {first} to {stop - 1}" if stop > first + 1 else f"tree {first}" if stop > first else "no tree"

    def size(self, statistics: Mapping[str, int]) -> str:
        """Return nodes of all trees."""
        return counted(statistics["nodes"], "node")

    def lines(self, summary: Mapping[str, Any]) -> Lines:
        """Return the size of all trees, and how much of them was rebuilt."""
        rebuilt = f"{summary['rebuilds']:,} of {counted(summary['rebuilt_rows'], 'row')} in all"
        if not summary["rebuilds"]:
            rebuilt = "as predictions pass, at the latest when a batch ends"
        return [("trees", shape_in_words(summary)), ("rebuilds", rebuilt)]

    def receipt(self, effects: Effects) -> ReceiptWords:
        """Return rebuilds in words, unless they wait."""
        words = super().receipt(effects)
        if not self._lazy:
            return words
        opened = f"{effects.rebuilds:,} updates left subtrees to rebuild lazily"
        return replace(words, short=opened, lines=[("rebuilds", opened), *words.lines[1:]])

    def drawable(self, arrays: Columns) -> Columns:
        """Return the arrays of a saved model, with sums of weights in rows."""
        return in_rows(arrays)

    def present(self, run: RunRecords) -> Presentation:
        """Return the trees in numbers, and the rebuilds."""
        rule = (
            "An update rebuilds a subtree if its best split has changed, or if its root must become a leaf. So every "
            "tree always equals the one trained from scratch on its live examples. All subtrees that an update "
            "rebuilds, in all trees, count below as one rebuild of their rows together."
        )
        figures = tree_figures(run.summary)
        if run.summary and not self._lazy:
            rows = count(run.summary.get("rebuilt_rows"))
            figures = [*figures, Fact("subtrees rebuilt", count(run.summary.get("rebuilds")), f"{rows} rows in all")]
        blocks = [*_trees(run), *shape_charts(run.metrics)]
        return Presentation(
            figures,
            Section("Trees", blocks or [Text("There is no tree to show.", "none")]),
            rebuild_section(run.summary, run.events, rule, timed=False),
            [Text(_REPEATED)],
        )


def _trees(run: RunRecords) -> list[Block]:
    """Return the trees in numbers, and the features that their splits use."""
    model = run.model
    if not model or "totals" not in model:
        return []
    starts = np.cumsum(model["tree_nodes"]) - model["tree_nodes"]
    totals = model["totals"]
    n = totals[:, 0] if "exponent" in model else totals.sum(axis=1)
    shown = {"Examples": n[starts], "Nodes": model["tree_nodes"]}
    rows = [
        Row((name, *(count(f(column)) for f in (np.min, np.median, np.mean, np.max))), None)
        for name, column in shown.items()
    ]
    if "exponent" not in model:
        rows.append(Row(("Share of the largest class in a leaf, %", *_sureness(model, starts)), None))
    trees = Table(rows, "", f"{counted(len(starts), 'tree')}", ("Of a tree", "Least", "Median", "Mean", "Most"))
    leading = []
    if run.trained and "unit" not in model:  # weights are sums of rows here, which a predictor does not read
        whole = ForestPredictor(features_of_names(run.names), model).tree_sum(len(run.names.classes))
        leading = leading_trees(whole, run.names)
    return [trees, _features(model, n, run), *leading]


def _sureness(model: Columns, starts: Ints) -> tuple[str, ...]:
    """Return least, median, mean and most of the trees' shares of the largest class in an example's leaf."""
    leaf = model["feature"] < 0
    largest = np.add.reduceat(np.where(leaf, model["totals"].max(axis=1), 0), starts)
    n = np.add.reduceat(np.where(leaf, model["totals"].sum(axis=1), 0), starts)
    shares = 100.0 * largest[n > 0] / n[n > 0]
    return tuple(f"{f(shares):.1f}" if len(shares) else "-" for f in (np.min, np.median, np.mean, np.max))


def _features(model: Columns, n: Ints, run: RunRecords) -> Table:
    """Return the features that take most from the impurity, in all trees."""
    inner = np.flatnonzero(model["feature"] >= 0)
    feature = model["feature"][inner]
    asked, splits = np.bincount(feature, n[inner]), np.bincount(feature)
    names = [entry["name"] for entry in run.names.features]
    names += [str(j) for j in range(len(names), len(splits))]
    shares = ForestPredictor(Features(tuple(names), (False,) * len(names)), model).importances()[: len(splits)]
    most = float(shares.max(initial=0.0)) or 1.0
    rows = [
        Row((names[j], f"{100 * shares[j]:.1f}", count(splits[j]), count(asked[j])), float(shares[j]) / most)
        for j in np.argsort(-shares, kind="stable").tolist()
        if splits[j]
    ]
    title = "Features the splits use, by their importance: the share in what all splits take from the impurity"
    return feature_table(title, ("Feature", "Importance, %", "Splits", "Examples"), rows, run.names)
