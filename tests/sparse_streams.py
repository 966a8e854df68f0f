"""Streams of sparse binary rows for the tests of best splits: insertions and deletions, labels 0 and 1.

Every stream but one in five is without a perfect feature: where there is one, the optimum is 0 and no ratio is tested.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from hypothesis import strategies as st

FEATURES = 40
SIZES = (60, 120, 250, 400)
BALANCES = (0.1, 0.5, 0.9)
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
#: Features that are in every row, and in those of class 1 only.
ALWAYS, PERFECT = 0, 1


class Event(NamedTuple):
    """One update; a deletion carries the row that goes."""

    insert: bool
    id: int
    row: tuple[int, ...]
    y: int


def sparse_stream(seed: int) -> list[Event]:
    """A stream of some hundred updates, which depends on ``seed`` only: of the three families in turn."""
    rng = random.Random(seed)
    stream = _Stream(rng, perfect=seed % 5 == 0)
    (_mixed, _eras, _shifts)[seed % 3](stream, rng)
    return stream.events


class _Stream:
    """Events so far, and the examples they leave."""

    def __init__(self, rng: random.Random, perfect: bool) -> None:
        self.rng, self.perfect, self.every_row = rng, perfect, rng.random() < 0.5
        self.live: list[Event] = []
        self.events: list[Event] = []
        self.which = rng.choice(("drawn", "oldest", "newest"))

    def draw(self, y: int, often: list[tuple[float, float]]) -> None:
        """Insert a row of class y, in which feature j is with probability ``often[j][y]``."""
        self.insert(y, {j for j in range(FEATURES) if self.rng.random() < often[j][y]})

    def insert(self, y: int, ones: set[int]) -> None:
        if self.every_row:
            ones = ones | {ALWAYS}
        if self.perfect:
            ones = ones | {PERFECT} if y else ones - {PERFECT}
        self.live.append(Event(True, len(self.events), tuple(sorted(ones)), y))
        self.events.append(self.live[-1])

    def delete(self, place: int) -> None:
        self.events.append(self.live.pop(place)._replace(insert=False))

    def delete_some(self, probability: float) -> None:
        while self.live and self.rng.random() < probability:
            self.delete({"drawn": self.rng.randrange(len(self.live)), "oldest": 0, "newest": -1}[self.which])


def _mixed(stream: _Stream, rng: random.Random) -> None:
    """Rows of one kind from beginning to end: many features that are nearly as good as the best."""
    often = [(rng.choice(SHARES), rng.choice(SHARES)) for _ in range(FEATURES)]
    deletes = rng.choice((0.0, 0.2, 0.4))
    for y in _labels(rng, rng.choice(SIZES)):
        stream.draw(y, often)
        stream.delete_some(deletes)
    while rng.random() < 0.9 and stream.live:
        stream.delete(rng.randrange(len(stream.live)))


def _eras(stream: _Stream, rng: random.Random) -> None:
    """Eras that differ in balance and features, some of which are taken back at once."""
    size, eras, deletes = rng.choice(SIZES), rng.choice((2, 3, 4)), rng.choice((0.0, 0.1, 0.4))
    absent = (rng.random() / 20,) * 2
    for _ in range(eras):
        begin = len(stream.events)
        present = [(rng.choice(SHARES), rng.choice(SHARES)) for _ in range(FEATURES)]
        often = [absent if rng.random() < 0.6 else shares for shares in present]
        for y in _labels(rng, size // eras):
            stream.draw(y, often)
            stream.delete_some(deletes)
        end, kind = rng.choice(("keep", "keep", "earlier", "class", "all")), rng.randrange(2)
        for event in list(stream.live):
            if end == "all" or (end == "earlier" and event.id < begin) or (end == "class" and event.y == kind):
                stream.delete(stream.live.index(event))


def _shifts(stream: _Stream, rng: random.Random) -> None:
    """Rows with common and rare features, to which many rows of one class without features come, or from which they go.

    Among the rows without a feature the share of the class then moves far while no row with it comes: only the tests
    of intervals can tell. Before, that share is the same for all features, so that they begin in one bucket; after,
    the common ones are the best by far.
    """
    tenths = round(10 * rng.choice(BALANCES))
    size, crowd, kind, goes = rng.choice((100, 140)), rng.choice((100, 200)), rng.randrange(2), rng.random() < 0.5
    labels = rng.sample([1, 0], counts=(size // 10 * tenths, size // 10 * (10 - tenths)), k=size)
    of_kind = labels.count(kind)
    share = {kind: 0.9, 1 - kind: 0.9 * (of_kind / (of_kind + crowd) if goes else 1.0)}
    rows: list[set[int]] = [set() for _ in labels]
    for j in range(ALWAYS + 1, FEATURES):
        if j < 4:
            members = [i for y in (0, 1) for i in _some(rng, [i for i in range(size) if labels[i] == y], share[y])]
        else:
            members = rng.sample(range(size), rng.choice((1, 2)))
        for i in members:
            rows[i].add(j)
    for _ in range(crowd * goes):
        stream.insert(kind, set())
    for y, ones in zip(labels, rows, strict=True):
        stream.insert(y, ones)
    for _ in range(crowd):
        if goes:
            stream.delete(0)
        else:
            stream.insert(kind, set())


def _some(rng: random.Random, places: list[int], share: float) -> list[int]:
    return rng.sample(places, round(share * len(places)))


def _labels(rng: random.Random, size: int) -> list[int]:
    """Labels in drawn order, by class, or a few of a class at a time."""
    balance, arrival = rng.choice(BALANCES), rng.choice(("drawn", "drawn", "sorted", "turns"))
    if arrival == "turns":
        return [i // 10 % 2 for i in range(size)]
    labels = [int(rng.random() < balance) for _ in range(size)]
    return sorted(labels, reverse=rng.random() < 0.5) if arrival == "sorted" else labels


@st.composite
def sparse_streams(draw: st.DrawFn, *, features: int = 6, max_events: int = 60) -> list[Event]:
    """Short streams that shrink, of few features and rows, so that ties and empty sides abound."""
    row = st.frozensets(st.integers(0, features - 1), max_size=features).map(lambda ones: tuple(sorted(ones)))
    rows = draw(st.lists(st.tuples(row, st.integers(0, 1)), min_size=1, max_size=max_events))
    picks = draw(st.lists(st.integers(0, 99), min_size=len(rows), max_size=len(rows)))
    live: list[Event] = []
    events = []
    for i, ((ones, y), pick) in enumerate(zip(rows, picks, strict=True)):
        if live and pick % 3 == 0:
            events.append(live.pop(pick // 3 % len(live))._replace(insert=False))
        else:
            live.append(Event(True, i, ones, y))
            events.append(live[-1])
    return events
