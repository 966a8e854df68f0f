"""Finders of sparse splits and the sparse tree in plain loops, and streams that are hard for them."""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple, Protocol

from tests.oracles.fudyadt import UNDECIDED, Example, FudyadtTwin, Node, Split
from tests.sparse_streams import Event

# -- sparse splits ---------------------------------------------------------------------------------------------------
# Approximate best splits on sparse binary features, slow and obvious: what fast versions have to equal bit for bit.
#
# Source: Tatti, "Approximating splits for decision trees quickly in sparse data streams". Where this leaves the
# paper: for both criteria a feature is in one bucket, and the intervals of the buckets overlap; rows may be deleted.
# :class:`BruteForce` looks at every feature, :class:`BucketTwin` at one of each bucket.
#
# Only plain Python here. Each float64 operation is written as the fast path has to do it: same operands, same order.

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


class SplitsNode:
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


class BruteForce(SplitsNode):
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


class BucketTwin(SplitsNode):
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


# -- sparse tree -----------------------------------------------------------------------------------------------------
# The sparse fully dynamic tree, slow and obvious: what the fast one has to equal bit for bit.
#
# It is ``tests.oracles.fudyadt`` with other tests: after every update each node of the path asks its finders (one for
# each feature group, ``BucketTwin``) whether its split, or its being a leaf, is still good enough. BUILD looks at
# every split. All features are columns of ``x``: first the dense ones, then the sparse ones, which are 0.0 or 1.0.


@dataclass
class WatchedNode(Node):
    """A node with its rows by class, in units where rows have weights, and a finder for each feature group.

    It has none at the largest depth.
    """

    n: int = 0
    c1: int = 0
    finders: list[BucketTwin] = field(default_factory=list)


class SparseTreeTwin(FudyadtTwin):
    """The tree and its examples.

    ``dense`` has one entry per dense feature, True for a category; ``group_of`` gives the feature group of each of the
    ``sparse`` features.
    """

    def __init__(
        self,
        dense: Sequence[bool],
        sparse: int,
        group_of: Callable[[int], int],
        *,
        finder: str,
        finder_alpha: float,
        alpha: float,
        beta: float,
        epsilon: float = 0.0,
        max_depth: int | None = None,
        min_samples_split: int = 2,
    ) -> None:
        super().__init__(
            [*dense, *[False] * sparse],
            epsilon=epsilon,
            alpha=alpha,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
        )
        self.dense, self.alpha, self.beta = len(dense), alpha, beta
        self.finder, self.finder_alpha = finder, finder_alpha
        self.fixed_unit = 1  # what rows count: 1, or 2**16 where they have weights
        self.scores = SCORES[CRITERION[finder]]
        self.group_of = [group_of(j) for j in range(sparse)]
        self.groups = sorted(set(self.group_of))
        self.n_classes = 2
        self.root = self.build([], 0, -1)

    def score(self, counts: Counts) -> float:
        return self.scores(counts, self.fixed_unit)

    def mass(self, e: Example) -> int:
        """What an example counts."""
        return int(e.w * self.fixed_unit)

    def impurity(self, v: WatchedNode) -> float:
        return self.score(Counts(v.n - v.c1, v.c1, 0, 0))

    def ones(self, x: Sequence[float], group: int) -> list[int]:
        """The sparse features of one group that are 1."""
        return [j for j, g in enumerate(self.group_of) if g == group and x[self.dense + j] == 1.0]

    # ------------------------------------------------------------------ an update

    def update(self, example: Example, insert: bool, time: int) -> None:
        path = self.path(example.x)
        if not example.w:
            return
        if insert:
            self.decide(path, example.x)
            path[-1].examples.append(example)
        else:
            path[-1].examples.remove(example)
        by = self.mass(example) if insert else -self.mass(example)
        for v in path:
            assert isinstance(v, WatchedNode)
            v.c += example.w
            v.n, v.c1 = v.n + by, v.c1 + by * example.y
            for group, finder in zip(self.groups, v.finders, strict=False):
                finder.count(self.ones(example.x, group), example.y, by)
        for v in path:
            if self.must_be_rebuilt(v):
                self.rebuild(path, self.cascade(path, path.index(v)), time)
                return

    def must_be_rebuilt(self, v: Node) -> bool:
        assert isinstance(v, WatchedNode)
        if self.dense and (v.c > self.epsilon * v.s or self.passes_size(v)):
            return True
        too_small = v.n < self.min_samples_split * self.fixed_unit or v.c1 in (0, v.n)
        candidates = [finder.best() for finder in v.finders]
        scores = [candidate.score for candidate in candidates if candidate.feature >= 0]
        if v.is_leaf:
            if too_small or not v.finders or self.impurity(v) < self.alpha:
                return False
            mine = self.impurity(v)
        else:
            if too_small:
                return True
            mine = self.split_score(v)
        return any(mine > score + self.beta for score in scores)

    def split_score(self, v: WatchedNode) -> float:
        assert isinstance(v.right, WatchedNode)
        n1, c11 = v.right.n, v.right.c1
        return self.score(Counts(v.n - n1 - v.c1 + c11, v.c1 - c11, n1 - c11, c11))

    # ------------------------------------------------------------------ BUILD

    def build(self, examples: list[Example], depth: int, time: int) -> Node:
        n, c1 = sum(map(self.mass, examples)), sum(self.mass(e) * e.y for e in examples)
        node = WatchedNode(s=self.size(examples), built=time, n=n, c1=c1)
        if depth != self.max_depth:
            node.finders = [self.finder_of(examples, group) for group in self.groups]
        split = None
        large = node.n >= self.min_samples_split * self.fixed_unit and 0 < node.c1 < node.n
        if large and depth != self.max_depth and self.impurity(node) > self.alpha / 2:
            split = self.best_of(node, examples)
        if split is None:
            node.examples = examples
            return node
        node.feature, node.threshold, node.missing = split
        sides: list[list[Example]] = [[], []]
        for e in examples:
            sides[self.goes_left(node, e.x)].append(e)
        node.left, node.right = (self.build(sides[left], depth + 1, time) for left in (True, False))
        return node

    def finder_of(self, examples: list[Example], group: int) -> BucketTwin:
        """A finder whose features are each in the bucket where they are now."""
        finder = BucketTwin(self.finder, self.finder_alpha, self.fixed_unit)
        finder.n, finder.c1 = sum(map(self.mass, examples)), sum(self.mass(e) * e.y for e in examples)
        for e in examples:
            for j in self.ones(e.x, group):
                n1, c11 = finder.ones.get(j, (0, 0))
                finder.ones[j] = (n1 + self.mass(e), c11 + self.mass(e) * e.y)
        finder.bucket = {j: finder.rule.place(finder.counts(j)) for j in finder.ones}
        return finder

    def best_of(self, node: WatchedNode, examples: list[Example]) -> Split | None:
        """The split of the smallest (score, feature, side, threshold), unless it does not tell the classes apart."""
        best = None
        for split in self.splits(examples):
            right = [e for e in examples if not self.is_left(split, e.x)]
            n1, c11 = sum(map(self.mass, right)), sum(self.mass(e) * e.y for e in right)
            s = self.score(Counts(node.n - n1 - node.c1 + c11, node.c1 - c11, n1 - c11, c11))
            if best is None or s < best[0]:
                best = s, split, c11 * node.n == n1 * node.c1
        return None if best is None or best[2] else best[1]

    def splits(self, examples: list[Example]) -> Iterator[Split]:
        """By feature, then threshold; of sparse features those that are 1 somewhere, though it be everywhere."""
        for j in range(self.dense):
            yield from self.candidates_of(j, examples)
        for j in range(self.dense, len(self.categorical)):
            if any(e.x[j] == 1.0 for e in examples):
                yield j, 0.5, UNDECIDED


