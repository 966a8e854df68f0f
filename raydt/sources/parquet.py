"""Parquet files, read by row group: a seek decodes only the row groups from the wanted one on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raydt.sources.datafile import DataFile


class ParquetDataFile(DataFile):
    """One Parquet file. Its footer gives schema, rows and row groups."""

    kind = "parquet"
    suffixes = (".parquet", ".pq", ".parq")

    def _open(self) -> None:
        with self.open_input() as source, pq.ParquetFile(source) as file:
            self.schema = file.schema_arrow
            meta = file.metadata
            groups = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
        self._ends = np.cumsum(groups, dtype=np.int64)
        self.n_rows = sum(groups)

    def _batches(self, columns: list[str], start: int, size: int) -> Iterator[pa.RecordBatch]:
        first = int(np.searchsorted(self._ends, start, side="right"))
        skip = start - (int(self._ends[first - 1]) if first else 0)
        with self.open_input() as source, pq.ParquetFile(source) as file:
            groups = list(range(first, len(self._ends)))
            for batch in file.iter_batches(size, row_groups=groups, columns=columns):
                if skip < batch.num_rows:
                    yield batch.slice(skip)
                skip = max(0, skip - batch.num_rows)
