"""Readers of values in each format, JSON lines, and encodings."""

from __future__ import annotations

import ast
import gzip
import json
import math
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.encoding.columns import LARGEST_TIME
from raydt.encoding.labels import json_rows
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import Reading
from raydt.messages import message
from raydt.sources.divided import open_file, open_source
from raydt.sources.file_source import FileSource
from raydt.sources.files import jsonl
from raydt.sources.files.datafile import DataFile, find_files
from raydt.sources.files.jsonl import JsonLinesDataFile
from raydt.sources.options import ArrowFiles, CsvFiles, JsonLinesFiles, ParquetFiles, Sea
from tests.refusals import refused

# -- readers ---------------------------------------------------------------------------------------------------------
# Every type of column and every fault of a row, read from each format that can hold it.

NAN, INF = float("nan"), float("inf")
F4, F8, I4, I8, U8, B1, TEXT = (
    *(pa.float32(), pa.float64(), pa.int32(), pa.int64(), pa.uint64(), pa.bool_(), pa.string()),
)
WORDS, LISTS, TOKENS = pa.dictionary(pa.int8(), TEXT), pa.list_(I8), pa.list_(TEXT)
SECONDS, ZONED = pa.timestamp("s"), pa.timestamp("us", "UTC")
PLAIN, NUMBERS, MISSING, SPARSE = Reading(), Reading(regression=True), Reading(missing=True), Reading(sparse=True)
HOUR = 3_600_000_000
UUIDS = [uuid.UUID(int=i) for i in (7, 2**127, 3)]


def write_arrow(table: pa.Table, path: str) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


FORMATS: dict[str, tuple[Any, Any]] = {
    "parquet": (ParquetFiles, pq.write_table),
    "arrow": (ArrowFiles, write_arrow),
    "csv": (CsvFiles, pacsv.write_csv),
}
ALL, TYPED, CSV, ARROW = tuple(FORMATS), ("parquet", "arrow"), ("csv",), ("arrow",)
#: Options by the column that is looked at.
OPTIONS: dict[str, dict[str, Any]] = {
    "k": {"id": "k"},
    "t": {"ts": "t"},
    "n": {"categorical": ["n"]},
    "op": {"op": "op", "id": "id"},
    "weight": {"weight": "weight"},
}


def table_of(column: str, kind: pa.DataType, values: list[Any]) -> pa.Table:
    """Rows whose categories and labels tell which of them were read, and one column that is looked at."""
    n = len(values)
    columns: dict[str, Any] = {
        "a": np.arange(n) / 2,
        "s": [f"s{i}" for i in range(n)],
        "y": [f"y{i}" for i in range(n)],
    }
    if column == "op":
        columns["id"] = np.arange(n)
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return pa.table({**columns, column: array})


def opened(
    folder: Path,
    form: str,
    table: pa.Table,
    reading: Reading = PLAIN,
    chunk_rows: int | None = None,
    **options: Any,
) -> FileSource:
    kind, write = FORMATS[form]
    write(table, str(folder / f"t.{form}"))
    given = kind(path=f"t.{form}", **options)
    if "n_features" in options:
        return open_source(given, folder, reading)
    return FileSource(
        given, [open_file(given, place) for place in find_files(given.path, folder, ())], chunk_rows, reading
    )


