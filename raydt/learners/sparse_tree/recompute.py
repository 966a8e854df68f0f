"""Values that the audit of the sparse tree compares, recomputed from raw examples by routing and counting.

Nothing of the fast path is imported. Times and the sets S(v) and S0(v) are those of
``raydt.audits.recorded_tree``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from raydt.arrays.types import Bools, Floats, Ints
from raydt.audits.finder_counters import score_of_counts
from raydt.audits.recorded_tree import RecordedTree, best_of, best_splits, each
from raydt.audits.routed_history import BuildHistory
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.weights import UNIT


@dataclass(frozen=True)
class FeatureCounts:
    """Features at nodes, ascending by node and feature: rows with a 1, and those of class 1 among them."""

    node: Ints
    feature: Ints
    n1: Ints
    c11: Ints


@dataclass
class Sets:
    """Of one set of rows for every node, shape (nodes,): now, or at BUILD."""

    counts: Ints  #: Shape (nodes, 2).
    #: ``impurity``, ``score``: Of the rows, and of the node's split of them; both are equal at leaves.
    impurity: Floats
    score: Floats
    least: Floats  #: Smallest score of all sparse features; infinite where none is seen.
    dense: Floats  #: Smallest score of all dense splits; infinite without one.

    @classmethod
    def none(cls, nodes: int) -> Sets:
        """Nothing yet."""
        zero = np.zeros(nodes)
        return cls(np.zeros((nodes, 2), np.int64), zero, zero.copy(), np.full(nodes, np.inf), np.full(nodes, np.inf))


class RecountedSparseTree(BuildHistory):
    """All that a history says about a recorded tree."""

    def __init__(
        self, tree: RecordedTree, features: Features, entropy: bool, history: History, weight: Ints | None = None
    ) -> None:
        super().__init__(tree, features, history, weight)
        self.unit = 1 if weight is None else UNIT  #: A row is so many units of a count.
        self.y = history.y.astype(np.int64)
        self._entropy, self._columns = entropy, self.ranked_columns()
        self.now = Sets.none(len(tree))  #: Of S(v).
        self.then = Sets.none(len(tree))  #: Of S0(v), of a complete history.
        self.counted: list[FeatureCounts] = []  #: Features of S(v), one part for each level of the tree.
        for rows, node, right in self.levels():
            live = self.alive[rows]
            self.counted.append(self._look(self.now, rows[live], node[live], right[live]))
            if self.complete:
                old = self.look_back(rows, node, right)
                self._look(self.then, rows[old], node[old], right[old])
        self.live_counts, self.built_counts = self.now.counts, self.then.counts

    def _look(self, sets: Sets, rows: Ints, node: Ints, right: Bools) -> FeatureCounts:
        """Count the rows of the nodes of one level."""
        at, local = np.unique(node, return_inverse=True)
        y = self.y[rows]
        n = self.added(local, rows, len(at))
        c1 = self.added(local[y == 1], rows[y == 1], len(at))
        sets.counts[at, 0], sets.counts[at, 1] = n - c1, c1
        n1 = self.added(local[right], rows[right], len(at))
        ones = right & (y == 1)
        c11 = self.added(local[ones], rows[ones], len(at))
        zero = np.zeros(len(at), np.int64)
        sets.impurity[at] = score_of_counts(self._entropy, n, c1, zero, zero, self.unit)
        sets.score[at] = score_of_counts(self._entropy, n, c1, n1, c11, self.unit)
        if self._columns and len(at):
            gain = self._dense_gain(rows, local, np.stack([n - c1, c1], axis=1))
            square = np.maximum(n.astype(np.float64) * n, 1.0)
            sets.dense[at] = np.where(gain >= 0, sets.impurity[at] - gain / square, np.inf)
        counted = self._count(rows, local)
        of_nodes = n[counted.node], c1[counted.node], counted.n1, counted.c11
        scores = score_of_counts(self._entropy, *of_nodes, self.unit)
        np.minimum.at(sets.least, at[counted.node], scores)
        return FeatureCounts(at[counted.node], counted.feature, counted.n1, counted.c11)

    def _dense_gain(self, rows: Ints, node: Ints, counts: Ints) -> Floats:
        """Gain of the best dense split of each node, times the square of its count; below 0 where there is none."""
        if self.weight is None:
            return best_splits(self._columns, rows, self.y[rows], node, counts)[0]
        of_rows = rows, self.y[rows], self.weight[rows], node, counts
        tasks = [partial(column.best_splits_of_weights, *of_rows) for column in self._columns]
        return best_of(len(counts), each(tasks, len(rows)))[0]

    def _count(self, rows: Ints, node: Ints) -> FeatureCounts:
        """Count the features of rows by their node."""
        sparse = self.sparse[rows]
        width = max(1, sparse.n_features)
        key, place = np.unique(np.repeat(node, sparse.lengths) * width + sparse.indices, return_inverse=True)
        of_ones = np.repeat(rows, sparse.lengths)
        of_class = self.y[of_ones] == 1
        at, feature = np.divmod(key, width)
        n1 = self.added(place, of_ones, len(key))
        return FeatureCounts(at, feature, n1, self.added(place[of_class], of_ones[of_class], len(key)))
