"""How a run ends when saving fails, and what its model predicts from other formats."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import pipelines
from pipelines.cli import cli
from pipelines.prediction import predict_file
from pipelines.purging import purge
from raydt import load_model
from raydt.errors import DeadlineMissedError, NotWrittenError
from raydt.folders.checkpoint import CheckpointStore
from raydt.sessions.session import InProcessSession

RNG = np.random.default_rng(5)
N = 600


@pytest.fixture
def table() -> pa.Table:
    colour = RNG.integers(0, 5, N)
    return pa.table({"colour": colour, "size": RNG.random(N), "y": np.isin(colour, [1, 4]).astype(int)})


def config(path: Path) -> dict[str, Any]:
    kind = "csv" if path.suffix == ".csv" else "parquet"
    return {
        "source": {"kind": kind, "path": str(path), "label": "y", "categorical": ["colour"]},
        "stream": {"model": "incremental", "warmup": 200},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "shards": 1},
        "output": {"report": False},
    }


@pytest.mark.parametrize("trained", ["rows.parquet", "rows.csv"])
def test_a_model_predicts_the_same_from_parquet_and_csv(trained: str, table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "rows.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    pipelines.replay(config(tmp_path / trained), tmp_path / "run")
    truth = table["y"].to_pylist()
    for name in ("rows.parquet", "rows.csv"):
        out = tmp_path / f"{Path(name).suffix[1:]}.out.parquet"
        predict_file(tmp_path / "run", tmp_path / name, out)
        assert pq.read_table(out)["prediction"].to_pylist() == truth, f"trained on {trained}, predicted {name}"
    if trained == "rows.parquet":
        frame = table.select(["colour", "size"])
        assert load_model(tmp_path / "run").predict(frame).tolist() == truth


def test_a_failure_while_saving_is_in_the_summary(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table, tmp_path / "rows.parquet")

    def broken(*_: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr("raydt.folders.checkpoint.write_manifest", broken)
    with pytest.raises(NotWrittenError, match=r"checkpoints/600: cannot be written: no space left") as caught:
        pipelines.replay(config(tmp_path / "rows.parquet"), tmp_path / "run")
    assert caught.value.exit_code == 1
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["exit_reason"]) == ("failed", "NotWrittenError")
    assert not (tmp_path / "run" / "model").exists(), "a model without its state"


def test_a_missed_erasure_deadline_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints begin to fail while an older one holds examples that are deleted: the command says so and exits 1."""
    write, apply, checkpoints = CheckpointStore.write, InProcessSession.apply, []

    def full(self: Any, number: int, *arguments: Any) -> int:
        checkpoints.append(number)
        if len(checkpoints) > 1:
            raise NotWrittenError("cannot be written: the disk is full", file="checkpoints")
        return write(self, number, *arguments)

    def slow(self: Any, *arguments: Any, **more: Any) -> Any:
        time.sleep(0.02)
        return apply(self, *arguments, **more)

    monkeypatch.setattr(CheckpointStore, "write", full)
    monkeypatch.setattr(InProcessSession, "apply", slow)
    job = {
        "source": {"kind": "synthetic", "generator": "sea", "n": 2000},
        "stream": {"model": "sliding_window", "window": 60},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 10},
        "checkpoint": {"every_seconds": 1, "max_age": "1s"},
        "erasure": {"deadline": "2s"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    result = CliRunner().invoke(
        cli, ["replay", str(tmp_path / "job.yaml"), "--out", str(tmp_path / "run")], standalone_mode=False
    )
    assert isinstance(result.exception, DeadlineMissedError), result.output
    said = result.exception.message
    assert (said.id, said.parameters["deadline"]) == ("runs.deadline_missed", "2s")
    assert "the disk is full" in said.parameters["cause"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["exit_code"]) == ("failed", 1)
    assert "erasure.deadline" in summary["error"]
    monkeypatch.undo()
    resumed = pipelines.resume(tmp_path / "run", overrides=["erasure.deadline=null"])
    whole = pipelines.replay({**job, "erasure": {}, "checkpoint": {}}, tmp_path / "whole")
    assert resumed.summary["model_digest"] == whole.summary["model_digest"]
    assert purge(tmp_path / "run")["digest"] == resumed.summary["model_digest"]
