"""``source.permutation``: the same rows in a drawn order, with their true places in messages."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.arrays.elementary import bits, permutation, stream_key
from raydt.errors import InputError
from raydt.examples.updates import DELETE
from raydt.sources.divided import open_file, open_source
from raydt.sources.file_source import PermutedFiles
from raydt.sources.files.datafile import find_files
from raydt.sources.options import ArrowFiles, CsvFiles, Hyperplane, ParquetFiles, Sea
from raydt.streams.deletion_log import DeletionLog
from raydt.streams.options import make_stream
from raydt.streams.windows import Incremental
from tests.refusals import refused

N = 257
KEY = stream_key(5, "source permutation")


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "a": rng.normal(size=n),
            "color": [("red", "green", "blue")[i] for i in rng.integers(0, 3, n)],
            "y": [("no", "yes", "maybe")[i] for i in rng.integers(0, 3, n)],
            "when": pa.array(rng.integers(0, 10**9, n), pa.timestamp("s")),
        }
    )


def write_arrow(t, path):
    with pa.ipc.new_file(path, t.schema) as writer:
        for batch in t.to_batches(max_chunksize=50):
            writer.write_batch(batch)


WRITERS = {
    "parquet": (ParquetFiles, "parquet", lambda t, p: pq.write_table(t, p, row_group_size=60)),
    "arrow": (ArrowFiles, "arrow", write_arrow),
    "csv": (CsvFiles, "csv", pacsv.write_csv),
}


def values(source, start=0):
    """What the user sees of each row: id, number, category, label, time."""
    found = []
    for rows in source.rows(start):
        assert not rows.bad
        colors = source.state()["categories"]["color"]
        for i in range(len(rows)):
            color, label = colors[int(rows.X[i, 1])], source.classes[rows.y[i]]
            found.append((int(rows.id[i]), float(rows.X[i, 0]), color, label, int(rows.ts[i])))
    return found


def test_a_permutation():
    for n in (0, 1, 2, 1000):
        order = permutation(KEY, n)
        assert sorted(order.tolist()) == list(range(n))
        assert order.tolist() == sorted(range(n), key=lambda i: int(bits(KEY, np.array([i]))[0]))
    assert permutation(KEY, 6).tolist() == [5, 3, 0, 4, 2, 1]  # the same on every platform
    assert abs(np.corrcoef(permutation(KEY, 10_000), np.arange(10_000))[0, 1]) < 0.03


@pytest.mark.parametrize("form", WRITERS)
def test_rows_come_in_the_drawn_order(tmp_path, form):
    options, suffix, write = WRITERS[form]
    for part, seed in enumerate((1, 2)):
        write(table(seed=seed), str(tmp_path / f"{part}.{suffix}"))
    plain = open_source(options(path=str(tmp_path), ts="when"))
    drawn = open_source(options(path=str(tmp_path), ts="when", permutation=5))
    plain.require_ts()
    drawn.require_ts()
    rows, order = values(plain), permutation(KEY, 2 * N)
    assert values(drawn) == [rows[i] for i in order]
    assert [row[0] for row in values(drawn)] == order.tolist()
    assert drawn.n_rows == 2 * N
    for row in (0, 1, 2 * N - 1):
        assert drawn.where(row) == plain.where(int(order[row]))
    for start in (1, 100, 2 * N - 1, 2 * N):
        assert values(drawn, start) == [rows[i] for i in order[start:]]


@given(st.integers(1, 70), st.integers(0, N))
def test_chunks_and_starts_do_not_matter(files_once, chunk_rows, start):
    options = ParquetFiles(path="t.parquet", permutation=5, features=["a", "color"])
    files = [open_file(options, p) for p in find_files("t.parquet", files_once, ())]
    source = PermutedFiles(options, files, chunk_rows)
    chunks = list(source.rows())
    again = list(source.rows(start))
    for name in ("X", "y", "id"):
        whole = np.concatenate([getattr(c, name) for c in chunks])
        rest = [getattr(c, name) for c in again]
        np.testing.assert_array_equal(np.concatenate([whole[:0], *rest]), whole[start:])


@pytest.fixture(scope="module")
def files_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("permuted")
    pq.write_table(table(), folder / "t.parquet")
    return folder


def test_messages_name_the_true_file_and_row(tmp_path):
    for part in range(3):
        (tmp_path / f"{part}.csv").write_text("a,y\n" + "".join(f"{'' if r == 7 else r},k\n" for r in range(10)))
    source = open_source(CsvFiles(path=str(tmp_path), permutation=2))
    (rows,) = source.rows()
    assert sorted(str(error).split(":")[0] for error in rows.bad.values()) == [
        f"{tmp_path}/{part}.csv, row 7, column 'a'" for part in range(3)
    ]
    for place in rows.bad:
        assert rows.id[place] % 10 == 7
    stream = make_stream(Incremental(on_error="skip"), source)
    assert sum(map(len, stream.batches(4))) == 27
    for entry in stream.take_skipped():
        assert entry.reason.startswith(f"{entry.file}, row 7")


def test_a_file_that_breaks_off_is_met_before_the_first_row(tmp_path):
    with pa.ipc.new_stream(str(tmp_path / "t.arrows"), table().schema) as writer:
        for batch in table().to_batches(max_chunksize=50):
            writer.write_batch(batch)
    content = (tmp_path / "t.arrows").read_bytes()
    (tmp_path / "t.arrows").write_bytes(content[: len(content) - 200])
    options = ArrowFiles(path="t.arrows", features=["a"], permutation=2)
    stream = make_stream(Incremental(), open_source(options, tmp_path))
    with refused("files.unreadable_from", InputError, file=str(tmp_path / "t.arrows"), row=250, kind="arrow"):
        next(stream.batches(4))
    assert stream.state()["seq"] == 0


def test_ids_are_row_numbers_of_the_files(tmp_path):
    pq.write_table(table(), tmp_path / "t.parquet")
    (tmp_path / "log.csv").write_text("id,after\n3,257\n")
    options = {"path": "t.parquet", "features": ["a"], "permutation": 5}
    stream = make_stream(DeletionLog(deletion_log="log.csv"), open_source(ParquetFiles(**options), tmp_path), tmp_path)
    (batch,) = stream.batches(1000)
    assert batch.op[-1] == DELETE
    inserted = int(np.nonzero(batch.id[:-1] == 3)[0][0])
    assert batch.X[inserted, 0] == table()["a"][3].as_py()


def test_limit_takes_the_first_rows_of_the_files(tmp_path):
    pq.write_table(table(), tmp_path / "t.parquet")
    for limit in (1, 100, 1000):
        source = open_source(ParquetFiles(path="t.parquet", features=["a"], limit=limit, permutation=5), tmp_path)
        ids = [i for rows in source.rows() for i in rows.id.tolist()]
        assert ids == permutation(KEY, min(limit, N)).tolist()


def test_files_of_different_types_are_put_together(tmp_path):
    text = pa.array(["red", "blue", "red"])
    parts = [
        {"k": pa.array([1, 2, 3], pa.int8()), "c": text, "y": [0, 1, 0]},
        {"k": pa.array([0.5, 1.5, 2.5], pa.float32()), "c": text.dictionary_encode(), "y": [0, 1, 0]},
        {"k": pa.array([1, 2, 3], pa.int64()), "c": text.cast(pa.large_string()), "y": [0, 1, 0]},
    ]
    for number, part in enumerate(parts):
        pq.write_table(pa.table(part), tmp_path / f"{number}.parquet")
    source = open_source(ParquetFiles(path=str(tmp_path), permutation=5))
    (rows,) = source.rows()
    k = [1, 2, 3, 0.5, 1.5, 2.5, 1, 2, 3]
    assert rows.X[:, 0].tolist() == [k[i] for i in rows.id]
    colors = source.state()["categories"]["c"]
    assert [colors[int(code)] for code in rows.X[:, 1]] == [text[i % 3].as_py() for i in rows.id]
    pq.write_table(pa.table({**parts[0], "k": [True, False, True]}), tmp_path / "3.parquet")
    with refused("files.no_table", InputError, file=str(tmp_path / "0.parquet")):
        next(open_source(ParquetFiles(path=str(tmp_path), permutation=5)).rows())


def test_no_rows(tmp_path):
    pq.write_table(table().slice(0, 0), tmp_path / "t.parquet")
    source = open_source(ParquetFiles(path="t.parquet", features=["a"], permutation=5), tmp_path)
    assert list(source.rows()) == []
    (tmp_path / "t.csv").write_text("a,y\n")  # a header tells no types
    with refused("files.no_rows", InputError, file=str(tmp_path / "t.csv")):
        open_source(CsvFiles(path="t.csv", permutation=5), tmp_path)


@pytest.mark.parametrize("permutation", range(4))
def test_flawed_rows_say_what_is_wrong_wherever_they_are_drawn(tmp_path, permutation):
    for part, flaw in ((0, b"3"), (1, b"3,\xf6,k")):  # too short, not UTF-8
        lines = [flaw if r == 3 else b"%d,s,k" % r for r in range(9)]
        (tmp_path / f"{part}.csv").write_bytes(b"a,s,y\n" + b"\n".join(lines) + b"\n")
    plain = open_source(CsvFiles(path=str(tmp_path)))
    drawn = open_source(CsvFiles(path=str(tmp_path), permutation=permutation))
    wanted, found = (sorted(str(e) for rows in s.rows() for e in rows.bad.values()) for s in (plain, drawn))
    assert found == wanted
    assert [error.split(":")[0].removeprefix(f"{tmp_path}/") for error in found] == [
        "0.csv, row 3",
        "1.csv, row 3, column 's'",
    ]


@pytest.mark.parametrize("options", [Sea(n=1000), Hyperplane(n=1000, n_features=4)], ids=["sea", "hyperplane"])
def test_generated_rows(options):
    plain, drawn = (open_source(options.model_copy(update={"permutation": seed})) for seed in (None, 5))
    X, y = (np.concatenate([getattr(rows, name) for rows in plain.rows()]) for name in ("X", "y"))
    order = permutation(KEY, 1000)
    for start in (0, 999):
        chunks = list(drawn.rows(start))
        np.testing.assert_array_equal(np.concatenate([c.X for c in chunks]), X[order[start:]])
        np.testing.assert_array_equal(np.concatenate([c.y for c in chunks]), y[order[start:]])
        np.testing.assert_array_equal(np.concatenate([c.id for c in chunks]), order[start:])
    assert drawn.where(3) == plain.where(int(order[3]))


def test_fingerprints_differ(tmp_path):
    pq.write_table(table(), tmp_path / "t.parquet")
    for make in (
        lambda seed: ParquetFiles(path="t.parquet", features=["a"], permutation=seed),
        lambda s: Sea(permutation=s),
    ):
        prints = [open_source(make(seed), tmp_path).identity().fingerprint for seed in (None, 1, 2, 1)]
        assert len(set(prints)) == 3
        assert prints[1] == prints[3]
