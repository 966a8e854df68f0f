"""A cursor over the good rows of a source: reads chunks ahead, hands out any number of rows at a time.

Invariant: what was read ahead does not show. ``position`` is the row after the last one handed out or passed, and a
bad row counts as passed only when a later row is handed out or the source has ended. Rows that are no update are
dropped and leave no trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

import numpy as np

from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Ints
from raydt.encoding.operations import IGNORED, RETRACTION
from raydt.errors import InputError, message_of
from raydt.examples.targets import no_targets
from raydt.examples.updates import INSERT, UPDATE
from raydt.sources.base import Rows, Source
from raydt.streams.absent import Spoilt
from raydt.streams.base import Skipped

#: A row number after every row.
END = int(np.iinfo(np.int64).max)

_NO_ROWS = np.empty(0, dtype=np.int64)


class RowReader:
    """Reads good rows of ``source`` from row ``start`` on.

    With ``skip_bad``, bad rows are passed over and recorded in ``skipped``, but for those before row ``recorded``,
    which have a record; else reading ends before the first one. A bad update of a change log is recorded, and handed
    out as a ``RETRACTION`` of its old row. Rows ``without``, ascending, are passed over.
    ``position`` is the row after the last one handed out or, at the end of the source, passed over.
    """

    def __init__(self, source: Source, start: int, skip_bad: bool, without: Ints = _NO_ROWS, recorded: int = 0) -> None:
        self._source, self._skip_bad = source, skip_bad
        self._without, self._recorded = without, recorded
        self.position = start
        self.skipped: list[Skipped] = []
        self._chunks: deque[Rows] = deque()
        self._used = 0  # rows of the first chunk that were handed out
        self._buffered = 0
        self._bad: deque[tuple[Skipped, Spoilt | None]] = deque()
        self._spoilt: list[Spoilt] = []
        self._rows: Iterator[Rows] | None = None
        self._divided = False  # whether the first rows may come without features
        self._read_to = start
        self._error: InputError | None = None
        d, width = len(source.features.names), source.features.sparse
        self._none = Rows(
            _NO_ROWS,
            np.empty((0, d)),
            no_targets(0, source.target_dtype),
            _NO_ROWS,
            sparse=SparseRows.empty(width) if width else None,
            names=np.empty(0, dtype=np.object_) if source.id_kind == "text" else None,
        )

    def available(self, n: int) -> int:
        """How many of the next ``n`` rows can be taken: less before a bad row and at the end of the source.

        Also less where rows without features, which shards have read themselves, end or begin: none if ``n`` is 0.
        """
        while self._buffered < n and self._read_to != END and self._error is None:
            if self._rows is None:
                self._rows = self._source.rows(self._read_to)
            try:
                chunk = next(self._rows, None)
            except InputError as error:  # the file breaks off: what was read before it is still good
                self._error = error
                break
            if chunk is None and not self._source.complete:  # more may come, but not now
                self._rows = None
                break
            if chunk is None:
                self._read_to = END
            elif len(chunk):
                self._append(chunk)
        return min(n, self._alike(n))

    def begin_with(self, rows: Iterator[Rows]) -> None:
        """Take the rows of the source, from the first one on, from here; nothing has been read yet."""
        self._rows, self._divided = rows, True

    def _alike(self, n: int) -> int:
        """How many of the first ``n`` rows at hand have features, or have none, as the first has."""
        alike = -self._used
        for chunk in self._chunks:
            if alike >= n or chunk.has_features != self._chunks[0].has_features:
                break
            alike += len(chunk)
        return max(0, alike)

    def _append(self, chunk: Rows) -> None:
        rows = chunk
        self._read_to = chunk.start + len(chunk)
        if chunk.bad and not self._skip_bad:
            first = min(chunk.bad)
            self._error = chunk.bad[first]
            self._read_to = chunk.start + first
            rows = rows[:first]
        begin, end = np.searchsorted(self._without, (chunk.start, chunk.start + len(rows)))
        passed = self._without[begin:end]
        if len(passed) or (chunk.bad and self._skip_bad):
            good = np.ones(len(rows), dtype=np.bool_)
            good[passed - chunk.start] = False
            op = None if rows.op is None else rows.op.copy()
            for place in sorted(chunk.bad) if self._skip_bad else ():
                good[place] = False
                row = chunk.start + place
                if row >= self._recorded:
                    why = message_of(chunk.bad[place].without_skipping())
                    skipped, spoilt = Skipped(row, self._source.where(row)[0], why), None
                    if op is not None and op[place] == INSERT:
                        spoilt = Spoilt(row, rows.id[place].item() if rows.names is None else rows.names[place])
                    self._bad.append((skipped, spoilt))
                if op is not None and op[place] == UPDATE:
                    op[place], good[place] = RETRACTION, True
            rows = (rows if op is None else replace(rows, op=op))[good]
        if rows.op is not None and (rows.op == IGNORED).any():
            rows = rows[rows.op != IGNORED]
        if len(rows):
            self._chunks.append(rows)
            self._buffered += len(rows)

    def horizon(self, k: int) -> int:
        """Return the row before which everything is known after ``k`` more rows, the largest int64 at the end."""
        if k >= self._buffered:
            return self._read_to
        k += self._used
        for chunk in self._chunks:
            if k < len(chunk):
                break
            k -= len(chunk)
        return int(chunk.row[k])

    def peek(self, k: int) -> Rows:
        """The next ``k`` rows, which must be available, without handing them out. Views where they lie in one chunk."""
        if not k:
            return self._none
        parts = []
        begin = self._used
        for chunk in self._chunks:
            parts.append(chunk[begin : begin + k])
            k -= len(parts[-1])
            begin = 0
            if not k:
                break
        return Rows.joined(parts)

    def take(self, k: int) -> Rows:
        """Hand out the next ``k`` rows, which must be available."""
        taken = self.peek(k)
        self._buffered -= k
        self._used += k
        while self._chunks and self._used >= len(self._chunks[0]):
            self._used -= len(self._chunks.popleft())
        if k:
            self.position = int(taken.row[-1]) + 1
            self._pass_bad(self.position)
        return taken

    def take_spoilt(self) -> list[Spoilt]:
        """Return the bad insertions passed over since the last call."""
        spoilt, self._spoilt = self._spoilt, []
        return spoilt

    def spoilt_ahead(self) -> list[Spoilt]:
        """Return the bad insertions that :meth:`take_spoilt` has still to give, as far as rows were read ahead."""
        return [*self._spoilt, *(spoilt for _, spoilt in self._bad if spoilt is not None)]

    def skip(self, error: InputError) -> None:
        """Pass over the next row, which must be available, and record it as bad."""
        row = int(self.take(1).row[0])
        if row >= self._recorded:
            self.skipped.append(Skipped(row, self._source.where(row)[0], message_of(error.without_skipping())))

    def with_features(self, read_from: Callable[[int], RowReader]) -> RowReader:
        """Return a reader of the same rows in which none lacks features: this one, or one that reads them again."""
        if not self._divided:
            return self
        self.close()
        again = read_from(self.position)
        again.skipped, again._spoilt = self.skipped, self._spoilt
        return again

    def close(self) -> None:
        """Let go of the source, which can then be restored; what was read ahead of the stream stays."""
        rows, self._rows = self._rows, None
        if isinstance(rows, Generator):
            rows.close()

    def finish(self) -> None:
        """Say why no row is available: return at the end of the source, raise the error of a bad row."""
        if self._error is not None:
            raise self._error
        self._pass_bad(END)

    def _pass_bad(self, before: int) -> None:
        while self._bad and self._bad[0][0].row < before:
            skipped, spoilt = self._bad.popleft()
            self.skipped.append(skipped)
            self._spoilt += [] if spoilt is None else [spoilt]
            self.position = max(self.position, self.skipped[-1].row + 1)  # a resume from here does not meet it again
