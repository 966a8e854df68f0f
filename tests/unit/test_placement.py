"""Where shards are placed, and the addresses of a cluster."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import ray
from pydantic import ValidationError

import actors.cluster
from actors import cluster
from actors.cluster import Cluster, bundles, connect, starts_ray
from actors.placement import Placement, have_room
from pipelines.config import Config
from pipelines.operation import ClusterOptions
from pipelines.validation import MOST_SHARDS, place
from raydt.errors import ConfigError
from raydt.examples.updates import Features
from raydt.learners.base import WorkPlan
from raydt.messages import Message, message
from tests.refusals import refused

# -- placement -------------------------------------------------------------------------------------------------------
# Where the work is done: the number of shards and the sentence, from the work, the features and what is free.

NAMED, FOREST = {"address": "10.0.0.1:6379"}, {"kind": "forest", "n_estimators": 100}
#: Rows of four features from which shards are faster.
MANY = 5_000_000
#: A coordinator with as many CPUs as the one shard for which there is room.
ROOMY = {"coordinator": {"num_cpus": 4}, "shard": {"num_cpus": 4}}


def config_of(learner: dict[str, Any], window: int | None = None, **cluster: Any) -> Config:
    stream = {"model": "sliding_window", "window": window} if window else {"model": "incremental", "warmup": 10}
    source = {"kind": "synthetic", "generator": "sea"}
    cluster = {"backend": "ray", **cluster}
    return Config.model_validate({"source": source, "stream": stream, "learner": learner, "cluster": cluster})


def placed(learner: str | dict[str, Any], columns: int = 4, rows: int | None = None, **given: Any) -> Placement:
    """Place a learner on rows of some numbers; ``free`` and ``sparse`` are no settings of the cluster."""
    sparse, free = given.pop("sparse", 0), given.pop("free", None)
    config = config_of({"kind": learner} if isinstance(learner, str) else learner, **given)
    groups = config.learner.feature_groups
    features = Features(tuple(map(str, range(columns))), (False,) * columns, groups, sparse)
    return place(config, features, rows, free)


def auto(shards: int, limit: str, **parameters: Any) -> str:
    """Name a number of shards and its limit."""
    return f"{shards} shards (auto: {message(f'runs.{limit}', **parameters)})"


SEVEN = auto(7, "full_machine", cpus="7 CPUs")


@pytest.fixture
def _seven_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(actors.cluster, "_is_connected", lambda: False)
    monkeypatch.setattr(actors.cluster, "cpus_here", lambda: 7)


@pytest.mark.usefixtures("_seven_cpus")
@pytest.mark.parametrize(
    ("given", "shards", "words", "parameters"),
    [
        ({"learner": "gbdt", "backend": "in_process"}, 1, "in_process", {}),
        ({"learner": "gbdt", "backend": "in_process", "shards": 3}, 3, "in_process", {}),
        ({"learner": "gbdt", "memory_limit": 0, "shards": 1}, 1, "with_shards", {"shards": "1 shard"}),
        ({"learner": "gbdt", "memory_limit": 0}, 4, "with_shards", {"shards": auto(4, "idle_shards")}),
        ({"learner": "fudyadt", "columns": 50, "memory_limit": 0}, 7, "with_shards", {"shards": SEVEN}),
        ({"learner": "fudyadt", "columns": 50, "memory_limit": 0, **NAMED}, None, "with_shards", {"shards": "shards"}),
        ({"learner": FOREST, "columns": 3}, 7, "with_shards", {"shards": SEVEN}),  # it divides its trees
        ({"learner": FOREST, "resources": {"shard": {"num_cpus": 2}}}, 3, "with_shards", {}),
        ({"learner": "confidence_tree", "rows": 10**9}, 1, "no_faster", {"learner": "confidence_tree"}),
        ({"learner": "sparse_tree", "sparse": 5, "shards": 2}, 2, "no_faster", {"learner": "sparse_tree"}),
        (
            {"learner": "confidence_tree", "memory_limit": 80, "shards": 2},
            2,
            "beyond_limit",
            {"size": "3 live examples", "shards": "2 shards"},
        ),
        ({"learner": "fudyadt"}, 4, "shards_faster", {"size": f"{MANY:,} live examples"}),
        ({"learner": "fudyadt", "rows": MANY}, 4, "shards_faster", {}),
        (
            {"learner": "fudyadt", "rows": MANY - 1},
            1,
            "small",
            {"size": f"{MANY:,} live examples", "live": MANY - 1},
        ),
        ({"learner": "fudyadt", "rows": MANY - 1, **NAMED}, 1, "small", {}),
        ({"learner": "fudyadt", "rows": MANY, "window": 2}, 1, "small", {"live": 2}),
        ({"learner": {"kind": "fudyadt", "class_weight": "balanced"}}, 1, "no_faster", {"learner": "fudyadt"}),
        ({"learner": {"kind": "gbdt", "class_weight": {"1": 2.0}}}, 4, "shards_faster", {}),
        ({"learner": "gbdt"}, 4, "shards_faster", {"size": f"{MANY:,} live examples"}),
        ({"learner": "gbdt", "resources": {"shard": {"num_cpus": 4}}}, 1, "shards_faster", {}),
        ({"learner": "gbdt", "resources": ROOMY}, 1, "few_shards", {"shards": "1 shard"}),
        ({"learner": FOREST, "resources": ROOMY}, 1, "few_shards", {}),
        ({"learner": FOREST, "resources": ROOMY, "memory_limit": 80, "rows": 9}, 1, "beyond_limit", {}),
        ({"learner": FOREST, "resources": ROOMY, "memory_limit": 0}, 1, "with_shards", {}),
        ({"learner": FOREST, "resources": ROOMY, "shards": 1}, 1, "with_shards", {"shards": "1 shard"}),
        ({"learner": "fudyadt", "rows": 2, "sparse": 5, "shards": 2}, 2, "shards_faster", {"shards": "2 shards"}),
        ({"learner": "fudyadt", "memory_limit": 80, "rows": 2}, 1, "fits", {"size": "3 live examples"}),
        ({"learner": "fudyadt", "memory_limit": 80, "rows": 3, "shards": 2}, 2, "beyond_limit", {"shards": "2 shards"}),
    ],
)
def test_the_place_of_the_work(
    given: dict[str, Any], shards: int | None, words: str, parameters: dict[str, Any]
) -> None:
    found = placed(**given)
    assert found.shards == shards
    assert isinstance(found.where, Message)
    assert found.where.id == f"runs.{words}"
    assert parameters.items() <= found.where.parameters.items()
    assert bool(found.advice) == (words in ("small", "fits"))
    sure = words in ("with_shards", "beyond_limit", "shards_faster")
    assert found.divided == (sure or (words == "in_process" and shards == 3))


@pytest.mark.usefixtures("_seven_cpus")
@pytest.mark.parametrize(("learner", "words"), [("fudyadt", "no_faster"), ("gbdt", "shards_faster")])
def test_shards_that_know_no_weights_are_no_faster_with_them(learner: str, words: str) -> None:
    source = {"kind": "parquet", "path": "rows.parquet", "label": "y", "weight": "w"}
    stream = {"model": "incremental", "warmup": 10}
    sections = {"source": source, "stream": stream, "learner": {"kind": learner}, "cluster": {"backend": "ray"}}
    config = Config.model_validate(sections)
    found = place(config, Features(("a", "b"), (False, False)), 10**9)
    assert isinstance(found.where, Message)
    assert found.where.id == f"runs.{words}"


#: What is free on each node.
SPLIT = [{"CPU": 3.0, "memory": 4e9}, {"CPU": 3.0, "memory": 4e9}, {"CPU": 3.0, "memory": 2e9}, {"memory": 8e9}]


@pytest.mark.usefixtures("_seven_cpus")
@pytest.mark.parametrize(
    ("shard", "free", "expected"),
    [
        ({}, [], 0),
        ({}, [{"memory": 1e9}], 0),
        ({}, [{"CPU": 1.0}], 0),
        ({}, [{"CPU": 2.0}], 1),
        ({}, [{"CPU": 1.0}] * 5 + [{}], 4),
        ({}, [{"CPU": 0.5}] * 8 + [{"CPU": 2.5}], 1),  # halves hold no actor
        ({}, [{"CPU": 7.0}], 6),
        ({}, [{"CPU": 99.0}] * 2, MOST_SHARDS),
        ({"num_cpus": 2}, SPLIT, 3),  # three nodes of three CPUs hold three shards of two, not (9 - 1) / 2
        ({"num_cpus": 0.5}, [{"CPU": 2.0}], 2),
        ({"memory": 3_000_000_000}, SPLIT, 2),
        ({"num_cpus": 0}, [{"CPU": 1.0}], MOST_SHARDS),
        ({"resources": {"big": 1.0}}, [{"CPU": 8.0}, {"CPU": 8.0, "big": 3.0}], 3),
    ],
)
def test_a_cluster_has_room_on_its_nodes(shard: dict[str, Any], free: list[Any], expected: int) -> None:
    resources = {"shard": shard}
    found = placed(FOREST, 3, 10, free=free, resources=resources, **NAMED)
    assert found.shards == max(1, expected)
    # A shard that has no more CPUs than the coordinator stays idle.
    idle = max(1, expected) * int(max(1, shard.get("num_cpus", 1))) < 2
    assert isinstance(found.where, Message)
    assert found.where.id == ("runs.few_shards" if idle else "runs.with_shards")
    assert found.plan == WorkPlan(faster=not idle)
    assert message("runs.most_shards" if expected == MOST_SHARDS else "runs.full_cluster") in found.where
    if expected < MOST_SHARDS:
        assert not have_room(free, bundles(expected + 1, resources))
        assert not expected or have_room(free, bundles(expected, resources))


@pytest.mark.usefixtures("_seven_cpus")
@pytest.mark.parametrize(
    ("given", "problem", "parameters"),
    [
        ({"learner": "fudyadt", "shards": 5}, "idle_shards", {"cause": "4 features", "most": 4}),
        ({"learner": {"kind": "fudyadt", "feature_groups": 3}, "shards": 4}, "idle_shards", {"most": 3}),
        ({"learner": FOREST, "shards": 101}, "idle_shards", {"most": 100}),
        ({"learner": {**FOREST, "n_estimators": 9999}, "shards": 9999}, "many_shards", {"shards": 9999}),
    ],
)
def test_more_shards_than_can_have_work_or_a_cpu_are_refused(
    given: dict[str, Any], problem: str, parameters: dict[str, Any]
) -> None:
    with refused(f"configs.{problem}", ConfigError, **parameters):
        placed(**given)
    assert placed(**{**given, "shards": 2}).shards == 2


@pytest.mark.parametrize("learner", ["gbdt", "fudyadt"])
def test_validation_says_which_shards_own_more_rows_than_others(learner: str) -> None:
    """Shards own whole buckets of 4,096: of 1,000 shards some have 5, others 4."""
    wide = {"learner": {"kind": learner, "feature_groups": 6_000}, "columns": 6_000, "memory_limit": 0, **NAMED}
    for shards in (2, 257, 4_096):
        assert placed(**wide, shards=shards).where == message("runs.with_shards", shards=f"{shards:,} shards")
    uneven = str(message("runs.uneven_rows", shards="1,000 shards", more=5 / 4.096 - 1))
    assert "22%" in uneven
    assert placed(**wide, shards=1_000).where == message("runs.with_shards", shards=uneven)
    with refused("configs.idle_shards", ConfigError, cause="4096 buckets of rows", most=4096):
        placed(**wide, shards=4_097)


@pytest.mark.usefixtures("_seven_cpus")
@pytest.mark.parametrize("shards", [0, -1, True, "many", 1.5])
def test_other_values_are_refused(shards: object) -> None:
    with pytest.raises(ValidationError, match="shards"):
        ClusterOptions(shards=shards)


# -- addresses -------------------------------------------------------------------------------------------------------
# An address that is no cluster's is refused within seconds, whatever listens there and however it was named.

#: What servers of other kinds say once something was sent to them; None: they say nothing, and close nothing.
ANSWERS: dict[str, bytes | None] = {
    "web server": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "redis": b"-ERR unknown command\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "server with TLS": bytes.fromhex("15030100020246"),
    "server that closes": b"",
    "server that begins and closes": b"\0\0\x06",
    "server that says nothing": None,
    "server that begins and says nothing more": b"\0\0",
}


@contextlib.contextmanager
def listening(answer: bytes | None, closes: bool = True) -> Iterator[str]:
    """A server that gives every client this answer; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as clients:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client = clients.enter_context(server.accept()[0])
                    if answer is not None:
                        client.recv(4096)
                        client.sendall(answer)
                        if closes:
                            client.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def by_argument(address: str, patch: pytest.MonkeyPatch) -> str:
    return address


