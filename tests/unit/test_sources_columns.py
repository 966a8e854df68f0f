"""Columns of sources: ids, labels, numbers, times, tokens, and values as they are stored."""

from __future__ import annotations

import time
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from pipelines.config import load_config
from raydt.encoding.columns import LARGEST_TIME, Dictionary, Faults, Tokens, times
from raydt.encoding.labels import Labels, find_label, resolve_positive
from raydt.errors import ConfigError, InputError
from raydt.estimators.best_split import SparseBestSplit
from raydt.examples.updates import DELETE, Reading
from raydt.sources.base import Rows, differences
from raydt.sources.divided import open_source
from raydt.sources.file_source import StoredSource
from raydt.sources.options import ArrowFiles, CsvFiles, ParquetFiles, Sea, SourceOptions
from raydt.streams.base import history_of
from raydt.streams.deletion_log import Changelog, DeletionLog
from tests.refusals import refused

# -- sources csv rows ------------------------------------------------------------------------------------------------
# CSV rows of another length, with bytes that are not UTF-8, or longer than a block: what becomes of them.


def csv(tmp_path, text, **options):
    (tmp_path / "t.csv").write_text(text)
    return open_source(CsvFiles(path="t.csv", **options), tmp_path)


def one(source):
    (rows,) = source.rows()
    return rows


def test_rows_around_ragged_ones_keep_their_places(tmp_path):
    n, ragged = 120_000, {0, 1, 77_777, 119_998, 119_999}  # blocks of Arrow's reader end in between
    lines = ["7" if i in ragged else f"{i},{i % 2}" for i in range(n)]
    text = "a,y\n" + "\n\n".join(lines) + "\n"  # empty lines are no rows
    for start in (0, 1, 2, 77_777, 119_999):
        read = [
            (rows.start + i, rows.X[i, 0], i in rows.bad)
            for rows in csv(tmp_path, text).rows(start)
            for i in range(len(rows))
        ]
        assert [row for row, _, _ in read] == list(range(start, n))
        assert {row for row, _, bad in read if bad} == {row for row in ragged if row >= start}
        assert all(x == row for row, x, bad in read if not bad)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Arrow's, of the same row
@pytest.mark.parametrize("before", [1, 300_000])
def test_a_row_of_another_length_that_is_not_utf8_is_named(tmp_path, before):
    (tmp_path / "t.csv").write_bytes(b"a,s,y\n\n" + b"2,v,1\n" * before + b"3,gr\xfcn\n4,w,0\n")
    read: list[int] = []
    with refused("rows.undecoded_length", InputError, values=2, columns=3, row=before, file=str(tmp_path / "t.csv")):
        read.extend(len(rows) for rows in open_source(CsvFiles(path="t.csv"), tmp_path).rows())
    assert bool(read) == (before > 1), "rows of the blocks before are kept"


def test_rows_and_headers_longer_than_a_block(tmp_path):
    long = "x" * 700_000
    source = csv(tmp_path, f"a,s,t,y\n1,{long},{long},0\n2,u,v,1\n")
    assert [len(rows) for rows in source.rows()] == [2]
    names = [f"column{i:0150}" for i in range(10_000)]
    source = csv(tmp_path, ",".join([*names, "y"]) + "\n" + ",".join(["1"] * 10_001) + "\n")
    assert len(source.features) == 10_000


@pytest.mark.parametrize(
    ("values", "bad"), [(["1", "2", "x"], [2]), (["1", "x", "z"], []), (["1", "", "x", "2"], [1, 2])]
)
def test_a_column_with_more_numbers_than_texts_is_one_of_numbers(tmp_path, values, bad):
    source = csv(tmp_path, "a,s,y\n" + "".join(f"{value},u,0\n" for value in values))
    assert source.features.categorical == (not bad, True)
    assert sorted(one(source).bad) == bad
    same = csv(tmp_path, "a,s,y\n" + "".join(f"{value},u,0\n" for value in values if value), categorical=["a"])
    assert not one(same).bad


# -- sources identity ------------------------------------------------------------------------------------------------
# In what two descriptions of data differ, in words.


def named(then, now):
    """Ids and parameters of the differences."""
    return [(said.id.removeprefix("sources."), *said.parameters.values()) for said in differences(then, now)]


