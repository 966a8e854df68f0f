"""Runs whose driver was killed or stopped, resumed: what comes out is what comes out of a run that nothing happened to.

Killed for real, at named places (``raydt.exchange.faults``), for every stream model.
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
from pipelines.running.records.tables import TableWriter
from pipelines.yaml12 import dump_yaml
from raydt.errors import ProcessLostError, RaydtError, RestartsSpentError
from raydt.exchange.faults import injected
from tests.integration.killed_driver import killed_replay, killed_resume

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
    assert (entry["kind"], entry["what"]) == ("resumed", "resumed after the driver was lost")
    assert (entry["at_update"], summary["restarts"]) == (None, 0)
    assert (entry["from_update"] == 0) == (place == PLACES[0]), entry
    require_same(run, undisturbed(model))


@pytest.mark.parametrize(
    "cluster",
    [
        {"shards": 1, "batch_size": 500},
        {"shards": 3, "batch_size": 7, "memory_limit": 0},
        {"shards": 2, "memory_limit": 0},
    ],
)
def test_another_layout_gives_the_same(
    cluster: dict[str, Any],
    config: Callable[..., dict[str, Any]],
    undisturbed: Callable[..., Path],
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    killed_replay(config(), run, "driver.recorded@25#0=kill")
    resumed(run, overrides=[f"cluster.{key}={value}" for key, value in cluster.items()])
    require_same(run, undisturbed("sliding_window"))
    written = (run / "config.yaml").read_text()
    assert all(f"{key}: {value}" in written for key, value in cluster.items())


def test_it_may_be_killed_again_and_again(
    config: Callable[..., dict[str, Any]], undisturbed: Callable[..., Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    killed_replay(config(), run, "driver.recorded@20#0=kill")
    for faults in (
        "driver.recorded@1#0=kill",
        "checkpoint.before_manifest@1#0=kill",
        "driver.recorded@15#0=kill",
        "checkpoint.after_manifest@2#0=kill",
        "run.before_compaction@1#0=kill",
        "run.before_summary@1#0=kill",
    ):
        killed_resume(run, faults)
    summary = resumed(run)
    require_same(run, undisturbed("sliding_window"))
    steps = summary["recoveries"]
    assert len({step["epoch"] for step in steps}) == len(steps), "every incarnation has a number of its own"
    begun = [step["from_update"] for step in steps]
    assert begun == sorted(begun)
    first = json.loads((run / "log.jsonl").read_text().splitlines()[0])
    assert summary["started"] == first["time"][:19] + "+00:00"
    assert summary["ended"] >= summary["started"]  # whole seconds: a short run may end in the one it began in


def test_a_resume_that_ends_while_the_tables_go_back_can_be_repeated(
    config: Callable[..., dict[str, Any]],
    undisturbed: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "run"
    killed_replay(config(), run, "driver.recorded@25#0=kill")
    restore = TableWriter.restore
    for allowed in range(4):
        left = allowed

        def failing(self: TableWriter, state: Any) -> None:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            restore(self, state)

        with monkeypatch.context() as patched:
            patched.setattr(TableWriter, "restore", failing)
            with pytest.raises(KeyboardInterrupt):
                resume(run)
    assert "recoveries" in resumed(run)
    require_same(run, undisturbed("sliding_window"))


def test_the_command_goes_on_after_a_kill(
    config: Callable[..., dict[str, Any]], undisturbed: Callable[..., Path], tmp_path: Path
) -> None:
    job = tmp_path / "run.yaml"
    job.write_text(dump_yaml(config()))

    def raydt(*arguments: Any, faults: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pipelines.cli", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "RAYDT_FAULTS": faults},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    dead = raydt("replay", job, "--out", tmp_path / "run", faults="driver.recorded@25#0=kill")
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    done = raydt("resume", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model_digest"] == summary_of(tmp_path / "run")["model_digest"]
    require_same(tmp_path / "run", undisturbed("sliding_window"))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    again = raydt("resume", tmp_path / "run")
    assert again.returncode == 0
    assert "the run has completed; there is nothing to do" in again.stderr
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}


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

    def test_by_an_error_of_its_own(
        self, config: Callable[..., dict[str, Any]], undisturbed: Callable[..., Path], tmp_path: Path
    ) -> None:
        run, passes = tmp_path / "run", 0

        def fail(point: str) -> None:
            nonlocal passes
            passes += point == "driver.recorded"
            if point == "driver.recorded" and passes == 30:
                raise RaydtError("the disk was full")

        with injected(fail), pytest.raises(RaydtError, match="the disk was full"):
            replay(config(), run)
        failed = summary_of(run)
        assert (failed["status"], failed["model_digest"]) == ("failed", None)
        summary = resumed(run)
        assert summary["recoveries"][0]["what"] == "resumed after RaydtError"
        require_same(run, undisturbed("sliding_window"))

    def test_by_too_many_restarts(
        self, config: Callable[..., dict[str, Any]], undisturbed: Callable[..., Path], tmp_path: Path
    ) -> None:
        run = tmp_path / "run"
        with injected(losing(30, 31, 32, 33, 34, 35)), pytest.raises(RestartsSpentError, match="raydt resume"):
            replay(config(), run)
        failed = summary_of(run)
        assert (failed["status"], failed["restarts"]) == ("failed", 5)
        predicted = pq.read_table(run / "predictions")["seq"].to_pylist()
        wanted = pq.read_table(undisturbed("sliding_window") / "predictions")["seq"].to_pylist()
        assert predicted == [seq for seq in wanted if seq < failed["updates"]], "tables and summary are of one place"
        summary = resumed(run)
        assert [entry["kind"] for entry in summary["recoveries"]] == ["lost"] * 5 + ["resumed"]
        assert summary["recoveries"][-1]["what"] == "resumed after RestartsSpentError"
        require_same(run, undisturbed("sliding_window"))

    def test_after_a_recovery_which_is_not_forgotten(
        self, config: Callable[..., dict[str, Any]], undisturbed: Callable[..., Path], tmp_path: Path
    ) -> None:
        run = tmp_path / "run"
        lose = losing(20)

        def lose_and_end(point: str) -> None:
            lose(point)
            if point == "run.before_compaction":
                raise KeyboardInterrupt

        with injected(lose_and_end), pytest.raises(KeyboardInterrupt):
            replay(config(), run)
        summary = resumed(run)
        assert [(entry["kind"], entry["epoch"]) for entry in summary["recoveries"]] == [("lost", 1), ("resumed", 2)]
        assert summary["restarts"] == 1
        require_same(run, undisturbed("sliding_window"))


def losing(*passes: int) -> Callable[[str], None]:
    """A handler that loses a process at some passes through the recording of a batch."""
    count = 0

    def lose(point: str) -> None:
        nonlocal count
        count += point == "driver.recorded"
        if point == "driver.recorded" and count in passes:
            raise ProcessLostError("shard 1 died")

    return lose


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


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_begun_in_process_and_resumed_on_ray(
    config: Callable[..., dict[str, Any]], undisturbed: Callable[..., Path], tmp_path: Path
) -> None:
    killed_replay(config("time_window"), tmp_path / "run", "driver.recorded@25#0=kill")
    resumed(tmp_path / "run", overrides=["cluster.backend=ray", "cluster.shards=3"])
    require_same(tmp_path / "run", undisturbed("time_window"))
