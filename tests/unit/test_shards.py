"""``cluster.shards: auto``: from the work, the features and the CPUs."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pydantic import ValidationError

import actors.cluster
from pipelines.config import Cluster, Config
from pipelines.running.preparation.placement import messages_of_first_model, place_of_work
from pipelines.running.preparation.shards import MOST_SHARDS, with_shards
from raydt.examples.features import Features


def config_of(learner: dict[str, Any], **cluster: Any) -> Config:
    """A config whose shards are auto, for a private Ray unless it names a cluster."""
    return Config.model_validate(
        {
            "source": {"kind": "synthetic", "generator": "sea", "n": 100},
            "stream": {"model": "incremental", "warmup": 10},
            "learner": learner,
            "cluster": {"shards": "auto", **cluster},
        }
    )


def features_of(columns: int, groups: int = 16) -> Features:
    """Some numeric features."""
    return Features(tuple(map(str, range(columns))), (False,) * columns, groups)


@pytest.fixture(autouse=True)
def _seven_cpus(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(actors.cluster, "_is_connected", lambda: False)
    monkeypatch.setattr(actors.cluster, "free_cpus", lambda address: 7)


DIVIDED = {"local_work_limit": 0}
FOREST = {"kind": "forest", "n_estimators": 100}
NAMED = {"address": "10.0.0.1:6379"}
SHARD_OF_TWO = {"resources": {"coordinator": {"num_cpus": 1}, "shard": {"num_cpus": 2}}}


@pytest.mark.parametrize(
    ("learner", "cluster", "columns", "rows", "expected"),
    [
        ({"kind": "gbdt"}, {"backend": "in_process"}, 50, 10**9, 1),
        ({"kind": "gbdt"}, {}, 50, 1000, 1),  # the coordinator does all work
        ({"kind": "sparse_tree"}, {}, 50, 10**9, 1),  # so it does whatever the rows
        ({"kind": "gbdt"}, {}, 50, 10**6, 7),
        ({"kind": "gbdt"}, {}, 50, None, 7),
        ({"kind": "gbdt"}, {}, 3, 10**8, 3),  # as many as have a feature
        ({"kind": "gbdt"}, DIVIDED, 50, 10, 7),
        ({"kind": "gbdt"}, DIVIDED | NAMED, 50, 10, 6),  # one CPU is the coordinator's
        ({"kind": "gbdt"}, DIVIDED | NAMED | SHARD_OF_TWO, 50, 10, 3),
        (FOREST, {}, 3, 10, 7),  # it divides its trees
    ],
)
def test_auto_is_as_many_as_have_work_and_a_cpu(learner, cluster, columns, rows, expected):
    assert with_shards(config_of(learner, **cluster), features_of(columns), rows).shards == expected


def test_auto_stops_where_more_shards_are_slower(monkeypatch):
    monkeypatch.setattr(actors.cluster, "free_cpus", lambda address: 1000)
    assert with_shards(config_of(FOREST), features_of(3), 10).shards == MOST_SHARDS


def test_a_cluster_without_free_cpus_is_asked_for_one_shard(monkeypatch):
    monkeypatch.setattr(actors.cluster, "free_cpus", lambda address: 0)
    assert with_shards(config_of(FOREST, **NAMED), features_of(3), 10).shards == 1


def test_a_number_stays_and_auto_stays_in_the_config():
    given = config_of(FOREST, shards=3)
    assert with_shards(given, features_of(3), 10) is given
    assert with_shards(config_of(FOREST), features_of(3), 10).resolved()["cluster"]["shards"] == "auto"


def test_validation_asks_no_cluster():
    features = features_of(3)
    placed = with_shards(config_of(FOREST, **NAMED), features, 10, ask=False)
    assert placed.shards is None
    assert place_of_work(placed, features, 10) == "on Ray: a coordinator and shards"
    assert messages_of_first_model(placed, features, 10, 0.0) == ""


def test_a_private_ray_offers_the_cpus_of_the_machine(monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(actors.cluster, "_is_connected", lambda: False)
    assert actors.cluster.free_cpus() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("shards", [0, -1, True, "many", 1.5])
def test_other_values_are_refused(shards):
    with pytest.raises(ValidationError, match="shards"):
        Cluster(shards=shards)
