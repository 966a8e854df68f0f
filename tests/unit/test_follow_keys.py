"""Runs by key that follow a live source, and audits against the table."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("deltalake")

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

import pipelines
from pipelines import replay
from pipelines.auditing import audit_run, verify_receipts, verify_run
from pipelines.cli import cli
from pipelines.following import CHECKED, compare_with_table, follow
from pipelines.histories import last_of
from pipelines.purging.steps import purge
from pipelines.receipts import ReceiptFile
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import load_model
from pipelines.serving.application import SnapshotReader
from pipelines.serving.served import RequestTable, ServedModel
from pipelines.updating import update
from pipelines.whereabouts import verify_erasure
from raydt.audits.recorded_tree import AuditReport
from raydt.examples.updates import history_of_live
from raydt.exchange.messages import injected
from raydt.keyed.groups import Key
from raydt.messages import message
from raydt.sources.live import kafka, partitions
from raydt.streams.base import Replay
from tests.keyed_runs import of_keys
from tests.live_tables import FEED, LiveTable
from tests.refusals import findings
from tests.small_tables import KEYS, TYPES, ChangingTable, written
from tests.storage_faults import Gone, at
from tests.unit.test_follow import changed, job
from tests.unit.test_live_kafka import Broker
from tests.unit.test_requests import said

# -- follow keys -----------------------------------------------------------------------------------------------------
# Runs that follow a topic or a table with a model for each key: cut anywhere, in chapters, updated, purged, served.


@pytest.fixture(scope="module")
def broker() -> Broker:
    return Broker()


class Topic:
    """A topic that tells the changes of a table, and the jobs that read it."""

    def __init__(self, broker: Broker, name: str, table: ChangingTable) -> None:
        self.broker, self.name, self.table = broker, name, table
        self.send(*table.log)

    def send(self, *messages: dict[str, Any]) -> None:
        for change in messages:
            self.broker.send(self.name, 0, change)  # into one partition: the order counts
        self.broker.flush()

    def job(self, **given: Any) -> dict[str, Any]:
        path = f"kafka://{self.broker.servers}/{self.name}"
        return self._job({"kind": "kafka", "path": path, "text": ["shop", "s", "y"]}, given)

    def job_of_file(self, folder: Path, **given: Any) -> dict[str, Any]:
        path = str(self.table.file(folder / "effects.arrow"))
        return self._job({"kind": "arrow", "path": path, "op": "op"}, {"stream": {"model": "changelog"}, **given})

    def _job(self, source: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        return {
            "source": self.table.options(**source),
            "learner": {"kind": "fudyadt", "epsilon": 0.2},
            "cluster": {"backend": "in_process", "batch_size": 1},
            "checkpoint": {"every_updates": 32, "every_seconds": None},
            "output": {"report": False},
            **given,
        }


def topic(broker: Broker, name: str, seed: int = 0, bad: float = 0.0, changes: int = 150) -> Topic:
    return Topic(broker, name, ChangingTable(random.Random(seed), changes, bad=bad))


@pytest.mark.turns(1)
@pytest.mark.parametrize(("point", "n"), [("driver.recorded", 7), ("requests.appended", 1)])
def test_a_run_that_is_cut_is_a_replay_of_what_each_key_gets(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, n: int
) -> None:
    bring = partitions.Partitions._bring  # that waits until all messages have come: a receipt is of those of a plan
    monkeypatch.setattr(partitions.Partitions, "_bring", lambda self, most, seconds: bring(self, most, seconds + 0.5))
    told = topic(broker, f"cut-{n}")
    with injected(at(n, point=point)), pytest.raises(Gone):
        follow(told.job(), tmp_path / "cut", until_idle=0.0)
    resumed = follow(tmp_path / "cut", until_idle=0.0)
    file = pipelines.replay(told.job_of_file(tmp_path), tmp_path / "file")
    assert resumed.digest == file.digest
    assert resumed.summary["active"] == len(told.table.live)
    assert resumed.summary["updates"] == len(told.table.effects)
    follow(told.job(), tmp_path / "whole", until_idle=0.0)
    assert said(tmp_path / "cut") == said(tmp_path / "whole")
    assert sum(len(entry["source"]["at"]) for entry in said(tmp_path / "cut")) == 0  # named under deleted
    assert {id for entry in said(tmp_path / "cut") for id in entry["deleted"]} == set(told.table.requested)
    assert audit_run(tmp_path / "cut").ok


def _without_plans(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table of a run with the offset of its message, whatever plan had that; without seconds."""
    if "reason" in row:
        place = re.compile(r", 0:(\d+)-\d+, row (\d+)")
        reason = place.sub(lambda of_plan: f", {int(of_plan[1]) + int(of_plan[2])}", row["reason"])
        row = {**row, "file": row["file"].partition(", ")[0], "reason": reason}
    return {**row, "seconds": 0}


