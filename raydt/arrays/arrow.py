"""Arrow columns of NumPy arrays and lists of text, and back, for which ``pyarrow`` itself would import pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from raydt.arrays.types import AnyArray, Bools


def arrow_column(
    values: pa.Array | AnyArray | Sequence[Any], kind: pa.DataType | None = None, mask: Bools | None = None
) -> pa.Array:
    """Return an Arrow array. Numbers are not copied; NaN is a number, None and values under ``mask`` are null."""
    if isinstance(values, pa.Array):
        return values if kind is None else values.cast(kind)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        valid = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
        buffers = [valid, pa.py_buffer(np.ascontiguousarray(values))]
        column = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)
        return column if kind is None else column.cast(kind)
    if isinstance(values, list) and kind == pa.string():
        builder = pa.lib.StringBuilder()
        builder.append_values(values)
        return builder.finish()
    return pa.array(values, kind, mask=mask)


def numpy_column(column: pa.ChunkedArray) -> AnyArray:
    """Return a column as ``to_numpy`` does: nulls of numbers are NaN."""
    array = column.combine_chunks()
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        values: AnyArray = array.to_numpy(zero_copy_only=False)
        return values
    valid, data = array.buffers()
    begin, end = array.offset, array.offset + len(array)
    kind = "f" if pa.types.is_floating(array.type) else "u" if pa.types.is_unsigned_integer(array.type) else "i"
    # The name of the dtype: old versions of Arrow import pandas to answer.
    values = np.frombuffer(data or b"", dtype=f"{kind}{array.type.bit_width // 8}")[begin:end]
    if array.null_count:
        values = np.where(np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[begin:end], values, np.nan)
    return values
