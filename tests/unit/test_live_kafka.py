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
from pipelines.auditing import verify_receipts
from pipelines.following import follow
from raydt.errors import InputError
from raydt.examples.updates import CLASSES
from raydt.exchange.messages import injected
from raydt.sources.live.followed import FollowedSource
from raydt.sources.live.kafka import Kafka, KafkaChanges
from raydt.sources.live.partitions import Partitions
from tests.nets.test_doors import Message
from tests.refusals import refused
from tests.storage_faults import Gone, at
from tests.unit.test_requests import said

#: Addresses of brokers that the library brings with it: they never answer what the id of a topic is.
WITHOUT_IDS = set[str]()
_asked_id = Partitions._asked_id


def _id_unless_mocked(self: Partitions) -> str | None:
    return None if any(servers in self._name for servers in WITHOUT_IDS) else _asked_id(self)


Partitions._asked_id = _id_unless_mocked  # type: ignore[method-assign]


class Broker:
    """A broker in this process; its topics have four partitions, and no ids."""

    def __init__(self) -> None:
        self._producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._producer.list_topics(timeout=5).brokers.values()
        self.servers = ",".join(f"{one.host}:{one.port}" for one in brokers)
        WITHOUT_IDS.add(self.servers)

    def send(self, topic: str, key: Any, value: Any) -> None:
        text = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        written = key if isinstance(key, bytes) else json.dumps(key).encode()
        self._producer.produce(topic, text, key=written, partition=sum(map(int, re.findall(r"\d+", str(key)))) % 3)

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


def test_text_ids_are_the_keys_as_they_are_written(broker: Broker, tmp_path: Path) -> None:
    """Of ids that are text ``1.10`` and ``1.1`` are two, and so are ``1e5`` and ``100000``."""
    given, texts = {"text": ["id", "y"]}, ("1.10", "1.1", "1e5", "100000", "007", "7", "true", "null", "NaN")
    for id in texts:
        broker.send("texts", id, {**plain("c", 1), "id": id})
    for key in (b"1.10", b"1e5", b"007", b"null", b'"true"', b'{"id": "NaN"}'):
        broker.send("texts", key, None)
    broker.flush()
    replay(job(broker, "texts", source=given, output={"report": False, "receipts": True}), tmp_path / "run")
    asked = verify_receipts(tmp_path / "run" / "receipts.jsonl", tmp_path / "run", ids=texts)["ids"]
    assert {one["id"] for one in asked if one["live"]} == {"1.1", "100000", "7"}


@pytest.mark.parametrize("key", [b'{"id": 1.1}', b"\xff", b"{}"])
def test_a_key_that_names_no_text_is_a_bad_row(broker: Broker, tmp_path: Path, key: bytes) -> None:
    topic = f"unnamed-{len(key)}"
    broker.send(topic, b"x", {**plain("c", 1), "id": "1.1"})
    broker.send(topic, key, None)
    broker.flush()
    with pytest.raises(InputError, match="row 1"):
        replay(job(broker, topic, source={"text": ["id", "y"]}), tmp_path / "run")


def test_fractional_labels_are_learned_as_numbers_and_are_no_classes(broker: Broker, tmp_path: Path) -> None:
    for id in range(8):
        broker.send("fractions", id, {**plain("c", id), "y": id / 8})
    broker.flush()
    given = job(broker, "fractions", source={"text": []})
    learner = {"kind": "fudyadt", "criterion": "squared_error", "label_range": [0, 1]}
    result = replay({**given, "learner": learner}, tmp_path / "numbers")
    assert (result.summary["active"], result.summary["skipped"]) == (8, 0)
    with refused("live.no_row"):
        replay(given, tmp_path / "classes")


@pytest.mark.parametrize("make", [plain, enveloped])
def test_an_integer_that_would_be_rounded_is_a_bad_row(broker: Broker, tmp_path: Path, make: Any) -> None:
    topic = f"wide-{make.__name__}"
    for id, a in enumerate((2**53, 1e300, 2**53 + 1)):
        change = make("c", id)
        (change if make is plain else change["after"]).update(a=a)
        broker.send(topic, id, change)
    broker.flush()
    given = {"envelope": None if make is plain else "debezium"}
    result = replay(job(broker, topic, source=given, stream={"on_error": "skip"}), tmp_path / "lenient")
    assert (result.summary["skipped"], result.summary["active"]) == (1, 2)
    with refused("live.rounded", column="a"):
        replay(job(broker, topic, source=given), tmp_path / "strict")


def test_a_field_that_is_renamed_is_told_once(broker: Broker, tmp_path: Path, caplog: Any) -> None:
    for id in range(400):
        name = "a" if id < 150 else "a2"
        broker.send("renamed", id, {name if one == "a" else one: value for one, value in plain("c", id).items()})
    broker.flush()
    result = replay(job(broker, "renamed"), tmp_path / "run")
    told = [one for one in caplog.records if getattr(one, "event", "") == "lost_column"]
    assert (result.summary["active"], len(told)) == (400, 1)
    assert "'a'" in told[0].getMessage()


