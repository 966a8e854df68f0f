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

from pipelines.report.charts import ACCURACY, SQUARED_ERROR
from pipelines.report.compare import compared, differences, winner
from pipelines.report.folder import read_run
from raydt.evaluation.adwin import EXACT_PAIRS, interval, interval_of_blocks, mcnemar
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


def run_with(folder: Path, score: float = 0.5, **columns: Any) -> Any:
    metrics = (
        {"mse": score} if "double" in {str(pa.array(one).type) for one in columns.values()} else {"accuracy": score}
    )
    fabricated_run(folder, rows=5, rebuilds=2, metrics=metrics)
    if columns:
        (folder / "predictions").mkdir()
        pq.write_table(pa.table(columns), folder / "predictions" / "part-00000.parquet")
    return read_run(folder)


def test_runs_are_compared_example_by_example(tmp_path: Path) -> None:
    """Ids pair the predictions: the updates have other numbers, and one id comes twice. The better run comes first."""
    ids = [3, 4, 5, 4, 9]
    truth = ["a", "b", "a", "a", "b"]
    first = run_with(
        tmp_path / "a", 0.4, seq=[0, 1, 2, 3, 4], id=ids, prediction=["a", "a", "a", "b", "b"], truth=truth
    )
    shuffled = [1, 0, 2, 4, 3]
    more = {"id": [ids[i] for i in shuffled] + [77], "truth": [truth[i] for i in shuffled] + ["a"]}
    second = run_with(
        tmp_path / "b", 0.6, seq=[10, 20, 30, 40, 60, 70], prediction=["b", "a", "b", "b", "a", "a"], **more
    )
    comparison = compared([first, second], ACCURACY)
    table = differences(comparison, ["one", "two"], ACCURACY)
    [row] = table.rows
    assert row.cells[:2] == ("one", "5")
    # Only the first is right on id 5, only the second on both predictions of id 4.
    assert row.cells[2] == "+20.00%"
    assert row.cells[4:] == ("2", "1", "1.0000")
    assert len(table.columns) == len(row.cells)
    said = winner(comparison, [first, second], ["one", "two"], ACCURACY)
    assert re.match(
        r"No winner: the accuracy of two is 60.00%, that of one 40.00%.* 5 predictions, 20.00 points", said.text
    )


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    columns = {"seq": [0, 1], "id": [1, 2], "prediction": ["a", "a"]}
    first = run_with(tmp_path / "a", 0.9, **columns, truth=["a", "b"])
    other = run_with(tmp_path / "b", 0.8, **columns, truth=["a", "a"])
    numbers = run_with(tmp_path / "c", 0.7, seq=[0, 1], id=[1, 2], prediction=[0.5, 1.0], truth=[1.0, 2.0])
    numbers.summary["metrics"] = {"accuracy": 0.7}
    apart = run_with(tmp_path / "d", 0.6, seq=[0, 1], id=[8, 9], prediction=["a", "a"], truth=["a", "b"])
    table = differences(compared([first, other, numbers, apart], ACCURACY), ["a", "b", "c", "d"], ACCURACY)
    assert table.rows == []
    assert re.fullmatch(r"b: .*other labels.* c: .*kind.* d: .*no example.*", table.remark)
    runs = [first, run_with(tmp_path / "e", 0.1)]
    comparison = compared(runs, ACCURACY)
    assert "output.predictions" in differences(comparison, ["a", "e"], ACCURACY).remark
    assert "is not known" in winner(comparison, runs, ["a", "e"], ACCURACY).text
    assert compared(runs[:1], ACCURACY).best is None


def test_errors_of_numbers_get_an_interval(tmp_path: Path) -> None:
    columns = {"seq": [0, 1, 2], "id": [1, 2, 3], "truth": [1.0, 2.0, 3.0]}
    first = run_with(tmp_path / "a", 0.0, **columns, prediction=[1.0, 2.0, 3.0])
    second = run_with(tmp_path / "b", 1.0, **columns, prediction=[2.0, 3.0, 4.0])
    comparison = compared([second, first], SQUARED_ERROR)
    table = differences(comparison, ["b", "a"], SQUARED_ERROR)
    [row] = table.rows
    assert len(table.columns) == len(row.cells)
    assert row.cells == ("b", "3", "-1", "-1 to -1")
    said = winner(comparison, [second, first], ["b", "a"], SQUARED_ERROR).text
    assert "a wins" in said
    assert "difference is 1, with a 95% interval from 1 to 1" in said


def test_without_predictions_windows_are_compared(tmp_path: Path) -> None:
    """The interval is that of the windows as blocks; without the same windows there is none."""
    runs = [read_run(fabricated_run(tmp_path / name, rows=40, rebuilds=2)) for name in ("a", "b")]
    runs[0].summary["metrics"] = {"accuracy": 0.9}
    runs[1].summary["metrics"] = {"accuracy": 0.8}
    sizes = np.diff(runs[0].metrics["predictions"], prepend=0).astype(float)
    lost = np.random.default_rng(0).integers(0, 3, 40) / np.maximum(sizes, 1)
    runs[1].metrics["window_accuracy"] = runs[0].metrics["window_accuracy"] - lost
    [(other, found)] = compared(runs, ACCURACY).others
    assert not isinstance(found, str)
    scored = np.isfinite(runs[1].metrics["window_accuracy"]) & (sizes > 0)
    expected = (lost * sizes)[scored]
    assert (other, found.pairs, found.windows) == (1, round(sizes[scored].sum()), int(scored.sum()))
    assert found.mean == pytest.approx(expected.sum() / sizes[scored].sum())
    assert (found.low, found.high) == pytest.approx(interval_of_blocks(expected, sizes[scored]))
    assert found.low > 0
    runs[1].metrics["window_majority"] = runs[1].metrics["window_majority"] + 0.1
    assert compared(runs, ACCURACY).others == [(1, "reports.no_predictions")]
