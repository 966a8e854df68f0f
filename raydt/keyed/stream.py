"""The rows of a source in blocks, for models by key: what a run reads, numbers and goes back to.

Invariant: the state after a block is a function of the rows up to its end. What rows mean to a key (updates, codes,
windows) is the key's own (:mod:`raydt.keyed.members`); this stream numbers rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from raydt.errors import message_of
from raydt.exchange.snapshot import Barrier
from raydt.keyed.log import Due, KeyLog, LogOwners
from raydt.sources.base import Rows
from raydt.sources.file_source import FileSource
from raydt.streams.base import Skipped
from raydt.streams.deletion_log import LoggedDeletions
from raydt.streams.reader import END

#: Rows of a block for each update that a message may have: a key gets the more rows of its own at once.
ROWS = 16


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """Consecutive rows of a source, of any keys; in the place of :class:`~raydt.examples.updates.UpdateBatch`."""

    start: int  #: Number of the first row.
    rows: Rows
    due: Due | None = None  #: Deletions of a log that take effect by the end of these rows.
    every: int = 0
    warmup: int = 0
    barrier: Barrier | None = None  #: A snapshot is wanted once this batch is applied.

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def stop(self) -> int:
        """Number of the row after the last one."""
        return self.start + len(self.rows)

    def before(self, row: int) -> KeyedBatch:
        """Return the part of the batch before a row."""
        return self.cut(row)[0]

    def cut(self, row: int) -> tuple[KeyedBatch, KeyedBatch | None]:
        """Return the parts of the batch before a row and from it on; None without any."""
        if self.stop <= row:
            return self, None
        place, first = max(0, row - self.start), None if self.due is None else self.due.after <= row
        parts = (
            (self.start, _part(self.rows, 0, place), first),
            (self.start + place, _part(self.rows, place, len(self.rows)), None if first is None else ~first),
        )
        before, since = (
            replace(self, start=start, rows=rows, due=None if self.due is None else self.due[due])
            for start, rows, due in parts
        )
        return before, since


class KeyedStream:
    """Blocks of rows of a source that names a column of keys.

    Under ``skip_bad``, bad rows go to their key, which passes over them; one without a key is passed over here.
    Otherwise a batch ends before the first bad row, whose InputError is the next step. So it is with deletions of a
    ``log`` whose id no row before has had.
    """

    delayed = False

    def __init__(self, source: FileSource, *, skip_bad: bool, log: LoggedDeletions | None = None) -> None:
        self.source, self.times, self._skip_bad = source, source.times(), skip_bad
        self._owners = None if log is None else LogOwners(log)
        self._row = 0
        self._skipped: list[Skipped] = []
        self._rows: Generator[Rows, None, None] | None = None

    def batches(self, size: int) -> Iterator[KeyedBatch]:
        """Yield blocks of at most :data:`ROWS` times ``size`` rows, from the current position on."""
        self._close()
        size *= ROWS
        self._rows, chunk = self.source.rows(self._row), None
        for chunk in self._rows:
            for begin in range(0, len(chunk), size):
                rows = _part(chunk, begin, min(len(chunk), begin + size))
                error = None
                if rows.bad and not self._skip_bad:
                    first = min(rows.bad)
                    error, rows = rows.bad[first], _part(rows, 0, first)
                if len(rows):
                    yield from self._yielded(rows, self._row + len(rows))
                if error is not None:
                    raise error
        if self._owners is not None and chunk is not None and self._owners.done < len(self._owners.log.after):
            yield from self._yielded(_part(chunk, 0, 0), END)

    def _yielded(self, rows: Rows, stop: int) -> Iterator[KeyedBatch]:
        """Yield the next rows with the deletions due by ``stop``; the rows before a deletion of an unknown id."""
        batch, owners, error = KeyedBatch(self._row, rows), self._owners, None
        if owners is not None:
            due, first = owners.take(rows, stop), owners.done
            unknown = np.flatnonzero(due.key < 0).tolist()
            if unknown and not self._skip_bad:
                place = unknown[0]
                error, owners.done = owners.unknown(due, place), first - len(due) + place
                batch, due = batch.before(int(due.after[place])), due[:place]
            elif unknown:
                for place in unknown:
                    why = message_of(owners.unknown(due, place).without_skipping())
                    self._skipped.append(Skipped(-1, owners.log.name, why))
                due = due[due.key >= 0]
            batch = replace(batch, due=due)
        self._row += len(batch)
        self._note_without_key(batch.rows)
        yield batch
        if error is not None:
            raise error

    def _note_without_key(self, rows: Rows) -> None:
        """Pass over bad rows that belong to no key."""
        assert rows.key is not None
        for place in sorted(rows.bad):
            if rows.key[place] < 0:
                number, error = int(rows.row[place]), rows.bad[place]
                why = message_of(error.without_skipping())
                self._skipped.append(Skipped(number, self.source.where(number)[0], why))

    @property
    def deletions(self) -> int:
        """Entries of the deletion log so far."""
        return 0 if self._owners is None else self._owners.done

    @property
    def log(self) -> KeyLog | None:
        """How the deletion log is called, without its entries; None of a stream without one."""
        log = None if self._owners is None else self._owners.log
        return None if log is None else KeyLog(log.column, log.name, log.described)

    def take_skipped(self) -> list[Skipped]:
        """Bad rows without a key since the last call."""
        skipped, self._skipped = self._skipped, []
        return skipped

    def length(self) -> int | None:
        """Rows of the source, where their number is known."""
        return self.source.n_rows

    def inputs(self) -> dict[str, Any]:
        """The deletion log, if there is one."""
        return {} if self._owners is None else {"deletion_log": self._owners.log.described}

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it of a row of the source."""
        return self.source.where(row)

    def state(self) -> dict[str, Any]:
        """Position and dictionaries of the whole source."""
        n_classes = len(self.source.classes)
        state = {"seq": self._row, "row": self._row, "n_classes": n_classes, "source": self.source.state(self._row)}
        return state if self._owners is None else {**state, **self._owners.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self._close()
        self._row, self._skipped = int(state["row"]), []
        self.source.restore(state["source"])
        if self._owners is not None:
            self._owners.restore(state, len(self.source.keys))

    def _close(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()


def _part(rows: Rows, begin: int, end: int) -> Rows:
    """Return consecutive rows with the bad ones among them."""
    part = rows[begin:end]
    part.bad.update((place - begin, error) for place, error in rows.bad.items() if begin <= place < end)
    return part