def by_variable(address: str, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("RAY_ADDRESS", address)


def auto_by_variable(address: str, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("RAY_ADDRESS", address)
    return "auto"


def auto_on_record(address: str, patch: pytest.MonkeyPatch) -> str:
    """As ``ray start`` has left it, also if its processes have ended since."""
    patch.setattr("ray._private.services.find_gcs_addresses", set)
    patch.setattr("ray._private.services.find_bootstrap_address", lambda folder: address)
    return "auto"


WAYS = [by_argument, by_variable, auto_by_variable, auto_on_record]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Ray is named or connected, and servers have to answer at once."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.3)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses at which Ray would have tried to join, which it does for minutes."""
    addresses: list[str] = []

    def init(address: str, **options: object) -> None:
        addresses.append(address)
        raise ConnectionError("Ray has tried for minutes")

    monkeypatch.setattr(ray, "init", init)
    return addresses


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ANSWERS)
def test_no_head(kind: str, way: Callable[..., str | None], monkeypatch, joined: list[str]) -> None:
    with listening(ANSWERS[kind], closes="nothing more" not in kind) as address:
        named = way(address, monkeypatch)
        began = time.monotonic()
        with refused("cluster.no_head", ConfigError, address=address):
            connect(named)
        assert time.monotonic() - began < 5
        assert not joined
        assert not starts_ray(named)


@pytest.mark.usefixtures("alone")
def test_random_answers(joined: list[str]) -> None:
    draw = random.Random(7)
    for _ in range(50):
        answer = draw.randbytes(draw.randrange(20))
        if answer[3:4] != b"\x04":
            with listening(answer) as address, refused("cluster.no_head", ConfigError, address=address):
                connect(address)
    assert not joined


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("way", WAYS)
def test_nobody_listens(way: Callable[..., str | None], monkeypatch, joined: list[str]) -> None:
    with listening(None) as address:
        pass
    with refused("cluster.no_cluster", ConfigError, address=address):
        connect(way(address, monkeypatch))
    assert not joined


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("way", WAYS)
def test_a_server_of_the_protocol_is_asked_by_ray(way: Callable[..., str | None], monkeypatch, joined) -> None:
    """It may be another service of a cluster, such as Ray Client's: Ray finds out within seconds."""
    server = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    named = way(address, monkeypatch)
    with refused("cluster.not_joined", ConfigError):
        connect(named)
    assert joined == [address if named in (None, address) or "RAY_ADDRESS" in os.environ else "auto"]
    ray_there = Cluster(started=False, connected=False)
    ray_there._listeners = [address]
    assert ray_there.answers()
    server.stop(None).wait()
    assert not ray_there.answers()


@pytest.mark.usefixtures("alone")
def test_a_cluster_with_tls_is_asked_by_ray(monkeypatch, joined: list[str]) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with listening(ANSWERS["server with TLS"]) as address, refused("cluster.not_joined", ConfigError):
        connect(address)
    assert joined == [address]


@pytest.mark.usefixtures("alone")
def test_no_cluster_on_record(monkeypatch, joined: list[str]) -> None:
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", set)
    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda folder: None)
    with refused("cluster.not_joined", ConfigError, address="auto") as caught:
        connect("auto")
    assert "Could not find any running Ray" in str(caught.value)
    assert not joined
