"""Live tables of every learner, and drivers that are gone where a chapter closes."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake")

import json
import math
import os
import random
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from pipelines import replay, resume
from pipelines.auditing import audit_run, verify_run
from pipelines.following import CHECKED, follow
from pipelines.saved_runs import find_state, open_state
from raydt.encoding.columns import number_of
from raydt.errors import InputError
from raydt.examples.updates import history_of_live
from raydt.exchange.messages import injected
from tests.cases import Trial, every_case, place_of
from tests.chapter_runs import folders, in_chapters, rows, summary
from tests.cut_runs import Gone, at
from tests.live_tables import StoryTable
from tests.unit.test_follow import changed, job, same

# -- live tables -----------------------------------------------------------------------------------------------------
#
# A run that follows a table, whatever becomes of the table, has its rows, or says why it cannot follow.
#
# A story is drawn from a seed (``tests/live_tables.py``). Whenever the run is level, its live ids and rows are those
# of the table as deltalake reads them, the audit holds and has compared as many rows, and a model that is a function
# of its live examples equals one trained from nothing. What old versions need may be gone by then: the audit is of
# what is left.

#: Stories of each case, by night.
STORIES = 12
#: Numbers of the stories of which each test run takes one for a learner.
DAILY = (1, 7, 10)


def config_of(trial: Trial, table: StoryTable) -> dict[str, Any]:
    """A config that follows a table from its first version on, and sets bad rows aside."""
    given = {**trial.columns, **({"n_features": 16} if trial.case.sparse else {})}
    return {
        "source": {"kind": "delta", "path": table.path, "version": 0, **given},
        "stream": {"warmup": trial.case.warmup and 10, "on_error": "skip"},
        "learner": trial.section,
        "cluster": {"backend": "in_process", "batch_size": 8},
        "checkpoint": {"every_updates": 40, "every_seconds": None},
        "output": {"report": False},
    }


def rows_of(trial: Trial, run: Path) -> dict[int, list[Any]]:
    """Return the live rows of a run by id, as the table has them: features and label."""
    saved = open_state(find_state(run).folder)[0]
    live, features = history_of_live(saved.arrays, saved.groups, saved.features), saved.features
    found = {}
    for place, id in enumerate(live.id.tolist()):
        values: list[Any] = []
        for name, value in zip(features.names, live.X[place].tolist(), strict=True):
            names = saved.categories.get(name)
            if names is not None:  # -1 where a category is missing
                codes = map(number_of, names) if trial.reading.by_value else range(len(names))
                values.append({-1: None, **dict(zip(codes, names, strict=True))}[value])
            else:
                values.append(None if math.isnan(value) else value)
        if live.sparse is not None:
            values.append(sorted(live.sparse.row(place).tolist()))
        label = live.y[place].item()
        found[id] = [*values, label if not saved.classes else saved.classes[label]]
    return found


def rows_of_table(trial: Trial, table: StoryTable) -> dict[int, list[Any]]:
    """Return the usable rows of a table by id."""
    columns, label = trial.columns["features"], trial.columns["label"]
    found = {}
    for id, row in table.live().items():
        values = [sorted(row[name]) if name == "ones" else row[name] for name in columns]
        if row[label] is not None and (trial.reading.missing or None not in values):
            found[id] = [*values, row[label]]
    return found


def require_level(trial: Trial, table: StoryTable, run: Path, active: int) -> None:
    """Check a run that says that it is level."""
    expected = rows_of_table(trial, table)
    assert rows_of(trial, run) == expected, table.told
    report = audit_run(run)
    assert report.ok, (table.told, report.failures)
    assert report.checked[CHECKED] == len(expected) == active, table.told
    if trial.learner.traits(trial.options).retrained:
        assert verify_run(find_state(run).folder.location)["equal"], table.told


def one_story(trial: Trial, folder: Path, seed: int) -> None:
    """Follow a table while it lives, to what cannot be followed; check the run whenever it is level."""
    table, run = StoryTable(folder / "table", seed), folder / "run"
    draw = random.Random(f"following {seed}")
    for part in range(3):
        for _ in range(draw.randrange(1, 5)):
            table.step()
        if draw.random() < 0.3:
            table.purge()
        if part == 2:
            table.end()
        try:
            result = follow(config_of(trial, table) if part == 0 else run, run, until_idle=0.0)
        except InputError as error:
            table.require_refusal(error)
            return
        assert not table.must, table.told
        table.read()
        if draw.random() < 0.5:
            table.purge()
        require_level(trial, table, run, result.summary["active"])
        table.read()


@every_case("stories of live tables")
def test_a_followed_table_is_the_model_or_the_run_says_why_not(trial: Trial, tmp_path: Path) -> None:
    one_story(trial, tmp_path, 100 + DAILY[place_of(trial) % len(DAILY)])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(STORIES))
@every_case("stories of live tables", often=lambda trial: False)
def test_any_followed_table_is_the_model_or_the_run_says_why_not(trial: Trial, tmp_path: Path, seed: int) -> None:
    one_story(trial, tmp_path, 100 + seed)


# -- chapter kills ---------------------------------------------------------------------------------------------------
#
# A run in chapters is the run without, whatever is gone while a chapter closes: the driver, its process, an actor.

POINTS = (
    "driver.recorded",
    "follow.planned",
    "run.before_compaction",
    "checkpoint.before_manifest",
    "checkpoint.after_manifest",
    "run.before_summary",
    "run.before_report",
    "chapter.closed",
    "chapter.between_files",
)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("point", "n"), [(point, 1 + (point != "run.before_report")) for point in POINTS])
def test_a_driver_that_is_gone_where_a_chapter_closes_does_not_show(tmp_path: Path, point: str, n: int) -> None:
    one_cut(tmp_path, 0, point, n)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("point", POINTS)
def test_drivers_that_are_gone_anywhere_do_not_show(tmp_path: Path, seed: int, point: str) -> None:
    one_cut(tmp_path, seed, point, 1 + seed % 4 * (point != "run.before_report"))


def one_cut(folder: Path, seed: int, point: str, n: int) -> None:
    table, run = changed(folder, seed), folder / "run"
    output = {"report": point == "run.before_report", "metrics_every": 10}
    config = in_chapters(table, follow={"keep": 3}, output=output)
    with injected(at(n, point=point)), pytest.raises(Gone):
        follow(config, run, until_idle=0.0)
    resumed = follow(run, until_idle=0.0)
    same(resumed, replay(job(table), folder / "whole"))
    chapters = folders(run)
    assert len(chapters) == 4
    assert rows(chapters, "metrics") == rows([folder / "whole"], "metrics")[-len(rows(chapters, "metrics")) :]
    for before, after in pairwise(chapters):
        assert summary(after)["chapter"]["digest_before"] == summary(before)["model_digest"]
    assert all((folder / "report.html").exists() == output["report"] for folder in chapters)
    assert sorted(entry.name for entry in (run / "chapters").iterdir()) == [folder.name for folder in chapters]
    assert audit_run(chapters[-1]).conformance == "holds"


def one_kill(folder: Path, seed: int, faults: str) -> None:
    table, run = changed(folder, seed), folder / "killed"
    config = folder / "job.yaml"
    config.write_text(json.dumps(in_chapters(table, follow={"keep": 2})))
    command = [sys.executable, "-m", "pipelines.cli", "follow", str(config), "--out", str(run), "--until-idle", "0"]
    environment = {**os.environ, "RAYDT_FAULTS": faults, "PYTHONPATH": str(Path(__file__).parents[2])}
    gone = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert gone.returncode == -signal.SIGKILL, gone.stderr
    same(resume(run), replay(job(table), folder / "whole"))


@pytest.mark.nightly
def test_a_process_that_is_killed_between_two_chapters_does_not_show(tmp_path: Path) -> None:
    one_kill(tmp_path, 0, "chapter.closed@2#0=kill")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_processes_that_are_killed_anywhere_do_not_show(tmp_path: Path, seed: int) -> None:
    points = [point for point in POINTS if point != "run.before_report"]
    one_kill(tmp_path, seed, f"{points[seed % len(points)]}@{1 + seed % 3}#0=kill")


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["fudyadt", "gbdt"])
def test_actors_go_on_over_chapters_and_a_lost_one_goes_back_to_the_chapter_before(tmp_path: Path, kind: str) -> None:
    table, run, closed = changed(tmp_path), tmp_path / "run", iter(range(1, 100))
    now = [0]

    def kill_in_the_third(point: str) -> None:
        if point == "chapter.closed":
            now[0] = next(closed)
        elif point == "driver.recorded" and now[0] == 2:
            log = (folders(run)[0] / "log.jsonl").read_text().splitlines()
            pids = [json.loads(line).get("pids") for line in log]
            os.kill(next(filter(None, pids))[-1], signal.SIGKILL)
            now[0] = 0

    cluster = {"backend": "ray", "shards": 2, "batch_size": 8, "memory_limit": 0}
    with injected(kill_in_the_third):
        result = follow(in_chapters(table, 20, learner={"kind": kind}, cluster=cluster), run, until_idle=0.0)
    same(result, replay(job(table, learner={"kind": kind}), tmp_path / "whole"))
    assert [summary(folder)["restarts"] for folder in folders(run)] == [0, 0, 1, 0, 0]


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_while_a_chapter_closes_ends_the_run_and_does_not_show(tmp_path: Path) -> None:
    table, run = changed(tmp_path), tmp_path / "run"
    with injected(at(2, act=stop, point="chapter.closed")), pytest.raises(SystemExit):
        follow(in_chapters(table), run, until_idle=0.0)
    assert [summary(folder)["exit_reason"] for folder in folders(run)] == ["end_of_chapter"] * 2
    with injected(at(1, act=stop, point="run.before_compaction")), pytest.raises(SystemExit):
        follow(run, until_idle=0.0)
    same(follow(run, until_idle=0.0), replay(job(table), tmp_path / "whole"))
