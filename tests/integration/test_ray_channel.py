"""Shards of a GBDT on Ray meet over their channel: who dies in the middle of a pass does not show."""

import re

import pytest

import pipelines
from raydt.errors import RaydtError
from raydt.learners.base import WorkPlan
from tests.integration.test_ray_kills import results
from tests.refusals import refused

pytestmark = pytest.mark.ray

CONFIG = {
    "source": {"kind": "synthetic", "generator": "hyperplane", "n": 900, "n_features": 6, "drift": 4, "seed": 11},
    "stream": {"model": "sliding_window", "window": 500, "warmup": 400},
    "learner": {"kind": "gbdt", "max_iter": 3, "max_bins": 32, "update_every": 200, "retrain": "never"},
    "cluster": {"backend": "in_process", "shards": 2, "batch_size": 100},
    "checkpoint": {"every_updates": 400, "every_seconds": None},
    "output": {"report": False, "predictions": True, "metrics_every": 400},
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return results(pipelines.replay(CONFIG, tmp_path_factory.mktemp("undisturbed") / "run"))


@pytest.fixture
def replay(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(WorkPlan, "within", lambda *_, **__: WorkPlan(local_work_limit=0))

    def replayed(faults="", **settings):
        monkeypatch.setenv("RAYDT_FAULTS", faults)
        overrides = ["cluster.backend=ray", *(f"cluster.{name}={value}" for name, value in settings.items())]
        return pipelines.replay(CONFIG, tmp_path / "run", overrides=overrides)

    return replayed


def test_what_a_shard_raises_in_the_middle_of_a_pass_arrives(replay):
    with refused("exchange.fault", RaydtError, point="shard.between_meetings"):
        replay("shard.between_meetings/1@5#1=raise")


@pytest.mark.parametrize(("processes", "cpus"), [(2, 1), (1, 2), (1, 3), (2, 2)])
@pytest.mark.nightly
def test_processes_of_several_shards_meet_as_shards_do(processes, cpus, replay, undisturbed):
    run = replay(shards=processes, **{"resources.shard.num_cpus": cpus, "resources.coordinator.num_cpus": 0})
    assert results(run) == undisturbed
    assert run.summary["rounds"] > 0


@pytest.mark.parametrize(
    ("act", "settings"),
    [("kill", {}), pytest.param("stop", {"patience_seconds": 3}, marks=pytest.mark.nightly)],
)
def test_a_shard_that_is_lost_in_the_middle_of_a_pass_does_not_show(act, settings, replay, undisturbed):
    run = replay(f"shard.between_meetings/1@5#1={act}", **settings)
    assert results(run) == undisturbed
    assert run.summary["rounds"] > 0
    (lost,) = run.summary["recoveries"]
    assert re.match(r"shard 1 \(pid \d+ on ", lost["what"]), lost
