"""A run with a model for each key that takes in an update goes on, in each key, as if that were part of its rows."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pipelines
from pipelines.auditing import audit_run, verify_run
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import config_of
from raydt.errors import ConfigError
from raydt.exchange.messages import injected
from raydt.keyed.groups import digest_of
from raydt.learners import traits_of
from raydt.streams.deletion_log import Changelog
from tests.cases import Trial, change_log, every_case
from tests.cut_runs import Gone, at, cut
from tests.keyed_runs import by_day, of_keys, table
from tests.refusals import refused
from tests.small_tables import examples, written

KEYS = ("a", "b", "c")


def numbered(key: str, rows: list[dict[str, Any]], first: int = 0) -> list[dict[str, Any]]:
    """Rows of a key, whose ids are numbers that no other key has."""
    begin = 1000 * KEYS.index(key) + first
    return [{**row, "key": key, "id": str(begin + int(row["id"][1:]))} for row in rows]


def digest_alone(trial: Trial, folder: Path, parts: list[list[dict[str, Any]]]) -> str:
    """Digest of one session that applies parts, one after another.

    The first is up to a checkpoint, where updates that wait for more go on waiting; the others end, as an update and a
    run do.
    """
    folder.mkdir()
    config = trial.config(folder, 1)
    config["source"]["path"] = str(written(folder / "rows.arrow", table([*chain(*parts)], numbers=True)))
    stream = Changelog.model_validate(config["stream"]).make(trial.source(config))
    session, done = trial.session(stream), 0
    for part in parts:
        stop = done + len(part)
        while done < stop:
            batch = next(stream.batches(min(7, stop - done)))
            session.apply(batch, skip_refused=True)
            done = batch.stop
        if part is parts[-1] or (part is parts[1] and trial.learner.traits(trial.options).collects_updates):
            session.finish()
    return str(session.digest())


@every_case("an update by key taken in", often=by_day)
def test_every_key_goes_on_from_an_update(trial: Trial, tmp_path: Path) -> None:
    """The run is killed before, while it takes the state in, and afterwards."""
    warmup = trial.case.warmup
    logs = {key: numbered(key, change_log(warmup + 30, warmup, place)) for place, key in enumerate(KEYS)}
    rows = [row for one in zip(*logs.values(), strict=True) for row in one]
    config = trial.config(tmp_path, 1, cluster={"batch_size": 1}, checkpoint={"every_updates": 16})
    config["source"] |= {"path": str(written(tmp_path / "rows.arrow", table(rows, numbers=True))), "key": "key"}
    run = cut(config, tmp_path / "run", 3 * warmup // 16 + 4)
    before = of_keys(run / "checkpoints")
    position = int(before.meta["offset"])
    gone = {key: before.saved(key).arrays["id"].tolist()[-2:] for key in KEYS[:2]}
    new = [row for key in KEYS[1:] for row in numbered(key, examples(4, 7), 500)]
    fresh = {"op": "insert"}
    written(tmp_path / "new.arrow", table(new, numbers=True))
    deleted = [one for ids in gone.values() for one in ids]
    gone_file = written(tmp_path / "gone.arrow", pa.table({"id": pa.array(deleted, pa.int64())}))
    pipelines.update(
        run / "checkpoints", delete=str(gone_file), insert=str(tmp_path / "new.arrow"), out=tmp_path / "state"
    )
    with injected(at(1, point="checkpoint.before_manifest")), pytest.raises(Gone):
        pipelines.resume(run, state=tmp_path / "state")
    with refused("runs.updated_since", ConfigError):
        pipelines.resume(run)
    with injected(at(1)), pytest.raises(Gone):
        pipelines.resume(run, state=tmp_path / "state")
    done = pipelines.resume(run)
    expected = {}
    for key in KEYS:
        earlier = [row for row in rows[:position] if row["key"] == key]
        later = [row for row in rows[position:] if row["key"] == key]
        own = [{**examples(1)[0], "op": "delete", "id": str(one), "key": key} for one in gone.get(key, [])]
        own += [{**row, **fresh} for row in new if row["key"] == key]
        expected[key] = digest_alone(trial, tmp_path / key, [earlier, own, later])
    after = of_keys(run)
    assert {key: after.saved(key).session().digest() for key in KEYS} == expected
    assert done.digest == digest_of(expected) == after.counted().digest
    totals = (done.summary["deletes"], done.summary["inserts"])
    assert totals == tuple(sum(after.held(key)["recorder"][name] for key in KEYS) for name in ("deletes", "inserts"))
    assert pipelines.resume(run, state=tmp_path / "state").digest == done.digest
    require_sound(run)


def require_sound(run: Path) -> None:
    """Check every key of a run, and one alone, against the rows of the source and of the updates."""
    report = audit_run(run)
    assert report.ok, report.failures
    assert audit_run(run, key=KEYS[1]).ok
    if traits_of(config_of(RunFolder(run)).learner).retrained:
        assert verify_run(run)["equal"]