@pytest.mark.parametrize(
    ("then", "now", "found"),
    [
        ({"seed": 7, "n": 5}, {"seed": 8, "n": 5}, ("differs", "seed", "7", "8")),
        ({"limit": None}, {"limit": None, "permutation": 3}, ("differs", "permutation", "not there", "3")),
        (
            {"schema": [["a", "double"], ["b", "string"]]},
            {"schema": [["b", "string"], ["a", "double"]]},
            ("other_order", "columns", "a, b", "b, a"),
        ),
        ({"schema": [["a", "double"]]}, {"schema": []}, ("gone", "column 'a' (double)")),
        ({"files": "?"}, {"files": []}, ("unknown_description",)),
    ],
)
def test_differences_are_named(then, now, found):
    assert named(then, now) == [found]


def test_differences_of_files_are_named():
    a, b, c = ({"name": name, "rows": None, "bytes": 9, "sha256": name} for name in "abc")
    assert named({"files": [a, b]}, {"files": [b, a]}) == [("other_order", "files", "a, b", "b, a")]
    assert named({"files": [a, b]}, {"files": [a]}) == [("other_files", 2, 1), ("gone", "b")]
    assert named({"files": [a]}, {"files": [a, c]}) == [("other_files", 1, 2), ("new", "c")]
    assert named({"files": [a]}, {"files": [b]}) == [("other_contents", "a (now b)")]
    assert named({"files": [a]}, {"files": [{**a, "name": "renamed"}]}) == []


# -- sources ids -----------------------------------------------------------------------------------------------------
# Ids of every type in a deletion log, and ids that a text file shows late.

UUIDS = [uuid.UUID(int=i) for i in (7, 2**127, 3)]
NUMBERS = pa.array([7, 5, 3])
TEXTS = pa.array(["b", "007", "é"])


def deleted(folder: Path, ids: pa.Array, log: pa.Array) -> list[Any]:
    """Ids that a log deletes from a source, as their user knows them."""
    source = pa.table({"x": [1.0] * len(ids), "y": [0] * len(ids), "key": ids})
    for name, table in (("t", source), ("log", pa.table({"id": log}))):
        feather.write_feather(table, folder / f"{name}.arrow", compression="uncompressed")
    source = open_source(ArrowFiles(path="t.arrow", id="key", features=["x"]), folder)
    stream = DeletionLog(deletion_log="log.arrow").make(source, folder)
    return [b.name(int(place)) for b in stream.batches(2) for place in np.flatnonzero(b.op == DELETE)]


@pytest.mark.parametrize(
    ("ids", "log"),
    [
        (NUMBERS.cast(pa.int32()), NUMBERS.cast(pa.uint64())),
        (NUMBERS.cast(pa.uint64()), NUMBERS.cast(pa.int8())),
        (NUMBERS, NUMBERS.cast(pa.float64())),
        (NUMBERS.dictionary_encode(), pa.array(["7", " 5", "0003"])),
        (NUMBERS, pa.array(["7", "5", "3"], pa.string_view())),
        *((TEXTS, TEXTS.cast(kind)) for kind in (pa.large_string(), pa.string_view())),
        (TEXTS.dictionary_encode(), TEXTS),
        (pa.array([one.bytes for one in UUIDS], pa.uuid()), pa.array([one.bytes for one in UUIDS], pa.uuid())),
        (pa.array([one.bytes for one in UUIDS], pa.uuid()), pa.array([str(one) for one in UUIDS])),
    ],
    ids=lambda array: str(array.type),
)  # fmt: skip
def test_a_log_names_ids_of_the_source(ids: pa.Array, log: pa.Array, tmp_path: Path) -> None:
    assert deleted(tmp_path, ids, log) == [str(one) if isinstance(one, uuid.UUID) else one for one in ids.to_pylist()]


