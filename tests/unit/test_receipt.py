"""Receipts, their pages, and the command that reads them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pipelines.cli import cli
from raydt import FullyDynamicTreeClassifier, load_model
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.folders.folder import Folder
from raydt.messages import message, message_of
from raydt.sessions.receipt import Receipt
from raydt.sessions.receipt_chain import (
    Chain,
    Course,
    Key,
    Signer,
    append,
    events_of,
    gone,
    in_effect,
    is_deleted,
    read_chain,
)
from raydt.sessions.session import InProcessSession
from tests.oracles.digests import leaf_of, receipt_rows
from tests.refusals import refused
from tests.unit.updatable import ids_file, raydt_command, replayed, table

# -- receipt ---------------------------------------------------------------------------------------------------------
# What a receipt says of each deletion is what a look at the tree before and after it says.


def examples(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 3)), 1)
    X[:, 2] = np.append(np.arange(4), rng.integers(0, 4, n - 4))  # category k gets code k
    kind = ((X[:, 0] > 0) ^ (X[:, 2] == 1)).astype(int) + (X[:, 1] > 1)
    return X, np.array(["no", "yes", "perhaps"])[kind]


def grown(X: np.ndarray, y: np.ndarray, **options: object) -> FullyDynamicTreeClassifier:
    return FullyDynamicTreeClassifier(categorical_features=[2], **options).fit(X, y)


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.5, "alpha": 0.0, "beta": 0.0}, {"epsilon": 0.0, "max_depth": 3}])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_row_is_what_a_deletion_on_its_own_shows(tmp_path: Path, options: dict, seed: int) -> None:
    X, y = examples(400, seed)
    tree = grown(X, y, **options)
    tree.save(tmp_path / "state", with_examples=True)
    ids = np.random.default_rng(seed).permutation(400)[:150]
    slow = load_model(tmp_path / "state")
    expected = receipt_rows(slow, ids.tolist(), X, y)
    receipt = tree.forget(ids)
    assert receipt.digest_after == tree.digest() == slow.digest()
    for name in ("id", "label", "leaf", "path", "rebuilt_rows"):
        assert receipt.deletions[name].tolist() == [row[name] for row in expected], name
    caused = receipt.deletions["rebuilt_depth"] >= 0
    assert caused.tolist() == [row["rebuilds"] == 1 for row in expected]
    assert caused.any()
    assert not any(row["changed"] and not hit for row, hit in zip(expected, caused, strict=True))
    assert (receipt.deletions["rebuilt_depth"] < receipt.deletions["path"]).all()
    assert receipt.rebuilds == caused.sum()
    assert receipt.rebuilt_rows == receipt.deletions["rebuilt_rows"].sum()
    assert receipt.rebuilt_nodes == receipt.deletions["rebuilt_nodes"].sum()
    assert receipt.work["counts_changed"] == receipt.deletions["path"].sum()
    assert (receipt.active_before, receipt.active) == (400, 250)


def test_counts_go_down_by_one_on_the_path_and_nowhere_else() -> None:
    X, y = examples(300, 5)
    tree = grown(X, y, epsilon=1.0)
    before = tree.session_.model()
    receipt = tree.forget([17])
    after = tree.session_.model()
    assert receipt.rebuilds == 0
    changed = before["counts"] - after["counts"]
    assert changed.sum() == receipt.deletions["path"][0] == receipt.work["counts_changed"]
    assert set(np.unique(changed)) == {0, 1}
    assert np.flatnonzero(changed.sum(axis=0)).tolist() == [tree.classes_.tolist().index(y[17])]
    assert changed[leaf_of(before, X[17], (False, False, True))[0]].sum() == 1


def test_the_path_of_every_operation() -> None:
    X, y = examples(60, 3)
    tree = grown(X, y, epsilon=1.0)  # nothing is rebuilt below
    session: InProcessSession = tree.session_
    model = session.model()
    op = np.array([DELETE, UPDATE, QUERY, INSERT, DELETE_VALUE, DELETE], np.int8)
    rows = X[[30, 31, 32, 9]]
    batch = UpdateBatch(60, op, np.array([5, 6, 0, 99, 0, 99]), rows, np.zeros(4, np.int32), 3, np.full(6, -1))
    batch.y[3] = tree.classes_.tolist().index(y[9])
    result = session.apply(batch)
    assert len(result.log["seq"]) == 0
    path = [leaf_of(model, x, (False, False, True))[1] for x in (X[5], X[6], X[30], X[32], X[9])]
    assert result.path.tolist() == [path[0], path[1] + path[2], 0, path[3], path[4], path[3]]


def test_a_chain_of_calls_makes_one_digest_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = examples(50, 3)
    tree = grown(X, y)
    made = []
    digest = tree.session_.digest
    monkeypatch.setattr(tree.session_, "digest", lambda: made.append(1) or digest())
    receipts = [tree.forget([i]) for i in range(4)]
    assert len(made) == 5
    assert [r.digest_before for r in receipts[1:]] == [r.digest_after for r in receipts[:-1]]
    tree.partial_fit(X[:1], y[:1])
    assert tree.forget([10]).digest_before not in {r.digest_after for r in receipts}
    assert len(made) == 7
    receipt = tree.forget([11], digests=False)
    assert (receipt.digest_before, receipt.digest_after, len(made)) == (None, None, 7)
    assert tree.digest() == digest()


def test_a_receipt_is_plain_columns() -> None:
    X, y = examples(50, 3)
    tree = grown(X, y)
    receipt = tree.forget_examples(X[:2], y[:2])
    assert isinstance(receipt, Receipt)
    assert pa.table(receipt.deletions).num_rows == 2
    told = json.loads(json.dumps(receipt.as_dict()))
    assert told["deletions"]["label"] == y[:2].tolist()
    assert told["deletes"] == 2
    assert told["copies"]
    assert repr(receipt).startswith("Receipt(2 deleted, 0 inserted, ")
    nothing = tree.forget([])
    assert len(nothing.ids) == 0
    assert nothing.copies == ()
    assert nothing.digest_before == nothing.digest_after


# -- receipt pages ---------------------------------------------------------------------------------------------------
# Receipts for people: a note, a page for each, whether an id was deleted, and rollbacks that are receipts.

KEY = Key(bytes(range(32)))


def raydt(*arguments: Any, plain: bool = False) -> Any:
    if not plain:
        return raydt_command(*arguments)[1]
    result = CliRunner().invoke(cli, [*map(str, arguments)], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two deletions, then one from the first state again: receipts 1, 2, a rollback, and 4."""
    folder = tmp_path_factory.mktemp("receipts")
    replayed(folder)
    (folder / "key").write_text("0f" * 32)
    chain = ["--receipts", folder / "receipts.jsonl", "--receipt-key", folder / "key"]
    states = ["run", "second", "third", "fourth"]
    for origin, made, id, note in ((0, 1, "k0003", "CASE-17"), (1, 2, "k0004", "<b>CASE-18</b>"), (1, 3, "k0005", "")):
        ids_file(folder / "gone.csv", [id])
        written = [folder / states[origin], "--delete", folder / "gone.csv", "--out", folder / states[made]]
        raydt("update", *written, *chain, *(["--note", note] if note else []))
    return folder


