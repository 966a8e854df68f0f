"""Values that the audit of FuDyADT compares, recomputed from raw examples by routing, sorting and counting.

Nothing of the fast path is imported. Times and the sets S(v) and S0(v) are those of
``raydt.learners.recorded_tree``.

Not here: verdicts (``audit``).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.learners.recorded_tree import FOREVER, Bools, Column, Floats, Ints, RecordedTree, best_splits


def impurity_exceeds(counts: Ints, bound: Fraction, *, or_equals: bool = False) -> Bools:
    """Whether g(S) > bound (or >=) for each row of class counts, exactly: (n^2 - sum c_k^2) against bound n^2."""
    p, q = bound.numerator, bound.denominator
    excess = [
        (n * n - squares) * q - p * n * n
        for n, squares in zip(counts.sum(axis=1).tolist(), (counts * counts).sum(axis=1).tolist(), strict=True)
    ]
    return np.array([e > 0 or (or_equals and e == 0) for e in excess], np.bool_)


def gini_mass(counts: Ints) -> Floats:
    """|S| g(S) for each row of class counts: the pairs of different classes over n, one rounded division."""
    n = counts.sum(axis=1)
    mass: Floats = (n * n - (counts * counts).sum(axis=1)) / np.maximum(n, 1)
    return mass


@dataclass(frozen=True)
class Rules:
    """When BUILD splits: alpha, k + 1 and h (the largest int64 for none)."""

    alpha: Fraction
    min_samples_split: int
    max_depth: int

    def may_split(self, counts: Ints, depth: Ints) -> Bools:
        """Whether neither size nor depth makes a leaf of each node."""
        return np.asarray((counts.sum(axis=1) >= self.min_samples_split) & (depth != self.max_depth), np.bool_)


class Recomputed:
    """All that a history says about a recorded tree.

    Parameters
    ----------
    tree : RecordedTree
    features : Features
    rules : Rules
    history : History
    classes : int
        K of the recorded class counts.
    budget : int
        Cells (rows x features) of build-time sets that are searched; beyond it nodes are sampled.

    Attributes
    ----------
    leaf : ndarray of int64, shape (examples,)
        Leaf each example of the history routes to.
    live_counts, built_counts : ndarray of int64, shape (n, K)
        Class counts of S(v) and of S0(v).
    c : ndarray of int64, shape (n,)
        Insertions and deletions that route to v after its BUILD.
    m0 : ndarray of float64, shape (n,)
        Mass that the split of v left on S0(v); that of S0(v) for a leaf.
    gone : ndarray of int64, shape (n,)
        Examples of S0(v) that have been deleted.
    passed : ndarray of bool, shape (n,)
        Whether the update that is recorded to have built v routes to v.
    live_score : ndarray of float64, shape (n,)
        Best score on S(v); -1 where none was searched or exists.
    replayed : ndarray of bool, shape (n,)
        Nodes whose S0(v) asks for a split and was searched for the best one.
    built_score, built_feature, built_threshold : ndarray, shape (n,)
        That best split; score -1 where nothing separates S0(v).

    Notes
    -----
    Without a complete history only ``leaf`` and ``live_*`` mean something. O(depth * cells * log(rows)).
    """

    def __init__(
        self, tree: RecordedTree, features: Features, rules: Rules, history: History, classes: int, budget: int
    ) -> None:
        n = len(tree)
        self.tree, self.rules, self.complete = tree, rules, history.complete
        self.categorical = np.array(features.categorical, np.bool_)
        self.columns = []
        for j, categorical in enumerate(features.categorical):
            values, code = np.unique(history.X[:, j], return_inverse=True)
            self.columns.append(Column(values, code.astype(np.int32), categorical))
        self.X, self.y = history.X, history.y.astype(np.int64)
        self.alive = history.deleted == FOREVER
        replaced = np.isin(history.deleted, history.inserted)  # by the insertion half of the same update
        self.born = 2 * history.inserted + 1
        self.died = np.where(self.alive, FOREVER, 2 * np.where(self.alive, 0, history.deleted) + ~replaced)

        self.leaf = np.zeros(len(self.y), np.int64)
        self.live_counts, self.built_counts = (np.zeros((n, classes), np.int64) for _ in range(2))
        self.c, self.passed, self.replayed = np.zeros(n, np.int64), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self.m0, self.gone = np.zeros(n), np.zeros(n, np.int64)
        self.live_score, self.built_score = np.full(n, -1.0), np.full(n, -1.0)
        self.built_feature, self.built_threshold = np.full(n, -1), np.zeros(n)

        sampled = _sample(tree.s, len(features), budget)
        place = np.zeros(n, np.int64)
        for depth, (rows, node) in enumerate(tree.route(history.X, self.categorical)):
            self.leaf[rows] = node
            at = np.flatnonzero(tree.depth == depth)
            place[at] = np.arange(len(at))
            self._look_at_now(at, rows, place[node])
            if self.complete:
                self._look_back(at, rows, place[node], sampled[at])

    def _look_at_now(self, at: Ints, rows: Ints, local: Ints) -> None:
        """Live counts and best scores of the nodes ``at`` one level; ``local`` is each row's place in ``at``."""
        rows, local = rows[self.alive[rows]], local[self.alive[rows]]
        counts = self.live_counts[at] = self._count(local, rows, len(at))
        wanted = self.rules.may_split(counts, self.tree.depth[at])
        wanted &= impurity_exceeds(counts, self.rules.alpha, or_equals=True)
        wanted |= self.tree.feature[at] >= 0
        self.live_score[at] = self._search(wanted, counts, rows, local)[0]

    def _look_back(self, at: Ints, rows: Ints, local: Ints, sampled: Bools) -> None:
        """Counters and build-time splits of the nodes ``at`` one level."""
        built, born, died = self.tree.built[at][local], self.born[rows], self.died[rows]
        gone = (died > built) & ~self.alive[rows]
        self.c[at] = np.bincount(local[born > built], minlength=len(at)) + np.bincount(local[gone], minlength=len(at))
        self.passed[at] = np.bincount(local[(born == built) | (died == built)], minlength=len(at)) > 0
        then = (born <= built) & (built < died)
        rows, local = rows[then], local[then]
        counts = self.built_counts[at] = self._count(local, rows, len(at))
        self.gone[at] = np.bincount(local[~self.alive[rows]], minlength=len(at))
        split = np.flatnonzero(self.tree.feature[at][local] >= 0)
        left = split[self.tree.goes_left(self.X, self.categorical, rows[split], at[local[split]])]
        on_left = self._count(local[left], rows[left], len(at))  # nothing of a leaf
        self.m0[at] = gini_mass(on_left) + gini_mass(counts - on_left)
        wanted = sampled & self.rules.may_split(counts, self.tree.depth[at])
        wanted &= impurity_exceeds(counts, self.rules.alpha / 2)
        self.replayed[at] = wanted
        found = self._search(wanted, counts, rows, local)
        self.built_score[at], self.built_feature[at], self.built_threshold[at] = found

    def _count(self, local: Ints, rows: Ints, nodes: int) -> Ints:
        K = self.live_counts.shape[1]
        return np.bincount(local * K + self.y[rows], minlength=nodes * K).reshape(nodes, K)

    def _search(self, wanted: Bools, counts: Ints, rows: Ints, local: Ints) -> tuple[Floats, Ints, Floats]:
        """Best splits of the ``wanted`` nodes of one level."""
        rows, local = rows[wanted[local]], local[wanted[local]]
        return best_splits(self.columns, rows, self.y[rows], local, np.where(wanted[:, None], counts, 0))


def _sample(s: Ints, d: int, budget: int) -> Bools:
    """The nodes whose build-time set is searched: all within the budget, else a fixed scattered choice."""
    cells = np.maximum(s, 0) * d
    if cells.sum() <= budget:
        return np.ones(len(s), np.bool_)
    scattered = np.argsort(np.arange(len(s), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    chosen = np.zeros(len(s), np.bool_)
    for v in scattered.tolist():
        if cells[v] <= budget:
            chosen[v] = True
            budget -= int(cells[v])
    return chosen