#: Column, type, four values of which the third is at fault, code, formats, and what the learner takes.
FAULTS: list[tuple[str, pa.DataType, list[Any], str, tuple[str, ...], Reading]] = [
    ("x", B1, [True, False, None, True], "no_value", ALL, PLAIN),
    *(("x", kind, [1, 0, None, 1], "no_value", ALL, PLAIN) for kind in (I4, I8, F4, F8)),
    *(("x", kind, [1.5, 2.5, NAN, 3.5], "no_value", ALL, PLAIN) for kind in (F4, F8)),
    *(
        ("x", F8, [1.5, 2.5, value, 3.5], "infinite", ALL, reading)
        for value in (INF, -INF)
        for reading in (PLAIN, MISSING)
    ),
    ("x", I8, [1, 2**53, 2**53 + 1, -(2**53)], "inexact", TYPED, PLAIN),
    ("x", U8, [1, 2, 2**60, 3], "inexact", TYPED, PLAIN),
    ("x", TEXT, ["1", " 2.5 ", "oops", "3"], "not_number", CSV, PLAIN),
    *(("x", kind, ["p", "q", None, "p"], "no_category", ALL, PLAIN) for kind in (TEXT, WORDS)),
    ("x", pa.string_view(), ["p", "q", None, "p"], "no_category", ARROW, PLAIN),
    *(("n", F8, [1.5, 2.5, value, 3.5], "no_category", TYPED, PLAIN) for value in (None, NAN, INF)),
    ("n", F8, [1.5, 2.5, INF, 3.5], "infinite_category", TYPED, MISSING),
    ("y", TEXT, ["u", "v", None, "u"], "no_label", ALL, PLAIN),
    *(("y", TEXT, ["1", "0", word, "1"], "word_for_nothing", CSV, PLAIN) for word in ("NA", "null", "NaN")),
    ("y", TEXT, ["u", "v", "w", "u"], "third_class", ALL, Reading(classes=2)),
    *(("y", F8, [1.0, -0.0, value, 2.0], "no_label", TYPED, NUMBERS) for value in (None, NAN)),
    *(("y", F8, [1.0, 0.0, value, 2.0], "infinite_label", ALL, NUMBERS) for value in (INF, -INF)),
    *(("y", F8, [1.0, 0.0, value, 2.0], "label_range", ALL, NUMBERS) for value in (1e300, -1e-300)),
    ("y", I8, [1, 0, 2**53 + 1, 2], "inexact_label", TYPED, NUMBERS),
    *(("k", kind, [1, 2, None, 3], "no_id", ALL, PLAIN) for kind in (I4, U8)),
    *(("k", kind, ["b", "a", None, "b"], "no_id", ALL, PLAIN) for kind in (TEXT, WORDS)),
    ("k", U8, [1, 2, 2**63, 3], "wide_id", TYPED, PLAIN),
    ("k", F8, [1.0, 2.0, 2.5, 3.0], "not_whole", TYPED, PLAIN),
    ("k", pa.float32(), [1.0, 2.0, 2.0**24, 3.0], "not_whole", ARROW, PLAIN),
    *(("t", kind, [1, 2, None, 3], "no_time", TYPED, PLAIN) for kind in (I8, SECONDS, ZONED, pa.date32())),
    ("t", I8, [1, 2, 2**62 + 1, 3], "far_time", TYPED, PLAIN),
    ("t", SECONDS, [1, 2, 2**62 + 1, 3], "far_time", ARROW, PLAIN),
    ("t", TEXT, ["2024-05-31", "2024-05-31 12:00", "soon", "2024-06-01"], "not_kind", CSV, PLAIN),
    ("t", TEXT, ["2024-05-31", "2024-05-31 12:00", "2024-06-01 12:00Z", "2024-06-01"], "not_kind", CSV, PLAIN),
    *(("weight", F8, [1.0, 0.5, value, 2.0], "no_weight", ALL, PLAIN) for value in (None, NAN)),
    *(("weight", F8, [1.0, 0.0, value, 2.0], "weight_range", ALL, PLAIN) for value in (-1.0, 1e-9, 65536.0, INF)),
    ("weight", TEXT, ["1", " 2.5 ", "oops", "3"], "not_number", CSV, PLAIN),
    ("w", LISTS, [[1], [], None, [2]], "no_list", TYPED, SPARSE),
    ("w", LISTS, [[1], [], [3, None], [2]], "null_index", TYPED, SPARSE),
    ("w", LISTS, [[1], [], [3, -1, 99], [2]], "negative_index", TYPED, SPARSE),
    *(("w", LISTS, [[1], [], [value], [2]], "index_beyond", TYPED, SPARSE) for value in (9, 2**40)),
    ("w", pa.list_(U8), [[1], [], [2**64 - 1], [2]], "index_beyond", TYPED, SPARSE),
    ("w", LISTS, [[1, 0], [], [5, 4, 5], [2]], "repeated_index", TYPED, SPARSE),
    ("w", TOKENS, [["b"], [], None, ["b"]], "no_tokens", TYPED, SPARSE),
    ("w", TOKENS, [["b"], [], ["b", None], ["b"]], "null_token", TYPED, SPARSE),
    ("w", TOKENS, [["b", "b"], ["a"], list("cdefghijk"), ["b"]], "token_beyond", TYPED, SPARSE),
    ("op", TEXT, ["c", "+I", None, "r"], "no_operation", ALL, PLAIN),
    ("op", TEXT, ["c", " INSERT", "upsert", "r"], "unknown_operation", ALL, PLAIN),
    *(("op", TEXT, ["c", "i", word, "r"], "truncate", ALL, PLAIN) for word in ("t", "TRUNCATE")),
]


