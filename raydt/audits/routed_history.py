"""The examples of a history on their routes through a recorded tree: NumPy, and nothing of the fast path.

Time runs in half updates, as in :mod:`raydt.audits.recorded_tree`, which also defines the sets S(v) and S0(v).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import AnyArray, Bools, Ints
from raydt.audits.recorded_tree import FEW_ROWS, FOREVER, LEFT, RIGHT, RankedColumn, RecordedTree, each
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.parallel.threads import ranges, run


class RoutedHistory:
    """When each example of a history was there, and where the tree routes it."""

    live_counts: Ints  #: Shape (nodes, K): class counts of S(v); a learner's audit counts them.

    def __init__(self, tree: RecordedTree, features: Features, history: History, weight: Ints | None = None) -> None:
        self.tree, self.features = tree, features
        self.weight = weight  #: What each example counts, in units; None: 1. One that counts 0 is in no node.
        self.complete = history.complete  #: Whether deleted examples are known, too.
        self.X = history.X
        self.y: AnyArray = history.y
        self.sparse = history.sparse or SparseRows.empty(features.sparse, len(history.y))
        self.categorical = np.array(features.categorical, np.bool_)
        self.alive = history.deleted == FOREVER
        self.born = 2 * history.inserted + 1
        self.died = np.full(len(self.born), FOREVER)
        if not self.alive.all():
            gone = history.deleted[~self.alive]
            replaced = np.isin(gone, history.inserted)  # by the insertion half of the same update
            self.died[~self.alive] = 2 * gone + ~replaced
        self.leaf = np.full(len(self.y), -1, np.int64)  #: Leaf of each example, once :meth:`levels` has ended.

    def levels(self) -> Iterator[tuple[Ints, Ints, Bools]]:
        """Level by level: the examples that get so far, the node of each, and whether it goes right there."""
        rows = np.arange(len(self.y)) if self.weight is None else np.flatnonzero(self.weight)
        node = np.zeros(len(rows), np.int64)
        while len(rows):
            parts = ranges(len(rows), FEW_ROWS)
            steps = run([partial(self._step, rows[part], node[part]) for part in parts])
            yield rows, node, np.concatenate([right for right, _, _ in steps])
            rows, node = (np.concatenate([step[i] for step in steps]) for i in (1, 2))

    def _step(self, rows: Ints, node: Ints) -> tuple[Bools, Ints, Ints]:
        """Return which rows go right at their node and, of those that a leaf does not keep, rows and nodes below."""
        self.leaf[rows] = node
        right = self._goes_right(rows, node)
        inner = self.tree.feature[node] >= 0
        rows, node, below = rows[inner], node[inner], right[inner]
        return right, rows, np.where(below, self.tree.right[node], self.tree.left[node])

    def _goes_right(self, rows: Ints, node: Ints) -> Bools:
        """Return which rows go right at their node: NaN does, unless its side is the left; nothing does at a leaf."""
        feature, dense = self.tree.feature[node], len(self.categorical)
        right = np.zeros(len(rows), np.bool_)
        at = np.flatnonzero((feature >= 0) & (feature < dense))
        if len(at):
            x, threshold = self.X[rows[at], feature[at]], self.tree.threshold[node[at]]
            missing_left = np.isnan(x) & (self.tree.missing[node[at]] == LEFT)
            right[at] = ~np.where(self.categorical[feature[at]], x == threshold, (x <= threshold) | missing_left)
        if not self.features.sparse:
            return right
        at = np.flatnonzero(feature >= dense)
        ones = self.sparse[rows[at]]
        hit = ones.indices == np.repeat(feature[at] - dense, ones.lengths)
        right[at] = np.bincount(np.repeat(np.arange(len(at)), ones.lengths)[hit], minlength=len(at)) > 0
        return right

    def ranked_columns(self) -> list[RankedColumn]:
        """Return the dense features for the search of best splits. O(examples x features x log)."""
        return each([partial(self._ranked, j) for j in range(len(self.categorical))], len(self.y))

    def _ranked(self, j: int) -> RankedColumn:
        values, code = np.unique(self.X[:, j], return_inverse=True)
        return RankedColumn(values, code.astype(np.int32), bool(self.categorical[j]))


class BuildHistory(RoutedHistory):
    """And what it says of BUILD, of a tree whose nodes know when they were built."""

    built_counts: Ints  #: Shape (nodes, K): class counts of S0(v); a learner's audit counts them.

    def __init__(self, tree: RecordedTree, features: Features, history: History, weight: Ints | None = None) -> None:
        super().__init__(tree, features, history, weight)
        self.c = np.zeros(len(tree), np.int64)  #: Insertions and deletions that route to v after its BUILD.
        self.passed = np.zeros(len(tree), np.bool_)  #: Whether the update that is recorded to have built v routes to v.
        self.lacking = np.zeros(len(tree), np.bool_)  #: Whether S0(v) has a missing number of the feature of v.
        #: Side of missing numbers at v by the examples there when the first came, if S0(v) has none; 0 if none came.
        self.side = np.zeros(len(tree), np.int64)

    def look_back(self, rows: Ints, node: Ints, right: Bools) -> Bools:
        """Count the updates since BUILD of the nodes of one level; return which rows are in S0 of their node."""
        built, born, died = self.tree.built[node], self.born[rows], self.died[rows]
        gone = (died > built) & ~self.alive[rows]
        for passing in (born > built, gone):
            self.c += self.added(node[passing], rows[passing], len(self.c))
        self.passed[node[(born == built) | (died == built)]] = True
        then = np.asarray((born <= built) & (built < died), np.bool_)
        self._look_at_missing(rows, node, right, then)
        return then

    def added(self, place: Ints, rows: Ints, places: int) -> Ints:
        """Add up what some rows count, by the place of each: exact up to 2**53, as float64 adds weights."""
        return np.bincount(place, None if self.weight is None else self.weight[rows], places).astype(np.int64)

    def sides(self) -> Ints:
        """Return the side of missing numbers at each node; where BUILD chose it, that of the tree, if it is one."""
        return np.where(self.lacking, np.maximum(self.tree.missing, LEFT), self.side)

    def _look_at_missing(self, rows: Ints, node: Ints, right: Bools, then: Bools) -> None:
        """Find the sides of missing numbers at the nodes of one level; ``then`` are the rows of S0."""
        feature = self.tree.feature[node]
        number = np.append(~self.categorical, False)[np.minimum(feature, len(self.categorical))] & (feature >= 0)
        missing = np.zeros(len(rows), np.bool_)
        missing[number] = np.isnan(self.X[rows[number], feature[number]])
        if not missing.any():
            return
        self.lacking[node[missing & then]] = True
        came = missing & (self.born[rows] > self.tree.built[node])
        first = np.full(len(self.side), FOREVER)
        np.minimum.at(first, node[came], self.born[rows[came]])
        there = (self.born[rows] < first[node]) & (first[node] < self.died[rows]) & (first[node] < FOREVER)
        left, other = (self.added(node[some], rows[some], len(self.side)) for some in (there & ~right, there & right))
        more = left - other
        at = np.flatnonzero((first < FOREVER) & ~self.lacking)
        self.side[at] = np.where(more[at] > 0, LEFT, RIGHT)
