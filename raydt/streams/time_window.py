"""Stream model ``time_window``: examples live for a while, by event time.

Invariant: the active examples are younger than ``duration``, seen from the largest event time so far. ``lateness``, by
which a row may be out of order, is less than ``duration``, so that a row is never expired when it arrives. A row whose
id is live at its time is bad, too; its time counts.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator
from sortedcontainers import SortedList

from raydt.arrays.types import Ints
from raydt.encoding.times import LARGEST_TIME, TimeColumn
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.messages import message
from raydt.redaction import marked
from raydt.sources.base import Rows, Source
from raydt.streams.durations import Duration, microseconds, spelled
from raydt.streams.reader import RowReader
from raydt.streams.row_stream import RowStream, RowStreamOptions


class TimeWindow(RowStreamOptions):
    """Rows are inserted, and deleted when they are ``duration`` older than the latest event time."""

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

    def make(self, source: Source, base_dir: str | Path = ".") -> TimeWindowStream:
        """The stream over ``source``."""
        return TimeWindowStream(self, source)


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
        """Whether the example with this id has expired by the time of the row."""
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
