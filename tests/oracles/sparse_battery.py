"""The guarantee of approximate best splits, tested on whatever finds them, and mutants that have to fail the test.

A finder is anything with ``add(row, y)``, ``remove(row, y)`` and ``best()``, which gives (feature, score). To test
another one, write an adapter and hand :func:`tallies` or :func:`differences` a callable that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.oracles.sparse_splits import CRITERION, BruteForce, BucketTwin
from tests.sparse_streams import Event

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


class NoLowerChecks(BucketTwin):
    def too_low(self, j: int) -> bool:
        return False


class NoUpperChecks(BucketTwin):
    def too_high(self, j: int) -> bool:
        bucket = self.rule.buckets[self.bucket[j]]
        return bucket.s == bucket.t and super().too_high(j)  # the exact buckets are another mutant's


class NoExactChecks(BucketTwin):
    def checked(self, by: int) -> Iterable[int]:
        buckets = self.rule.buckets
        return [j for j, k in self.bucket.items() if buckets[k].s < buckets[k].t]


class ChecksAfterInsertsOnly(BucketTwin):
    def checked(self, by: int) -> Iterable[int]:
        return super().checked(by) if by > 0 else ()


class StaleKeys(BucketTwin):
    """A key is that of when the feature came into its bucket."""

    def __init__(self, finder: str, alpha: float) -> None:
        super().__init__(finder, alpha)
        self.kept: dict[int, tuple[int, float]] = {}

    def count(self, row: Iterable[int], y: int, by: int) -> None:
        super().count(row, y, by)
        now = {j: self.kept[j] for j, k in self.bucket.items() if self.kept.get(j, (None,))[0] == k}
        self.kept = {j: now.get(j) or (k, super(StaleKeys, self).key(j)) for j, k in self.bucket.items()}

    def key(self, j: int) -> float:
        return self.kept[j][1]


MUTANTS: dict[str, type[BucketTwin]] = {
    "no L checks": NoLowerChecks,
    "no U checks": NoUpperChecks,
    "no exact-bucket checks": NoExactChecks,
    "checks only after inserts": ChecksAfterInsertsOnly,
    "stale key": StaleKeys,
}


def mutants(finder: str) -> list[str]:
    """Those that differ from the twin: ``updgini`` has no exact buckets."""
    return [name for name in MUTANTS if finder == "updent" or name != "no exact-bucket checks"]
