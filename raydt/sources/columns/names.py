"""Error for an option that names a missing column."""

from __future__ import annotations

import difflib
import re

import pyarrow as pa

from raydt.errors import InputError
from raydt.redaction import marked, quoted_columns

#: A name that looks like this is a value: the file has no header.
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
#: How many names are looked through for one like the missing one.
_COMPARED = 10_000


def unknown_column(name: str, option: str, schema: pa.Schema, file: str) -> InputError:
    """The error of ``option``, with what the name could have been."""
    near = difflib.get_close_matches(name, schema.names[:_COMPARED], 1)
    hint = marked(f"Did you mean {near[0]!r}? ", "") if near else ""
    if {"before", "after", "op"} <= set(schema.names):
        hint = "If it is a field of before and after, set source.envelope: debezium. "
    elif f"/{name}=" in file:
        hint = "It is only in the names of folders, which are not read: write it into the files. "
    elif any(_NUMBER.fullmatch(other) for other in schema.names[:_COMPARED]):
        hint = "Is the row of column names missing? "
    return InputError(
        f"{option} names a column that does not exist",
        file=file,
        column=name,
        remedy=f"{hint}The columns are {quoted_columns(schema.names)}",
    )
