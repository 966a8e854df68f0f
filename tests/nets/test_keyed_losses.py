"""Whatever ends or disturbs a run with models by key, its outcome is that of a run that nothing has disturbed."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run
from raydt.errors import ProcessLostError
from raydt.exchange.messages import injected
from raydt.folders.arrays import read_manifest
from raydt.folders.checkpoint import CheckpointStore
from raydt.folders.folder import Folder
from raydt.keyed.packing import open_keys
from tests.cases import CASES, Trial, change_log, every_case, never, one_of_each
from tests.cut_runs import Gone, Handler, at
from tests.keyed_cases import KEYS, config, files, rows_of
from tests.small_tables import spelled, table_of, written

TABLES = ("metrics", "predictions", "quarantine", "alarms", "keys")
#: Of undisturbed runs, by case and whether keys come in turn.
OUTCOMES: dict[tuple[str, bool], dict[str, Any]] = {}
COUNTS = (
    *("updates", "inserts", "deletes", "predictions", "refused", "skipped", "active", "metrics", "baselines"),
    *("nodes", "leaves", "depth", "rebuilds"),
)


def outcome(run: pipelines.RunResult) -> dict[str, Any]:
    """What must not depend on losses: tables by key as text, since NaN != NaN."""
    tables = {f"{name} {key}": repr(rows_of(run.path, name, key)) for name in TABLES for key in KEYS}
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
            for key in KEYS:
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
