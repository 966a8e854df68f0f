"""Stream models made from rows alone: windows of rows and of time, batches, insertions only, and training.

``sliding_window`` deletes the oldest example, then inserts the next, so that W stay active; the paper's index would
leave W - 1 active after each step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import islice, takewhile
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator
from sortedcontainers import SortedList

from raydt.arrays.elementary import Bools, Floats, Ints, below, stream_key, uniform
from raydt.encoding.columns import LARGEST_TIME, TimeColumn
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.messages import marked, message
from raydt.sources.base import Rows, Source
from raydt.streams.base import ActiveList, Duration, microseconds, spelled
from raydt.streams.row_stream import END, RowReader, RowStream, RowStreamOptions


class SlidingWindowStream(RowStream):
    """While fewer than W are active the next row is inserted; then a delete comes before each row."""

    chooses_deletes = True

    def __init__(self, options: SlidingWindow, source: Source) -> None:
        super().__init__(options, source)
        self._window = options.window
        self._active = ActiveList(np.empty(0, dtype=np.int64))

    def _next(self, size: int) -> UpdateBatch | None:
        available = self._available(size)
        if not available:
            self._reader.finish()
            return None
        filling = min(available, self._window - len(self._active))
        length = min(size, filling + 2 * (available - filling))
        op = np.full(length, INSERT, dtype=np.int8)
        op[filling::2] = DELETE
        deletes = (length - filling + 1) // 2 if length > filling else 0
        rows = self._take(length - deletes)
        self._active.push(rows.id)
        return self._spread(op, rows, self._active.take_first(deletes))

    def _deletes_before(self, row: Rows) -> bool:
        """Return True if the example with this id is the next to be deleted, before the row is inserted."""
        return len(self._active) == self._window and bool(self._active.view()[0] == row.id[0])

    def length(self) -> int | None:
        """Rows, and one delete for each beyond the window."""
        n = self.source.n_rows
        return None if n is None else n + max(0, n - self._window)

    def state(self) -> dict[str, Any]:
        """Position, dictionaries, and the active ids, oldest first."""
        return {**super().state(), "active": self._active.array()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        super().restore(state)
        self._active = ActiveList(state["active"])


class SlidingWindow(RowStreamOptions):
    """The most recent ``window`` rows are live."""

    stream = SlidingWindowStream
    model: Literal["sliding_window"] = "sliding_window"
    window: int = Field(1000, ge=1, description="number of live examples once the window is full (W)")

    @model_validator(mode="after")
    def _fits(self) -> SlidingWindow:
        if self.warmup > self.window:
            raise ValueError(message("streams.warmup_beyond_window", warmup=self.warmup, window=self.window))
        return self


# Stream model ``time_window``: examples live for a while, by event time.
#
# Invariant: the active examples are younger than ``duration``, seen from the largest event time so far. ``lateness``,
# by which a row may be out of order, is less than ``duration``, so that a row is never expired when it arrives. A row
# whose id is live at its time is bad, too; its time counts.


def _length(duration: str | int) -> int:
    return microseconds(duration) if isinstance(duration, str) else duration


class _TimedReader(RowReader):
    """Makes rows bad that are late by more than ``lateness``; ``now`` is the largest time before ``start``."""

    def __init__(
        self, source: Source, start: int, skip_bad: bool, *, column: TimeColumn, now: int, lateness: int
    ) -> None:
        super().__init__(source, start, skip_bad)
        self._column, self._now, self._lateness = column, now, lateness

    def _append(self, chunk: Rows) -> None:
        assert chunk.ts is not None
        ts = chunk.ts
        if chunk.bad:
            ts = ts.copy()
            ts[list(chunk.bad)] = self._now  # their times do not count
        latest = np.maximum.accumulate(np.maximum(ts, self._now))
        self._now = int(latest[-1])
        late = np.nonzero(ts < latest - self._lateness)[0].tolist()
        errors = {place: self._late(chunk.start + place, int(latest[place]) - int(ts[place])) for place in late}
        super()._append(replace(chunk, bad={**errors, **chunk.bad}) if errors else chunk)

    def _late(self, row: int, by: int) -> InputError:
        show = spelled if self._column.kind == "timestamp" else str
        file, line = self._source.where(row)
        return InputError(
            message("streams.late_row", by=marked(show(by)), lateness=show(self._lateness)),
            file=file,
            row=line,
            column=self._column.name,
        )


class TimeWindowStream(RowStream):
    """Deletes what has expired by the time of the next row, then inserts that row.

    At the end nothing more is deleted. O(log W) amortised per update, W the number of active examples.
    """

    chooses_deletes = True

    def __init__(self, options: TimeWindow, source: Source) -> None:
        super().__init__(options, source)
        self._column = source.require_ts()
        self._duration, self._lateness = _length(options.duration), _length(options.lateness)
        if isinstance(options.duration, str) != (self._column.kind == "timestamp"):
            what, wanted = (
                ("points in time", "with a unit, such as 1h30m")
                if self._column.kind == "timestamp"
                else ("integers", "as a plain number, in the unit of that column")
            )
            said = {"duration": options.duration, "column": self._column.name, "what": what, "wanted": wanted}
            raise ConfigError(message("streams.duration_of_other_kind", **said))
        self._now = -LARGEST_TIME  # no time is earlier
        self._expiries = SortedList()  # (event time, row, id) of each active example
        self._reader = self._read_from(0)

    def _read_from(self, row: int) -> RowReader:
        return _TimedReader(
            self.source, row, self._skip_bad, column=self._column, now=self._now, lateness=self._lateness
        )

    def _next(self, size: int) -> UpdateBatch | None:
        rows = self._reader.peek(self._available(size))
        if not len(rows) or rows.ts is None:
            self._reader.finish()
            return None
        latest = np.maximum.accumulate(np.maximum(rows.ts, self._now))
        # What expires before one of these rows: the beginning of the sorted list, and some of the rows themselves.
        end = int(latest[-1]) - self._duration
        old = [ts for ts, _, _ in takewhile(lambda entry: entry[0] <= end, islice(self._expiries, size))]
        expiring = np.sort(np.concatenate([np.array(old, dtype=np.int64), rows.ts[rows.ts <= end]]))
        due = np.searchsorted(latest, expiring + self._duration, side="left")  # before which row each is deleted
        op = np.full(len(rows) + len(due), INSERT, dtype=np.int8)
        op[due + np.arange(len(due))] = DELETE
        op = op[:size]
        if self._seq < self.warmup:
            if not (inserts := self._cut_warmup(op)):
                return self._next(size)
            op = op[:inserts]
        deletes = int(np.count_nonzero(op))
        return self._spread(op, *self._move_on(len(op) - deletes, deletes))

    def _deletes_before(self, row: Rows) -> bool:
        """Return True if the example with this id has expired by the time of the row."""
        assert row.ts is not None
        end = max(self._now, int(row.ts[0])) - self._duration
        return any(id_ == row.id[0] for _, _, id_ in takewhile(lambda entry: entry[0] <= end, self._expiries))

    def _refuse(self, row: Rows) -> None:
        assert row.ts is not None
        super()._refuse(row)
        self._now = max(self._now, int(row.ts[0]))  # as for the reader, which does not know which ids are live

    def _move_on(self, inserts: int, deletes: int) -> tuple[Rows, Ints]:
        """Take up the next rows, and the ids of what expires up to the last of them or right after it.

        A row is younger than whatever has expired when it arrives, so these are the first in the list also once all
        the rows are in it.
        """
        rows = self._take(inserts)
        if rows.ts is not None:
            self._now = int(rows.ts.max(initial=self._now))
            self._expiries.update(zip(rows.ts.tolist(), rows.row.tolist(), rows.id.tolist(), strict=True))
        expired = np.array([id_ for _, _, id_ in islice(self._expiries, deletes)], dtype=np.int64)
        del self._expiries[:deletes]
        return rows, expired

    def length(self) -> None:
        """Not known in advance."""

    def state(self) -> dict[str, Any]:
        """Position, dictionaries, the latest time, and the active examples in the order in which they will expire."""
        active = list(self._expiries)
        return {
            **super().state(),
            "now": self._now,
            "active": np.array([entry[2] for entry in active], dtype=np.int64),
            "active_ts": np.array([entry[0] for entry in active], dtype=np.int64),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self._now = int(state["now"])
        super().restore(state)
        before = range(-len(state["active"]), 0)  # in place of the rows: they arrived before any row still to come
        self._expiries = SortedList(zip(state["active_ts"].tolist(), before, state["active"].tolist(), strict=True))


class TimeWindow(RowStreamOptions):
    """Rows are inserted, and deleted when they are ``duration`` older than the latest event time."""

    stream = TimeWindowStream
    model: Literal["time_window"] = "time_window"
    duration: Duration = Field(
        description="age at which an example is deleted: 30s, 5m, 1h30m, 7d, ...; a number if source.ts holds integers"
    )
    lateness: Duration = Field(0, description="how far a row may be behind the latest event time; less than duration")

    @model_validator(mode="after")
    def _fits(self) -> TimeWindow:
        if self.duration == 0:
            raise ValueError(message("streams.no_duration"))
        if self.lateness and isinstance(self.lateness, str) != isinstance(self.duration, str):
            raise ValueError(message("streams.mixed_units"))
        if _length(self.lateness) >= _length(self.duration):
            raise ValueError(
                message("streams.lateness_beyond_duration", lateness=self.lateness, duration=self.duration)
            )
        return self


# Stream model ``batches``: the active set goes through a list of sizes, up by insertions, down by deletions.
#
# On the way up the inactive rows of the source are inserted in their order, those that were never inserted and those
# that were removed alike; rows are read again from the source, not kept. On the way down active examples are deleted.
#
# Invariant: every good row before ``_low`` is active, so that an upward way starts to read there. Bad rows before
# ``_seen`` have been recorded, and all good rows before it have been read at some time.


def _step(value: Any) -> Any:
    if isinstance(value, bool) or not (
        (isinstance(value, int) and value >= 0) or (isinstance(value, float) and 0.0 < value <= 1.0)
    ):
        raise ValueError(message("streams.step"))
    return value


_Rows = Annotated[int, Field(ge=0)]
_Share = Annotated[float, Field(gt=0.0, le=1.0)]
Step = Annotated[_Rows | _Share, BeforeValidator(_step)]


class BatchesStream(RowStream):
    """Inserts or deletes until the size of each step is reached, or the rows run out.

    A share counts the source's rows, bad ones included, and is rounded to the nearest number, half to even. No batch
    holds updates of two steps. Of rows with one id only the first good one is ever inserted, since every way up begins
    at the first row that is not active.
    """

    chooses_deletes = True

    def __init__(self, options: Batches, source: Source) -> None:
        super().__init__(options, source)
        shares = any(isinstance(step, float) for step in options.steps)
        n = source.count_rows() if shares else 0
        self._targets = [step if isinstance(step, int) else round(Fraction(str(step)) * n) for step in options.steps]
        if self.warmup > self._targets[0]:
            raise ConfigError(message("streams.warmup_beyond_rows", warmup=self.warmup, first=self._targets[0], rows=n))
        self._order = options.removal_order
        self._pick = stream_key(options.seed, "batches pick")
        self._step = 0
        self._active = ActiveList(np.empty((0, 2), dtype=np.int64))  # id and row of each, oldest insertion first
        self._low = self._seen = 0
        self._removed = False  # since the reader was made

    def begin_with(self, rows: Iterator[Rows]) -> None:
        """Take the rows from here; the reader that has them stays, although a position may have been restored."""
        super().begin_with(rows)
        self._removed = False

    def _next(self, size: int) -> UpdateBatch | None:
        while self._step < len(self._targets):
            missing = self._targets[self._step] - len(self._active)
            if missing < 0:
                return self._remove(min(size, -missing))
            if missing > 0 and (batch := self._insert(min(size, missing))) is not None:
                return batch
            self._step += 1
        return None

    def _insert(self, size: int) -> UpdateBatch | None:
        if self._removed:
            skipped = self._reader.skipped
            active = np.sort(self._active.view()[:, 1])
            self._reader.close()
            self._reader = RowReader(self.source, self._low, self._skip_bad, without=active, recorded=self._seen)
            self._reader.skipped = skipped
            self._removed = False
        rows = self._take(self._available(size))
        if not len(rows):
            self._reader.finish()
            self._seen = END
            return None
        self._low = self._reader.position
        self._seen = max(self._seen, self._low)
        self._active.push(np.stack([rows.id, rows.row], axis=1))
        return self._batch(np.full(len(rows), INSERT, dtype=np.int8), rows.id, rows, rows.row)

    def _remove(self, size: int) -> UpdateBatch:
        op = np.full(size, DELETE, dtype=np.int8)
        if self._seq < self.warmup:  # the rows ran out before the first step was reached
            self._cut_warmup(op)
        if self._order == "random":
            removed = self._draw(size)
        elif self._order == "fifo":
            removed = self._active.take_first(size).copy()
        else:
            removed = self._active.take_last(size)[::-1].copy()
        self._low = min(self._low, int(removed[:, 1].min()))
        self._removed = True
        return self._batch(op, removed[:, 0].copy(), self._reader.peek(0), np.full(size, -1, dtype=np.int64))

    def _draw(self, k: int) -> Ints:
        """Remove ``k`` entries, each drawn uniformly from those left; the last one moves into its place."""
        active = self._active.view()
        left = len(active) - np.arange(k)
        drawn = below(self._pick, self._seq + np.arange(k), left)
        moved: dict[int, int] = {}  # place: where its entry was before
        taken = []
        for place, last in zip(drawn.tolist(), (left - 1).tolist(), strict=True):
            taken.append(moved.get(place, place))
            moved[place] = moved.pop(last, last)
        removed = active[taken]
        moved = {place: origin for place, origin in moved.items() if place < len(active) - k}
        active[list(moved)] = active[list(moved.values())]
        self._active.take_last(k)
        return removed

    def follow_update(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: the next way up would insert the deleted examples again."""
        raise ConfigError(message("streams.batches_after_update"))

    def length(self) -> int | None:
        """Rows inserted and deleted on all ways, where the number of rows is known; bad rows not considered."""
        n = self.source.n_rows
        if n is None:
            return None
        sizes = np.minimum([0, *self._targets], n)
        return int(np.abs(np.diff(sizes)).sum())

    def state(self) -> dict[str, Any]:
        """Return position, dictionaries as before row ``seen``, and ids and rows of active examples, in order."""
        active = self._active.array()
        return {
            **super().state(),
            "row": self._low,
            "source": self.source.state(self._seen),
            "seen": self._seen,
            "step": self._step,
            "active": active[:, 0].copy(),
            "active_row": active[:, 1].copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        super().restore(state)
        self._step, self._low, self._seen = int(state["step"]), int(state["row"]), int(state["seen"])
        self._active = ActiveList(np.stack([state["active"], state["active_row"]], axis=1))
        self._removed = True


class Batches(RowStreamOptions):
    """The set of live examples grows and shrinks to each of ``steps`` in turn."""

    stream = BatchesStream
    in_order = False
    model: Literal["batches"] = "batches"
    steps: list[Step] = Field(
        min_length=1,
        description="sizes of the set of live examples, one after the other: a number of rows, or a share of all, such "
        "as 0.5",
    )
    removal_order: Literal["fifo", "lifo", "random"] = Field(
        "fifo", description="examples to delete first: fifo the oldest, lifo the newest, random drawn uniformly"
    )
    seed: int = Field(7, description="seed of removal_order: random; any integer")

    @model_validator(mode="after")
    def _fits(self) -> Batches:
        if any(step == 1 and isinstance(step, int) for step in self.steps) and any(
            isinstance(step, float) for step in self.steps
        ):
            raise ValueError(message("streams.mixed_steps"))
        first = self.steps[0]
        if isinstance(first, int) and self.warmup > first:
            raise ValueError(message("streams.warmup_beyond_step", warmup=self.warmup, first=first))
        return self


# Stream model ``incremental``: every row is inserted, nothing is deleted.


class IncrementalStream(RowStream):
    """Update t inserts the t-th good row."""

    def _next(self, size: int) -> UpdateBatch | None:
        n = self._reader.available(size)
        if not n:
            self._reader.finish()
            return None
        rows = self._take(n)
        return self._batch(np.full(len(rows), INSERT, dtype=np.int8), rows.id, rows, rows.row)


class Incremental(RowStreamOptions):
    """Every row is inserted."""

    stream = IncrementalStream
    model: Literal["incremental"] = "incremental"


# Stream model ``training``: all rows are inserted as one warm-up, so that they build the model in one step.
#
# A share of the rows can be *held out*: a second model is trained on the other rows first, and predicts these. What is
# held out is decided by ``holdout_by``:
#
#     ========  ===================================================================================================
#     id        a hash of the id (the row number without one)
#     subject   a hash of the subject: a person's rows are all held out, or all trained on
#     time      the rows with the latest event times; rows of one time are on one side
#     order     the last rows
#     ========  ===================================================================================================
#
# Invariant: by id and by subject, whether a row is held out follows from that and the share alone, not from the order
# of the rows or from other rows, and a larger share holds out the rows of a smaller one, too. By time the order of the
# rows does not count.

#: A warm-up that no source completes: the end of the stream ends it.
ALL_ROWS = 1 << 40

_KEY = stream_key(0, "training holdout")


class TrainingStream(IncrementalStream):
    """Update t inserts the t-th good row."""

    def __init__(self, options: Training, source: Source) -> None:
        super().__init__(options, source)
        self._options, self.holdout = options, HoldOut(options, source)

    def rest(self, part: float = 1.0) -> Rest:
        """Return the stream that inserts a part of the rows not held out, over the same source, at its beginning."""
        return Rest(self._options, self.source, self.holdout, part)


class Training(RowStreamOptions):
    """All rows train the model at once; a share of them is held out first, for a score."""

    stream = TrainingStream
    in_order = False
    model: Literal["training"] = "training"
    warmup: int = Field(ALL_ROWS, ge=ALL_ROWS, le=ALL_ROWS, exclude=True, description="all rows; not to be set")
    holdout: float = Field(
        0.2,
        ge=0.0,
        lt=1.0,
        description="share of the rows, by a hash of the id, that a model trained on the others is scored on, before "
        "all rows train the model; 0: no score",
    )
    holdout_by: Literal["auto", "id", "subject", "time", "order"] = Field(
        "auto",
        description="what decides which rows are held out: a hash of the id; a hash of the subject, so that all rows "
        "of a person are on one side; time: the latest rows by source.ts; order: the last rows. auto: subject if "
        "source.subject is set, else id",
    )
    learning_curve: bool = Field(
        False, description="also score models trained on an eighth, a quarter and a half of the rows not held out"
    )


class Rest(TrainingStream):
    """Inserts the good rows that are not held out, or a part of these: of the subjects, or of the rows."""

    def __init__(self, options: Training, source: Source, holdout: HoldOut, part: float) -> None:
        super().__init__(options, source)
        self.holdout, self._part = holdout, part  # one choice, and one look at the times of rows, for all parts

    def _next(self, size: int) -> UpdateBatch | None:
        while n := self._reader.available(size):
            rows = self._reader.take(n)
            rows = rows[self.holdout.rest(rows, self._part)]
            if len(rows):
                op = np.full(len(rows), INSERT, dtype=np.int8)
                if self._text_ids is not None and rows.names is not None:
                    rows = replace(rows, id=self._text_ids.give(rows.names, op))
                return self._batch(op, rows.id, rows, rows.row)
        self._reader.finish()
        return None

    def held_out(self, size: int) -> Iterator[Rows]:
        """Yield the good rows held out, up to ``size`` at a time, once this stream has come to its end."""
        for rows in good_rows(self.source, size):
            rows = rows[self.holdout.of(rows)]
            if len(rows):
                yield rows


def good_rows(source: Source, size: int) -> Iterator[Rows]:
    """Yield the good rows of a source from its beginning, up to ``size`` at a time; bad ones are not recorded."""
    reader = RowReader(source, 0, skip_bad=True, recorded=END)
    while n := reader.available(size):
        yield reader.take(n)


class HoldOut:
    """The choice of the rows that are held out; ConfigError if the source does not say what decides it."""

    def __init__(self, options: Training, source: Source) -> None:
        by, of_subjects = options.holdout_by, source.subject_kind is not None
        self.by = ("subject" if of_subjects else "id") if by == "auto" else by
        self._share, self._source = options.holdout, source
        if self._share and self.by == "subject" and not of_subjects:
            raise ConfigError(message("streams.holdout_without_subject"))
        if self._share and self.by == "time":
            source.require_ts()
        self._known: dict[str, float] = {}  # numbers of the subjects met so far

    def of(self, rows: Rows) -> Bools:
        """Return which rows are held out; shape (n,). O(n), by time or order after one pass over the source."""
        if self._in_order:
            late: Bools = self._moments(rows) > self._last_trained
            return late
        return self._drawn(rows) < self._share

    def rest(self, rows: Rows, part: float) -> Bools:
        """Return which rows are in a part of those not held out; a larger part has the rows of a smaller one, too."""
        if self._in_order:
            return ~self.of(rows) & (places(rows) < part)
        drawn, end = self._drawn(rows), self._share + part * (1.0 - self._share)
        return (drawn >= self._share) & ((drawn < end) | (part == 1.0))

    @property
    def _in_order(self) -> bool:
        return self.by in ("time", "order")

    def _drawn(self, rows: Rows) -> Floats:
        """Return a number in [0, 1) for each row, the same for all rows of a subject."""
        if self.by == "id" or rows.subject is None:
            return places(rows)
        names = [str(subject) for subject in rows.subject.tolist()]
        for name in names:
            if name not in self._known:
                self._known[name] = _place(name)
        return np.array([self._known[name] for name in names])

    @cached_property
    def _last_trained(self) -> int:
        """The largest moment of the rows to train on, which are at least 1 - share of all."""
        known = [self._moments(rows) for rows in good_rows(self._source, 1 << 14)]
        moments = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *known]))
        kept = len(moments) - int(Fraction(str(self._share)) * len(moments))
        return int(moments[max(kept, 1) - 1]) if len(moments) else 0

    def _moments(self, rows: Rows) -> Ints:
        if self.by == "order":
            return rows.row
        assert rows.ts is not None
        return rows.ts


def places(rows: Rows) -> Floats:
    """Return a number in [0, 1) that follows from the id of each row, shape (n,)."""
    if rows.names is None:
        return uniform(_KEY, rows.id)
    return np.array([_place(name) for name in rows.names.tolist()], dtype=np.float64)


def _place(name: str) -> float:
    """Return a number in [0, 1) that follows from a text id, or a subject."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") / 2.0**64
