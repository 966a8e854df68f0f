"""Models by key on real Ray: the outcome is that in this process, whoever is killed, with any number of actors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines.auditing import audit_run
from tests.cases import Trial, every_case, never, one_of_each
from tests.keyed_cases import KEYS, config, files, rows_of

pytestmark = pytest.mark.ray

TABLES = ("metrics", "predictions", "quarantine", "alarms")


def outcome(run: pipelines.RunResult) -> dict[str, Any]:
    """What two runs have in common, tables by key: their rows come in any order of the keys."""
    counts = ("updates", "inserts", "deletes", "predictions", "refused", "skipped", "active", "metrics", "baselines")
    tables = {f"{name} {key}": repr(rows_of(run.path, name, key)) for name in TABLES for key in KEYS}
    return {"digest": run.digest, **{name: run.summary[name] for name in counts}, **tables}


def settings(trial: Trial, path: Path, **cluster: Any) -> dict[str, Any]:
    made = config(trial, path, key="key")
    return {**made, "cluster": {**made["cluster"], **cluster}}


def often(trial: Trial) -> bool:
    return one_of_each(trial) and trial.learner.kind == "fudyadt"


@every_case("keys on Ray", often)
@pytest.mark.usefixtures("in_step")
def test_a_killed_actor_does_not_show(
    trial: Trial, cluster: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it answers, and while it writes its part of a checkpoint; resumed then with another number of actors."""
    whole, _ = files(trial, tmp_path)
    expected = outcome(pipelines.replay(settings(trial, whole), tmp_path / "here"))
    monkeypatch.setenv("RAYDT_FAULTS", "shard.after_answer/1@5#1=kill,shard.before_parts/0@2#2=kill")
    on_ray = settings(trial, whole, backend="ray", shards=2, patience_seconds=60)
    run = pipelines.replay(on_ray, tmp_path / "ray")
    assert outcome(run) == expected
    assert [entry["what"].split(" (")[0] for entry in run.summary["recoveries"]][:1] == ["shard 1"]
    assert audit_run(run.path).ok


@every_case("keys on Ray", never)
def test_any_number_of_actors_has_the_same_outcome(trial: Trial, cluster: object, tmp_path: Path) -> None:
    whole, _ = files(trial, tmp_path)
    expected = outcome(pipelines.replay(settings(trial, whole), tmp_path / "here"))
    for shards in (1, 3):
        on_ray = settings(trial, whole, backend="ray", shards=shards)
        assert outcome(pipelines.replay(on_ray, tmp_path / f"{shards}")) == expected
