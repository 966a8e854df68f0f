import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydt.errors import InputError
from raydt.examples.updates import DELETE, INSERT
from raydt.sources.divided import open_source
from raydt.sources.options import ParquetFiles, Sea
from raydt.streams.deletion_log import DeletionLog
from raydt.streams.options import make_stream
from tests.oracles.streams import MemorySource, Row
from tests.refusals import refused


def stream_of(tmp_path, log, rows=4, bad=(), source=None, **options):
    if isinstance(log, str):
        name = "log.csv"
        (tmp_path / name).write_text(log)
    else:
        name = "log.parquet"
        pq.write_table(pa.table(log), tmp_path / name)
    source = source or MemorySource([Row(10 + i, 0, bad=i in bad) for i in range(rows)], (100,))
    return make_stream(DeletionLog(deletion_log=name, **options), source, tmp_path)


def sequence(stream):
    """Inserted ids as they are, deleted ones negative."""
    return [int(i) for b in stream.batches(3) for i in np.where(b.op == DELETE, -b.id, b.id)]


def test_deletions_take_effect_after_so_many_rows(tmp_path):
    log = "why,after,id\nx,2,11\nx,,10\nx,0,13\nx,2,12\nx,4,13\nx,99,11\n"
    stream = stream_of(tmp_path, log)
    assert stream.length() == 10
    assert sequence(stream) == [-13, 10, 11, -11, -12, 12, 13, -13, -11, -10]


@pytest.mark.parametrize(
    "after", [pa.array([1, None, 1], pa.uint8()), [1.0, None, 1.0], [1.0, float("nan"), 1.0]], ids=str
)
def test_positions_may_be_any_numbers(tmp_path, after):
    assert sequence(stream_of(tmp_path, {"id": [10, 10, 11], "after": after}, rows=2)) == [10, -10, -11, 11, -10]


@pytest.mark.parametrize(
    "log",
    ["id\n11\n10\n", {"id": [11, 10]}, {"id": [11, 10], "after": pa.nulls(2)}],
    ids=["no column, as text", "no column", "nulls"],
)
def test_without_positions_deletions_come_last(tmp_path, log):
    assert sequence(stream_of(tmp_path, log, rows=2)) == [10, 11, -11, -10]


def test_string_ids(tmp_path):
    pq.write_table(pa.table({"x": [1, 2, 3], "y": [0, 0, 0], "key": ["b", "a", "007"]}), tmp_path / "t.parquet")

    def source():
        return open_source(ParquetFiles(path="t.parquet", id="key"), tmp_path)

    log = "id,after\nb,1\n007,2\na,2\n007,\nnobody,\n"  # 007 is deleted before it comes: not known then
    assert sequence(stream_of(tmp_path, log, source=source())) == [0, 0, 1, 1, -1, 2, -2, 1]
    with refused("streams.other_ids", column="id", found="integers", wanted="text"):
        stream_of(tmp_path, {"id": [1]}, source=source())


@pytest.mark.parametrize("size", [1, 100])
def test_a_deletion_is_traced_to_its_row_of_the_log(tmp_path, size):
    table = pa.table({"x": [1, 2, 3], "y": [0, 0, 0], "key": ["b", "a", "007"]})
    pq.write_table(table, tmp_path / "t.parquet")
    source = open_source(ParquetFiles(path="t.parquet", id="key"), tmp_path)
    stream = stream_of(tmp_path, "id,after\nnobody,3\n007,1\nb,1\n", source=source)
    found = []
    for batch in stream.batches(size):
        for place, (op, row) in enumerate(zip(batch.op.tolist(), batch.row.tolist(), strict=True)):
            file, at = stream.where(row)
            found.append((op, file.rsplit("/", 1)[-1], at, batch.name(place)))
    assert found == [
        (INSERT, "t.parquet", 0, "b"),
        (DELETE, "log.csv", 1, "007"),  # which comes later
        (DELETE, "log.csv", 2, "b"),
        (INSERT, "t.parquet", 1, "a"),
        (INSERT, "t.parquet", 2, "007"),
        (DELETE, "log.csv", 0, "nobody"),
    ]


