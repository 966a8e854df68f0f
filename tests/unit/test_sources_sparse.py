"""Columns of lists of indices, and LIBSVM files: what is read, and what makes a row or a file unusable."""

import codecs
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from raydt.errors import InputError
from raydt.examples.updates import Reading
from raydt.redaction import text
from raydt.sources.divided import open_source
from raydt.sources.file_source import CHUNK_CELLS, StoredSource
from raydt.sources.options import SourceOptions
from tests.refusals import refused
from tests.strategies import ones

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
