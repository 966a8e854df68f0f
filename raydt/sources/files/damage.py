"""Find the fault of a file: of another kind, cut off, or with values that its types do not allow.

Only looked at once reading has failed, so that sound files cost nothing. Not here: values that are well formed but
cannot be used (``raydt.sources.encoder``), and rows of text files (``raydt.sources.files.csv``).
"""

from __future__ import annotations

import pyarrow as pa

from raydt.encoding.columns import is_text
from raydt.messages import Message, message
from raydt.redaction import quoted

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
            problems[row] = message("rows.not_utf8", value=quoted(value[:40]))
    return pa.array(texts, column.type), problems
