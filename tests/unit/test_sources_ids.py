"""Ids of every type that files have, in a source and in a deletion log."""

import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydt.errors import InputError
from raydt.examples.updates import DELETE
from raydt.sources import ArrowFiles, CsvFiles, ParquetFiles, open_source
from raydt.streams import DeletionLog, make_stream

TEXTS = ["b", "a", "007", "é"]
UUIDS = [uuid.UUID(int=i) for i in (7, 2**127, 3, 2**64)]
UUID_TYPE = pa.uuid() if hasattr(pa, "uuid") else None

TEXT = {
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "dictionary of large_string": pa.array(TEXTS, pa.large_string()).dictionary_encode(),
}
NUMBERS = {
    **{
        str(kind): pa.array([7, 5, 3, 9], kind) for kind in (pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64())
    },
    "uint64": pa.array([7, 5, 3, 9], pa.uint64()),
    "dictionary of int64": pa.array([7, 5, 3, 9]).dictionary_encode(),
}


def write(path, ids, **columns):
    table = pa.table({"x": [1.0] * len(ids), "y": [0] * len(ids), "key": ids} | columns)
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def source_of(tmp_path, ids, **columns):
    write(tmp_path / "t.arrow", ids, **columns)
    return open_source(ArrowFiles(path="t.arrow", id="key", features=["x"]), tmp_path)


def ids_of(source):
    (rows,) = source.rows()
    assert not rows.bad
    return rows.id.tolist() if rows.names is None else rows.names.tolist()


@pytest.mark.parametrize("ids", TEXT.values(), ids=TEXT)
def test_text_ids(tmp_path, ids):
    source = source_of(tmp_path, ids)
    assert source.id_kind == "text"
    assert ids_of(source) == TEXTS


@pytest.mark.parametrize("ids", NUMBERS.values(), ids=NUMBERS)
def test_integer_ids(tmp_path, ids):
    source = source_of(tmp_path, ids)
    assert source.id_kind == "integer"
    assert ids_of(source) == [7, 5, 3, 9]


@pytest.mark.skipif(UUID_TYPE is None, reason="this pyarrow has no UUID type")
@pytest.mark.parametrize(
    "write_file", [write, lambda path, ids: pq.write_table(pa.table({"x": [1.0] * 4, "y": [0] * 4, "key": ids}), path)]
)
def test_uuids_are_text_as_people_write_them(tmp_path, write_file):
    ids = pa.array([value.bytes for value in UUIDS], UUID_TYPE)
    write_file(tmp_path / "t", ids)
    kind = ArrowFiles if write_file is write else ParquetFiles
    source = open_source(kind(path="t", id="key"), tmp_path)
    assert ids_of(source) == [str(value) for value in UUIDS]
    (tmp_path / "log.csv").write_text(f"id\n{UUIDS[2]}\n")
    pq.write_table(pa.table({"id": ids[2:3]}), tmp_path / "log.parquet")
    for log in ("log.csv", "log.parquet"):
        source = open_source(kind(path="t", id="key"), tmp_path)
        stream = make_stream(DeletionLog(deletion_log=log), source, tmp_path)
        assert deleted(stream) == [2]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (pa.array([b"a"]), "column 'key': it holds .*binary.*, but ids are integers or text. Convert it"),
        (pa.array([b"a" * 16], pa.binary(16)), "but ids are integers or text"),
        (pa.array([1.0]), "it holds floating-point numbers, but ids are"),
        (pa.array([True]), "it holds truth values, but ids are"),
        (pa.array([1.5]).dictionary_encode(), "it holds floating-point numbers, but ids are"),
        (pa.array([0], pa.timestamp("us")), "it holds times without a zone.*, but ids are"),
        (pa.nulls(1), "it holds no value in any row, but ids are"),
        (pa.array([{"a": 1}]), "but ids are integers or text"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_types_that_are_no_ids(tmp_path, ids, message):
    with pytest.raises(InputError, match=message):
        source_of(tmp_path, ids)


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["a", None, "b"]),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", None, "b"])),
        pa.array([1, None, 2]),
        pa.array([1, None, 2]).dictionary_encode(),
        pa.array([1, 2**63, 2], pa.uint64()),
    ],
    ids=lambda ids: str(ids.type),
)
def test_a_row_without_a_usable_id_is_bad(tmp_path, ids):
    source = source_of(tmp_path, ids)
    (rows,) = source.rows()
    assert {place: error.column for place, error in rows.bad.items()} == {1: "key"}
    assert (rows.id if rows.names is None else rows.names)[[0, 2]].tolist() in (["a", "b"], [1, 2])


def deleted(stream):
    """Codes that the log deletes; -1 for those that the source has not."""
    return [int(i) for b in stream.batches(2) for i in b.id[b.op == DELETE]]


