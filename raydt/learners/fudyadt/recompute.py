"""What the audit of FuDyADT compares, recomputed from raw examples by routing, sorting and counting.

Nothing of the fast path is imported. Time runs in half updates, as in the state's ``built``: what update ``seq``
inserts or deletes happens at 2 seq + 1, the deletion half of an UPDATE at 2 seq. S(v) is what is live and routes
to v; S0(v) what was live just after the BUILD that made v, and routes to v.

Not here: verdicts (``audit``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.examples.history import History

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FOREVER = np.iinfo(np.int64).max


class MalformedTreeError(Exception):
    """Node arrays that are no tree in preorder."""


@dataclass(frozen=True)
class RecordedTree:
    """The node arrays of a state, shape (n,) each; ``parent`` and ``depth`` are derived from them."""

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    s: Ints
    c: Ints
    built: Ints
    parent: Ints
    depth: Ints

    def __len__(self) -> int:
        return len(self.feature)

    @classmethod
    def read(cls, state: Mapping[str, npt.NDArray[Any]], d: int) -> RecordedTree:
        """The tree of a coordinator's state over d features.

        Raises
        ------
        MalformedTreeError
            Not every node is a leaf, or has a feature and the two children that preorder gives it.
        """
        ints = {name: np.asarray(state[name], np.int64) for name in ("feature", "left", "right", "s", "c", "built")}
        n = len(ints["feature"])
        if n == 0 or any(len(state[name]) != n for name in (*ints, "threshold", "counts")):
            raise MalformedTreeError("the node arrays are empty or differ in length")
        feature, left, right = (ints[name].tolist() for name in ("feature", "left", "right"))
        end, parent, depth = [0] * n, [-1] * n, [0] * n
        for v in reversed(range(n)):
            if feature[v] < 0:
                sound, end[v] = left[v] == right[v] == -1, v + 1
            else:
                sound = feature[v] < d and left[v] == v + 1 < n and right[v] == end[v + 1] < n
                end[v] = end[right[v]] if sound else 0
            if not sound:
                raise MalformedTreeError(f"node {v} has feature {feature[v]} and children {left[v]}, {right[v]}")
        if end[0] != n:
            raise MalformedTreeError(f"the root reaches {end[0]} of {n} nodes")
        for v in range(n):
            if feature[v] >= 0:
                for child in (left[v], right[v]):
                    parent[child], depth[child] = v, depth[v] + 1
        return cls(
            **ints,
            threshold=np.asarray(state["threshold"], np.float64),
            parent=np.array(parent, np.int64),
            depth=np.array(depth, np.int64),
        )

    def route(self, X: Floats, categorical: Bools) -> Iterator[tuple[Ints, Ints]]:
        """Level by level: the rows of X that get so far, and the node each of them is at."""
        rows, node = np.arange(len(X)), np.zeros(len(X), np.int64)
        while len(rows):
            yield rows, node
            inner = self.feature[node] >= 0
            rows, node = rows[inner], node[inner]
            feature, threshold = self.feature[node], self.threshold[node]
            x = X[rows, feature]
            goes_left = np.where(categorical[feature], x == threshold, x <= threshold)
            node = np.where(goes_left, self.left[node], self.right[node])


@dataclass(frozen=True)
class Column:
    """One feature: its distinct values, and the place of each row's value among them."""

    values: Floats
    code: npt.NDArray[np.int32]
    categorical: bool

    def best_splits(self, rows: Ints, y: Ints, node: Ints, counts: Ints) -> tuple[Floats, Floats]:
        """Score and threshold of the best split on this feature at each of m nodes; score -1 where there is none.

        Parameters
        ----------
        rows, y, node : ndarray of int64, shape (r,)
            The examples: row, class, and node in 0..m-1.
        counts : ndarray of int64, shape (m, K)
            Their class counts at each node.

        Notes
        -----
        score = (sum over classes of float(D_k)^2) / float(n_left n_right), D_k = left_k n - n_left c_k, which is
        n^2 times the Gini gain. O(r log r + r K).
        """
        m, K = counts.shape
        score_of, threshold_of = np.full(m, -1.0), np.zeros(m)
        if len(rows) == 0:
            return score_of, threshold_of
        key = (node * len(self.values) + self.code[rows]) * K + y
        key.sort()
        pair, label = np.divmod(key, K)
        ends = np.flatnonzero(np.append(pair[1:] != pair[:-1], True))  # last row of each value at each node
        v, code = np.divmod(pair[ends], len(self.values))
        starts = np.flatnonzero(np.insert(v[1:] != v[:-1], 0, True))  # first value of each node

        def on_the_left(running: Ints, per_node: Ints) -> Ints:
            if self.categorical:
                return np.diff(running, prepend=0)
            return running - (np.cumsum(per_node) - per_node)[v]

        sizes = counts.sum(axis=1)
        n, n_left = sizes[v], on_the_left(ends + 1, sizes)
        parts = n_left < n
        total = np.zeros(len(v))
        for k in range(K):
            D = on_the_left(np.cumsum(label == k)[ends], counts[:, k]) * n - n_left * counts[v, k]
            total += D.astype(np.float64) * D.astype(np.float64)
        score = np.where(parts, total / np.where(parts, n_left * (n - n_left), 1), -1.0)
        score_of[v[starts]] = np.maximum.reduceat(score, starts)
        best = np.flatnonzero(parts & (score == score_of[v]))
        best = best[np.unique(v[best], return_index=True)[1]]  # of several, the one of the smallest threshold
        a = self.values[code[best]]
        if not self.categorical and len(best):
            b = self.values[code[best + 1]]
            t = 0.5 * a + 0.5 * b
            a = np.where((a <= t) & (t < b), t, a)
        threshold_of[v[best]] = a
        return score_of, threshold_of


