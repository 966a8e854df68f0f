"""The rows of another source, read and encoded once, for any number of streams, also in other processes.

Invariant: a stream over it gives the updates, names and places that it gives over the original. What is handed out is
a copy: the stored chunks may lie in memory that processes share, which is read-only, and Numba compiles a kernel once
more for a read-only array.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from raydt.encoding.times import TimeColumn
from raydt.errors import ConfigError, InputError
from raydt.messages import message
from raydt.sources.base import Rows, Source
from raydt.sources.identity import Identity


class StoredSource:
    """All rows of ``source``, read to its end; satisfies :class:`raydt.sources.base.Source`.

    It can be sent to other processes. ``tokens``, of large_string, is what the indices of the sparse features stand
    for; empty where they are numbers themselves. Memory: 8 bytes per cell, 4 per sparse feature that is 1 and 20 per
    row, beside the strings of text ids and tokens.
    """

    complete = True

    def __init__(self, source: Source) -> None:
        self.chunks = tuple(chunk for chunk in source.rows() if len(chunk))
        self.rules = source.rules
        self.features, self.id_kind, self.id_column = source.features, source.id_kind, source.id_column
        self.subject_column, self.subject_kind = source.subject_column, source.subject_kind
        self.is_changelog = source.is_changelog
        self.has_labels, self.known_classes = source.has_labels, source.known_classes
        self.target_dtype = source.target_dtype
        self.classes, self.positive = source.classes, source.positive
        self.n_rows = sum(len(chunk) for chunk in self.chunks)
        self._identity = source.identity()
        # A stream that was made over the original has asked it for times already.
        self._column = source.times() if any(chunk.ts is not None for chunk in self.chunks) else None
        self._places = [place for chunk in self.chunks for place in _places(source, chunk)]
        self.tokens = pa.array(
            source.state().get("categories", {}).get(self.features.sparse_column, []), pa.large_string()
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(int(column.nbytes) for chunk in self.chunks for column in chunk.columns().values())

    def first_bad(self) -> InputError | None:
        """Return the error of the first bad row, if there is one."""
        return next((chunk.bad[min(chunk.bad)] for chunk in self.chunks if chunk.bad), None)

    def count_rows(self) -> int:
        """Total number of rows."""
        return self.n_rows

    def times(self) -> TimeColumn | None:
        """The column of times, if the original was asked for it."""
        return self._column

    def require_ts(self) -> TimeColumn:
        """The column of times, which the original must have been asked for before it was stored."""
        if self._column is None:
            raise ConfigError(message("sources.stored_times"))
        return self._column

    def identity(self) -> Identity:
        """That of the original."""
        return self._identity

    def rows(self, start: int = 0) -> Iterator[Rows]:
        """Chunks of rows from row ``start`` on, copied."""
        for chunk in self.chunks:
            cut = max(0, start - chunk.start)
            if cut < len(chunk):
                copies = {name: column[cut:].copy() for name, column in chunk.columns().items()}
                bad = {position - cut: error for position, error in chunk.bad.items() if position >= cut}
                yield Rows(**copies, bad=bad)

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it (zero-based), as the original has them. O(log n)."""
        start, file, first = self._places[max(0, bisect_right(self._places, row, key=lambda place: place[0]) - 1)]
        return file, first + row - start

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Nothing to keep: every row is encoded."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


def _places(source: Source, chunk: Rows) -> list[tuple[int, str, int]]:
    """Where a chunk's rows lie: (row, file, row there) of the first of each run of rows that follow each other."""
    file, first = source.where(chunk.start)
    if source.where(chunk.start + len(chunk) - 1) == (file, first + len(chunk) - 1):
        return [(chunk.start, file, first)]
    return [(row, *source.where(row)) for row in range(chunk.start, chunk.start + len(chunk))]
