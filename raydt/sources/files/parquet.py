"""Parquet files, read by row group: a seek decodes only the row groups from the wanted one on.

Times stored as INT96 are read in microseconds: nanoseconds in 64 bits, Arrow's default, wrap after the year 2262.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raydt.sources.files.datafile import DataFile


class ParquetDataFile(DataFile):
    """One Parquet file. Its footer gives schema, rows and row groups."""

    kind = "parquet"
    suffixes = (".parquet", ".pq", ".parq")
    seekable = True

    def _open(self) -> None:
        with self.open_input() as source, _opened(source) as file:
            self.schema = file.schema_arrow
            meta = file.metadata
            groups = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
        self._ends = np.cumsum(groups, dtype=np.int64)
        self.n_rows = sum(groups)

    def _batches(self, columns: list[str], start: int, size: int) -> Iterator[pa.RecordBatch]:
        row = start
        try:
            for batch in self._read(columns, row, size, len(self._ends)):
                yield batch
                row += batch.num_rows
        except (pa.ArrowException, OSError):  # one row group at a time gives what lies before the damage
            yield from self._read(columns, row, size, 1)

    def _read(self, columns: list[str], start: int, size: int, together: int) -> Iterator[pa.RecordBatch]:
        """Batches from row ``start`` on, none of which crosses from one lot of ``together`` row groups to another."""
        first = int(np.searchsorted(self._ends, start, side="right"))
        skip = start - (int(self._ends[first - 1]) if first else 0)
        groups = range(first, len(self._ends))
        with self.open_input() as source, _opened(source) as file:
            for begin in range(0, len(groups), together):
                lot = list(groups[begin : begin + together])
                for batch in file.iter_batches(size, row_groups=lot, columns=columns, use_threads=self.in_threads):
                    if skip < batch.num_rows:
                        yield batch.slice(skip)
                    skip = max(0, skip - batch.num_rows)


def _opened(source: Any) -> pq.ParquetFile:
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
