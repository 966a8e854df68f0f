"""A run that takes in what ``raydt update`` wrote goes on as if the update had been part of its stream.

The twin is one session that applies one stream: the rows before the update, its deletions and insertions, and the rows
after it. The run is killed while it takes the state in, and once more afterwards.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, verify_run
from pipelines.purging import purge
from pipelines.saved_runs import open_state
from pipelines.updating import update
from raydt.errors import ConfigError, InputError
from raydt.exchange.messages import injected
from raydt.sessions.session import InProcessSession
from raydt.streams.deletion_log import Changelog
from tests.cases import Trial, change_log, every_case, never, one_of_each
from tests.cut_runs import Gone, at, cut
from tests.nets.test_runs import exactly
from tests.refusals import refused
from tests.small_tables import examples, table_of, written

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


@every_case("an update taken in on Ray", never)
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
