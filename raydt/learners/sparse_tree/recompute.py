"""Values that the audit of the sparse tree compares, recomputed from raw examples by routing and counting.

Nothing of the fast path is imported. Times and the sets S(v) and S0(v) are those of
``raydt.audits.recorded_tree``.

Not here: verdicts (``audit``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydt.arrays.sparse import SparseRows
from raydt.audits.finder_counters import score_of_counts
from raydt.audits.recorded_tree import FOREVER, Bools, Floats, Ints, RankedColumn, RecordedTree, best_splits
from raydt.examples.features import Features
from raydt.examples.history import History


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


class RecountedSparseTree:
    """All that a history says about a recorded tree: attributes as of ``recorded_tree.Truth``, and

    Attributes
    ----------
    now, then : Sets
        Of S(v) and of S0(v); ``then`` only of a complete history.
    features : list of FeatureCounts
        Features of S(v), one part for each level of the tree.
    """

    def __init__(self, tree: RecordedTree, features: Features, entropy: bool, history: History) -> None:
        assert history.sparse is not None
        n = len(tree)
        self.tree, self.complete = tree, history.complete
        self._kinds, self._entropy = np.array(features.categorical, np.bool_), entropy
        self._columns = []
        for j, categorical in enumerate(features.categorical):
            values, code = np.unique(history.X[:, j], return_inverse=True)
            self._columns.append(RankedColumn(values, code.astype(np.int32), categorical))
        self._X, self._sparse, self.y = history.X, history.sparse, history.y.astype(np.int64)
        self.alive = history.deleted == FOREVER
        replaced = np.isin(history.deleted, history.inserted)  # by the insertion half of the same update
        born = 2 * history.inserted + 1
        died = np.where(self.alive, FOREVER, 2 * np.where(self.alive, 0, history.deleted) + ~replaced)

        self.leaf, self.c, self.passed = np.zeros(len(self.y), np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
        self.now, self.then, self.features = Sets.none(n), Sets.none(n), list[FeatureCounts]()
        rows, node = np.arange(len(self.y)), np.zeros(len(self.y), np.int64)
        while len(rows):
            self.leaf[rows] = node
            right = self._goes_right(rows, node)
            live = self.alive[rows]
            self.features.append(self._look(self.now, rows[live], node[live], right[live]))
            if self.complete:
                built = tree.built[node]
                gone = (died[rows] > built) & ~live
                self.c += np.bincount(node[born[rows] > built], minlength=n) + np.bincount(node[gone], minlength=n)
                self.passed[node[(born[rows] == built) | (died[rows] == built)]] = True
                old = (born[rows] <= built) & (built < died[rows])
                self._look(self.then, rows[old], node[old], right[old])
            inner = tree.feature[node] >= 0
            rows, node, right = rows[inner], node[inner], right[inner]
            node = np.where(right, tree.right[node], tree.left[node])
        self.live_counts, self.built_counts = self.now.counts, self.then.counts

    def _goes_right(self, rows: Ints, node: Ints) -> Bools:
        """Which rows go right at their node; none at leaves."""
        feature, dense = self.tree.feature[node], len(self._kinds)
        right = np.zeros(len(rows), np.bool_)
        at = np.flatnonzero((feature >= 0) & (feature < dense))
        value, threshold = self._X[rows[at], feature[at]], self.tree.threshold[node[at]]
        right[at] = np.where(self._kinds[feature[at]], value != threshold, value > threshold) if dense else False
        at = np.flatnonzero(feature >= dense)
        part = self._sparse[rows[at]]
        hit = part.indices == np.repeat(feature[at] - dense, part.lengths)
        right[at] = np.bincount(np.repeat(np.arange(len(at)), part.lengths)[hit], minlength=len(at)) > 0
        return right

    def _look(self, sets: Sets, rows: Ints, node: Ints, right: Bools) -> FeatureCounts:
        """Count the rows of the nodes of one level."""
        at, local = np.unique(node, return_inverse=True)
        y = self.y[rows]
        n = np.bincount(local, minlength=len(at))
        c1 = np.bincount(local[y == 1], minlength=len(at))
        sets.counts[at, 0], sets.counts[at, 1] = n - c1, c1
        n1 = np.bincount(local[right], minlength=len(at))
        c11 = np.bincount(local[right & (y == 1)], minlength=len(at))
        zero = np.zeros(len(at), np.int64)
        sets.impurity[at] = score_of_counts(self._entropy, n, c1, zero, zero)
        sets.score[at] = score_of_counts(self._entropy, n, c1, n1, c11)
        if self._columns and len(at):
            gain = best_splits(self._columns, rows, y, local, np.stack([n - c1, c1], axis=1))[0]
            sets.dense[at] = np.where(gain >= 0, sets.impurity[at] - gain / np.maximum(n * n, 1), np.inf)
        counted = _count(self._sparse[rows], local, y)
        scores = score_of_counts(self._entropy, n[counted.node], c1[counted.node], counted.n1, counted.c11)
        np.minimum.at(sets.least, at[counted.node], scores)
        return FeatureCounts(at[counted.node], counted.feature, counted.n1, counted.c11)


def _count(sparse: SparseRows, node: Ints, y: Ints) -> FeatureCounts:
    """Count the features of rows by their node."""
    width = max(1, sparse.n_features)
    key, place = np.unique(np.repeat(node, sparse.lengths) * width + sparse.indices, return_inverse=True)
    of_one = np.repeat(y, sparse.lengths) == 1
    at, feature = np.divmod(key, width)
    n1, c11 = np.bincount(place, minlength=len(key)), np.bincount(place[of_one], minlength=len(key))
    return FeatureCounts(at, feature, n1, c11)
