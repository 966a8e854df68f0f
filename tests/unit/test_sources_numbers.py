"""Rows for a learner of numbers, and for one that takes rows with missing values: what is read, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raydt.errors import ConfigError
from raydt.examples.updates import Reading
from raydt.sources.base import Rows
from raydt.sources.divided import open_source
from raydt.sources.options import CsvFiles, ParquetFiles, Sea
from raydt.streams.base import history_of
from raydt.streams.deletion_log import Changelog
from tests.refusals import refused

NUMBERS, MISSING = Reading(regression=True), Reading(missing=True)


def read(folder: Path, reading: Reading, columns: dict[str, Any], **options: Any) -> Rows:
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return next(open_source(ParquetFiles(path="t.parquet", **options), folder, reading).rows())


def csv(folder: Path, reading: Reading, text: str, **options: Any) -> Any:
    (folder / "t.csv").write_text(text)
    return open_source(CsvFiles(path="t.csv", **options), folder, reading)


class TestNumbers:
    def test_whole_numbers_of_a_text_file_may_have_fractions_later(self, tmp_path: Path) -> None:
        text = "x,y\n" + "0,7\n" * 200_000 + "0,0.25\n0,seven\n"
        chunks = list(csv(tmp_path, NUMBERS, text).rows())
        assert np.concatenate([chunk.y for chunk in chunks])[-2] == 0.25
        (error,) = [error for chunk in chunks for error in chunk.bad.values()]
        assert (error.row, error.column, error.message.id) == (200_001, "y", "rows.not_number")

    def test_classes_cannot_be_made_of_numbers(self, tmp_path: Path) -> None:
        with refused("sources.positive_numbers", ConfigError):
            read(tmp_path, NUMBERS, {"x": [0.0], "y": [1.0]}, positive=1)
        with refused("sources.generated_classes", ConfigError):
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
    def test_empty_cells_of_text(self, tmp_path: Path) -> None:
        source = csv(tmp_path, MISSING, "x,c,y\n1,a,0\n,,1\n2,b,\n")
        rows = next(source.rows())
        np.testing.assert_array_equal(rows.X[:2], [[1.0, 0.0], [np.nan, -1.0]])
        assert rows.bad[2].message.id == "rows.no_label"
        assert source.state()["categories"] == {"c": ["a"]}

    def test_equal_rows_with_missing_values_are_deleted_by_value(self, tmp_path: Path) -> None:
        text = "k,o,x,y\n1,i,,a\n2,i,,a\n,delete_value,,a\n,delete_value,1,a\n"
        history = history_of(Changelog().make(csv(tmp_path, MISSING, text, id="k", op="o")))
        assert history.deleted.tolist() == [2, np.iinfo(np.int64).max]