def best_splits(columns: list[Column], rows: Ints, y: Ints, node: Ints, counts: Ints) -> tuple[Floats, Ints, Floats]:
    """Score, feature and threshold of each node's best split; ties go to the smaller feature, then threshold."""
    score, feature, threshold = np.full(len(counts), -1.0), np.full(len(counts), -1), np.zeros(len(counts))
    for j, column in enumerate(columns):
        s, t = column.best_splits(rows, y, node, counts)
        better = s > score
        score[better], feature[better], threshold[better] = s[better], j, t[better]
    return score, feature, threshold


def impurity_exceeds(counts: Ints, bound: Fraction, *, or_equals: bool = False) -> Bools:
    """Whether g(S) > bound (or >=) for each row of class counts, exactly: (n^2 - sum c_k^2) against bound n^2."""
    p, q = bound.numerator, bound.denominator
    excess = [
        (n * n - squares) * q - p * n * n
        for n, squares in zip(counts.sum(axis=1).tolist(), (counts * counts).sum(axis=1).tolist(), strict=True)
    ]
    return np.array([e > 0 or (or_equals and e == 0) for e in excess], np.bool_)


@dataclass(frozen=True)
class Rules:
    """When BUILD splits: alpha, k + 1 and h (the largest int64 for none)."""

    alpha: Fraction
    min_samples_split: int
    max_depth: int

    def may_split(self, counts: Ints, depth: Ints) -> Bools:
        """Whether neither size nor depth makes a leaf of each node."""
        return np.asarray((counts.sum(axis=1) >= self.min_samples_split) & (depth != self.max_depth), np.bool_)


class Routed(Protocol):
    """Where the examples of a history are in a recorded tree: attributes of :class:`Recomputed`."""

    tree: RecordedTree
    complete: bool
    alive: Bools
    y: Ints
    leaf: Ints
    live_counts: Ints


class Truth(Routed, Protocol):
    """And what it says of builds, of any tree that has them."""

    built_counts: Ints
    c: Ints
    passed: Bools


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
        self.y = history.y.astype(np.int64)
        self.alive = history.deleted == FOREVER
        replaced = np.isin(history.deleted, history.inserted)  # by the insertion half of the same update
        self.born = 2 * history.inserted + 1
        self.died = np.where(self.alive, FOREVER, 2 * np.where(self.alive, 0, history.deleted) + ~replaced)

        self.leaf = np.zeros(len(self.y), np.int64)
        self.live_counts, self.built_counts = (np.zeros((n, classes), np.int64) for _ in range(2))
        self.c, self.passed, self.replayed = np.zeros(n, np.int64), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
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
