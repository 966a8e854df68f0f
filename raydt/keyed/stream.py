"""The rows of a source in blocks, for models by key: what a run reads, numbers and goes back to.

Invariant: the state after a block is a function of the rows up to its end. What rows mean to a key (updates, codes,
windows) is the key's own (:mod:`raydt.keyed.members`); this stream numbers rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from raydt.errors import message_of
from raydt.exchange.snapshot import Barrier
from raydt.sources.base import Rows
from raydt.sources.file_source import FileSource
from raydt.streams.base import Skipped

#: Rows of a block for each update that a message may have: a key gets the more rows of its own at once.
ROWS = 16


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """Consecutive rows of a source, of any keys; in the place of :class:`~raydt.examples.updates.UpdateBatch`."""

    start: int  #: Number of the first row.
    rows: Rows
    every: int = 0
    warmup: int = 0
    barrier: Barrier | None = None  #: A snapshot is wanted once this batch is applied.

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def stop(self) -> int:
        """Number of the row after the last one."""
        return self.start + len(self.rows)


class KeyedStream:
    """Blocks of rows of a source that names a column of keys.

    Under ``skip_bad``, bad rows go to their key, which passes over them; one without a key is passed over here.
    Otherwise a batch ends before the first bad row, whose InputError is the next step.
    """

    delayed = False

    def __init__(self, source: FileSource, *, skip_bad: bool) -> None:
        self.source, self.times, self._skip_bad = source, source.times(), skip_bad
        self._row = 0
        self._skipped: list[Skipped] = []
        self._rows: Generator[Rows, None, None] | None = None

    def batches(self, size: int) -> Iterator[KeyedBatch]:
        """Yield blocks of at most :data:`ROWS` times ``size`` rows, from the current position on."""
        self._close()
        size *= ROWS
        self._rows = self.source.rows(self._row)
        for chunk in self._rows:
            for begin in range(0, len(chunk), size):
                rows = _part(chunk, begin, min(len(chunk), begin + size))
                error = None
                if rows.bad and not self._skip_bad:
                    first = min(rows.bad)
                    error, rows = rows.bad[first], _part(rows, 0, first)
                if len(rows):
                    start, self._row = self._row, self._row + len(rows)
                    self._note_without_key(rows)
                    yield KeyedBatch(start, rows)
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

    def take_skipped(self) -> list[Skipped]:
        """Bad rows without a key since the last call."""
        skipped, self._skipped = self._skipped, []
        return skipped

    def length(self) -> int | None:
        """Rows of the source, where their number is known."""
        return self.source.n_rows

    def inputs(self) -> dict[str, Any]:
        """No file other than the source."""
        return {}

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it of a row of the source."""
        return self.source.where(row)

    def state(self) -> dict[str, Any]:
        """Position and dictionaries of the whole source."""
        n_classes = len(self.source.classes)
        return {"seq": self._row, "row": self._row, "n_classes": n_classes, "source": self.source.state(self._row)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self._close()
        self._row, self._skipped = int(state["row"]), []
        self.source.restore(state["source"])

    def _close(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()


def _part(rows: Rows, begin: int, end: int) -> Rows:
    """Return consecutive rows with the bad ones among them."""
    part = rows[begin:end]
    part.bad.update((place - begin, error) for place, error in rows.bad.items() if begin <= place < end)
    return part
