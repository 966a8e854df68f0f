"""Impurities of sets of examples, and the best dense splits of these sets, for audits.

An impurity says what it counts of the examples at a node, its *statistics*: int64, shape (nodes, columns). Splits are
compared by n^2 times their gain, computed from the statistics of both sides as the fast path rounds it; ties go to the
smaller feature, to missing numbers on the right, to the smaller threshold. Nothing of the fast path is imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeAlias

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.audits.recorded_tree import RoutedHistory, each
from raydt.examples.updates import UNIT

#: Score and threshold of the best split on one feature at each node, and whether missing numbers go left.
OnFeature: TypeAlias = tuple[Floats, Floats, Bools]
#: Score, feature and threshold of the best split at each node, and whether missing numbers go left.
Best: TypeAlias = tuple[Floats, Ints, Floats, Bools]
#: Ascending pairs of node and value; what each example adds to the size of its node (None: 1), and to each sum.
Ordered: TypeAlias = tuple[Ints, Ints | None, Iterable[AnyArray]]


class Gini:
    """The Gini index; statistics are class counts."""

    square = 1  #: Masses and gains are so many times those that alpha and beta are given in.
    step = 2.0  #: Mass that one edit adds or takes at most.

    def __init__(self, classes: int) -> None:
        self.width = classes
        #: Statistics whose differences between the sides make the score, and how many have the square of each: of two
        #: classes, the difference is the same but for its sign.
        self.scored, self.alike = slice(1 if classes == 2 else classes), 2 if classes == 2 else 1

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

    def sizes(self, statistics: Ints) -> Ints:
        """Return the examples at each node."""
        sizes: Ints = self.counts(statistics).sum(axis=1)
        return sizes

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

    def in_rows(self, sizes: Ints) -> Ints | Floats:
        """Return sizes in rows of weight 1."""
        return sizes

    def squares(self, sizes: list[int]) -> list[int]:
        """Return squares of sizes."""
        return [n * n for n in sizes]

    def split_scores(self, left: Ints, statistics: Ints) -> Floats:
        """Return the score of each node's split from the statistics of its left side; -1 where a side is empty."""
        sums = zip(left.T[self.scored], statistics.T[self.scored], strict=True)
        return self.scores(sums, self.sizes(left), self.sizes(statistics))

    def scores(self, sums: Iterable[tuple[Ints, Ints]], n_left: Ints, n: Ints) -> Floats:
        """Return the scores of p splits: the sum of D^2 over float(n_left n_right); -1 where a side is empty.

        ``sums`` are, for each scored statistic, that of the left side and that of both, shape (p,) each.
        """
        total, parts = np.zeros(len(n)), (n_left > 0) & (n_left < n)
        for left, whole in sums:
            D = self.difference(left, whole, n_left, n)
            total += D * D
        total *= self.alike
        sides = n_left.astype(np.float64) * (n - n_left)
        return np.where(parts, total / np.where(parts, sides, 1.0), -1.0)

    def difference(self, left: Ints, whole: Ints, n_left: Ints, n: Ints) -> Floats:
        """Return D, how a statistic differs between the sides: float(left n - n_left whole), which does not wrap."""
        return (left * n - n_left * whole).astype(np.float64)

    def in_order(self, pair: Ints, labels: Ints, weight: Ints | None) -> Ordered:
        """Return the examples in the order of their ``pair`` of node and value."""
        bits = (self.width - 1).bit_length()
        key = pair << bits | labels
        key.sort()
        label = key & ((1 << bits) - 1)
        return key >> bits, None, (label == k for k in range(self.scored.stop))


class WeightedGini(Gini):
    """The Gini index by sums of weights in units, whose products are rounded to float64 as in the fast path."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.scored, self.alike = slice(classes), 1

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

    def in_rows(self, sizes: Ints) -> Floats:
        """Over the unit."""
        rows: Floats = sizes / UNIT
        return rows

    def squares(self, sizes: list[int]) -> list[int]:
        """Rounded to float64."""
        return [int(float(n) * float(n)) for n in sizes]

    def difference(self, left: Ints, whole: Ints, n_left: Ints, n: Ints) -> Floats:
        """Of products of float64."""
        difference: Floats = left.astype(np.float64) * (n - n_left) - n_left.astype(np.float64) * (whole - left)
        return difference

    def in_order(self, pair: Ints, labels: Ints, weight: Ints | None) -> Ordered:
        """With the weights of each class."""
        assert weight is not None
        order = np.argsort(pair)
        labels, weight = labels[order], weight[order]
        return pair[order], weight, (np.where(labels == k, weight, 0) for k in range(self.width))


class Variance(Gini):
    """The variance, by number, sum and sum of squares of labels in units, the power of two, of a range."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(3)
        self.scored = slice(1, 2)
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

    def in_order(self, pair: Ints, labels: Ints, weight: Ints | None) -> Ordered:
        """With their labels; products in :meth:`difference` may wrap, but not their difference."""
        order = np.argsort(pair)
        return pair[order], None, [labels[order]]


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

    def in_rows(self, sizes: Ints) -> Floats:
        """Over the unit."""
        rows: Floats = sizes / UNIT
        return rows

    def difference(self, left: Ints, whole: Ints, n_left: Ints, n: Ints) -> Floats:
        """Rounded once."""
        return rounded_difference(left, n, n_left, whole)

    def in_order(self, pair: Ints, labels: Ints, weight: Ints | None) -> Ordered:
        """With the products of weight and label."""
        assert weight is not None
        order = np.argsort(pair)
        weight = weight[order]
        return pair[order], weight, [weight * labels[order]]


