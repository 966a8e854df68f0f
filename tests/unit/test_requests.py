"""Deletions that come through the source are in the chain of receipts: each once, wherever the run was cut."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable

from pipelines import replay, resume
from pipelines.following.follow import follow
from pipelines.verifying import verify_receipts
from raydt.errors import ConfigError, InputError
from raydt.exchange.faults import injected
from raydt.sessions.receipt_chain import Key, read_chain
from tests.cut_runs import Gone, at
from tests.live_tables import LiveTable, rows_of
from tests.unit.test_follow import changed, job

#: What an entry says, whenever it was written.
SAID = ("digest_before", "digest_after", "active_before", "active", "deleted", "inserted", "missing", "source")


def chain_of(run: Path) -> list[dict[str, Any]]:
    return read_chain(run / "receipts.jsonl", Key.read(run / "receipts.key")).entries


def said(run: Path) -> list[dict[str, Any]]:
    """The chain of a run with ids for hashes, without the times of its lines."""
    key = Key.read(run / "receipts.key")
    ids = {key.hash(id): id for id in range(500)}
    named: list[dict[str, Any]] = []
    for entry in chain_of(run):
        numbers = dict(zip((ids[hash] for hash in entry["deleted"]), entry["source"]["at"], strict=True))
        values = {name: entry.get(name) for name in SAID} | {"deleted": dict(sorted(numbers.items()))}
        values["inserted"] = sorted(ids[hash] for hash in entry["inserted"])
        named.append({**values, "source": {**entry["source"], "at": []}})
    return named


def require_requests_of(table: LiveTable, run: Path) -> None:
    """The receipts have what each version took away, by its name, and what came back later."""
    entries, gone = {}, set[int]()
    for entry in said(run):
        if entry["deleted"]:
            entries[entry["source"]["place"]] = entry
    before = table.live(0)
    for version in range(1, table.version + 1):
        now = table.live(version)
        entry = entries.pop(f"version {version}", {"deleted": {}, "inserted": []})
        assert entry["deleted"].keys() == before.keys() - now.keys(), version
        gone |= before.keys() - now.keys()
        before = now
    assert not entries
    back = {id for entry in said(run) for id in entry["inserted"]}
    assert back == {id for id in back if id in gone}
    assert set(table.live()) & gone <= back


def test_what_the_table_deletes_is_in_the_chain(tmp_path: Path) -> None:
    table = changed(tmp_path)
    rows = rows_of(table.rng, [3, 4, 5])
    DeltaTable(table.path).delete("id < 7")
    table.append()
    from deltalake import write_deltalake

    write_deltalake(table.path, rows, mode="append")
    DeltaTable(table.path).delete("id = 4")
    result = follow(job(table), tmp_path / "run", until_idle=0.0)
    require_requests_of(table, tmp_path / "run")
    entries = chain_of(tmp_path / "run")
    for one, other in zip(entries, entries[1:], strict=False):
        assert (one["digest_after"], one["active"]) == (other["digest_before"], other["active_before"])
        assert one["source"]["updates"][1] == other["source"]["updates"][0]
    assert (entries[-1]["digest_after"], entries[-1]["active"]) == (result.digest, result.summary["active"])
    chain = tmp_path / "run" / "receipts.jsonl"
    found = verify_receipts(chain, tmp_path / "run", ids=["4"])
    assert (found["ok"], found["equal"], found["live"], found["gaps"]) == (True, True, 0, [])
    event = found["ids"][0]["events"][-1]
    assert (event["what"], event["place"], event["waits"]) == ("deleted", f"version {table.version}", False)
    assert not verify_receipts(chain, ids=["3"])["ids"][0]["deleted"]
    assert [one["what"] for one in verify_receipts(chain, ids=["3"])["ids"][0]["events"]] == ["deleted", "inserted"]
    assert not verify_receipts(chain, ids=["499"])["ids"][0]["events"]
    assert (tmp_path / "run" / "receipts.key").stat().st_mode & 0o77 == 0


def one_cut(folder: Path, seed: int, point: str, n: int, learner: dict[str, Any] | None = None) -> None:
    table, given = changed(folder, seed), {} if learner is None else {"learner": learner}
    DeltaTable(table.path).delete(f"id % 7 = {seed % 7}")
    with injected(at(n, point=point)), pytest.raises(Gone):
        follow(job(table, **given), folder / "cut", until_idle=0.0)
    chain = folder / "cut" / "receipts.jsonl"
    before = chain.read_bytes() if chain.exists() else b""
    follow(folder / "cut", until_idle=0.0)
    assert chain.read_bytes().startswith(before)
    (folder / "whole").mkdir()
    (folder / "whole" / "receipts.key").write_bytes((folder / "cut" / "receipts.key").read_bytes())
    given["output"] = {"report": False, "metrics_every": 10, "receipt_key": str(folder / "whole" / "receipts.key")}
    follow(job(table, **given), folder / "other", until_idle=0.0)
    (folder / "other" / "receipts.key").write_bytes((folder / "cut" / "receipts.key").read_bytes())
    assert said(folder / "cut") == said(folder / "other")
    require_requests_of(table, folder / "cut")


GBDT = {"kind": "gbdt", "n_trees": 3, "batch_size": 13}
POINTS = ("driver.recorded", "requests.appended", "follow.planned", "run.before_compaction", "run.before_summary")


@pytest.mark.parametrize(("point", "n"), [("driver.recorded", 9), ("requests.appended", 1)])
def test_a_driver_that_is_gone_leaves_the_same_chain(tmp_path: Path, point: str, n: int) -> None:
    one_cut(tmp_path, 1, point, n)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("learner", [None, GBDT])
def test_drivers_that_are_gone_anywhere_leave_the_same_chain(
    tmp_path: Path, seed: int, point: str, learner: dict[str, Any] | None
) -> None:
    n = {"driver.recorded": 1 + seed % 9, "follow.planned": 1 + seed % 6}.get(point, 1)
    one_cut(tmp_path, seed, point, n, learner)