@pytest.mark.parametrize("chunk_rows", [None, 1])
@pytest.mark.parametrize(
    ("form", "case"),
    [(form, case) for case in FAULTS for form in case[4]],
    ids=lambda value: value if isinstance(value, str) else f"{value[1]}-{value[3]}",
)
def test_a_fault_is_named_and_leaves_no_trace(form: str, case: Any, chunk_rows: int | None, tmp_path: Path) -> None:
    column, kind, values, code, _, reading = case
    options = {**OPTIONS.get(column, {}), **({"n_features": 9} if column == "w" else {})}
    if column != "y" and reading.regression:
        options["label"] = column
    source = opened(tmp_path, form, table_of(column, kind, values), reading, chunk_rows, **options)
    if column == "t":
        source.require_ts()
    bad = {rows.start + place: error for rows in source.rows() for place, error in rows.bad.items()}
    assert {row: error.message.id.removeprefix("rows.") for row, error in bad.items()} == {2: code}
    assert (bad[2].file, bad[2].row, bad[2].column) == (str(tmp_path / f"t.{form}"), 2, column)
    assert bad[2].remedy
    if reading is not NUMBERS:
        assert source.state()["categories"]["s"] == ["s0", "s1", "s3"]
        assert len(source.classes) == (2 if column == "y" else 3) or code == "token_beyond"


#: Column, array, what is read of it, and what the learner takes.
READ: list[tuple[str, pa.Array, list[Any], Reading]] = [
    *(("x", pa.array([1, 0, 1], kind), [1.0, 0.0, 1.0], PLAIN) for kind in (pa.int8(), U8, pa.float16(), F4)),
    ("x", pa.array([True, False, True]), [1.0, 0.0, 1.0], PLAIN),
    ("x", pa.array([-0.0, 2**53, 0.25]), [0.0, 2.0**53, 0.25], PLAIN),
    *(("x", pa.array(["p", "q", "p"], kind), [0.0, 1.0, 0.0], PLAIN) for kind in (TEXT, pa.large_string(), WORDS)),
    ("x", pa.array(["p", "q", "p"], pa.string_view()), [0.0, 1.0, 0.0], PLAIN),
    ("n", pa.array([7, 5, 7]), [0.0, 1.0, 0.0], PLAIN),
    ("x", pa.array([1.0, None, -NAN]), [1.0, NAN, NAN], MISSING),
    ("x", pa.array(["p", None, "p"]), [0.0, -1.0, 0.0], MISSING),
    ("n", pa.array([2.0, NAN, 2.0]), [0.0, -1.0, 0.0], MISSING),
    ("y", pa.array([3, 4, -1], I4), [3.0, 4.0, -1.0], NUMBERS),
    ("y", pa.array([True, False, True]), [1.0, 0.0, 1.0], NUMBERS),
    ("y", pa.array([1.5, -0.0, 1.5]).dictionary_encode(), [1.5, 0.0, 1.5], NUMBERS),
    *(("k", pa.array([7, 5], kind), [7, 5], PLAIN) for kind in (pa.int8(), I8, U8)),
    ("k", pa.array([7, 5, 7]).dictionary_encode(), [7, 5, 7], PLAIN),
    ("k", pa.array([7.0, 5.0]), [7, 5], PLAIN),
    *(("k", pa.array(["b", "007", "é"], kind), ["b", "007", "é"], PLAIN) for kind in (TEXT, WORDS, pa.large_string())),
    ("k", pa.array(["b", "007", "é"], pa.string_view()), ["b", "007", "é"], PLAIN),
    ("k", pa.array([one.bytes for one in UUIDS], pa.uuid()), [str(one) for one in UUIDS], PLAIN),
    ("t", pa.array([1, -1, 0], SECONDS), [10**6, -(10**6), 0], PLAIN),
    ("t", pa.array([1, -1, 0], pa.timestamp("ms", "Europe/Paris")), [1000, -1000, 0], PLAIN),
    ("t", pa.array([1_999_999, -1, 0], pa.timestamp("ns")), [1999, -1, 0], PLAIN),  # rounded down, also before 1970
    ("t", pa.array([1, -1, 0], pa.date32()), [24 * HOUR, -24 * HOUR, 0], PLAIN),
    ("t", pa.array([5, LARGEST_TIME, 0], U8), [5, LARGEST_TIME, 0], PLAIN),
    *(("w", pa.array([[3, 1, 8], [], [7]], pa.list_(kind)), [[1, 3, 8], [], [7]], SPARSE) for kind in (pa.int8(), U8)),
    ("w", pa.array([[], [], []], pa.list_(pa.null())), [[], [], []], SPARSE),
    ("w", pa.array([["b", "a"], [], ["a", "a"]], pa.large_list(TEXT)), [[0, 1], [], [1]], SPARSE),
    ("w", pa.array([["b", "a"], [], ["a", "a"]], pa.list_(WORDS)), [[0, 1], [], [1]], SPARSE),
]  # fmt: skip


