"""Inputs of ``update``: a path, or ids, a data frame or an Arrow table in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from raydt.errors import InputError
from raydt.estimators.frames import as_table
from raydt.messages import message
from raydt.sources.files.datafile import DataFile
from raydt.sources.files.memory import TableInMemory
from raydt.streams.deletion_log import LogKeys

#: What ``delete`` and ``insert`` of an update may be.
Input = str | Path | Any


def rows_given(given: Input) -> str | DataFile:
    """Return the path of rows, or a frame or table as a file; a named index is a column. InputError for others."""
    if isinstance(given, str | os.PathLike):
        return str(given)
    table = _table(given)
    if table is None:
        raise InputError(message("updates.no_table", name="insert", type=type(given).__name__))
    return TableInMemory(table, "insert")


def deletions_given(given: Input, keys: LogKeys) -> str | DataFile:
    """Return the path of a list of deletions, or what was given in memory as a file; InputError if neither."""
    if isinstance(given, str | os.PathLike):
        return str(given)
    table = pa.table({name: _column(values) for name, values in given.items()}) if isinstance(given, Mapping) else None
    table = _table(given) if table is None else table
    if table is None:
        name = getattr(given, "name", None)
        name = name if name in (*keys.of_ids, *keys.of_subjects) else "id"
        table = pa.table({name: _column(given)})
    return TableInMemory(table, "delete")


def _table(given: Any) -> pa.Table | None:
    """Return a frame as a table, its named index as columns; None if it is none."""
    names = getattr(getattr(given, "index", None), "names", None) or ()
    named = [name for name in names if name is not None]
    if hasattr(given, "columns") and named:
        given = given.reset_index(level=named)
    return as_table(given)


def _column(values: Any) -> pa.Array:
    """Return ids in memory as a column of integers or text; UUIDs are text."""
    if isinstance(values, pa.ChunkedArray | pa.Array):
        return values
    if isinstance(values, bytes) or not isinstance(values, Iterable):
        values = np.atleast_1d(np.asarray(values))
    listed = [value.item() if isinstance(value, np.generic) else value for value in values]
    plain = [str(value) if type(value).__name__ == "UUID" else value for value in listed]
    whole = [int(v) if isinstance(v, float) and v.is_integer() and abs(v) < 2**53 else v for v in plain]
    try:
        return pa.array(whole)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(message("updates.no_ids_in", reason=str(error)), file="delete") from error
