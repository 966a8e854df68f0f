"""Texts that are one JSON object each, to rows of a schema.

Invariant: a text makes one row, whatever is in it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pyarrow as pa

from raydt.messages import Message, message
from raydt.redaction import quoted


def json_rows(texts: Sequence[bytes], schema: pa.Schema) -> tuple[pa.RecordBatch, dict[int, Message]]:
    """Return rows, and why texts are no rows of these types, by position: their rows are null."""
    import pyarrow.json as pajson  # needed for what is read only: a slow import

    joined = b"\n".join(texts)
    if joined.count(b"\n") == len(texts) - 1 and all(text[:1] == b"{" for text in texts):
        parse = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        try:
            reading = pajson.ReadOptions(use_threads=False, block_size=len(joined) + 1)
            table = pajson.read_json(io.BytesIO(joined), reading, parse).combine_chunks()
            if len(table) == len(texts):
                return table.select(schema.names).to_batches()[0], {}
        except pa.ArrowException:
            pass  # one of them is bad: each is looked at
    parts, flaws = [], {}
    for place, text in enumerate(texts):
        try:
            parts.append(pa.RecordBatch.from_pylist([{**json.loads(text)}], schema))
        except (ValueError, TypeError, pa.ArrowException):
            parts.append(pa.RecordBatch.from_pylist([{}], schema))
            flaws[place] = message("live.no_row", text=quoted(text.decode(errors="replace")))
    whole = pa.Table.from_batches(parts, schema).combine_chunks()
    return (whole.to_batches() or [pa.RecordBatch.from_pylist([], schema)])[0], flaws
