"""Incarnations in this process, and the budget of restarts."""

from types import SimpleNamespace

import numpy as np
import pytest

from actors.placement import Placement
from pipelines.config import load_config
from pipelines.running.intake import Incarnations, RestartBudget
from raydt.errors import ProcessLostError, RestartsSpentError
from raydt.examples.updates import Features, UpdateBatch
from raydt.messages import message
from raydt.sessions.session import DIVIDED, ONE_MODEL
from tests.refusals import refused

CONFIG = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 10},
    "learner": {"kind": "fudyadt", "epsilon": 0.5, "alpha": 0.5},
    "cluster": {"backend": "in_process"},
}


def test_each_incarnation_begins_empty_with_the_next_number():
    batch = UpdateBatch(
        0, np.zeros(2, np.int8), np.arange(2), np.zeros((2, 1)), np.zeros(2, np.int32), 1, np.arange(2), warmup=0
    )
    config = load_config(CONFIG).placed(Placement(1, "here"))
    with Incarnations(config, Features(("a",), (False,)), before=3) as incarnations:
        first = incarnations.open()
        assert incarnations.epoch == 4
        empty = first.digest()
        assert [result.applied for _, result in first.process([batch])] == [2]
        assert first.digest() != empty
        second = incarnations.open()
        assert incarnations.epoch == 5
        assert second.digest() == empty


def test_what_fails_while_ray_starts_is_raised_when_a_session_is_opened(monkeypatch):
    def fails(*given, **named):
        raise OSError("no kernels")

    monkeypatch.setattr("pipelines.running.intake.compile_missing", fails)
    ray = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr("pipelines.running.intake.connect", lambda *given, **named: ray)
    config = load_config(CONFIG, ["cluster.backend=ray"]).placed(Placement(1, "here"))
    with Incarnations(config, Features(("a",), (False,))) as incarnations, pytest.raises(OSError, match="no kernels"):
        incarnations.open()


@pytest.mark.parametrize(
    ("given", "placement", "uses"),
    [
        ([], Placement(1, "here"), ONE_MODEL),
        ([], Placement(2, "here", divided=True), DIVIDED),
        (["cluster.backend=ray"], Placement(2, "on Ray"), ONE_MODEL),
        (["cluster.backend=ray"], Placement(2, "on Ray", divided=True), DIVIDED),
    ],
)
def test_kernels_of_shards_are_compiled_where_shards_may_work(given, placement, uses, monkeypatch):
    asked = []
    monkeypatch.setattr("pipelines.running.intake.compile_missing", lambda learner, options, of: asked.append(of))
    ray = SimpleNamespace(close=lambda: None, answers=lambda: True)
    monkeypatch.setattr("pipelines.running.intake.connect", lambda *given, **named: ray)
    with Incarnations(load_config(CONFIG, given).placed(placement), Features(("a",), (False,))) as incarnations:
        incarnations._compiled.require() if given else None
    assert asked == [uses]


class TestRestartBudget:
    def test_the_sixth_loss_within_ten_minutes_is_one_too_many(self):
        budget = RestartBudget()
        for index in range(5):
            budget.spend(ProcessLostError("shard 1 died", "Look"), 100.0 + index, run="runs/a", checkpoint=None)
        said = {
            "restarts": "5 restarts",
            "minutes": "4 minutes",
            "losses": "shard 1 died (5 times); the coordinator died",
            "remedy": f"Look. {message('runs.intact_checkpoint', update=12_000, run='runs/a')}",
        }
        with refused("runs.restarts_spent", RestartsSpentError, **said) as caught:
            budget.spend(ProcessLostError("the coordinator died"), 340.0, run="runs/a", checkpoint=12_000)
        assert caught.value.exit_code == 1
        assert not isinstance(caught.value, ProcessLostError)

    def test_losses_far_apart_are_each_the_first(self):
        budget = RestartBudget(most=1, seconds=60)
        for minute in range(10):
            budget.spend(ProcessLostError("shard 1 died"), 60.0 * minute, run="r", checkpoint=5)
        with refused("runs.restarts_spent", RestartsSpentError, restarts="1 restart", minutes="1 minute"):
            budget.spend(ProcessLostError("shard 1 died"), 599.0, run="r", checkpoint=5)

    def test_without_a_checkpoint_it_says_so(self):
        with refused("runs.restarts_spent", RestartsSpentError, remedy=message("runs.missing_checkpoint", run="r")):
            RestartBudget(most=0).spend(ProcessLostError("shard 1 died"), 0.0, run="r", checkpoint=None)
