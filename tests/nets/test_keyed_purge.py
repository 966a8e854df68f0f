"""After a purge of models by key no byte of a folder holds a deleted example, or the name of a key without examples.

The rows of two keys have values that occur nowhere else; one of these keys loses all its rows, and its name is such a
value, too.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, audit_state, verify_receipts
from pipelines.purging import purge
from pipelines.receipts import ReceiptFile
from pipelines.run_folder import RunFolder
from pipelines.running.ending import read_summary
from tests.canaries import TEXT, WIDTH, canary, hits
from tests.cases import Trial, every_case, never, one_of_each
from tests.keyed_runs import by_day, of_keys, replayed, table
from tests.nets.test_purge import Killed, ops
from tests.small_tables import derived, examples, written

#: A name that nobody may keep.
GONE = f"key {TEXT}"


def rows_of(trial: Trial) -> list[dict[str, Any]]:
    """A change log of three keys: one keeps all its rows, one loses a row, one loses all."""
    warmup, n = trial.case.warmup, trial.case.warmup + 12
    rows = []
    for place, key in enumerate(("kept", "some", GONE)):
        part = [{**derived(one), **one, "id": f"{place} {one['id']}"} for one in examples(n, place)]
        if key != "kept":
            part[warmup + 3] |= {**canary("again " if key == GONE else ""), "subject": TEXT}
        if key == GONE:
            part = [{**one, "id": f"{one['id']} {TEXT}", "d": f"category {TEXT}"} for one in part]
        logged = [{**one, "op": "insert"} for one in part]
        logged += [{**part[warmup + 3], "op": "insert"}]  # refused, and quoted
        if key == "some":
            logged += [{**part[warmup + 3], "op": "delete"}]
        elif key == GONE:
            logged += [{**one, "op": "delete"} for one in part]
        rows += [{**one, "key": key} for one in logged]
    return rows


@every_case("a purge by key", often=by_day)
def test_nothing_of_a_deleted_example_remains_under_any_key(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replayed(trial, tmp_path / "all", rows_of(trial), by_key=True, width=WIDTH)
    found = {name.split("/")[0] for name in hits(run)}
    assert found >= {"checkpoints", "predictions", "quarantine", "metrics", "keys", "model"}
    digest = read_summary(RunFolder(run))["model_digest"]
    draw = random.Random(trial.name)
    for _ in range(2):
        with monkeypatch.context() as patched:
            ops(patched, draw.randrange(12))
            with pytest.raises(Killed):
                purge(run)
    plan, done = purge(run, dry_run=True), purge(run)
    assert done == {**plan, "dry_run": False}
    assert (hits(run), done["digest"], done["left_alone"]) == ({}, digest, [])
    keys = of_keys(run)
    assert sorted(keys) == ["kept", "some"]
    assert keys.counted().digest == digest
    again = purge(run)
    assert (again["digest"], again["replaced"], again["rewritten"]) == (digest, [], [])
    assert audit_state(run).ok
    assert pipelines.resume(run).summary["model_digest"] == digest


@every_case("a purge of a state by key", often=by_day)
def test_nothing_remains_in_a_state_that_an_update_has_written(trial: Trial, tmp_path: Path) -> None:
    """Also by its subject; the receipts prove it."""
    rows = [row for row in rows_of(trial) if row["op"] == "insert"]
    run = replayed(trial, tmp_path / "all", rows, by_key=True, width=WIDTH)
    (tmp_path / "key").write_text("5a" * 32)
    chain = ReceiptFile(str(tmp_path / "receipts"), str(tmp_path / "key"))
    lost = sorted({row["id"] for row in rows if row["key"] == GONE})
    nobody = pipelines.update(run, delete=["nobody"], missing="skip", dry_run=True)
    assert (nobody.digest_before, nobody.missing) == (nobody.digest_after, ("nobody",))
    receipt = pipelines.update(run, delete=lost, out=tmp_path / "first", receipts=chain)
    assert receipt.by_key.keys() == {GONE}
    assert receipt.by_key[GONE].active == 0
    by_subject = pipelines.update(
        tmp_path / "first", delete={"subject": [TEXT]}, out=tmp_path / "second", receipts=chain
    )
    assert (by_subject.by_key.keys(), by_subject.subjects) == ({"some"}, (TEXT,))
    purge(tmp_path / "second", receipts=chain)
    assert hits(tmp_path / "second") == {}
    assert sorted(of_keys(tmp_path / "second")) == ["kept", "some"]
    checked = verify_receipts(tmp_path / "receipts", tmp_path / "second", key=chain.key, ids=[lost[0]], subjects=[TEXT])
    assert checked["ok"], checked
    assert checked["live"] == 0
    before = verify_receipts(tmp_path / "receipts", tmp_path / "first", key=chain.key, subjects=[TEXT])
    assert not before["ok"]


@every_case("a purge by key of a deletion log", often=never)
def test_nothing_remains_of_what_a_deletion_log_names(trial: Trial, tmp_path: Path) -> None:
    """Also in what the stream knows of the owners of ids."""
    warmup = trial.case.warmup
    parts = []
    for place, key in enumerate(("kept", GONE)):
        part = [{**derived(one), **one, "id": f"{place} {one['id']}"} for one in examples(warmup + 12, place)]
        part = [{**one, "id": f"{one['id']} {TEXT}"} for one in part] if place else part
        part[warmup + 5] |= {} if place else canary()
        parts += [{**one, "key": key} for one in part]
    gone = [one["id"] for one in parts if TEXT in one["id"]]
    pa.csv.write_csv(pa.table({"id": gone}), tmp_path / "gone.csv")
    log = {"model": "deletion_log", "deletion_log": str(tmp_path / "gone.csv"), "on_error": "skip", "warmup": warmup}
    config = {**trial.config(tmp_path, 1), "stream": log}
    config["source"] = {"kind": "arrow", "path": str(written(tmp_path / "rows.arrow", table(parts, WIDTH)))}
    config["source"] |= {"key": "key", **trial.columns}
    run = Path(pipelines.replay(config, tmp_path / "run").path)
    digest = read_summary(RunFolder(run))["model_digest"]
    assert any("stream" in name for name in hits(run))
    assert (purge(run)["digest"], hits(run), list(of_keys(run))) == (digest, {}, ["kept"])
    assert pipelines.resume(run).summary["model_digest"] == digest


@every_case("a key comes back after a purge", often=one_of_each)
def test_a_key_that_comes_back_begins_anew_and_its_audit_holds(trial: Trial, tmp_path: Path) -> None:
    """A purge forgets the numbers and codes of a key, so that its updates begin at 0 again; here twice."""
    config = {**trial.config(tmp_path, 1)}
    sparse = {"n_features": WIDTH} if trial.case.sparse else {}
    (tmp_path / "changes").mkdir()
    config["source"] |= {"kind": "parquet", "path": str(tmp_path / "changes"), "key": "key", **sparse}
    own = [row for row in rows_of(trial) if row["key"] == GONE]
    pq.write_table(table(rows_of(trial), WIDTH), tmp_path / "changes" / "0.parquet")
    run = Path(pipelines.replay(config, tmp_path / "run").path)
    for time in (1, 2):
        purge(run)
        assert GONE not in list(of_keys(run))
        back = [{**one, "d": "pqr"[(place + time) % 3]} for place, one in enumerate(own)]
        back = back if time == 1 else back[: trial.case.warmup + 7]  # first it leaves again
        pq.write_table(table(back, WIDTH), tmp_path / "changes" / f"{time}.parquet")
        digest = pipelines.resume(run).digest
        assert audit_run(run).failures == []
        assert audit_run(run).ok
    assert audit_run(run, GONE).ok
    (alone := tmp_path / "alone").mkdir()
    pq.write_table(table(back, WIDTH), alone / "0.parquet")
    fresh = pipelines.replay({**config, "source": {**config["source"], "path": str(alone)}}, tmp_path / "fresh")
    (saved, again) = (of_keys(place).saved(GONE).session().digest() for place in (run, Path(fresh.path)))
    assert (saved == again, digest == fresh.digest) == (True, False)
