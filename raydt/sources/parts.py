"""Which columns of the rows play which part: label, id, operation, event time, or feature."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from raydt.errors import InputError
from raydt.messages import message
from raydt.redaction import marked, quoted_columns

if TYPE_CHECKING:
    from raydt.sources.file_options import FileOptions

#: What pandas calls an index without a name in a file: row numbers of a frame that was filtered, say.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
#: A name that looks like this is a value: the file has no header.
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
#: How many names are looked through for one like the missing one.
_COMPARED = 10_000


@dataclass(frozen=True, slots=True)
class ColumnParts:
    """The part of each used column."""

    used: dict[str, str]  #: For each column that is not a feature, the option that names it, such as ``source.label``.
    features: list[str]  #: The columns that are features.


def _unknown_column(name: str, option: str, schema: pa.Schema, file: str) -> InputError:
    """The error of ``option``, with what the name could have been."""
    near = difflib.get_close_matches(name, schema.names[:_COMPARED], 1)
    what = "misspelt" if near else "unknown"
    if {"before", "after", "op"} <= set(schema.names):
        what = "in_envelope"
    elif f"/{name}=" in file:
        what = "of_folders"
    elif any(_NUMBER.fullmatch(other) for other in schema.names[:_COMPARED]):
        what = "no_names"
    shown = {"columns": quoted_columns(schema.names), "near": marked(repr("".join(near)), "another one")}
    return InputError(message(f"columns.{what}", option=option, **shown), file=file, column=name)


def find_parts(options: FileOptions, schema: pa.Schema, file: str) -> ColumnParts:
    """Find the part of each column; InputError if one is missing, is there twice, or plays two parts."""
    columns = Counter(schema.names)
    if len(columns) < len(schema.names):
        name = max(columns, key=columns.__getitem__)
        raise InputError(message("columns.repeated"), file=file, column=name)
    wanted = {
        "source.label": options.label,
        "source.id": options.id,
        "source.subject": options.subject,
        "source.key": options.key,
        "source.weight": options.weight,
        "source.op": options.op,
        "source.ts": options.ts,
    }
    used: dict[str, str] = {}
    for option, named in wanted.items():
        if named is None:
            continue
        if named not in columns:
            raise _unknown_column(named, option, schema, file)
        if named in used:
            raise InputError(message("columns.two_parts", first=used[named], second=option), file=file, column=named)
        used[named] = option
    for option, names in (("source.features", options.features or ()), ("source.exclude", options.exclude)):
        for name in names:
            if name not in columns:
                raise _unknown_column(name, option, schema, file)
            if name in used:
                said = message("columns.two_parts", first=used[name], second=option)
                raise InputError(said, file=file, column=name)
    features = options.features
    if features is None:
        others = used.keys() | set(options.exclude)
        features = [name for name in columns if name not in others and not _PANDAS_INDEX.fullmatch(name)]
    return ColumnParts(used, features)


def check_features(features: list[str], sparse: str | None, options: FileOptions, schema: pa.Schema, file: str) -> None:
    """Raise an InputError if there is no feature, one without a name, or a categorical one is missing."""
    known = frozenset(features)
    for name in options.categorical:
        if name == sparse:
            raise InputError(message("columns.categorical_lists"), file=file, column=name)
        if name not in known:
            raise InputError(message("columns.not_categorical"), file=file, column=name)
    if options.features is None and "" in features:
        raise InputError(message("columns.nameless", place=schema.names.index("")), file=file)
    if not features:
        raise InputError(message("columns.no_features"), file=file)