@pytest.mark.parametrize("text", ["0x5", "5.0", str(2**63), "", None])
def test_a_text_that_is_no_integer_is_no_id_of_a_log(text: str | None, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        deleted(tmp_path, NUMBERS, pa.array(["7", text]))
    assert (caught.value.row, caught.value.column) == (1, "id")


@pytest.mark.parametrize(("ids", "log"), [(NUMBERS, pa.nulls(1)), (TEXTS, NUMBERS)])
def test_a_log_of_ids_of_another_type(ids: pa.Array, log: pa.Array, tmp_path: Path) -> None:
    with refused("streams.other_ids", InputError, owner="source"):
        deleted(tmp_path, ids, log)


@pytest.mark.parametrize(
    ("given", "kind", "ids"),
    [
        ({}, "text", ["007", "7", "0x10"]),
        ({"text": ["key"]}, "text", ["007", "7", "0x10"]),
        ({"integers": ["key"]}, "integer", [7, 7, None]),
        ({"rules": 3}, "integer", [7, 7, 16]),  # of runs that began so
    ],
)
def test_ids_of_csv_are_text_unless_all_are_written_like_integers(
    given: dict[str, Any], kind: str, ids: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("key,y,x\n007,1,1\n7,0,2\n0x10,1,3\n")
    source = open_source(CsvFiles(path="t.csv", id="key", **given), tmp_path)
    rows = next(iter(source.rows()))
    found = [*(rows.id.tolist() if rows.names is None else rows.names)]
    assert (source.id_kind, [None if i in rows.bad else one for i, one in enumerate(found)]) == (kind, ids)
    assert [error.message.id for error in rows.bad.values()] == ["rows.other_spelling"] * ids.count(None)


def test_a_column_is_text_in_all_files_if_it_is_in_one(tmp_path: Path) -> None:
    for name, id in (("a", "7"), ("b", "007")):
        (tmp_path / f"{name}.csv").write_text(f"key,y,x\n{id},1,1\n")
    source = open_source(CsvFiles(path=["a.csv", "b.csv"], id="key"), tmp_path)
    assert [id for rows in source.rows() for id in rows.names] == ["7", "007"]


@pytest.mark.parametrize("given", [{"text": ["x"]}, {"integers": ["y"]}, {"text": ["key"], "integers": ["key"]}])
def test_only_columns_of_names_are_declared(given: dict[str, Any]) -> None:
    with refused("sources.no_such_kind", ValidationError):
        CsvFiles(path="t.csv", id="key", **given)


def test_ids_after_a_block_without_any_are_integers(tmp_path: Path) -> None:
    filler = "\n".join(f",1,{'x' * 60}" for _ in range(20_000))  # longer than the block that types come from
    (tmp_path / "t.csv").write_text(f"key,y,x\n{filler}\n7,0,z\nz,0,z\n")
    last = list(open_source(CsvFiles(path="t.csv", id="key"), tmp_path).rows())[-1]
    assert (last.id[-2], last.bad[0].message.id, last.bad[len(last) - 1].message.id) == (
        7,
        "rows.no_id",
        "rows.not_kind",
    )
    assert len(last) - 2 not in last.bad


# -- sources labels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "labels", "found"),
    [
        ("DOWN", ["UP", "DOWN"], "DOWN"),
        (1, [0, 1], 1),
        (1, ["0", "1"], "1"),
        ("1", [0, 1], 1),
        (1, [0.0, 1.0], 1.0),
        ("1", [0.0, 1.0], 1.0),
        (True, [False, True], True),
        (True, ["no", "yes"], "yes"),
        (False, ["off", "on"], "off"),
        ("true", [False, True], True),
        (">50K", [" <=50K", " >50K"], " >50K"),
        ("up", ["UP", "DOWN"], "UP"),
        ("up", ["UP", "up"], "up"),
        (1, ["01", "1"], "1"),
    ],
)
def test_a_label_is_found_however_yaml_wrote_it(wanted, labels, found):
    assert repr(find_label(wanted, labels)) == repr(found)


@pytest.mark.parametrize(
    ("wanted", "labels", "found", "shown"),
    [
        ("down", ["UP", "SIDE"], "", "'UP', 'SIDE'"),
        ("Up", ["UP", "up"], "'UP' or 'up'", "'UP', 'up'"),
        (True, ["on", "yes", "no"], "'on' or 'yes'", "'on', 'yes', 'no'"),
        (1, [], "", "none at all"),
        (2, list(range(100, 200)), "", ", ".join(map(str, range(100, 120))) + ", ..."),
    ],
)
def test_an_unknown_or_ambiguous_label_lists_the_labels(wanted, labels, found, shown):
    said = "sources.ambiguous_label" if found else "sources.unknown_label"
    with refused(said, ConfigError, wanted=wanted, found=found, labels=shown):
        find_label(wanted, labels)


def test_majority_is_the_most_frequent_minority_the_rarest_and_of_equals_the_first():
    assert resolve_positive("majority", {"a": 3, "b": 5, "c": 5}) == ["b"]
    assert resolve_positive("minority", {"a": 3, "b": 2, "c": 2}) == ["b"]
    for named in ("majority", "minority"):
        with refused("sources.no_labels", ConfigError, positive=named):
            resolve_positive(named, {})


def test_a_label_called_majority_or_minority_is_written_as_a_list():
    assert resolve_positive(["majority"], {"minority": 9, "majority": 1}) == ["majority"]
    assert resolve_positive(["minority"], {"minority": 9, "majority": 1}) == ["minority"]


def test_several_labels_can_be_positive():
    assert resolve_positive([4, "5", 4], {4: 1, 5: 1, 6: 1}) == [4, 5]
    labels = Labels([4, 5], [6])
    assert labels.encode(pa.array([5, 6, None, 4]), 0).tolist() == [1, 0, -1, 1]
    assert labels.classes(0) == [6, "4|5"]


@pytest.mark.parametrize("more", ["", "criterion: gini"])
def test_a_third_class_is_refused_with_what_takes_it(more, tmp_path):
    """The remedy names the option of the same learner, if there is one."""
    (tmp_path / "t.csv").write_text("x,y\n0,a\n1,b\n2,c\n")
    source = open_source(CsvFiles(path="t.csv"), tmp_path, reading=Reading(classes=2, with_classes=more))
    (bad,) = [error for rows in source.rows() for error in rows.bad.values()]
    assert (bad.message.id, bad.message.parameters["most"]) == ("rows.third_class", 2)
    assert (f"one class, use {more}, or set" if more else "one class, or set") in bad.remedy


def test_many_labels_against_one_take_linear_time():
    """One look-up for each label, not one comparison with all the others."""
    n = 100_000
    texts = pa.array([str(i) for i in range(n)])
    labels = Labels(["7"], [str(i) for i in range(n) if i != 7])
    began = time.perf_counter()
    codes = labels.read(texts, "y", 0, None, None, Faults(n))
    assert time.perf_counter() - began < 10
    assert np.flatnonzero(codes).tolist() == [7]


# -- sources numbers -------------------------------------------------------------------------------------------------
# Rows for a learner of numbers, and for one that takes rows with missing values: what is read, what is refused.

SPELLED, MISSING = Reading(regression=True), Reading(missing=True)


def read(folder: Path, reading: Reading, columns: dict[str, Any], **options: Any) -> Rows:
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return next(open_source(ParquetFiles(path="t.parquet", **options), folder, reading).rows())


def csv_numbers(folder: Path, reading: Reading, text: str, **options: Any) -> Any:
    (folder / "t.csv").write_text(text)
    return open_source(CsvFiles(path="t.csv", **options), folder, reading)


class TestNumbers:
    def test_whole_numbers_of_a_text_file_may_have_fractions_later(self, tmp_path: Path) -> None:
        text = "x,y\n" + "0,7\n" * 200_000 + "0,0.25\n0,seven\n"
        chunks = list(csv_numbers(tmp_path, SPELLED, text).rows())
        assert np.concatenate([chunk.y for chunk in chunks])[-2] == 0.25
        (error,) = [error for chunk in chunks for error in chunk.bad.values()]
        assert (error.row, error.column, error.message.id) == (200_001, "y", "rows.not_number")

    def test_classes_cannot_be_made_of_numbers(self, tmp_path: Path) -> None:
        with refused("sources.positive_numbers", ConfigError):
            read(tmp_path, SPELLED, {"x": [0.0], "y": [1.0]}, positive=1)
        with refused("sources.generated_classes", ConfigError):
            open_source(Sea(n=10), reading=SPELLED)

    def test_a_stream_has_numbers_and_a_history(self, tmp_path: Path) -> None:
        text = "k,o,x,y\n1,i,0,1.5\n2,i,0,2.5\n1,d,,\n,q,3,\n,delete_value,0,2.5\n1,i,0,7\n"
        source = csv_numbers(tmp_path, SPELLED, text, id="k", op="o")
        (batch,) = Changelog().make(source).batches(10)
        assert (batch.y.dtype, batch.n_classes) == (np.float64, 0)
        np.testing.assert_array_equal(batch.y, [1.5, 2.5, np.nan, 2.5, 7.0])
        history = history_of(Changelog().make(csv_numbers(tmp_path, SPELLED, text, id="k", op="o")))
        assert history.y.tolist() == [1.5, 2.5, 7.0]
        assert history.deleted[:2].tolist() == [2, 4]
        assert source.classes == []


class TestMissing:
    def test_empty_cells_of_text(self, tmp_path: Path) -> None:
        source = csv_numbers(tmp_path, MISSING, "x,c,y\n1,a,0\n,,1\n2,b,\n")
        rows = next(source.rows())
        np.testing.assert_array_equal(rows.X[:2], [[1.0, 0.0], [np.nan, -1.0]])
        assert rows.bad[2].message.id == "rows.no_label"
        assert source.state()["categories"] == {"c": ["a"]}

    def test_equal_rows_with_missing_values_are_deleted_by_value(self, tmp_path: Path) -> None:
        text = "k,o,x,y\n1,i,,a\n2,i,,a\n,delete_value,,a\n,delete_value,1,a\n"
        history = history_of(Changelog().make(csv_numbers(tmp_path, MISSING, text, id="k", op="o")))
        assert history.deleted.tolist() == [2, np.iinfo(np.int64).max]


# -- sources times ---------------------------------------------------------------------------------------------------
# Event times: which columns can hold them, their values, and that they cost nothing until they are required.

EPOCH = datetime(1970, 1, 1)
HOUR = 3_600_000_000


def csv_times(tmp_path, values, **options):
    lines = [f"{value},{place},a\n" for place, value in enumerate(values)]
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "t.csv").write_text("t,x,y\n" + "".join(lines))
    return open_source(CsvFiles(path="t.csv", ts="t", **options), tmp_path)


