"""Streams as plain lists, and the stream of the sparse best split."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import below, stream_key, uniform
from raydt.encoding.columns import TimeColumn
from raydt.encoding.labels import IGNORED
from raydt.errors import InputError
from raydt.examples.updates import (
    CARRIES_ROW,
    CODES,
    DELETE,
    DELETE_VALUE,
    INSERT,
    QUERY,
    UPDATE,
    Features,
    History,
    Reading,
    UpdateBatch,
    previous_names,
)
from raydt.learners.best_split.options import BestSplitOptions
from raydt.sources.base import Rows
from tests.oracles.confidence_tree import round_half_up
from tests.oracles.sparse_splits import BruteForce, BucketTwin

# -- streams ---------------------------------------------------------------------------------------------------------
# Twins of the stream models: plain loops over a list of rows, one event at a time; and a source held in memory.


@dataclass(frozen=True)
class Row:
    """One row of a source; ``label`` is coded by whoever reads it."""

    id: int
    label: int
    bad: bool = False
    op: int = INSERT
    x: float = 0.0
    ts: int = 0


@dataclass(frozen=True)
class Event:
    """One update: the row and the features are None where it carries none.

    ``before`` are the labels of the rows before that are features, -1 where there is none.
    """

    op: int
    id: int
    row: int
    x: float | None = None
    y: int | None = None
    before: tuple[int, ...] = ()


class MemorySource:
    """Rows in memory, in chunks of given sizes (the last repeats)."""

    id_kind = "integer"
    id_column = "k"
    subject_column = subject_kind = None
    complete = True
    known_classes = 0
    target_dtype = CODES
    has_labels = True
    positive = None
    has_ts = False
    ts_kind = "integer"

    def __init__(
        self, rows: Sequence[Row], chunks: Sequence[int] = (3,), changelog: bool = False, previous: int = 0
    ) -> None:
        self._rows, self._chunks, self.is_changelog = rows, chunks, changelog
        self.features = Features(("x", *previous_names(previous)), (False, *[True] * previous))
        self.reading = Reading(missing=True, previous=(None,) * previous)
        self.n_rows = len(rows)
        self.y = codes(rows)
        self.reads = 0

    @property
    def classes(self) -> list[Any]:
        return sorted(set(self.y))

    def fingerprint(self) -> str:
        return "sha256:"

    def count_rows(self) -> int:
        return len(self._rows)

    def times(self) -> TimeColumn | None:
        return None

    def require_ts(self) -> TimeColumn:
        self.has_ts = True
        return TimeColumn("t", self.ts_kind)

    def rows(self, start: int = 0) -> Iterator[Rows]:
        self.reads += 1
        sizes = iter(self._chunks)
        size = 1
        while start < len(self._rows):
            size = next(sizes, size)
            part = self._rows[start : start + size]
            yield Rows(
                np.arange(start, start + len(part)),
                np.array([[row.x, *[-1.0] * len(self.reading.previous)] for row in part]),
                np.array(self.y[start : start + size], dtype=np.int32),
                np.array([row.id for row in part], dtype=np.int64),
                np.array([row.op for row in part], dtype=np.int8) if self.is_changelog else None,
                {place: InputError("bad", row=start + place) for place, row in enumerate(part) if row.bad},
                np.array([row.ts for row in part], dtype=np.int64) if self.has_ts else None,
            )
            start += len(part)

    def where(self, row: int) -> tuple[str, int]:
        return "memory", row

    def state(self, row: int | None = None) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        assert state == {}


def codes(rows: Sequence[Row]) -> list[int]:
    """Labels coded in order of first appearance among the good rows that carry one."""
    known: dict[int, int] = {}
    none = [r.bad or r.op == IGNORED or not CARRIES_ROW[r.op] for r in rows]
    return [-1 if no else known.setdefault(r.label, len(known)) for r, no in zip(rows, none, strict=True)]


def good(rows: Sequence[Row], skip: bool) -> list[int]:
    """Numbers of the rows that become updates."""
    numbers = []
    for number, row in enumerate(rows):
        if not row.bad:
            numbers.append(number)
        elif not skip:
            break
    return numbers


def insert(rows: Sequence[Row], number: int) -> Event:
    """The insert of one row."""
    row = rows[number]
    return Event(INSERT, row.id, number, row.x, codes(rows)[number])


def with_previous(events: Sequence[Event], k: int, delayed: bool = False) -> list[Event]:
    """Updates whose rows have the last k labels before them, the newest first; of ``delayed`` labels, as asked."""
    last, asked, found = (-1,) * k, dict[int, tuple[int, ...]](), []
    for one in events:
        if one.x is None:
            found.append(one)
            continue
        before = last
        if delayed and one.op == QUERY:
            asked[one.id] = before
        if delayed and one.op == INSERT:
            before = asked.pop(one.id, before)
        found.append(replace(one, before=before))
        if one.op in (INSERT, UPDATE):
            assert one.y is not None
            last = (one.y, *last)[:k]
    return found


def incremental(rows: Sequence[Row], skip: bool) -> list[Event]:
    return [insert(rows, number) for number in good(rows, skip)]


def sliding_window(rows: Sequence[Row], skip: bool, window: int) -> tuple[list[Event], list[int], bool]:
    """The updates, the bad rows and those with a live id passed over, and whether one stopped the stream."""
    events: list[Event] = []
    passed: list[int] = []
    active: list[int] = []
    for number, row in enumerate(rows):
        full = len(active) == window
        if row.bad or row.id in active[full:]:
            if not skip:
                return events, passed, True
            passed.append(number)
            continue
        if full:
            events.append(Event(DELETE, active.pop(0), -1))
        events.append(insert(rows, number))
        active.append(row.id)
    return events, passed, False


@dataclass
class Watcher:
    """A scout of an adaptive window, one row at a time: the learner beside a list of the rows that it knows."""

    session: Any
    width: int
    width_of_rows: int = 1
    updates: int = 0

    def _take(self, op: int, number: int, row: Event | None, n_classes: int) -> int:
        X = np.array([[row.x, *row.before]] if row else np.empty((0, self.width_of_rows)), dtype=np.float64)
        y = np.array([row.y] if row else [], dtype=np.int32)
        batch = UpdateBatch(
            self.updates, np.array([op], np.int8), np.array([number]), X, y, n_classes, np.array([number])
        )
        self.updates += 1
        return int(self.session.take(batch).predictions[0])

    def learn(self, number: int, row: Event, known: dict[int, int], n_classes: int) -> bool:
        """Predict and learn a row, without the row that leaves the window; whether the prediction was right."""
        if number - self.width in known:
            self._take(DELETE, number - self.width, None, n_classes)
        return self._take(INSERT, number, row, n_classes) == row.y


def adaptive_window(
    rows: Sequence[Row],
    skip: bool,
    warmup: int,
    watchers: Sequence[Watcher],
    clock: int,
    z: tuple[float, float],
    margin: float,
    previous: int = 0,
) -> tuple[list[Event], list[int], bool]:
    """The updates, the bad rows and those with a live id passed over, and whether one stopped the stream."""
    events: list[Event] = []
    passed: list[int] = []
    active: list[int] = []
    known: dict[int, int] = {}
    k, n_classes, present = len(watchers), 0, len(watchers) - 1
    wins, new = [[0] * k for _ in range(k)], [[0] * k for _ in range(k)]
    for number, row in enumerate(rows):
        window = len(rows) + 1 if len(events) < warmup or present == k - 1 else watchers[present].width
        excess = max(0, len(active) + 1 - window)
        if row.bad or row.id in active[excess:]:
            if not skip:
                return events, passed, True
            passed.append(number)
            continue
        events += [Event(DELETE, id_, -1) for id_ in active[:excess]]
        event = with_previous([*events, insert(rows, number)], previous)[-1]
        events.append(event)
        active = [*active[excess:], row.id]
        assert event.y is not None
        n_classes = max(n_classes, event.y + 1)
        told, known[len(known)] = len(known), row.id
        right = [watcher.learn(told, event, known, n_classes) for watcher in watchers]
        for one in range(k):
            for other in range(k):
                new[one][other] += right[one] and not right[other]
        if (told + 1) % clock:
            continue
        wins = [
            [w - (w >> 3) + (n << 16) for w, n in zip(*lines, strict=True)] for lines in zip(wins, new, strict=True)
        ]
        new = [[0] * k for _ in range(k)]
        margins = []
        for one in range(k):
            d, v = wins[one][present] - wins[present][one], wins[one][present] + wins[present][one]
            margins.append(d / 65536 - margin - z[one >= present] * (v / 65536) ** 0.5)
        if max(margins) > 0:
            present = margins.index(max(margins))
    return events, passed, False


def random_updates(
    rows: Sequence[Row], skip: bool, p: float, seed: int, warmup: int
) -> tuple[list[Event], list[int], bool]:
    """The updates, the bad rows and those with a live id passed over, and whether one stopped the stream."""
    coin, pick = (stream_key(seed, f"random_updates {name}") for name in ("coin", "pick"))
    events: list[Event] = []
    active: list[int] = []
    bad = [number for number, row in enumerate(rows) if row.bad]
    waiting, refused = deque(good(rows, skip)), []
    while waiting:
        at = np.array([len(events)])
        if not active or len(events) < warmup or uniform(coin, at)[0] < p:
            number = waiting.popleft()
            if rows[number].id in active:
                if not skip:
                    return events, [], True
                refused.append(number)
                continue
            events.append(insert(rows, number))
            active.append(rows[number].id)
        else:
            drawn = int(below(pick, at, len(active))[0])
            active[drawn], active[-1] = active[-1], active[drawn]
            events.append(Event(DELETE, active.pop(), -1))
    return events, sorted(bad + refused) if skip else [], bool(bad) and not skip


def batches(
    rows: Sequence[Row], skip: bool, steps: Sequence[int | float], order: str, seed: int
) -> tuple[list[Event], list[int], bool]:
    """The updates, the bad rows and those with a live id in the order in which they were met and passed over, and
    whether one stopped the stream.
    """
    pick = stream_key(seed, "batches pick")
    events: list[Event] = []
    met: list[int] = []
    active: list[int] = []
    for step in steps:
        target = round(step * len(rows)) if isinstance(step, float) else step
        waiting: list[int] = []
        for number, row in enumerate(rows):
            if len(active) >= target:
                break
            if number in active:
                continue
            bad = row.bad or row.id in [rows[other].id for other in active]
            if bad and not skip:
                return events, met, True
            if bad:
                waiting.append(number)
            else:
                events.append(insert(rows, number))
                active.append(number)
                met += [n for n in waiting if n not in met]
        if len(active) < target:
            met += [n for n in waiting if n not in met]
        while len(active) > target:
            if order == "random":
                drawn = int(below(pick, np.array([len(events)]), len(active))[0])
                active[drawn], active[-1] = active[-1], active[drawn]
            number = active.pop(0 if order == "fifo" else -1)
            events.append(Event(DELETE, rows[number].id, -1))
    return events, met, False


def time_window(rows: Sequence[Row], skip: bool, duration: int, lateness: int) -> tuple[list[Event], list[int], bool]:
    """The updates, the rows passed over (bad, late, or with a live id), and whether one stopped the stream."""
    events: list[Event] = []
    passed: list[int] = []
    active: list[tuple[int, int]] = []
    now: int | None = None
    for number, row in enumerate(rows):
        if row.bad or (now is not None and row.ts < now - lateness):
            if not skip:
                return events, passed, True
            passed.append(number)
            continue
        now = row.ts if now is None else max(now, row.ts)
        if row.id in [rows[arrival].id for ts, arrival in active if ts > now - duration]:
            if not skip:
                return events, passed, True
            passed.append(number)
            continue
        for ts, arrival in sorted(active):
            if ts <= now - duration:
                events.append(Event(DELETE, rows[arrival].id, -1))
                active.remove((ts, arrival))
        events.append(insert(rows, number))
        active.append((row.ts, number))
    return events, passed, False


def changelog(rows: Sequence[Row], skip: bool) -> list[Event]:
    """A bad row takes the place of the one before it: what an update replaces goes, and the next update inserts."""
    events, usable, absent = [], set(good(rows, skip)), set()
    for n, row in enumerate(rows):
        if n not in usable:
            if not skip:
                break
            if row.op == UPDATE:
                events.append(Event(DELETE, row.id, n))
            if row.op in (INSERT, UPDATE):
                absent.add(row.id)
        elif row.op == INSERT or (row.op == UPDATE and row.id in absent):
            events.append(insert(rows, n))
        elif row.op != IGNORED:
            events.append(
                Event(row.op, row.id, n, row.x, codes(rows)[n]) if CARRIES_ROW[row.op] else Event(DELETE, row.id, n)
            )
        if n in usable and row.op in (INSERT, UPDATE, DELETE):
            absent.discard(row.id)
    return events


def deletion_log(rows: Sequence[Row], skip: bool, log: Sequence[tuple[int, int | None]]) -> list[Event]:
    numbered = [(id_, float("inf") if after is None else after, -2 - line) for line, (id_, after) in enumerate(log)]
    due = deque(sorted(numbered, key=lambda entry: entry[1]))
    events: list[Event] = []
    for number, row in enumerate(rows):
        while due and due[0][1] <= number:
            id_, _, place = due.popleft()
            events.append(Event(DELETE, id_, place))
        if not row.bad:
            events.append(insert(rows, number))
        elif not skip:
            return events
    return events + [Event(DELETE, id_, place) for id_, _, place in due]


# -- best split stream -----------------------------------------------------------------------------------------------
# The sparse best split over a stream, slow and obvious: one dictionary of rows, and a node of plain Python a group.
#
# What is searched when, what is predicted and what is refused is decided here update by update; the fast path has to
# give the same, however it is cut into batches, spread over shards, or saved and restored.

LIVE = np.iinfo(np.int64).max
StreamRow = tuple[int, ...]


def majority(ones: int, size: int, tie: int) -> int:
    return tie if 2 * ones == size else int(2 * ones > size)


class BestSplitTwin:
    """The learner, one update after another."""

    def __init__(self, options: BestSplitOptions, features: Features, unit: int = 1) -> None:
        self.options, self.features, self.unit = options, features, unit
        self.weights: dict[int, int] = {}  # in units, by the update that inserted a row
        self.factors: list[int] = []  # of balanced classes, in units
        self.live: dict[int, tuple[StreamRow, int, int]] = {}  # by id: row, label, birth
        self.finder: str | None = None if options.finder == "auto" else options.finder
        self.nodes: list[BruteForce | BucketTwin] = []
        self.split = (-1, 0, 0, 0, 0)  # feature, n, c1, n1, c11 of the last search
        self.searched = 0
        self.changes: list[tuple[int, int]] = []  # update and feature
        self.predictions: list[int] = []
        self.refused: list[int] = []
        self.past: list[list[Any]] = []  # id, row, label, inserted, deleted
        self.seq = 0

    # ------------------------------------------------------------ updates

    def process(self, batch: UpdateBatch) -> None:
        assert batch.start == self.seq
        carried = np.cumsum(CARRIES_ROW[batch.op]) - 1
        for at, (op, key) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
            row: StreamRow = ()
            label = -1
            if CARRIES_ROW[op]:
                row, label = tuple(batch.sparse.row(carried[at]).tolist()), int(batch.y[carried[at]])  # type: ignore[union-attr]
                self.weights[self.seq] = 2**16 if batch.weight is None else int(batch.weight[carried[at]])
            self._update(op, key, row, label, batch.warmup)
            self.seq += 1
            if self.seq == batch.warmup:
                self._build()
            elif self.seq > batch.warmup and self.seq % self.options.query_every == 0:
                self._search()
        self.warmup = batch.warmup

    def _update(self, op: int, key: int, row: StreamRow, label: int, warmup: int) -> None:
        if op == DELETE_VALUE:
            equal = [(born, i) for i, (other, y, born) in self.live.items() if (other, y) == (row, label)]
            key = min(equal)[1] if equal else -1
        known = key in self.live
        if op != QUERY and known != (op != INSERT):
            self.refused.append(self.seq)
            self.predictions.append(-1)
            return
        looked = op in (INSERT, UPDATE, QUERY) and (op == QUERY or self.seq >= warmup)
        self.predictions.append(self._predict(row) if looked else -1)
        if op in (DELETE, DELETE_VALUE, UPDATE):
            self._remove(key, warmup)
        if op in (INSERT, UPDATE):
            self.live[key] = row, label, self.seq
            self.past.append([key, row, label, self.seq, LIVE])
            if self.seq >= warmup:
                self._count(row, label, 1, self.seq)

    def _remove(self, key: int, warmup: int) -> None:
        row, label, born = self.live.pop(key)
        next(entry for entry in self.past if entry[3] == born)[4] = self.seq
        if self.seq >= warmup:
            self._count(row, label, -1, born)

    def mass(self, label: int, born: int) -> int:
        """How much a row counts."""
        factor = self.factors[label] if label < len(self.factors) else 2**16
        return min(2**32 - 1, (self.weights[born] * factor + 2**15) // 2**16) * self.unit // 2**16

    # ------------------------------------------------------------ the split

    def finish(self) -> None:
        if self.seq < self.warmup:
            self.warmup = self.seq
            self._build()

    def _build(self) -> None:
        """The end of the warm-up: its rows in their order."""
        entries = sorted(self.live.values(), key=lambda entry: entry[2])
        if self.options.class_weight == "balanced":
            sums = [sum(self.mass(y, born) for _, y, born in entries if y == k) for k in range(2)]
            occurring = sum(n > 0 for n in sums)
            self.factors = [round_half_up(2**16 * Fraction(sum(sums), occurring * n)) if n else 2**16 for n in sums]
        rows = [(row, y) for row, y, _ in entries]
        if self.finder is None:
            ones = sum(len(row) for row, _ in rows)
            seen = len({j for row, _ in rows for j in row})
            structure = "updent" if self.options.criterion == "entropy" else "updgini"
            self.finder = structure if ones and seen * len(rows) / ones >= 50 else "scan"
        for row, y, born in entries:
            self._count(row, y, 1, born)
        self._search()

    def _count(self, row: StreamRow, label: int, by: int, born: int) -> None:
        if not self.nodes:
            assert self.finder is not None
            criterion = "entropy" if self.options.entropy else "gini"
            for _ in range(self.features.groups):
                scan = self.finder == "scan"
                unit = self.unit
                self.nodes.append(
                    BruteForce(criterion, unit) if scan else BucketTwin(self.finder, self.options.alpha, unit)
                )
        mass = self.mass(label, born)
        if not mass:
            return
        groups = self.features.groups_of(np.array(row, dtype=np.int32)).tolist()
        for number, node in enumerate(self.nodes):
            mine = [j for j, group in zip(row, groups, strict=True) if group == number]
            (node.add if by > 0 else node.remove)(mine, label, mass)

    def _search(self) -> None:
        self.searched = self.seq
        if self.nodes:
            found = [(best.score, best.feature, node) for node in self.nodes if (best := node.best()).feature >= 0]
            first = self.nodes[0]
            counts = (-1, first.n, first.c1, 0, 0)
            if found:
                _, feature, node = min(found, key=lambda entry: entry[:2])
                counts = (feature, node.n, node.c1, *node.ones[feature])
            if counts[0] != self.split[0]:
                self.changes.append((self.seq - 1, counts[0]))
            self.split = counts

    def _predict(self, row: StreamRow) -> int:
        feature, n, c1, n1, c11 = self.split
        both = majority(c1, n, 0)
        if feature < 0:
            return both
        return majority(c11, n1, both) if feature in row else majority(c1 - c11, n - n1, both)

    # ------------------------------------------------------------ what is left

    def counters(self) -> dict[int, tuple[int, int, int]]:
        """n1, c11 and bucket of every feature; -1 of a scan."""
        found = {}
        for node in self.nodes:
            buckets = getattr(node, "bucket", {})
            found |= {j: (*counts, buckets.get(j, -1)) for j, counts in node.ones.items()}
        return found

    def filled(self) -> int:
        """Buckets with features, of all groups; none of a scan."""
        return sum(len(set(getattr(node, "bucket", {}).values())) for node in self.nodes)

    def moved(self) -> int:
        """Features that the tests have moved."""
        return sum(getattr(node, "moves", 0) for node in self.nodes)

    def history(self) -> History:
        rows = [entry[1] for entry in self.past]
        sparse = SparseRows.of_lengths(
            np.array([len(row) for row in rows], dtype=np.int64),
            np.array([j for row in rows for j in row], dtype=np.int32),
            self.features.sparse,
        )
        key, _, label, inserted, deleted = ([entry[i] for entry in self.past] for i in range(5))
        return History(
            np.array(key, dtype=np.int64),
            np.empty((len(rows), 0)),
            np.array(label, dtype=np.int32),
            np.array(inserted, dtype=np.int64),
            np.array(deleted, dtype=np.int64),
            self.warmup,
            sparse=sparse,
            weight=np.array([self.weights[born] for born in inserted], np.uint32),
        )
