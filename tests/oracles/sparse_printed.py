"""UPDENT and UPDGINI as they are printed, Algorithms 1 and 2, on sorted containers, and what deletions add to them.

Source: Tatti, "Approximating splits for decision trees quickly in sparse data streams", sections 4 and 5; symbols are
the paper's. For UPDENT a feature is in a range of trees T_a(j), ..., T_b(j).

Slips: lines 9 (UPDGINI) and 18 (UPDENT) delete empty trees T, U and L. K of rho = 0 and 1 holds 0 log 0: the trees
-inf and inf have the exact n H of the feature's rows as key, and tests on integers. rho of a feature that is in every
row is 0/0: it counts as 0, where its key is exact, and no test moves it.

Deletions: a row that goes changes the counters by -1, and all loops run as after an insertion, since invariant and
tests speak of the state only. Two things that the paper rules out can happen. A feature can come to rho = 0 or 1 from
between: lines 12 to 17 meet it, as it violates every finite interval, and put it into T_-inf or T_inf alone. And the
last row with a feature can go: the feature leaves all trees. What a move costs is then no longer paid for by the
updates before it (a row that comes and goes can move all features each time), so the time is not the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from sortedcontainers import SortedList

from tests.oracles.sparse_splits import Best, Counts, Node

INFINITE = math.inf
Index = float  # of an interval: a whole number or an infinity


class Printed(Node):
    """Search trees by kind and index, each of (key, feature), and where each feature is."""

    def __init__(self, criterion: str, alpha: float) -> None:
        super().__init__(criterion)
        self.alpha = alpha
        self.trees: dict[tuple[str, Index], SortedList] = {}
        self.held: dict[int, list[tuple[str, Index, float]]] = {}  # trees and keys of each feature

    def rho(self, c: Counts) -> float:
        return c.c01 / c.n0 if c.n0 else 0.0

    def drop(self, j: int) -> None:
        """Take a feature out of all its trees, and delete the empty ones (line 9, line 18)."""
        for kind, i, key in self.held.pop(j, ()):
            tree = self.trees[kind, i]
            tree.remove((key, j))
            if not tree:
                del self.trees[kind, i]

    def hold(self, j: int, places: Iterable[tuple[str, Index, float]]) -> None:
        self.drop(j)
        self.held[j] = list(places)
        for kind, i, key in self.held[j]:
            self.trees.setdefault((kind, i), SortedList()).add((key, j))

    def indices(self, kind: str) -> list[Index]:
        return sorted(i for of_kind, i in self.trees if of_kind == kind)

    def best(self) -> Best:
        return self.best_of([self.trees["T", i][0][1] for i in self.indices("T")])


class PrintedUPDENT(Printed):
    """Algorithm 1."""

    def __init__(self, alpha: float) -> None:
        super().__init__("entropy", alpha)
        self.a: dict[int, Index] = {}
        self.b: dict[int, Index] = {}

    # ------------------------------------------------------------------ intervals B_i, centroids, keys

    def s(self, i: Index) -> float:
        return 2.0 ** -((1 + self.alpha) ** -i) if i < 0 else 1 - self.t(-i)

    def t(self, i: Index) -> float:
        return 2.0 ** -((1 + self.alpha) ** (-i - 1)) if i < 0 else 1 - self.s(-i)

    def ind(self, c: Counts) -> Index:
        """The index of an interval that has rho."""
        if c.c01 == 0:
            return -INFINITE
        if c.c00 == 0:
            return INFINITE
        rho = self.rho(c)
        if rho == 0.5:
            return 1
        side, part = (-1, rho) if rho < 0.5 else (1, 1 - rho)
        return side * max(1, math.ceil(math.log(-math.log2(part), 1 + self.alpha)))

    def K(self, c: Counts, i: Index) -> float:
        mu = 0.0 if math.isinf(i) else self.s(i) if i < 0 else self.t(i)
        log_0, log_1 = (0.0, 0.0) if math.isinf(i) else (math.log(1 - mu), math.log(mu))

        def term(count: int, log_of_theta: float) -> float:
            return -count * (math.log(count / c.n1) - log_of_theta) if count else 0.0

        return term(c.c10, log_0) + term(c.c11, log_1)

    def put(self, j: int, a: Index, b: Index) -> None:
        """Set a(j) and b(j), and update the trees."""
        c = self.counts(j)
        self.a[j], self.b[j] = a, b
        self.hold(j, self.places(c, a, b))

    def places(self, c: Counts, a: Index, b: Index) -> Iterator[tuple[str, Index, float]]:
        for i in [a] if math.isinf(a) else [i for i in range(int(a), int(b) + 1) if i]:
            yield "T", i, self.K(c, i)
        yield "L", a, 0.0 if math.isinf(a) else self.s(a) * c.n1 - c.c11
        yield "U", b, 0.0 if math.isinf(b) else self.t(b) * c.n1 - c.c11

    # ------------------------------------------------------------------ the algorithm

    def count(self, row: Iterable[int], y: int, by: int) -> None:
        row = list(row)
        super().count(row, y, by)  # lines 1 and 3
        for j in row:  # line 2
            if j in self.ones:
                self.put_alone(j)
            else:
                self.drop(j)
                del self.a[j], self.b[j]
        for _, j in list(self.trees.get(("U", -INFINITE), ())):  # line 6
            if self.counts(j).c01 > 0:
                self.put_alone(j)
        for _, j in list(self.trees.get(("L", INFINITE), ())):  # line 9
            if self.counts(j).c00 > 0:
                self.put_alone(j)
        for j in [j for i in reversed(self.indices("L")) for _, j in self.trees["L", i]]:  # line 12
            while math.isfinite(self.a[j]) and self.too_low(j):
                self.lower(j)
        for j in [j for i in self.indices("U") for _, j in self.trees["U", i]]:  # line 15
            while math.isfinite(self.b[j]) and self.too_high(j):
                self.raise_(j)

    def put_alone(self, j: int) -> None:
        i = self.ind(self.counts(j))
        self.put(j, i, i)

    def too_low(self, j: int) -> bool:
        (n1, c11), s = self.ones[j], self.s(self.a[j])
        return s * n1 - c11 < s * self.n - self.c1

    def too_high(self, j: int) -> bool:
        (n1, c11), t = self.ones[j], self.t(self.b[j])
        return t * n1 - c11 > t * self.n - self.c1

    def lower(self, j: int) -> None:
        """Line 14, past the index 0, which has no interval."""
        if self.counts(j).c01 == 0:
            self.put_alone(j)
        else:
            self.put(j, self.a[j] - 1 or -1, self.b[j])

    def raise_(self, j: int) -> None:
        """Line 17."""
        if self.counts(j).c00 == 0:
            self.put_alone(j)
        else:
            self.put(j, self.a[j], self.b[j] + 1 or 1)


class PrintedUPDGINI(Printed):
    """Algorithm 2."""

    def __init__(self, alpha: float) -> None:
        super().__init__("gini", alpha)
        self.beta = alpha / (alpha + 2)

    def count(self, row: Iterable[int], y: int, by: int) -> None:
        row = list(row)
        super().count(row, y, by)  # lines 1 and 3
        for j in row:  # line 2
            if j in self.ones:
                self.move(j)
            else:
                self.drop(j)
        for i in self.indices("L"):  # line 6
            while ("L", i) in self.trees and self.trees["L", i][0][0] < self.s(i) * self.n - self.c1:
                self.move(self.trees["L", i][0][1])
        for i in self.indices("U"):
            while ("U", i) in self.trees and self.trees["U", i][-1][0] > self.t(i) * self.n - self.c1:
                self.move(self.trees["U", i][-1][1])

    def s(self, i: Index) -> float:
        return (i / 2 - 1 / 4) * self.beta

    def t(self, i: Index) -> float:
        return (i / 2 + 3 / 4) * self.beta

    def move(self, j: int) -> None:
        c = self.counts(j)
        i = math.floor(2 * self.rho(c) * (self.alpha + 2) / self.alpha)
        mu = (i / 2 + 1 / 4) * self.beta
        K = 2 * c.c10 * (c.c11 / c.n1) - (2 * c.c10 * mu if mu >= 1 / 2 else 2 * c.c11 * (1 - mu))
        self.hold(j, [("T", i, K), ("L", i, self.s(i) * c.n1 - c.c11), ("U", i, self.t(i) * c.n1 - c.c11)])
