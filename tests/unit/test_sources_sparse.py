"""Sparse sources, permuted sources, and change logs as sources."""

import codecs
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from raydt.arrays.elementary import bits, permutation, stream_key
from raydt.encoding.labels import IGNORED
from raydt.errors import InputError
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, Reading
from raydt.messages import text
from raydt.sources.divided import open_file, open_source
from raydt.sources.file_source import CHUNK_CELLS, PermutedFiles, StoredSource
from raydt.sources.files.datafile import find_files
from raydt.sources.options import ArrowFiles, CsvFiles, Hyperplane, ParquetFiles, Sea, SourceOptions
from raydt.streams.deletion_log import Changelog, DeletionLog
from raydt.streams.windows import Incremental
from tests.refusals import refusal, refused
from tests.small_tables import ROW, SPELLINGS, enveloped, flat
from tests.small_tables import spelled_changelogs as spelled
from tests.strategies import ones

# -- sources sparse --------------------------------------------------------------------------------------------------
# Columns of lists of indices, and LIBSVM files: what is read, and what makes a row or a file unusable.

WIDTH = 40
INT32 = pa.int32()


def source(folder, **options):
    return open_source(TypeAdapter(SourceOptions).validate_python(options), folder, Reading(sparse=True))


def parquet(folder, lists, kind=INT32, width=WIDTH, name="t.parquet", columns=(), **options):
    n = len(lists)
    table = pa.table({"y": [i % 2 for i in range(n)], **dict(columns), "words": pa.array(lists, pa.list_(kind))})
    pq.write_table(table.replace_schema_metadata({} if width is None else {"n_features": str(width)}), folder / name)
    return source(folder, **{"kind": "parquet", "path": "t.parquet", **options})


def libsvm(folder, text, **options):
    (folder / "t.libsvm").write_text(text)
    return source(folder, kind="libsvm", path="t.libsvm", **options)


def lists_of(source, start=0):
    return [rows.sparse.row(i).tolist() for rows in source.rows(start) for i in range(len(rows))]


def problems(source):
    """Column and id of the message of each bad row, and the value at fault if it has one."""
    return {
        error.row: (error.column, error.message.id.removeprefix("rows."), text(error.message.parameters["value"]))
        for rows in source.rows()
        for error in rows.bad.values()
    }


