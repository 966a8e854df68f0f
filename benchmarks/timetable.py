"""Timetables: the steps and meetings of a piece of work, their fitted seconds, and its time on any number of shards.

A step is what a shard computes between two places at which it waits; its *kind* are these two places. All shards make
the same steps and meetings, and as the model is the same bit for bit on any number of shards, so is the sequence: it is
recorded once. What the shards meet over a block of rows, they do once for each block (``blocks_of``).

From measured runs follow, by least squares of relative errors with no coefficient below 0, for each kind of step its
mean seconds and the bytes of the meeting that comes after it, as sums of :data:`TERMS`; for each way of meeting its
seconds by rounds, blocks and bytes; for the coordinator its seconds after each request. How much the steps of shards
differ is drawn from the measured ratios, by a seed.

:func:`replay` then goes through the timetable for S shards, with virtual time of each, as ``tests.simulation.clock``
does event by event for the real ones.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from raydt.exchange.meetings import skips_of
from tests.simulation.clock import Wire

Floats = npt.NDArray[np.float64]


class Size(NamedTuple):
    """What the time of a step depends on."""

    rows: int
    features: int
    shards: int

    @property
    def each(self) -> float:
        """Rows of a shard."""
        return self.rows / self.shards


#: What seconds and bytes are sums of; the first two are what shards divide.
TERMS: dict[str, Callable[[Size], float]] = {
    "rows x features / shards": lambda s: s.each * s.features,
    "rows / shards": lambda s: s.each,
    "rows": lambda s: s.rows,
    "features": lambda s: s.features,
    "features / shards": lambda s: s.features / s.shards,
    "features x shards": lambda s: s.features * s.shards,
    "shards": lambda s: s.shards,
    "1": lambda s: 1.0,
}
DIVIDED = 2
#: What the steps of shards differ by is that of a run of so many shards or more: where the steps of a kind are longest.
MANY = 8


class Stop(NamedTuple):
    """A step, and how the shard meets the others after it ("": not at all, its request is done)."""

    kind: str
    way: str


class Asked(NamedTuple):
    """A request: what the shards do, and whether nobody waits for the reply."""

    method: str
    told: bool
    stops: tuple[Stop, ...]


@dataclass
class Run:
    """What one measured run of a timed piece of work has shown.

    Attributes
    ----------
    asked : list of Asked
        The timetable.
    values : dict
        Mean seconds ("s", kind) and bytes ("b", kind) of a step, of requests ("asked", method) and replies ("replied",
        method); seconds of the coordinator ("lead", kind) and ("reply", "").
    ways : dict
        By way of meeting: rounds, blocks, bytes and seconds, summed up over all shards.
    ratios : dict
        By kind: of each shard's step, its seconds in those of the mean one.
    path : float
        Seconds of the slowest shard of each step and of the coordinator, without waits.
    """

    size: Size
    asked: list[Asked]
    values: dict[tuple[str, str], float]
    ways: dict[str, Floats]
    ratios: dict[str, Floats]
    path: float
    seconds: float
    digest: str


# -- how a meeting goes ------------------------------------------------------------------------------------------------


class Round(NamedTuple):
    """A round of a meeting: places to the receiver, blocks that are sent, and their share in the bytes of all parts."""

    way: int
    blocks: int
    share: float


def rounds_of(way: str, shards: int) -> list[Round]:
    """Return the rounds of a meeting; the bytes are those of all parts of a shard or, told to all, of the one part."""
    skips = skips_of(shards)
    if way == "gather":
        return [Round(-skip, former - skip, float(former - skip)) for skip, former in reversed(skips)]
    if way == "reduce":
        return [Round(skip, former - skip, (former - skip) / shards) for skip, former in skips]
    made, found = [1] * shards, []  # parts that lie in each block
    for skip, former in skips:
        sent = made[skip:former]
        found.append(Round(skip, sum(sent), sum(sent) / shards))
        made = [a + b for a, b in zip(made, sent + [0] * skip, strict=False)][:skip]
    return found


# -- fits --------------------------------------------------------------------------------------------------------------


class Fit(NamedTuple):
    """Coefficients of terms, and the relative errors of what they were fitted to."""

    coefficients: Floats
    errors: Floats


def fit(terms: Sequence[Sequence[float]], values: Sequence[float], least: float = 0.0) -> Fit:
    """Fit by least squares of relative errors, no coefficient below 0; values below ``least`` count as much as that.

    A term that is 0 throughout has no part in it.
    """
    A, b = np.array(terms, dtype=float), np.array(values, dtype=float)
    weights = 1 / np.maximum(b, max(least, 1e-12))
    scaled = A * weights[:, None]
    widths = np.maximum(np.abs(scaled).max(axis=0), 1e-300)
    found, _ = nnls(scaled / widths, b * weights)
    coefficients = found / widths
    return Fit(coefficients, (A @ coefficients - b) * weights)


def terms_of(size: Size) -> Floats:
    return np.array([term(size) for term in TERMS.values()])


@dataclass(frozen=True)
class Table:
    """A timetable with fitted seconds; ``blocks`` says how many blocks there are of so many rows."""

    runs: Sequence[Run]
    fits: Mapping[tuple[bool, str, str], Fit]  #: By whether it is of one shard alone, and as :attr:`Run.values`.
    ways: Mapping[str, Fit]
    ratios: Mapping[str, Floats]
    blocks: Callable[[int], int] = lambda rows: 1

    @classmethod
    def of(
        cls, runs: Sequence[Run], blocks: Callable[[int], int], made_of: Callable[[str, str], Collection[str]]
    ) -> Table:
        """Fit what measured runs have shown. One shard alone works otherwise, and has fits of its own.

        ``made_of`` says of which terms a value may be a sum, by its key in :attr:`Run.values`: what a step never looks
        at must not be found in the noise, for at a thousand times as many rows it would be all.
        """
        fits: dict[tuple[bool, str, str], Fit] = {}
        for alone in (True, False):
            some = [run for run in runs if (run.size.shards == 1) == alone]
            for key in dict.fromkeys(key for run in some for key in run.values):
                known = [run for run in some if key in run.values]
                values = [run.values[key] for run in known]
                may = np.array([name in made_of(*key) for name in TERMS])
                fits[(alone, *key)] = fit([terms_of(run.size) * may for run in known], values, 0.01 * max(values))
        ways: dict[str, Fit] = {}
        for way in sorted({way for run in runs for way in run.ways}):
            rows = np.array([run.ways[way] for run in runs if way in run.ways])
            ways[way] = fit(rows[:, :-1], rows[:, -1])
        ratios: dict[str, tuple[float, Floats]] = {}
        for run in (run for run in runs if run.size.shards >= MANY):
            for kind, found in run.ratios.items():
                mean = run.values["s", kind]
                if kind not in ratios or mean > ratios[kind][0]:
                    ratios[kind] = mean, found
        return cls(runs, fits, ways, {kind: found for kind, (_, found) in ratios.items()}, blocks)

    def value(self, size: Size, what: str, kind: str) -> float:
        """Seconds or bytes of a kind."""
        found = self.fits.get((size.shards == 1, what, kind))
        return 0.0 if found is None else float(found.coefficients @ terms_of(size))

    def parts(self, size: Size, kind: str) -> Floats:
        """Seconds of a kind of step, by term."""
        found = self.fits.get((size.shards == 1, "s", kind))
        return np.zeros(len(TERMS)) if found is None else found.coefficients * terms_of(size)

    def asked(self, size: Size) -> list[tuple[str, bool, list[tuple[Stop, int]]]]:
        """Return method, whether told, and stops of each request of a piece of work, a stop with its repetitions.

        As recorded with most rows, if possible of as many features. Stops at which parts are dealt, as many as there
        are blocks but one, are repeated for the blocks that there are.
        """
        some = [run for run in self.runs if (run.size.shards == 1) == (size.shards == 1)]
        recorded = max(some, key=lambda run: (run.size.features == size.features, run.size.rows))
        before, more = self.blocks(recorded.size.rows), self.blocks(size.rows) - self.blocks(recorded.size.rows)
        found = []
        for asked in recorded.asked:
            stops = [(stop, len([*group])) for stop, group in itertools.groupby(asked.stops)]
            dealt = [(s, times + more * (s.way == "deal" and times == before - 1)) for s, times in stops]
            found.append((asked.method, asked.told, dealt))
        return found


# -- time --------------------------------------------------------------------------------------------------------------


class Spent(NamedTuple):
    """Seconds of a replay, and of what: steps that divide, steps by term, meetings, the coordinator; the rest waits."""

    seconds: float
    terms: Floats
    meetings: float
    coordinator: float
    bytes: float  #: Sent by each shard.

    @property
    def divided(self) -> float:
        return float(self.terms[:DIVIDED].sum())

    @property
    def whole(self) -> float:
        """Steps whose time no number of shards makes shorter."""
        return float(self.terms[DIVIDED:].sum())

    @property
    def waits(self) -> float:
        """Of messages, and for each other; what the coordinator does beside the shards counts in both."""
        return max(0.0, self.seconds - float(self.terms.sum()) - self.meetings - self.coordinator)


def replay(
    table: Table,
    size: Size,
    wire: Wire,
    *,
    seed: int | None = 0,
    share: float = 1.0,
    slow: Mapping[int, float] | None = None,
    call: float = 0.0,
    frame: float = 0.0,
    byte: float = 0.0,
) -> Spent:
    """Go through the timetable.

    Parameters
    ----------
    table : Table
    size : Size
    wire : Wire
    seed : int or None
        Of what steps of the shards differ by; None: not at all.
    share : float
        Processes for each core: so many times as long they all take.
    slow : mapping
        Stragglers: by the number of a shard, how many times as long it works.
    call, frame, byte : float
        Processor seconds of a call at the coordinator, and of a frame and a byte at either end, besides those fitted.
    """
    n = size.shards
    draw = None if seed is None else np.random.default_rng(seed)
    pace = np.full(n, share)
    for shard, factor in (slow or {}).items():
        pace[shard] *= factor
    now, port, lead, done_until = np.zeros(n), np.zeros(n), 0.0, 0.0
    terms, meetings, coordinator, sent_bytes = np.zeros(len(TERMS)), 0.0, 0.0, 0.0

    def led(kind: str, calls: int) -> None:
        nonlocal lead, coordinator
        spent = (table.value(size, "lead", kind) + calls * call) * share
        lead, coordinator = lead + spent, coordinator + spent

    def met(stop: Stop, size_of_parts: float) -> None:
        nonlocal now, port, meetings, sent_bytes
        cost = table.ways[stop.way].coefficients if stop.way in table.ways else np.zeros(3)
        for round in rounds_of(stop.way, n):
            count = size_of_parts * round.share
            spent = (cost @ np.array([1.0, round.blocks, count])) + 2 * (frame + byte * count)
            span = count / wire.bandwidth
            leaves = np.maximum(now, port)
            port = leaves + span
            arrival = np.roll(leaves + wire.frame + span, round.way)
            now = np.maximum(now, arrival) + spent * pace
            meetings, sent_bytes = meetings + spent * share, sent_bytes + count

    requests = table.asked(size)
    led("begin", n if requests else 0)
    for place, (method, told, stops) in enumerate(requests):
        span = table.value(size, "asked", method) / wire.bandwidth
        leaves = max(lead, done_until) + np.arange(1, n + 1) * span
        now = np.maximum(now, leaves + wire.call)
        for stop, times in stops:
            parts, seconds = table.parts(size, stop.kind), table.value(size, "s", stop.kind)
            count = table.value(size, "b", stop.kind)
            ratios = table.ratios.get(stop.kind)
            for _ in range(times):
                drawn = 1.0 if draw is None or ratios is None or n == 1 else draw.choice(ratios, n)
                now = now + seconds * pace * drawn
                terms = terms + parts * share
                if stop.way:
                    met(stop, count)
        span = table.value(size, "replied", method) / wire.bandwidth
        took = max(table.value(size, "reply", "") * share, span)
        arrivals = np.sort(now + wire.call)
        last = float((arrivals + took * np.arange(n, 0, -1)).max())
        coordinator += n * table.value(size, "reply", "") * share
        calls = n if place + 1 < len(requests) else 0
        if told:
            done_until = last
            led("", calls)
        else:
            lead = max(lead, last)
            led(f"after {method}", calls)
    return Spent(lead, terms, meetings, coordinator, sent_bytes)


# -- records -----------------------------------------------------------------------------------------------------------


class Recorder:
    """Makes a :class:`Run` of what the clock notes of a timed piece of work."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.requests: list[tuple[str, bool, int]] = []  # method, whether told, bytes for each shard
        self.replies: dict[str, int] = {}
        self._steps: list[list[tuple[str, float]]] = [[] for _ in range(size.shards)]
        self._stops: list[list[tuple[str, int]]] = [[] for _ in range(size.shards)]  # ways and bytes, by step
        self._way = [""] * size.shards
        self._ways: dict[str, Floats] = defaultdict(lambda: np.zeros(4))
        self._lead: dict[str, list[float]] = defaultdict(list)

    def note(self, done: Any) -> None:
        """Take one event."""
        name, _, number = done.machine.name.partition(" ")
        seconds = done.seconds - sum(step.seconds for step in done.steps)
        if name == "coordinator":
            kind = done.steps[-1].kind if done.steps else ""  # what follows a Tell at once is a part of it
            self._lead[kind].append(done.seconds)
            return
        shard, former = int(number), self._way[int(number)]
        ways = iter(done.meetings)
        for step in done.steps:
            met = None if step.kind.endswith("> ") else next(ways, None)
            self._steps[shard].append((step.kind, step.seconds))
            self._stops[shard].append((met.way, met.bytes) if met else ("", 0))
            self._way[shard] = met.way if met and self.size.shards > 1 else ""
            if met and self.size.shards > 1:
                rounds = rounds_of(met.way, self.size.shards)
                blocks, bytes_ = sum(r.blocks for r in rounds), sum(r.share * met.bytes for r in rounds)
                self._ways[met.way][:3] += len(rounds), blocks, bytes_
        way = self._way[shard] if done.steps else former
        if way:
            self._ways[way][3] += seconds
        elif done.steps:
            kind, taken = self._steps[shard][-1]
            self._steps[shard][-1] = kind, taken + seconds

    def run(self, seconds: float, digest: str) -> Run:
        """Return what was noted."""
        kinds = [kind for kind, _ in self._steps[0]]
        assert all([kind for kind, _ in steps] == kinds for steps in self._steps), "shards have made different steps"
        taken = np.array([[second for _, second in steps] for steps in self._steps])
        sent = np.array([[bytes_ for _, bytes_ in stops] for stops in self._stops], dtype=float)
        mean = np.maximum(taken.mean(axis=0), 1e-9)
        values: dict[tuple[str, str], float] = {}
        ratios: dict[str, Floats] = {}
        at = defaultdict(list)
        for place, kind in enumerate(kinds):
            at[kind].append(place)
        for kind, places in at.items():
            values["s", kind], values["b", kind] = float(mean[places].mean()), float(sent[:, places].mean())
            ratios[kind] = (taken[:, places] / mean[places]).ravel()
        for kind, found in self._lead.items():
            key = ("lead", kind) if kind else ("reply", "")
            values[key] = statistics.mean(found)
        asked, stops = [], iter(zip(kinds, (way for way, _ in self._stops[0]), strict=True))
        for method, told, size in self.requests:
            some = []
            for kind, way in stops:
                some.append(Stop(kind, way))
                if not way:
                    break
            asked.append(Asked(method, told, tuple(some)))
            values["asked", method] = float(size)
            values["replied", method] = float(self.replies.get(method, 0))
        path = float(taken.max(axis=0).sum()) + sum(map(sum, self._lead.values()))
        return Run(self.size, asked, values, dict(self._ways), ratios, path, seconds, digest)
