"""McNemar's test and the bootstrap interval against scipy, and the differences of two runs as the report shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from pipelines.report.difference import differences
from pipelines.report.folder import read_run
from pipelines.report.quality import ACCURACY, SQUARED_ERROR
from raydt.evaluation.significance import EXACT_PAIRS, interval, mcnemar
from tests.unit.fabricated_run import fabricated_run


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, 3), (0, 6), (40, 61), (500, 499)])
def test_few_pairs_are_tested_exactly(first: int, second: int) -> None:
    n = first + second
    expected = stats.binomtest(first, n).pvalue if n else 1.0
    assert mcnemar(first, second) == pytest.approx(expected, rel=1e-10)
    assert mcnemar(first, second) == mcnemar(second, first)


def test_many_pairs_are_tested_by_chi_squared() -> None:
    first, second = EXACT_PAIRS, 900
    statistic = (abs(first - second) - 1) ** 2 / (first + second)
    assert mcnemar(first, second) == pytest.approx(stats.chi2.sf(statistic, 1), rel=1e-10)
    assert mcnemar(1000, 1000) == 1.0


def test_the_interval_is_that_of_the_mean_where_neighbours_are_independent() -> None:
    values = np.random.default_rng(1).normal(0.3, 2.0, 20_000)
    low, high = interval(values)
    assert (low, high) == interval(values)
    error = 1.96 * values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - error, abs=0.1 * error)
    assert high == pytest.approx(values.mean() + error, abs=0.1 * error)


def test_the_interval_is_wider_where_neighbours_go_together() -> None:
    values = np.repeat(np.random.default_rng(2).normal(size=1000), 20)
    mixed = np.random.default_rng(3).permutation(values)
    width, independent = (np.diff(interval(column))[0] for column in (values, mixed))
    assert width > 2 * independent


def run_with(folder: Path, **columns: Any) -> Any:
    fabricated_run(folder, rows=5, rebuilds=2)
    (folder / "predictions").mkdir()
    pq.write_table(pa.table(columns), folder / "predictions" / "part-00000.parquet")
    return read_run(folder)


def test_runs_are_compared_example_by_example(tmp_path: Path) -> None:
    """Ids pair the predictions: the updates have other numbers, and one id comes twice."""
    ids = [3, 4, 5, 4, 9]
    truth = ["a", "b", "a", "a", "b"]
    first = run_with(tmp_path / "a", seq=[0, 1, 2, 3, 4], id=ids, prediction=["a", "a", "a", "b", "b"], truth=truth)
    shuffled = [1, 0, 2, 4, 3]
    more = {"id": [ids[i] for i in shuffled] + [77], "truth": [truth[i] for i in shuffled] + ["a"]}
    second = run_with(tmp_path / "b", seq=[10, 20, 30, 40, 60, 70], prediction=["b", "a", "b", "b", "a", "a"], **more)
    table = differences([first, second], ["one", "two"], ACCURACY)
    [row] = table.rows
    assert row.cells[:2] == ("two", "5")
    # Only the first is right on id 5, only the second on both predictions of id 4.
    assert row.cells[2] == "+20.00%"
    assert row.cells[4:] == ("1", "2", "1.0000")
    assert len(table.columns) == len(row.cells)


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    columns = {"seq": [0, 1], "id": [1, 2], "prediction": ["a", "a"]}
    first = run_with(tmp_path / "a", **columns, truth=["a", "b"])
    other = run_with(tmp_path / "b", **columns, truth=["a", "a"])
    numbers = run_with(tmp_path / "c", seq=[0, 1], id=[1, 2], prediction=[0.5, 1.0], truth=[1.0, 2.0])
    apart = run_with(tmp_path / "d", seq=[0, 1], id=[8, 9], prediction=["a", "a"], truth=["a", "b"])
    table = differences([first, other, numbers, apart], ["a", "b", "c", "d"], ACCURACY)
    assert table.rows == []
    assert re.fullmatch(r"b: .*other labels.* c: .*kind.* d: .*no example.*", table.remark)
    fabricated_run(tmp_path / "e", rows=5, rebuilds=2)
    table = differences([first, read_run(tmp_path / "e")], ["a", "e"], ACCURACY)
    assert "output.predictions" in table.remark


def test_errors_of_numbers_get_an_interval(tmp_path: Path) -> None:
    columns = {"seq": [0, 1, 2], "id": [1, 2, 3], "truth": [1.0, 2.0, 3.0]}
    first = run_with(tmp_path / "a", **columns, prediction=[1.0, 2.0, 3.0])
    second = run_with(tmp_path / "b", **columns, prediction=[2.0, 3.0, 4.0])
    table = differences([first, second], ["a", "b"], SQUARED_ERROR)
    [row] = table.rows
    assert len(table.columns) == len(row.cells)
    assert row.cells == ("b", "3", "1", "1 to 1")
