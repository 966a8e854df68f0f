"""Metrics that count predictions by the weights of their rows, against those of repeated predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import replay, train
from raydt.evaluation.classification import Prequential
from raydt.evaluation.regression import PrequentialErrors
from raydt.examples.updates import UNIT

DRAW = np.random.default_rng(3)
N = 400
COUNTS = DRAW.integers(0, 4, N)
#: Scores that do not depend on the order of predictions.
WHOLE = ("accuracy", "f1", "macro_f1", "kappa", "auc")


def test_whole_weights_count_like_repeated_predictions() -> None:
    truth, prediction = (DRAW.integers(0, 2, N).astype(np.int32) for _ in range(2))
    levels = DRAW.integers(0, 4097, N).astype(np.uint16)
    rivals = prediction[::-1].copy(), prediction
    weighted, repeated = Prequential(weighted=True), Prequential()
    for one in (weighted, repeated):
        one.rivals(truth)
    weighted.score(truth, prediction, rivals, levels, weight=(COUNTS * UNIT).astype(np.uint32))
    often = np.repeat(np.arange(N), COUNTS)
    repeated.score(truth[often], prediction[often], (rivals[0][often], rivals[1][often]), levels[often])
    assert {name: weighted.scores()[name] for name in WHOLE} == {name: repeated.scores()[name] for name in WHOLE}
    assert weighted.baselines() == repeated.baselines()
    assert weighted.figures(2)["confusion"] == repeated.figures(2)["confusion"]


def test_whole_weights_count_like_repeated_errors() -> None:
    truth, prediction = DRAW.normal(size=N), DRAW.normal(size=N)
    rivals = prediction[::-1].copy(), prediction
    weighted, repeated = PrequentialErrors(), PrequentialErrors()
    weighted.score(truth, prediction, rivals, weight=(COUNTS * UNIT).astype(np.uint32))
    often = np.repeat(np.arange(N), COUNTS)
    repeated.score(truth[often], prediction[often], (rivals[0][often], rivals[1][often]))
    for name, value in repeated.scores().items():
        assert weighted.scores()[name] == pytest.approx(value, rel=1e-12)


def config(path: Path, weighted: bool, **stream: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "parquet", "path": str(path), "weight": "w"},
        **({"stream": stream} if stream else {}),
        "learner": {"kind": "gbdt", "max_iter": 3, "max_leaf_nodes": 4},
        "cluster": {"backend": "in_process"},
        "output": {"weighted_metrics": weighted, "predictions": True, "report": False},
    }


def test_a_run_weighs_its_metrics_on_request(tmp_path: Path) -> None:
    x, w = DRAW.normal(size=N), DRAW.integers(1, 5, N).astype(np.float64)
    y = np.where(x + DRAW.normal(size=N) > 0, "yes", "no")
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": x, "w": w, "y": y}), path)
    accuracy = {}
    for weighted in (False, True):
        run = replay(config(path, weighted, model="incremental", warmup=200), tmp_path / f"run {weighted}")
        accuracy[weighted] = run.summary["metrics"]["accuracy"]
        said = pq.read_table(run.path + "/predictions")
        right = np.array(said["prediction"].to_pylist()) == np.array(said["truth"].to_pylist())
        weights = w[np.array(said["id"].to_pylist())] if weighted else None
        assert accuracy[weighted] == pytest.approx(np.average(right, weights=weights), rel=1e-12)
        trained = train(config(path, weighted), tmp_path / f"trained {weighted}").metrics
        accuracy[weighted] = accuracy[weighted], trained["accuracy"]
    assert accuracy[True][0] != accuracy[False][0]
    assert accuracy[True][1] != accuracy[False][1]
