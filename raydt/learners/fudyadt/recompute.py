"""Values that the audit of FuDyADT compares, recomputed from raw examples by routing, sorting and counting.

Nothing of the fast path is imported. Times and the sets S(v) and S0(v) are those of
``raydt.audits.recorded_tree``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.audits.recorded_tree import (
    LEFT,
    RIGHT,
    Best,
    BuildHistory,
    RankedColumn,
    RecordedTree,
    best_of,
    best_splits,
    each,
)
from raydt.examples.updates import UNIT, Features, History


class Gini:
    """The Gini index at each of m nodes, by *statistics*, int64, shape (m, classes): class counts."""

    square = 1  #: Masses and gains are so many times those that alpha and beta are given in.
    step = 2.0  #: Mass that one edit adds or takes at most.

    def __init__(self, classes: int) -> None:
        self.width = classes

    def labels(self, y: AnyArray) -> Ints:
        """Return labels as whole numbers: class codes."""
        return y.astype(np.int64)

    def count(self, node: Ints, labels: Ints, nodes: int, weight: Ints | None = None) -> Ints:
        """Return the statistics of so many nodes from the node, the label and the weight (None: 1) of each row.

        Sums of weights are exact up to 2**53, as float64 adds them.
        """
        counts = np.bincount(node * self.width + labels, weight, nodes * self.width)
        return counts.astype(np.int64).reshape(nodes, self.width)

    def counts(self, statistics: Ints) -> Ints:
        """Return the examples at each node by class, shape (m, classes); with numbers there is one class."""
        return statistics

    def numerators(self, statistics: Ints) -> list[int]:
        """Return the impurity at each node times the square of its examples, exactly: n^2 - sum c_k^2."""
        pairs: list[int] = (statistics.sum(axis=1) ** 2 - (statistics * statistics).sum(axis=1)).tolist()
        return pairs

    def half(self, alpha: Fraction) -> Fraction:
        """Return the impurity up to which BUILD makes a leaf."""
        return alpha / 2

    def mass(self, statistics: Ints) -> Floats:
        """Return impurity times examples as the fast path rounds it: pairs of different classes over n."""
        n = statistics.sum(axis=1)
        mass: Floats = (n * n - (statistics * statistics).sum(axis=1)) / np.maximum(n, 1)
        return mass

    def scores(self, left: Ints, statistics: Ints) -> Floats:
        """Return n^2 times the gain of each node's split: the sum of float(D_k)^2 over float(n_left n_right)."""
        return _scores(left, statistics, left.sum(axis=1), statistics.sum(axis=1))

    def in_rows(self, sizes: Ints) -> Ints | Floats:
        """Return sizes in rows of weight 1."""
        return sizes

    def squares(self, sizes: list[int]) -> list[int]:
        """Return squares of sizes."""
        return [n * n for n in sizes]

    def best(
        self, columns: list[RankedColumn], rows: Ints, labels: Ints, weight: Ints, node: Ints, statistics: Ints
    ) -> Best:
        """Return the best split at each node; ``weight`` is empty where examples count 1 each."""
        return best_splits(columns, rows, labels, node, statistics)


class WeightedGini(Gini):
    """The Gini index by sums of weights in units, whose products are rounded to float64 as in the fast path."""

    def _pairs(self, statistics: Ints) -> Floats:
        """Sum of c_k (n - c_k), class after class."""
        n, pairs = statistics.sum(axis=1).astype(np.float64), np.zeros(len(statistics))
        for counts in statistics.T.astype(np.float64):
            pairs += counts * (n - counts)
        return pairs

    def numerators(self, statistics: Ints) -> list[int]:
        """The same, as whole numbers."""
        return [int(pairs) for pairs in self._pairs(statistics).tolist()]

    def mass(self, statistics: Ints) -> Floats:
        """Impurity times examples, in rows."""
        n = np.maximum(statistics.sum(axis=1), 1).astype(np.float64)
        mass: Floats = self._pairs(statistics) / n / UNIT
        return mass

    def scores(self, left: Ints, statistics: Ints) -> Floats:
        """Between the sides, of products of float64."""
        on_left, right = left.sum(axis=1).astype(np.float64), (statistics - left).astype(np.float64)
        on_right, total = right.sum(axis=1), np.zeros(len(left))
        for k in range(left.shape[1]):
            D = left[:, k].astype(np.float64) * on_right - on_left * right[:, k]
            total += D * D
        sides = on_left * on_right
        return np.where(sides > 0, total / np.maximum(sides, 1), 0.0)

    def in_rows(self, sizes: Ints) -> Floats:
        """Over the unit."""
        rows: Floats = sizes / UNIT
        return rows

    def squares(self, sizes: list[int]) -> list[int]:
        """Rounded to float64."""
        return [int(float(n) * float(n)) for n in sizes]

    def best(
        self, columns: list[RankedColumn], rows: Ints, labels: Ints, weight: Ints, node: Ints, statistics: Ints
    ) -> Best:
        """By weights."""
        tasks = [partial(of.best_splits_of_weights, rows, labels, weight, node, statistics) for of in columns]
        return best_of(len(statistics), each(tasks, len(rows)))


