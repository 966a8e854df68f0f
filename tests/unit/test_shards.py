"""``cluster.shards: auto``: from the work, the features and the CPUs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

import actors.cluster
from actors.cluster import bundles
from actors.placement import have_room
from pipelines.config import Cluster, Config
from pipelines.running.preparation.placement import place_of_work
from pipelines.running.preparation.shards import MOST_SHARDS, with_shards, with_shards_on
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
    monkeypatch.setattr(actors.cluster, "cpus_here", lambda: 7)


DIVIDED = {"local_work_limit": 0}
FOREST = {"kind": "forest", "n_estimators": 100}
NAMED = {"address": "10.0.0.1:6379"}
SHARD_OF_TWO = {"resources": {"coordinator": {"num_cpus": 1}, "shard": {"num_cpus": 2}}}


@pytest.mark.parametrize(
    ("learner", "cluster", "columns", "rows", "expected"),
    [
        ({"kind": "fudyadt"}, {"backend": "in_process"}, 50, 10**9, 1),
        ({"kind": "fudyadt"}, {}, 50, 1000, 1),  # the coordinator does all work
        ({"kind": "sparse_tree"}, {}, 50, 10**9, 1),  # so it does whatever the rows
        ({"kind": "fudyadt"}, {}, 50, 10**6, 7),
        ({"kind": "fudyadt"}, {}, 50, None, 7),
        ({"kind": "fudyadt"}, {}, 3, 10**8, 3),  # as many as have a feature
        ({"kind": "fudyadt"}, DIVIDED, 50, 10, 7),
        ({"kind": "fudyadt"}, DIVIDED | NAMED, 50, 10, None),  # nobody knows before the job has joined the cluster
        ({"kind": "fudyadt"}, NAMED, 50, 1000, 1),
        (FOREST, {}, 3, 10, 7),  # it divides its trees
    ],
)
def test_auto_is_as_many_as_have_work_and_a_cpu(learner, cluster, columns, rows, expected):
    assert with_shards(config_of(learner, **cluster), features_of(columns), rows).shards == expected


def test_auto_stops_where_more_shards_are_slower(monkeypatch):
    monkeypatch.setattr(actors.cluster, "cpus_here", lambda: 1000)
    assert with_shards(config_of(FOREST), features_of(3), 10).shards == MOST_SHARDS


#: What is free on each node.
SPLIT = [{"CPU": 3.0, "memory": 4e9}, {"CPU": 3.0, "memory": 4e9}, {"CPU": 3.0, "memory": 2e9}, {"memory": 8e9}]


def shard_of(**each: Any) -> dict[str, Any]:
    """A cluster whose shards take so much."""
    return NAMED | {"resources": {"shard": each}}


@pytest.mark.parametrize(
    ("cluster", "free", "expected", "reason"),
    [
        (NAMED, [], 1, "not even one has room beside the coordinator, so raydt waits; no CPU is free"),
        (NAMED, [{"memory": 1e9}], 1, "not even one has room beside the coordinator, so raydt waits; no CPU is free"),
        (
            NAMED,
            [{"CPU": 1.0}],
            1,
            "not even one has room beside the coordinator, so raydt waits; 1 node has 1",
        ),
        (NAMED, [{"CPU": 2.0}], 1, "more have no room beside the coordinator; 1 node has 2 CPUs free"),
        (NAMED, [{"CPU": 1.0}] * 5 + [{}], 4, "more have no room beside the coordinator; 5 nodes have 5 CPUs free"),
        (NAMED, [{"CPU": 0.5}] * 8 + [{"CPU": 2.5}], 1, "9 nodes have 6.5 CPUs free"),  # halves hold no actor
        (NAMED, [{"CPU": 7.0}], 6, "more have no room beside the coordinator; 1 node has 7 CPUs free"),
        (NAMED, [{"CPU": 99.0}] * 2, MOST_SHARDS, "more would make the first model slower"),
        # Three nodes of three CPUs hold three shards of two, not (9 - 1) / 2.
        (shard_of(num_cpus=2), SPLIT, 3, "a shard takes 2 CPUs, and 3 nodes have 9 CPUs free"),
        (shard_of(num_cpus=0.5), [{"CPU": 2.0}], 2, "a shard takes 0.5 CPUs, and 1 node has 2 CPUs free"),
        (
            shard_of(memory=3_000_000_000),
            SPLIT,
            2,
            "takes 1 CPU, 3 GB of memory, and 4 nodes have 9 CPUs, 18 GB",
        ),
        (shard_of(num_cpus=0), [{"CPU": 1.0}], MOST_SHARDS, "more would make the first model slower"),
        (
            shard_of(resources={"big": 1.0}),
            [{"CPU": 8.0}, {"CPU": 8.0, "big": 3.0}],
            3,
            "takes 1 CPU, 1 big, and 2",
        ),
    ],
)
def test_a_cluster_has_room_on_its_nodes(cluster, free, expected, reason):
    placed = with_shards_on(config_of(FOREST, **cluster), features_of(3), free)
    assert placed.shards == expected
    assert reason in placed.shards_reason
    if "would" not in reason:
        assert have_room(free, bundles(expected, cluster.get("resources"))) == ("not even" not in reason)
        assert not have_room(free, bundles(expected + 1, cluster.get("resources")))
    assert f"{expected} shard{'s' * (expected > 1)} (auto: {placed.shards_reason})" in place_of_work(
        placed, features_of(3)
    )


def test_the_first_line_says_why_of_a_private_ray():
    placed = with_shards(config_of(FOREST), features_of(3), 10)
    assert (
        place_of_work(placed, features_of(3), 10)
        == "on Ray: a coordinator and 7 shards (auto: this machine has 7 CPUs)"
    )
    placed = with_shards(config_of({"kind": "fudyadt"}), features_of(3), 10**8)
    assert "and 3 shards (auto: more would have no work) from there on" in place_of_work(placed, features_of(3), 10**8)
    placed = with_shards(config_of(FOREST, **SHARD_OF_TWO), features_of(3), 10)
    assert (placed.shards, placed.shards_reason) == (3, "this machine has 7 CPUs, and a shard takes 2")


def test_where_the_coordinator_does_all_work_nobody_has_chosen():
    placed = with_shards(config_of({"kind": "fudyadt"}), features_of(50), 1000)
    assert "the coordinator does all work: shards would be faster from" in place_of_work(placed, features_of(50), 1000)


def test_a_number_stays_and_auto_stays_in_the_config():
    given = config_of(FOREST, shards=3)
    assert with_shards(given, features_of(3), 10) is given
    assert with_shards(config_of(FOREST), features_of(3), 10).resolved()["cluster"]["shards"] == "auto"


def test_validation_asks_no_cluster():
    features = features_of(3)
    placed = with_shards(config_of(FOREST, **NAMED), features, 10)
    assert placed.shards is None
    assert place_of_work(placed, features, 10) == "on Ray: a coordinator and shards"


@pytest.mark.parametrize("shards", [0, -1, True, "many", 1.5])
def test_other_values_are_refused(shards):
    with pytest.raises(ValidationError, match="shards"):
        Cluster(shards=shards)