@pytest.mark.parametrize("form", TYPED)
@pytest.mark.parametrize(
    ("column", "array", "wanted", "reading"), READ, ids=lambda value: str(getattr(value, "type", ""))
)
def test_types_that_are_read(
    form: str, column: str, array: pa.Array, wanted: list[Any], reading: Reading, tmp_path: Path
) -> None:
    options = {**OPTIONS.get(column, {}), **({"n_features": 9} if column == "w" else {})}
    source = opened(tmp_path, form, table_of(column, array.type, array), reading, **options)
    if column == "t":
        assert source.require_ts().kind == ("integer" if pa.types.is_integer(array.type) else "timestamp")
    (rows,) = source.rows()
    assert not rows.bad
    assert rows.op is None
    for part, dtype in (
        (rows.X, np.float64),
        (rows.y, np.float64 if reading.regression else np.int32),
        (rows.id, np.int64),
    ):
        assert (part.dtype, part.flags.writeable, part.flags.c_contiguous) == (dtype, True, True)
    if column == "w":
        found: Any = [rows.sparse[i : i + 1].indices.tolist() for i in range(3)]
    elif column in "xn":
        found = rows.X[:, source.features.names.index(column)].tolist()
        assert not np.signbit(rows.X[rows.X == 0.0]).any()
        assert len({value.tobytes() for value in rows.X[np.isnan(rows.X)]}) <= 1
    else:
        found = {"y": rows.y, "t": rows.ts, "k": rows.id if rows.names is None else rows.names}[column].tolist()
    assert repr(found) == repr(wanted)


#: Column, types that it cannot be of, and what the learner takes.
REFUSED: list[tuple[str, list[pa.DataType], Reading]] = [
    ("x", [pa.struct([("a", I4)]), pa.map_(TEXT, I4), pa.binary(), pa.decimal128(10, 2), SECONDS, pa.date32()], SPARSE),
    ("x", [pa.duration("s"), pa.null(), pa.dictionary(pa.int8(), pa.binary()), pa.uuid(), pa.list_(F8)], SPARSE),
    ("x", [LISTS, TOKENS], PLAIN),
    ("k", [pa.binary(), pa.binary(16), B1, SECONDS, pa.null()], PLAIN),
    ("t", [F8, TEXT, WORDS, B1, pa.duration("s"), pa.time32("s"), LISTS], PLAIN),
    ("y", [TEXT, WORDS], NUMBERS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "kind", "reading"), [(c, kind, reading) for c, kinds, reading in REFUSED for kind in kinds], ids=str
)
def test_types_that_are_refused(column: str, kind: pa.DataType, reading: Reading, tmp_path: Path) -> None:
    table = table_of("y", I4, [0, 1]) if column != "y" else table_of("y", kind, pa.array(["u", "v"]).cast(kind))
    if column != "y":
        table = table.append_column(column, pa.nulls(2, kind))

    def read() -> None:
        source = opened(tmp_path, "arrow", table, reading, **OPTIONS.get(column, {}))
        source.require_ts()

    with pytest.raises(InputError) as caught:
        read()
    assert (caught.value.column, caught.value.file) == (column, str(tmp_path / "t.arrow"))
    assert caught.value.remedy


def test_a_learner_of_many_classes_ends_reading_at_one_more(tmp_path: Path) -> None:
    source = opened(tmp_path, "csv", table_of("y", TEXT, list("uvwu")), Reading(classes=3), chunk_rows=2)
    assert not any(rows.bad for rows in source.rows())
    table = pa.table({"a": range(1001), "y": [f"y{i}" for i in range(1001)]})
    with refused("rows.many_classes", InputError, most=1000, row=1000):
        list(opened(tmp_path, "csv", table).rows())


def test_event_times_cost_nothing_until_they_are_required(tmp_path: Path) -> None:
    source = opened(tmp_path, "parquet", table_of("t", I8, [1, None, 2]), ts="t")
    (rows,) = source.rows()
    assert (rows.ts, rows.bad) == (None, {})
    assert source.require_ts() == source.require_ts() == ("t", "integer")
    with refused("sources.no_times", ConfigError):
        opened(tmp_path, "parquet", table_of("x", I8, [1, 2])).require_ts()
    with refused("sources.generated_times", ConfigError):
        open_source(Sea()).require_ts()


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["1970-01-02", "1970-01-03 01:00"], [24 * HOUR, 49 * HOUR]),
        (["1970-01-01 01:00:00", "1970-01-01T00:00:00.5"], [HOUR, 500_000]),
        (["1970-01-01T01:00:00Z", "1970-01-01 01:00:00+02:00"], [HOUR, -HOUR]),
        (["1970-01-01 00:00:00.0000019999999", "9999-12-31"], [1, 253_402_214_400_000_000]),
        (["7", "-3"], [7, -3]),
    ],
)
def test_times_of_text_files(texts: list[str], wanted: list[int], tmp_path: Path) -> None:
    source = opened(tmp_path, "csv", table_of("t", TEXT, texts), ts="t")
    source.require_ts()
    (rows,) = source.rows()
    assert (rows.ts.tolist(), rows.bad) == (wanted, {})