class TestLists:
    def test_lists_that_are_all_empty(self, tmp_path):
        empty = parquet(tmp_path, [[], []], pa.null())
        assert lists_of(empty) == [[], []]
        parquet(tmp_path, [[], []], pa.null(), name="a.parquet", path="a.parquet")
        assert lists_of(parquet(tmp_path, [[7]], path=["a.parquet", "t.parquet"])) == [[], [], [7]]
        assert parquet(tmp_path, [[], []], pa.null(), width=None).features.sparse == 1

    @pytest.mark.parametrize(
        ("option", "declared", "expected"), [(None, 9, 9), (50, 9, 50), (None, None, 8), (8, None, 8)]
    )
    def test_number_of_features(self, tmp_path, option, declared, expected):
        found = parquet(tmp_path, [[7], [2]], width=declared, n_features=option)
        assert found.features.sparse == expected
        assert not problems(found)

    def test_the_largest_of_the_numbers_that_files_declare(self, tmp_path):
        parquet(tmp_path, [[7]], width=9, name="a.parquet", path="a.parquet")
        found = parquet(tmp_path, [[11]], width=12, name="b.parquet", path=["a.parquet", "b.parquet"])
        assert found.features.sparse == 12
        assert lists_of(found) == [[7], [11]]
        found = parquet(tmp_path, [[20]], width=None, name="b.parquet", path=["a.parquet", "b.parquet"])
        assert found.features.sparse == 21

    @pytest.mark.parametrize("width", ["many", 0, 2**31])
    def test_a_number_that_is_none(self, tmp_path, width):
        with refused("columns.bad_width", InputError, file=str(tmp_path / "t.parquet"), width=str(width)):
            parquet(tmp_path, [[7]], width=width)

    def test_columns_that_are_refused(self, tmp_path):
        two = {"more": pa.array([[1]], pa.list_(pa.int32()))}
        with refused("columns.two_lists", InputError, column="words", other="more"):
            parquet(tmp_path, [[7]], columns=two)
        assert parquet(tmp_path, [[7]], columns=two, features=["more"]).features.sparse_column == "more"
        with refused("columns.categorical_lists", InputError, column="words"):
            parquet(tmp_path, [[7]], categorical=["words"])
        with refused("columns.unusable", InputError, column="words"):
            parquet(tmp_path, [[7]], pa.float64())
        with refused("columns.no_lists", InputError):
            parquet(tmp_path, [[7]], columns={"a": [1]}, features=["a"], n_features=3)
        pq.write_table(pa.table({"y": [1], "words": [1]}), tmp_path / "b.parquet")
        with refused("columns.drift_of_feature", InputError, column="words"):
            parquet(tmp_path, [[7]], path=["b.parquet", "t.parquet"])

    def test_every_way_to_the_same_rows(self, tmp_path):
        rng = np.random.default_rng(2)
        lists = [sorted(rng.choice(WIDTH, rng.integers(0, 6), replace=False).tolist()) for _ in range(5000)]
        found = parquet(tmp_path, lists)
        assert max(len(rows) for rows in found.rows()) == CHUNK_CELLS // 256
        assert lists_of(found) == lists
        assert lists_of(found, 4321) == lists[4321:]
        stored = StoredSource(found)
        assert lists_of(stored, 1234) == lists[1234:]
        assert stored.nbytes >= 4 * sum(map(len, lists)) + 8 * 5000
        permuted = parquet(tmp_path, lists, permutation=3)
        order = np.concatenate([rows.id for rows in permuted.rows()])
        assert sorted(order.tolist()) == list(range(5000))
        assert lists_of(permuted) == [lists[i] for i in order]

    def test_a_changelog_and_its_envelope(self, tmp_path):
        lists = [[1, 2], None, [3]]
        plain = parquet(tmp_path, lists, columns={"id": [5, 5, 6], "op": ["c", "d", "c"]}, id="id", op="op")
        assert not problems(plain)
        assert lists_of(plain) == [[1, 2], [], [3]]
        after = [{"id": 5, "y": 1, "words": [2, 1]}, None, {"id": 6, "y": 0, "words": [39]}]
        before = [None, {"id": 5, "y": None, "words": None}, None]
        kind = pa.struct([("id", pa.int64()), ("y", pa.int64()), ("words", pa.list_(pa.int32()))])
        table = pa.table({"op": ["c", "d", "c"], "before": pa.array(before, kind), "after": pa.array(after, kind)})
        pq.write_table(table, tmp_path / "e.parquet")
        wrapped = source(tmp_path, kind="parquet", path="e.parquet", id="id", envelope="debezium")
        assert not problems(wrapped)
        assert lists_of(wrapped) == [[1, 2], [], [39]]
        assert wrapped.features.sparse == 40


