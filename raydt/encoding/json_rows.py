"""Texts that are one JSON object each, to rows of a schema.

Invariant: a text makes one row, whatever is in it or in the others.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from raydt.encoding.columns import LARGEST_INTEGER
from raydt.messages import Message, message
from raydt.redaction import quoted


def json_rows(texts: Sequence[bytes], schema: pa.Schema) -> tuple[pa.RecordBatch, dict[int, Message]]:
    """Return rows, and why texts are no rows of these types, by position: their rows are null."""
    rows = _together(texts, schema)
    if rows is not None:
        return rows, {}
    parts, flaws = [], {}
    for place, text in enumerate(texts):
        row = _together([text], schema)
        if row is None:
            try:
                values = _fitting({**json.loads(text)}, pa.struct(list(schema)))
                row = pa.RecordBatch.from_pylist([values], schema)
            except (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException):
                row = pa.RecordBatch.from_pylist([{}], schema)
                flaws[place] = message("live.no_row", text=quoted(text.decode(errors="replace")))
        parts.append(row)
    return _one_batch(pa.Table.from_batches(parts, schema)), flaws


def _together(texts: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch | None:
    """Parse texts at once; None if Arrow does not find one row in each."""
    import pyarrow.json as pajson  # needed for what is read only: a slow import

    joined = b"\n".join(texts)
    # A text that ends with a brace is not completed by the next one, which begins with one.
    ends = all(text[:1] == b"{" and text[-1:] == b"}" for text in texts)
    if not ends or joined.count(b"\n") != len(texts) - 1:
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
    if pa.types.is_integer(kind) and isinstance(value, float):
        if not value.is_integer() or abs(value) >= LARGEST_INTEGER:  # which others round to, too
            raise ValueError(value)
        return int(value)
    return value


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return (table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)])[0]