def test_text_ids_need_the_column_of_ids(tmp_path):
    with refused("streams.other_ids", found="text"):
        stream_of(tmp_path, "id,after\nalice,3\n", source=open_source(Sea(n=4)))


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ("key,after\n1,2\n", ("no_id_column", "id", None)),
        ("id,after\n1,2\n,3\n", ("no_id", "id", 1)),
        ("id,after\nx,2\n", ("not_integer", "id", 0)),
        ("id,after\n1,2\n1,-1\n", ("not_position", "after", 1)),
        ("id,after\n1,2.5\n", ("not_position", "after", 0)),
        ("id,after\n1,soon\n", ("no_positions", "after", None)),
        ({"id": [1.0, 1.5]}, ("not_integer", "id", 1)),
        ({"id": [1], "after": ["1"]}, ("no_positions", "after", None)),
    ],
    ids=str,
)
@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_a_log_that_cannot_be_read_is_an_error(tmp_path, log, problem, on_error):
    name, column, row = problem
    with refused(f"streams.{name}", column=column, row=row):
        stream_of(tmp_path, log, on_error=on_error)


def test_two_columns_of_one_name_are_an_error(tmp_path):
    pq.write_table(pa.table([[10], [1], [2]], names=["id", "after", "after"]), tmp_path / "log.parquet")
    with refused("streams.repeated_column", column="after", what="deletion log"):
        make_stream(DeletionLog(deletion_log="log.parquet"), MemorySource([Row(10, 0)], (100,)), tmp_path)


def test_a_late_value_of_another_kind_is_an_error_too(tmp_path):
    filler = "".join(f"{i},{i}\n" for i in range(150_000))  # longer than the block that types come from
    for last, column, what in (("x,1", "id", "not_integer"), ("1,x", "after", "other_kind")):
        with refused(f"streams.{what}", row=150000, column=column, value="'x'", kind="integers"):
            stream_of(tmp_path, f"id,after\n{filler}{last}\n")


def test_the_format_is_told_by_the_name(tmp_path):
    (tmp_path / "log.txt").write_text("id\n1\n")
    with refused("files.unclear", InputError):
        make_stream(DeletionLog(deletion_log="log.txt"), MemorySource([]), tmp_path)
    with refused("files.nothing", InputError):
        make_stream(DeletionLog(deletion_log="nowhere.csv"), MemorySource([]), tmp_path)


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("bad", [(), (1,)])
def test_a_deletion_ends_the_warm_up(tmp_path, size, bad):
    """After as many rows as there are good ones before it."""
    log = "id,after\n11,4\n10,2\n"
    short, long = (stream_of(tmp_path, log, bad=bad, warmup=warmup, on_error="skip") for warmup in (2 - len(bad), 3))
    short_ops, long_ops = ([op for batch in one.batches(size) for op in batch.op.tolist()] for one in (short, long))
    assert short_ops == long_ops
    assert (long.warmup, long.state()["warmup"]) == (2 - len(bad), 2 - len(bad))


def test_a_deletion_before_the_warm_up_is_a_bad_row_of_the_log(tmp_path):
    log = "id,after\n11,0\n10,0\n10,2\n"
    with refused("streams.nothing_live", row=0, op="delete"):
        list(stream_of(tmp_path, log, warmup=3).batches(9))
    stream = stream_of(tmp_path, log, warmup=3, on_error="skip")
    assert sequence(stream) == [10, 11, -10, 12, 13]
    assert [(one.row, one.file.rpartition("/")[2]) for one in stream.take_skipped()] == [(0, "log.csv")] * 2


def test_a_log_that_changed_cannot_be_resumed(tmp_path):
    log = "id,after\n10,1\n11,2\n"
    stream = stream_of(tmp_path, log)
    next(stream.batches(2))
    state = stream.state()
    stream_of(tmp_path, log).restore(state)
    with refused("streams.changed_log"):
        stream_of(tmp_path, "id,after\n10,1\n12,2\n").restore(state)