@pytest.mark.parametrize(("reading", "label"), [(PLAIN, "not_kind"), (NUMBERS, "not_number")])
def test_rows_of_a_text_file_after_the_block_that_tells_types(reading: Reading, label: str, tmp_path: Path) -> None:
    filler = "".join(f"{i},{i},{i % 2}\n" for i in range(200_000))
    text = "a,id,y\n" + filler + "oops,1,0\n 2.5 ,2,1\n3,x,1\n4,3,maybe\n,5,0\nnan,6,0\n9007199254740993,7,0\n"
    (tmp_path / "t.csv").write_text(text)
    source = open_source(CsvFiles(path="t.csv", id="id"), tmp_path, reading)
    bad = [error for rows in source.rows() for _, error in sorted(rows.bad.items())]
    assert [(error.row - 200_000, error.column, error.message.id.removeprefix("rows.")) for error in bad] == [
        (0, "a", "not_number"),
        (2, "id", "not_kind"),
        (3, "y", label),
        (4, "a", "no_value"),
        (5, "a", "no_value"),
        (6, "a", "inexact"),
    ]


@pytest.mark.parametrize("word", ["NA", "N/A", "null", "NaN"])
def test_words_for_nothing_are_labels_among_texts(word: str, tmp_path: Path) -> None:
    for labels, wanted in ((["EU", word, "EU"], [0, 1, 0]), ([word] * 3, [0, 0, 0]), ([word] * 200_000 + ["EU"], None)):
        source = opened(tmp_path, "csv", pa.table({"x": np.arange(len(labels)), "y": labels}))
        y = np.concatenate([rows.y for rows in source.rows()])
        assert source.classes == list(dict.fromkeys(labels))
        assert y.tolist() == wanted if wanted else y[-2:].tolist() == [0, 1]


def test_equal_dictionaries_are_coded_by_their_values(tmp_path: Path) -> None:
    """Nulls and unused values inside of a dictionary, and a signalling NaN, count as what they are."""
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 3, 2], pa.int8()), pa.array(["a", "unused", "c", None]))
    signalling = np.array([0, 0, 0, 0x7FF0000000000001], dtype=np.uint64).view(np.float64)
    source = opened(tmp_path, "arrow", pa.table({"x": column, "z": signalling, "y": [0, 1, 0, 1]}))
    (rows,) = source.rows()
    assert {place: error.message.id.removeprefix("rows.") for place, error in rows.bad.items()} == {
        2: "no_category",
        3: "no_value",
    }
    assert source.state()["categories"] == {"x": ["c", "a"]}


# -- json lines ------------------------------------------------------------------------------------------------------
# Files of JSON Lines: every row is there, in its order, and a bad one is named by its row and column.


def opened_lines(path: Path, text: str | bytes, **options: Any) -> JsonLinesDataFile:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return JsonLinesDataFile(find_files(str(path), ".", JsonLinesDataFile.suffixes)[0], **options)


def rows_of(file: DataFile, start: int = 0) -> list[dict[str, Any]]:
    return [row for batch in file.batches(file.names, start, 7) for row in batch.to_pylist()]


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(2**40), 2**40),
        "x": st.none() | st.floats(-1e9, 1e9) | st.integers(-9, 9),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        "b": st.booleans(),
        "l": st.lists(st.integers(0, 9), max_size=3),
        "o": st.none() | st.fixed_dictionaries({}, optional={"id": st.integers(0, 9), "t": st.text("pq", max_size=2)}),
    },
)


