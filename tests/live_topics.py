"""Topics that change, and processes around a live source."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("deltalake")

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from pipelines.following import follow
from pipelines.running import loop
from pipelines.running.intake import RestartBudget
from pipelines.serving.application import serve
from tests.live_tables import LiveTable
from tests.unit.test_live_kafka import WITHOUT_IDS, Broker

# -- live topics -----------------------------------------------------------------------------------------------------
# Topics in memory behind the interface of the client library: partitions, retention, and topics that are made again.
#
# A topic has an id, and each partition a log with the offset of its oldest message. What a broker would say of a
# topic, partition or offset that is not there, these say, too.

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


# -- live processes --------------------------------------------------------------------------------------------------
# Processes around a run that follows, forked from one that has everything loaded: each may be killed at any moment.
#
# Forked, a process begins within a hundredth of a second, so that hundreds of kills take minutes.

#: Seconds without anything new after which a run ends.
IDLE = {"in_process": 0.05, "ray": 1.0}


def forked(target: Any, *arguments: Any) -> Any:
    """Start a process that calls ``target``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.loaded"])
    process = context.Process(target=target, args=arguments, daemon=False)
    process.start()
    return process


def drive(config: Mapping[str, Any], run: str) -> None:
    """Follow, or go on with a run that has begun, until nothing new comes; actors may be lost any number of times.

    The source may have come to another place meanwhile.
    """
    WITHOUT_IDS.add(config["source"]["path"].removeprefix("kafka://").partition("/")[0])
    loop.RestartBudget = lambda: RestartBudget(most=10**6)  # type: ignore[misc, assignment]
    given = run if (Path(run) / "config.yaml").exists() else config
    idle = IDLE[config["cluster"]["backend"]]
    follow(given, run, until_idle=idle, overrides=[f"source.path={config['source']['path']}"])


def change(table: LiveTable, seed: int, changes: int) -> None:
    """Change a table now and then."""
    table.go_on(seed)
    draw = random.Random(seed)
    for _ in range(changes):
        table.change()
        time.sleep(draw.uniform(0.0, 0.05))


def actors_of(driver: int, *kinds: str) -> list[psutil.Process]:
    """Return the actors of some kinds that a driver has on its Ray."""
    found = []
    with_actors = psutil.Process(driver).children(recursive=True) if psutil.pid_exists(driver) else []
    for process in with_actors:
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith(tuple(f"ray::{kind}" for kind in kinds)):
                found.append(process)
        except psutil.Error:
            continue
    return found


class BrokerProcess:
    """A broker of topics in a process, which takes them with it when it is killed; it has another address each time."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Have a process be the broker, without a topic."""
        self._here, there = multiprocessing.Pipe()
        self._process = forked(be_broker, there)
        self.servers: str = self._here.recv()
        WITHOUT_IDS.add(self.servers)

    def send(self, topic: str, messages: list[tuple[int, Any]]) -> None:
        """Have messages in a topic, given as keys and values."""
        self._here.send((topic, messages))
        assert self._here.recv() is None

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()


def be_broker(pipe: Any) -> None:
    """Be a broker, until nobody is there who sends."""
    broker = Broker()
    pipe.send(broker.servers)
    with contextlib.suppress(EOFError):
        while True:
            topic, messages = pipe.recv()
            for key, value in messages:
                broker.send(topic, key, value)
            broker.flush()
            pipe.send(None)


class Server:
    """``raydt serve`` of a run in a process, and a client that asks it the same rows all the time.

    Of the same number of updates every process gives the same answer, and one process never an older one.
    """

    def __init__(self, run: Path, rows: list[dict[str, Any]]) -> None:
        self._run, self._body = str(run), json.dumps({"rows": rows}).encode()
        self.answers: dict[int, Any] = {}  #: By the number of updates.
        self.wrong: list[str] = []
        self.asked = 0
        self._process: Any = None
        self._port, self._newest = 0, -1
        self._ended = threading.Event()
        self._client = threading.Thread(target=self._ask_on, daemon=True)
        self._client.start()

    def start(self) -> None:
        """Have a process answer."""
        with socket.socket() as place:
            place.bind(("127.0.0.1", 0))
            port = int(place.getsockname()[1])
        self._process = forked(serving, self._run, port)
        self._newest, self._port = -1, port

    @property
    def is_alive(self) -> bool:
        """Return True if a process answers, or is about to."""
        return self._process is not None and bool(self._process.is_alive())

    def kill(self) -> bool:
        """Kill the process; whether there was one."""
        there = self.is_alive
        if there:
            self._process.kill()
            self._process.join()
        return there

    def kill_loader(self) -> bool:
        """Kill the process that loads snapshots for the server; whether there was one."""
        loaders = psutil.Process(self._process.pid).children() if self.is_alive else []
        for loader in loaders:
            with contextlib.suppress(psutil.NoSuchProcess):
                loader.kill()
        return bool(loaders)

    def close(self) -> None:
        """End process and client."""
        self._ended.set()
        self._client.join()
        self.kill()

    def _ask_on(self) -> None:
        connection: HTTPConnection | None = None
        port = 0
        while not self._ended.wait(0.005):
            try:
                if connection is None or port != self._port:
                    if connection is not None:
                        connection.close()
                    port = self._port
                    connection = HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("POST", "/predict", self._body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer = json.loads(response.read())
            except (OSError, HTTPException):
                if connection is not None:
                    connection.close()
                connection = None
                continue
            if response.status != HTTPStatus.SERVICE_UNAVAILABLE:  # nothing to answer from yet
                self._check(port, response.status, answer)
        if connection is not None:
            connection.close()

    def _check(self, port: int, status: int, answer: dict[str, Any]) -> None:
        if status != HTTPStatus.OK:
            self.wrong.append(f"{status}: {answer}")
            return
        self.asked += 1
        update, given = answer["update"], [answer["predictions"], answer["probabilities"]]
        if self.answers.setdefault(update, given) != given:
            self.wrong.append(f"two answers after {update} updates")
        if port == self._port:
            if update < self._newest:
                self.wrong.append(f"{update} updates after {self._newest}")
            self._newest = update


def serving(run: str, port: int) -> None:
    """Answer once there is a run."""
    while not (Path(run) / "config.yaml").exists():
        time.sleep(0.02)
    os.nice(5)
    serve(run, port=port, every=0.05)
