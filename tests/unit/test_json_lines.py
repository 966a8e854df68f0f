"""Files of JSON Lines: every row is there, in its order, and a bad one is named by its row and column."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.errors import InputError
from raydt.sources.divided import open_source
from raydt.sources.files import jsonl
from raydt.sources.files.datafile import DataFile, find_files
from raydt.sources.files.jsonl import JsonLinesDataFile
from raydt.sources.options import JsonLinesFiles
from tests.refusals import refused


def opened(path: Path, text: str | bytes, **options: Any) -> JsonLinesDataFile:
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
        file = opened(folder / "rows.jsonl", ("\n\n" if spaced else "\n").join(lines))
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
    file = opened(tmp_path / "rows.ndjson", "\n".join(lines))
    kinds = {field.name: field.type for field in file.schema}
    assert (kinds["a"], kinds["s"], kinds["t"]) == (pa.float64(), pa.string(), pa.timestamp("s"))
    assert opened(tmp_path / "text.jsonl", "\n".join(lines), as_text=("t",)).schema.field("t").type == pa.string()


def test_a_wrapped_change_is_its_payload(tmp_path: Path) -> None:
    """Kafka Connect's schema may hold values of several kinds in one list, which no column can."""
    schema = {"type": "struct", "fields": [{"field": "a", "default": 0}, {"field": "s", "default": "x"}]}
    insert = {"before": None, "after": {"id": 1, "a": 2.5}, "op": "c"}
    changes = [insert, {"before": {"id": 1}, "after": None, "op": "d"}, None]
    wrapped = [json.dumps({"schema": schema, "payload": change}) for change in changes]
    found = opened(tmp_path / "wrapped.jsonl", "\n".join(wrapped))
    assert rows_of(found) == rows_of(opened(tmp_path / "plain.jsonl", "\n".join(map(json.dumps, changes))))
    rows = [{"payload": {"a": 1}}, {"payload": {"op": "c", "after": 2}, "id": 7}]
    other = opened(tmp_path / "other.jsonl", "\n".join(map(json.dumps, rows)))
    assert [row["payload"]["a"] for row in rows_of(other)] == [1, None]


def test_compressed_and_null_lines(tmp_path: Path) -> None:
    file = opened(tmp_path / "rows.jsonl.gz", gzip.compress(b'null\n{"a":1}\n null \n\n{"a":2}'))
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
        opened(tmp_path / "array.json", '[{"a": 1},\n {"a": 2}]')
    assert opened(tmp_path / "empty.jsonl", "").count() == 0


def test_a_long_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_BLOCK", 1 << 10)
    monkeypatch.setattr(jsonl, "_LONGEST", 1 << 20)
    with refused("files.long_line", InputError, line=2):
        opened(tmp_path / "long.jsonl", b'{"a": 1}\n' + b" " * (3 << 20))