@given(st.lists(VALUES, min_size=1, max_size=20), st.integers(1, 200), st.integers(0, 20), st.booleans())
def test_rows_are_those_of_json(tmp_path_factory, rows, block, start, spaced) -> None:
    """The twin is Python's own reader of JSON."""
    folder = tmp_path_factory.mktemp("rows")
    lines = [json.dumps(row) for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_BLOCK", block)
        file = opened_lines(folder / "rows.jsonl", ("\n\n" if spaced else "\n").join(lines))
        assert file.count() == len(rows)
        found = rows_of(file, min(start, len(rows)))
    columns = {name: [row.get(name) for row in rows] for name in file.names}
    for name, values in columns.items():
        if name == "o":
            kind = file.schema.field("o").type
            inner = [field.name for field in kind] if pa.types.is_struct(kind) else []
            values = [None if value is None else {key: value.get(key) for key in inner} for value in values]
        assert [row[name] for row in found] == values[min(start, len(rows)) :], name
    assert not file.flaws


def test_types_hold_all_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_BLOCK", 8)
    lines = ['{"a":1,"s":"2020-01-01"}', '{"a":2.5,"t":"2020-01-01"}', '{"s":"x","t":"2021-01-01","o":{"u":null}}']
    file = opened_lines(tmp_path / "rows.ndjson", "\n".join(lines))
    kinds = {field.name: field.type for field in file.schema}
    assert (kinds["a"], kinds["s"], kinds["t"]) == (pa.float64(), pa.string(), pa.timestamp("s"))
    assert opened_lines(tmp_path / "text.jsonl", "\n".join(lines), as_text=("t",)).schema.field("t").type == pa.string()


def test_a_wrapped_change_is_its_payload(tmp_path: Path) -> None:
    """Kafka Connect's schema may hold values of several kinds in one list, which no column can."""
    schema = {"type": "struct", "fields": [{"field": "a", "default": 0}, {"field": "s", "default": "x"}]}
    insert = {"before": None, "after": {"id": 1, "a": 2.5}, "op": "c"}
    changes = [insert, {"before": {"id": 1}, "after": None, "op": "d"}, None]
    wrapped = [json.dumps({"schema": schema, "payload": change}) for change in changes]
    found = opened_lines(tmp_path / "wrapped.jsonl", "\n".join(wrapped))
    assert rows_of(found) == rows_of(opened_lines(tmp_path / "plain.jsonl", "\n".join(map(json.dumps, changes))))
    rows = [{"payload": {"a": 1}}, {"payload": {"op": "c", "after": 2}, "id": 7}]
    other = opened_lines(tmp_path / "other.jsonl", "\n".join(map(json.dumps, rows)))
    assert [row["payload"]["a"] for row in rows_of(other)] == [1, None]


def test_compressed_and_null_lines(tmp_path: Path) -> None:
    file = opened_lines(tmp_path / "rows.jsonl.gz", gzip.compress(b'null\n{"a":1}\n null \n\n{"a":2}'))
    assert rows_of(file) == [{"a": None}, {"a": 1}, {"a": None}, {"a": 2}]


@pytest.mark.parametrize(
    ("line", "id", "column"),
    [
        ("{bad", "rows.not_json", None),
        ('{"a": 1', "rows.not_json", None),
        ('{"a": 1} {"a": 2}', "rows.not_json", None),
        ("[1]", "rows.not_object", None),
        ('"a"', "rows.not_object", None),
        ("nothing", "rows.not_json", None),
        ('{"a": ' + "[" * 5000, "rows.not_json", None),
        ('{"payload": ' + "[" * 5000, "rows.not_json", None),
        ('{"a": "x", "y": "u"}', "rows.not_kind", "a"),
        ('{"a": [1], "y": "u"}', "rows.not_kind", "a"),
    ],
)
@pytest.mark.parametrize("block", [1 << 22, 30])
def test_a_bad_row_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line, id, column, block) -> None:
    monkeypatch.setattr(jsonl, "_BLOCK", block)
    good = [f'{{"a": {k}, "y": "u"}}' for k in range(5)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*good[:3], line, *good[3:]]))
    chunks = list(open_source(JsonLinesFiles(path=str(path))).rows())
    bad = {chunk.start + place: error for chunk in chunks for place, error in chunk.bad.items()}
    assert [*bad] == [3]
    with refused(id, InputError, file=str(path), row=3, column=column):
        raise bad[3]
    assert [x for chunk in chunks for x in chunk.X[:, 0].tolist() if x == x] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_line_does_not_complete_another(tmp_path: Path) -> None:
    """A line of two objects and two lines of one are three rows, of which none is good."""
    lines = ['{"a": 0, "y": "u"}', '{"a": 1}{"a": 2}', '{"b": ', '{"a": 3}}', '{"a": 4, "y": "u"}']
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    chunks = open_source(JsonLinesFiles(path=str(tmp_path / "rows.jsonl"))).rows()
    assert [chunk.start + place for chunk in chunks for place in sorted(chunk.bad)] == [1, 2, 3]


def test_an_array_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    with refused("files.json_array", InputError):
        opened_lines(tmp_path / "array.json", '[{"a": 1},\n {"a": 2}]')
    assert opened_lines(tmp_path / "empty.jsonl", "").count() == 0


def test_a_long_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_BLOCK", 1 << 10)
    monkeypatch.setattr(jsonl, "_LONGEST", 1 << 20)
    with refused("files.long_line", InputError, line=2):
        opened_lines(tmp_path / "long.jsonl", b'{"a": 1}\n' + b" " * (3 << 20))


