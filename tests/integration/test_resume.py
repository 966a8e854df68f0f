"""Runs that are resumed after a kill, and processes that write into one place at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
import pipelines.auditing
from pipelines import replay, resume
from pipelines.auditing import audit_run
from pipelines.operation import dump_yaml
from pipelines.report.page import is_page
from raydt import load_model
from raydt.exchange.messages import injected
from raydt.folders.folder import Folder, locked
from raydt.messages import message
from raydt.sessions.receipt_chain import read_chain
from tests.integration.killed_driver import killed_replay

# -- resume ----------------------------------------------------------------------------------------------------------
# Runs whose driver was killed or stopped, resumed: what comes out is what comes out of a run that nothing happened
# to.
#
# Killed for real, at named places (``raydt.exchange.messages``), for every stream model.

ROOT = Path(__file__).parents[2]
N = 640

#: What depends on how the work was done, in the tables and in the summary.
COSTS = {"seconds", "rounds", "bytes_exchanged", "place"}
SAME = ("updates", "inserts", "deletes", "replaced", "queries", "predictions", "refused", "skipped", "active")
SAME += ("metrics", "baselines", "rebuilds", "rebuilt_rows", "nodes", "leaves", "depth", "classes", "features")
SAME += ("name", "status", "exit_reason", "exit_code", "error", "model_digest", "config_hash", "source_fingerprint")

STREAMS: dict[str, dict[str, Any]] = {
    "incremental": {"warmup": 250},  # longer than the first two checkpoints
    "sliding_window": {"window": 120, "warmup": 30, "previous_labels": 2},
    "adaptive_window": {"warmup": 30},
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


# -- writers at once -------------------------------------------------------------------------------------------------
# Several processes write into one place at once: what is there in the end is one's, whole, and the others say so.

WRITERS = 3
ROUNDS = [0, *(pytest.param(number, marks=pytest.mark.nightly) for number in range(1, 30))]
Ended = tuple[int, str, str]

JOB: dict[str, Any] = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 600, "seed": 3},
    "stream": {"model": "sliding_window", "window": 300},
    "learner": {"kind": "fudyadt", "max_depth": 4},
    "cluster": {"backend": "in_process"},
    "checkpoint": {"every_seconds": None, "every_updates": 200},
    "output": {"report": True},
}


@pytest.fixture(scope="module")
def at_once() -> Iterator[Callable[..., list[Ended]]]:
    """Give each process its command at the same moment; returns what each has answered."""
    start = [sys.executable, str(Path(__file__).with_name("started_at_once.py"))]
    processes = [subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(WRITERS)]

    def run(*commands: list[Any]) -> list[Ended]:
        for process, command in zip(processes, commands, strict=True):
            assert process.stdin is not None
            process.stdin.write((json.dumps([str(part) for part in command]) + "\n").encode())
            process.stdin.flush()
        return [tuple(json.loads(process.stdout.readline())) for process in processes if process.stdout is not None]

    run(*[["doctor", "--json"]] * WRITERS)  # all are ready
    yield run
    for process in processes:
        process.communicate(b"")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(dump_yaml(JOB))
    pipelines.replay(JOB, tmp_path / "run")
    for number in range(WRITERS):
        (tmp_path / f"gone-{number}.csv").write_text(f"id\n{400 + number}\n")
    pq.write_table(pa.table({f"x{i}": [0.5, 7.0] * 5000 for i in range(3)}), tmp_path / "rows.parquet")
    (tmp_path / "key").write_text("0f" * 32)
    return tmp_path


def winners(ended: list[Ended], *, alone: bool) -> list[str]:
    """What those printed who have succeeded; the others have one sentence."""
    for code, out, err in ended:
        assert code in (0, 2), err
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(lines) == (code == 2), err
        assert "Traceback" not in err
        assert code == 0 or not out
    found = [out for code, out, _ in ended if code == 0]
    assert found, [err for _, _, err in ended]
    assert not alone or len(found) == 1, [err for _, _, err in ended]
    return found


def nothing_hidden(folder: Path) -> bool:
    return not list(folder.rglob(".*"))


@pytest.mark.parametrize("number", ROUNDS)
def test_update_into_one_state(at_once: Any, folder: Path, number: int) -> None:
    out = folder / "new" / "state"
    ended = at_once(
        *(["update", folder / "run", "--delete", folder / f"gone-{i}.csv", "--out", out, "--json"] for i in range(3))
    )
    (won,) = winners(ended, alone=True)
    model = load_model(out)
    assert model.digest() == json.loads(won)["digest_after"]
    assert not set(json.loads(won)["deletions"]["id"]) & set(model.row_ids_.tolist())
    names = {entry["name"] for entry in json.loads((out / "manifest.json").read_text())["files"]}
    assert {path.name for path in out.iterdir()} == names | {"manifest.json"}


@pytest.mark.parametrize("number", ROUNDS)
def test_updates_into_one_chain(at_once: Any, folder: Path, number: int) -> None:
    chain = folder / "receipts.jsonl"
    kept_in = ["--receipts", chain, "--receipt-key", folder / "key", "--json"]
    ended = at_once(
        *(
            ["update", folder / "run", "--delete", folder / f"gone-{i}.csv", "--out", folder / f"state-{i}", *kept_in]
            for i in range(3)
        )
    )
    won = winners(ended, alone=False)
    states = {load_model(path).digest() for path in folder.glob("state-*")}
    # who begins from the run after another one has written tells first that the state goes back to that of the run
    kept = [entry["digest_after"] for entry in read_chain(chain).entries if "rolled_back" not in entry]
    assert len(kept) == len(states) == len(won)
    assert set(kept) == states == {json.loads(out)["digest_after"] for out in won}


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("command", [["replay"], ["sweep", "--grid", "learner.epsilon=0.1,0.2"]], ids=lambda c: c[0])
def test_runs_into_one_folder(at_once: Any, folder: Path, command: list[str], number: int) -> None:
    out, slow = folder / "new" / "one", ["--set", f"source.n={600 + 300 * (number % 2)}"]
    ended = at_once(
        *([command[0], folder / "job.yaml", *command[1:], "--out", out, "--json"] + slow * (i > 0) for i in range(3))
    )
    (won,) = winners(ended, alone=True)
    assert nothing_hidden(folder / "new")
    if command[0] == "sweep":
        assert json.loads((out / "sweep.json").read_text())["done"] == 2
        assert json.loads(won)["best"] == json.loads((out / "sweep.json").read_text())["best"]
    else:
        assert json.loads((out / "summary.json").read_text())["model_digest"] == json.loads(won)["model_digest"]
        (audited, *_) = at_once(["audit", out, "--json"], ["doctor"], ["doctor"])
        assert audited[0] == 0


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize(
    "command",
    ["resume", "purge", "report", "report --out", "predict", "predict --overwrite", "export", "save", "--overwrite"],
)
def test_a_command_that_replaces_or_completes(at_once: Any, folder: Path, command: str, number: int) -> None:
    run, out = (
        folder / "run",
        folder / "new" / {"export": "m.txt", "predict": "p.parquet"}.get(command.split()[0], "r.html"),
    )
    before = {path.name for path in run.iterdir()}
    if command == "resume":
        (run / "summary.json").unlink()
    commands: dict[str, list[Any]] = {
        "resume": ["resume", run, "--json"],
        "purge": ["purge", run, "--json"],
        "report": ["report", run],
        "report --out": ["report", run, "--out", out],
        "predict": ["predict", run, folder / "rows.parquet", "--out", out],
        "predict --overwrite": ["predict", run, folder / "rows.parquet", "--out", out, "--overwrite"],
        "--overwrite": ["replay", folder / "job.yaml", "--out", run, "--overwrite", "--json"],
        "export": ["export", run, "--to", "lightgbm", "--out", out],
    }
    ended = at_once(*(commands.get(command, ["save", out, i]) for i in range(3)))
    won = winners(ended, alone=command in ("predict", "export"))
    assert nothing_hidden(folder)
    assert {path.name for path in run.iterdir()} - before <= {"purge.json"}
    if command in ("resume", "purge", "--overwrite"):
        (audited, *_) = at_once(["audit", run, "--json"], ["doctor"], ["doctor"])
        assert audited[0] == 0, audited
    elif command == "save":
        assert load_model(out).digest() in {text.strip() for text in won}
        names = {entry["name"] for entry in json.loads((out / "manifest.json").read_text())["files"]}
        assert {path.name for path in out.iterdir()} == names | {"manifest.json"}
    elif command == "report":
        assert is_page(run / "report.html")
    else:
        there = {path.name for path in out.parent.iterdir()}
        assert there == {out.name} | ({"m.txt.json"} if command == "export" else set())
        if command.startswith("predict"):
            assert pq.read_table(out).num_rows == 10_000
        elif command == "export":
            assert lightgbm.Booster(model_file=str(out)).num_trees() == 2
        else:
            assert is_page(out)


@pytest.mark.parametrize("meanwhile", ["purged", "resumed", "locked"])
def test_an_audit_writes_its_verdict_beside_what_others_have_written_meanwhile(
    folder: Path, meanwhile: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, audit = folder / "run", pipelines.auditing.audit
    summary = json.loads((run / "summary.json").read_text())
    assert summary["audit"] is None

    def audited(*arguments: Any, **how: Any) -> Any:
        found = audit(*arguments, **how)
        digest = {"model_digest": "sha256:" + "0" * 64} if meanwhile == "resumed" else {}
        (run / "summary.json").write_text(json.dumps({**summary, "source_fingerprint": "of another", **digest}))
        return found

    monkeypatch.setattr("pipelines.auditing.audit", audited)
    with locked(Folder(run if meanwhile == "locked" else folder)):
        assert pipelines.auditing.audit_run(run).ok
    stored = json.loads((run / "summary.json").read_text())
    assert stored["source_fingerprint"] == "of another"
    assert (stored["audit"] is not None) == (meanwhile == "purged")
    assert ("not be stored" in caplog.text) == (meanwhile != "purged")
