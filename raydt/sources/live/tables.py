"""Tables of Arrow as live sources hand them on: files of a table, columns of plain types, rows in one order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import pyarrow as pa

from raydt.errors import InputError
from raydt.messages import message
from raydt.redaction import quoted


class TableFile(NamedTuple):
    """A Parquet file of a table, as the log of the table describes it."""

    path: str  #: Within the folder of the table.
    partition: Mapping[str, Any]  #: Values of partition columns: text, or of the type of the column. None: null.
    filled: Set[str] = frozenset()  #: Columns with at least one value, by the statistics of the log.


def scan(files: Iterable[TableFile], schema: pa.Schema, filesystem: Any, name: str) -> Iterator[pa.RecordBatch]:
    """Read the rows of files of the table ``name`` in the order of their paths; null where a file lacks a column.

    InputError if a file lacks a column that has values by the statistics of the log: read as null, the rows would be
    learned wrongly in silence.
    """
    import pyarrow.dataset as pads  # needed for what is read only: a slow import

    form = pads.ParquetFileFormat()
    for one in sorted(files, key=lambda file: file.path):
        fragment = form.make_fragment(one.path, filesystem, partition_expression=_fixed(one.partition, schema))
        lost = one.filled - {*fragment.physical_schema.names, *one.partition}
        for column in schema.names:
            if column in lost:
                raise InputError(message("live.lost_column", path=quoted(one.path), column=quoted(column)), file=name)
        # One row group at a time, each to its end. A scan that is broken off goes on reading in threads of Arrow; where
        # the filesystem is one in Python, these abort or block a process that ends meanwhile.
        for group in fragment.split_by_row_group():
            yield from pads.FileSystemDataset([group], schema, form, filesystem).to_table().to_batches()


def _fixed(partition: Mapping[str, Any], schema: pa.Schema) -> Any:
    """Return the values of the columns of a partition as an expression, by which pyarrow fills the columns."""
    import pyarrow.dataset as pads

    whole = pads.scalar(True)
    for name, value in partition.items():
        if name in schema.names:
            field, value = pads.field(name), _value(value, schema.field(name).type)
            whole = whole & (field == value if value.is_valid else field.is_null())
    return whole


def _value(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a partition in the type of its column; the log of a table has values as text."""
    if value in (None, ""):  # by the protocol of Delta, empty text is null, whatever the type
        return pa.scalar(None, kind)
    if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz and value[-1].isdigit():
        value += "Z"  # by the protocol of Delta, a time without a zone is one of UTC
    return pa.scalar(value).cast(kind)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a column is read: text is not a view, nor large."""
    return pa.string() if pa.types.is_string_view(kind) or pa.types.is_large_string(kind) else kind


def first_line(error: Exception) -> str:
    """Return the message of an error of a library, in one line."""
    return next(iter(str(error).splitlines()), type(error).__name__)
