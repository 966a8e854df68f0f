"""A small run of every case: its audit holds, a loss does not show, what it saves is what it had, damage is found."""

from __future__ import annotations

import functools
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run
from pipelines.prediction import predict_file
from raydt import load_model
from raydt.errors import ModelFileError, ProcessLostError
from raydt.estimators import estimator_of
from raydt.exchange.messages import injected
from raydt.folders.arrays import read_manifest
from raydt.folders.checkpoint import read_checkpoint
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.sessions.saved_model import find_model, open_model
from raydt.sessions.session import InProcessSession
from tests.cases import CASES, Trial, every_case, never, one_of_each
from tests.small_tables import examples, table_of

#: Columns of the tables that say how the work was done.
HOW = {"seconds", "rounds", "bytes_exchanged", "place"}


def results(run: pipelines.RunResult) -> dict[str, object]:
    """What must not depend on losses: digest, updates and the columns of the tables (as text, since NaN != NaN).

    A learner that logs nothing leaves no table of events. A lazy forest opens a subtree when somebody looks, and each
    message ends with a look: what its events tell depends on how the stream is cut.
    """
    lazy = "rebuild: lazy" in Path(run.path, "config.yaml").read_text(encoding="utf-8")
    tells = Path(run.path, "events").exists() and not lazy
    columns = {
        f"{table}.{name}": repr(values)
        for table in ("metrics", "predictions", *(["events"] if tells else []))
        for name, values in pq.read_table(f"{run.path}/{table}").to_pydict().items()
        if name not in HOW
    }
    return {"digest": run.digest, "updates": run.summary["updates"], **columns}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory):
    """A finished run of a case."""

    @functools.cache
    def run(name: str) -> pipelines.RunResult:
        trial = next(trial for trial in CASES if trial.name == name)
        folder = tmp_path_factory.mktemp("run")
        return pipelines.replay(trial.config(folder), folder / "run")

    return lambda trial: run(trial.name)


def test_every_learner_has_cases() -> None:
    for learner in learners().values():
        names = [case.name for case in learner.cases()]
        assert names, f"{learner.kind} has no cases: no net would test it"
        assert len(set(names)) == len(names), f"two cases of {learner.kind} have one name"


@every_case("audit of a run")
def test_the_audit_of_a_run(trial: Trial, run_of) -> None:
    run = run_of(trial)
    assert run.summary["deletes"] > 20
    assert run.summary["refused"]
    report = audit_run(run.path)
    assert (report.conformance, report.failures) == ("holds", [])
    assert report.ok
    assert any(report.checked.values())


@every_case("a lost process")
def test_a_loss_does_not_show(trial: Trial, run_of, tmp_path: Path) -> None:
    passed = iter(range(10**6))

    def strike(point: str) -> None:
        if point == "driver.recorded" and next(passed) in (4, 6):
            raise ProcessLostError("a shard was killed")

    with injected(strike):
        run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    assert run.summary["restarts"] == 2
    assert run.summary["recoveries"][0]["from_update"] > 0
    assert results(run) == results(run_of(trial))


@every_case("an interruption and a resume", one_of_each)
def test_an_interruption_does_not_show(trial: Trial, run_of, tmp_path: Path) -> None:
    passed = iter(range(10**6))

    def strike(point: str) -> None:
        if point == "driver.recorded" and next(passed) == 4:
            raise KeyboardInterrupt

    with injected(strike), pytest.raises(KeyboardInterrupt):
        pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    assert results(pipelines.resume(tmp_path / "run")) == results(run_of(trial))


def frame(trial: Trial) -> pa.Table:
    """Rows to predict, as a user has them: with classes and categories of theirs."""
    return table_of(examples(30, 77)).select(trial.columns["features"])


@every_case("save and load")
def test_what_is_loaded_is_what_was_saved(trial: Trial, run_of) -> None:
    run = run_of(trial)
    last = max(Path(run.path, "checkpoints").iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1)
    state, model = open_model(last), open_model(find_model(run.path))
    for shards in (1, 3):
        session = InProcessSession(trial.learner, state.options, state.features, shards, trial.case.plan)
        session.restore(state.arrays, state.groups)
        assert session.digest() == run.digest
        again, groups = session.state()
        assert exactly(again) == exactly({name: state.arrays[name] for name in again})
        assert {g: exactly(part) for g, part in groups.items()} == {g: exactly(p) for g, p in state.groups.items()}
        assert exactly(session.model()) == exactly(model.arrays)


