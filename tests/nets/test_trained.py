"""A training run of every case: its model is that of all rows at once, and its score that of a model of the other rows.

The twins: one session that is given all rows in one batch; and a replay of a file that lacks the rows held out, whose
model predicts a file of these.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, verify_run
from pipelines.prediction import predict_file
from pipelines.running import loop
from pipelines.updating import update
from raydt.errors import ProcessLostError
from raydt.exchange.messages import injected
from raydt.sources.base import Rows
from raydt.streams.windows import held_out
from tests.cases import CASES, Trial, every_case, net, one_of_each, place_of
from tests.cut_runs import Gone, at
from tests.small_tables import examples, table_of

ROWS = 150
#: Where a driver is killed.
POINTS = ("driver.recorded", "run.before_compaction", "run.before_summary")


def table() -> pa.Table:
    """Rows with text ids; those held out come last, so that without them categories and classes have the same codes."""
    rows = table_of(examples(ROWS, 5)).drop_columns(["op"])
    return rows.take(pa.array(np.argsort(held(rows), kind="stable")))


def config_of(trial: Trial, folder: Path, rows: pa.Table, **sections: Any) -> dict[str, Any]:
    """A config without a stream, of rows written to ``folder``."""
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / "rows.parquet")
    base: dict[str, Any] = trial.config(folder)
    base["source"] = {"kind": "parquet", "path": str(folder / "rows.parquet"), **trial.columns}
    del base["stream"]
    return {**base, **sections}


def held(rows: pa.Table, share: float = 0.2) -> np.ndarray:
    """Which rows are held out."""
    names, n = np.array(rows["id"].to_pylist(), dtype=np.object_), rows.num_rows
    return held_out(Rows(np.arange(n), np.empty((n, 0)), np.zeros(n), np.full(n, -1), names=names), share)


@every_case("a training run")
def test_the_model_is_that_of_all_rows_and_the_score_that_of_the_others(trial: Trial, tmp_path: Path) -> None:
    rows, out = table(), held(table())
    run = pipelines.train(config_of(trial, tmp_path, rows), tmp_path / "run")
    summary = run.summary
    whole = {**config_of(trial, tmp_path, rows), "stream": {"model": "incremental", "warmup": ROWS}}
    assert run.digest == pipelines.replay(whole, tmp_path / "whole").digest
    assert (summary["updates"], summary["active"], summary["deletes"]) == (ROWS, ROWS, 0)
    told = summary["holdout"]
    assert (told["share"], told["rows"], told["trained_on"]) == (0.2, out.sum(), ROWS - out.sum())

    rest = config_of(trial, tmp_path / "rest", rows.filter(pa.array(~out)))
    rest["stream"] = {"model": "incremental", "warmup": ROWS}
    twin = pipelines.replay(rest, tmp_path / "twin")
    pq.write_table(rows.filter(pa.array(out)), tmp_path / "held.parquet")
    predict_file(twin.path, tmp_path / "held.parquet", tmp_path / "predicted.parquet")
    predicted = pq.read_table(tmp_path / "predicted.parquet")["prediction"].to_pylist()
    truth = rows.filter(pa.array(out))[trial.columns["label"]].to_pylist()
    others = rows.filter(pa.array(~out))[trial.columns["label"]].to_pylist()
    if trial.reading.regression:
        errors = [(a - b) ** 2 for a, b in zip(truth, predicted, strict=True)]
        assert run.metrics["mse"] == pytest.approx(sum(errors) / len(errors), rel=1e-12)
        mean = sum(others) / len(others)
        assert summary["baselines"] == {"mean": pytest.approx(np.mean([(a - mean) ** 2 for a in truth]), rel=1e-9)}
    else:
        assert run.metrics["accuracy"] == sum(a == b for a, b in zip(truth, predicted, strict=True)) / len(truth)
        counts = {label: others.count(label) for label in others}
        best = {label for label, n in counts.items() if n == max(counts.values())}
        assert summary["baselines"]["majority"] in {truth.count(label) / len(truth) for label in best}


@every_case("a training run", one_of_each)
def test_a_trained_model_is_audited_updated_and_verified(trial: Trial, tmp_path: Path) -> None:
    run = pipelines.train(config_of(trial, tmp_path, table()), tmp_path / "run")
    report = audit_run(run.path)
    assert (report.conformance, report.failures) == ("holds", [])
    if trial.learner.traits(trial.options).retrained:
        assert verify_run(run.path)["equal"]
    pq.write_table(table().slice(0, 9).select(["id"]), tmp_path / "gone.parquet")
    receipt = update(run.path, delete=tmp_path / "gone.parquet", out=tmp_path / "state")
    assert receipt.active == ROWS - 9
    taken = pipelines.resume(run.path, state=tmp_path / "state").summary
    assert (taken["model_digest"], taken["active"], taken["metrics"]) == (
        receipt.digest_after,
        ROWS - 9,
        run.summary["metrics"],
    )
    assert audit_run(run.path).conformance == "holds"


def test_a_sweep_scores_the_rows_held_out(tmp_path: Path) -> None:
    """Settings have the scores of training runs; no alarm and no last label, since a hold-out has no order."""
    rows = pa.table(
        {"a": np.arange(300) % 17, "b": np.arange(300) % 5, "y": np.where(np.arange(300) % 17 > 8, "u", "v")}
    )
    pq.write_table(rows, tmp_path / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet")},
        "stream": {"model": "training", "holdout": 0.3},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    grid = ["learner.max_depth=1,9"]
    swept = pipelines.sweep(config, grid, tmp_path / "sweep")
    for row in swept.table.to_pylist():
        one = {**config, "learner": {**config["learner"], "max_depth": row["learner.max_depth"]}}
        run = pipelines.train(one, tmp_path / f"run-{row['setting']}").summary
        assert row["digest"] == run["model_digest"]
        assert {name: row[name] for name in ("accuracy", "f1", "kappa")} == {
            name: run["metrics"][name] for name in ("accuracy", "f1", "kappa")
        }
        assert (row["majority"], row["no_change"]) == (run["baselines"]["majority"], None)
        assert row["predictions"] == run["holdout"]["rows"]
    assert (tmp_path / "sweep" / "sweep.html").exists()


@net(
    "a training run",
    "trial, point",
    product(CASES, POINTS),
    lambda trial, point: one_of_each(trial) and place_of(trial) % len(POINTS) == POINTS.index(point),
)
def test_a_kill_does_not_show(trial: Trial, point: str, tmp_path: Path) -> None:
    config = config_of(trial, tmp_path, table())
    expected = pipelines.train(config, tmp_path / "whole").summary
    with injected(at(1, point=point)), pytest.raises(Gone):
        pipelines.train(config, tmp_path / "run")
    summary = pipelines.resume(tmp_path / "run").summary
    timeless = {**expected["holdout"], "seconds": summary["holdout"]["seconds"]}
    assert summary["holdout"] == timeless
    for key in ("model_digest", "metrics", "baselines", "updates"):
        assert summary[key] == expected[key]


@every_case("a training run", one_of_each)
def test_a_process_lost_while_a_model_is_scored_does_not_show(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, score, calls = config_of(trial, tmp_path, table()), loop.score_holdout, []

    def lost(*given: Any) -> dict[str, Any]:
        calls.append(given)
        if len(calls) == 1:
            raise ProcessLostError("a shard was killed")
        return score(*given)

    expected = pipelines.train(config, tmp_path / "whole").summary
    monkeypatch.setattr(loop, "score_holdout", lost)
    summary = pipelines.train(config, tmp_path / "run").summary
    assert len(calls) == 2
    assert summary["restarts"] == 1
    assert (summary["metrics"], summary["model_digest"]) == (expected["metrics"], expected["model_digest"])
