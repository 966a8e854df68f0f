"""The audit of a run that follows a table compares its live examples with the table at the version."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("deltalake")

from deltalake import DeltaTable, write_deltalake

from pipelines import replay
from pipelines.auditing import audit_run, last_of
from pipelines.following import CHECKED, compare_keys_with_table, compare_with_table, follow
from pipelines.run_folder import RunFolder
from raydt.audits.recorded_tree import AuditReport
from raydt.examples.updates import history_of_live
from raydt.keyed.groups import Key
from raydt.streams.base import Replay
from tests.changing_table import KEYS, TYPES
from tests.live_tables import FEED, LiveTable
from tests.refusals import findings
from tests.unit.test_follow import changed, job

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
    history, live = ended.history, int(np.argmax(ended.history.deleted))
    if what == "value":
        history.X[live, 0] += 1
    elif what == "label":
        history.y[live] = (history.y[live] + 1) % 3
    else:
        history.deleted[live] = 50
    report = AuditReport("holds", "proven", "")
    compare_with_table(report, ended.config, ended.components["stream"], history, ended.names)
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

    def compare(report: Any, config: Any, saved: Any, living: Any, only: Any) -> None:
        if what == "extra":
            one = living["north"]
            living["north"] = one._replace(names=lambda ids: [*one.names(ids)[:-1], "nobody"])
        elif what == "moved":
            living["north"], living["south"] = living["south"], living["north"]
        elif what == "lost key":
            del living["north"]
        compared.append(what)
        compare_keys_with_table(report, config, saved, living, only)

    monkeypatch.setattr("pipelines.keyed.auditing.compare_keys_with_table", compare)

    def sound(config: Any, saved: Any, known: Any, *_: Any) -> Iterator[tuple[Key, AuditReport]]:
        return ((key, AuditReport("holds", "proven", "")) for key in known)

    monkeypatch.setattr("pipelines.keyed.auditing._reports", sound)
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

    monkeypatch.setattr("pipelines.auditing.history_of_live", wrong)
    report = audit_run(tmp_path / "run")
    assert report.conformance == "violated"
    assert "audits.other_table" in findings(report)