def test_chapters_by_key_are_the_run_without_and_answer_by_key(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = topic(broker, "chapters", seed=1, bad=0.2)
    lenient = {"stream": {"on_error": "skip"}}
    whole = follow(told.job(**lenient), tmp_path / "whole", until_idle=0.0)
    run = tmp_path / "chapters"
    monkeypatch.setattr(kafka, "MESSAGES_OF_PLAN", 50)  # a plan has as many as have come, of one call at least
    monkeypatch.setattr(partitions, "MESSAGES_OF_CALL", 50)
    cut = follow(told.job(**lenient, follow={"chapter_updates": 40, "keep": None}), run, until_idle=0.0)
    assert cut.digest == whole.digest
    chapters = sorted((run / "chapters").iterdir())[:3]  # a pause within a chapter may have left a checkpoint, too
    assert [max(int(one.name) for one in (chapter / "checkpoints").glob("[0-9]*")) for chapter in chapters] == [
        40,
        80,
        120,
    ]
    for table in ("metrics", "quarantine"):
        parts = [
            ds.dataset(one / table).to_table() for one in sorted((run / "chapters").iterdir()) if (one / table).is_dir()
        ]
        rows = [_without_plans(row) for row in pa.concat_tables(parts).to_pylist()]
        once = [_without_plans(row) for row in ds.dataset(tmp_path / "whole" / table).to_table().to_pylist()]
        assert sorted(map(repr, rows)) == sorted(map(repr, once)), table
    assert audit_run(run).ok
    chain = verify_receipts(run / "receipts.jsonl", run, ids=[str(id) for id in told.table.live])
    assert (chain["equal"], chain["live"], chain["gaps"]) == (True, 0, [])
    assert not any(one["deleted"] for one in chain["ids"])
    reader = SnapshotReader(run)
    assert reader.look()
    served: Any = reader.current
    asked = {"shop": ["north", "south", "7", "nowhere"], "a": [0.1] * 4, "s": ["p"] * 4}
    answer = served.answer(RequestTable(asked, 4, single=False))
    assert answer["without_model"] == [3]
    alone = [ServedModel(one, served.snapshot, one.predictor()) for one in (load_model(run, key) for key in KEYS)]
    row = RequestTable({"a": [0.1], "s": ["p"]}, 1, single=True)
    answered = dict(zip(asked["shop"], answer["predictions"], strict=True))
    assert [answered[key] for key in KEYS] == [one.answer(row)["prediction"] for one in alone]


@pytest.mark.nightly
def test_chapters_of_a_learner_whose_updates_wait_are_the_run_without(broker: Broker, tmp_path: Path) -> None:
    """Their warm-ups end early; what waits at the end of a chapter is known to the audit of the next one."""
    told = topic(broker, "waiting", seed=1, bad=0.2)
    given: dict[str, Any] = {"stream": {"on_error": "skip", "warmup": 30}}
    given["learner"] = {"kind": "gbdt", "max_iter": 3, "update_every": 7}
    whole = follow(told.job(**given), tmp_path / "whole", until_idle=0.0)
    cut = follow(told.job(**given, follow={"chapter_updates": 20, "keep": None}), tmp_path / "run", until_idle=0.0)
    assert cut.digest == whole.digest
    assert audit_run(tmp_path / "run").failures == []
    assert audit_run(tmp_path / "run").ok
    of_file = {**given, "stream": {**given["stream"], "model": "changelog"}}
    file = pipelines.replay(told.job_of_file(tmp_path, **of_file), tmp_path / "file")
    assert file.digest == whole.digest


def test_a_run_goes_on_from_an_update_and_from_a_purge(broker: Broker, tmp_path: Path) -> None:
    told, run = topic(broker, "updated", seed=2), tmp_path / "run"
    follow(told.job(), run, until_idle=0.0)
    (one, row), (two, _), (three, _), *_ = told.table.live.items()
    ids = tmp_path / "ids.csv"
    erased = list(told.table.live)[-1]
    ids.write_text(f"id\n{one}\n{erased}\n")
    chain = ReceiptFile(str(run / "receipts.jsonl"), str(run / "receipts.key"))
    update(run, delete=str(ids), out=tmp_path / "state", receipts=chain)
    pipelines.resume(run, state=tmp_path / "state")
    other = next(key for key in ("north", "south") if key != row["shop"])
    told.send({"op": "c", **row, "shop": other}, {"op": "d", "id": two}, {"op": "d", "id": erased})
    gone_on = follow(run, until_idle=0.0)
    assert gone_on.summary["active"] == len(told.table.live) - 2
    assert audit_run(run).ok
    found = verify_receipts(run / "receipts.jsonl", run, ids=[str(one), str(two)])
    assert (found["equal"], found["live"], found["gaps"]) == (True, 0, [])
    assert [(one["deleted"], one["live"]) for one in found["ids"]] == [(False, True), (True, False)]
    purge(run)
    told.send({"op": "d", "id": one}, {"op": "d", "id": three})
    assert follow(run, until_idle=0.0).summary["active"] == len(told.table.live) - 4
    assert verify_receipts(run / "receipts.jsonl", run, ids=[str(one), str(three)])["ok"]


@pytest.mark.turns(1)
@pytest.mark.parametrize("point", ["run.before_compaction", "checkpoint.before_manifest", "checkpoint.after_manifest"])
def test_a_run_that_had_ended_and_dies_at_its_next_end_goes_on(broker: Broker, tmp_path: Path, point: str) -> None:
    told, run = topic(broker, f"ended-{point}", changes=40), tmp_path / "run"
    follow(told.job(), run, until_idle=0.0)
    told.send(*({"op": "d", "id": id} for id in [*told.table.live][:3]))
    with injected(at(1, point=point)), pytest.raises(Gone):
        follow(run, until_idle=0.0)
    assert follow(run, until_idle=0.0).digest == follow(told.job(), tmp_path / "whole", until_idle=0.0).digest
    assert ds.dataset(run / "keys").to_table().num_rows == len(KEYS)
    again = follow(run, until_idle=0.0).summary
    assert again["rows"] == len(told.table.log) + 3 < again["updates"]  # rows that move make two updates
    assert [(one["at_update"], one["from_update"]) for one in again["recoveries"][-1:]] == [(again["rows"],) * 2]
    assert "checkpoint_damaged" not in (run / "log.jsonl").read_text()


def test_a_run_that_has_no_key_yet_ends(broker: Broker, tmp_path: Path) -> None:
    told = topic(broker, "no-key", changes=0)
    told.send({"op": "c", "id": 1, "shop": None, "a": 0.5, "s": "p", "y": "no"})
    result = follow(told.job(stream={"on_error": "skip"}), tmp_path / "run", until_idle=0.0)
    assert (result.summary["updates"], result.summary["keys"], result.summary["skipped"]) == (0, 0, 1)


def test_the_audit_does_not_miss_a_key_without_rows_that_a_purge_has_removed(broker: Broker, tmp_path: Path) -> None:
    told, run = topic(broker, "emptied", changes=60), tmp_path / "run"
    told.send(*({"op": "d", "id": id} for id, row in told.table.live.items() if row["shop"] == "7"))
    follow(told.job(learner={"kind": "forest", "n_estimators": 3}), run, until_idle=0.0)
    purge(run)
    assert audit_run(run).ok
    assert verify_run(run)["equal"]


def test_a_deletion_ends_the_warmup_of_its_key(broker: Broker, tmp_path: Path) -> None:
    told, run = topic(broker, "warmup", changes=0), tmp_path / "run"
    told.send(*({**row, "op": "c", "shop": "north", "s": "p"} for row in rows_of(10)))
    follow(told.job(stream={"warmup": 50}), run, until_idle=0.0)
    asked = CliRunner().invoke(cli, ["verify", str(run), "--receipt", "3"])
    assert (asked.exit_code, message("commands.no_chain", run=run) in asked.output) == (2, True)
    assert [one["rows"] for one in verify_erasure(run, ids=["3"])["ids"][0]["folders"]][1] == 1
    told.send({"op": "d", "id": 3}, *({**row, "op": "c", "id": 90 + row["id"], "s": "p"} for row in rows_of(4)))
    assert follow(run, until_idle=0.0).summary["active"] == 13
    assert audit_run(run).ok
    short = follow(told.job(stream={"warmup": 10}), tmp_path / "short", until_idle=0.0)
    assert of_keys(run).saved("north").session().digest() == of_keys(short.path).saved("north").session().digest()


def rows_of(n: int) -> list[dict[str, Any]]:
    draw = random.Random(n)
    return [{"id": id, "shop": "ab"[id % 2], "a": draw.random(), "y": draw.choice(["no", "yes"])} for id in range(n)]


def test_a_delta_table_whose_rows_move_between_keys(tmp_path: Path) -> None:
    rows = {row["id"]: row for row in rows_of(40)}
    place, log = str(tmp_path / "table"), [{"op": "insert", **row} for row in rows.values()]
    write_deltalake(place, pa.Table.from_pylist([*rows.values()]), configuration=FEED)
    DeltaTable(place).update(predicate="id % 3 = 0", updates={"shop": "'b'"})
    for id in range(0, 40, 3):
        if rows[id]["shop"] == "a":
            log.append({"op": "delete", "id": id, "shop": "a"})
            log.append({"op": "insert", **rows[id], "shop": "b"})
            rows[id]["shop"] = "b"
    DeltaTable(place).delete("id % 4 = 0")
    log += [{"op": "delete", "id": id, "shop": rows[id]["shop"]} for id in range(0, 40, 4)]
    columns = {"id": "id", "label": "y", "features": ["a"], "key": "shop"}
    common = {"learner": {"kind": "fudyadt", "epsilon": 0.2}, "cluster": {"backend": "in_process"}}
    common |= {"stream": {"model": "changelog", "warmup": 5}, "output": {"report": False}}
    job = {**common, "source": {"kind": "delta", "path": place, "version": 0, **columns}}
    run = follow(job, tmp_path / "run", until_idle=0.0)
    path = str(written(tmp_path / "log.arrow", pa.Table.from_pylist(log)))
    file = pipelines.replay(
        {**common, "source": {"kind": "arrow", "path": path, "op": "op", **columns}}, tmp_path / "f"
    )
    assert (run.digest, run.summary["active"]) == (file.digest, 30)
    assert {id for entry in said(tmp_path / "run") for id in entry["deleted"]} == set(range(0, 40, 4))
    assert {entry["source"]["place"] for entry in said(tmp_path / "run")} == {"version 2"}
    assert audit_run(tmp_path / "run").ok


@pytest.mark.nightly
@pytest.mark.parametrize("bad", [0.0, 0.2])
def test_on_ray_the_same_models_tables_and_receipts(broker: Broker, tmp_path: Path, bad: float) -> None:
    told = topic(broker, f"ray-{bad}", seed=3, bad=bad)
    lenient = {"stream": {"on_error": "skip"}}
    here = follow(told.job(**lenient), tmp_path / "here", until_idle=0.0)
    ray = {"cluster": {"backend": "ray", "shards": 2, "batch_size": 1}}
    there = follow(told.job(**lenient, **ray), tmp_path / "there", until_idle=0.0)
    assert there.digest == here.digest
    assert said(tmp_path / "there") == said(tmp_path / "here")
    if bad:
        here_, there_ = (ds.dataset(tmp_path / one / "quarantine").to_table().to_pylist() for one in ("here", "there"))
        assert sorted(map(repr, there_)) == sorted(map(repr, here_))


@pytest.mark.parametrize("envelope", [None, "debezium"])
def test_a_tombstone_or_a_before_with_the_id_alone_deletes_under_the_key_of_the_row(
    broker: Broker, tmp_path: Path, envelope: str | None
) -> None:
    told = topic(broker, f"stones-{envelope}", changes=0)
    rows = [{**row, "s": "p", "shop": KEYS[row["id"] % 2]} for row in rows_of(12)]
    for row in (*rows, {**rows[3], "shop": "7"}):  # the last one is an update, which moves its row
        change = {"op": "u" if row["shop"] == "7" else "c"}
        value = {**change, **row} if envelope is None else {**change, "before": None, "after": row}
        broker.send(told.name, 0, value)
    for id in (3, 4):
        if envelope is not None:
            broker.send(told.name, 0, {"op": "d", "before": {"id": id}, "after": None})
        broker._producer.produce(told.name, None, key=json.dumps(id).encode(), partition=0)
    broker.flush()
    config = told.job()
    config["source"] |= {"envelope": envelope}
    result = follow(config, tmp_path / "run", until_idle=0.0)
    assert (result.summary["active"], result.summary["keys"]) == (10, 3)
    assert {id for entry in said(tmp_path / "run") for id in entry["deleted"]} == {3, 4}
    assert audit_run(tmp_path / "run").ok


@pytest.mark.parametrize("backend", ["in_process", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.nightly])])
def test_receipts_of_a_learner_that_collects_updates_say_what_waits_in_a_key(
    broker: Broker, tmp_path: Path, backend: str
) -> None:
    """At each end of a chapter, the first request that a key has not taken in; cut anywhere, the same."""
    told, run = topic(broker, f"waits-{backend}", seed=4, changes=220), tmp_path / "run"
    given: dict[str, Any] = {"stream": {"on_error": "skip", "warmup": 6}, "cluster": {"backend": backend}}
    given |= {"learner": {"kind": "gbdt", "max_iter": 2, "update_every": 6}}
    given["follow"] = {"chapter_updates": 25, "keep": None}
    with injected(at(2, point="chapter.closed")), pytest.raises(Gone):
        follow(told.job(**given), run, until_idle=0.0)
    with injected(at(3)), pytest.raises(Gone):
        follow(run, until_idle=0.0)
    follow(run, until_idle=0.0)
    requests = {at: id for entry in said(run) for id, at in entry["deleted"].items()}
    waiting = {entry["source"]["updates"][1]: entry["source"].get("waiting") for entry in said(run)}
    found = []
    for chapter in RunFolder(run).chapters()[:-1]:
        keys = of_keys(Path(chapter.root))
        rows = int(keys.components["stream"]["row"])
        updates = updates_by_key(told.table.log[:rows])
        begun = {key: int(keys.saved(key).arrays["begun"][0]) for key in keys}
        waits = [row for key in keys for row in updates[key][begun[key] :] if row in requests]
        found.append(min(waits, default=None))
        assert waiting.get(rows) == found[-1], rows
    assert len({*found} - {None}) > 2
    assert list(waiting.values())[-1] is None  # at the end nothing waits