class Variance(Gini):
    """The variance, by number, sum and sum of squares of labels in units, the power of two, of a range."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(3)
        self._low, self._high, self._unit, top = low, high, 1.0, 0
        if low < high:
            self._unit = 2.0 ** (math.frexp(high - low)[1] - 16)
            self._unit /= 1 + ((high - low) <= 32768 * self._unit)
            top = math.floor((high - low) / self._unit + 0.5)
        self.square, self.step = top * top, float(top * top)

    def labels(self, y: AnyArray) -> Ints:
        """Units from the lower end of the range, half a unit rounded up; 0 without a range."""
        if not self.square:
            return np.zeros(len(y), np.int64)
        near = np.minimum(np.maximum(y, self._low), self._high)
        units: Ints = np.floor((near - self._low) / self._unit + 0.5).astype(np.int64)
        return units

    def count(self, node: Ints, labels: Ints, nodes: int, weight: Ints | None = None) -> Ints:
        """n, the sum, and the sum of squares."""
        sums = np.zeros((nodes, 3), np.int64)
        for k in range(3):
            np.add.at(sums[:, k], node, labels**k)
        return sums

    def counts(self, statistics: Ints) -> Ints:
        """The first column."""
        return statistics[:, :1]

    def numerators(self, statistics: Ints) -> list[int]:
        """n sum q^2 - (sum q)^2."""
        return [n * squares - q * q for n, q, squares in statistics.tolist()]

    def half(self, alpha: Fraction) -> Fraction:
        """Half of alpha, down to a whole unit squared."""
        return Fraction(math.floor(alpha / 2 * self.square), max(self.square, 1))

    def mass(self, statistics: Ints) -> Floats:
        """Around the whole part of the mean exactly, less the rest, one rounded division."""
        n, q, squares = statistics.T
        mean, rest = np.divmod(q, np.maximum(n, 1))
        around = (squares - 2 * mean * q + n * mean * mean).astype(np.float64)
        mass: Floats = around - (rest * rest).astype(np.float64) / np.maximum(n, 1).astype(np.float64)
        return mass

    def scores(self, left: Ints, statistics: Ints) -> Floats:
        """float(D)^2 over float(n_left n_right)."""
        return _scores(left[:, 1:2], statistics[:, 1:2], left[:, 0], statistics[:, 0])

    def best(
        self, columns: list[RankedColumn], rows: Ints, labels: Ints, weight: Ints, node: Ints, statistics: Ints
    ) -> Best:
        """By sums."""
        n, q, _ = statistics.T
        tasks = [partial(column.best_splits_of_numbers, rows, labels, node, n, q) for column in columns]
        return best_of(len(n), each(tasks, len(rows)))


class WeightedVariance(Variance):
    """The variance by weights in units: their sum, that of w q, and that of w q^2 in whole rows and a rest."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(low, high)
        self.width = 4

    def count(self, node: Ints, labels: Ints, nodes: int, weight: Ints | None = None) -> Ints:
        """Add up parts of w q^2 that 64 bits hold: 32 bits of q^2, and each half of them, times 16 bits of w."""
        assert weight is not None
        parts, square = np.zeros((nodes, 5), np.int64), labels * labels
        rows, rest = np.divmod(weight, UNIT)
        summed = (weight, weight * labels, rows * square, rest * (square // UNIT), rest * (square % UNIT))
        for k, part in enumerate(summed):
            np.add.at(parts[:, k], node, part)
        n, q, whole, middle, low = parts.T
        return np.stack([n, q, whole + (middle * UNIT + low) // UNIT, low % UNIT], axis=1)

    def _exact(self, statistics: Ints) -> list[tuple[int, int, int]]:
        """n, sum and sum of squares, all in units."""
        return [(n, q, whole * UNIT + rest) for n, q, whole, rest in statistics.tolist()]

    def numerators(self, statistics: Ints) -> list[int]:
        """n sum q^2 - (sum q)^2."""
        return [n * squares - q * q for n, q, squares in self._exact(statistics)]

    def mass(self, statistics: Ints) -> Floats:
        """As without weights, each term rounded once, in rows."""
        found = []
        for n, q, squares in self._exact(statistics):
            mean, rest = divmod(q, max(n, 1))
            around = Fraction(squares - 2 * mean * q + n * mean * mean, UNIT)
            found.append(float(around) - float(rest * rest) / max(n, 1) / UNIT)
        return np.array(found)

    def scores(self, left: Ints, statistics: Ints) -> Floats:
        """D is rounded once, and so is n_left n_right."""
        found = []
        for (n_left, q_left), (n, q) in zip(left[:, :2].tolist(), statistics[:, :2].tolist(), strict=True):
            D, sides = float(q_left * n - n_left * q), float(n_left * (n - n_left))
            found.append(D * D / sides if sides else 0.0)
        return np.array(found)

    def in_rows(self, sizes: Ints) -> Floats:
        """Over the unit."""
        rows: Floats = sizes / UNIT
        return rows

    def best(
        self, columns: list[RankedColumn], rows: Ints, labels: Ints, weight: Ints, node: Ints, statistics: Ints
    ) -> Best:
        """By sums of weights."""
        n, q = statistics[:, 0], statistics[:, 1]
        tasks = [partial(of.best_splits_of_numbers, rows, labels, node, n, q, weight) for of in columns]
        return best_of(len(n), each(tasks, len(rows)))


def _scores(left: Ints, whole: Ints, n_left: Ints, n: Ints) -> Floats:
    """Scores of splits, 0 where a side is empty."""
    sides = n_left * (n - n_left)
    D = (left * n[:, None] - n_left[:, None] * whole).astype(np.float64)
    return np.where(sides > 0, (D * D).sum(axis=1) / np.maximum(sides, 1), 0.0)


@dataclass(frozen=True)
class SplitConditions:
    """Conditions under which BUILD splits: alpha, k + 1, h (the largest int64 for none), and the impurity."""

    alpha: Fraction
    min_samples_split: int
    max_depth: int
    impurity: Gini

    @property
    def half_alpha(self) -> Fraction:
        """Impurity up to which BUILD makes a leaf."""
        return self.impurity.half(self.alpha)

    def sizes(self, statistics: Ints) -> Ints:
        """Examples at each node."""
        sizes: Ints = self.impurity.counts(statistics).sum(axis=1)
        return sizes

    def may_split(self, statistics: Ints, depth: Ints) -> Bools:
        """Return, for each node, True if neither size nor depth makes it a leaf."""
        return np.asarray((self.sizes(statistics) >= self.min_samples_split) & (depth != self.max_depth), np.bool_)

    def exceeds(self, statistics: Ints, bound: Fraction, *, or_equals: bool = False) -> Bools:
        """Return, for each node, True if g(S) > bound (or >=), exactly."""
        p, q = bound.numerator * self.impurity.square, bound.denominator
        sizes, numerators = self.sizes(statistics).tolist(), self.impurity.numerators(statistics)
        squares = self.impurity.squares(sizes)
        excess = [numerator * q - p * square for square, numerator in zip(squares, numerators, strict=True)]
        return np.array([e > 0 or (or_equals and e == 0) for e in excess], np.bool_)


class Recomputed(BuildHistory):
    """Everything that a history says about a recorded tree, sampled beyond ``budget`` cells. O(depth x cells x log)."""

    def __init__(
        self,
        tree: RecordedTree,
        features: Features,
        rules: SplitConditions,
        history: History,
        budget: int,
        weight: Ints | None = None,
    ) -> None:
        super().__init__(tree, features, history, weight)
        n, self.rules = len(tree), rules
        self.labels = rules.impurity.labels(history.y)
        self.live = np.zeros((n, rules.impurity.width), np.int64)  #: Statistics of S(v).
        self.built = np.zeros_like(self.live)  #: Statistics of S0(v).
        self.m0 = np.zeros(n)  #: Mass that the split of v left on S0(v); that of S0(v) for a leaf.
        self.gone = np.zeros(n, np.int64)  #: Examples of S0(v) that have been deleted.
        self.live_score = np.full(n, -1.0)  #: Best score on S(v); -1 where none was searched or exists.
        self.replayed = np.zeros(n, np.bool_)  #: Nodes whose S0(v) asks for a split and was searched for the best one.
        #: That best split; score -1 where nothing separates S0(v).
        self.built_score, self.built_feature, self.built_threshold = np.full(n, -1.0), np.full(n, -1), np.zeros(n)
        self.built_left = np.zeros(n, np.bool_)  #: Whether missing numbers go left at it.

        sampled = _sample(rules.impurity.in_rows(tree.s).astype(np.int64), len(features), budget)
        place = np.zeros(n, np.int64)
        for depth, (rows, node, right) in enumerate(self.levels()):
            at = np.flatnonzero(tree.depth == depth)
            place[at] = np.arange(len(at))
            self._look_at_now(at, rows, place[node])
            if self.complete:
                then = self.look_back(rows, node, right)
                self._look_at_build(at, rows[then], place[node[then]], ~right[then], sampled[at])
        self.live_counts = rules.impurity.counts(self.live)
        self.built_counts = rules.impurity.counts(self.built)

    def _look_at_now(self, at: Ints, rows: Ints, local: Ints) -> None:
        """Live counts and best scores of the nodes ``at`` one level; ``local`` is each row's place in ``at``."""
        rows, local = rows[self.alive[rows]], local[self.alive[rows]]
        counts = self.live[at] = self._count(local, rows, len(at))
        wanted = self.rules.may_split(counts, self.tree.depth[at])
        wanted &= self.rules.exceeds(counts, self.rules.alpha, or_equals=True)
        wanted |= self.tree.feature[at] >= 0
        self.live_score[at] = self._search(at, wanted, counts, rows, local)[0]

    def _look_at_build(self, at: Ints, rows: Ints, local: Ints, left: Bools, sampled: Bools) -> None:
        """Statistics of S0 and the best splits of it for the nodes ``at`` one level."""
        counts = self.built[at] = self._count(local, rows, len(at))
        dead = ~self.alive[rows]
        self.gone[at] = self.added(local[dead], rows[dead], len(at))
        left &= self.tree.feature[at][local] >= 0
        on_left = self._count(local[left], rows[left], len(at))  # nothing of a leaf
        self.m0[at] = self.rules.impurity.mass(on_left) + self.rules.impurity.mass(counts - on_left)
        wanted = sampled & self.rules.may_split(counts, self.tree.depth[at])
        wanted &= self.rules.exceeds(counts, self.rules.half_alpha)
        self.replayed[at] = wanted
        found = self._search(at, wanted, counts, rows, local)
        self.built_score[at], self.built_feature[at], self.built_threshold[at], self.built_left[at] = found

    def _count(self, local: Ints, rows: Ints, nodes: int) -> Ints:
        weight = None if self.weight is None else self.weight[rows]
        return self.rules.impurity.count(local, self.labels[rows], nodes, weight)

    def sides(self) -> Ints:
        """Return the side of missing numbers at each node; where BUILD has chosen it and S0 was searched, the best."""
        by_gain = np.where(self.built_left, LEFT, RIGHT)
        return np.where(self.lacking & self.replayed, by_gain, super().sides())

    def _search(self, at: Ints, wanted: Bools, counts: Ints, rows: Ints, local: Ints) -> Best:
        """Best splits of those of the nodes ``at`` one level that are ``wanted``."""
        rows, local = rows[wanted[local]], local[wanted[local]]
        there = np.where(wanted[:, None], counts, 0)
        weight = np.empty(0, np.int64) if self.weight is None else self.weight[rows]
        columns = self._columns if len(rows) else []
        return self.rules.impurity.best(columns, rows, self.labels[rows], weight, local, there)

    @cached_property
    def _columns(self) -> list[RankedColumn]:  # no leaf of one class needs them
        return self.ranked_columns()


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
