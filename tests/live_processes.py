"""Processes around a run that follows, forked from one that has everything loaded: each may be killed at any moment.

Forked, a process begins within a hundredth of a second, so that hundreds of kills take minutes.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("deltalake")

import psutil

from pipelines.following import follow
from pipelines.running import loop
from pipelines.running.intake import RestartBudget
from pipelines.serving.server import serve
from raydt.learners import learners
from raydt.sessions.session import compile_kernels
from tests.live_tables import LiveTable
from tests.unit.test_live_kafka import WITHOUT_IDS, Broker

compile_kernels(learners()["fudyadt"])
pa.array([0])  # the first array has pyarrow import pandas, which takes as long as a short run

#: Seconds without anything new after which a run ends.
IDLE = {"in_process": 0.05, "ray": 1.0}


def forked(target: Any, *arguments: Any) -> Any:
    """Start a process that calls ``target``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
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
