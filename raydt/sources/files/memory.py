"""A table in memory, read as a file is: what a caller passes in place of a path."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pyarrow as pa

from raydt.sources.files.datafile import DataFile, Place


class TableInMemory(DataFile):
    """An Arrow table; ``name`` is what messages call it. It has no path, so that nobody can read it again later."""

    kind = "arrow"
    suffixes = ()
    seekable = True

    def __init__(self, table: pa.Table, name: str) -> None:
        self._table = table
        super().__init__(Place(None, name, name, table.nbytes))

    def _open(self) -> None:
        self.schema, self.n_rows = self._table.schema, self._table.num_rows

    def _batches(self, columns: list[str], start: int, size: int) -> Iterator[pa.RecordBatch]:
        here = [name for name in self._table.column_names if name in columns]
        yield from self._table.select(here).slice(start).to_batches(size)

    def _ends_of_file(self) -> tuple[bytes, bytes]:
        return b"", b""

    def require_unchanged(self) -> None:
        """Nobody changes an Arrow table."""

    def content_hash(self) -> str:
        """Return the SHA-256 of the table as an Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            stream.write_table(self._table)
        return "sha256:" + hashlib.sha256(sink.getvalue()).hexdigest()
