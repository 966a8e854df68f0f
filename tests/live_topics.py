"""Topics in memory behind the interface of the client library: partitions, retention, and topics that are made again.

A topic has an id, and each partition a log with the offset of its oldest message. What a broker would say of a topic,
partition or offset that is not there, these say, too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

PARTITION_EOF, RESET, ALL_DOWN, UNKNOWN_TOPIC, OUT_OF_TIME = -191, -140, -187, 3, -185


class KafkaError(Exception):
    """An error with a code, as the library has it."""

    _PARTITION_EOF, _AUTO_OFFSET_RESET, _ALL_BROKERS_DOWN = PARTITION_EOF, RESET, ALL_DOWN
    UNKNOWN_TOPIC_OR_PART = UNKNOWN_TOPIC

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self._code, self._said = code, said

    def code(self) -> int:
        return self._code

    def str(self) -> str:
        return self._said


class KafkaException(Exception):
    """The exception of the library."""


@dataclass
class TopicPartition:
    """A partition and an offset."""

    topic: str
    partition: int
    offset: int = -1001


@dataclass
class Message:
    """A message, or an error in the place of one."""

    _partition: int
    _offset: int
    _key: bytes | None = None
    _value: bytes | None = None
    _error: KafkaError | None = None

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> KafkaError | None:
        return self._error


@dataclass
class Log:
    """A partition: messages from the offset ``begin`` on."""

    begin: int = 0
    messages: list[Message] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.begin + len(self.messages)


class Topic:
    """A topic with an id, and its partitions."""

    _ids = itertools.count(1)

    def __init__(self, partitions: int) -> None:
        self.id = f"topic-{next(self._ids)}"
        self.logs = [Log() for _ in range(partitions)]

    def send(self, partition: int, key: Any, value: Any) -> None:
        """Append a message; a value that is bytes or None stays as it is."""
        log = self.logs[partition]
        text = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        log.messages.append(Message(partition, log.end, json.dumps(key).encode(), text))

    def expire(self, partition: int, before: int) -> None:
        """Remove the messages of a partition before an offset."""
        log = self.logs[partition]
        gone = max(0, min(before, log.end) - log.begin)
        log.begin, log.messages = log.begin + gone, log.messages[gone:]


class Cluster:
    """Brokers with topics; :meth:`library` gives the modules of a client that reads there."""

    def __init__(self, *, tells_ids: bool = True) -> None:
        self.topics: dict[str, Topic] = {}
        self.down = False
        self._tells_ids = tells_ids

    def library(self, name: str, extra: str) -> Any:
        """Return a module of the client; in the place of :func:`raydt.sources.live.base.library`."""
        if name == "confluent_kafka.admin":
            return SimpleNamespace(AdminClient=lambda given: Admin(self, self._tells_ids))
        return SimpleNamespace(
            Consumer=lambda given: Consumer(self),
            KafkaError=KafkaError,
            KafkaException=KafkaException,
            TopicPartition=TopicPartition,
            TopicCollection=lambda names: list(names),
        )

    def require(self) -> None:
        """Raise the error of brokers that do not answer, if they do not."""
        if self.down:
            raise KafkaException(KafkaError(OUT_OF_TIME, "Local: Timed out"))


class Admin:
    """The client that describes topics."""

    def __init__(self, cluster: Cluster, tells_ids: bool) -> None:
        self._cluster, self._tells_ids = cluster, tells_ids

    def describe_topics(self, names: Sequence[str], request_timeout: float = 60.0) -> dict[str, Any]:
        def result() -> Any:
            self._cluster.require()
            found = self._cluster.topics.get(names[0])
            if found is None:
                raise KafkaException(KafkaError(UNKNOWN_TOPIC, "Broker: Unknown topic or partition"))
            return SimpleNamespace(topic_id=found.id if self._tells_ids else "A" * 22)

        return {names[0]: SimpleNamespace(result=result)}


class Consumer:
    """A consumer of assigned partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._name = cluster, ""
        self._at: dict[int, int] = {}
        self._told: set[int] = set()  # partitions whose end or error was told at this offset
        self._known: dict[int, tuple[int, int]] = {}

    def list_topics(self, topic: str, timeout: float = -1.0) -> Any:
        self._cluster.require()
        found = self._cluster.topics.get(topic)
        error = None if found else KafkaError(UNKNOWN_TOPIC, "Broker: Unknown topic or partition")
        told = SimpleNamespace(error=error, partitions=dict(enumerate(found.logs if found else [])))
        return SimpleNamespace(topics={topic: told})

    def get_watermark_offsets(self, place: TopicPartition, timeout: float = -1.0, cached: bool = False) -> Any:
        if cached:
            return self._known.get(place.partition, (-1001, -1001))
        self._cluster.require()
        log = self._log(place.topic, place.partition)
        if log is None:
            raise KafkaException(KafkaError(UNKNOWN_TOPIC, "Broker: Unknown topic or partition"))
        self._known[place.partition] = (log.begin, log.end)
        return log.begin, log.end

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._at, self._told = {one.partition: one.offset for one in places}, set()
        self._name = places[0].topic if places else ""

    def consume(self, most: int, timeout: float = -1.0) -> list[Message]:
        found: list[Message] = []
        for p, at in self._at.items():
            log = None if self._cluster.down else self._log(self._name, p)
            if self._cluster.down or (p in self._told and log is not None and at == log.end):
                continue
            if log is None or not log.begin <= at <= log.end:
                code = UNKNOWN_TOPIC if log is None else RESET
                found += [] if p in self._told else [Message(p, at, _error=KafkaError(code, "no such offset"))]
                self._told.add(p)
                continue
            self._known[p] = (log.begin, log.end)
            taken = log.messages[at - log.begin :][: max(0, most - len(found))]
            self._at[p] = at = at + len(taken)
            found += taken
            self._told.discard(p)
            if at == log.end:
                self._told.add(p)
                found.append(Message(p, at, _error=KafkaError(PARTITION_EOF, "end")))
        return found

    def _log(self, topic: str, partition: int) -> Log | None:
        found = self._cluster.topics.get(topic)
        return found.logs[partition] if found is not None and partition < len(found.logs) else None
