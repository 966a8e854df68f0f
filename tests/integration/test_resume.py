"""Runs whose driver was killed or stopped, resumed: what comes out is what comes out of a run that nothing happened to.

Killed for real, at named places (``raydt.exchange.messages``), for every stream model.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import replay, resume
from pipelines.auditing import audit_run
from pipelines.operation import dump_yaml
from raydt.exchange.messages import injected
from raydt.messages import message
from tests.integration.killed_driver import killed_replay

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
N = 640

#: What depends on how the work was done, in the tables and in the summary.
COSTS = {"seconds", "rounds", "bytes_exchanged", "place"}
SAME = ("updates", "inserts", "deletes", "replaced", "queries", "predictions", "refused", "skipped", "active")
SAME += ("metrics", "baselines", "rebuilds", "rebuilt_rows", "nodes", "leaves", "depth", "classes", "features")
SAME += ("name", "status", "exit_reason", "exit_code", "error", "model_digest", "config_hash", "source_fingerprint")

STREAMS: dict[str, dict[str, Any]] = {
    "incremental": {"warmup": 250},  # longer than the first two checkpoints
    "sliding_window": {"window": 120, "warmup": 30},
    "random_updates": {"insert_probability": 0.6, "seed": 5},
    "batches": {"steps": [0.4, 0.1, 1.0, 0.25], "removal_order": "random"},
    "changelog": {},
    "deletion_log": {},
    "time_window": {"duration": "2h", "lateness": "10m"},
}

#: Where the driver is killed: long before a checkpoint, between two, while one is written, and at the end.
PLACES = (
    "driver.recorded@2#0=kill",
    "driver.recorded@19#0=kill",
    "checkpoint.before_manifest@2#0=kill",
    "checkpoint.after_manifest@2#0=kill",
    "run.before_compaction@1#0=kill",
    "run.before_summary@1#0=kill",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute a row, with ids that are text, categories, and bad rows; a changelog and a deletion log of them."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 2))
    colour = rng.choice(["red", "green", "blue"], N)
    yes = (x[:, 0] > x[:, 1]) ^ (colour == "blue") ^ (rng.random(N) < 0.05)
    x[[50, 170, 333, 500], 0] = np.nan
    columns = {
        "k": [f"c{i}" for i in range(N)],
        "a": x[:, 0],
        "b": x[:, 1],
        "colour": colour,
        "y": np.where(yes, "yes", "no"),
        "when": np.datetime64("2024-05-31T12:00", "us") + np.arange(N).astype("timedelta64[m]"),
    }
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    after = rng.integers(100, N, 150)
    log = {"id": [f"c{rng.integers(row)}" for row in after], "after": after}  # some are deleted twice: refused
    pq.write_table(pa.table(log), folder / "deletions.parquet")
    kind, key = rng.choice(["insert", "delete", "update", "query"], N, p=[0.6, 0.2, 0.15, 0.05]), np.arange(N)
    kind[0] = "insert"
    key = np.where(kind == "insert", key, rng.integers(0, np.maximum(key, 1)))
    pq.write_table(pa.table({**columns, "k": [f"c{i}" for i in key], "op": kind}), folder / "changes.parquet")
    return folder


@pytest.fixture(scope="module")
def config(data: Path) -> Callable[..., dict[str, Any]]:
    def make(model: str = "sliding_window", **cluster: Any) -> dict[str, Any]:
        source: dict[str, Any] = {"kind": "parquet", "path": str(data / "rows.parquet"), "id": "k", "ts": "when"}
        stream = {"model": model, "on_error": "skip", **STREAMS[model]}
        if model == "changelog":
            source |= {"path": str(data / "changes.parquet"), "op": "op"}
        if model == "deletion_log":
            stream["deletion_log"] = str(data / "deletions.parquet")
        if model in ("incremental", "random_updates", "batches"):
            source["permutation"] = 4
        return {
            "source": source,
            "stream": stream,
            "learner": {"kind": "fudyadt", "max_depth": 6},
            "cluster": {"backend": "in_process", "batch_size": 16, **cluster},
            "checkpoint": {"every_seconds": None, "every_updates": 100},
            "output": {"metrics_every": 50, "predictions": True, "report": False},
        }

    return make


@pytest.fixture(scope="module")
def undisturbed(config: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The run folder of a stream model that nothing happened to."""

    @cache
    def run(model: str) -> Path:
        out = tmp_path_factory.mktemp("undisturbed") / model
        replay(config(model), out)
        assert audit_run(out).ok
        return out

    return run


