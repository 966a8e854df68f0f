"""Whoever follows, changes the table, is its broker, answers or works on Ray is killed at random, and nothing shows.

A story is one table or topic and one run, whose processes are killed and started again. Whenever a driver is killed,
the newest checkpoint holds the rows of the table as it was at its version; whenever one has come to the end, the run is
in everything that it says the run that was never killed.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("deltalake")

from pipelines import replay
from pipelines.auditing import audit_run
from pipelines.following import follow
from pipelines.running.plans import PLANS
from pipelines.saved_runs import find_state
from pipelines.serving.application import SnapshotReader
from pipelines.serving.served import RequestTable
from raydt.errors import InputError, ModelFileError
from raydt.examples.updates import history_of_live
from raydt.keyed.packing import open_keys
from raydt.sessions.receipt_chain import Key
from raydt.sources.live.kafka import KafkaChanges
from tests.cases import open_state
from tests.live_tables import LiveTable
from tests.live_topics import BrokerProcess, Server, actors_of, change, drive, forked
from tests.unit.test_chapters import folders, rows
from tests.unit.test_follow import same
from tests.unit.test_requests import chain_of

#: What the servers are asked.
ASKED: list[dict[str, Any]] = [{"a": a / 3, "b": b / 2, "k": key} for a, key in enumerate("uvw") for b in range(2)]
#: Keys of the rows, where there is a model for each.
KEYS = "uvuwx"
#: Mean seconds between two kills of actors; in one process, of what a driver took that came to its end, at first.
BETWEEN = {"in_process": 0.3, "ray": 0.6}
#: On Ray the shards do the work.
AT_SHARDS = {"shards": 2, "memory_limit": 0}
#: Exit codes of a driver that was killed or ended, or had nothing more to do; the last one is Ray's while it starts.
ENDED = (0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM, signal.SIGTERM)
#: Ids of a story are below.
MOST_IDS = 50_000
#: Victims, by weight.
VICTIMS = {"driver": 4, "source": 1, "server": 1, "loader": 1}
ON_RAY = {"driver": 1, "actor": 20, "source": 2, "server": 2, "loader": 2}


class DeltaTold:
    """A Delta table, which a process of its own changes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._table, self._draw = LiveTable(folder / "table", seed), random.Random(seed)
        self._writer: Any = None
        self.source = {"kind": "delta", "path": self._table.path, "id": "id", "version": 0}

    def change(self) -> None:
        if not self._is_changing:
            self._writer = forked(change, self._table, self._draw.randrange(10**6), self._draw.randrange(1, 5))

    @property
    def _is_changing(self) -> bool:
        return self._writer is not None and bool(self._writer.is_alive())

    def kill(self, driver: Any, seconds: float) -> bool:
        """Kill who changes the table; whether somebody did."""
        there = self._is_changing
        if there:
            self._writer.kill()
        self.settle()
        return there

    def settle(self) -> None:
        """Wait until nothing changes."""
        if self._writer is not None:
            self._writer.join()

    def with_plans(self, plans: list[Any]) -> AbstractContextManager[Any]:
        """Check the plans of a run; whoever reads the table meanwhile makes the same ones anyway."""
        assert [plan["version"] for plan in plans] == [*range(len(plans))]
        return nullcontext()

    def is_all(self, plan: Any) -> bool:
        return bool(plan["version"] == self._table.version)

    def live(self, plan: Any) -> dict[int, tuple[float, float, str]]:
        return {id: (row["a"], row["b"], row["y"]) for id, row in self._table.live(plan["version"]).items()}