def test_a_rollback_is_a_receipt_and_no_gap(folder: Path) -> None:
    chain = read_chain(folder / "receipts.jsonl")
    assert [entry.get("rolled_back") for entry in chain.entries] == [None, None, 1, None]
    assert (chain.gaps, chain.course.path()) == ([], [1, 3, 4])
    found = raydt("verify", folder / "receipts.jsonl", folder / "fourth", "--receipt-key", folder / "key")
    assert (found["ok"], found["rollbacks"], found["live"]) == (True, 1, 0)
    assert chain.entries[0]["note"] == "CASE-17"
    assert "note" not in chain.entries[3]


def test_an_id_is_looked_up(folder: Path) -> None:
    key = ["--receipt-key", folder / "key"]
    asked = [part for id in ("k0003", "k0004", "k0009") for part in ("--id", id)]
    found = raydt("verify", folder / "receipts.jsonl", folder / "fourth", *key, *asked)
    assert [(one["deleted"], one["receipt"], one["live"]) for one in found["ids"]] == [
        (True, 1, False),
        (False, None, True),  # by receipt 2, which the rollback has undone
        (False, None, True),
    ]
    assert not found["ok"]
    assert [event["undone_by"] for event in found["ids"][1]["events"]] == [3]
    said = raydt("verify", folder / "receipts.jsonl", *key, *asked, plain=True)
    assert "by receipt 1 (CASE-17)" in said
    assert message("commands.id_unknown") in said
    assert "receipt 3 went back to an older state" in said
    with refused("verdicts.ids_without_key", ConfigError):
        raydt("verify", folder / "receipts.jsonl", "--id", "k0003")