class TestLibsvm:
    def test_what_is_read(self, tmp_path):
        text = "+1 3:1 1:1.0 # comment 7:1\n\n-1\t2:1  5:0\r\n# nothing\n+1\n-1 7:1.00"
        found = libsvm(tmp_path, text)
        assert lists_of(found) == [[1, 3], [2], [], [7]]
        assert found.classes == [1, -1]
        assert found.features.sparse == 8
        assert found.features.name(3) == "indices[3]"
        assert libsvm(tmp_path, text, n_features=100).features.sparse == 100

    @pytest.mark.parametrize(
        ("value", "number"),
        [
            *((text, 1) for text in ("1", "+1", "01", "1.", "1.0", "1e0", "1E+00", "10e-1", "0.1e1", ".001e3", "1e-0")),
            *((text, 0) for text in ("0", "-0", "+0", "0.0", ".0", "0e5", "00", "0e99999999999")),
            *((text, None) for text in ("-1", "1e1", "11", "1.1", "10", "1e", "e0", ".", "+", "--1", "1e0.0", "1 e0")),
            *((text, None) for text in ("1e99999999999", "0.5", "0x1", "1.0.0", "nan", "one", "1e0x", "1e+")),
        ],
    )
    def test_every_spelling_of_one_and_nothing(self, tmp_path, value, number):
        found = libsvm(tmp_path, f"1 3:{value} 4:1\n", n_features=9)
        if number is None:
            assert list(problems(found)) == [0]
        else:
            assert not problems(found)
            assert lists_of(found) == [[3, 4] if number else [4]]

    def test_a_byte_order_mark_is_passed_over(self, tmp_path):
        (tmp_path / "t.libsvm").write_bytes(codecs.BOM_UTF8 + b"1 3:1\n0 4:1\n")
        assert lists_of(source(tmp_path, kind="libsvm", path="t.libsvm")) == [[3], [4]]

    @pytest.mark.nightly
    def test_a_long_line_takes_linear_time(self, tmp_path, monkeypatch):
        """Blocks of 16 bytes, so that the line is as many blocks as one of 512 GB would be, or is too long."""
        monkeypatch.setattr("raydt.sources.files.libsvm._BLOCK", 16)
        index, seen = 500_000, time.perf_counter()
        text = "1 " + " ".join(f"{j}:1" for j in range(1, index)) + "\n0 3:1 3:1\n"
        found = libsvm(tmp_path, text)
        assert problems(found) == {1: ("indices", "repeated_index", "3")}
        assert list(map(len, lists_of(found))) == [index - 1, 0]
        assert time.perf_counter() - seen < 30
        monkeypatch.setattr("raydt.sources.files.libsvm._LONGEST", 1 << 20)
        with refused("files.long_line", InputError, file=str(tmp_path / "t.libsvm"), line=1, most=1):
            libsvm(tmp_path, text)

    def test_labels_that_are_fractions(self, tmp_path):
        found = libsvm(tmp_path, "1.5 1:1\n2 1:1\n")
        (rows,) = found.rows()
        assert rows.y.tolist() == [0, 1]
        assert found.classes == [1.5, 2.0]

    def test_bad_rows(self, tmp_path):
        text = "1 1:1\n1 1:0.5\n1 x:1\n1 3\n1 4:\n1 -2:1\n1 2147483647:1\n1 2:1 2:1\nspam 1:1\n1 1:1 qid:4\n1 1:1:1\n"
        assert problems(libsvm(tmp_path, text, n_features=9)) == {
            1: ("indices", "not_binary", "'1:0.5'"),
            2: ("indices", "not_pair", "'x:1'"),
            3: ("indices", "not_pair", "'3'"),
            4: ("indices", "not_pair", "'4:'"),
            5: ("indices", "not_pair", "'-2:1'"),
            6: ("indices", "large_index", "'2147483647:1'"),
            7: ("indices", "repeated_index", "2"),
            8: ("y", "not_kind", "'spam'"),
            9: ("indices", "not_pair", "'qid:4'"),
            10: ("indices", "not_binary", "'1:1:1'"),
        }

    @pytest.mark.parametrize(("text", "problem"), [("", "no_rows"), ("\n# a\n", "no_rows"), ("a,b\n1,2\n", "no_label")])
    def test_files_that_are_none(self, tmp_path, text, problem):
        with refused(f"files.{problem}", InputError):
            libsvm(tmp_path, text)

    @given(st.lists(ones(WIDTH), min_size=1, max_size=30), st.integers(1, 60))
    def test_blocks_and_seeks_do_not_matter(self, tmp_path_factory, lists, block):
        folder = tmp_path_factory.mktemp("libsvm")
        text = "".join(f"{i % 3} {' '.join(f'{j}:1' for j in row)}\n" for i, row in enumerate(lists))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("raydt.sources.files.libsvm._BLOCK", block)
            found = libsvm(folder, text.rstrip("\n"), n_features=WIDTH)
            assert lists_of(found) == lists
            assert lists_of(found, len(lists) // 2) == lists[len(lists) // 2 :]
            assert found.count_rows() == len(lists)


# -- sources permutation ---------------------------------------------------------------------------------------------
# ``source.permutation``: the same rows in a drawn order, with their true places in messages.

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
    stream = Incremental(on_error="skip").make(source)
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
    stream = Incremental().make(open_source(options, tmp_path))
    with refused("files.unreadable_from", InputError, file=str(tmp_path / "t.arrows"), row=250, kind="arrow"):
        next(stream.batches(4))
    assert stream.state()["seq"] == 0


def test_ids_are_row_numbers_of_the_files(tmp_path):
    pq.write_table(table(), tmp_path / "t.parquet")
    (tmp_path / "log.csv").write_text("id,after\n3,257\n")
    options = {"path": "t.parquet", "features": ["a"], "permutation": 5}
    stream = DeletionLog(deletion_log="log.csv").make(open_source(ParquetFiles(**options), tmp_path), tmp_path)
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


# -- sources changelog -----------------------------------------------------------------------------------------------
# Change logs as other systems write them: operations by other names, rows that are no update, Debezium's envelope.

OPTIONS = TypeAdapter(SourceOptions)
ONE = {"id": 1, "a": 0.5, "s": "p", "y": "no"}
TWO = {"id": 2, "a": 1.5, "s": "q", "y": "yes"}


def write_arrow_changelog(table, path):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def source_of(tmp_path, table, kind=ParquetFiles, **options):
    """A source of ``table``, or of the table written last if None."""
    if table is not None:
        (pq.write_table if kind is ParquetFiles else write_arrow_changelog)(table, str(tmp_path / "t"))
    return open_source(kind(path="t", id="id", **({"op": "op"} | options)), tmp_path)


def one(source):
    (rows,) = source.rows()
    return rows


def stream_of(source, **options):
    return Changelog(**options).make(source, ".")


def of(batch):
    """The updates of a batch: (operation, id, row of the source, features, label)."""
    carried = iter(zip(batch.X.tolist(), batch.y.tolist(), strict=True))
    for op, code, row in zip(batch.op.tolist(), batch.id.tolist(), batch.row.tolist(), strict=True):
        yield (op, code, row, *((None, None) if op == DELETE else next(carried)))


def updates(stream, size=3):
    found = []
    for batch in stream.batches(size):
        assert batch.start == len(found)
        found += of(batch)
    return found


@pytest.mark.parametrize(
    ("code", "values"),
    [
        (INSERT, ["insert", "INSERT", "i", "I", "c", "r", "+I"]),
        (DELETE, ["delete", "DELETE", "d", "D", "-D"]),
        (UPDATE, ["update", "UPDATE", "u", "+U", "UPDATE_AFTER", "update_postimage"]),
        (QUERY, ["query", "q"]),
        (DELETE_VALUE, ["delete_value"]),
        (IGNORED, ["-U", "UPDATE_BEFORE", "update_preimage", "m"]),
    ],
)
@pytest.mark.parametrize("dictionary", [False, True])
def test_spellings(tmp_path, code, values, dictionary):
    table = flat([(f" {value}", ONE) for value in values])
    if dictionary:
        table = table.set_column(0, "op", table["op"].dictionary_encode())
    rows = one(source_of(tmp_path, table))
    assert not rows.bad
    assert rows.op.tolist() == [code] * len(values)


LOG = flat(
    [
        ("-U", {"id": 9, "a": None, "s": "unseen", "y": "unseen"}),
        ("+I", ONE),
        ("m", None),
        ("-U", ONE),
        ("+U", ONE | {"a": 2.5, "s": "r"}),
        ("?", ONE),
        ("-U", None),
        ("-D", {"id": 1}),
        ("+I", TWO),
        ("m", None),
    ]
)
UPDATES = [
    (INSERT, 1, 1, [0.5, 0], 0),
    (UPDATE, 1, 4, [2.5, 1], 0),
    (DELETE, 1, 7, None, None),
    (INSERT, 2, 8, [1.5, 2], 1),
]


def test_ignored_rows_are_no_updates_and_neither_bad_nor_skipped(tmp_path):
    source = source_of(tmp_path, LOG)
    assert list(one(source).bad) == [5]
    assert source.classes == ["no", "yes"]  # no trace of the label that was only ignored
    assert source.state()["categories"] == {"s": ["p", "r", "q"]}
    stream = stream_of(source_of(tmp_path, LOG), on_error="skip")
    assert stream.length() >= len(UPDATES)
    assert updates(stream) == UPDATES
    assert [skipped.row for skipped in stream.take_skipped()] == [5]


def test_ignored_rows_do_not_count_in_the_warm_up(tmp_path):
    table = flat([("m", None), ("+I", ONE), ("-U", ONE), ("+I", TWO), ("+U", TWO)])
    for planned in (2, 3):
        stream = stream_of(source_of(tmp_path, table), warmup=planned)
        assert len(updates(stream)) == 3
        assert stream.warmup == 2


@pytest.mark.parametrize("op", ["-D", "+U"])
def test_a_warm_up_begins_with_an_insertion(tmp_path, op):
    """Whatever comes before is a bad row, and the warm-up goes on."""
    table = flat([(op, ONE), (op, TWO), ("+I", ONE), ("+I", TWO), ("-D", ONE)])
    with refused("streams.nothing_live", InputError, row=0, op={"-D": "delete", "+U": "update"}[op]):
        updates(stream_of(source_of(tmp_path, table), warmup=2))
    stream = stream_of(source_of(tmp_path, table), warmup=2, on_error="skip")
    assert [kind for kind, *_ in updates(stream)] == [INSERT, INSERT, DELETE]
    assert [skipped.row for skipped in stream.take_skipped()] == [0, 1]
    assert stream.warmup == 2


ENVELOPE = [
    ("r", None, ONE),
    ("c", None, TWO),
    ("u", None, ONE | {"a": 2.5, "s": "r"}),  # REPLICA IDENTITY DEFAULT: no row before
    ("m", None, None),
    ("u", ONE, ONE | {"a": 3.5}),
    ("d", {"id": 2}, None),
    (None, None, None),  # tombstone
    ("c", None, TWO | {"a": -0.0}),
]
OPENED = [
    (INSERT, 1, 0, [0.5, 0], 0),
    (INSERT, 2, 1, [1.5, 1], 1),
    (UPDATE, 1, 2, [2.5, 2], 0),
    (UPDATE, 1, 4, [3.5, 0], 0),
    (DELETE, 2, 5, None, None),
    (INSERT, 2, 7, [0.0, 1], 1),
]


@pytest.mark.parametrize("kind", [ParquetFiles, ArrowFiles])
@pytest.mark.parametrize("size", [1, 100])
def test_an_envelope(tmp_path, kind, size):
    source = source_of(tmp_path, enveloped(ENVELOPE), kind, envelope="debezium", ts="ts_ms", op=None)
    assert (source.features.names, source.features.categorical) == (("a", "s"), (False, True))
    stream = stream_of(source)
    assert updates(stream, size) == OPENED
    assert stream.take_skipped() == []


def test_parts_of_an_envelope_are_fields(tmp_path):
    table = enveloped(ENVELOPE)
    chosen = source_of(tmp_path, table, envelope="debezium", features=["s"], positive="yes")
    assert chosen.features.names == ("s",)
    assert [u[4] for u in updates(stream_of(chosen))] == [0, 1, 0, 0, None, 1]
    timed = source_of(tmp_path, table, envelope="debezium", ts="a")
    assert timed.features.names == ("s",)
    with refused("columns.misspelt", InputError, column="aa", near="'a'"):
        source_of(tmp_path, table, envelope="debezium", features=["aa"])
    with refused("columns.in_envelope", InputError, column="y"):
        source_of(tmp_path, table)


@pytest.mark.parametrize("kind", [ParquetFiles, ArrowFiles])
def test_times_of_an_envelope_are_a_field_or_a_column_beside_the_structs(tmp_path, kind):
    fields = pa.struct([*ROW, pa.field("at", pa.timestamp("us"))])
    table = enveloped([("c", None, ONE | {"at": 5}), ("d", ONE, None), ("c", None, TWO)], after=fields)
    for name, times in (("ts_ms", [0, 2]), ("at", [5, 0])):
        source = source_of(tmp_path, table, kind, envelope="debezium", ts=name, features=["a"])
        source.require_ts()
        rows = one(source)
        assert rows.ts[[0, 2]].tolist() == times
        assert [(error.row, error.column, error.message.id) for error in rows.bad.values()] == (
            [(2, "after.at", "rows.no_time")] * (name == "at")
        )


@pytest.mark.parametrize(
    ("row", "column", "code"),
    [
        (("c", None, None), "after", "no_after"),
        (("u", ONE, None), "after", "no_after"),
        (("d", None, None), "before", "no_before"),
        (("d", None, ONE), "before", "no_before"),
        (("d", {"a": 1.0}, None), "before.id", "no_key"),
        (("c", None, {"a": 1.0, "s": "p", "y": "no"}), "after.id", "no_id"),
        (("c", None, ONE | {"a": None}), "after.a", "no_value"),
        (("u", ONE, ONE | {"s": None}), "after.s", "no_category"),
        (("c", None, ONE | {"y": None}), "after.y", "no_label"),
        (("u", None, ONE | {"s": "__debezium_unavailable_value"}), "after.s", "unsent"),
        (("u", None, ONE | {"y": "__debezium_unavailable_value"}), "after.y", "unsent"),
        (("u", ONE, TWO), "after.id", "moved_id"),
        (("t", None, None), "op", "truncate"),
        ((None, None, ONE), "op", "no_operation"),
        ((None, ONE, None), "op", "no_operation"),
    ],
    ids=str,
)
def test_bad_rows_of_an_envelope(tmp_path, row, column, code):
    source = source_of(tmp_path, enveloped([("c", None, TWO), row]), envelope="debezium")
    rows = one(source)
    assert [(place, e.row, e.column, e.message.id.removeprefix("rows.")) for place, e in rows.bad.items()] == [
        (1, 1, column, code)
    ]
    assert source.state()["categories"] == {"s": ["q"]}  # the bad row left no trace
    assert source.classes == ["yes"]


def test_the_first_row_of_a_file_may_lack_the_types_of_one_side(tmp_path):
    empty = pa.null()
    inserts = enveloped([("c", None, ONE), ("c", None, TWO)], before=empty)
    deletes = enveloped([("d", ONE, None)], after=empty)
    for name, table in (("1", deletes), ("2", inserts), ("3", deletes), ("4", enveloped([("r", None, TWO)]))):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    some = pa.struct([("id", pa.int64()), ("a", pa.float64()), ("s", pa.null()), ("y", pa.string())])
    pq.write_table(enveloped([("u", ONE, {"id": 1, "a": 1.0, "y": "no"})], after=some), tmp_path / "5.parquet")
    source = open_source(ParquetFiles(path="5.parquet", id="id", envelope="debezium"), tmp_path)
    assert source.features.categorical == (False, True)
    assert [error.column for error in one(source).bad.values()] == ["after.s"]
    (tmp_path / "5.parquet").unlink()
    source = open_source(ParquetFiles(path="*.parquet", id="id", envelope="debezium"), tmp_path)
    assert [(u[0], u[1]) for u in updates(stream_of(source))] == [
        (DELETE, 1),
        (INSERT, 1),
        (INSERT, 2),
        (DELETE, 1),
        (INSERT, 2),
    ]


@pytest.mark.parametrize(
    ("table", "said", "found"),
    [
        (flat([("c", ONE)]), "no_struct", {"column": "after", "columns": "op, id, a, s, y"}),
        (
            pa.table({"payload": [{"before": 1, "after": 2, "op": "c"}]}),
            "wrapped_struct",
            {"column": "after", "outer": "'payload'"},
        ),
        (
            pa.table({"before": ["{}"], "after": ["{}"], "op": ["c"]}),
            "not_struct",
            {"column": "after", "kind": "text"},
        ),
        (enveloped(ENVELOPE).drop_columns("op"), "unknown", {"column": "op", "option": "source.op"}),
        (
            enveloped(
                [("c", None, {"id": 1})], after=pa.struct([("id", pa.int64()), ("op", pa.int64()), ("y", pa.int64())])
            ),
            "repeated",
            {"column": "op"},
        ),
    ],
    ids=["flat", "wrapped", "json", "no op", "op twice"],
)
def test_what_is_no_envelope(tmp_path, table, said, found):
    with refused(f"columns.{said}", InputError, **found):
        source_of(tmp_path, table, envelope="debezium")


def test_options_of_an_envelope():
    options = OPTIONS.validate_python({"kind": "parquet", "path": "x", "id": "id", "envelope": "debezium"})
    assert options.op == "op"
    assert OPTIONS.validate_json(options.model_dump_json()) == options
    for wrong, problem in (
        ({"kind": "csv", "id": "id"}, "csv: sources.no_structs"),
        ({"kind": "parquet"}, "parquet: sources.no_ids"),
        ({"kind": "parquet", "id": "id", "envelope": "canal"}, "parquet.envelope: literal_error"),
    ):
        assert refusal(OPTIONS, {"path": "x", "envelope": "debezium"} | wrong) == problem


def test_the_placeholder_of_debezium_is_no_category(tmp_path):
    rows = [
        ("c", ONE),
        ("u", ONE | {"s": "__debezium_unavailable_value"}),
        ("-D", {"id": 1, "s": "__debezium_unavailable_value", "y": "no"}),
    ]
    for encode in (False, True):
        table = flat(rows)
        if encode:
            table = table.set_column(3, "s", table["s"].dictionary_encode())
        assert list(one(source_of(tmp_path, table)).bad) == [1]
    only_rows = open_source(ParquetFiles(path="t", features=["s"]), tmp_path)  # no change log: a text like any other
    assert not one(only_rows).bad


IDS = st.integers(0, 4)
CHANGES = st.lists(
    st.tuples(st.sampled_from("iud"), IDS, st.floats(-2, 2), st.sampled_from("pqr"), st.sampled_from(["no", "yes"])),
    min_size=1,
    max_size=20,
)


@given(changes=CHANGES, size=st.integers(1, 7))
def test_every_spelling_gives_the_same_batches(changes, size, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("log")
    found = {}
    for spelling, options in SPELLINGS.items():
        stream = stream_of(source_of(tmp_path, spelled(changes, spelling), **options))
        found[spelling] = [
            (b.start, b.op.tolist(), b.id.tolist(), b.X.tolist(), b.y.tolist(), b.n_classes)
            for b in stream.batches(size)
        ]
        assert sum(len(batch[1]) for batch in found[spelling]) == len(changes)
    for spelling, batches in found.items():
        assert batches == found["plain"], spelling
