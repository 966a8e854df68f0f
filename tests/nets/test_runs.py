"""Runs of every learner: losses, updates taken in, change files, logs that grow, and subjects."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, audit_state, verify_run
from pipelines.prediction import predict_file
from pipelines.purging import purge
from pipelines.updating import apply_changes, update
from pipelines.updating.changes import StateNames
from raydt import load_model
from raydt.errors import ConfigError, InputError, ModelFileError, ProcessLostError, UpdateError
from raydt.estimators import estimator_of
from raydt.exchange.messages import injected
from raydt.folders.arrays import load_folder, read_manifest
from raydt.folders.checkpoint import read_checkpoint
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.sessions.saved_model import find_model, open_model
from raydt.sessions.session import InProcessSession
from raydt.streams.deletion_log import Changelog
from tests.cases import Trial, a_third, change_log, every_case, never, one_of_each, open_state
from tests.refusals import refused
from tests.small_tables import examples, table_of, written
from tests.storage_faults import Gone, at, cut

# -- runs ------------------------------------------------------------------------------------------------------------
# A small run of every case: its audit holds, a loss does not show, what it saves is what it had, damage is found.

#: Columns of the tables that say how the work was done.
HOW = {"seconds", "rounds", "bytes_exchanged", "place"}


def results(run: pipelines.RunResult) -> dict[str, object]:
    """What must not depend on losses: digest, updates and the columns of the tables (as text, since NaN != NaN).

    A learner that logs nothing leaves no table of events. A lazy forest opens a subtree when somebody looks, and each
    message ends with a look: what its events tell depends on how the stream is cut.
    """
    config = Path(run.path, "config.yaml").read_text(encoding="utf-8")
    lazy = "rebuild: lazy" in config or "rebuild: auto" in config
    tells = Path(run.path, "events").exists() and not lazy
    columns = {
        f"{table}.{name}": repr(values)
        for table in ("metrics", "predictions", *(["events"] if tells else []))
        for name, values in pq.read_table(f"{run.path}/{table}").to_pydict().items()
        if name not in HOW
    }
    return {"digest": run.digest, "updates": run.summary["updates"], **columns}


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
    assert damaged(trial, run_of(trial), tmp_path, 25) > 200


# -- continued -------------------------------------------------------------------------------------------------------
# A run that takes in what ``raydt update`` wrote goes on as if the update had been part of its stream.
#
# The twin is one session that applies one stream: the rows before the update, its deletions and insertions, and the
# rows after it. The run is killed while it takes the state in, and once more afterwards.

UPDATES = 120


def numbered(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows with ids that are numbers, so that no id has another code in another stream."""
    table = table_of(rows)
    ids = pa.array([int(name[1:]) for name in table["id"].to_pylist()], pa.int64())
    return table.set_column(table.schema.get_field_index("id"), "id", ids)


