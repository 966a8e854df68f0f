"""Approximate best splits on sparse binary features, slow and obvious: what fast versions have to equal bit for bit.

Source: Tatti, "Approximating splits for decision trees quickly in sparse data streams". Where this leaves the paper:
for both criteria a feature is in one bucket, and the intervals of the buckets overlap; rows may be deleted.
:class:`BruteForce` looks at every feature, :class:`BucketTwin` at one of each bucket.

Only plain Python here. Each float64 operation is written as the fast path has to do it: same operands, same order.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import NamedTuple

FINDERS = ("updgini", "updent")
CRITERION = {"updgini": "gini", "updent": "entropy"}
#: Tests of borders are done in float64; so much of an interval of ``updent`` is given away at either end.
RIM = 1e-9
#: No feature has a rho between 0 and this, as no node has so many rows, or units where rows have weights.
LEAST_RHO, LEAST_RHO_OF_UNITS = 2.0**-31, 2.0**-48


class Counts(NamedTuple):
    """The rows of a node by one feature j and by class: ``c01`` have x_j = 0 and class 1."""

    c00: int
    c01: int
    c10: int
    c11: int

    @property
    def n0(self) -> int:
        return self.c00 + self.c01

    @property
    def n1(self) -> int:
        return self.c10 + self.c11


class Best(NamedTuple):
    """A best split; feature -1 where there is none."""

    feature: int
    score: float


def ratio(a: float, b: int) -> float:
    return a / b if b else 0.0


@lru_cache(1 << 16)
def x_log_x(k: float) -> float:
    return k * math.log(k) if k else 0.0


def gini(c: Counts, unit: int = 1) -> float:
    """Conditional Gini index; the node has rows. Counts have ``unit`` units for a row."""
    of_ones, of_zeros = ratio(float(c.c10) * float(c.c11), c.n1), ratio(float(c.c00) * float(c.c01), c.n0)
    return 2.0 * (of_ones + of_zeros) / (c.n0 + c.n1)


def nats(size: int, a: int, b: int, unit: int) -> float:
    """Entropy of a side with so many rows of each class, times its rows."""
    return unit * x_log_x(size / unit) - unit * x_log_x(a / unit) - unit * x_log_x(b / unit)


def entropy(c: Counts, unit: int = 1) -> float:
    """Conditional entropy in nats; the node has rows."""
    return (nats(c.n1, c.c10, c.c11, unit) + nats(c.n0, c.c00, c.c01, unit)) / (c.n0 + c.n1)


SCORES: dict[str, Callable[[Counts, int], float]] = {"gini": gini, "entropy": entropy}


class Node:
    """Counters of the rows of a node: of the node and of each seen feature."""

    def __init__(self, criterion: str, unit: int = 1) -> None:
        self.score, self.unit = partial(SCORES[criterion], unit=unit), unit
        self.n = self.c1 = 0
        self.ones: dict[int, tuple[int, int]] = {}  # feature: rows with it, those of class 1 among them

    def count(self, row: Iterable[int], y: int, by: int) -> None:
        self.n += by
        self.c1 += by * y
        for j in row:
            n1, c11 = self.ones.get(j, (0, 0))
            self.ones[j] = (n1 + by, c11 + by * y)
            if self.ones[j] == (0, 0):
                del self.ones[j]

    def add(self, row: Iterable[int], y: int, mass: int = 1) -> None:
        self.count(row, y, mass)

    def remove(self, row: Iterable[int], y: int, mass: int = 1) -> None:
        self.count(row, y, -mass)

    def counts(self, j: int) -> Counts:
        n1, c11 = self.ones[j]
        c01 = self.c1 - c11
        return Counts(self.n - n1 - c01, c01, n1 - c11, c11)

    def best_of(self, candidates: Iterable[int]) -> Best:
        """Of some features the one of smallest (score, feature)."""
        scores = [(self.score(self.counts(j)), j) for j in candidates]
        if scores:
            score, feature = min(scores)
            return Best(feature, score)
        return Best(-1, self.score(Counts(self.n - self.c1, self.c1, 0, 0)) if self.n else 0.0)


class BruteForce(Node):
    """The best split, by the scores of all features."""

    def scores(self) -> dict[int, float]:
        return {j: self.score(self.counts(j)) for j in self.ones}

    def best(self) -> Best:
        return self.best_of(self.ones)


class Bucket(NamedTuple):
    """Where features of one rho belong: those with s <= rho <= t, in which 1 - rho takes the part of rho if mirrored.

    Their key in T is ``base + A * c10 + B * c11``.
    """

    s: float
    t: float
    A: float
    B: float
    mirrored: bool = False


class GiniBuckets:
    """Buckets of ``updgini``."""

    def __init__(self, alpha: float) -> None:
        beta = alpha / (alpha + 2.0)
        self.scale = 2.0 / beta
        self.K = math.floor(self.scale)
        self.buckets = []
        for k in range(self.K + 1):
            mu = (k / 2 + 0.25) * beta
            A, B = (0.0, -2.0 * (1.0 - mu)) if mu < 0.5 else (-2.0 * mu, 0.0)
            self.buckets.append(Bucket((k / 2 - 0.25) * beta, (k / 2 + 0.75) * beta, A, B))

    def place(self, c: Counts) -> int:
        return min(self.K, math.floor(ratio(c.c01, c.n0) * self.scale))

    def base(self, c: Counts, unit: int) -> float:
        return 2.0 * (float(c.c10) * float(c.c11) / c.n1)


class EntropyBuckets:
    """Buckets of ``updent``: rho = 0, then those of rho <= 1/2, then rho = 1, then those of rho > 1/2."""

    def __init__(self, alpha: float, least_rho: float = LEAST_RHO) -> None:
        def border(place: float) -> float:
            return 2.0 ** -((1.0 + alpha) ** place)

        self.tops: list[float] = []  # bucket k is for rho above tops[k + 1] and up to tops[k]
        while (top := border(len(self.tops) / 2)) >= least_rho:
            self.tops.append(top)
        self.K = len(self.tops) - 1
        lower, upper = [], []
        for k in range(self.K + 1):
            mu = border(k / 2 + 0.75)
            s, t = mu * (1.0 + RIM), border(k / 2 - 0.25) * (1.0 - RIM)
            of_class_0, of_class_1 = math.log1p(-mu), math.log(mu)
            lower.append(Bucket(s, t, of_class_0, of_class_1))
            upper.append(Bucket(s, t, of_class_1, of_class_0, mirrored=True))
        self.buckets = [Bucket(0.0, 0.0, 0.0, 0.0), *lower, Bucket(0.0, 0.0, 0.0, 0.0, mirrored=True), *upper]

    def place(self, c: Counts) -> int:
        if c.c01 == 0:
            return 0
        if c.c00 == 0:
            return self.K + 2
        if 2 * c.c01 <= c.n0:
            return 1 + self.level(c.c01 / c.n0)
        return self.K + 3 + self.level(c.c00 / c.n0)

    def level(self, rho: float) -> int:
        """The largest k with rho <= tops[k]."""
        return bisect_right(self.tops, -rho, key=operator.neg) - 1

    def base(self, c: Counts, unit: int) -> float:
        return nats(c.n1, c.c10, c.c11, unit)


@lru_cache
def buckets_of(finder: str, alpha: float, unit: int = 1) -> GiniBuckets | EntropyBuckets:
    if finder == "updgini":
        return GiniBuckets(alpha)
    return EntropyBuckets(alpha, LEAST_RHO if unit == 1 else LEAST_RHO_OF_UNITS)


class BucketTwin(Node):
    """One bucket for each feature; the candidates are the members of smallest (key, feature).

    For a feature group of its own, give it the rows with the features of that group only.
    """

    def __init__(self, finder: str, alpha: float, unit: int = 1) -> None:
        super().__init__(CRITERION[finder], unit)
        self.rule = buckets_of(finder, alpha, unit)
        self.bucket: dict[int, int] = {}  # of each seen feature
        self.moves = 0  # that violations caused

    def count(self, row: Iterable[int], y: int, by: int) -> None:
        row = list(row)
        super().count(row, y, by)
        for j in row:
            if j in self.ones:
                self.bucket[j] = self.rule.place(self.counts(j))
            else:
                del self.bucket[j]
        for j in [j for j in self.checked(by) if self.too_low(j) or self.too_high(j)]:
            self.bucket[j] = self.rule.place(self.counts(j))
            self.moves += 1

    def checked(self, by: int) -> Iterable[int]:
        """The features whose intervals are tested after an update."""
        return self.bucket

    def terms(self, j: int) -> tuple[Bucket, int, int, int]:
        """Bucket, n1, and a and A1: how many rows of feature and node are of class 1, or of class 0 if mirrored."""
        bucket, (n1, c11) = self.rule.buckets[self.bucket[j]], self.ones[j]
        return (bucket, n1, n1 - c11, self.n - self.c1) if bucket.mirrored else (bucket, n1, c11, self.c1)

    def too_low(self, j: int) -> bool:
        """L: rho is below the interval."""
        bucket, n1, a, A1 = self.terms(j)
        return bucket.s * n1 - a < bucket.s * self.n - A1

    def too_high(self, j: int) -> bool:
        """U: rho is above the interval."""
        bucket, n1, a, A1 = self.terms(j)
        return a - bucket.t * n1 < A1 - bucket.t * self.n

    def key(self, j: int) -> float:
        c, bucket = self.counts(j), self.rule.buckets[self.bucket[j]]
        return self.rule.base(c, self.unit) + bucket.A * c.c10 + bucket.B * c.c11

    def candidates(self) -> list[int]:
        """Of each bucket that has members the one of smallest (key, feature), by bucket."""
        least: dict[int, tuple[float, int]] = {}
        for j, k in self.bucket.items():
            mine = (self.key(j), j)
            least[k] = min(least.get(k, mine), mine)
        return [least[k][1] for k in sorted(least)]

    def best(self) -> Best:
        return self.best_of(self.candidates())
