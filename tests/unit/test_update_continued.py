"""``resume --from``: which streams continue from an update, and which states are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from updatable import ids_file, table

import pipelines
from pipelines.auditing import audit_run, verify_receipts
from pipelines.cli import main
from pipelines.receipts import ReceiptFile
from pipelines.saved_runs import open_state
from pipelines.updating import update
from raydt import FullyDynamicTreeClassifier
from raydt.errors import ConfigError, InputError, RaydtError, UpdateError
from raydt.exchange.messages import injected
from tests.cut_runs import Gone, at, cut
from tests.refusals import refused

WINDOW = {"model": "sliding_window", "window": 60}


def stopped(folder: Path, stream: dict[str, Any], after: int | None = 4, keep: int = 3, **source: Any) -> Path:
    """A run over 200 examples that is broken off after some batches of 30; not, if ``after`` is None."""
    text_ids = source.pop("text_ids", True)
    rows = table(0, 200, text_ids=text_ids).append_column("ts", pa.array(range(0, 2000, 10)))
    pq.write_table(rows, folder / "train.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(folder / "train.parquet"), "id": "key", "features": ["a", "colour"]}
        | source,
        "stream": stream,
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 30},
        "checkpoint": {"every_updates": 1, "every_seconds": None, "keep": keep},
        "output": {"predictions": True, "report": False},
    }
    if after is None:
        return Path(pipelines.replay(config, folder / "run").path)
    return cut(config, folder / "run", after)


def written(path: Path, rows: pa.Table) -> Path:
    pq.write_table(rows, path)
    return path


def live(place: Path) -> set[str]:
    saved, _ = open_state(place)
    stream = saved.components["stream"]
    names = dict(zip(stream["id_codes"].tolist(), stream["ids"], strict=True))
    return {names[code] for code in saved.arrays["id"].tolist()}


STREAMS = {
    "incremental": {"model": "incremental"},
    "window": WINDOW,
    "random": {"model": "random_updates", "insert_probability": 0.7},
    "time": {"model": "time_window", "duration": 600},
}


@pytest.mark.parametrize("name", list(STREAMS))
def test_a_stream_that_chooses_its_deletions_forgets_what_an_update_deleted(tmp_path: Path, name: str) -> None:
    run = stopped(tmp_path, STREAMS[name], **({"ts": "ts"} if name == "time" else {}))
    gone = sorted(live(run / "checkpoints"))[:5]
    new = table(0, 3).set_column(0, "key", pa.array(["new a", gone[0], "k0199"]))
    new = new.set_column(3, "y", pa.array(["a new class", "yes", "no"]))
    update(
        run / "checkpoints",
        delete=ids_file(tmp_path / "gone.csv", gone),
        insert=written(tmp_path / "new.parquet", new),
        out=tmp_path / "state",
    )
    with pytest.raises(InputError, match="k0199"):  # comes in the stream, too, and is live
        pipelines.resume(run, state=tmp_path / "state")
    update(run, delete=ids_file(tmp_path / "last.csv", ["k0199"]), out=tmp_path / "again")
    ended = pipelines.resume(run, state=tmp_path / "again")
    assert ended.summary["refused"] == 0
    assert live(run) >= {"new a", gone[0], "k0199"}
    assert not set(gone[1:]) & live(run)
    assert "a new class" in ended.summary["classes"]
    assert audit_run(run).ok
    if name == "window":
        assert ended.summary["active"] == 60 + 2  # rows of an update are outside of the window
    assert [step["deletes"] for step in ended.summary["lineage"]] == [5, 1]
    seq = pq.read_table(run / "predictions")["seq"].to_pylist()
    assert len(set(seq)) == len(seq)


@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_a_later_deletion_of_a_deleted_example_is_refused(tmp_path: Path, on_error: str) -> None:
    pq.write_table(pa.table({"id": ["k0003", "k0004"], "after": [190, 190]}), tmp_path / "log.parquet")
    log = {"model": "deletion_log", "deletion_log": str(tmp_path / "log.parquet"), "on_error": on_error}
    run = stopped(tmp_path, log)
    update(run / "checkpoints", delete=ids_file(tmp_path / "gone.csv", ["k0003"]), out=tmp_path / "state")
    if on_error == "error":
        with pytest.raises(UpdateError, match=r"log.parquet, row 0.*k0003"):
            pipelines.resume(run, state=tmp_path / "state")
        update(run, insert=written(tmp_path / "new.parquet", table(3, 4)), out=tmp_path / "again")
        pipelines.resume(run, state=tmp_path / "again")  # where it had stopped: the id is live once more
    else:
        assert pipelines.resume(run, state=tmp_path / "state").summary["refused"] == 1
    assert not {"k0003", "k0004"} & live(run)
    assert audit_run(run).ok


def test_a_completed_run_takes_an_update_in(tmp_path: Path) -> None:
    run = stopped(tmp_path, {"model": "incremental"}, None)
    key = tmp_path / "key"
    key.write_text("0f" * 32)
    receipt = update(
        run,
        delete=ids_file(tmp_path / "gone.csv", ["k0003"]),
        out=tmp_path / "state",
        receipts=ReceiptFile(str(tmp_path / "receipts.jsonl"), str(key)),
    )
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(run), "--from", str(tmp_path / "state"), "--json"])
    assert not ended.value.code
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["updates"], summary["active"]) == ("completed", 201, 199)
    assert summary["model_digest"] == receipt.digest_after
    assert verify_receipts(tmp_path / "receipts.jsonl", run, key=str(key))["ok"]
    assert audit_run(run).ok
    assert "k0003" not in live(run)
    assert [path.name for path in (run / "checkpoints").iterdir() if path.name.isdecimal()] == ["201"]
    assert pipelines.resume(run).digest == receipt.digest_after


def test_a_checkpoint_without_the_update_is_refused(tmp_path: Path) -> None:
    """Whoever put it there, or if all are gone, and also if nothing but the log tells of the update."""
    run = stopped(tmp_path, {"model": "incremental"})
    shutil.copytree(run / "checkpoints", tmp_path / "before")
    update(run / "checkpoints", delete=ids_file(tmp_path / "gone.csv", ["k0003"]), out=tmp_path / "state")
    with injected(at(1)), pytest.raises(Gone):
        pipelines.resume(run, state=tmp_path / "state")
    shutil.rmtree(run / "checkpoints")
    for there in (False, True):
        if there:
            shutil.copytree(tmp_path / "before", run / "checkpoints")
        with refused("runs.updated_since", ConfigError):
            pipelines.resume(run)
    pipelines.resume(run, state=tmp_path / "state")
    assert "k0003" not in live(run)


def row_numbers(folder: Path, run: Path) -> Path:
    update(run / "checkpoints", insert=written(folder / "new.parquet", table(0, 1)), out=folder / "state")
    return folder / "state"


def deleted(folder: Path, run: Path) -> Path:
    gone = ids_file(folder / "gone.csv", sorted(live(run / "checkpoints"))[:1])
    update(run / "checkpoints", delete=gone, out=folder / "state")
    return folder / "state"


def of_an_estimator(folder: Path, run: Path) -> Path:
    tree = FullyDynamicTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    tree.save(folder / "saved", with_examples=True)
    update(folder / "saved", delete=ids_file(folder / "gone.csv", [0]), out=folder / "state")
    return folder / "state"


REFUSED = {
    "batches": ({"model": "batches", "steps": [90, 50, 100]}, {}, deleted, "streams.batches_after_update"),
    "row numbers": ({"model": "incremental"}, {"id": None}, row_numbers, "runs.running_numbers"),
    "no update": ({"model": "incremental"}, {}, lambda folder, run: run / "checkpoints", "runs.not_updated"),
    "another model": ({"model": "incremental"}, {}, of_an_estimator, "runs.unknown_state"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_states_that_a_run_cannot_take_in(tmp_path: Path, name: str) -> None:
    stream, source, made, problem = REFUSED[name]
    run = stopped(tmp_path, stream, **source)
    state = made(tmp_path, run)
    there = {path: path.read_bytes() for path in run.rglob("*.json")}
    with refused(problem, RaydtError):
        pipelines.resume(run, state=state)
    assert {path: path.read_bytes() for path in run.rglob("*.json")} == there


def test_a_run_that_has_been_resumed_since_refuses(tmp_path: Path) -> None:
    run = stopped(tmp_path, {"model": "incremental"}, keep=20)  # with the checkpoint that the state is made from
    state = deleted(tmp_path, run)
    pipelines.resume(run)
    with refused("runs.later_tables", InputError, run=str(run)):
        pipelines.resume(run, state=state)
