"""Several processes write into one place at once: what is there in the end is one's, whole, and the others say so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightgbm
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
import pipelines.auditing
from pipelines.operation import dump_yaml
from pipelines.report.page import is_page
from raydt import load_model
from raydt.folders.folder import Folder, locked
from raydt.sessions.receipt_chain import read_chain

WRITERS = 3
ROUNDS = [0, *(pytest.param(number, marks=pytest.mark.nightly) for number in range(1, 100))]
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

    def audited(*arguments: Any) -> Any:
        found = audit(*arguments)
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
