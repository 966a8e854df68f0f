"""A run that follows a table, whatever becomes of the table, has its rows, or says why it cannot follow.

A story is drawn from a seed (``tests/live_tables.py``). Whenever the run is level, its live ids and rows are those of
the table as deltalake reads them, the audit holds and has compared as many rows, and a model that is a function of its
live examples equals one trained from nothing. What old versions need may be gone by then: the audit is of what is left.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

from pipelines.auditing import audit_run, verify_run
from pipelines.following import CHECKED, follow
from pipelines.saved_runs import find_state, open_state
from raydt.encoding.columns import number_of
from raydt.errors import InputError
from raydt.examples.updates import history_of_live
from tests.cases import Trial, every_case, place_of
from tests.live_tables import StoryTable

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