def summary_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


def require_same(run: Path, other: Path) -> None:
    """Everything that a run leaves behind is the same, but what its work has cost."""
    mine, theirs = summary_of(run), summary_of(other)
    for key in SAME:
        assert mine[key] == theirs[key], key
    for table in ("metrics", "events", "predictions", "quarantine"):
        files = sorted(path.name for path in (run / table).iterdir()) if (run / table).exists() else []
        assert [name.startswith("part-") for name in files] == [True] * (other / table).exists(), (table, files)
        if files:
            found, wanted = pq.read_table(run / table), pq.read_table(other / table)
            assert found.schema == wanted.schema
            for name in set(wanted.column_names) - COSTS:  # NaN where nothing was predicted yet
                np.testing.assert_equal(found[name].to_pylist(), wanted[name].to_pylist(), err_msg=f"{table}.{name}")
    ours, wanted_model = ({p.name: p.read_bytes() for p in (r / "model").iterdir()} for r in (run, other))
    assert ours == wanted_model
    assert not list(run.rglob(".*")), "something temporary is left"


def resumed(run: Path, **options: Any) -> dict[str, Any]:
    """Resume a run, and audit it; its summary."""
    assert resume(run, **options).status == "completed"
    report = audit_run(run)
    assert (report.ok, report.feasibility) == (True, "proven")
    return summary_of(run)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("model", STREAMS)
def test_a_killed_run_goes_on_as_if_nothing_had_been(
    model: str, place: str, config: Callable[..., dict[str, Any]], undisturbed: Callable[..., Path], tmp_path: Path
) -> None:
    run = tmp_path / model
    killed_replay(config(model), run, place)
    assert not (run / "summary.json").exists()
    summary = resumed(run)
    (entry,) = summary["recoveries"]
    assert (entry["kind"], entry["what"]) == ("resumed", message("runs.resumed", ended=message("runs.driver_lost")))
    assert (entry["at_update"], summary["restarts"]) == (None, 0)
    assert (entry["from_update"] == 0) == (place == PLACES[0]), entry
    require_same(run, undisturbed(model))


class TestStopped:
    """Runs that had time to say how they ended."""

    def test_by_a_signal(
        self, config: Callable[..., dict[str, Any]], undisturbed: Callable[..., Path], tmp_path: Path
    ) -> None:
        run = tmp_path / "sliding_window"
        passes = 0

        def terminate(point: str) -> None:
            nonlocal passes
            passes += point == "driver.recorded"
            if point == "driver.recorded" and passes == 25:
                os.kill(os.getpid(), signal.SIGTERM)

        with injected(terminate):
            stopped = replay(config(), run)
        assert (stopped.status, stopped.exit_code) == ("interrupted", 143)
        at, seconds = stopped.summary["updates"], stopped.summary["seconds"]
        summary = resumed(run)
        assert summary["recoveries"][0]["what"] == "resumed after SIGTERM"
        assert summary["recoveries"][0]["from_update"] == at, "nothing is done twice"
        assert summary["seconds"] > seconds
        assert (summary["name"], summary["started"]) == (stopped.summary["name"], stopped.summary["started"])
        require_same(run, undisturbed("sliding_window"))


@pytest.mark.ray
def test_begun_on_ray_and_resumed_in_process(
    config: Callable[..., dict[str, Any]], undisturbed: Callable[..., Path], tmp_path: Path
) -> None:
    job, run = tmp_path / "run.yaml", tmp_path / "killed"
    job.write_text(dump_yaml(config("random_updates", backend="ray", shards=1)))
    dead = subprocess.run(
        [sys.executable, "-m", "pipelines.cli", "replay", str(job), "--out", str(run)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAYDT_FAULTS": "driver.recorded@25#0=kill"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    resumed(run, overrides=["cluster.backend=in_process", "cluster.shards=2"])
    require_same(run, undisturbed("random_updates"))
