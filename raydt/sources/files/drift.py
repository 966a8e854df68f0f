"""Whether the files of a source agree: columns and the kinds of their values, over all files.

Invariant: a difference is accepted only if every value means the same under the agreed types as in its own file. So
order, width, nullability, dictionaries and whole numbers against fractions may differ; numbers against text may not.
A file without rows and a column without values agree with everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from raydt.encoding.columns import column_kind, id_kind, in_words, is_text
from raydt.encoding.indices import holds_indices
from raydt.encoding.times import time_column
from raydt.encoding.tokens import holds_tokens
from raydt.errors import InputError
from raydt.messages import message


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of one file."""

    file: str
    schema: pa.Schema
    untyped: frozenset[str]  #: Columns in which no value was seen, so that the type says nothing.
    empty: bool  #: Whether the file is known to have no rows.


@dataclass(frozen=True, slots=True)
class Agreement:
    """Columns of a source: those of its first file with rows, each as the first file that shows a value types it."""

    file: str  #: That first file.
    schema: pa.Schema
    origin: Mapping[str, str]  #: File that gave each column its type.
    untyped: frozenset[str]  #: Columns in which no file shows a value.


def agreement(files: Sequence[Columns]) -> Agreement:
    """Columns that all files of a source must agree with; O(files x columns)."""
    full = [file for file in files if not file.empty] or list(files[:1])
    first = full[0]
    fields, origin = [], {}
    for field in first.schema:
        typed = (f for f in full if f.schema.get_field_index(field.name) >= 0 and field.name not in f.untyped)
        giver = next(typed, first)
        place = giver.schema.get_field_index(field.name)
        fields.append(field if place < 0 else giver.schema.field(place))
        origin[field.name] = giver.file
    untyped = frozenset.intersection(*(file.untyped for file in full))
    return Agreement(first.file, pa.schema(fields), origin, untyped)


def require_agreement(file: Columns, agreed: Agreement, parts: Mapping[str, str], strict: bool) -> None:
    """Raise an InputError, with the remedy, if the columns of a file differ from those of the others.

    ``parts`` says what each column read is. With ``strict`` a column that the first file lacks is an error.
    """
    if file.empty:
        return
    here, there = dict.fromkeys(file.schema.names), set(agreed.schema.names)
    extra = [name for name in here if name not in there] if strict else []
    lacking = [name for name in parts if name not in here]
    for name in [*lacking, *extra]:
        what = "extra" if name not in parts else "lacking_feature" if parts[name] == "feature" else "lacking"
        raise InputError(message(f"columns.{what}", other=agreed.file), file=file.file, column=name)
    for name, part in parts.items():
        if name in file.untyped or agreed.origin[name] == file.file:
            continue
        ours, theirs = agreed.schema.field(name), file.schema.field(name)
        if _kind(ours, part, agreed.origin[name]) != _kind(theirs, part, file.file):
            kinds = {"kind": _described(theirs.type), "other_kind": _described(ours.type)}
            what = "drift_of_feature" if part == "feature" else "drift"
            said = message(f"columns.{what}", other=agreed.origin[name], **kinds)
            raise InputError(said, file=file.file, column=name)


def _kind(field: pa.Field, part: str, file: str) -> str:
    """Kind of a column's values, as far as it matters whether two files agree."""
    kind = field.type
    if part in ("id", "subject"):
        return id_kind(kind) or str(kind)
    if part == "ts":
        return time_column(field, file).kind
    if part == "feature" and holds_indices(kind):
        return "indices"
    if part == "feature" and holds_tokens(kind):
        return "tokens"
    column_kind(field, file)
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "text" if is_text(values) else "number"


def _described(kind: pa.DataType) -> str:
    """Words, and Arrow's name of the type where they do not hold it."""
    words = in_words(kind)
    return words if str(kind) in words else f"{words} ({kind})"
