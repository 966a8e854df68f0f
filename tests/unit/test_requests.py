"""Requests for deletion that a run has taken in, and those of other places."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("deltalake")

import os
import signal
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, write_deltalake

from pipelines import replay, resume
from pipelines.auditing import verify_receipts
from pipelines.following import follow
from pipelines.receipts import ReceiptFile
from pipelines.updating import update
from raydt.errors import ConfigError, InputError
from raydt.exchange.messages import injected
from raydt.sessions.receipt_chain import Key, Signer, read_chain
from tests.live_tables import LiveTable, rows_of
from tests.storage_faults import Gone, at, few_in_memory
from tests.unit.test_follow import changed, job
from tests.unit.updatable import private_key

# -- requests --------------------------------------------------------------------------------------------------------
# Deletions that come through the source are in the chain of receipts: each once, wherever the run was cut.


@pytest.fixture(scope="module", autouse=True)
def _few_hashes_in_memory() -> Iterator[None]:
    """Hashes of deleted ids go to the file at once, and ids fall on few bits of the filter."""
    with few_in_memory():
        yield


#: What an entry says, whenever it was written.
SAID = ("digest_before", "digest_after", "active_before", "active", "deleted", "inserted", "missing", "source")


def chain_of(run: Path) -> list[dict[str, Any]]:
    chain = run / "receipts.jsonl"  # none where nothing was deleted
    return read_chain(chain, Key.read(run / "receipts.key")).entries if chain.exists() else []


def said(run: Path) -> list[dict[str, Any]]:
    """The chain of a run with ids for hashes, without the times of its lines."""
    key = Key.read(run / "receipts.key")
    ids = {key.hash(id): id for id in range(1000)}
    named: list[dict[str, Any]] = []
    for entry in chain_of(run):
        numbers = dict(zip((ids[hash] for hash in entry["deleted"]), entry["source"]["at"], strict=True))
        values = {name: entry.get(name) for name in SAID} | {"deleted": dict(sorted(numbers.items()))}
        for name in ("inserted", "missing"):
            values[name] = sorted(ids[hash] for hash in entry.get(name, ()))
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
    write_deltalake(table.path, rows, mode="append")
    DeltaTable(table.path).delete("id = 4")
    result = follow(job(table), tmp_path / "run", until_idle=0.0)
    require_requests_of(table, tmp_path / "run")
    entries = chain_of(tmp_path / "run")
    for one, other in pairwise(entries):
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
    resumed = follow(folder / "cut", until_idle=0.0)
    assert chain.read_bytes().startswith(before)
    whole = follow(job(table, **given), folder / "whole", until_idle=0.0)
    assert said(folder / "cut") == said(folder / "whole")
    assert chain_of(folder / "cut")[-1]["digest_after"] == resumed.digest == whole.digest
    require_requests_of(table, folder / "cut")


GBDT = {"kind": "gbdt", "max_iter": 3, "update_every": 13}
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


def test_a_run_that_is_stopped_and_goes_on_has_each_request_once(tmp_path: Path) -> None:
    table = changed(tmp_path)
    replay(job(table), tmp_path / "run")
    for kind in ("delete", "append", "delete", "overwrite"):
        getattr(table, kind)()
        result = resume(tmp_path / "run")
        assert chain_of(tmp_path / "run")[-1]["digest_after"] == result.digest
    require_requests_of(table, tmp_path / "run")


def test_where_messages_are_cut_does_not_show(tmp_path: Path) -> None:
    table = changed(tmp_path)
    small = {"backend": "in_process", "batch_size": 3}
    follow(job(table), tmp_path / "one", until_idle=0.0)
    follow(job(table, cluster=small), tmp_path / "other", until_idle=0.0)
    assert said(tmp_path / "one") == said(tmp_path / "other")


def test_a_line_that_was_cut_short_was_never_written(tmp_path: Path) -> None:
    table = changed(tmp_path)
    with injected(at(1, point="requests.appended")), pytest.raises(Gone):
        follow(job(table), tmp_path / "run", until_idle=0.0)
    chain = tmp_path / "run" / "receipts.jsonl"
    chain.write_bytes(chain.read_bytes()[:-20])
    follow(tmp_path / "run", until_idle=0.0)
    require_requests_of(table, tmp_path / "run")


def test_a_run_that_ends_before_a_receipt_that_is_there_leaves_the_receipt(tmp_path: Path) -> None:
    table = changed(tmp_path)
    with injected(at(1, point="requests.appended")), pytest.raises(Gone):
        follow(job(table, cluster={"backend": "in_process", "batch_size": 3}), tmp_path / "run", until_idle=0.0)
    chain = (tmp_path / "run" / "receipts.jsonl").read_bytes()
    with injected(at(1, partial(os.kill, os.getpid(), signal.SIGTERM))):
        stopped = follow(tmp_path / "run", until_idle=0.0)
    assert stopped.summary["updates"] < chain_of(tmp_path / "run")[-1]["source"]["updates"][1]
    assert (tmp_path / "run" / "receipts.jsonl").read_bytes() == chain
    follow(tmp_path / "run", until_idle=0.0)
    follow(job(table), tmp_path / "whole", until_idle=0.0)
    assert said(tmp_path / "run") == said(tmp_path / "whole")


def test_a_chain_of_another_run_is_refused(tmp_path: Path) -> None:
    table = changed(tmp_path)
    replay(job(table), tmp_path / "run")
    chain = tmp_path / "run" / "receipts.jsonl"
    lines = chain.read_bytes().splitlines(keepends=True)
    table.delete()
    chain.write_bytes(lines[0])
    with pytest.raises(InputError, match="is gone"):
        resume(tmp_path / "run")
    chain.write_bytes(b"".join(lines))
    resume(tmp_path / "run")
    require_requests_of(table, tmp_path / "run")


def test_a_learner_that_collects_updates_says_what_waits(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    DeltaTable(table.path).delete("id = 7")
    run = tmp_path / "run"
    with injected(at(1, point="requests.appended")), pytest.raises(Gone):
        follow(job(table, learner={**GBDT, "update_every": 50}), run, until_idle=0.0)
    asked = verify_receipts(run / "receipts.jsonl", ids=["7"])["ids"][0]
    assert (asked["deleted"], asked["events"][0]["waits"]) == (True, True)
    follow(run, until_idle=0.0)  # which ends, and so takes in what waits
    asked = verify_receipts(run / "receipts.jsonl", run, ids=["7"])["ids"][0]
    assert (asked["deleted"], asked["live"], asked["events"][0]["waits"]) == (True, False, False)


def test_a_request_for_what_is_not_there_is_missing(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "source": {"kind": "csv", "path": str(tmp_path / "log.csv"), "id": "id", "op": "op", "label": "y"},
        "stream": {"model": "changelog", "on_error": "skip"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False, "metrics_every": 4, "receipts": True},
    }
    rows = ["insert,1", "insert,2", "delete,1", "delete,9", "insert,3", "insert,1", "delete,2", "delete,1", "insert,4"]
    text = "".join(f"{row},{number}.5,a\n" for number, row in enumerate(rows))
    (tmp_path / "log.csv").write_text("op,id,x,y\n" + text)
    replay(config, tmp_path / "run")
    first, second, last = said(tmp_path / "run")
    assert (first["deleted"], len(first["missing"]), first["source"]["place"]) == ({1: 2}, 1, "log.csv, rows 2-3")
    assert (second["deleted"], second["inserted"], second["source"]["updates"]) == ({1: 7, 2: 6}, [], [4, 8])
    assert (last["deleted"], last["active"]) == ({}, 2)


def test_what_a_deletion_log_asks_for_is_in_the_chain(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("after,id\n120,7\n150,11\n")
    config: dict[str, Any] = {
        "source": {"kind": "synthetic", "generator": "sea", "limit": 300},
        "stream": {"model": "deletion_log", "deletion_log": str(tmp_path / "log.csv"), "warmup": 100},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False, "metrics_every": 50, "receipts": True},
    }
    replay(config, tmp_path / "run")
    assert [entry["deleted"] for entry in said(tmp_path / "run")[:2]] == [{7: 120}, {11: 151}]
    assert said(tmp_path / "run")[0]["source"]["place"] == "log.csv, rows 0-0"


def test_a_key_of_ones_own_and_no_receipts_at_all(tmp_path: Path) -> None:
    table = changed(tmp_path)
    (tmp_path / "key").write_text("ab" * 32)
    output = {"report": False, "receipt_key": str(tmp_path / "key")}
    follow(job(table, output=output), tmp_path / "own", until_idle=0.0)
    assert not (tmp_path / "own" / "receipts.key").exists()
    assert verify_receipts(tmp_path / "own" / "receipts.jsonl", key=str(tmp_path / "key"))["deletes"]
    follow(job(table, output={"report": False, "receipts": False}), tmp_path / "none", until_idle=0.0)
    assert not (tmp_path / "none" / "receipts.jsonl").exists()
    keyed = {"kind": "csv", "path": "x.csv", "label": "y", "key": "k"}
    given = {"source": keyed, "stream": {"model": "incremental"}, "learner": {"kind": "fudyadt"}}
    with pytest.raises(ConfigError, match="a table or topic that is followed"):
        replay({**given, "output": {"receipts": True}}, tmp_path / "x")


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["chapter.closed", "requests.appended"])
def test_chapters_are_in_one_chain(tmp_path: Path, point: str) -> None:
    table = changed(tmp_path)
    DeltaTable(table.path).delete("id % 7 = 3")
    given = job(table, follow={"chapter_updates": 30, "keep": None}, checkpoint={"every_seconds": None})
    with injected(at(2, point=point)), pytest.raises(Gone):
        follow(given, tmp_path / "cut", until_idle=0.0)
    follow(tmp_path / "cut", until_idle=0.0)
    whole = follow(given, tmp_path / "whole", until_idle=0.0)
    assert said(tmp_path / "cut") == said(tmp_path / "whole")
    entries = chain_of(tmp_path / "whole")
    assert all(one["digest_after"] == other["digest_before"] for one, other in pairwise(entries))
    assert entries[-1]["digest_after"] == whole.digest
    asked = {id for entry in said(tmp_path / "whole") for id in entry["deleted"]}
    gone = [table.live(v).keys() - table.live(v + 1).keys() for v in range(table.version)]
    assert asked == set[int]().union(*gone)


def test_a_new_chapter_does_not_read_the_chain_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def read(path: str, key: Key | None = None) -> Any:
        reads.append(path)
        return read_chain(path, key)

    monkeypatch.setattr("pipelines.running.requests.read_chain", read)
    table = changed(tmp_path)
    DeltaTable(table.path).delete("id % 7 = 3")
    first = job(table, follow={"chapter_updates": 30, "keep": None})
    follow(first, tmp_path / "run", until_idle=0.0)
    assert len([*(tmp_path / "run" / "chapters").iterdir()]) > 1
    assert reads == []  # there was none when the run began
    follow(tmp_path / "run", until_idle=0.0)
    assert len(reads) == 1


@pytest.mark.parametrize("where", ["pipelines.running.requests.os.rename", "pipelines.running.requests.Requests"])
def test_a_run_that_dies_before_its_config_is_written_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """With the key half made, and with the chain open; a chain with receipts is of a run that has lost its config."""

    def die(*_: Any) -> None:
        monkeypatch.setattr("os.unlink", lambda path: None)  # what a dead process does not do
        raise Gone

    table, run = changed(tmp_path), tmp_path / "run"
    with monkeypatch.context() as dying:
        dying.setattr(where, die)
        with pytest.raises(Gone):
            follow(job(table), run, until_idle=0.0)
    monkeypatch.undo()
    assert [*run.iterdir()]
    follow(job(table), run, until_idle=0.0)
    require_requests_of(table, run)
    assert not [*run.glob(".receipts*")]
    (run / "config.yaml").unlink()
    with pytest.raises(ConfigError, match="holds no run"):
        follow(job(table), run, until_idle=0.0)


# -- requests elsewhere ----------------------------------------------------------------------------------------------
# Receipts of requests that are signed, and of a run that has taken in an update from elsewhere.


def some_deletions(table: LiveTable, *ids: int) -> None:
    for id in ids:
        DeltaTable(table.path).delete(f"id = {id}")


@pytest.mark.parametrize("cut", [1, 2])
def test_a_run_signs_each_receipt_also_after_a_kill(tmp_path: Path, cut: int) -> None:
    table, run, first = LiveTable(tmp_path / "table"), tmp_path / "run", str(private_key(tmp_path / "first.pem"))
    some_deletions(table, 7, 8, 9)
    given = job(table, output={"report": False, "receipt_sign": first})
    with injected(at(cut, point="requests.appended")), pytest.raises(Gone):
        follow(given, run, until_idle=0.0)
    done = follow(run, until_idle=0.0)
    public = Signer(first).public_key
    found = verify_receipts(run / "receipts.jsonl", run, public_key=public, ids=["8"])
    assert (found["ok"], found["all_signed"], found["deletes"], found["ids"][0]["deleted"]) == (True, True, 3, True)
    assert chain_of(run)[-1]["digest_after"] == done.digest
    some_deletions(table, 10)
    second = private_key(tmp_path / "second.pem")
    resume(run, overrides=[f"output.receipt_sign={second}"])
    found = verify_receipts(run / "receipts.jsonl", run, ids=["10"])
    assert (found["ok"], found["signers"]) == (True, [public, Signer(second).public_key])
    with pytest.raises(InputError, match="signed"):
        verify_receipts(run / "receipts.jsonl", run, public_key=public)


def test_a_key_that_is_gone_ends_the_run_before_anything(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    with pytest.raises(ConfigError, match=r"none\.pem"):
        follow(job(table, output={"report": False, "receipt_sign": str(tmp_path / "none.pem")}), tmp_path / "run")
    assert not list((tmp_path / "run").glob("checkpoints/*"))


@pytest.mark.parametrize("told", ["nowhere", "in the chain of the run", "in the chain, killed"])
def test_a_run_that_has_taken_in_an_update_goes_on_in_its_chain(tmp_path: Path, told: str) -> None:
    table, run, states = LiveTable(tmp_path / "table"), tmp_path / "run", tmp_path / "state"
    some_deletions(table, 7)
    follow(job(table), run, until_idle=0.0)
    chain = None if told == "nowhere" else ReceiptFile(str(run / "receipts.jsonl"), str(run / "receipts.key"))
    update(run, delete=[11], out=states, receipts=chain)
    some_deletions(table, 8)
    if told.endswith("killed"):
        with injected(at(1, point="requests.appended")), pytest.raises(Gone):
            resume(run, state=states)
        done: Any = resume(run)
    else:
        done = resume(run, state=states)
    found = verify_receipts(run / "receipts.jsonl", run, ids=["7", "8", "11", "12"])
    assert [one["deleted"] for one in found["ids"]] == [True, True, told != "nowhere", False]
    assert [one["live"] for one in found["ids"]] == [False, False, False, True]
    assert len(found["gaps"]) == (told == "nowhere")  # the model was changed, and the chain does not say how
    assert found["equal"]
    assert verify_receipts(run / "receipts.jsonl", run, ids=["7", "8"])["ok"]
    assert chain_of(run)[-1]["digest_after"] == done.digest
    some_deletions(table, 9)
    follow(run, until_idle=0.0)
    places = [entry["source"]["place"] for entry in chain_of(run) if "source" in entry and entry["deleted"]]
    assert places == ["version 1", "version 2", "version 3"]
    assert verify_receipts(run / "receipts.jsonl", run, ids=["9"])["ids"][0]["deleted"]


@pytest.mark.parametrize("learner", [{"kind": "fudyadt", "epsilon": 0.2}, {"kind": "gbdt", "max_iter": 2}])
def test_a_second_deletion_of_what_a_receipt_shows_as_erased_is_done(tmp_path: Path, learner: dict[str, Any]) -> None:
    """Somebody is erased from the model, and the table follows: that is no fault, also if the run ends in between."""
    table, run = LiveTable(tmp_path / "table"), tmp_path / "run"
    given = job(table, learner=learner, stream={"on_error": "error"})
    follow(given, run, until_idle=0.0)
    chain = ReceiptFile(str(run / "receipts.jsonl"), str(run / "receipts.key"))
    update(run, delete=[11, 12], out=tmp_path / "state", receipts=chain)
    resume(run, state=tmp_path / "state")
    DeltaTable(table.path).delete("id IN (11, 13)")
    with injected(at(1, point="requests.appended")), pytest.raises(Gone):
        follow(run, until_idle=0.0)
    assert follow(run, until_idle=0.0).summary["active"] == 37
    found = verify_receipts(run / "receipts.jsonl", run, ids=["11", "13"])
    assert (found["ok"], found["equal"], found["live"]) == (True, True, 0)
    assert [one["what"] for one in found["ids"][0]["events"]] == ["deleted", "missing"]
    write_deltalake(table.path, rows_of(table.rng, [11]), mode="append")
    assert follow(run, until_idle=0.0).summary["active"] == 38
    some_deletions(table, 11, 12)
    assert follow(run, until_idle=0.0).summary["active"] == 37


def test_a_deletion_of_what_no_receipt_names_ends_the_run(tmp_path: Path) -> None:
    table, run = LiveTable(tmp_path / "table"), tmp_path / "run"
    follow(job(table), run, until_idle=0.0)
    update(run, delete=[11], out=tmp_path / "state")
    resume(run, state=tmp_path / "state")
    some_deletions(table, 11)
    with pytest.raises(InputError, match="11"):
        follow(run, until_idle=0.0)