def rounded_difference(a: Ints, b: Ints, c: Ints, d: Ints) -> Floats:
    """a b - c d, rounded once, of a and d up to 2**56, b and c up to 2**40: by their digits to the base 2**22."""
    digits = np.zeros((5, len(a)), np.int64)
    for x, y, sign in ((a, b, 1), (c, d, -1)):
        for i in range(3):
            for j in range(3):
                digits[i + j] += sign * (x >> 22 * i & 0x3FFFFF) * (y >> 22 * j & 0x3FFFFF)
    for k in range(4):  # all but the last are from 0 to below the base
        digits[k + 1] += digits[k] >> 22
        digits[k] &= 0x3FFFFF
    low, high = digits[1] << 22 | digits[0], (digits[4] << 44) + (digits[3] << 22) + digits[2]
    rounded: Floats = np.ldexp(high.astype(np.float64), 44) + low  # both are exact: up to 2**52, and below 2**44
    return rounded


@dataclass(frozen=True)
class RankedColumn:
    """One feature: its distinct values, and the place of each row's value among them; the last one may be NaN."""

    values: Floats
    code: Int32s
    categorical: bool

    @classmethod
    def of(cls, x: Floats, categorical: bool) -> RankedColumn:
        """Rank the values of all rows. O(rows log rows)."""
        values, code = np.unique(x, return_inverse=True)
        return cls(values, code.astype(np.int32), categorical)

    def best_splits(
        self, impurity: Gini, rows: Ints, labels: Ints, weight: Ints | None, node: Ints, statistics: Ints
    ) -> OnFeature:
        """Return the best split on this feature at each of m nodes; score -1 where none is.

        Examples have row, label, weight (None: 1), and node in 0..m-1, shape (r,). Missing numbers are searched as the
        greatest ones and, if there are any, as the least. O(r log r + r K).
        """
        examples = impurity, rows, labels, weight, node, statistics
        score, threshold = self._search(*examples)
        left = np.zeros(len(score), np.bool_)
        if not self.categorical and len(self.values) and np.isnan(self.values[-1]):
            turned = RankedColumn(np.roll(self.values, 1), (self.code + 1) % np.int32(len(self.values)), False)
            other, at = turned._search(*examples)
            left = other > score
            score, threshold = np.where(left, other, score), np.where(left, at, threshold)
        return score, threshold, left

    def _search(
        self, impurity: Gini, rows: Ints, labels: Ints, weight: Ints | None, node: Ints, statistics: Ints
    ) -> tuple[Floats, Floats]:
        """Return score and threshold of the best split at each node, of running sums over its examples in order."""
        score_of, threshold_of = np.full(len(statistics), -1.0), np.zeros(len(statistics))
        if len(rows) == 0:
            return score_of, threshold_of
        bits = len(self.values).bit_length()
        pair, masses, addends = impurity.in_order(node << bits | self.code[rows], labels, weight)
        ends = np.flatnonzero(np.append(pair[1:] != pair[:-1], True))  # last row of each value at each node
        v, code = pair[ends] >> bits, pair[ends] & ((1 << bits) - 1)
        starts = np.flatnonzero(np.insert(v[1:] != v[:-1], 0, True))  # first value of each node

        def on_the_left(running: Ints, per_node: Ints) -> Ints:
            if self.categorical:
                return np.diff(running, prepend=0)
            left: Ints = running - (np.cumsum(per_node) - per_node)[v]
            return left

        sizes = impurity.sizes(statistics)
        n, n_left = sizes[v], on_the_left(ends + 1 if masses is None else np.cumsum(masses)[ends], sizes)
        of_nodes = zip(addends, statistics.T[impurity.scored], strict=True)
        sums = ((on_the_left(np.cumsum(added)[ends], whole), whole[v]) for added, whole in of_nodes)
        score = impurity.scores(sums, n_left, n)
        score_of[v[starts]] = np.maximum.reduceat(score, starts)
        best = np.flatnonzero((n_left < n) & (score == score_of[v]))
        best = best[np.unique(v[best], return_index=True)[1]]  # of several, the one of the smallest threshold
        a = self.values[code[best]]
        if not self.categorical and len(best):
            b = self.values[code[best + 1]]
            t = 0.5 * a + 0.5 * b
            a = np.where(np.isnan(b), np.inf, np.where((a <= t) & (t < b), t, a))
        threshold_of[v[best]] = a
        return score_of, threshold_of


def ranked_columns(truth: RoutedHistory) -> list[RankedColumn]:
    """Return the dense features of a history. O(examples x features x log)."""
    columns = zip(truth.X.T, truth.categorical.tolist(), strict=True)
    return each([partial(RankedColumn.of, x, categorical) for x, categorical in columns], len(truth.y))


def best_splits(
    columns: list[RankedColumn],
    impurity: Gini,
    rows: Ints,
    labels: Ints,
    weight: Ints | None,
    node: Ints,
    statistics: Ints,
) -> Best:
    """Return each node's best split on all features; examples are as in :meth:`RankedColumn.best_splits`."""
    nodes = len(statistics)
    score, feature, threshold = np.full(nodes, -1.0), np.full(nodes, -1), np.zeros(nodes)
    missing_left = np.zeros(nodes, np.bool_)
    tasks = [partial(column.best_splits, impurity, rows, labels, weight, node, statistics) for column in columns]
    for j, (s, t, left) in enumerate(each(tasks, len(rows))):
        better = s > score
        score[better], feature[better], threshold[better] = s[better], j, t[better]
        missing_left[better] = left[better]
    return score, feature, threshold, missing_left
