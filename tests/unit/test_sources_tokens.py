"""Columns of lists of text: the codes of tokens, what makes a row bad, and how many there may be."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from raydt.encoding.columns import Dictionary, Faults, Tokens
from raydt.errors import InputError
from raydt.estimators.best_split import SparseBestSplit
from raydt.examples.updates import Reading
from raydt.sources.divided import open_source
from raydt.sources.file_source import StoredSource
from raydt.sources.options import SourceOptions
from tests.refusals import refused

TEXT = pa.string()
ROWS = [["b", "a"], [], ["a", "c", "a"], ["d"]]


def write(folder, lists, kind=TEXT, name="t.parquet", large=False, labels=None, **columns):
    n = len(lists)
    column = pa.array(lists, (pa.large_list if large else pa.list_)(kind))
    labels = [i % 2 for i in range(n)] if labels is None else labels
    pq.write_table(pa.table({"y": labels, **columns, "words": column}), folder / name)


def opened(folder, reading=None, **options):
    given = {"kind": "parquet", "path": "t.parquet", **options}
    options = TypeAdapter(SourceOptions).validate_python(given)
    return open_source(options, folder, reading or Reading(sparse=True))


def source(folder, lists, kind=TEXT, large=False, labels=None, **options):
    write(folder, lists, kind, large=large, labels=labels)
    return opened(folder, **options)


def lists_of(found, start=0):
    return [rows.sparse.row(i).tolist() for rows in found.rows(start) for i in range(len(rows))]


def problems(found):
    return {error.row: error.problem for rows in found.rows() for error in rows.bad.values()}


class TestCodes:
    def test_in_any_order_and_stored(self, tmp_path):
        found = source(tmp_path, ROWS, pa.dictionary(pa.int8(), TEXT), permutation=3)
        drawn, order = lists_of(found), [int(i) for rows in found.rows() for i in rows.id]
        words = found.state()["categories"]["words"]
        assert [sorted(words[code] for code in row) for row in drawn] == [sorted(set(ROWS[i])) for i in order]
        stored = StoredSource(opened(tmp_path))
        assert lists_of(stored) == [[0, 1], [], [1, 2], [3]]
        assert stored.tokens.to_pylist() == ["b", "a", "c", "d"]

    def test_files_whose_lists_are_empty_may_be_of_any_kind(self, tmp_path):
        write(tmp_path, [[], []], pa.null(), "a.parquet")
        write(tmp_path, ROWS, name="b.parquet")
        assert lists_of(opened(tmp_path, path="*.parquet")) == [[], [], [0, 1], [], [1, 2], [3]]
        write(tmp_path, [[1], [2]], pa.int32(), "c.parquet")
        with refused("columns.drift_of_feature", InputError, column="words", file=str(tmp_path / "c.parquet")):
            opened(tmp_path, path="*.parquet")


class TestBadRows:
    def test_a_bad_label_gives_no_code(self, tmp_path):
        found = source(tmp_path, ROWS, labels=["x", "y", None, "x"])
        assert lists_of(found)[3] == [2]
        assert found.state()["categories"] == {"words": ["b", "a", "d"]}


class TestPrediction:
    def test_an_unknown_token_is_no_feature(self, tmp_path):
        write(tmp_path, [["new", "a"], ["d", "b"]])
        found = opened(tmp_path, label=None, n_features=4)
        found.restore({**found.state(), "categories": {"words": ["b", "a", "c", "d"]}})
        assert lists_of(found) == [[1], [0, 3]]
        assert problems(found) == {}
        assert found.state()["categories"] == {"words": ["b", "a", "c", "d"]}


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=4), max_size=12),
    st.integers(1, 9),
    st.integers(1, 12),
    st.data(),
)
def test_chunks_change_nothing(rows, width, size, data):
    """The same codes and bad rows as of a reading row by row, in plain Python."""
    codes, expected, refused = {}, [], []
    needed = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), dtype=bool)
    for i, row in enumerate(rows):
        new = [token for token in dict.fromkeys(row) if token not in codes] if needed[i] else []
        if len(codes) + len(new) > width:
            refused.append(i)
            expected.append([])
            continue
        codes |= {token: len(codes) + place for place, token in enumerate(new)}
        expected.append(sorted({codes[token] for token in row}) if needed[i] else [])
    tokens, found, bad_rows = Tokens("words", grows=True), [], []
    tokens.width = width
    for begin in range(0, len(rows), size):
        part = pa.array(rows[begin : begin + size], pa.list_(TEXT))
        bad = Faults(len(part))
        wanted = needed[begin : begin + size]
        tokens.check(part, wanted, bad)
        ones = tokens.encode(part, begin, wanted, bad)
        found += [ones.row(i).tolist() for i in range(len(part))]
        bad_rows += [begin + i for i in sorted(bad)]
    assert (bad_rows, tokens.dictionary.values) == (refused, list(codes))
    assert found == expected


def test_values_of_one_row_appear_in_it():
    dictionary = Dictionary()
    dictionary.encode(pa.array(["a", "b", "a", "c"]), 10, None, np.array([0, 0, 1, 3]))
    assert [dictionary.known(row) for row in (10, 11, 13, 14)] == [0, 2, 2, 3]


def test_estimators_take_indices():
    table = pa.table({"words": pa.array(ROWS, pa.list_(TEXT))})
    with pytest.raises(InputError, match="CountVectorizer"):
        SparseBestSplit().fit(table, [0, 1, 0, 1])