def updates_by_key(log: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Numbers of the messages that each key gets an update of."""
    owner, found = dict[int, str](), {key: list[int]() for key in KEYS}
    for row, change in enumerate(log):
        before, after = owner.pop(change["id"], None), change.get("shop") if change["op"] != "d" else None
        for key in {before, after} - {None}:
            found[key].append(row)
        if after is not None:
            owner[change["id"]] = after
    return found


# -- table audit -----------------------------------------------------------------------------------------------------
# The audit of a run that follows a table compares its live examples with the table at the version.

SCHEMA = pa.schema([*({**TYPES, "id": pa.string()}).items()])


def test_the_live_examples_are_the_rows_of_the_table_at_the_version(tmp_path: Path) -> None:
    table = changed(tmp_path)
    follow(job(table), tmp_path / "run", until_idle=0.0)
    rows = len(table.at(None))
    table.delete()  # which the run has not seen
    report = audit_run(tmp_path / "run")
    assert report.ok, report
    assert report.checked[CHECKED] == rows


@pytest.mark.parametrize("what", ["value", "label", "id"])
def test_an_example_that_is_not_as_in_the_table_is_a_violation(tmp_path: Path, what: str) -> None:
    table = LiveTable(tmp_path / "table")
    table.overwrite()
    replay(job(table), tmp_path / "run")
    ended = last_of(RunFolder(tmp_path / "run"))
    history = ended.histories[None].result()
    live = int(np.argmax(history.deleted))
    if what == "value":
        history.X[live, 0] += 1
    elif what == "label":
        history.y[live] = (history.y[live] + 1) % 3
    else:
        history.deleted[live] = 50
    report = AuditReport("holds", "proven", "")
    compare_with_table(report, ended, {None: history})
    assert report.conformance == "violated"
    assert "version 1" in report.failures[0]


class KeyedTable:
    """A Delta table with keys, categories and text ids, and a run that follows it."""

    def __init__(self, folder: Path, kind: str = "fudyadt", chapters: bool = False) -> None:
        self.path, self.run = str(folder / "table"), folder / "run"
        draw = random.Random(5)
        rows = [self.row(draw, n) for n in range(60)]
        write_deltalake(self.path, pa.Table.from_pylist(rows, SCHEMA), configuration=FEED)
        DeltaTable(self.path).delete("a < 0.1")
        DeltaTable(self.path).update(predicate="a > 0.8", updates={"shop": "'7'"})
        DeltaTable(self.path).update(predicate="a > 0.7 AND a < 0.8", updates={"y": "NULL"})
        write_deltalake(self.path, pa.Table.from_pylist([self.row(draw, n) for n in (70, 71)], SCHEMA), mode="append")
        DeltaTable(self.path).update(predicate="id = 'k70'", updates={"shop": "NULL"})
        source = {"kind": "delta", "path": self.path, "id": "id", "version": 0, "key": "shop"}
        config = {
            "source": {**source, "label": "y", "features": ["a", "s"]},
            "stream": {"on_error": "skip", "warmup": 4},
            "learner": {"kind": kind, **({"max_iter": 2} if kind == "gbdt" else {})},
            "cluster": {"backend": "in_process", "batch_size": 2},
            "checkpoint": {"every_updates": 32, "every_seconds": None},
            "output": {"report": False},
            **({"follow": {"chapter_updates": 25, "keep": None}} if chapters else {}),
        }
        follow(config, self.run, until_idle=0.0)

    @staticmethod
    def row(draw: random.Random, number: int) -> dict[str, Any]:
        row = {"id": f"k{number}", "shop": draw.choice(KEYS), "a": draw.random(), "s": draw.choice("pqr")}
        return {**row, "y": draw.choice(["no", "yes"])}

    @property
    def usable(self) -> list[dict[str, Any]]:
        rows = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return [row for row in rows if row["y"] is not None and row["shop"] is not None]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> KeyedTable:
    return KeyedTable(tmp_path_factory.mktemp("keyed"))


@pytest.mark.turns(1)
@pytest.mark.parametrize(("kind", "chapters"), [("fudyadt", False), ("gbdt", True)])
def test_the_live_examples_of_each_key_are_its_rows_in_the_table(tmp_path: Path, kind: str, chapters: bool) -> None:
    table = KeyedTable(tmp_path, kind, chapters)
    report = audit_run(table.run)
    assert report.ok, report
    assert report.checked[CHECKED] == len(table.usable) > 40
    one = audit_run(RunFolder(table.run).newest().location, "north")
    assert one.ok, one
    assert one.checked[CHECKED] == sum(row["shop"] == "north" for row in table.usable)


def test_a_chapter_whose_past_is_gone_is_compared_with_the_table(tmp_path: Path) -> None:
    table = KeyedTable(tmp_path, chapters=True)
    *_, before, last = RunFolder(table.run).chapters()
    shutil.rmtree(before.root)
    report = audit_run(last.location)
    assert report.ok, report
    assert report.checked[CHECKED] == len(table.usable)


@pytest.mark.parametrize("what", ["missing", "extra", "value", "category", "label", "moved", "lost key"])
def test_an_example_of_a_key_that_is_not_as_in_the_table_is_a_violation(
    keyed: KeyedTable, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """As if the run, and the audit that repeats it, had understood a change wrongly."""
    result, compared = Replay.result, list[str]()

    def wrong(replay: Replay) -> Any:
        history = result(replay)
        live = int(np.argmax(history.deleted))
        if what == "missing":
            history.deleted[live] = 50
        elif what == "value":
            history.X[live, 0] += 1
        elif what == "category":
            history.X[live, 1] = (history.X[live, 1] + 1) % 3
        elif what == "label":
            history.y[live] = 1 - history.y[live]
        return history

    def compare(report: Any, ended: Any, living: Any) -> None:
        if what == "extra":
            own = ended.streams.of("north")
            names = own.names_of
            monkeypatch.setattr(own, "names_of", lambda ids: [*names(ids)[:-1], "nobody"])
        elif what == "moved":
            living["north"], living["south"] = living["south"], living["north"]
        elif what == "lost key":
            del living["north"]
        compared.append(what)
        compare_with_table(report, ended, living)

    monkeypatch.setattr("pipelines.auditing.compare_with_table", compare)

    def sound(ended: Any) -> Iterator[tuple[Key, AuditReport]]:
        return ((key, AuditReport("holds", "proven", "")) for key in ended.histories)

    monkeypatch.setattr("pipelines.auditing._reports", sound)
    monkeypatch.setattr(Replay, "result", wrong)
    report = audit_run(keyed.run)
    assert compared == [what]
    assert report.conformance == "violated"
    assert "of the table at version 5" in report.failures[0]


def vacuum(table: str) -> None:
    DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def test_a_vacuum_after_a_run_leaves_an_audit_of_what_is_stored(tmp_path: Path) -> None:
    table = changed(tmp_path)
    follow(job(table), tmp_path / "run", until_idle=0.0)
    rows = len(table.at(None))
    vacuum(table.path)
    report = audit_run(tmp_path / "run")
    assert (report.ok, report.checked[CHECKED]) == (True, rows)
    assert "the examples stored in the state were checked" in report.reason
    table.overwrite()
    vacuum(table.path)
    report = audit_run(tmp_path / "run")
    assert (report.ok, report.checked[CHECKED]) == (True, 0)
    assert "the live examples were not compared with the rows of the table" in report.reason


@pytest.mark.turns(1)
@pytest.mark.parametrize("chapters", [False, True])
def test_a_vacuum_after_a_run_by_key_leaves_an_audit_of_what_is_stored(tmp_path: Path, chapters: bool) -> None:
    table = KeyedTable(tmp_path, chapters=chapters)
    vacuum(table.path)
    run = RunFolder(table.run).newest().location if chapters else table.run
    report = audit_run(run)
    assert (report.ok, report.checked[CHECKED]) == (True, len(table.usable))
    assert "the examples stored in the state were checked" in report.reason


def test_what_is_stored_wrongly_is_found_after_a_vacuum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = changed(tmp_path)
    follow(job(table), tmp_path / "run", until_idle=0.0)
    vacuum(table.path)

    def wrong(*state: Any) -> Any:
        history = history_of_live(*state)
        history.X[0, 0] += 1
        return history

    monkeypatch.setattr("pipelines.histories.history_of_live", wrong)
    report = audit_run(tmp_path / "run")
    assert report.conformance == "violated"
    assert "audits.other_table" in findings(report)
