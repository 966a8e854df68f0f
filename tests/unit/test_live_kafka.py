"""A topic as a source, at the broker that the library brings with it: the real protocol on a loopback port."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer

from pipelines import replay
from pipelines.following.follow import follow
from raydt.errors import InputError
from raydt.exchange.faults import injected
from raydt.sources.live.kafka import Kafka
from tests.cut_runs import Gone, at
from tests.refusals import refused


class Broker:
    """A broker in this process; its topics have four partitions."""

    def __init__(self) -> None:
        self._producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._producer.list_topics(timeout=5).brokers.values()
        self.servers = ",".join(f"{one.host}:{one.port}" for one in brokers)

    def send(self, topic: str, key: Any, value: Any) -> None:
        text = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        self._producer.produce(
            topic, text, key=json.dumps(key).encode(), partition=sum(map(int, re.findall(r"\d+", str(key)))) % 3
        )

    def flush(self) -> None:
        assert self._producer.flush(10) == 0


@pytest.fixture(scope="module")
def broker() -> Broker:
    return Broker()


def plain(op: str, id: int, a: float = 0.5) -> dict[str, Any]:
    return {"op": op, "id": id, "a": a + id, "b": id % 7, "y": f"c{id % 3}", "other": [1]}


def enveloped(op: str, id: int, a: float = 0.5) -> dict[str, Any]:
    row = {name: value for name, value in plain(op, id, a).items() if name != "op"}
    return {"op": op, "before": row if op in "ud" else None, "after": row if op != "d" else None, "ts_ms": 1}


def send(broker: Broker, topic: str, make: Any, ids: range) -> None:
    for id in ids:
        broker.send(topic, id, make("c", id))
    for id in ids[::4]:
        broker.send(topic, id, make("u", id, 2.0))
    for id in ids[::5]:
        broker.send(topic, id, make("d", id))
    broker.flush()


def job(broker: Broker, topic: str, **given: Any) -> dict[str, Any]:
    source = {"kind": "kafka", "path": f"kafka://{broker.servers}/{topic}", "id": "id", "features": ["a", "b"]}
    return {
        "source": {**source, "label": "y", "text": ["y"], **given.pop("source", {})},
        "learner": {"kind": "fudyadt", "epsilon": 0.2},
        "cluster": {"backend": "in_process", "batch_size": 16},
        "checkpoint": {"every_updates": 32, "every_seconds": None},
        "output": {"report": False},
        **given,
    }


def test_a_topic_in_an_envelope_and_a_plain_one_are_the_same_changes(broker: Broker, tmp_path: Path) -> None:
    send(broker, "plain", plain, range(60))
    send(broker, "debezium", enveloped, range(60))
    one = replay(job(broker, "plain"), tmp_path / "plain")
    other = replay(job(broker, "debezium", source={"envelope": "debezium"}), tmp_path / "debezium")
    for result in (one, other):
        assert [result.summary[name] for name in ("updates", "replaced", "deletes", "active")] == [87, 15, 27, 48]


def test_a_run_that_follows_goes_on_at_its_offsets_whatever_was_cut(broker: Broker, tmp_path: Path) -> None:
    send(broker, "cut", plain, range(80))
    with injected(at(4)), pytest.raises(Gone):
        follow(job(broker, "cut"), tmp_path / "cut", until_idle=0.0)
    plans = (tmp_path / "cut" / "plans.jsonl").read_text().splitlines()
    send(broker, "cut", plain, range(80, 110))
    resumed = follow(tmp_path / "cut", until_idle=0.0)
    assert (tmp_path / "cut" / "plans.jsonl").read_text().splitlines()[: len(plans)] == plans
    assert resumed.summary["updates"] == 80 + 20 + 16 + 30 + 8 + 6
    same = follow(job(broker, "cut"), tmp_path / "whole", until_idle=0.0)
    assert same.summary["active"] == resumed.summary["active"] == 110 - 22


def test_a_message_without_a_value_deletes_by_its_key(broker: Broker, tmp_path: Path) -> None:
    for id in range(10):
        broker.send("stones", id, plain("c", id))
    broker.send("stones", 3, None)
    broker.send("stones", {"id": 4}, None)
    broker.flush()
    result = replay(job(broker, "stones"), tmp_path / "run")
    assert (result.summary["deletes"], result.summary["active"]) == (2, 8)


def test_the_tombstone_that_follows_a_delete_of_debezium_is_no_change(broker: Broker, tmp_path: Path) -> None:
    for id in range(10):
        broker.send("pairs", id, enveloped("c", id))
    broker.send("pairs", 3, enveloped("d", 3))
    broker.send("pairs", 3, None)
    broker.flush()
    result = replay(job(broker, "pairs", source={"envelope": "debezium"}), tmp_path / "run")
    assert (result.summary["deletes"], result.summary["active"], result.summary["skipped"]) == (1, 9, 0)


@pytest.mark.parametrize(
    "bad", [b"no json", b'{"op": "c", "id": "x"}', b"[1]", b'{"op": "c"}\n{"op": "c"}', b"\xff", b""]
)
def test_a_bad_message_is_set_aside_or_ends_the_run(broker: Broker, tmp_path: Path, bad: bytes) -> None:
    topic = f"bad-{abs(hash(bad))}"
    for id in range(6):
        broker.send(topic, id, plain("c", id))
    broker.send(topic, 1, bad)
    broker.send(topic, 1, plain("d", 1))
    broker.flush()
    result = replay(job(broker, topic, stream={"on_error": "skip"}), tmp_path / "lenient")
    assert (result.summary["skipped"], result.summary["active"]) == (1, 5)
    with pytest.raises(InputError, match="no JSON object"):
        replay(job(broker, topic), tmp_path / "strict")


@pytest.mark.parametrize("bad", [b'{"schema": {}, "payload": {"op": "d", "before": {"id": 1}}}', b"{}"])
def test_a_message_without_a_change_is_no_tombstone(broker: Broker, tmp_path: Path, bad: bytes) -> None:
    """The converter of Kafka Connect adds a schema unless it is told not to, and nothing would come of its messages."""
    topic = f"wrapped-{len(bad)}"
    broker.send(topic, 1, enveloped("c", 1))
    broker.send(topic, 1, bad)
    broker.flush()
    source = {"envelope": "debezium"}
    result = replay(job(broker, topic, source=source, stream={"on_error": "skip"}), tmp_path / "lenient")
    assert (result.summary["skipped"], result.summary["active"]) == (1, 1)
    with refused("live.no_change"):
        replay(job(broker, topic, source=source), tmp_path / "strict")


def test_offsets_that_are_gone_are_an_error_that_names_the_retention(broker: Broker) -> None:
    send(broker, "gone", plain, range(5))
    source = Kafka.model_validate(job(broker, "gone")["source"]).open()
    plan = source.plan(None)
    assert plan is not None
    with pytest.raises(InputError, match="retention of the topic"):
        source.plan({**plan, "to": dict.fromkeys(plan["to"], 500)})


def test_a_topic_that_is_not_there_and_a_path_that_names_none(broker: Broker) -> None:
    given = job(broker, "x")["source"]
    for path in ("kafka://", "host/topic", "kafka://host"):
        with pytest.raises(InputError, match="names no topic"):
            Kafka.model_validate({**given, "path": path}).open()
    with pytest.raises(InputError, match="cannot be read"):
        Kafka.model_validate({**given, "properties": "/no/such/file"}).open()
