"""Receipts for people: a note, a page for each, whether an id was deleted, and rollbacks that are receipts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from updatable import ids_file, replayed

from pipelines.cli import cli
from raydt import FullyDynamicTreeClassifier
from raydt.errors import ConfigError, InputError
from raydt.messages import message
from raydt.sessions.receipt_chain import Chain, Course, Key, append, events_of, gone, in_effect, is_deleted, read_chain
from tests.refusals import refused

KEY = Key(bytes(range(32)))


def raydt(*arguments: Any, plain: bool = False) -> Any:
    result = CliRunner().invoke(cli, [*map(str, arguments), *([] if plain else ["--json"])], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout if plain else json.loads(result.stdout)


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