def names_deleted(stream):
    return [b.name(int(place)) for b in stream.batches(2) for place in np.flatnonzero(b.op == DELETE)]


def log_of(tmp_path, source, ids):
    write(tmp_path / "log.arrow", ids, id=ids)
    return make_stream(DeletionLog(deletion_log="log.arrow"), source, tmp_path)


@pytest.mark.parametrize("log", TEXT.values(), ids=TEXT)
def test_a_log_of_text_ids(tmp_path, log):
    stream = log_of(tmp_path, source_of(tmp_path, TEXT["string"]), log)
    assert deleted(stream) == [0, 1, 2, 3]
    assert names_deleted(log_of(tmp_path, source_of(tmp_path, TEXT["string"]), log)) == TEXTS


@pytest.mark.parametrize(
    "log",
    [*NUMBERS.values(), pa.array(["7", " 5", "0003", "9 "]), pa.array(["7", "5", "3", "9"], pa.string_view())],
    ids=lambda log: str(log.type),
)
@pytest.mark.parametrize("source", ["int32", "uint64", "dictionary of int64"])
def test_a_log_of_integers_also_as_text(tmp_path, source, log):
    stream = log_of(tmp_path, source_of(tmp_path, NUMBERS[source]), log)
    assert deleted(stream) == [7, 5, 3, 9]
    assert names_deleted(log_of(tmp_path, source_of(tmp_path, NUMBERS[source]), log)) == [7, 5, 3, 9]


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (pa.array(["7", "0x5"]), r"row 1, column 'id': '0x5' is not an integer, as the source's ids are. Correct"),
        (pa.array(["7", "5.0"]), r"row 1, column 'id': '5.0' is not an integer"),
        (pa.array(["7", str(2**63)]), r"row 1, column 'id': '9223372036854775808' is not an integer"),
        (pa.array(["7", ""]), r"row 1, column 'id': '' is not an integer"),
        (pa.array(["7", None]), r"row 1, column 'id': no id"),
        (pa.array([7, None]), r"row 1, column 'id': no id"),
        (pa.array([7, 2**63], pa.uint64()), r"row 1, column 'id': the id does not fit into a signed 64-bit integer"),
        (pa.array([7.0]), r"column 'id': the ids are floating-point numbers, but those of the source are integers"),
        (pa.nulls(1), r"column 'id': the ids are no value in any row"),
    ],
    ids=lambda value: str(value.to_pylist()) if isinstance(value, pa.Array) else "",
)
def test_ids_in_a_log_that_cannot_be_those_of_the_source(tmp_path, log, message):
    with pytest.raises(InputError, match=message):
        log_of(tmp_path, source_of(tmp_path, NUMBERS["int64"]), log)


def test_integers_in_a_log_are_not_taken_for_text(tmp_path):
    with pytest.raises(InputError, match="the ids are integers, but those of the source are text"):
        log_of(tmp_path, source_of(tmp_path, TEXT["string"]), NUMBERS["int64"])


def test_ids_of_a_csv_file(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,key\n1,0,b\n1,0,007\n")
    assert ids_of(open_source(CsvFiles(path="t.csv", id="key"), tmp_path)) == ["b", "007"]
    (tmp_path / "t.csv").write_text("x,y,key\n1,0,12\n1,0,007\n")
    assert ids_of(open_source(CsvFiles(path="t.csv", id="key"), tmp_path)) == [12, 7]


def test_a_column_of_ids_without_a_value_makes_bad_rows(tmp_path):
    (tmp_path / "t.csv").write_text("key,x,y\n,1,0\n,2,1\n")
    source = open_source(CsvFiles(path="t.csv", id="key"), tmp_path)
    (rows,) = source.rows()
    assert [(error.row, error.column, error.problem) for error in rows.bad.values()] == [
        (0, "key", "no id"),
        (1, "key", "no id"),
    ]


def test_ids_after_a_block_without_any_are_integers(tmp_path):
    filler = "\n".join(f",1,{'x' * 60}" for _ in range(20_000))  # longer than the block that types come from
    (tmp_path / "t.csv").write_text(f"key,y,x\n{filler}\n7,0,z\nz,0,z\n")
    source = open_source(CsvFiles(path="t.csv", id="key"), tmp_path)
    last = list(source.rows())[-1]
    assert last.id[-2] == 7
    assert len(last) - 2 not in last.bad
    assert last.bad[len(last) - 1].problem == "'z' is not of the kind of the first rows (integers)"


def test_a_log_without_an_id_names_the_row(tmp_path):
    (tmp_path / "log.csv").write_text("id,why\n,x\n")
    source = source_of(tmp_path, [7, 5])
    with pytest.raises(InputError, match=r"log.csv, row 0, column 'id': no id. Correct the deletion log"):
        make_stream(DeletionLog(deletion_log="log.csv"), source, tmp_path)
