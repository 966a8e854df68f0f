"""The guarantee of approximate best splits, tested on whatever finds them.

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
