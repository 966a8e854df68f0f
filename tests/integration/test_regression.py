"""A regression through all commands: replay, predict, update, audit history, report, sweep; numbers in and out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.prediction import predict_file
from pipelines.running.replay import replay
from pipelines.saved_runs import open_state
from pipelines.sweeping.trials import sweep
from pipelines.updating import update
from raydt.errors import ConfigError, UpdateError
from tests.refusals import refused

RNG = np.random.default_rng(8)
X = np.round(RNG.normal(size=(600, 3)), 2)
Y = np.round(2.0 * X[:, 0] - X[:, 1] + 50.0, 3)
LEARNER = {
    "kind": "gbdt",
    "objective": "squared_error",
    "max_iter": 15,
    "max_leaf_nodes": 6,
    "max_bins": 64,
    "update_every": 50,
}


def table(X: np.ndarray, y: np.ndarray | None = None, **columns: Any) -> pa.Table:
    named = {"a": pa.array(X[:, 0], mask=X[:, 0] > 2.0), "b": X[:, 1], "c": X[:, 2], **columns}
    return pa.table(named if y is None else {**named, "y": y})


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("numbers")
    pq.write_table(table(X, Y), folder / "t.parquet")
    return {
        "source": {"kind": "parquet", "path": str(folder / "t.parquet")},
        "stream": {"model": "sliding_window", "window": 300, "warmup": 200},
        "learner": LEARNER,
        "cluster": {"backend": "in_process"},
        "output": {"predictions": True, "metrics_every": 100},
    }


@pytest.fixture(scope="module")
def run(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert replay(config, folder).status == "completed"
    return folder


def test_summary_tables_and_report(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    scores = ["mse", "rmse", "mae", "r2"]
    assert list(summary["metrics"]) == [*scores, *(f"faded_{score}" for score in scores)]
    assert list(summary["baselines"]) == ["no_change", "mean"]
    assert summary["metrics"]["mse"] < summary["baselines"]["mean"]
    assert (summary["classes"], summary["positive"]) == ([], None)
    predictions = pq.read_table(run / "predictions").to_pandas()
    assert len(predictions) == summary["predictions"] == 400
    np.testing.assert_array_equal(predictions["truth"], Y[200:])
    error = predictions["truth"] - predictions["prediction"]
    assert (error**2).mean() == pytest.approx(summary["metrics"]["mse"])
    metrics = pq.read_table(run / "metrics").to_pandas()
    assert metrics["mse"].iloc[-1] == summary["metrics"]["mse"]
    assert {"mae", "r2", "window_mse", "no_change", "mean", "window_no_change", "window_mean"} <= set(metrics)
    events = pq.read_table(run / "events").to_pandas()
    assert (events["inserts"] + events["deletes"]).sum() == 900


def test_predictions_of_a_file_are_numbers(run: Path, tmp_path: Path) -> None:
    pq.write_table(table(X[:20]), tmp_path / "new.parquet")
    result = predict_file(run, tmp_path / "new.parquet", tmp_path / "out.parquet")
    assert (result["rows"], result["classes"]) == (20, [])
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.schema == pa.schema([("prediction", pa.float64())])
    assert np.corrcoef(out["prediction"].to_numpy(), Y[:20])[0, 1] > 0.8


def test_an_update_takes_numbers(run: Path, tmp_path: Path) -> None:
    pq.write_table(table(X[:10], Y[:10] + 0.5), tmp_path / "new.parquet")
    pq.write_table(pa.table({"id": [400, 401]}), tmp_path / "gone.parquet")
    files = {"insert": tmp_path / "new.parquet", "delete": tmp_path / "gone.parquet"}
    receipt = update(run, out=tmp_path / "state", **files)
    assert receipt.digest_before != receipt.digest_after
    np.testing.assert_array_equal(receipt.deletions["label"], Y[[400, 401]])
    saved, _ = open_state(tmp_path / "state")
    assert (saved.arrays["y"].dtype, len(saved.arrays["y"]), saved.classes) == (np.float64, 308, [])
    assert set(Y[:10] + 0.5) <= set(saved.arrays["y"].tolist())


def test_an_update_with_a_target_far_away_takes_nothing(run: Path, tmp_path: Path) -> None:
    far = Y[:10].copy()
    far[3] = 1e6
    pq.write_table(table(X[:10], far), tmp_path / "new.parquet")
    pq.write_table(pa.table({"id": [400, 401]}), tmp_path / "gone.parquet")
    files = {"insert": tmp_path / "new.parquet", "delete": tmp_path / "gone.parquet"}
    with refused("updates.refused_label", UpdateError, row=3, column="y", label="1000000.0"):
        update(run, out=tmp_path / "state", **files)
    assert not (tmp_path / "state").exists()


def test_a_sweep_says_that_it_compares_accuracies(config: dict[str, Any], tmp_path: Path) -> None:
    with refused("sweeps.numbers", ConfigError):
        sweep(config, ["learner.max_iter=5,10"], out=tmp_path / "sweep")