def read_times(source):
    """Times over all chunks, and the error of each bad row."""
    ts, bad = [], {}
    for rows in source.rows():
        bad.update({rows.start + place: error for place, error in rows.bad.items()})
        assert rows.ts.dtype == np.int64
        ts += rows.ts.tolist()
    return ts, bad


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**62) - 1, 2**62 + 1) | st.none(), min_size=1))
def test_no_time_overflows(raw):
    for kind, factor in ((pa.int64(), 1), (pa.timestamp("s"), 10**6), (pa.timestamp("ms"), 1000)):
        found, too_large = times(pa.array(raw, pa.int64()).cast(kind))
        for place, value in enumerate(raw):
            beyond = value is not None and abs(value * factor) > LARGEST_TIME
            assert (too_large is not None and bool(too_large[place])) == beyond
            assert found[place] == (0 if value is None or beyond else value * factor)


@pytest.mark.parametrize(
    "good", ["2024-05-31 12:00:00", "2024-05-31", "2024-05-31T12:00:00Z", "2024-05-31 12:00:00.123456789", "17"]
)
def test_a_bad_value_among_the_first_csv_rows_is_a_bad_row(tmp_path, good):
    source = csv_times(tmp_path, ["soon", good, good, ""])
    clean = csv_times(tmp_path / "clean", [good, good])
    assert source.require_ts() == clean.require_ts()
    ts, bad = read_times(source)
    assert ts[1:3] == read_times(clean)[0]
    assert sorted(bad) == [0, 3]
    assert (bad[0].row, bad[0].column, bad[0].message.id) == (0, "t", "rows.not_kind")


