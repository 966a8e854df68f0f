"""A live source that goes away in the middle of anything, a driver that is gone anywhere, bad rows: nothing shows.

The source is a list in memory behind the interface of live sources, or a Delta table on the disk.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")

from deltalake import write_deltalake

from pipelines.auditing import audit_run
from pipelines.following import follow
from pipelines.saved_runs import find_state, open_state
from raydt.exchange.messages import injected
from raydt.messages import Message, message
from raydt.sources.live.base import Part, Plan, SourceAwayError
from raydt.sources.live.delta import Delta, DeltaChanges
from tests.cut_runs import Gone
from tests.few_hashes import few_in_memory
from tests.live_tables import LiveTable, rows_of
from tests.unit.test_follow import job, same
from tests.unit.test_requests import said

#: Where a driver may be gone.
POINTS = ("follow.planned", "driver.recorded", "requests.appended", "run.before_compaction", "run.before_summary")

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.float64()), ("b", pa.float64()), ("y", pa.string())])


@pytest.fixture(scope="module", autouse=True)
def _few_hashes_in_memory() -> Iterator[None]:
    """Hashes of deleted ids go to the file at once, and ids fall on few bits of the filter."""
    with few_in_memory():
        yield


class InMemory:
    """Changes in memory, in plans of any length; satisfies :class:`raydt.sources.live.base.LiveSource`."""

    name, unit = "memory", "rows"

    def __init__(self, seed: int, rows: int = 160) -> None:
        draw, there = random.Random(seed), set[int]()
        self.rows: list[dict[str, Any]] = []
        self.live: dict[int, dict[str, Any]] = {}  # the good ones of those that are there
        self.bad: dict[int, bool] = {}  # rows that cannot be used, and whether the source says so
        for number in range(rows):
            row = {"id": number, "a": draw.random(), "b": draw.random(), "y": draw.choice("pqr"), "_op": "insert"}
            if number > 30 and there and draw.random() < 0.4:
                row |= {"id": draw.choice(sorted(there)), "_op": draw.choice(["delete", "delete", "update"])}
            elif number > 30 and draw.random() < 0.2:
                row |= {"id": draw.choice([one for one in range(number) if one not in there] or [number])}
            there.add(row["id"])
            self.live.pop(row["id"], None)
            if row["_op"] == "delete":
                there.remove(row["id"])
            elif number > 30 and draw.random() < 0.2:
                self.bad[number] = draw.random() < 0.5
                row |= {} if self.bad[number] else {"y": None}
            else:
                self.live[row["id"]] = row
            self.rows.append(row)
        self.cuts = random.Random(seed + 1)

    def schema(self) -> pa.Schema:
        return SCHEMA.append(pa.field("_op", pa.string()))

    def describe(self) -> dict[str, Any]:
        return {"source": "memory"}

    def begin(self) -> dict[str, Any]:
        return {"version": 0}

    def plan(self, after: Plan | None) -> Plan | None:
        begin = 0 if after is None else after["to"]
        to = min(len(self.rows), begin + self.cuts.randrange(1, 24))
        return {"from": begin, "to": to, "time": float(to)} if to > begin else None

    def read(self, plan: Plan, columns: Sequence[str]) -> Iterator[Part]:
        rows = self.rows[plan["from"] : plan["to"]]
        flaws: dict[int, Message] = {
            at: message("live.no_row", text="?") for at in range(len(rows)) if self.bad.get(plan["from"] + at)
        }
        yield pa.RecordBatch.from_pylist(rows, schema=self.schema()).select([*columns]), flaws

    def place(self, plan: Plan) -> str:
        return f"{plan['from']}-{plan['to'] - 1}"

    def behind(self, after: Plan | None) -> int:
        return len(self.rows) - (0 if after is None else after["to"])


class Flaky:
    """A source that does not answer one time in three: a plan, or a read in the middle."""

    def __init__(self, source: Any, draw: random.Random) -> None:
        self._source, self._draw = source, draw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def plan(self, after: Plan | None) -> Plan | None:
        self._answer()
        found: Plan | None = self._source.plan(after)
        return found

    def read(self, plan: Plan, columns: Sequence[str]) -> Iterator[Part]:
        for batch, flaws in self._source.read(plan, columns):
            cut = self._draw.randrange(batch.num_rows + 1)
            yield batch.slice(0, cut), {at: said for at, said in flaws.items() if at < cut}
            self._answer()
            yield batch.slice(cut), {at - cut: said for at, said in flaws.items() if at >= cut}

    def _answer(self) -> None:
        if self._draw.random() < 1 / 3:
            raise SourceAwayError("no answer")


def killing(draw: random.Random) -> Any:
    """Have the driver be gone now and then, at any point."""

    def handler(name: str) -> None:
        if name in POINTS and draw.random() < 0.08:
            raise Gone

    return handler


def followed_through(given: dict[str, Any], run: Path, seed: int) -> Any:
    """Follow to the end, whatever happens in between."""
    draw, config = random.Random(seed), Any
    with injected(killing(draw)):
        for _ in range(200):
            config = run if (run / "config.yaml").exists() else given
            try:
                return follow(config, run, until_idle=0.0)
            except Gone:
                continue
    raise AssertionError("the driver is gone for good")


def opened_by(monkeypatch: pytest.MonkeyPatch, source: Any) -> None:
    """Have the config of a Delta table open another source."""
    monkeypatch.setattr(Delta, "open", lambda self, *_: source(self))
    monkeypatch.setattr("pipelines.running.intake.AWAY", (0.0, 0.001))


def one_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    memory = InMemory(seed)
    given = job(LiveTable(folder / "table"), stream={"on_error": "skip"}, source={"label": "y", "features": ["a", "b"]})
    opened_by(monkeypatch, lambda options: memory)
    whole = follow(given, folder / "whole", until_idle=0.0)
    plans = (folder / "whole" / "plans.jsonl").read_bytes()
    draw = random.Random(seed)
    opened_by(monkeypatch, lambda options: Flaky(memory, draw))
    memory.cuts = random.Random(seed + 1)
    faulty = followed_through(given, folder / "faulty", seed)
    assert whole.summary["skipped"] == len(memory.bad) == faulty.summary["skipped"]
    assert whole.summary["active"] == len(memory.live)
    same(whole, faulty)
    state = open_state(find_state(folder / "faulty").folder)[0]
    assert sorted(state.arrays["id"].tolist()) == sorted(memory.live)
    if (folder / "faulty" / "plans.jsonl").read_bytes() == plans:  # else receipts end elsewhere
        assert said(folder / "faulty") == said(folder / "whole")
    asked = [(id, at) for entry in said(folder / "faulty") for id, at in entry["deleted"].items()]
    assert sorted(asked) == sorted((id, at) for entry in said(folder / "whole") for id, at in entry["deleted"].items())


def one_table(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    table = LiveTable(folder / "table", seed)
    bad = rows_of(table.rng, [900, 901, 902])
    write_deltalake(table.path, bad.set_column(3, "y", pa.nulls(3, pa.string())), mode="append")
    for _ in range(4):
        table.change()
        table.spoil()
    given, draw = job(table, stream={"on_error": "skip"}), random.Random(seed)
    whole = follow(given, folder / "whole", until_idle=0.0)
    opened_by(monkeypatch, lambda options: Flaky(DeltaChanges(options), draw))
    faulty = followed_through(given, folder / "faulty", seed)
    monkeypatch.undo()
    same(whole, faulty)
    assert said(folder / "faulty") == said(folder / "whole")
    report = audit_run(folder / "faulty")
    good = sum(row["y"] is not None for row in table.live().values())
    assert (report.conformance, report.checked["rows_of_the_table"]) == ("holds", whole.summary["active"])
    assert whole.summary["active"] == good


@pytest.mark.parametrize("seed", range(2))
def test_faults_of_a_source_in_memory_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    one_in_memory(tmp_path, monkeypatch, seed)


def test_faults_of_a_table_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_table(tmp_path, monkeypatch, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 200))
def test_faults_in_memory_anywhere_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    one_in_memory(tmp_path, monkeypatch, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 140))
def test_faults_of_tables_anywhere_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    one_table(tmp_path, monkeypatch, seed)
