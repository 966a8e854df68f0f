"""A Delta table that is followed, and faults of a live source."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake")

import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.auditing import audit_run
from pipelines.following import follow
from pipelines.saved_runs import find_state
from raydt.errors import InputError
from raydt.exchange.messages import injected
from raydt.messages import Message, message
from raydt.sources.divided import open_source
from raydt.sources.live.base import Part, Plan, SourceAwayError
from raydt.sources.live.delta import Delta, DeltaChanges
from raydt.streams.deletion_log import Changelog
from tests.cases import open_state
from tests.live_tables import COLUMNS, LiveTable, StoryTable, rows_of
from tests.refusals import refused
from tests.storage_faults import Gone, few_in_memory
from tests.unit.test_follow import job, same
from tests.unit.test_requests import said
from tests.volume import by_night

# -- live delta ------------------------------------------------------------------------------------------------------
# After the changes of version v, the live rows are those of the table at v, whatever changed it.


def options(table: LiveTable, **given: Any) -> Delta:
    return Delta(path=table.path, id="id", label="y", features=["a", "b"], version=given.pop("version", 0), **given)


def apply(live: dict[int, Any], batch: Any) -> None:
    for row in batch.to_pylist():
        op = row.pop("_op")
        assert (row["id"] in live) == (op != "insert"), (op, row)
        if op == "delete":
            del live[row["id"]]
        else:
            live[row["id"]] = row


def follow_delta(table: LiveTable) -> None:
    """Read from version 0 to the newest, and compare after each."""
    source, live, plan = options(table).open(), dict[int, Any](), None
    while (plan := source.plan(plan)) is not None:
        for batch, flaws in source.read(plan, [*COLUMNS, "_op"]):
            assert not flaws
            apply(live, batch)
        assert live == table.live(plan["version"]), plan


def some_changes(folder: Path, seed: int, changes: int, feed: bool) -> None:
    table = LiveTable(folder / str(seed), seed, feed=feed)
    for _ in range(changes):
        table.change()
    follow_delta(table)


def one_story(folder: Path, seed: int) -> None:
    """Read a table as it lives, a few versions at a time, up to what cannot be read; compare whenever all is read."""
    table = StoryTable(folder / str(seed), seed)
    options = Delta(path=table.path, id="id", label="y", features=["a", "d"], version=0)
    source, live, plan = options.open(), dict[int, Any](), None
    for part in range(4):
        for _ in range(table.draw.randrange(1, 5)):
            table.step()
        if table.draw.random() < 0.3:
            table.purge()
        if part == 3:
            table.end()
        if table.draw.random() < 0.5:  # as a run that was stopped meanwhile
            with suppress(InputError):
                source = options.open()
        try:
            while (step := source.plan(plan)) is not None:
                for batch, flaws in source.read(step, [*table.columns, "_op"]):
                    assert not flaws
                    apply(live, batch)
                plan = step
        except InputError as error:
            table.require_refusal(error)
            return
        assert not table.must, table.told
        assert plan == {"version": table.version} | ({"snapshot": True} if not plan["version"] else {})
        assert live == table.live(), table.told
        table.read()


@pytest.mark.parametrize("seed", by_night(range(6), range(100, 200)))
def test_a_story_of_a_table_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    one_story(tmp_path, seed)


@pytest.mark.parametrize("feed", [True, False])
def test_live_rows_are_those_of_every_version(tmp_path: Path, feed: bool) -> None:
    table = LiveTable(tmp_path / "t", feed=feed)
    table.append()
    for change in ("merge", "overwrite", "compact", "update", "delete"):
        getattr(table, change)()
    follow_delta(table)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_live_rows_after_random_changes(tmp_path: Path, seed: int) -> None:
    some_changes(tmp_path, seed, 12, seed % 2 == 0)


def test_an_unchanged_row_of_an_overwrite_is_no_update(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    write_deltalake(table.path, table.at(0), mode="overwrite")
    assert DeltaTable(table.path).version() == 1
    rows = list(open_source(options(table)).rows())
    assert sum(map(len, rows)) == 40


def test_a_stream_goes_on_after_a_pause_and_from_its_state(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    source = open_source(options(table))
    stream = Changelog(warmup=10).make(source)
    assert sum(len(batch) for batch in stream.batches(7)) == 40
    state = stream.state()
    table.delete()
    after = [batch.id.tolist() for batch in stream.batches(100)]
    assert after
    assert not list(stream.batches(100))
    again = Changelog(warmup=10).make(open_source(options(table)))
    again.restore(state)
    assert [batch.id.tolist() for batch in again.batches(100)] == after
    assert again.state() == stream.state()


def test_an_added_column_is_no_feature_and_missing_values_stay_out(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    more = rows_of(table.rng, [100]).append_column("new", [[1.0]])
    write_deltalake(table.path, more, mode="append", schema_mode="merge")
    follow_delta(table)
    settled = Delta(path=table.path, id="id", label="y", exclude=["new"]).settled()
    assert isinstance(settled, Delta)
    assert (settled.version, settled.features) == (1, ["a", "b"])


def test_history_that_is_gone_is_one_clear_error(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.update()
    table.overwrite()
    source = options(table).open()
    DeltaTable(table.path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(InputError, match="changes before version 0 need are gone"):
        list(source.read({"version": 0, "snapshot": True}, COLUMNS))


def test_a_table_that_is_away_is_told_from_one_that_was_replaced(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.update()
    source = options(table).open()
    Path(table.path).rename(tmp_path / "away")
    with pytest.raises(SourceAwayError):
        list(source.read({"version": 1}, [*COLUMNS, "_op"]))
    with pytest.raises(InputError, match="no Delta table"):
        options(table).open()


def test_another_table_in_its_place_is_not_read_on(tmp_path: Path) -> None:
    """Its versions have the same numbers."""
    table = LiveTable(tmp_path / "t")
    source = options(table).open()
    plan = source.plan(None)
    table.append()
    plan = source.plan(plan)
    assert plan == {"version": 1}
    shutil.rmtree(table.path)
    other = LiveTable(tmp_path / "t", seed=1)
    for _ in range(3):
        other.append()
    with refused("live.other_table", InputError, version=1):
        source.plan(plan)


@pytest.mark.parametrize("feed", [True, False])
def test_a_dropped_column_is_an_error_and_not_a_source_that_is_away(tmp_path: Path, feed: bool) -> None:
    """Else a run would wait for ever."""
    table = LiveTable(tmp_path / "t", feed=feed)
    source = open_source(options(table))
    assert sum(map(len, source.rows())) == 40
    write_deltalake(table.path, table.at(0).drop_columns(["b"]), mode="overwrite", schema_mode="overwrite")
    with refused("live.no_column", InputError, version=1, column="'b'"):
        list(source.rows(40))


@pytest.mark.parametrize("feed", [True, False])
def test_a_version_of_other_types_is_an_error(tmp_path: Path, feed: bool) -> None:
    table = LiveTable(tmp_path / "t", feed=feed)
    source = open_source(options(table))
    assert sum(map(len, source.rows())) == 40
    texts = table.at(0).set_column(1, "a", [["x"] * 40])
    for rows in (texts, table.at(0)):
        write_deltalake(table.path, rows, mode="overwrite", schema_mode="overwrite")
    with refused("live.other_type", InputError, version=1):
        list(source.rows(40))


def test_the_folder_of_a_table_is_no_parquet_files(tmp_path: Path) -> None:
    from raydt.sources.options import ParquetFiles

    table = LiveTable(tmp_path / "t")
    with pytest.raises(InputError, match="kind: delta"):
        open_source(ParquetFiles(path=table.path, id="id"))


# -- live faults -----------------------------------------------------------------------------------------------------
# A live source that goes away in the middle of anything, a driver that is gone anywhere, bad rows: nothing shows.
#
# The source is a list in memory behind the interface of live sources, or a Delta table on the disk.

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


@pytest.mark.parametrize("seed", by_night(range(2), range(100, 150)))
def test_faults_of_a_source_in_memory_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    one_in_memory(tmp_path, monkeypatch, seed)


@pytest.mark.parametrize("seed", by_night(range(1), range(100, 140)))
def test_faults_of_a_table_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    one_table(tmp_path, monkeypatch, seed)
