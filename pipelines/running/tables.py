"""The tables of a run folder: column buffers that become Parquet parts.

Memory is bounded: a table holds at most :data:`ROWS_PER_GROUP` rows before they are written as one row group.
A part is hidden (its name begins with a dot, which dataset readers pass over) until it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.run_folder import RunFolder

ROWS_PER_GROUP = 65_536
_BATCHES_PENDING = 512

METRICS = pa.schema(
    [(name, pa.int64()) for name in ("seq", "inserts", "deletes", "predictions", "active", "nodes", "leaves", "depth")]
    + [(name, pa.int64()) for name in ("rebuilds", "rebuilt_rows", "rounds", "bytes_exchanged")]
    + [(name, pa.float64()) for name in ("seconds", "accuracy", "f1", "macro_f1", "kappa", "window_accuracy")]
    + [(name, pa.float64()) for name in ("no_change", "majority", "window_no_change", "window_majority")]
)
QUARANTINE = pa.schema(
    [("seq", pa.int64()), ("source_row", pa.int64()), ("file", pa.string()), ("reason", pa.string())]
)


def predictions_schema(text_ids: bool) -> pa.Schema:
    """Columns of the predictions; ids are the user's."""
    kind = pa.string() if text_ids else pa.int64()
    return pa.schema([("seq", pa.int64()), ("id", kind), ("prediction", pa.string()), ("truth", pa.string())])


class TableWriter:
    """One table of a run, written by one owner.

    Parameters
    ----------
    folder : RunFolder
    name : str
        Name of the table's folder.
    schema : pyarrow.Schema, optional
        Taken from the first columns if not given. The file appears with the first row.
    """

    def __init__(self, folder: RunFolder, name: str, schema: pa.Schema | None = None) -> None:
        self._folder, self._name, self._schema = folder, name, schema
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def append(self, columns: Mapping[str, Any]) -> None:
        """Add rows: arrays or lists of one length, by column name."""
        if self._schema is None:
            batch = pa.RecordBatch.from_pydict(dict(columns))
            self._schema = batch.schema
        else:
            arrays = [pa.array(columns[field.name], type=field.type) for field in self._schema]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if batch.num_rows:
            self._pending.append(batch)
            self._rows += batch.num_rows
        if self._rows >= ROWS_PER_GROUP:
            self._flush()
        elif len(self._pending) >= _BATCHES_PENDING:
            # Into one: many small batches weigh more than their rows, and each may be a view of something large.
            self._pending = pa.Table.from_batches(self._pending).combine_chunks().to_batches()

    def close(self) -> None:
        """Write what is pending and let the part appear."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._folder.filesystem.move(self._path(".part-00000.parquet"), self._path("part-00000.parquet"))

    def _flush(self) -> None:
        if not self._pending:
            return
        if self._writer is None:
            self._folder.filesystem.create_dir(self._folder.path(self._name), recursive=True)
            self._writer = pq.ParquetWriter(
                self._path(".part-00000.parquet"),
                self._schema,
                filesystem=self._folder.filesystem,
                compression="zstd",
            )
        self._writer.write_table(pa.Table.from_batches(self._pending, schema=self._schema))
        self._pending, self._rows = [], 0

    def _path(self, file: str) -> str:
        return self._folder.path(f"{self._name}/{file}")
