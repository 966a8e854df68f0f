"""Checkpoints of a run at work: a command takes the newest complete one, or names it, never the one being written."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_job import JOB

from pipelines import replay
from raydt import load_model
from raydt.errors import ModelFileError
from raydt.messages import message
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("steady_checkpoints")

COMMANDS = {
    "predict": ["predict", "{}", "new.parquet", "--out", "predictions.parquet", "--overwrite"],
    "audit": ["audit", "{}", "--json"],
    "export": ["export", "{}", "--to", "sklearn", "--out", "model.skops", "--overwrite"],
    "update": ["update", "{}", "--delete", "ids.parquet", "--out", "state", "--dry-run"],
}


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Checkpoints of a run, at updates 100 to 500."""
    monkeypatch.chdir(tmp_path)
    every = {"every_seconds": None, "every_updates": 100, "keep": 5}
    replay({**JOB, "cluster": {"backend": "in_process", "batch_size": 100}, "checkpoint": every}, tmp_path / "run")
    pq.write_table(pa.table({f"x{i}": [1.0] for i in range(3)}), "new.parquet")
    pq.write_table(pa.table({"id": [3]}), "ids.parquet")
    states = tmp_path / "run" / "checkpoints"
    assert [states / f"{number}00" in list(states.iterdir()) for number in range(1, 6)] == [True] * 5
    return states


@pytest.mark.parametrize("command", COMMANDS)
def test_the_newest_complete_one_is_taken_or_named(raydt, states: Path, command: str) -> None:
    draw = random.Random(command)
    incomplete = {500, *draw.sample([200, 300, 400], draw.randrange(4))}
    for number in incomplete:  # the manifest is written last, and removed first
        (states / str(number) / "manifest.json").unlink()
    newest = max({100, 200, 300, 400} - incomplete)

    def answer(place: Path) -> tuple[int, str, str]:
        return raydt(*(word.format(place) for word in COMMANDS[command]))

    right = answer(states / str(newest))
    assert right[0] == 0
    for place in (states, Path(f"{states}/"), states.relative_to(Path.cwd())):
        assert answer(place)[0] == 0
    for number in (*incomplete, 600):
        code, out, err = answer(states / str(number))
        said = message("models.incomplete", newest=f"{states}/{newest}", above=str(states))
        assert (code, out) == (2, "")
        assert err.splitlines()[-1] == f"error: {states}/{number}: {said}"


def test_an_estimator_is_loaded_from_the_newest(states: Path) -> None:
    (states / "500" / "manifest.json").unlink()
    assert load_model(states).digest() == load_model(states / "400").digest()
    with refused("models.incomplete", ModelFileError, file=str(states / "500"), newest=str(states / "400")):
        load_model(states / "500")
    for number in (100, 200, 300, 400):
        (states / str(number) / "manifest.json").unlink()
    with refused("models.no_model", ModelFileError):
        load_model(states)


def test_a_run_at_work_names_its_checkpoints(raydt, states: Path) -> None:
    run = states.parent
    (run / "summary.json").unlink()
    code, _, err = raydt("predict", run, "new.parquet", "--out", "p.parquet")
    assert code == 2
    assert message("runs.unsaved", run=run) in err