class KafkaTold:
    """A topic of three partitions, which this process fills: the broker is one of the library's, and in memory."""

    def __init__(self, broker: BrokerProcess, topic: str, seed: int, key: str | None = None) -> None:
        self._broker, self._topic, self._draw, self._key = broker, topic, random.Random(seed), key
        self._there: dict[int, dict[str, Any]] = {}
        self._log: dict[int, list[dict[str, Any]]] = {0: [], 1: [], 2: []}  # as Broker.send chooses
        self._next = 0
        self.change()

    @property
    def source(self) -> dict[str, Any]:
        path = f"kafka://{self._broker.servers}/{self._topic}"
        columns = {"id": "id", "features": ["a", "b"], "label": "y", "text": ["y", "k"], "key": self._key}
        return {"kind": "kafka", "path": path, **columns}

    def change(self) -> None:
        draw, sent = self._draw, list[tuple[int, Any]]()
        for _ in range(draw.randrange(1, 40)):
            op = draw.choice("ccud") if self._there else "c"
            id = self._next if op == "c" else draw.choice([*self._there])
            self._next += op == "c"
            row = {
                "op": op,
                "id": id,
                "a": draw.random(),
                "b": draw.random(),
                "y": draw.choice("pqr"),
                "k": KEYS[id % 5],
            }
            if op == "d":
                del self._there[id]
            else:
                self._there[id] = row
            self._log[id % 3].append(row)
            sent.append((id, row))
        self._broker.send(self._topic, sent)

    def kill(self, driver: Any, seconds: float) -> bool:
        """Kill the broker; who follows waits, is ended or killed, and goes on with another that has the same topic."""
        self._broker.kill()
        driver.join(seconds)
        self._draw.choice([driver.kill, driver.terminate])()
        driver.join()
        assert driver.exitcode in ENDED, driver.exitcode
        self._broker.start()
        self._broker.send(self._topic, [(row["id"], row) for log in self._log.values() for row in log])
        return True

    def settle(self) -> None:
        """Nothing changes meanwhile."""

    def with_plans(self, plans: list[Any]) -> AbstractContextManager[Any]:
        """Check the plans of a run, and have whoever reads the topic make them again: the order follows from them."""
        assert all(before["to"] == after["from"] for before, after in pairwise(plans))
        following = dict(zip([None, *(json.dumps(plan["to"]) for plan in plans)], plans, strict=False))

        def again(_: KafkaChanges, after: Any) -> Any:
            return following.get(None if after is None else json.dumps(after["to"]))

        return patch.object(KafkaChanges, "plan", again)

    def is_all(self, plan: Any) -> bool:
        return all(plan["to"].get(str(p), 0) == len(log) for p, log in self._log.items())

    def live(self, plan: Any) -> dict[int, tuple[float, float, str]]:
        found = {}
        for p, log in self._log.items():
            for row in log[: plan["to"].get(str(p), 0)]:
                found.pop(row["id"], None)
                if row["op"] != "d":
                    found[row["id"]] = (row["a"], row["b"], row["y"])
        return found


