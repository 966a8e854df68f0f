"""Tables of Arrow as live sources hand them on: columns of plain types, rows in one order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa


class Files:
    """The files of a version of a table, by their paths: a dataset of pyarrow."""

    def __init__(self, whole: Any) -> None:
        self._whole, self._fragments = whole, {one.path: one for one in whole.get_fragments()}
        self.paths = self._fragments.keys()

    def scan(self, paths: Iterable[str], names: list[str]) -> Any:
        """Read the rows of some files, in the order of their paths, with the columns that there are."""
        import pyarrow.dataset as pads  # needed for what is read only: a slow import

        whole, fragments = self._whole, [self._fragments[path] for path in sorted(paths)]
        part = pads.FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)
        return part.scanner(columns=[name for name in names if name in whole.schema.names])


def with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a schema; null where it has none."""
    there, n = set(table.schema.names), len(table)
    columns = [table[one.name].cast(one.type) if one.name in there else pa.nulls(n, one.type) for one in schema]
    return pa.table(columns, names=schema.names)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a column is read: text is not a view, nor large."""
    return pa.string() if pa.types.is_string_view(kind) or pa.types.is_large_string(kind) else kind


def first_line(error: Exception) -> str:
    """What an error of a library says, in one line."""
    return next(iter(str(error).splitlines()), type(error).__name__)