@every_case("save and load")
def test_a_state_is_restored_group_by_group(trial: Trial, run_of, monkeypatch) -> None:
    """Nothing is kept of what was read, and nothing is read later."""
    monkeypatch.setattr("raydt.folders.segments.KEEP_BYTES", 0)
    run = run_of(trial)
    checkpoints = Path(run.path, "checkpoints")
    state = open_model(max((path for path in checkpoints.iterdir() if path.name.isdigit()), key=lambda p: int(p.name)))
    assert state.groups[0] is not state.groups[0]
    session = InProcessSession(trial.learner, state.options, state.features, 2, trial.case.plan)
    session.restore(state.arrays, state.groups)
    before = {g: exactly(part) for g, part in state.groups.items()}
    monkeypatch.setattr("raydt.folders.arrays.read_entry", None)
    assert session.digest() == run.digest
    assert {g: exactly(part) for g, part in session.state()[1].items()} == before


@every_case("the estimator")
def test_the_estimator_opens_a_run(trial: Trial, run_of) -> None:
    """Model and state predict alike; the state also forgets and learns."""
    run = run_of(trial)
    try:
        estimator_of(trial.options)
    except NotImplementedError:
        with pytest.raises(NotImplementedError, match=trial.learner.kind):
            load_model(run.path)
        return
    model = load_model(run.path)
    predictions = model.predict(frame(trial))
    assert len(predictions) == 30
    if trial.case.classes:
        assert set(predictions.tolist()) <= set("xyz")
        np.testing.assert_allclose(model.predict_proba(frame(trial)).sum(axis=1), 1)
    last = max(int(path.name) for path in Path(run.path, "checkpoints").iterdir() if path.name.isdigit())
    state = load_model(Path(run.path, "checkpoints", str(last)))
    assert state.predict(frame(trial)).tolist() == predictions.tolist()


@every_case("save and load")
def test_a_run_and_its_last_state_predict_alike(trial: Trial, run_of, tmp_path: Path) -> None:
    """Classes and shares of the command, of rows that no example of the run has to resemble."""
    run = run_of(trial)
    last = max(int(path.name) for path in Path(run.path, "checkpoints").iterdir() if path.name.isdigit())
    data = tmp_path / "rows.parquet"
    pq.write_table(table_of(examples(200, 78)).select(trial.columns["features"]), data)
    of_run, of_state = tmp_path / "run.parquet", tmp_path / "state.parquet"
    predict_file(run.path, data, of_run)
    predict_file(Path(run.path, "checkpoints", str(last)), data, of_state)
    assert pq.read_table(of_state).equals(pq.read_table(of_run))


def exactly(arrays: dict[str, np.ndarray]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Arrays as values that are equal if all bits are."""
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def damaged(trial: Trial, run: pipelines.RunResult, folder: Path, bits: int) -> int:
    """Damage each file of the last checkpoint, one after the other; how often it was found."""
    shutil.copytree(Path(run.path, "checkpoints"), folder / "checkpoints")
    last = max(int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdigit())
    place = Folder(folder / "checkpoints" / str(last))
    names = ["manifest.json", *(entry.name for entry in read_manifest(place).files)]
    draw, found = random.Random(trial.name), 0
    for name in names:
        file = Path(place.path(name))
        data = file.read_bytes()
        changes = [data[:-1], data + b"\0", None]
        for _ in range(bits):
            at, bit = draw.randrange(len(data)), draw.randrange(8)
            changes.append(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        for change in changes:
            file.unlink() if change is None else file.write_bytes(change)
            with pytest.raises(ModelFileError, match=re.escape(file.name)):
                read_checkpoint(place)
            found += 1
            file.write_bytes(data)
    assert read_checkpoint(place).number == last
    return found


@every_case("checkpoint damage", one_of_each)
def test_a_damaged_checkpoint_is_refused(trial: Trial, run_of, tmp_path: Path) -> None:
    assert damaged(trial, run_of(trial), tmp_path, 2) > 20


@every_case("checkpoint damage", never)
def test_a_damaged_checkpoint_is_refused_wherever_it_is(trial: Trial, run_of, tmp_path: Path) -> None:
    assert damaged(trial, run_of(trial), tmp_path, 100) > 500