# -- json rows -------------------------------------------------------------------------------------------------------
# Texts of JSON as rows: each text is one row, or one flaw, whatever stands before and after it.

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.float64()), ("y", pa.string())])
WRAPPED = pa.schema([("op", pa.string()), ("after", pa.struct(list(SCHEMA)))])

GOOD: dict[bytes, Any] = {
    b'{"id": 1, "a": 2, "y": "c"}': (1, 2.0, "c"),
    b'{"id": 7.0}': (7, None, None),
    b'{"y": "a\\u0000b", "more": [1]}': (None, None, "a\0b"),
    b' {"id": -9223372036854775808}': (-(2**63), None, None),
    b"{}": (None, None, None),
    b'{"id": 2, "more": ' + b"[" * 5000 + b"]" * 5000 + b"}": (2, None, None),
}
BAD = (
    b"",
    b"null",
    b"[1]",
    b'{"id": 1}{"id": 2}',
    b'{"more":',
    b'{"id": 3}}',
    b'{"more": "',
    b'{"id": 1.5}',
    b'{"id": 9007199254740993.0}',
    b'{"id": 1e30}',
    b'{"id": NaN}',
    b'{"id": 9223372036854775808}',
    b'{"id": true}',
    b'{"id": "1"}',
    b'{"a": 1' + b"0" * 400 + b', "id": 1.0}',
    b'{"y": "\xff"}',
    b'{"y": "\\ud800"}',
    b'{"y": 5}',
    b'{"more": ' + b"[" * 5000,
)


@given(st.lists(st.sampled_from([*GOOD, *BAD]), max_size=6))
def test_a_text_is_one_row_whatever_the_others_are(texts: list[bytes]) -> None:
    rows, flaws = json_rows(texts, SCHEMA)
    expected = [GOOD.get(text, (1, None, None) if b'"id": 1.0}' in text else (None,) * 3) for text in texts]
    assert [tuple(row.values()) for row in rows.to_pylist()] == expected
    assert sorted(flaws) == [place for place, text in enumerate(texts) if text in BAD]


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text[:20]))
def test_a_bad_row_in_an_envelope_is_a_flaw(text: bytes) -> None:
    rows, flaws = json_rows([b'{"op": "c", "after": ' + text + b"}", b'{"op": "d"}'], WRAPPED)
    assert rows["op"].to_pylist()[1] == "d"
    assert (0 in flaws) == (text != b"null")


def test_numbers_that_are_no_json_are_taken_as_python_writes_them() -> None:
    rows, flaws = json_rows([b'{"a": NaN}', b'{"a": Infinity}'], SCHEMA)
    assert (math.isnan(rows["a"][0].as_py()), rows["a"][1].as_py(), flaws) == (True, math.inf, {})


# -- encodings -------------------------------------------------------------------------------------------------------
# Text is UTF-8 whatever the locale: no file or pipe is opened as text without an encoding, and commands work.

ROOT = Path(__file__).parents[2]
FOLDERS = ("raydt", "actors", "pipelines", "examples", "benchmarks", "docs/.site")
TEXT_STREAMS = ("fdopen", "TextIOWrapper", "NamedTemporaryFile", "FileHandler")


def without_encoding(tree: ast.AST) -> Iterator[int]:
    """Lines of the calls that read or write text in the encoding of the locale."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        named = {word.arg: word.value for word in call.keywords}
        if "encoding" in named or None in named:
            continue
        mode = named.get("mode", call.args[_mode_at(call)] if len(call.args) > _mode_at(call) else ast.Constant("r"))
        is_text = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and "b" not in mode.value
        bare_open = isinstance(call.func, ast.Name) and name == "open"
        path_open = name == "open" and isinstance(mode, ast.Constant) and mode.value in ("r", "w", "a", "x", "r+", "w+")
        path_open = path_open and len(call.args) == 1  # more are a method of another class, a zip archive's say
        a_pipe = any(getattr(named.get(word), "value", False) for word in ("text", "universal_newlines"))
        if (
            (name == "read_text" and not call.args)
            or (name == "write_text" and len(call.args) == 1)
            or (is_text and (bare_open or path_open or name in TEXT_STREAMS))
            or a_pipe
        ):
            yield call.lineno


def _mode_at(call: ast.Call) -> int:
    return 0 if isinstance(call.func, ast.Attribute) and call.func.attr in ("open", "NamedTemporaryFile") else 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p.read_text()", True),
        ("p.read_text(errors='replace')", True),
        ("p.read_text(encoding='utf-8')", False),
        ("p.write_text('x')", True),
        ("folder.write_text('name', 'x')", False),
        ("open(p)", True),
        ("open(p, 'wb')", False),
        ("p.open('w')", True),
        ("p.open('rb')", False),
        ("archive.open('name', 'w')", False),
        ("subprocess.run(a, text=True)", True),
        ("subprocess.run(a, text=True, encoding='utf-8')", False),
        ("os.fdopen(3, 'w')", True),
    ],
)
def test_the_rule_itself(text: str, found: bool) -> None:
    assert bool(list(without_encoding(ast.parse(text)))) is found


@pytest.mark.turns(2)
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_text_names_its_encoding(folder: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line in without_encoding(ast.parse(file.read_bytes()))
    ]
    assert not found, "add encoding='utf-8'"


#: Runs commands in one process, since starting it is what takes time; the code of each, and what it printed.
COMMANDS = """
import json, sys, traceback
from pipelines.cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as ended:
        print("\\nended", ended.code, flush=True)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
