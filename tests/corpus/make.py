"""Writes the binary files of the corpus: ``python -m tests.corpus.make``. Equal versions of Arrow give equal bytes.

Text files are written by hand. A bad row stands at row 8 of the good ones, so that 8 are kept and, without it, the
file is ``clean.csv`` again.
"""

from __future__ import annotations

import decimal
import gzip
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

FILES = Path(__file__).parent / "files"
BAD_ROW = 8
GOOD = {"k": 99, "a": 1.0, "n": 3, "s": "red", "y": "yes"}


def clean() -> pa.Table:
    """The good rows."""
    return pc.read_csv(FILES / "clean.csv")


def with_row(**values: Any) -> pa.Table:
    """The good rows, with one more at row 8 in which ``values`` are bad."""
    good = clean()
    row = {name: [{**GOOD, **values}[name]] for name in GOOD}
    bad = pa.table({n: pa.array(v, good.schema.field(n).type) for n, v in row.items()})
    return pa.concat_tables([good.slice(0, BAD_ROW), bad, good.slice(BAD_ROW)]).combine_chunks()


def with_column(values: pa.Array, name: str = "x") -> pa.Table:
    """The first good rows with one more column."""
    return clean().slice(0, len(values)).append_column(name, values)


def parquet(table: pa.Table, **options: Any) -> bytes:
    """The bytes of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def arrow(table: pa.Table, *, stream: bool = False, rows: int = 4, compression: str | None = None) -> bytes:
    """The bytes of an IPC file or stream, ``rows`` to a batch."""
    sink = io.BytesIO()
    new = ipc.new_stream if stream else ipc.new_file
    with new(sink, table.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def raw_text(values: list[bytes]) -> pa.Array:
    """A string column of any bytes, which Arrow does not check."""
    offsets = struct.pack(f"<{len(values) + 1}i", *(sum(map(len, values[:i])) for i in range(len(values) + 1)))
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(values)))


def beyond_dictionary() -> pa.Table:
    """A category column whose row 8 has code 7 of a dictionary of 3."""
    table = with_row()
    codes = table["s"].combine_chunks().dictionary_encode()
    data = bytearray(codes.indices.buffers()[1].to_pybytes()[: 4 * len(codes)])
    data[4 * BAD_ROW : 4 * BAD_ROW + 4] = struct.pack("<i", 7)
    indices = pa.Array.from_buffers(pa.int32(), len(codes), [None, pa.py_buffer(bytes(data))])
    column = pa.DictionaryArray.from_arrays(indices, codes.dictionary, safe=False)
    return table.set_column(3, "s", column)


def beyond_text() -> pa.Table:
    """A text column whose row 8 ends behind the text; found by fuzzing, when the row was touched."""
    column = with_row()["s"].combine_chunks()
    offsets = bytearray(column.buffers()[1].to_pybytes()[: 4 * len(column) + 4])
    offsets[4 * BAD_ROW + 4 : 4 * BAD_ROW + 8] = struct.pack("<i", 5000)
    buffers = [None, pa.py_buffer(bytes(offsets)), column.buffers()[2]]
    return with_row().set_column(3, "s", pa.Array.from_buffers(pa.string(), len(column), buffers))


def not_utf8() -> pa.Table:
    """A text column whose row 8 is Latin-1."""
    values = [value.encode() for value in with_row()["s"].to_pylist()]
    values[BAD_ROW] = b"gr\xfcn"
    return with_row().set_column(3, "s", raw_text(values))


def extension() -> pa.Array:
    """Universally unique identifiers, an extension type."""
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes([i]) * 16 for i in range(4)], pa.binary(16)))


def _parquet() -> dict[str, bytes]:
    whole = parquet(clean(), row_group_size=6, compression="none")
    options = {"row_group_size": 6, "compression": "none", "use_dictionary": False, "write_page_checksum": True}
    checked = bytearray(parquet(clean(), **options))
    checked[bytes(checked).index(struct.pack("<4q", 12, 13, 14, 15))] = 99  # an id in the third row group
    return {
        "clean.parquet": whole,
        "empty.parquet": b"",
        "magic-only.parquet": b"PAR1",
        "csv-inside.parquet": (FILES / "clean.csv").read_bytes(),
        "arrow-inside.parquet": arrow(clean()),
        "without-footer.parquet": whole[: len(whole) * 3 // 4],
        "without-last-bytes.parquet": whole[:-5],
        "without-beginning.parquet": whole[-400:],
        "damaged-page.parquet": bytes(checked),
        "encrypted.parquet": whole[:-4] + b"PARE",
        "no-rows.parquet": parquet(clean().slice(0, 0)),
        "no-columns.parquet": parquet(pa.table({})),
        "nan.parquet": parquet(with_row(a=float("nan"))),
        "infinite.parquet": parquet(with_row(a=float("-inf"))),
        "null-feature.parquet": parquet(with_row(n=None)),
        "null-category.parquet": parquet(with_row(s=None)),
        "null-label.parquet": parquet(with_row(y=None)),
        "null-id.parquet": parquet(with_row(k=None)),
        "duplicate-id.parquet": parquet(with_row(k=3)),
        "inexact-integer.parquet": parquet(with_row(n=2**53 + 1)),
        "wide-id.parquet": parquet(_cast(with_row(), "k", pa.uint64(), {BAD_ROW: 2**63})),
        "uint64.parquet": parquet(_cast(with_row(), "n", pa.uint64(), {BAD_ROW: 2**63})),
        "negative-zero.parquet": parquet(_cast(clean(), "a", pa.float64(), {3: -0.0})),
        "float-labels-nan.parquet": parquet(
            pa.table({"k": [0, 1, 2], "a": [1.0, 2.0, 3.0], "y": [0.0, float("nan"), 1.0]})
        ),
        "float-ids.parquet": parquet(_cast(clean(), "k", pa.float64(), {})),
        "date-ids.parquet": parquet(_cast(clean(), "k", pa.int32(), {}).set_column(0, "k", _dates())),
        "not-utf8-value.parquet": parquet(not_utf8()),
        "not-utf8-name.parquet": parquet(_named("colour_x"), store_schema=False).replace(b"colour_x", b"colour_\xfc"),
        "list.parquet": parquet(with_column(pa.array([[1], [2, 3], None]))),
        "struct.parquet": parquet(with_column(pa.array([{"u": 1}, {"u": 2}]))),
        "decimal.parquet": parquet(with_column(pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25")]))),
        "duration.parquet": parquet(with_column(pa.array([1, 2], pa.duration("s")))),
        "date.parquet": parquet(with_column(pa.array([1, 2], pa.date32()))),
        "binary.parquet": parquet(with_column(pa.array([b"1", b"2"]))),
        "all-null.parquet": parquet(with_column(pa.nulls(4))),
        "extension.parquet": parquet(with_column(extension())),
        "list-label.parquet": parquet(clean().slice(0, 2).set_column(4, "y", pa.array([["no"], ["yes"]]))),
        "other-types.parquet": parquet(_cast(clean(), "n", pa.string(), {})),
        "fewer-columns.parquet": parquet(clean().drop_columns("n")),
        "more-columns.parquet": parquet(clean().append_column("extra", clean()["n"])),
    }


def _arrow() -> dict[str, bytes]:
    file, stream = arrow(clean()), arrow(clean(), stream=True)
    packed = bytearray(arrow(clean(), compression="zstd"))
    at = bytes(packed).rindex(b"\x28\xb5\x2f\xfd")  # the magic of a zstd frame
    packed[at : at + 4] = bytes(4)
    coded = arrow(beyond_dictionary(), rows=17)
    return {
        "clean.arrow": file,
        "clean.arrows": stream,
        "empty.arrow": b"",
        "magic-only.arrow": b"ARROW1\0\0",
        "parquet-inside.arrow": parquet(clean().slice(0, 2)),
        "without-footer.arrow": file[: len(file) // 2],
        "without-last-bytes.arrow": file[:-3],
        "cut-in-a-batch.arrows": stream[: len(stream) * 3 // 4],
        "cut-in-the-schema.arrows": stream[:100],
        "damaged-batch.arrow": bytes(packed),
        "beyond-dictionary.arrow": coded,
        "beyond-text.arrow": arrow(beyond_text(), rows=17),
        "no-rows.arrow": arrow(clean().slice(0, 0)),
        "no-batches.arrows": arrow(clean().slice(0, 0), stream=True),
        "no-columns.arrow": arrow(pa.table({})),
        "not-utf8-value.arrow": arrow(not_utf8()),
        "not-utf8-name.arrow": arrow(_named("colour_x")).replace(b"colour_x", b"colour_\xfc"),
        "duplicate-names.arrow": arrow(
            pa.Table.from_arrays([pa.array([1, 2]), pa.array([1, 2]), pa.array(["no", "yes"])], names=["a", "a", "y"])
        ),
        "map.arrow": arrow(with_column(pa.array([[("u", 1)], []], pa.map_(pa.string(), pa.int64())))),
        "extension.arrow": arrow(with_column(extension())),
        "string-view.arrow": arrow(_cast(clean(), "s", pa.string_view(), {})),
        "half-float.arrow": arrow(_cast(clean(), "a", pa.float16(), {})),
        "run-end.arrow": arrow(with_column(pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), [1, 2]))),
    }


def _other() -> dict[str, bytes]:
    text = (FILES / "clean.csv").read_bytes()
    zipped = gzip.compress(text, mtime=0)
    return {
        "clean.csv.gz": zipped,
        "cut-off.csv.gz": zipped[:-40],
        "not-zipped.csv.gz": text,
        "parquet-inside.csv": parquet(clean().slice(0, 2)),
        "log.parquet": parquet(pa.table({"id": [2, 0, 7], "after": pa.array([5, 12, None])})),
        "log-float-ids.parquet": parquet(pa.table({"id": [2.0, 0.0, 7.0], "after": pa.array([5, 12, None])})),
        "log-dates.parquet": parquet(pa.table({"id": [2, 0], "after": pa.array([5, 12], pa.date32())})),
        "log-cut-off.parquet": parquet(pa.table({"id": [2, 0, 7]}))[:-20],
    }


def _named(name: str) -> pa.Table:
    return clean().slice(0, 3).rename_columns(["k", "a", "n", name, "y"])


def _dates() -> pa.Array:
    return pa.array(range(16), pa.date32())


def _cast(table: pa.Table, name: str, kind: pa.DataType, values: dict[int, Any]) -> pa.Table:
    column = table[name].cast(kind).to_pylist()
    for row, value in values.items():
        column[row] = value
    return table.set_column(table.schema.get_field_index(name), name, pa.array(column, kind))


GROUPS: tuple[Callable[[], dict[str, bytes]], ...] = (_parquet, _arrow, _other)


def binary_files() -> dict[str, bytes]:
    """The contents of every binary file, by name."""
    return {name: data for group in GROUPS for name, data in group().items()}


if __name__ == "__main__":
    for name, data in binary_files().items():
        (FILES / name).write_bytes(data)
