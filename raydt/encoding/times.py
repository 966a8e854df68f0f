"""Event times: which column types are taken, and their values as int64.

Invariant: a time is at most :data:`LARGEST_TIME` in size, so that adding or taking away a duration of that size cannot
overflow. Timestamps and dates are microseconds since 1970-01-01 UTC, rounded down (a timestamp without a zone is taken
as UTC); integers are as they are, in the user's own unit.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.types import Bools, Ints
from raydt.encoding.columns import in_words, is_text, parse
from raydt.errors import InputError
from raydt.messages import message

#: 146,000 years in microseconds.
LARGEST_TIME = 2**62

#: Of a row without a time, where nobody requires one: no time is earlier.
NO_TIME = -LARGEST_TIME

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


class TimeColumn(NamedTuple):
    """The column of event times: its name, and whether it holds points in time or integers of the user's unit."""

    name: str
    kind: Literal["timestamp", "integer"]


def time_column(field: pa.Field, file: str) -> TimeColumn:
    """Return a column as one of event times; one whose type cannot be used is an InputError with the remedy."""
    kind = field.type
    if not (field.metadata or {}).get(b"ARROW:extension:name"):
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return TimeColumn(field.name, "timestamp")
        if pa.types.is_integer(kind):
            return TimeColumn(field.name, "integer")
    said = message(f"columns.{'text_times' if is_text(kind) else 'not_times'}", kind=in_words(kind))
    raise InputError(said, file=file, column=field.name)


def read_as(kind: pa.DataType) -> pa.DataType:
    """Return the type as which text in a column of times is read, whatever the fineness of its first rows."""
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None)


def kind_of_times(texts: pa.Array) -> pa.DataType | None:
    """Return the type as which most of the first 1,000 texts can be read as times; None if most are no times."""
    texts = texts[:1000]
    kinds = (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
    integers, *moments = [len(texts) - parse(texts, kind)[0].null_count for kind in kinds]
    if 2 * max(integers, sum(moments)) <= len(texts):
        return None
    return kinds[0] if integers > sum(moments) else kinds[1 + moments.index(max(moments))]


def times(column: pa.Array) -> tuple[Ints, Bools | None]:
    """Return the values of a column of times, 0 where null or too large, and the mask of those too large, if any."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1_000, None
    factor = 1
    if pa.types.is_date32(kind):
        column, factor = pc.cast(pc.cast(column, pa.int32()), pa.int64()), 86_400_000_000
    elif pa.types.is_date64(kind):
        column, factor = pc.cast(column, pa.int64()), 1_000
    elif pa.types.is_timestamp(kind):
        column, factor = pc.cast(column, pa.int64()), _MICROSECONDS[kind.unit]
    raw = column.fill_null(0).to_numpy(zero_copy_only=False)
    limit = LARGEST_TIME // factor
    outside = (raw > limit) | (raw < -limit) if raw.dtype.kind == "i" else raw > limit
    values = np.where(outside, 0, raw).astype(np.int64) * factor
    return values, np.asarray(outside, dtype=np.bool_) if outside.any() else None
