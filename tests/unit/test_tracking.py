"""Runs and models in MLflow, and trials of Optuna that are pruned; with the real libraries, where they are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import pipelines
import raydt
from pipelines import tracking
from pipelines.prediction import predict_file
from pipelines.receipts import ReceiptFile
from pipelines.updating import update
from raydt.errors import InputError
from tests.refusals import refused
from tests.unit.test_update_subjects import visits


def config(folder: Path, **source: Any) -> dict[str, Any]:
    pq.write_table(visits(), folder / "visits.parquet")
    columns = {"label": "y", "id": "visit", "subject": "person", "features": ["age", "day"], **source}
    return {
        "source": {"kind": "parquet", "path": str(folder / "visits.parquet"), **columns},
        "stream": {"model": "sliding_window", "window": 60, "warmup": 20},
        "learner": {"kind": "forest", "n_estimators": 3},
        "cluster": {"backend": "in_process"},
        "output": {"report": False, "metrics_every": 20, "predictions": True},
    }


def test_scores_come_with_each_row_of_metrics(tmp_path: Path) -> None:
    told: list[tuple[int, dict[str, float]]] = []
    run = pipelines.replay(
        config(tmp_path), tmp_path / "run", progress=tracking.Scores(lambda at, scores: told.append((at, dict(scores))))
    )
    table = pq.read_table(Path(run.path) / "metrics").to_pylist()
    scored = [row for row in table if row["seq"] % 20 == 0 and row["accuracy"] == row["accuracy"]]
    assert told == [(row["seq"], {"accuracy": row["accuracy"], "active": row["active"]}) for row in scored]

    def stop(at: int, scores: Any) -> None:
        raise StopIteration(at)

    with pytest.raises(StopIteration):
        pipelines.replay(config(tmp_path), tmp_path / "stopped", progress=tracking.Scores(stop))


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """MLflow with a store in the folder of the test."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    return mlflow


@pytest.mark.filterwarnings("ignore")
def test_a_run_is_logged_and_its_model_predicts_as_raydt_does(mlflow: Any, tmp_path: Path) -> None:
    with mlflow.start_run() as active:
        run = pipelines.replay(
            {**config(tmp_path), "output": {"report": False, "metrics_every": 20, "receipts": True}},
            tmp_path / "run",
            progress=tracking.Scores(tracking.log_scores),
        )
        info = tracking.log_run(run.path)
    client = mlflow.MlflowClient()
    history = client.get_metric_history(active.info.run_id, "window_accuracy")
    table = pq.read_table(Path(run.path) / "metrics").to_pylist()
    assert {one.step: one.value for one in history} == {
        row["seq"]: row["window_accuracy"] for row in table if not math.isnan(row["window_accuracy"])
    }
    logged = client.get_run(active.info.run_id).data
    assert logged.tags["raydt.model_digest"] == run.summary["model_digest"]
    assert logged.params["learner.n_estimators"] == "3"
    artifacts = {one.path for one in client.list_artifacts(active.info.run_id)}
    assert "summary.json" in artifacts
    assert ("receipts.jsonl" in artifacts) == (Path(run.path) / "receipts.jsonl").exists()
    held = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert not [path for path in held if path.name == "receipts.key"]
    names = [str(name).encode() for name in visits()["visit"].to_pylist() if len(str(name)) > 3]
    assert not any(name in path.read_bytes() for path in held for name in names if path.suffix != ".json")

    loaded = mlflow.pyfunc.load_model(info.model_uri)
    assert [one.name for one in loaded.metadata.signature.inputs] == ["age", "day"]
    rows = visits().select(["age", "day"]).to_pandas().astype(float)
    pq.write_table(visits(), tmp_path / "rows.parquet")
    predict_file(run.path, tmp_path / "rows.parquet", tmp_path / "out.parquet")
    expected = pq.read_table(tmp_path / "out.parquet").to_pandas()
    pd.testing.assert_frame_equal(loaded.predict(rows), expected, check_dtype=False)


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_any_kind_is_saved_without_rows(mlflow: Any, tmp_path: Path) -> None:
    run = pipelines.replay(config(tmp_path), tmp_path / "run").path
    (tmp_path / "key").write_text("0f" * 32)
    chain = ReceiptFile(str(tmp_path / "chain.jsonl"), str(tmp_path / "key"))
    gone = [visits()["visit"].to_pylist()[-1]]
    update(run, delete=gone, out=tmp_path / "second", receipts=chain)
    tracking.save_model(tmp_path / "second", tmp_path / "state", receipts=tmp_path / "chain.jsonl")
    files = {path.name.split(".")[0] for path in (tmp_path / "state" / "data").rglob("*")}
    assert "receipts" in files
    assert not files & {"stream", "coordinator", "group-000"}
    rows = visits().select(["age", "day"]).to_pandas().astype(float)
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "state"))
    assert loaded.predict(rows)["prediction"].tolist() == raydt.load_model(tmp_path / "second").predict(rows).tolist()

    frame = visits().to_pandas()
    text = frame[["age", "person"]].assign(age=frame["age"].astype(float))
    model = raydt.ExactForestClassifier(categorical_features=["person"], n_estimators=3).fit(text, frame["y"])
    tracking.save_model(model, tmp_path / "text")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "text"))
    assert [one.type.name for one in loaded.metadata.signature.inputs] == ["double", "string"]
    assert loaded.predict(text)["prediction"].tolist() == model.predict(text).tolist()

    keyed = raydt.KeyedRegressor(raydt.ExactForestRegressor(n_estimators=2), "day").fit(
        frame[["age", "day"]].astype({"age": float}), frame["age"]
    )
    tracking.save_model(keyed, tmp_path / "keyed")
    given = frame[["age", "day"]].astype({"age": float})
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "keyed"))
    assert np.array_equal(loaded.predict(given)["prediction"], keyed.predict(given))

    array = raydt.FullyDynamicTreeClassifier().fit(rows.to_numpy(), frame["y"])
    tracking.save_model(array, tmp_path / "array")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "array"))
    given = pd.DataFrame(rows.to_numpy(), columns=loaded.metadata.signature.inputs.input_names())
    assert loaded.predict(given)["prediction"].tolist() == array.predict(rows.to_numpy()).tolist()


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_sparse_features_is_refused(mlflow: Any, tmp_path: Path) -> None:
    from scipy.sparse import csr_matrix

    model = raydt.SparseDynamicTreeClassifier().fit(csr_matrix([[1, 0], [0, 1], [1, 1]]), [0, 1, 1])
    with refused("models.sparse_pyfunc", InputError):
        tracking.save_model(model, tmp_path / "sparse")


@pytest.mark.filterwarnings("ignore")
def test_a_study_prunes_trials_by_scores_under_way(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    job = config(tmp_path)

    def objective(trial: Any) -> float:
        def told(updates: int, scores: Any) -> None:
            trial.report(scores["accuracy"], updates)
            if updates >= 80 and trial.number:
                raise optuna.TrialPruned

        settings = [f"learner.n_estimators={trial.suggest_int('n_estimators', 2, 4)}"]
        out = tmp_path / f"trial-{trial.number}"
        run = pipelines.replay(job, out, overrides=settings, progress=tracking.Scores(told))
        return float(run.summary["metrics"]["accuracy"])

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=3)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "PRUNED"]
    assert list(study.trials[0].intermediate_values) == list(range(40, 181, 20))