@pytest.mark.parametrize("zoned", [5, 6, 9])
def test_csv_times_with_and_without_a_zone_do_not_mix(tmp_path, zoned):
    """The same instant is meant by neither reading, so the rarer ones are bad rows, whatever stands first."""
    values = [f"2024-05-31 {hour:02}:00{'Z' * (hour < zoned)}" for hour in range(10)][::-1]
    source = csv_times(tmp_path, values)
    source.require_ts()
    _, bad = read_times(source)
    wrong, kind = (range(5, 10), "without a zone") if zoned == 5 else (range(10 - zoned), "with a zone")
    assert sorted(bad) == list(wrong)
    assert all(error.message.parameters["kind"].startswith(f"times {kind}") for error in bad.values())


# -- sources tokens --------------------------------------------------------------------------------------------------
# Columns of lists of text: the codes of tokens, what makes a row bad, and how many there may be.

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


# -- sources stored --------------------------------------------------------------------------------------------------
# Stored rows: streams over them give what streams over the original give, in this process and another.

N = 500


@pytest.fixture(params=["text", "integer", "row"])
def files(tmp_path, request):
    """Two files with one bad row in the second, and a log that deletes known, later and unknown ids."""
    rng = np.random.default_rng(1)
    ids = {"text": [f"c{i}" for i in range(N)], "integer": [7 * i for i in range(N)], "row": None}[request.param]
    table = pa.table({"x": rng.normal(size=N), "c": rng.choice(["a", "b", "d"], N), "y": rng.choice([3, 1, 2], N)})
    if ids is not None:
        table = table.append_column("k", pa.array(ids))
    table = table.append_column("at", pa.array(np.arange(N) + rng.integers(0, 15, N)))
    x = table["x"].to_pylist()
    x[400] = float("nan")
    table = table.set_column(0, "x", pa.array(x))
    for part, (begin, stop) in enumerate([(0, 300), (300, N)]):
        pq.write_table(table.slice(begin, stop - begin), tmp_path / f"part-{part}.parquet")
    wanted = [10, 350, 10, 450, 20]
    named = [i if ids is None else ids[i] for i in wanted]
    unknown = "zz" if request.param == "text" else 10**6
    log = tmp_path / "log.parquet"
    pq.write_table(pa.table({"id": [*named, unknown], "after": [20, 360, 380, 100, None, None]}), log)
    return tmp_path, {"id": "k"} if ids is not None else {}, log


