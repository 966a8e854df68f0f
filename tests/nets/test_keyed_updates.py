"""Models by key: updates, purges, and losses."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, audit_state, verify_receipts, verify_run
from pipelines.purging import purge
from pipelines.receipts import ReceiptFile
from pipelines.run_folder import RunFolder
from pipelines.running.ending import read_summary
from pipelines.saved_runs import config_of
from pipelines.updating import apply_changes
from raydt.errors import ConfigError, ProcessLostError
from raydt.exchange.messages import injected
from raydt.folders.arrays import read_manifest
from raydt.folders.checkpoint import CheckpointStore
from raydt.folders.folder import Folder
from raydt.keyed.groups import digest_of
from raydt.keyed.packing import open_keys
from raydt.learners import traits_of
from raydt.sessions.receipt import Receipt
from raydt.streams.deletion_log import Changelog
from tests.canaries import TEXT, WIDTH, canary, hits
from tests.cases import CASES, Trial, change_log, every_case, never, one_of_each, open_state
from tests.keyed_runs import KEYS, by_day, config, files, of_keys, replayed, rows_of, table, what_is_held
from tests.keyed_runs import KEYS_CASES as KEYS_LOSSES
from tests.keyed_runs import rows_of_cases as rows_of_losses
from tests.nets.test_purge import Killed, ops
from tests.refusals import refused
from tests.small_tables import derived, examples, spelled, table_of, written
from tests.storage_faults import Gone, Handler, at, cut

# -- keyed updates ---------------------------------------------------------------------------------------------------
# An update of models by key makes of each key what the same update makes of a run of its rows alone.


def inserted(trial: Trial, key: str, seed: int, n: int = 5) -> list[dict[str, Any]]:
    return [{**row, "id": f"{key}{row['id']} {seed}", "key": key} for row in examples(n, seed)]


def told_by(receipt: Receipt) -> list[Any]:
    """What a receipt says, but for the time that it took."""
    work = {name: count for name, count in receipt.work.items() if name != "seconds"}
    rows = {name: column.tolist() for name, column in receipt.deletions.items()}
    return [receipt.digest_before, receipt.digest_after, work, repr(rows), receipt.inserted.tolist()]


def live_ids(place: Path, key: str) -> list[str]:
    saved = of_keys(place).saved(key)
    names = dict(zip(saved.components["stream"]["id_codes"].tolist(), saved.components["stream"]["ids"], strict=True))
    return [names[code] for code in saved.arrays["id"].tolist()]


@every_case("updates by key", often=by_day)
def test_a_key_is_updated_as_a_run_of_its_own(trial: Trial, tmp_path: Path) -> None:
    """By lists without the key, then by a change log; a key that is not named stays, and one that is new begins."""
    rows = rows_of(trial)
    run = replayed(trial, tmp_path / "all", rows, by_key=True)
    first, second, idle = KEYS
    new = trial.case.warmup + 6
    gone = live_ids(run, first)[-2:]
    more = [*inserted(trial, first, 5), *inserted(trial, "late", 7, new), *inserted(trial, second, 8)]
    changes = [{**row, "op": "insert"} for row in (*inserted(trial, second, 9), *inserted(trial, "later", 11, new))]
    changes += [{**changes[0], "op": "delete"}, {**changes[1], "op": "update", "id": changes[2]["id"]}]
    deletions = tmp_path / "more.arrow"
    written(deletions, table(more))
    written(tmp_path / "changes.arrow", table(changes))
    receipt = pipelines.update(run, delete=gone, insert=str(deletions), out=tmp_path / "states/lists")
    told = apply_changes(tmp_path / "states/lists", tmp_path / "changes.arrow", out=tmp_path / "changed")
    after = of_keys(Path(told.state))
    digests = {}
    for place, key in enumerate([first, second, "late", "later", idle]):
        alone = tmp_path / str(place)
        mine, listed, changed = ([row for row in part if row["key"] == key] for part in (rows, more, changes))
        begun = mine or [{**row, "op": "insert"} for row in listed] or changed
        state = replayed(trial, alone, begun, by_key=False, output={"predictions": False})
        assert receipt.by_key.keys() == {first, second, "late"}
        if key in receipt.by_key and mine:
            part = written(alone / "more.arrow", table(listed))
            own = pipelines.update(state, delete=gone if key == first else None, insert=str(part), out=alone / "lists")
            found = receipt.by_key[key]
            assert told_by(own) == told_by(found)
            state = alone / "lists"
        if changed and begun is not changed:
            part = written(alone / "changes.arrow", table(changed))
            state = Path(apply_changes(state, part, out=alone / "changed").state)
        expected, found = what_is_held(open_state(state)[0]), what_is_held(after.saved(key))
        if mine and key != idle:
            assert found == expected
        assert found["digest"] == expected["digest"]
        digests[key] = expected["digest"]
    assert told.receipt is not None
    assert told.receipt.digest_before == receipt.digest_after
    assert told.receipt.digest_after == digest_of(digests) == after.counted().digest
    before = of_keys(tmp_path / "states/lists")
    same = [group for group in before.groups if repr(before.groups[group]) == repr(after.groups[group])]
    assert len(same) >= len(before.groups) - 2


# -- keyed continued -------------------------------------------------------------------------------------------------
# A run with a model for each key that takes in an update goes on, in each key, as if that were part of its rows.

KEYS_CONTINUED = ("a", "b", "c")


def numbered(key: str, rows: list[dict[str, Any]], first: int = 0) -> list[dict[str, Any]]:
    """Rows of a key, whose ids are numbers that no other key has."""
    begin = 1000 * KEYS_CONTINUED.index(key) + first
    return [{**row, "key": key, "id": str(begin + int(row["id"][1:]))} for row in rows]


def digest_alone(trial: Trial, folder: Path, parts: list[list[dict[str, Any]]]) -> str:
    """Digest of one session that applies parts, one after another.

    The first is up to a checkpoint, where updates that wait for more go on waiting; the others end, as an update and a
    run do. An update ends the warm-up.
    """
    folder.mkdir()
    config = trial.config(folder, 1)
    if parts[1]:
        config["stream"]["warmup"] = min(trial.case.warmup, len(parts[0]))
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
    """The run is killed before, while it takes the state in, and afterwards; some are updated within a warm-up."""
    warmup = trial.case.warmup
    batches = 2 + (3 * warmup // 16 + 2) * (len(trial.name) % 2)  # a checkpoint has 16 rows, of which 5 are of a key
    logs = {key: numbered(key, change_log(warmup + 30, warmup, place)) for place, key in enumerate(KEYS_CONTINUED)}
    rows = [row for one in zip(*logs.values(), strict=True) for row in one]
    config = trial.config(tmp_path, 1, cluster={"batch_size": 1}, checkpoint={"every_updates": 16})
    config["source"] |= {"path": str(written(tmp_path / "rows.arrow", table(rows, numbers=True))), "key": "key"}
    run = cut(config, tmp_path / "run", batches)
    before = of_keys(run / "checkpoints")
    position = int(before.meta["offset"])
    gone = {key: before.saved(key).arrays["id"].tolist()[-2:] for key in KEYS_CONTINUED[:2]}
    new = [row for key in KEYS_CONTINUED[1:] for row in numbered(key, examples(4, 7), 500)]
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
    for key in KEYS_CONTINUED:
        earlier = [row for row in rows[:position] if row["key"] == key]
        later = [row for row in rows[position:] if row["key"] == key]
        own = [{**examples(1)[0], "op": "delete", "id": str(one), "key": key} for one in gone.get(key, [])]
        own += [{**row, **fresh} for row in new if row["key"] == key]
        expected[key] = digest_alone(trial, tmp_path / key, [earlier, own, later])
    after = of_keys(run)
    assert {key: after.saved(key).session().digest() for key in KEYS_CONTINUED} == expected
    assert done.digest == digest_of(expected) == after.counted().digest
    totals = (done.summary["deletes"], done.summary["inserts"])
    assert totals == tuple(
        sum(after.held(key)["recorder"][name] for key in KEYS_CONTINUED) for name in ("deletes", "inserts")
    )
    assert pipelines.resume(run, state=tmp_path / "state").digest == done.digest
    require_sound(run)


def require_sound(run: Path) -> None:
    """Check every key of a run, and one alone, against the rows of the source and of the updates."""
    report = audit_run(run)
    assert report.ok, report.failures
    assert audit_run(run, key=KEYS_CONTINUED[1]).ok
    if traits_of(config_of(RunFolder(run)).learner).retrained:
        assert verify_run(run)["equal"]


# -- keyed purge -----------------------------------------------------------------------------------------------------
# After a purge of models by key no byte of a folder holds a deleted example, or the name of a key without examples.
#
# The rows of two keys have values that occur nowhere else; one of these keys loses all its rows, and its name is such
# a value, too.

#: A name that nobody may keep.
GONE = f"key {TEXT}"


def rows_of_purge(trial: Trial) -> list[dict[str, Any]]:
    """A change log of three keys: one keeps all its rows, one loses a row, one loses all."""
    warmup, n = trial.case.warmup, trial.case.warmup + 12
    rows = []
    for place, key in enumerate(("kept", "some", GONE)):
        part = [{**derived(one), **one, "id": f"{place} {one['id']}"} for one in examples(n, place)]
        if key != "kept":
            part[warmup + 3] |= {**canary("again " if key == GONE else ""), "subject": TEXT}
        if key == GONE:
            part = [{**one, "id": f"{one['id']} {TEXT}", "d": f"category {TEXT}"} for one in part]
        logged = [{**one, "op": "insert"} for one in part]
        logged += [{**part[warmup + 3], "op": "insert"}]  # refused, and quoted
        if key == "some":
            logged += [{**part[warmup + 3], "op": "delete"}]
        elif key == GONE:
            logged += [{**one, "op": "delete"} for one in part]
        rows += [{**one, "key": key} for one in logged]
    return rows


@every_case("a purge by key", often=by_day)
def test_nothing_of_a_deleted_example_remains_under_any_key(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replayed(trial, tmp_path / "all", rows_of_purge(trial), by_key=True, width=WIDTH)
    found = {name.split("/")[0] for name in hits(run)}
    assert found >= {"checkpoints", "predictions", "quarantine", "metrics", "keys", "model"}
    digest = read_summary(RunFolder(run))["model_digest"]
    draw = random.Random(trial.name)
    for _ in range(2):
        with monkeypatch.context() as patched:
            ops(patched, draw.randrange(12))
            with pytest.raises(Killed):
                purge(run)
    plan, done = purge(run, dry_run=True), purge(run)
    assert done == {**plan, "dry_run": False}
    assert (hits(run), done["digest"], done["left_alone"]) == ({}, digest, [])
    keys = of_keys(run)
    assert sorted(keys) == ["kept", "some"]
    assert keys.counted().digest == digest
    again = purge(run)
    assert (again["digest"], again["replaced"], again["rewritten"]) == (digest, [], [])
    assert audit_state(run).ok
    assert pipelines.resume(run).summary["model_digest"] == digest


@every_case("a purge of a state by key", often=by_day)
def test_nothing_remains_in_a_state_that_an_update_has_written(trial: Trial, tmp_path: Path) -> None:
    """Also by its subject; the receipts prove it."""
    rows = [row for row in rows_of_purge(trial) if row["op"] == "insert"]
    run = replayed(trial, tmp_path / "all", rows, by_key=True, width=WIDTH)
    (tmp_path / "key").write_text("5a" * 32)
    chain = ReceiptFile(str(tmp_path / "receipts"), str(tmp_path / "key"))
    lost = sorted({row["id"] for row in rows if row["key"] == GONE})
    nobody = pipelines.update(run, delete=["nobody"], missing="skip", dry_run=True)
    assert (nobody.digest_before, nobody.missing) == (nobody.digest_after, ("nobody",))
    receipt = pipelines.update(run, delete=lost, out=tmp_path / "first", receipts=chain)
    assert receipt.by_key.keys() == {GONE}
    assert receipt.by_key[GONE].active == 0
    by_subject = pipelines.update(
        tmp_path / "first", delete={"subject": [TEXT]}, out=tmp_path / "second", receipts=chain
    )
    assert (by_subject.by_key.keys(), by_subject.subjects) == ({"some"}, (TEXT,))
    purge(tmp_path / "second", receipts=chain)
    assert hits(tmp_path / "second") == {}
    assert sorted(of_keys(tmp_path / "second")) == ["kept", "some"]
    checked = verify_receipts(tmp_path / "receipts", tmp_path / "second", key=chain.key, ids=[lost[0]], subjects=[TEXT])
    assert checked["ok"], checked
    assert checked["live"] == 0
    before = verify_receipts(tmp_path / "receipts", tmp_path / "first", key=chain.key, subjects=[TEXT])
    assert not before["ok"]


@every_case("a purge by key of a deletion log", often=never)
def test_nothing_remains_of_what_a_deletion_log_names(trial: Trial, tmp_path: Path) -> None:
    """Also in what the stream knows of the owners of ids."""
    warmup = trial.case.warmup
    parts = []
    for place, key in enumerate(("kept", GONE)):
        part = [{**derived(one), **one, "id": f"{place} {one['id']}"} for one in examples(warmup + 12, place)]
        part = [{**one, "id": f"{one['id']} {TEXT}"} for one in part] if place else part
        part[warmup + 5] |= {} if place else canary()
        parts += [{**one, "key": key} for one in part]
    gone = [one["id"] for one in parts if TEXT in one["id"]]
    pa.csv.write_csv(pa.table({"id": gone}), tmp_path / "gone.csv")
    log = {"model": "deletion_log", "deletion_log": str(tmp_path / "gone.csv"), "on_error": "skip", "warmup": warmup}
    config = {**trial.config(tmp_path, 1), "stream": log}
    config["source"] = {"kind": "arrow", "path": str(written(tmp_path / "rows.arrow", table(parts, WIDTH)))}
    config["source"] |= {"key": "key", **trial.columns}
    run = Path(pipelines.replay(config, tmp_path / "run").path)
    digest = read_summary(RunFolder(run))["model_digest"]
    assert any("stream" in name for name in hits(run))
    assert (purge(run)["digest"], hits(run), list(of_keys(run))) == (digest, {}, ["kept"])
    assert pipelines.resume(run).summary["model_digest"] == digest


@every_case("a key comes back after a purge", often=one_of_each, turn=6)
def test_a_key_that_comes_back_begins_anew_and_its_audit_holds(trial: Trial, tmp_path: Path) -> None:
    """A purge forgets the numbers and codes of a key, so that its updates begin at 0 again; here twice."""
    config = {**trial.config(tmp_path, 1)}
    sparse = {"n_features": WIDTH} if trial.case.sparse else {}
    (tmp_path / "changes").mkdir()
    config["source"] |= {"kind": "parquet", "path": str(tmp_path / "changes"), "key": "key", **sparse}
    own = [row for row in rows_of_purge(trial) if row["key"] == GONE]
    pq.write_table(table(rows_of_purge(trial), WIDTH), tmp_path / "changes" / "0.parquet")
    run = Path(pipelines.replay(config, tmp_path / "run").path)
    for time in (1, 2):
        purge(run)
        assert GONE not in list(of_keys(run))
        back = [{**one, "d": "pqr"[(place + time) % 3]} for place, one in enumerate(own)]
        back = back if time == 1 else back[: trial.case.warmup + 7]  # first it leaves again
        pq.write_table(table(back, WIDTH), tmp_path / "changes" / f"{time}.parquet")
        digest = pipelines.resume(run).digest
        assert audit_run(run).failures == []
        assert audit_run(run).ok
    assert audit_run(run, GONE).ok
    (alone := tmp_path / "alone").mkdir()
    pq.write_table(table(back, WIDTH), alone / "0.parquet")
    fresh = pipelines.replay({**config, "source": {**config["source"], "path": str(alone)}}, tmp_path / "fresh")
    (saved, again) = (of_keys(place).saved(GONE).session().digest() for place in (run, Path(fresh.path)))
    assert (saved == again, digest == fresh.digest) == (True, False)


# -- keyed losses ----------------------------------------------------------------------------------------------------
# Whatever ends or disturbs a run with models by key, its outcome is that of a run that nothing has disturbed.

TABLES = ("metrics", "predictions", "quarantine", "alarms", "keys")
#: Of undisturbed runs, by case and whether keys come in turn.
OUTCOMES: dict[tuple[str, bool], dict[str, Any]] = {}
COUNTS = (
    *("updates", "inserts", "deletes", "predictions", "refused", "skipped", "active", "metrics", "baselines"),
    *("nodes", "leaves", "depth", "rebuilds"),
)


def outcome(run: pipelines.RunResult) -> dict[str, Any]:
    """What must not depend on losses: tables by key as text, since NaN != NaN."""
    tables = {f"{name} {key}": repr(rows_of_losses(run.path, name, key)) for name in TABLES for key in KEYS_LOSSES}
    counts = {name: repr(run.summary[name]) for name in COUNTS}
    return {"digest": run.digest, **counts, **tables}


def small(trial: Trial, folder: Path, *, in_turn: bool = False, **output: Any) -> dict[str, Any]:
    """A run of several keys that takes some checkpoints; ``in_turn``, one key after the other has its rows."""
    whole, _ = files(trial, folder)
    made = config(trial, whole, key="key")
    if in_turn:
        turns = pa.ipc.open_file(str(whole)).read_all().sort_by("key")
        made["source"]["path"] = str(written(folder / "turns.arrow", turns))
    return {**made, "output": {**made["output"], **output}}


def undisturbed(trial: Trial, folder: Path, *, in_turn: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """A config, and its outcome, which several tests compare with."""
    given, name = small(trial, folder, in_turn=in_turn), (trial.name, in_turn)
    if name not in OUTCOMES:
        OUTCOMES[name] = outcome(pipelines.replay(given, folder / "whole"))
    return given, OUTCOMES[name]


POINTS = [
    ("driver.recorded", 3),
    ("checkpoint.before_manifest", 2),
    ("checkpoint.after_manifest", 2),
    ("run.before_compaction", 1),
    ("run.before_summary", 1),
]


def dead_from(point: str, n: int) -> Handler:
    """Return a handler that ends every thread of the driver from the n-th pass through a point on."""
    passed = iter(range(1, 10**6))
    dead = False

    def handler(name: str) -> None:
        nonlocal dead
        dead |= name == point and next(passed) == n
        if dead:
            raise Gone

    return handler


def broken_off_and_resumed(given: dict[str, Any], run: Path, point: str, n: int) -> pipelines.RunResult:
    with injected(dead_from(point, n)), pytest.raises(Gone):
        pipelines.replay(given, run)
    return pipelines.resume(run)


def few(trial: Trial) -> bool:
    return one_of_each(trial) and trial.learner.kind in ("fudyadt", "gbdt")


@every_case("a driver's death by key", few)
def test_a_driver_that_died_does_not_show(trial: Trial, tmp_path: Path) -> None:
    given, expected = undisturbed(trial, tmp_path)
    point, n = random.Random(trial.name).choice(POINTS)
    assert outcome(broken_off_and_resumed(given, tmp_path / "run", point, n)) == expected
    assert audit_run(tmp_path / "run").ok


@every_case("a driver's death by key", never)
def test_a_driver_that_died_anywhere_does_not_show(trial: Trial, tmp_path: Path) -> None:
    given, expected = undisturbed(trial, tmp_path)
    for place, (point, n) in enumerate(POINTS):
        assert outcome(broken_off_and_resumed(given, tmp_path / f"{place}", point, n)) == expected, point


def test_a_death_before_the_report_leaves_a_whole_run(tmp_path: Path) -> None:
    trial = first("fudyadt")
    given = small(trial, tmp_path, report=True)
    with injected(at(1, point="run.before_report")), pytest.raises(Gone):
        pipelines.replay(given, tmp_path / "run")
    assert pipelines.resume(tmp_path / "run").digest == pipelines.replay(given, tmp_path / "whole").digest


@every_case("a checkpoint by key that fails", few)
def test_a_checkpoint_that_failed_is_made_up_for(trial: Trial, tmp_path: Path) -> None:
    """Groups that have not changed since are in the next one all the same."""
    given, expected = undisturbed(trial, tmp_path, in_turn=True)
    passed: Counter[str] = Counter()

    def act(point: str) -> None:
        passed[point] += 1
        if (point, passed[point]) == ("run.before_compaction", 1):
            raise ProcessLostError("a process was lost")
        if (point, passed[point]) == ("checkpoint.before_manifest", 2):
            raise OSError("the disk is full")

    with injected(act):
        run = pipelines.replay(given, tmp_path / "run")
    assert (run.summary["checkpoints"]["failed"], run.summary["restarts"]) == (1, 1)
    assert outcome(run) == expected
    assert audit_run(run.path).ok


@every_case("a file of a group that is gone", few)
@pytest.mark.usefixtures("steady_checkpoints")
def test_a_group_whose_file_is_gone_is_written_again(trial: Trial, tmp_path: Path) -> None:
    given, expected = undisturbed(trial, tmp_path, in_turn=True)
    rows = tmp_path / "run" / "checkpoints" / "rows"

    def remove() -> None:
        for file in rows.iterdir():
            file.unlink()

    with injected(at(2, remove, "checkpoint.after_manifest")):
        run = pipelines.replay(given, tmp_path / "run")
    assert run.summary["checkpoints"]["failed"] <= 1
    assert outcome(run) == expected
    assert audit_run(run.path).ok


@pytest.mark.turns(1)
@every_case("an interruption by key", few)
@pytest.mark.parametrize("n", [2, 5])
def test_an_interruption_does_not_show(trial: Trial, n: int, tmp_path: Path) -> None:
    """A run that Ctrl-C has stopped ends in an orderly way, and goes on where it was; so does one that broke off."""
    given, expected = undisturbed(trial, tmp_path)

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with injected(at(n, stop)):
        stopped = pipelines.replay(given, tmp_path / "run")
    assert stopped.summary["status"] == "interrupted"
    assert stopped.summary["updates"] < int(expected["updates"])
    assert audit_run(stopped.path).ok
    assert outcome(pipelines.resume(stopped.path)) == expected

    def strike() -> None:
        raise KeyboardInterrupt

    with injected(at(n, strike)), pytest.raises(KeyboardInterrupt):
        pipelines.replay(given, tmp_path / "broken off")
    assert outcome(pipelines.resume(tmp_path / "broken off")) == expected


@every_case("a change log by key that grows", few)
def test_a_change_log_that_grows_is_one_log(trial: Trial, tmp_path: Path) -> None:
    """Its second file brings rows of keys that were there, and a key that was not; interrupted on the way."""
    whole, _ = files(trial, tmp_path)
    rows = pa.ipc.open_file(str(whole)).read_all()
    late = table_of(change_log(50, trial.case.warmup, 9))
    late = late.append_column("key", pa.array(["late"] * len(late)))
    rows = pa.concat_tables([rows[:150], late.cast(rows.schema), rows[150:]])
    outcomes = []
    for name, parts in (("grown", (rows[:90], rows[90:])), ("whole", (rows,))):
        folder = tmp_path / name
        folder.mkdir()
        given = config(trial, folder, key="key", **({"n_features": 16} if trial.case.sparse else {}))
        given["source"]["kind"] = "parquet"
        run: Any = None
        for number, part in enumerate(parts):
            pq.write_table(part, folder / f"{number}.parquet")
            if run is None:
                run = pipelines.replay(given, tmp_path / f"run {name}")
                continue
            with injected(at(2)), pytest.raises(Gone):
                pipelines.resume(run.path)
            run = pipelines.resume(run.path)
        assert audit_run(run.path).ok
        outcomes.append(run)
    grown, at_once = outcomes
    assert grown.summary["keys"] == at_once.summary["keys"] == 4
    if not trial.learner.traits(trial.options).collects_updates:  # the end of a run completes their last batch
        first, second = outcome(grown), outcome(at_once)
        for found in (first, second):  # one more row of the metrics, where the run had ended
            for key in KEYS_LOSSES:
                del found[f"metrics {key}"]
        assert first == second


@pytest.mark.usefixtures("steady_checkpoints")
def test_no_checkpoint_holds_a_deleted_row_for_longer_than_it_may(tmp_path: Path) -> None:
    """A key's rows are deleted early, and it has no more: with the limit on, no file has its rows in the end."""
    trial = next(one for one in CASES if one.learner.kind == "fudyadt")
    log = [f"+{i}" for i in range(20)] + [f"-{i}" for i in range(20)]
    gone = table_of(spelled(" ".join(log), 1))
    rest = table_of(change_log(160, 0, 2))
    keys = pa.array(["gone"] * len(gone) + ["rest"] * len(rest))
    whole = written(tmp_path / "all.arrow", pa.concat_tables([gone, rest]).append_column("key", keys))
    given = config(trial, whole, key="key")
    for keep, limit in ((3, None), (3, "1s"), (1, None)):
        given["checkpoint"] |= {"every_updates": 20, "every_seconds": 1 if limit else None}
        given["checkpoint"] |= {"keep": keep, "max_age": limit}
        run = tmp_path / f"{keep} {limit}"
        pipelines.replay(given, run)
        held: Counter[int] = Counter()
        for number in CheckpointStore(Folder(run / "checkpoints"), 9).numbers():
            saved = open_keys(run / "checkpoints" / str(number))
            assert saved is not None
            held[number] = len(saved.saved("gone").arrays["id"])
        assert len(held) == (1 if limit else keep)
        assert held[max(held)] == 0
        names = {file.name for number in held for file in manifest_files(run, number)}
        assert {file.name for file in (run / "checkpoints" / "rows").iterdir()} == names


def manifest_files(run: Path, number: int) -> list[Path]:
    files = read_manifest(Folder(run / "checkpoints" / str(number))).files
    return [Path(file.name) for file in files if file.name.startswith("../rows")]


def first(kind: str) -> Trial:
    return next(one for one in CASES if one.learner.kind == kind)