"""


@pytest.mark.nightly
def test_commands_in_a_locale_of_ascii(tmp_path: Path) -> None:
    """Columns, classes, categories and ids are in many scripts, and files of the package are UTF-8."""
    header = "schlüssel,größe,色,判定\n"
    classes = ["не\u2028т", "jä"]
    rows = [f"k\u00e9{i},{i}.5,{'röt' if i % 3 else '蓝'},{classes[i % 2]}\n" for i in range(120)]
    (tmp_path / "d.csv").write_text(header + "".join(rows), encoding="utf-8")
    (tmp_path / "bad.csv").write_text(header + "".join(rows) + "ä,ö,蓝,jä\n", encoding="utf-8")
    (tmp_path / "gone.csv").write_text("id\nk\u00e93\n", encoding="utf-8")
    (tmp_path / "unknown.csv").write_text("id\nk\u00e9ö\n", encoding="utf-8")
    (tmp_path / "key").write_text("ab" * 32, encoding="utf-8")
    config = {
        "source": {"kind": "csv", "path": "d.csv", "id": "schlüssel", "label": "判定"},
        "stream": {"model": "incremental"},
        "cluster": {"backend": "in_process"},
        "learner": {"kind": "fudyadt"},
        "output": {"predictions": True},
    }
    (tmp_path / "c.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    chain = ["--receipts", "chain", "--receipt-key", "key"]
    commands = [
        (0, ["validate", "c.json"]),
        (0, ["-v", "replay", "c.json", "--out", "run"]),
        (2, ["replay", "c.json", "--set", "source.path=bad.csv", "--out", "bad"]),
        (0, ["replay", "c.json", "--set", "source.path=bad.csv", "--set", "stream.on_error=skip", "--out", "skip"]),
        (0, ["audit", "run", "--json"]),
        (0, ["report", "run"]),
        (0, ["report", "run", "skip", "--out", "both.html"]),
        (0, ["predict", "run", "d.csv", "--out", "p.parquet", "--id", "schlüssel"]),
        (2, ["predict", "run", "bad.csv", "--out", "q.parquet"]),
        (0, ["validate", "c.json", "--set", "source.label=判定"]),
        (0, ["predict", "run", "d.csv", "--explain", "3"]),
        (0, ["update", "run", "--delete", "gone.csv", "--out", "state", *chain]),
        (2, ["update", "run", "--delete", "unknown.csv", "--out", "state2"]),
        (0, ["verify", "chain", "state", "--receipt-key", "key"]),
        (0, ["purge", "run"]),
        (0, ["doctor"]),
        (2, ["validate", "nö.yaml"]),
        (2, ["audit", "läuf"]),
        (2, ["replay", "c.json", "--out", "läuf"]),
    ]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    environment.pop("PYTHONIOENCODING", None)
    called = [sys.executable, "-c", COMMANDS, json.dumps([words for _, words in commands])]
    done = subprocess.run(called, cwd=tmp_path, env=environment, capture_output=True, check=False)
    printed, told = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in printed + told, printed + told
    codes = [int(line.split()[1]) for line in printed.splitlines() if line.startswith("ended ")]
    assert codes == [code for code, _ in commands], printed + told
    assert "не" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert message("commands.locale_name", name="", encoding="ascii").remedy in told


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    """Bytes of an argument that are not UTF-8, in any locale, are one error."""
    for words in (
        ["audit", b"l\xe4uf"],
        ["validate", b"l\xe4uf.yaml"],
        ["validate", "configs/fudyadt.yaml", "--set", b"source.path=l\xe4uf"],
        ["predict", b"l\xe4uf", b"\xe4.csv", "--out", "p.parquet"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "pipelines.cli", *words], cwd=ROOT, capture_output=True, check=False
        )
        assert done.returncode == 2, done.stderr
        assert b"Traceback" not in done.stderr
        assert b"l\\udce4uf" in done.stderr
