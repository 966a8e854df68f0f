"""Texts that are one JSON object each, to rows of a schema.

Invariant: a text makes one row, whatever is in it or in the others.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from raydt.arrays.types import Bools
from raydt.encoding.columns import LARGEST_INTEGER, numbers
from raydt.messages import Message, message
from raydt.redaction import quoted


def json_rows(texts: Sequence[bytes], schema: pa.Schema) -> tuple[pa.RecordBatch, dict[int, Message]]:
    """Return rows, and why texts are no rows of these types, by position: their rows have what fits."""
    rows = _together(texts, schema)
    if rows is not None:
        return rows, _rounded(rows, texts)
    parts, flaws = [], {}
    for place, text in enumerate(texts):
        row = _together([text], schema)
        if row is None:
            try:
                values = _fitting({**json.loads(text)}, pa.struct(list(schema)))
                row = pa.RecordBatch.from_pylist([values], schema)
            except (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException):
                row = pa.RecordBatch.from_pylist([sound_part(text, schema)], schema)
                flaws[place] = message("live.no_row", text=quoted(text.decode(errors="replace")))
        parts.append(row)
    rows = _one_batch(pa.Table.from_batches(parts, schema))
    return rows, _rounded(rows, texts) | flaws


def _rounded(rows: pa.RecordBatch, texts: Sequence[bytes]) -> dict[int, Message]:
    found = rounded_integers(rows, texts)
    return {
        place: message("live.rounded", column=column, text=quoted(texts[place].decode(errors="replace")))
        for place, column in found.items()
    }


def rounded_integers(rows: pa.RecordBatch | pa.Table, texts: Sequence[bytes]) -> dict[int, str]:
    """Return the column of numbers that has rounded an integer beyond 2**53, by the place of the row.

    ``rows`` were parsed from ``texts``; only texts with a number that large are looked at again.
    """
    suspects = [_large(rows.column(name)) for name in rows.schema.names]
    found = {}
    for place in np.flatnonzero(np.logical_or.reduce([np.zeros(len(texts), dtype=np.bool_), *suspects])).tolist():
        try:
            values = json.loads(texts[place])
        except (ValueError, RecursionError):
            continue
        if (column := next(_beyond(values, pa.struct(list(rows.schema))), None)) is not None:
            found[place] = column
    return found


def _large(column: pa.Array | pa.ChunkedArray) -> Bools:
    """Mask of the rows with a floating-point number, in a struct or not, that a larger integer may be rounded to."""
    found = np.zeros(len(column), dtype=np.bool_)
    if isinstance(column, pa.ChunkedArray):
        return np.concatenate([found[:0], *map(_large, column.chunks)])
    if pa.types.is_struct(column.type):
        return np.logical_or.reduce([found, *map(_large, column.flatten())])  # type: ignore[no-any-return]
    if pa.types.is_floating(column.type):
        with np.errstate(invalid="ignore"):
            found |= np.abs(numbers(column)) >= LARGEST_INTEGER
    return found


def _beyond(value: Any, kind: pa.DataType, name: str = "") -> Iterator[str]:
    """Yield the names of columns of floating-point numbers that a value, of ``kind``, has too large an integer for."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        for field in kind:
            yield from _beyond(value.get(field.name), field.type, field.name)
    elif pa.types.is_floating(kind) and isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        yield name


def sound_part(text: bytes, schema: pa.Schema) -> dict[str, Any]:
    """Return the values of a text that fit their columns, if it is an object: an operation and an id may be there."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return _sound(values, pa.struct(list(schema))) or {}


def _sound(value: Any, kind: pa.DataType) -> Any:
    """Return a value, or what of it fits a type; None if nothing does."""
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return None
        return {field.name: _sound(value[field.name], field.type) for field in kind if field.name in value}
    try:
        return pa.scalar(_fitting(value, kind), kind).as_py()
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return None


def _together(texts: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch | None:
    """Parse texts at once; None if Arrow does not find one row in each."""
    import pyarrow.json as pajson  # needed for what is read only: a slow import

    joined, between = b"\n".join(texts), len(texts) - 1
    # A text that ends with a brace is not completed by the next one, which begins with one.
    apart = joined[:1] == b"{" and joined[-1:] == b"}" and joined.count(b"}\n{") == between
    if not apart or joined.count(b"\n") != between:
        return None
    parse = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = pajson.ReadOptions(use_threads=False, block_size=len(joined) + 1)
    try:
        rows = _one_batch(pajson.read_json(io.BytesIO(joined), reading, parse).select(schema.names))
        rows.validate(full=True)  # texts are UTF-8
    except pa.ArrowException:
        return None
    return rows if len(rows) == len(texts) else None


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """Return a value for a column; ValueError if Arrow would make another number of it."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _fitting(value.get(field.name), field.type) for field in kind}
    if isinstance(value, bool) and not pa.types.is_boolean(kind):
        raise ValueError(value)
    if pa.types.is_integer(kind) and isinstance(value, float):
        if not value.is_integer() or abs(value) >= LARGEST_INTEGER:  # which others round to, too
            raise ValueError(value)
        return int(value)
    return value


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return (table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)])[0]
