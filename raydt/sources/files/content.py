"""The content of a file: its faults, its columns beside those of other files, and the hash of its bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from raydt.encoding.columns import column_kind, holds_tokens, id_kind, in_words, is_text, time_column
from raydt.encoding.features import holds_indices
from raydt.errors import InputError
from raydt.messages import Message, message, quoted

# Find the fault of a file: of another kind, cut off, or with values that its types do not allow.
#
# Only looked at once reading has failed, so that sound files cost nothing. Not here: values that are well formed but
# cannot be used (``raydt.sources.encoder``), and rows of text files (``raydt.sources.files.csv``).

#: How many bytes of either end of a file tell what it is.
END_BYTES = 64

_PARQUET, _ARROW = b"PAR1", b"ARROW1"
_BEGINNINGS = {
    _PARQUET: "Parquet",
    _ARROW: "Arrow IPC",
    b"\x1f\x8b": "compressed (gzip)",
    b"\x28\xb5\x2f\xfd": "compressed (zstd)",
    b"BZh": "compressed (bzip2)",
    b"PK\x03\x04": "a zip archive, such as an Excel workbook",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"\x89HDF": "HDF5",
    b"ORC": "ORC",
    b"Obj\x01": "Avro",
    b"SQLite format 3": "an SQLite database",
}
_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
_OWN = {
    "parquet": "a Parquet file",
    "arrow": "an Arrow IPC file or stream",
    "csv": "CSV text in UTF-8",
    "jsonl": "JSON Lines",
    "libsvm": "LIBSVM text",
}


def diagnosis(head: bytes, tail: bytes, kind: str) -> Message | None:
    """Return the fault of a file that cannot be opened as ``kind``, if its first or last bytes show it."""
    if not head:
        return message("files.empty")
    magic = {"parquet": _PARQUET, "arrow": _ARROW}.get(kind)
    if kind == "parquet" and tail.endswith(b"PARE"):
        return message("files.encrypted")
    if magic is not None and head.startswith(magic):
        return None if tail.endswith(magic) and len(tail) > len(magic) else message("files.cut_off")
    if magic is not None and tail.endswith(magic):
        return message("files.no_beginning")
    found = next((what for beginning, what in _BEGINNINGS.items() if head.startswith(beginning)), None)
    if found is not None:
        return message("files.other_kind", found=found, wanted=_OWN[kind])
    is_stream = kind == "arrow" and head.startswith(b"\xff\xff\xff\xff")
    if is_stream or (kind == "csv" and head.strip() and b"\0" not in head):
        return None
    if not head.strip():
        return message("files.no_header")
    return message("files.not_kind", wanted=_OWN[kind])


def without_flaws(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, tuple[str, Message]]]:
    """Return a batch with null in the place of invalid values, and the first column and problem by row."""
    columns: list[pa.Array] = []
    flaws: dict[int, tuple[str, Message]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            column, found = _repaired(column)
            column.validate(full=True)
            for row, problem in found.items():
                flaws.setdefault(row, (name, problem))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names), flaws


def _repaired(column: pa.Array) -> tuple[pa.Array, dict[int, Message]]:
    """A column with null where a value is flawed, and the problems by row. Python work for each value."""
    if pa.types.is_dictionary(column.type):
        values, lost = _repaired(column.dictionary)
        codes = column.indices.to_pylist()
        found = {
            row: lost.get(code) or message("rows.code_beyond", value=quoted(code), size=len(values))
            for row, code in enumerate(codes)
            if code is not None and (code in lost or not 0 <= code < len(values))
        }
        kept = [None if row in found else code for row, code in enumerate(codes)]
        indices = pa.array(kept, column.indices.type)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=column.type.ordered), found
    if not is_text(column.type):
        return column, {}
    values = column.view(_BYTES[column.type])
    values.validate(full=True)  # offsets within the data, without which no value can be touched
    texts: list[str | None] = []
    problems: dict[int, Message] = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            texts.append(None)
            problems[row] = message("rows.not_utf8", value=quoted(value, 40))
    return pa.array(texts, column.type), problems


# Whether the files of a source agree: columns and the kinds of their values, over all files.
#
# Invariant: a difference is accepted only if every value means the same under the agreed types as in its own file. So
# order, width, nullability, dictionaries and whole numbers against fractions may differ; numbers against text may not.
# A file without rows and a column without values agree with everything.


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


#: Files up to this size are hashed completely; larger ones in evenly spread blocks.
WHOLE_HASH_BYTES = 256 << 20
_BLOCK = 1 << 20


def content_hash(size: int, read_at: Callable[[int, int], bytes]) -> str:
    """Return the SHA-256 of a file: of all bytes up to 256 MiB, else of 256 evenly spread blocks of 1 MiB.

    ``read_at(n, place)`` returns up to ``n`` bytes of the file.
    """
    begins, length, blocks = range(1), size, WHOLE_HASH_BYTES // _BLOCK
    if size > WHOLE_HASH_BYTES:
        begins, length = range(blocks), _BLOCK
    digest = hashlib.sha256()
    for begin in (b * (size - length) // max(1, blocks - 1) for b in begins):
        at, stop = begin, begin + length
        while at < stop and (data := read_at(min(_BLOCK, stop - at), at)):
            digest.update(data)
            at += len(data)
    return digest.hexdigest()
