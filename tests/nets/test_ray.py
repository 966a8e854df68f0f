"""Every learner on Ray, with and without keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines.auditing import audit_run
from tests.cases import CASES, Trial, every_case, never, one_of_each
from tests.keyed_runs import KEYS_CASES as KEYS
from tests.keyed_runs import config, files
from tests.keyed_runs import rows_of_cases as rows_of
from tests.nets.test_runs import results

# -- ray -------------------------------------------------------------------------------------------------------------
#
# Every learner on real Ray: the outcome is that of the run in this process, also when processes are killed.

pytestmark = pytest.mark.ray


def on_ray(trial: Trial, path: Path, shards: int, *, folder: str = "ray", **where: Any) -> pipelines.RunResult:
    """A run of the case on the Ray that is there."""
    config = trial.config(path, cluster={"backend": "ray", "shards": shards, "patience_seconds": 60, **where})
    return pipelines.replay(config, path / folder)


def of_each_learner(trial: Trial) -> int:
    """Return the number of a case among those of its learner."""
    return [other for other in CASES if other.learner is trial.learner].index(trial)


def compared_often(trial: Trial) -> bool:
    """Return True if every test run compares a case: learners that divide trees and counts.

    That of rows is compared where a process is killed, and one of features is audited in ``test_replay.py``.
    """
    return one_of_each(trial) and trial.learner.kind in ("forest", "best_split")


@every_case("identity on Ray", compared_often)
def test_the_outcome_on_ray_is_that_in_this_process(trial: Trial, cluster, tmp_path: Path) -> None:
    """Processes of one, two or three CPUs, each with as many shards or threads: the first case of a learner has two."""
    expected = results(pipelines.replay(trial.config(tmp_path), tmp_path / "here"))
    processes, cpus = ((2, 1), (1, 3), (3, 1), (1, 2))[of_each_learner(trial) % 4]
    run = on_ray(trial, tmp_path, processes, resources={"shard": {"num_cpus": cpus}})
    assert results(run) == expected
    assert run.summary["rounds"] > 0
    assert [entry["requests"] > 0 for entry in run.summary["work"]] == [True] * processes


@every_case("outgrown on Ray", never)
def test_a_model_that_outgrows_the_coordinator_does_not_show(trial: Trial, cluster, tmp_path: Path) -> None:
    """Its first rows stay with the coordinator; the shards go on, and later incarnations begin where they left."""
    expected = results(pipelines.replay(trial.config(tmp_path), tmp_path / "here"))
    where = {"memory_limit": 20 * 8}
    run = on_ray(trial, tmp_path, 2, **where)
    assert results(run) == expected
    assert all(entry["requests"] > 0 for entry in run.summary["work"])
    whole = on_ray(trial, tmp_path, 2, memory_limit=None, folder="whole")
    assert results(whole) == expected
    divides_all = trial.learner.traits(trial.options).divided == "always"
    assert (whole.summary["rounds"] > 0) == divides_all


def killed(trial: Trial, folder: Path, monkeypatch: pytest.MonkeyPatch, faults: str) -> list[str]:
    """Run with faults, to the same outcome; who was lost."""
    expected = results(pipelines.replay(trial.config(folder), folder / "here"))
    monkeypatch.setenv("RAYDT_FAULTS", faults)
    run = on_ray(trial, folder, 2)
    assert results(run) == expected
    assert run.summary["recoveries"][0]["from_update"] > 0
    return [recovery["what"].split(" (")[0] for recovery in run.summary["recoveries"]]


def killed_often(trial: Trial) -> bool:
    """Return True if every test run kills a process of a case: of a learner whose shards own rows.

    With models by key (``test_keyed_ray.py``) it is one that divides features; the simulator kills machines of all.
    """
    return one_of_each(trial) and trial.learner.kind == "gbdt"


@every_case("a kill on Ray", killed_often)
@pytest.mark.usefixtures("in_step")
def test_a_killed_shard_does_not_show(trial: Trial, cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its part of the second checkpoint is fetched."""
    assert killed(trial, tmp_path, monkeypatch, "shard.before_parts/1@2#1=kill") == ["shard 1"]


@every_case("a kill on Ray", never)
@pytest.mark.usefixtures("in_step")
def test_killed_processes_do_not_show(trial: Trial, cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator before a batch; then a shard between doing and answering."""
    faults = "coordinator.before_batch@6#1=kill,shard.after_answer/1@3#2=kill"
    assert killed(trial, tmp_path, monkeypatch, faults) == ["the coordinator", "shard 1"]


# -- keyed ray -------------------------------------------------------------------------------------------------------
#
# Models by key on real Ray: the outcome is that in this process, whoever is killed, with any number of actors.

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