def test_the_tombstone_that_follows_a_delete_of_debezium_is_no_change(broker: Broker, tmp_path: Path) -> None:
    for id in range(10):
        broker.send("pairs", id, enveloped("c", id))
    broker.send("pairs", 3, enveloped("d", 3))
    broker.send("pairs", 3, None)
    broker.flush()
    result = replay(job(broker, "pairs", source={"envelope": "debezium"}), tmp_path / "run")
    assert (result.summary["deletes"], result.summary["active"], result.summary["skipped"]) == (1, 9, 0)


@pytest.mark.parametrize(
    ("make", "bad", "why"),
    [
        *((plain, bad, "live.no_row") for bad in (b"no json", b'{"op": "c", "id": "x"}', b"[1]", b"\xff", b"")),
        (plain, b'{"op": "c"}\n{"op": "c"}', "live.no_row"),
        # The converter of Kafka Connect adds a schema unless it is told not to: nothing would come of its messages.
        (enveloped, b'{"schema": {}, "payload": {"op": "d", "before": {"id": 1}}}', "live.no_change"),
        (enveloped, b"{}", "live.no_change"),  # no tombstone
    ],
)
def test_a_bad_message_is_set_aside_or_ends_the_run(
    broker: Broker, tmp_path: Path, make: Any, bad: bytes, why: str
) -> None:
    topic = f"bad-{abs(hash(bad))}"
    for id in range(6):
        broker.send(topic, id, make("c", id))
    broker.send(topic, 1, bad)
    broker.send(topic, 1, make("d", 1))
    broker.flush()
    given = {"envelope": None if make is plain else "debezium"}
    result = replay(job(broker, topic, source=given, stream={"on_error": "skip"}), tmp_path / "lenient")
    assert (result.summary["skipped"], result.summary["active"]) == (1, 5)
    with refused(why, InputError):
        replay(job(broker, topic, source=given), tmp_path / "strict")


@pytest.mark.parametrize("make", [plain, enveloped])
def test_an_update_to_a_bad_row_deletes_the_old_one(broker: Broker, tmp_path: Path, make: Any) -> None:
    topic, wrong = f"updated-{make.__name__}", {1: {"y": None}, 2: {"a": "much"}, 3: {"y": [1]}}
    for id in range(8):
        broker.send(topic, id, make("c", id))
    for id, values in wrong.items():
        change = make("u", id, 2.0)
        (change if make is plain else change["after"]).update(values)
        broker.send(topic, id, change)
    broker.send(topic, 1, make("u", 1, 3.0))  # good again
    broker.send(topic, 2, make("d", 2))
    broker.flush()
    given, run = {"envelope": None if make is plain else "debezium"}, tmp_path / "lenient"
    lenient = {"stream": {"on_error": "skip"}, "output": {"report": False, "receipts": True}}
    result = replay(job(broker, topic, source=given, **lenient), run)
    assert [result.summary[name] for name in ("skipped", "refused", "active")] == [3, 0, 6]
    for id, deleted in (("1", False), ("2", True), ("3", True), ("4", False)):
        asked = verify_receipts(run / "receipts.jsonl", run, ids=[id])["ids"][0]
        assert (asked["deleted"], asked["live"]) == (deleted, not deleted)
    with pytest.raises(InputError):
        replay(job(broker, topic, source=given), tmp_path / "strict")
    assert not (tmp_path / "strict" / "receipts.jsonl").exists() or not said(tmp_path / "strict")


def test_offsets_that_no_message_has_are_an_error_that_names_them(broker: Broker) -> None:
    send(broker, "gone", plain, range(5))
    source = Kafka.model_validate(job(broker, "gone")["source"]).open()
    plan = source.plan(None)
    assert plan is not None
    with refused("live.beyond_end", InputError, offset=500):
        source.plan({**plan, "to": dict.fromkeys(plan["to"], 500)})


def test_a_topic_that_is_not_there_and_a_path_that_names_none(broker: Broker) -> None:
    given = job(broker, "x")["source"]
    for path in ("kafka://", "host/topic", "kafka://host"):
        with pytest.raises(InputError, match="names no topic"):
            Kafka.model_validate({**given, "path": path}).open()
    with pytest.raises(InputError, match="cannot be read"):
        Kafka.model_validate({**given, "properties": "/no/such/file"}).open()


def test_a_row_that_changes_nothing_repairs_no_bad_row() -> None:
    """A run that waits at a bad row goes on after a good change of its id: neither one to ignore nor a question."""
    options = Kafka(path="kafka://x/t", id="id", label="y", features=["a"])
    plans = [[Message(None, json.dumps({"id": 2, "a": "x", "y": 1, "op": "c"}).encode())]]

    class Topic(KafkaChanges):
        def __init__(self) -> None:
            self.name, self._options, self._reading = "topic", options, CLASSES

        def plan(self, after: Any) -> Any:
            number = 0 if after is None else after["number"] + 1
            return {"number": number} if number < len(plans) else None

        def place(self, plan: Any) -> str:
            return "here"

        def read(self, plan: Any, columns: Any) -> Any:
            yield self._rows(plans[plan["number"]])

    source = FollowedSource(options, Topic())
    source.waits = source.patient = True
    for op, held in (("-U", True), ("q", True), ("u", False)):
        plans.append([Message(None, json.dumps({"id": 2, "a": 1.0, "y": 1, "op": op}).encode())])
        assert sum(map(len, source.rows())) == (0 if held else len(plans))
        assert (source.held is not None) is held