class Story:
    """One run, and the processes around it."""

    def __init__(self, folder: Path, told: Any, seed: int, backend: str = "in_process") -> None:
        self.folder, self.told, self.draw, self.backend = folder, told, random.Random(seed), backend
        self.run, self.kills = folder / "run", Counter[str]()
        self.compared = Counter[str]()
        self._keyed = told.source.get("key") is not None
        self._asked = ASKED if self._keyed else [{"a": row["a"], "b": row["b"]} for row in ASKED]
        self.server = Server(self.run, self._asked)
        self._between = BETWEEN[backend]
        self._victims = VICTIMS if backend == "in_process" else ON_RAY
        self._chapters, self._batch = self.draw.choice([None, 12, 30, 70]), self.draw.choice([3, 8, 64])

    @property
    def _place(self) -> str:
        return f"source.path={self.told.source['path']}"

    def config(self, backend: str, chapters: int | None) -> dict[str, Any]:
        return {
            "source": self.told.source,
            "stream": {"warmup": 20 if self.told.source["kind"] == "delta" else 0},
            "learner": {"kind": "fudyadt", "epsilon": 0.2},
            "cluster": {"backend": backend, "batch_size": self._batch, **(AT_SHARDS if backend == "ray" else {})},
            "checkpoint": {"every_updates": 16, "every_seconds": None},
            "output": {"report": False, "metrics_every": 10, "predictions": True},
            **({} if chapters is None else {"follow": {"chapter_updates": chapters, "keep": None}}),
        }

    def go_on(self, kills: int) -> Counter[str]:
        """Kill so many processes, and compare at the end of everything; AssertionError if anything shows."""
        try:
            while self.kills.total() < kills or not self.compared["ends"]:
                self.told.change()
                if not self.server.is_alive:
                    self.server.start()
                driver = forked(drive, self.config(self.backend, self._chapters), str(self.run))
                if self._kill_some(driver, kills):
                    self._require_rows()
                else:
                    self._require_end(driver)
                assert not self.server.wrong, self.server.wrong[:3]
        finally:
            self.server.close()
            self.told.settle()
        with self.told.with_plans(plans_of(self.run)):
            same(self._ended(), replay(self.config("in_process", None), self.folder / "whole"))
        return self.kills

    def _kill_some(self, driver: Any, kills: int) -> bool:
        """Kill at random moments until the driver is no more; whether it was killed."""
        began = time.monotonic()
        while self.kills.total() < kills:
            driver.join(self.draw.expovariate(1 / self._between))
            if not driver.is_alive():
                if self.backend == "in_process":  # so that any machine kills some drivers, and not all
                    self._between = time.monotonic() - began
                return False
            self.told.change()
            victim = self.draw.choices([*self._victims], [*self._victims.values()])[0]
            self.kills[victim] += self._kill(victim, driver)
            if not driver.is_alive() and victim in ("driver", "source"):
                return True
        driver.join(120)
        return False

    def _kill(self, victim: str, driver: Any) -> bool:
        if victim == "driver":
            driver.kill()
            driver.join()
            return True
        if victim == "source":
            return bool(self.told.kill(driver, self.draw.uniform(0.0, 2 * BETWEEN[self.backend])))
        if victim in ("server", "loader"):
            return bool({"server": self.server.kill, "loader": self.server.kill_loader}[victim]())
        actors = actors_of(driver.pid, "Coordinator", "FeatureShard", "KeyGroups")
        if actors:
            self.draw.choice(actors).kill()
        return bool(actors)

    def _require_rows(self) -> Any:
        """Compare the newest checkpoint, if it is at the end of a plan, with the rows there; its plan."""
        try:
            folder = find_state(self.run).folder
            saved: Any = open_keys(folder.root) if self._keyed else open_state(folder)[0]
        except (InputError, ModelFileError):
            return None  # there is none yet
        step = saved.components["stream"]["source"]["step"]
        if step is None or step["rows"] is None:
            return None
        models: Any = map(saved.saved, saved.keys()) if self._keyed else [saved]
        assert {id: row for model in models for id, row in rows_of(model)} == self.told.live(step["plan"]), step
        self.compared["checkpoints"] += 1
        return step["plan"]

    def _require_end(self, driver: Any) -> None:
        """Compare a run that has come to its end, if nothing has come meanwhile, with one that was not killed."""
        assert driver.exitcode == 0, (self.run / "log.jsonl").read_text()[-3000:]
        self.told.settle()
        plan = self._require_rows()
        if plan is None or not self.told.is_all(plan):
            return
        twin = self.folder / "twin"
        begun = twin if (twin / "config.yaml").exists() else self.config("in_process", self._chapters)
        one = self._ended()
        with self.told.with_plans(plans_of(self.run)):
            same(one, follow(begun, twin, until_idle=0.0, overrides=[self._place]))
        chapters, others = (folders(run) or [run] for run in (self.run, twin))
        assert [folder.name for folder in chapters[1:]] == [folder.name for folder in others[1:]]
        assert predictions(chapters) == predictions(others)  # metrics have a row of each end
        assert requests(self.run) == requests(twin)
        report = audit_run(chapters[-1])
        assert report.conformance == "holds", report
        self._require_answer(one, twin)
        self.compared["ends"] += 1

    def _ended(self) -> Any:
        """Return the result of the run, which has come to its end."""
        return follow(self.run, until_idle=0.0, overrides=["cluster.backend=in_process", self._place])

    def _require_answer(self, one: Any, twin: Path) -> None:
        """The server comes to answer as the model of the twin."""
        reader = SnapshotReader(twin)
        assert reader.look()
        served: Any = reader.current
        table = RequestTable(
            {name: [row[name] for row in self._asked] for name in self._asked[0]}, len(self._asked), single=False
        )
        expected = served.answer(table)
        update = one.summary["updates"]
        assert expected["update"] == update
        if not self.server.is_alive:
            self.server.start()
        until = time.monotonic() + 30
        while update not in self.server.answers and time.monotonic() < until:
            time.sleep(0.01)
        assert self.server.answers[update] == [expected["predictions"], expected["probabilities"]]