def test_each_receipt_has_a_page(folder: Path, tmp_path: Path) -> None:
    where = Path(raydt("report", folder / "receipts.jsonl", "--out", tmp_path / "pages")["report"])
    pages = {path.name: path.read_text() for path in where.iterdir()}
    assert sorted(pages) == [f"receipt-{n}.html" for n in (1, 2, 3, 4)]
    first, second, third, _ = (pages[name] for name in sorted(pages))
    assert "1 row deleted from the model" in first
    assert "CASE-17" in first
    assert str(folder / "run") in first  # where a copy may remain
    assert "k0003" not in first
    assert "&lt;b&gt;CASE-18" in second
    assert "receipt 3 went back to an older model" in second
    assert "the model went back to its state after receipt 1" in third
    text = raydt("verify", folder / "receipts.jsonl", "--receipt", 1, plain=True)
    for part in ("CASE-17", "1 row deleted from the model", "What was rebuilt", str(folder / "run")):
        assert part in text
    raydt("report", folder / "receipts.jsonl", "--out", tmp_path / "one", "--receipt", 2)
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["receipt-2.html"]
    with refused("receipts.no_receipt", InputError, number=5):
        raydt("report", folder / "receipts.jsonl", "--out", tmp_path / "one", "--receipt", 5)


def test_a_rollback_alone_is_recorded_once(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "receipts.jsonl"
    file.write_bytes((folder / "receipts.jsonl").read_bytes())
    chain = ["--receipts", file, "--receipt-key", folder / "key"]
    entry = raydt("update", folder / "third", "--roll-back", *chain, "--note", "a restore")
    assert (entry["rolled_back"], entry["note"], read_chain(file).course.path()) == (2, "a restore", [1, 2, 5])
    assert gone(in_effect(read_chain(file))) == {Key(bytes([15] * 32)).hash(id) for id in ("k0003", "k0004")}
    with refused("receipts.newest_state", ConfigError):
        raydt("update", folder / "third", "--roll-back", *chain)
    for more in (["--out", tmp_path / "x"], ["--dry-run"]):
        with pytest.raises(click.UsageError, match="--roll-back changes no state"):
            raydt("update", folder / "third", "--roll-back", *chain, *more)


def test_a_note_in_python(tmp_path: Path) -> None:
    tree = FullyDynamicTreeClassifier().fit(np.eye(4), [0, 1, 0, 1])
    receipt = tree.forget([0], note="CASE-1")
    assert receipt.as_dict()["note"] == "CASE-1"
    assert append(tmp_path / "r", receipt, KEY, time="")["note"] == "CASE-1"
    digest = tree.digest()
    with refused("receipts.long_note", ConfigError, most=500, found=501):
        tree.forget([1], note="x" * 501)
    assert tree.digest() == digest


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 50)), max_size=30))
def test_what_is_deleted_is_what_a_replay_of_all_states_says(steps: list[tuple[bool, int, int]]) -> None:
    """The twin keeps every state as a set; ids 0 to 5 are deleted and inserted, or an older state is taken up."""

    def digest(live: frozenset[int], past: tuple[int, ...]) -> str:
        return "sha256:" + hashlib.sha256(repr((sorted(live), past)).encode()).hexdigest()

    live, past, course, entries = frozenset(range(6)), tuple[int, ...](), Course(), list[dict[str, Any]]()
    states, deleted, now = [(live, past, frozenset[int]())], frozenset[int](), digest(live, past)
    for number, (back, id, which) in enumerate(steps):
        entry: dict[str, Any] = {"time": "", "learner": "l", "options_hash": "o", "deleted": [], "inserted": []}
        if back:
            live, past, deleted = states[which % len(states)]
            found = course.rollback_to(digest(live, past), "o", "l")
            if found is None:
                assert digest(live, past) == now or not entries
                continue
            entry |= found
        else:
            entry |= {"digest_before": now, "active_before": len(live)}
            entry |= {"deleted" if id in live else "inserted": [KEY.hash(id)]}
            live, deleted = (live - {id}, deleted | {id}) if id in live else (live | {id}, deleted - {id})
            past = (*past, number)
            entry |= {"digest_after": digest(live, past), "active": len(live)}
            states.append((live, past, deleted))
        assert course.take(entry)
        entries.append(entry)
        now = entry["digest_after"]
    chain = Chain(entries, course.newest, "", course.gaps, [], course, [], False, True)
    assert not course.gaps
    assert gone(in_effect(chain)) == {KEY.hash(id) for id in deleted}
    for id in range(6):
        assert (is_deleted(events_of(chain, [KEY.hash(id)])) is not None) == (id in deleted)