def config(files, stream, **source):
    folder, ids, _ = files
    source = {"kind": "parquet", "path": str(folder / "part-*.parquet"), "label": "y", "ts": "at", **ids, **source}
    return load_config({"source": source, "stream": stream, "learner": {"kind": "fudyadt"}})


def batches(stream, size=64):
    return list(stream.batches(size))


MODELS = [
    "incremental",
    "sliding_window",
    "adaptive_window",
    "random_updates",
    "deletion_log",
    "batches",
    "time_window",
]


@pytest.mark.turns(20)
@pytest.mark.parametrize("permutation", [None, 3])
@pytest.mark.parametrize("positive", [None, 2])
@pytest.mark.parametrize("model", MODELS)
def test_streams_are_the_same(files, model, positive, permutation):
    stream = {"model": model, "on_error": "skip"}
    stream |= {"steps": [0.5, 1.0, 0.2]} if model == "batches" else {}
    stream |= {"duration": 50, "lateness": 20} if model == "time_window" else {}
    stream |= {"deletion_log": str(files[2])} if model == "deletion_log" else {}
    stream |= {"window": 50} if model == "sliding_window" else {}
    one = config(files, stream, positive=positive, permutation=permutation)
    original = open_source(one.source)
    expected = one.stream.make(original)
    opened = open_source(one.source)
    one.stream.make(opened)
    stored = StoredSource(opened)
    found = one.stream.make(stored)
    for theirs, ours in zip(batches(expected), batches(found), strict=True):
        assert (theirs.start, theirs.n_classes, theirs.warmup) == (ours.start, ours.n_classes, ours.warmup)
        for name in ("op", "id", "X", "y", "row"):
            np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name))
        assert theirs.names == ours.names
        for row in theirs.row.tolist():
            if row != -1:
                assert expected.where(row) == found.where(row)
    assert expected.take_skipped() == found.take_skipped()
    assert (stored.classes, stored.positive, stored.n_rows) == (original.classes, original.positive, N)
    assert (stored.features, stored.identity().fingerprint) == (original.features, original.identity().fingerprint)


def test_reading_can_begin_anywhere(files):
    one = config(files, {"model": "incremental"})
    stored = StoredSource(open_source(one.source))
    for start in (0, 1, 299, 300, 399, 400, 401, N - 1, N):
        rows = list(stored.rows(start))
        assert [*range(start, N)] == [row for chunk in rows for row in range(chunk.start, chunk.start + len(chunk))]
        assert [chunk.start + place for chunk in rows for place in chunk.bad] == ([400] if start <= 400 else [])


def test_chunks_in_read_only_memory_are_handed_out_writeable(files):
    stored = StoredSource(open_source(config(files, {"model": "incremental"}).source))
    for chunk in stored.chunks:
        chunk.X.flags.writeable = chunk.y.flags.writeable = chunk.id.flags.writeable = False
    assert all(chunk.X.flags.writeable and chunk.y.flags.writeable for chunk in stored.rows())


def test_the_first_bad_row_is_known(files):
    error = StoredSource(open_source(config(files, {"model": "incremental"}).source)).first_bad()
    assert isinstance(error, InputError)
    assert (error.row, error.column) == (100, "x")
    clean = load_config({"source": {"kind": "synthetic", "generator": "sea", "n": 50}, "learner": {"kind": "fudyadt"}})
    assert StoredSource(open_source(clean.source)).first_bad() is None
