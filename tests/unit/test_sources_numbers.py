"""Rows for a learner of numbers, and for one that takes rows with missing values: what is read, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydt.errors import ConfigError, InputError
from raydt.examples.targets import OUT_OF_RANGE
from raydt.sources import CsvFiles, ParquetFiles, Reading, Rows, Sea, open_source
from raydt.streams.changelog import Changelog
from raydt.streams.history import history_of
from raydt.streams.incremental import Incremental

NUMBERS, MISSING = Reading(regression=True), Reading(missing=True)


def read(folder: Path, reading: Reading, columns: dict[str, Any], **options: Any) -> Rows:
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return next(open_source(ParquetFiles(path="t.parquet", **options), folder, reading).rows())


def csv(folder: Path, reading: Reading, text: str, **options: Any) -> Any:
    (folder / "t.csv").write_text(text)
    return open_source(CsvFiles(path="t.csv", **options), folder, reading)


class TestNumbers:
    def test_labels_are_numbers_of_any_type(self, tmp_path: Path) -> None:
        coded = pa.array([1.5, -0.0]).dictionary_encode()
        for column, values in (([3, 4], [3.0, 4.0]), ([True, False], [1.0, 0.0]), (coded, [1.5, 0.0])):
            rows = read(tmp_path, NUMBERS, {"x": [0.0, 1.0], "y": column})
            assert (rows.y.dtype, rows.bad) == (np.float64, {})
            assert [str(value) for value in rows.y.tolist()] == [str(value) for value in values]

    def test_whole_numbers_of_a_text_file_may_have_fractions_later(self, tmp_path: Path) -> None:
        text = "x,y\n" + "0,7\n" * 200_000 + "0,0.25\n0,seven\n"
        chunks = list(csv(tmp_path, NUMBERS, text).rows())
        assert np.concatenate([chunk.y for chunk in chunks])[-2] == 0.25
        (error,) = [error for chunk in chunks for error in chunk.bad.values()]
        assert (error.row, error.column, error.problem) == (200_001, "y", "'seven' is not a number")

    @pytest.mark.parametrize(
        ("label", "problem"),
        [
            (None, "no label"),
            (np.nan, "no label"),
            (np.inf, "an infinite label"),
            (-np.inf, "an infinite label"),
            (1e300, OUT_OF_RANGE),
            (-1e-300, OUT_OF_RANGE),
        ],
    )
    def test_a_row_without_a_usable_label_is_bad(self, tmp_path: Path, label: Any, problem: str) -> None:
        rows = read(tmp_path, NUMBERS, {"x": [0.0, 1.0], "y": pa.array([1.0, label], pa.float64())})
        error = rows.bad[1]
        assert (error.problem, error.row, error.column) == (problem, 1, "y")
        assert "label" in str(error.remedy)
        assert list(rows.bad) == [1]

    def test_integers_that_float64_would_round_are_bad(self, tmp_path: Path) -> None:
        assert "2**53" in read(tmp_path, NUMBERS, {"x": [0.0], "y": [2**53 + 1]}).bad[0].problem

    def test_text_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"t.parquet.*'y': it holds text, but a regression needs.*objective"):
            read(tmp_path, NUMBERS, {"x": [0.0], "y": ["1.0"]})

    def test_classes_cannot_be_made_of_numbers(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"source.positive makes two classes"):
            read(tmp_path, NUMBERS, {"x": [0.0], "y": [1.0]}, positive=1)
        with pytest.raises(ConfigError, match=r"source.kind: synthetic draws classes"):
            open_source(Sea(n=10), reading=NUMBERS)

    def test_a_stream_has_numbers_and_a_history(self, tmp_path: Path) -> None:
        text = "k,o,x,y\n1,i,0,1.5\n2,i,0,2.5\n1,d,,\n,q,3,\n,delete_value,0,2.5\n1,i,0,7\n"
        source = csv(tmp_path, NUMBERS, text, id="k", op="o")
        (batch,) = Changelog().make(source).batches(10)
        assert (batch.y.dtype, batch.n_classes) == (np.float64, 0)
        np.testing.assert_array_equal(batch.y, [1.5, 2.5, np.nan, 2.5, 7.0])
        history = history_of(Changelog().make(csv(tmp_path, NUMBERS, text, id="k", op="o")))
        assert history.y.tolist() == [1.5, 2.5, 7.0]
        assert history.deleted[:2].tolist() == [2, 4]
        assert source.classes == []


class TestMissing:
    def test_numbers_become_nan_and_categories_minus_one(self, tmp_path: Path) -> None:
        columns = {
            "x": pa.array([1, None, 3]),
            "z": pa.array([0.5, np.nan, None]),
            "c": pa.array([None, "red", None]),
            "n": pa.array([2.0, np.nan, 2.0]),
            "y": [0, 1, 0],
        }
        rows = read(tmp_path, MISSING, columns, categorical=["n"])
        assert rows.bad == {}
        np.testing.assert_array_equal(
            rows.X, [[1.0, 0.5, -1.0, 0.0], [np.nan, np.nan, 0.0, -1.0], [3.0, np.nan, -1.0, 0.0]]
        )
        assert len({value.tobytes() for value in rows.X[np.isnan(rows.X)]}) == 1

    def test_a_learner_that_does_not_take_them_has_bad_rows(self, tmp_path: Path) -> None:
        columns = {"x": pa.array([1.0, None, 2.0]), "c": pa.array(["a", "b", None]), "y": [0, 1, 0]}
        rows = read(tmp_path, Reading(), columns)
        assert {place: error.column for place, error in rows.bad.items()} == {1: "x", 2: "c"}

    def test_infinite_values_are_refused_as_ever(self, tmp_path: Path) -> None:
        columns = {"x": [np.inf, 0.0], "n": [0.0, -np.inf], "y": [0, 1]}
        rows = read(tmp_path, MISSING, columns, categorical=["n"])
        assert {place: error.column for place, error in rows.bad.items()} == {0: "x", 1: "n"}

    def test_empty_cells_of_text(self, tmp_path: Path) -> None:
        source = csv(tmp_path, MISSING, "x,c,y\n1,a,0\n,,1\n2,b,\n")
        rows = next(source.rows())
        np.testing.assert_array_equal(rows.X[:2], [[1.0, 0.0], [np.nan, -1.0]])
        assert rows.bad[2].problem == "no label"
        assert source.state()["categories"] == {"c": ["a"]}

    def test_equal_rows_with_missing_values_are_deleted_by_value(self, tmp_path: Path) -> None:
        text = "k,o,x,y\n1,i,,a\n2,i,,a\n,delete_value,,a\n,delete_value,1,a\n"
        history = history_of(Changelog().make(csv(tmp_path, MISSING, text, id="k", op="o")))
        assert history.deleted.tolist() == [2, np.iinfo(np.int64).max]

    def test_streams_hand_them_on(self, tmp_path: Path) -> None:
        (batch,) = Incremental().make(csv(tmp_path, MISSING, "x,y\n1,0\n,1\n")).batches(5)
        np.testing.assert_array_equal(batch.X[:, 0], [1.0, np.nan])