class Updated:
    """A run that is killed, updated twice and resumed, and the stream that it comes to."""

    def __init__(self, trial: Trial, folder: Path, inserts: int = 0, stream: Any = None, **cluster: Any) -> None:
        """Begin with so many ``inserts``; ``stream`` is laid over that of the config."""
        self.trial, self.folder, self.run = trial, folder, folder / "run"
        self.rows = change_log(UPDATES, inserts or max(24, trial.case.warmup))
        self.stream = stream or {}
        self.config = trial.config(folder, cluster=cluster, stream=self.stream)
        written(folder / "changes.arrow", numbered(self.rows))
        cut(self.config, self.run, 7)
        saved, _ = open_state(self.run / "checkpoints")
        self.begin, draw = int(saved.meta["offset"]), random.Random(trial.name)
        ids = saved.arrays["id"]
        live = sorted(set(ids[saved.session().coordinator.store.find(ids) >= 0].tolist()))
        assert len(live) > 3
        first = draw.sample(live, len(live) // 3)
        second = draw.sample([one for one in live if one not in first], len(live) // 3)
        new = [{**row, "id": f"e{900 + i}"} for i, row in enumerate(examples(6, 99))]
        new[0]["id"] = f"e{first[0]}"  # replaced
        self.changes = [(first, new[:4]), ([*second, 901], new[4:])]
        self.finishes: list[int] = []
        self.all_rows = self.rows[: self.begin]
        place: Path = self.run / "checkpoints"
        for number, (gone, added) in enumerate(self.changes):
            pq.write_table(pa.table({"id": gone}), folder / f"gone{number}.parquet")
            pq.write_table(numbered(added).drop_columns(["op"]), folder / f"new{number}.parquet")
            update(
                place,
                delete=folder / f"gone{number}.parquet",
                insert=folder / f"new{number}.parquet",
                out=folder / f"state{number}",
            )
            place = folder / f"state{number}"
            self.all_rows += [{**examples(1)[0], "op": "delete", "id": f"e{one}"} for one in gone] + added
            self.finishes.append(len(self.all_rows))
        self.state = place
        self.all_rows += self.rows[self.begin :]

    def twin(self) -> InProcessSession:
        """One session that applies the whole stream."""
        config = self.trial.config(self.folder / "twin", stream=self.stream)
        written(self.folder / "twin" / "changes.arrow", numbered(self.all_rows))
        stream = Changelog.model_validate(config["stream"]).make(self.trial.source(config))
        session, done = self.trial.session(stream), 0
        for stop in (*self.finishes, len(self.all_rows)):
            while done < stop:
                batch = next(stream.batches(min(7, stop - done)))
                session.apply(batch, skip_refused=True)
                done = batch.stop
            if self.trial.learner.traits(self.trial.options).collects_updates or stop == len(self.all_rows):
                session.finish()
        return session

    def resume(self) -> pipelines.RunResult:
        """Take the state in, with a kill before that is done, and one more while the stream continues."""
        with injected(at(1, point="checkpoint.before_manifest")), pytest.raises(Gone):
            pipelines.resume(self.run, state=self.state)
        with refused("runs.updated_since", ConfigError):
            pipelines.resume(self.run)
        with injected(at(1)), pytest.raises(Gone):
            pipelines.resume(self.run, state=self.state)
        return pipelines.resume(self.run)


def require_equal(updated: Updated, run: pipelines.RunResult) -> None:
    """The last state of the run has, bit for bit, what the twin has."""
    twin, (saved, _) = updated.twin(), open_state(run.path)
    assert run.digest == twin.digest()
    assert exactly(saved.session().model()) == exactly(twin.model())
    state, own = twin.state()[0], saved.arrays  # but for places of statistics, which a restore numbers again
    assert exactly({name: own[name] for name in ("id", "y", "born")}) == exactly(
        {name: state[name] for name in ("id", "y", "born")}
    )
    assert run.summary["updates"] == len(updated.all_rows) == saved.meta["offset"]
    assert run.summary["active"] == twin.coordinator.store.live
    assert [step["deletes"] for step in saved.meta["lineage"]] == [len(gone) for gone, _ in updated.changes]


@every_case("an update taken in", one_of_each)
def test_a_run_goes_on_from_an_update(trial: Trial, tmp_path: Path) -> None:
    (tmp_path / "twin").mkdir()
    updated = Updated(trial, tmp_path)
    run = updated.resume()
    require_equal(updated, run)
    report = audit_run(run.path)
    assert (report.conformance, report.failures) == ("holds", [])
    if trial.learner.traits(trial.options).retrained:
        assert verify_run(run.path)["equal"]
    again = pipelines.resume(run.path, state=updated.state)  # it has this update
    assert again.digest == run.digest
    purge(run.path)
    assert audit_run(run.path).ok
    np.testing.assert_array_equal(open_state(run.path)[0].arrays["id"], updated.twin().state()[0]["id"])


@every_case("an update taken in on Ray", never, a_third("an update taken in on Ray"))
@pytest.mark.ray
def test_a_run_on_ray_goes_on_from_an_update(trial: Trial, cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "twin").mkdir()
    updated = Updated(trial, tmp_path, backend="in_process")
    run = pipelines.resume(updated.run, state=updated.state, overrides=["cluster.backend=ray", "cluster.shards=2"])
    require_equal(updated, run)


@every_case("an update taken in", one_of_each)
def test_without_the_files_of_the_update_only_the_state_is_audited(trial: Trial, tmp_path: Path) -> None:
    updated = Updated(trial, tmp_path)
    run = pipelines.resume(updated.run, state=updated.state)
    (tmp_path / "gone1.parquet").unlink()
    with pytest.raises(InputError, match=r"gone1\.parquet"):
        audit_run(run.path)


# -- change files ----------------------------------------------------------------------------------------------------
# Change logs applied to a saved state, file by file, leave what one stream of all of them leaves.
#
# The twin is one session that applies the whole change log; where labels are scored, one replay of it.

#: Updates of the run, and of the two files that follow.
BEGIN, NEXT, END = 70, 100, 140


def config_of(trial: Trial, folder: Path) -> dict[str, Any]:
    """The config of a case, whose scores count weights where rows have some."""
    return trial.config(folder, output={"weighted_metrics": trial.case.weighted})


def in_parts(trial: Trial, folder: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Write a change log in three parts, the last as JSON Lines; all of it, and the config of the first."""
    rows = numbered(change_log(END, max(24, trial.case.warmup)))
    config = config_of(trial, folder)
    written(folder / "changes.arrow", rows.slice(0, BEGIN).replace_schema_metadata(rows.schema.metadata))
    pq.write_table(rows.slice(BEGIN, NEXT - BEGIN), folder / "second.parquet")
    lines = [json.dumps(row) for row in rows.slice(NEXT).to_pylist()]
    (folder / "third.jsonl").write_text("\n".join(lines) + "\n")
    return rows, config


def twin(trial: Trial, rows: pa.Table, folder: Path) -> InProcessSession:
    """One session that applies the whole change log, and completes what waits where a file ends."""
    folder.mkdir()
    config = trial.config(folder)
    written(folder / "changes.arrow", rows)
    stream = Changelog.model_validate(config["stream"]).make(trial.source(config))
    session, done = trial.session(stream), 0
    for stop in (BEGIN, NEXT, END):
        while done < stop:
            batch = next(stream.batches(min(7, stop - done)))
            session.apply(batch, skip_refused=True)
            done = batch.stop
        session.finish()
    return session


@every_case("change files")
def test_files_leave_what_one_stream_leaves(trial: Trial, tmp_path: Path) -> None:
    rows, config = in_parts(trial, tmp_path)
    run = pipelines.replay(config, tmp_path / "run")
    first = apply_changes(run.path, tmp_path / "second.parquet", out=tmp_path / "states", on_error="skip")
    both = [tmp_path / "second.parquet", tmp_path / "third.jsonl"]
    second = apply_changes(tmp_path / "states", both, on_error="skip")
    assert [len(first.files), len(first.known), len(second.files), len(second.known)] == [1, 0, 1, 1]
    expected = twin(trial, rows, tmp_path / "twin")
    saved, _ = open_state(tmp_path / "states")
    session = saved.session()
    assert session.digest() == expected.digest() == second.receipt.digest_after
    assert exactly(session.model()) == exactly(expected.model())
    state, own = expected.state()[0], saved.arrays
    assert exactly({name: own[name] for name in ("id", "y", "born")}) == exactly(
        {name: state[name] for name in ("id", "y", "born")}
    )
    assert saved.meta["offset"] == END
    assert (tmp_path / "states" / "latest").read_text() == f"{END}\n"
    live = session.coordinator.store.live
    for done in (first, second):
        receipt = done.receipt
        assert receipt.active == receipt.active_before - len(receipt.ids) + len(receipt.inserted)
        assert (done.counts["deletes"], done.counts["inserts"]) == (len(receipt.ids), len(receipt.inserted))
    assert second.receipt.active == live
    if not trial.learner.traits(trial.options).collects_updates:
        whole = tmp_path / "whole"
        whole.mkdir()
        config = config_of(trial, whole)
        written(whole / "changes.arrow", rows)
        metrics = pipelines.replay(config, whole / "run").metrics
        name = "mse" if trial.reading.regression else "accuracy"
        assert second.scores[name] == metrics[name]


@every_case("change files", one_of_each)
def test_the_new_state_is_audited_and_its_run_takes_it_in(trial: Trial, tmp_path: Path) -> None:
    _, config = in_parts(trial, tmp_path)
    run = pipelines.replay(config, tmp_path / "run")
    both = [tmp_path / "second.parquet", tmp_path / "third.jsonl"]
    done = apply_changes(run.path, both, out=tmp_path / "states", on_error="skip")
    assert audit_state(tmp_path / "states").ok
    taken = pipelines.resume(run.path, state=tmp_path / "states")
    assert taken.digest == done.receipt.digest_after
    report = audit_run(run.path)
    assert (report.conformance, report.failures) == ("holds", [])
    if trial.learner.traits(trial.options).retrained:
        assert verify_run(run.path)["equal"]


# -- grown logs ------------------------------------------------------------------------------------------------------
# A completed run of a change log in a folder goes on with the files that have come since.

BEGIN_LOGS, END_LOGS = 90, 150


class Grown:
    """A change log in a folder that gets a second file."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        rows = numbered(change_log(END_LOGS, max(24, trial.case.warmup)))
        self.folder, self.parts = folder / "changes", (rows.slice(0, BEGIN_LOGS), rows.slice(BEGIN_LOGS))
        self.folder.mkdir()
        config: dict[str, Any] = trial.config(folder)
        sparse = {"n_features": 16} if trial.case.sparse else {}
        source = {**config["source"], "kind": "parquet", "path": str(self.folder), **sparse}
        self.config = {**config, "source": source}

    def write(self, number: int) -> None:
        """Write one file of the log."""
        pq.write_table(self.parts[number], self.folder / f"{number}.parquet")


def whole(trial: Trial, folder: Path) -> pipelines.RunResult:
    """A run of both files."""
    folder.mkdir()
    grown = Grown(trial, folder)
    grown.write(0)
    grown.write(1)
    return pipelines.replay(grown.config, folder / "run")


@every_case("a change log that grows", one_of_each)
def test_a_completed_run_goes_on_with_new_files(trial: Trial, tmp_path: Path) -> None:
    grown = Grown(trial, tmp_path)
    grown.write(0)
    before = pipelines.replay(grown.config, tmp_path / "run")
    assert pipelines.resume(before.path).digest == before.digest  # nothing to do
    grown.write(1)
    with injected(at(2)), pytest.raises(Gone):
        pipelines.resume(before.path)
    run = pipelines.resume(before.path)
    assert run.summary["updates"] == END_LOGS
    report = audit_run(run.path)
    assert (report.conformance, report.failures) == ("holds", [])
    if not trial.learner.traits(trial.options).collects_updates:  # the end of a run completes their last batch
        expected = results(whole(trial, tmp_path / "whole"))
        found = results(run)
        rows = {name for name in found if name.startswith("metrics.")}  # one more, where the run had ended
        assert {name: found[name] for name in found.keys() - rows} == {
            name: expected[name] for name in expected.keys() - rows
        }
        assert run.metrics == whole(trial, tmp_path / "again").metrics
    (grown.folder / "0.parquet").unlink()
    grown.write(1)
    pq.write_table(grown.parts[0], grown.folder / "2.parquet")
    pq.write_table(grown.parts[0], grown.folder / "3.parquet")
    with refused("runs.other_data", ConfigError):
        pipelines.resume(before.path)


# -- subjects --------------------------------------------------------------------------------------------------------
# Deleting subjects is deleting all their rows, bit for bit, for every case; and no byte of their names is left.

#: Whose rows they are: names that appear nowhere else, with everything in them that a name may have.
PEOPLE = ("canary Zoë 'one'", "canary\ttwo\n", "0123 canary", "", "canary " + "long" * 300, "canary \U0001f9ea\u202e")


#: Whose only row is deleted in the stream.
GHOST = "canary of a ghost"


def run_of_people(trial: Trial, folder: Path) -> Path:
    """A finished run over a change log whose rows have persons.

    In the end each of them gets a row that lives, and another one comes and goes with its only row.
    """
    draw = random.Random(trial.name)
    config = trial.config(folder, 90, source={"subject": "person"})
    path = Path(config["source"]["path"])
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    rows = [{**row, "person": draw.choice(PEOPLE)} for row in table.to_pylist()]
    rows += [{**rows[0], "op": "insert", "id": f"of {k}", "person": person} for k, person in enumerate(PEOPLE)]
    ghost = {**rows[0], "id": "of a ghost", "person": GHOST}
    rows += [{**ghost, "op": "insert"}, {**ghost, "op": "delete"}]
    written(path, pa.Table.from_pylist(rows, table.schema.append(pa.field("person", pa.string()))))
    return Path(pipelines.replay(config, folder / "run").path)


def same(one: Path, other: Path) -> None:
    """Require that two states are equal, bit for bit, but for what they were made from."""
    (meta, components), (other_meta, other_components) = load_folder(one), load_folder(other)
    assert {**meta, "lineage": 0} == {**other_meta, "lineage": 0}
    assert components.keys() == other_components.keys()
    for name, values in components.items():
        for key, value in values.items():
            if isinstance(value, np.ndarray):
                assert value.tobytes() == other_components[name][key].tobytes(), (name, key)
            else:
                assert value == other_components[name][key], (name, key)


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@every_case("deletion by subject", one_of_each)
def test_forgetting_subjects_is_forgetting_their_rows(trial: Trial, tmp_path: Path) -> None:
    run = run_of_people(trial, tmp_path)
    gone: list[Any] = [PEOPLE[0], PEOPLE[3], PEOPLE[0], PEOPLE[4]]
    receipt = update(run, delete={"subject": gone}, out=tmp_path / "by_subject")
    assert receipt.subjects == (PEOPLE[0], PEOPLE[3], PEOPLE[4])
    assert set(receipt.deletions["subject"]) == set(gone)
    by_id = update(run, delete=receipt.ids.tolist(), out=tmp_path / "by_id")
    assert (by_id.digest_after, by_id.subjects) == (receipt.digest_after, ())
    assert by_id.deletions["subject"].tolist() == receipt.deletions["subject"].tolist()
    same(tmp_path / "by_subject", tmp_path / "by_id")

    with refused("updates.unknown_subjects", UpdateError, count=2):
        update(tmp_path / "by_id", delete={"person": gone[:2]}, dry_run=True)
    again = update(tmp_path / "by_subject", delete={"person": gone[:2]}, missing="skip", out=tmp_path / "again")
    assert (again.missing, again.subjects, len(again.ids)) == ((PEOPLE[0], PEOPLE[3]), (), 0)
    assert again.digest_after == receipt.digest_after
    same(tmp_path / "by_subject", tmp_path / "again")

    purge(run)
    left = load_folder(tmp_path / "by_subject")[1]["stream"]["subjects"]
    live = StateNames.of(open_state(run)[0]).subjects.known
    for folder, names in ((tmp_path / "by_subject", left), (tmp_path / "again", left), (run, live)):
        content = bytes_of(folder)
        assert not any(name.encode() in content for name in (*PEOPLE, GHOST) if name and name not in names)
        assert GHOST not in names

    if trial.shipped:
        held, other = load_model(tmp_path / "again"), load_model(tmp_path / "again")
        whose = held.forget(subjects=left[:2])
        assert whose.subjects == tuple(left[:2])
        rows = other.forget(ids=whose.ids, digests=True)
        assert whose.digest_after == rows.digest_after == held.digest()
        assert held.forget(subjects=left[:2], missing="skip").digest_after == rows.digest_after
        assert held.live_ids_.tolist() == other.live_ids_.tolist()
        held.save(tmp_path / "held", with_examples=True)
        other.save(tmp_path / "other", with_examples=True)
        same(tmp_path / "held", tmp_path / "other")
        assert not any(name.encode("utf-8") in bytes_of(tmp_path / "held") for name in left[:2] if name)
        assert load_model(tmp_path / "held").forget(subjects=left[2:3]).subjects == tuple(left[2:3])