# -- receipts command ------------------------------------------------------------------------------------------------
# ``update --receipts`` and ``verify RECEIPTS [STATE]``: what holds is confirmed, and what does not is told.


@pytest.fixture(scope="module")
def folder_command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two updates of a run with text ids, and their receipts."""
    folder = tmp_path_factory.mktemp("receipts")
    replayed(folder)
    (folder / "key").write_text("0f" * 32)
    pq.write_table(table(200, 210), folder / "new.parquet")
    ids_file(folder / "one.csv", ["k0003", "k0150"])
    ids_file(folder / "two.csv", ["k0200", "k0004"])
    chain = ["--receipts", folder / "receipts.jsonl", "--receipt-key", folder / "key"]
    new = ["--insert", folder / "new.parquet"]
    raydt_command("update", folder / "run", "--delete", folder / "one.csv", *new, "--out", folder / "second", *chain)
    raydt_command("update", folder / "second", "--delete", folder / "two.csv", "--out", folder / "third", *chain)
    return folder


def test_the_state_of_the_last_receipt_is_confirmed(folder_command: Path) -> None:
    code, found = raydt_command("verify", folder_command / "receipts.jsonl")
    assert (code, found["receipts"], found["deletes"], found["gaps"], "equal" in found) == (0, 2, 4, [], False)
    code, found = raydt_command(
        "verify", folder_command / "receipts.jsonl", folder_command / "third", "--receipt-key", folder_command / "key"
    )
    assert (code, found["equal"], found["live"], found["ok"]) == (0, True, 0, True)
    text = (folder_command / "receipts.jsonl").read_text()
    assert not [name for name in ("k0003", "k0150", "k0200", "k0004") if name in text]


def test_an_older_state_is_told(folder_command: Path) -> None:
    code, found = raydt_command(
        "verify", folder_command / "receipts.jsonl", folder_command / "second", "--receipt-key", folder_command / "key"
    )
    assert (code, found["equal"], found["older_than"], found["ok"]) == (3, False, 2, False)
    assert found["live"] == 0  # what later receipts deleted is there, and contradicts nothing


def test_a_dry_run_appends_nothing(folder_command: Path) -> None:
    before = (folder_command / "receipts.jsonl").read_bytes()
    chain = ["--receipts", folder_command / "receipts.jsonl", "--receipt-key", folder_command / "key"]
    ids_file(folder_command / "three.csv", ["k0007"])
    raydt_command("update", folder_command / "third", "--delete", folder_command / "three.csv", "--dry-run", *chain)
    assert (folder_command / "receipts.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--receipts", "r.jsonl"], message("commands.no_key")),
        (["--receipt-key", "key"], message("commands.no_receipts")),
        (["--receipts", "r.jsonl", "--receipt-key", "none"], "the key of receipts cannot be read"),
    ],
)
def test_what_does_not_fit_is_one_error(folder_command: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    ids_file(tmp_path / "gone.csv", ["k0008"])
    with pytest.raises(Exception, match=said):
        raydt_command(
            "update", folder_command / "run", "--delete", tmp_path / "gone.csv", "--out", tmp_path / "out", *arguments
        )
    assert not (tmp_path / "out").exists()
    with pytest.raises(Exception, match=message("commands.not_receipts", run=folder_command / "third")):
        raydt_command("verify", folder_command / "third", folder_command / "second")


def test_with_epsilon_0_the_deletion_is_repeated(tmp_path: Path) -> None:
    replayed(tmp_path, learner={"kind": "fudyadt", "epsilon": 0.0, "schedule": "published"})
    (tmp_path / "key").write_text("0f" * 32)
    ids_file(tmp_path / "gone.csv", ["k0003", "k0150"])
    chain = ["--receipts", tmp_path / "receipts.jsonl", "--receipt-key", tmp_path / "key"]
    raydt_command("update", tmp_path / "run", "--delete", tmp_path / "gone.csv", "--out", tmp_path / "second", *chain)
    code, found = raydt_command("verify", tmp_path / "receipts.jsonl", tmp_path / "second")
    assert (code, found["equal"], found["rebuilt"]) == (0, True, True)


def test_another_key_is_refused(folder_command: Path, tmp_path: Path) -> None:
    """Not found to be right: with it, no deleted id would live anywhere."""
    (tmp_path / "other").write_text("1e" * 32)
    before = (folder_command / "receipts.jsonl").read_bytes()
    ids_file(tmp_path / "gone.csv", ["k0008"])
    chain = ["--receipts", folder_command / "receipts.jsonl", "--receipt-key", tmp_path / "other"]
    for command in (
        ["verify", folder_command / "receipts.jsonl", folder_command / "second", "--receipt-key", tmp_path / "other"],
        ["verify", folder_command / "receipts.jsonl", "--receipt-key", tmp_path / "other"],
        ["update", folder_command / "third", "--delete", tmp_path / "gone.csv", "--out", tmp_path / "out", *chain],
        ["update", folder_command / "third", "--delete", tmp_path / "gone.csv", "--dry-run", *chain],
        ["purge", folder_command / "third", *chain],
        ["purge", folder_command / "third", "--dry-run", *chain],
    ):
        with refused("receipts.other_key", ConfigError, file=str(folder_command / "receipts.jsonl"), row=0):
            raydt_command(*command)
    assert not (tmp_path / "out").exists()
    assert (folder_command / "receipts.jsonl").read_bytes() == before


def updated(folder: Path, tmp_path: Path, receipts: Path) -> tuple[Path, list[Any]]:
    """An update with a receipt: where its state goes, and the command."""
    ids_file(tmp_path / "gone.csv", ["k0008"])
    out = tmp_path / "states" / "new"
    chain = ["--receipts", receipts, "--receipt-key", folder / "key"]
    return out, ["update", folder / "third", "--delete", tmp_path / "gone.csv", "--out", out, *chain]


@pytest.mark.parametrize("place", ["missing/receipts.jsonl", "pipe", "/dev/full", "."])
def test_a_chain_that_cannot_be_written_is_found_out_before_anything_is(
    folder_command: Path, tmp_path: Path, place: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    _, command = updated(folder_command, tmp_path, tmp_path / place)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError) as caught:
        raydt_command(*command)
    said = message_of(caught.value)
    assert said is not None
    assert said.id in ("receipts.no_folder", "receipts.no_file", "machine.not_written")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("full", ["chain", "components", "manifest"])
def test_a_full_disk_leaves_neither_receipt_nor_state(
    folder_command: Path, tmp_path: Path, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = tmp_path / "receipts.jsonl"
    chain.write_bytes((folder_command / "receipts.jsonl").read_bytes())
    out, command = updated(folder_command, tmp_path, chain)
    before, publish = sorted(tmp_path.rglob("*")), Folder.publish

    def no_space(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def published(folder: Folder, name: str, data: Any) -> None:
        if (name == "manifest.json") == (full == "manifest"):
            no_space()
        publish(folder, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "write", no_space) if full == "chain" else (Folder, "publish", published)))
        with pytest.raises(InputError, match="No space left on device"):
            raydt_command(*command)
    assert sorted(tmp_path.rglob("*")) == before
    assert chain.read_bytes() == (folder_command / "receipts.jsonl").read_bytes()
    assert raydt_command(*command)[0] == 0
    assert raydt_command("verify", chain, out, "--receipt-key", folder_command / "key")[1]["ok"]


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(one, marks=[] if one in ("chain", "end") else pytest.mark.nightly)
        for one in (1, 3, "chain", "manifest", "end")
    ],
)
def test_an_update_that_was_killed_is_run_again(folder_command: Path, tmp_path: Path, moment: int | str) -> None:
    """Nothing is removed by hand; no state is without its receipt."""
    chain = tmp_path / "receipts.jsonl"
    chain.write_bytes((folder_command / "receipts.jsonl").read_bytes())
    out, command = updated(folder_command, tmp_path, chain)
    program = [sys.executable, str(Path(__file__).with_name("killed_update.py")), str(moment)]
    killed = subprocess.run([*program, *map(str, command)], capture_output=True)
    assert killed.returncode == -9, killed.stderr
    receipts = len(chain.read_bytes().splitlines())
    assert receipts == 2 + (moment in ("manifest", "end"))
    if moment == "end":  # all is done
        with pytest.raises(ConfigError, match="not empty"):
            raydt_command(*command)
    else:
        assert (out / ".lock").exists()
        assert raydt_command(*command)[0] == 0
    found = raydt_command("verify", chain, out, "--receipt-key", folder_command / "key")[1]
    assert (found["ok"], found["gaps"], found["rollbacks"]) == (True, [], int(moment == "manifest"))
    names = {entry["name"] for entry in json.loads((out / "manifest.json").read_text())["files"]} | {"manifest.json"}
    assert {path.name for path in out.iterdir()} == names | ({".lock"} if moment == "end" else set())


@pytest.mark.parametrize("foreign", [".env", "notes.txt", ".coordinator.npz", "manifest.json"])
def test_what_no_update_has_left_is_not_removed(folder_command: Path, tmp_path: Path, foreign: str) -> None:
    out, command = updated(folder_command, tmp_path, tmp_path / "receipts.jsonl")
    out.mkdir(parents=True)
    for name in (".lock", "coordinator.0123456789abcdef.npz", foreign):
        (out / name).write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        raydt_command(*command)
    (out / foreign).unlink()
    (out / ".lock").unlink()  # without it nobody knows who wrote the rest
    with pytest.raises(ConfigError, match="not empty"):
        raydt_command(*command)
    assert [path.name for path in out.iterdir()] == ["coordinator.0123456789abcdef.npz"]
    assert not (tmp_path / "receipts.jsonl").exists()


@pytest.mark.parametrize("asked", [["--id", "1", "--receipt-key"], ["--receipt", "1"]], ids=" ".join)
def test_a_file_of_receipts_that_is_not_there_is_named(asked: list[str], folder_command: Path, tmp_path: Path) -> None:
    asked = [*asked, folder_command / "key"] if asked[-1] == "--receipt-key" else asked
    with pytest.raises(InputError, match="No such file") as caught:
        raydt_command("verify", tmp_path / "none.jsonl", *asked)
    assert caught.value.file == str(tmp_path / "none.jsonl")


# -- files that are something else ----------------------------------------------------------------------------------

CHAIN = Path(__file__).parents[1] / "former" / "receipts-2.jsonl"
#: Contents of files that are no chain, no key and no private key.
RUBBISH = {
    "binary": bytes(range(256)),
    "empty": b"",
    "csv": b"id\n3\n",
    "UTF-16": CHAIN.read_text().encode("utf-16"),
    "cut in the first line": CHAIN.read_bytes()[:100],
    "cut in the last line": CHAIN.read_bytes()[:-50],
    "JSON": b"{}\n",
    "Parquet": b"PAR1" + bytes(64) + b"PAR1",
    "a public key": b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n",
}
COMMANDS: dict[str, tuple[list[Any], list[str]]] = {
    "a chain": (["verify", "{}"], ["no_chain", "not_receipt", "empty"]),
    "a chain of pages": (["report", "{}", "--out", "pages"], ["no_chain", "not_receipt", "empty"]),
    "a key": (["verify", CHAIN, "--id", "3", "--receipt-key", "{}"], ["bad_key", "unread_key"]),
    "a public key": (["verify", CHAIN, "--public-key", "{}"], ["public_key"]),
}


@pytest.mark.parametrize("rubbish", RUBBISH)
@pytest.mark.parametrize("place", COMMANDS)
def test_a_file_that_is_something_else_is_one_error_with_the_remedy(place: str, rubbish: str, tmp_path: Path) -> None:
    """No codec speaks, and what is wrong with a key does not blame the receipts."""
    (tmp_path / "rubbish").write_bytes(RUBBISH[rubbish])
    command, ids = COMMANDS[place]
    with pytest.raises((InputError, ConfigError)) as caught:
        raydt_command(*(tmp_path / "rubbish" if word == "{}" else word for word in command))
    said = message_of(caught.value)
    assert said is not None
    assert said.id in [f"receipts.{id}" for id in ids]
    assert getattr(caught.value, "remedy", None) or said.remedy
    assert "rubbish" in str(caught.value)
    assert "codec" not in str(caught.value)


@pytest.mark.parametrize("rubbish", [*RUBBISH, None])
def test_a_private_key_that_is_none_is_one_error_with_the_remedy(rubbish: str | None, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    file = tmp_path / "rubbish"
    file.mkdir() if rubbish is None else file.write_bytes(RUBBISH[rubbish])
    id = "private_key" if rubbish is None else "no_ed25519"
    with refused(f"receipts.{id}", ConfigError, file=str(file)) as caught:
        Signer(file)
    assert "openssl" in str(caught.value)