# -- sparse battery --------------------------------------------------------------------------------------------------
# The guarantee of approximate best splits, tested on whatever finds them.
#
# A finder is anything with ``add(row, y)``, ``remove(row, y)`` and ``best()``, which gives (feature, score). To test
# another one, write an adapter and hand :func:`tallies` or :func:`differences` a callable that makes it.

#: What rounding may add to a score, relative to it; an optimum of 0 has to be found exactly.
ROUNDING = 1e-12


class Finder(Protocol):
    def add(self, row: Sequence[int], y: int) -> None: ...
    def remove(self, row: Sequence[int], y: int) -> None: ...
    def best(self) -> tuple[int, float]: ...


class ReportsBuckets(Finder, Protocol):
    @property
    def bucket(self) -> Mapping[int, int]: ...


@dataclass
class Tally:
    """Answers after each update against the optimum. ``nonzero`` optima are those of which a ratio can be taken."""

    states: int = 0
    nonzero: int = 0
    suboptimal: int = 0
    violations: int = 0
    misreported: int = 0  # the score is not that of the feature
    worst: float = 1.0

    def take(self, alpha: float, answer: tuple[int, float], scores: Mapping[int, float], without: float) -> None:
        """``without`` is the score where there is no feature."""
        feature, score = answer
        optimum = min(scores.values(), default=without)
        self.states += 1
        self.nonzero += optimum > 0.0
        self.misreported += (feature in scores) != bool(scores) or score != scores.get(feature, without)
        self.suboptimal += score > optimum
        self.violations += not score <= (1.0 + alpha) * optimum * (1.0 + ROUNDING)
        if optimum > 0.0:
            self.worst = max(self.worst, score / optimum)


def apply(finder: Finder, event: Event) -> None:
    (finder.add if event.insert else finder.remove)(event.row, event.y)


def tallies(
    finder: str, alpha: float, makes: Mapping[str, Callable[[], Finder]], streams: Iterable[Sequence[Event]]
) -> dict[str, Tally]:
    """Each of some makes over the same streams; ``finder`` says which criterion is theirs."""
    totals = {name: Tally() for name in makes}
    for stream in streams:
        exact, found = BruteForce(CRITERION[finder]), {name: make() for name, make in makes.items()}
        for event in stream:
            apply(exact, event)
            scores, without = exact.scores(), exact.best_of(()).score
            for name, one in found.items():
                apply(one, event)
                totals[name].take(alpha, one.best(), scores, without)
    return totals


def differences(
    finder: str, alpha: float, make: Callable[[], Finder | ReportsBuckets], streams: Iterable[Sequence[Event]]
) -> list[str]:
    """Where answers, and buckets if it has them (``bucket``), are not those of the twin; the first of each stream."""
    found = []
    for number, stream in enumerate(streams):
        one, twin = make(), BucketTwin(finder, alpha)
        for at, event in enumerate(stream):
            apply(one, event)
            apply(twin, event)
            mine, theirs = tuple(one.best()), tuple(twin.best())
            if mine != theirs:
                found.append(f"stream {number}, update {at}: best {mine}, twin {theirs}")
                break
            buckets = dict(getattr(one, "bucket", twin.bucket))
            if buckets != twin.bucket:
                moved = {j for j in buckets.keys() | twin.bucket.keys() if buckets.get(j) != twin.bucket.get(j)}
                found.append(f"stream {number}, update {at}: other buckets for {sorted(moved)}")
                break
    return found
