"""Whatever ends or disturbs a run with models by key, its outcome is that of a run that nothing has disturbed."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pipelines
from pipelines.auditing import audit_run
from raydt.errors import ProcessLostError
from raydt.exchange.faults import injected
from tests.cases import Trial, every_case, never, one_of_each
from tests.cut_runs import Gone, Handler, at
from tests.keyed_cases import KEYS, config, files, rows_of
from tests.small_tables import written

TABLES = ("metrics", "predictions", "quarantine", "alarms", "keys")
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
    """A config, and its outcome."""
    given = small(trial, folder, in_turn=in_turn)
    return given, outcome(pipelines.replay(given, folder / "whole"))


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


@every_case("a driver's death by key", one_of_each)
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


def few(trial: Trial) -> bool:
    return one_of_each(trial) and trial.learner.kind in ("fudyadt", "gbdt")


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


def first(kind: str) -> Trial:
    from tests.cases import first_cases

    return next(trial for trial in first_cases() if trial.learner.kind == kind)
