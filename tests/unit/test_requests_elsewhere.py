"""Receipts of requests that are signed, and of a run that has taken in an update from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("cryptography")

from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from deltalake import DeltaTable, write_deltalake

from pipelines import resume
from pipelines.auditing import verify_receipts
from pipelines.following import follow
from pipelines.receipts import ReceiptFile
from pipelines.updating import update
from raydt.errors import ConfigError, InputError
from raydt.exchange.messages import injected
from raydt.sessions.receipt_chain import Signer
from tests.cut_runs import Gone, at
from tests.live_tables import LiveTable, rows_of
from tests.unit.test_follow import job
from tests.unit.test_requests import chain_of


def private_key(path: Path) -> str:
    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
    return str(path)


def some_deletions(table: LiveTable, *ids: int) -> None:
    for id in ids:
        DeltaTable(table.path).delete(f"id = {id}")


@pytest.mark.parametrize("cut", [1, 2])
def test_a_run_signs_each_receipt_also_after_a_kill(tmp_path: Path, cut: int) -> None:
    table, run, first = LiveTable(tmp_path / "table"), tmp_path / "run", private_key(tmp_path / "first.pem")
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