def rows_of(model: Any) -> Iterator[tuple[int, tuple[float, float, str]]]:
    """Yield the live rows of a state by id, with their labels."""
    live = history_of_live(model.arrays, model.groups, model.features)
    for id, (a, b), y in zip(live.id.tolist(), live.X.tolist(), live.y.tolist(), strict=True):
        yield id, (a, b, model.classes[y])


def plans_of(run: Path) -> list[Any]:
    """The plans of a run, or of all its chapters."""
    files = (one / PLANS for one in folders(run) or [run])  # a chapter may be within a plan of the one before
    steps = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
    assert [step["number"] for step in steps] == [*range(len(steps))]
    return [step["plan"] for step in steps]


def predictions(places: list[Path]) -> list[dict[str, Any]]:
    """Rows of predictions, those of one key after those of another: shards of keys answer in turn."""
    return sorted(rows(places, "predictions"), key=lambda row: row.get("key", ""))


def requests(run: Path) -> Sequence[Any]:
    """All requests that the chain of a run has, each with its number, in order; where receipts end is not compared."""
    key = Key.read(run / "receipts.key")
    ids = {key.hash(id): id for id in range(MOST_IDS)}
    entries = chain_of(run)
    return sorted(
        (at, ids[one]) for entry in entries for one, at in zip(entry["deleted"], entry["source"]["at"], strict=True)
    )


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    broker = BrokerProcess()
    yield broker
    broker.kill()


def one_story(told: Any, seed: int, kills: int, backend: str = "in_process") -> Counter[str]:
    """A story in a folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp())
    try:
        story = Story(folder, told(folder), seed, backend)
        killed = story.go_on(kills)
        print(seed, dict(killed), dict(story.compared), story.server.asked)
        return killed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_kills_around_a_table_do_not_show() -> None:
    one_story(lambda folder: DeltaTold(folder, 0), 0, 5)


def test_kills_around_a_topic_do_not_show(broker: BrokerProcess) -> None:
    one_story(lambda folder: KafkaTold(broker, "daily", 0), 0, 4)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 105))
def test_kills_around_any_table_do_not_show(seed: int) -> None:
    one_story(lambda folder: DeltaTold(folder, seed), seed, 40)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 105))
def test_kills_around_any_topic_do_not_show(broker: BrokerProcess, seed: int) -> None:
    one_story(lambda folder: KafkaTold(broker, f"nightly-{seed}", seed), seed, 40)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(110, 112))
def test_kills_around_any_topic_of_keys_do_not_show(broker: BrokerProcess, seed: int) -> None:
    one_story(lambda folder: KafkaTold(broker, f"keys-{seed}", seed, "k"), seed, 40)


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(200, 203))
@pytest.mark.parametrize("source", ["table", "topic", "topic by key"])
def test_kills_on_ray_do_not_show(broker: BrokerProcess, seed: int, source: str) -> None:
    if source == "table":
        one_story(lambda folder: DeltaTold(folder, seed), seed, 30, "ray")
    else:
        key = "k" if source == "topic by key" else None
        one_story(lambda folder: KafkaTold(broker, f"ray-{key}-{seed}", seed, key), seed, 30, "ray")
