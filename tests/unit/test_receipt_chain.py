"""Receipts on file form a chain: no change of it goes unseen, and no id is in it."""

from __future__ import annotations

import copy
import errno
import gc
import hashlib
import json
import os
import random
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt import FullyDynamicTreeClassifier
from raydt.errors import ConfigError, InputError
from raydt.messages import message, message_of
from raydt.sessions import receipt_chain
from raydt.sessions.receipt import Entry, encoded, sealed
from raydt.sessions.receipt_chain import Key, OpenChain, Origin, Signer, append, opened, read_chain
from tests.fuzz.mutations import mutated
from tests.refusals import refused
from tests.unit.updatable import private_key

KEY = Key(bytes(range(32)))
#: Ids of so many digits cannot be in a file by chance.
IDS = 7_000_000_000_000_000 + np.arange(30)


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """Four receipts of one model."""
    rng = np.random.default_rng(0)
    tree = FullyDynamicTreeClassifier().fit(rng.normal(size=(30, 2)), rng.integers(0, 2, 30), ids=IDS)
    for i in range(3):
        append(tmp_path / "receipts.jsonl", tree.forget(IDS[2 * i : 2 * i + 2]), KEY, time=f"day {i}")
    replaced = tree.replace_examples(IDS[10:11], [[0.0, 0.0]], [1], new_ids=IDS[:1])
    append(tmp_path / "receipts.jsonl", replaced, KEY, time="day 3")
    return tmp_path / "receipts.jsonl"


def test_each_entry_names_the_one_before(chain: Path) -> None:
    read, lines = read_chain(chain), chain.read_bytes().splitlines(keepends=True)
    assert len(read.entries) == 4
    assert (read.gaps, read.signers) == ([], [])
    assert [entry["previous"] for entry in read.entries] == [
        None,
        *("sha256:" + hashlib.sha256(line).hexdigest() for line in lines[:-1]),
    ]
    assert read.head == "sha256:" + hashlib.sha256(lines[-1]).hexdigest()
    for before, entry in zip(read.entries, read.entries[1:], strict=False):
        assert before["digest_after"] == entry["digest_before"] != entry["digest_after"]
    first = read.entries[0]
    assert (first["learner"], first["active_before"], first["active"], tuple(first)) == (
        "fudyadt",
        30,
        28,
        tuple(
            name
            for name in (*tuple(Entry.model_fields)[:19], "sha256")
            if name not in ("former", "subjects", "missing", "note")
        ),
    )


def test_ids_are_there_for_who_has_the_key(chain: Path) -> None:
    entries = read_chain(chain).entries
    assert entries[0]["deleted"] == sorted(KEY.hash(int(one)) for one in IDS[:2])
    assert entries[3]["inserted"] == [KEY.hash(int(IDS[0]))]
    assert str(IDS[0]) not in chain.read_text()
    assert Key(bytes(32)).hash(7) != KEY.hash(7) != KEY.hash("7")
    assert KEY.check not in (Key(bytes(32)).check, KEY.hash(""))


@pytest.mark.parametrize("line", range(4))
@pytest.mark.parametrize("part", ["digest_after", "deleted", "time", "previous"])
def test_a_change_shows(chain: Path, line: int, part: str) -> None:
    lines = chain.read_text().splitlines()
    entry = json.loads(lines[line])
    entry[part] = {"time": "another", "deleted": entry["deleted"][:0]}.get(part, "sha256:" + "0" * 64)
    entry["active"] = entry["active_before"] - len(entry["deleted"]) + len(entry["inserted"])
    lines[line] = json.dumps(entry, separators=(",", ":"))
    chain.write_text("\n".join(lines) + "\n")
    with refused("receipts.not_receipt", InputError, row=line, reason=message("receipts.other_hash")):
        read_chain(chain)
    lines[line] = encoded(sealed(entry)).decode()  # by somebody who knows the format
    chain.write_text("\n".join(lines) + "\n")
    if line == 3 and part != "previous":  # what nothing follows: its hash is another
        assert read_chain(chain).head != "sha256:" + hashlib.sha256(lines[-1].encode()).hexdigest()
    else:
        with refused("receipts.broken_chain", InputError):
            read_chain(chain)


@pytest.mark.parametrize(
    ("damaged", "name"),
    [
        (lambda lines: lines[1:], "broken_chain"),
        (lambda lines: lines[:1] + lines[2:], "broken_chain"),
        (lambda lines: [lines[0], lines[0]], "broken_chain"),
        (lambda lines: [*lines[:3], lines[3][:-30]], "not_receipt"),
        (lambda lines: [], "empty"),
    ],
    ids=["first gone", "second gone", "repeated", "half written", "empty"],
)
def test_a_missing_line_shows_and_nothing_is_appended(chain: Path, damaged: Any, name: str) -> None:
    chain.write_text("".join(damaged(chain.read_text().splitlines(keepends=True))))
    before = chain.read_bytes()
    with refused(f"receipts.{name}", InputError):
        read_chain(chain)
    if before:  # else it is begun
        with refused(f"receipts.{name}", InputError):
            append(chain, FullyDynamicTreeClassifier().fit(np.eye(3), [0, 1, 0]).forget([0]), KEY, time="")
    assert chain.read_bytes() == before


def test_one_opened_chain_writes_what_one_for_each_entry_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the purge of an older state, of which the newest entry is read again only when somebody needs it."""
    tree = FullyDynamicTreeClassifier().fit(np.eye(6), [0, 1, 0, 1, 0, 1], ids=IDS[:6])
    older, first, second = copy.deepcopy(tree), tree.forget(IDS[:1]), tree.forget(IDS[1:2])
    back = older.forget(IDS[2:3])  # of the state before the first
    purged = {"ids": None, "replaced": [], "rewritten": [], "out_of_reach": []}
    purge = {"learner": first.learner, "options_hash": first.options_hash, "deleted": [], "inserted": []}
    purge |= {"digest_before": first.digest_before, "digest_after": first.digest_before, "purged": purged}
    purge |= {"active_before": 6, "active": 6}
    given: list[Any] = [first, purge, purge, second, purge, back]
    one, each = tmp_path / "one.jsonl", tmp_path / "each.jsonl"

    def write(chain: OpenChain, entry: Any) -> None:
        if isinstance(entry, dict):
            with monkeypatch.context() as unread:
                unread.setattr(receipt_chain, "read_chain", None)  # an entry that is written is never a failure
                chain.append_values(entry, time="")
        else:
            chain.append(entry, time="")

    with opened(one, KEY) as chain:
        for entry in given:
            write(chain, entry)
    for entry in given:
        with opened(each, KEY) as chain:
            write(chain, entry)
    assert one.read_bytes() == each.read_bytes()
    assert [entry.get("rolled_back") for entry in read_chain(one).entries] == [None] * 5 + [0, None]


def test_memory_does_not_grow_with_the_entries(chain: Path) -> None:
    entry = read_chain(chain).entries[-1]
    names = [*Entry.model_fields][[*Entry.model_fields].index("learner") :]
    values = {name: entry[name] for name in names if name in entry and name != "key_check"}
    with opened(chain, KEY) as kept:
        held = []
        for number in range(200):
            if number in (50, 199):
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
            after = f"sha256:{number:064x}"
            kept.append_values(values | {"digest_before": entry["digest_after"], "digest_after": after}, time="day 4")
            entry = {"digest_after": after}
            if not number:
                tracemalloc.start()
        tracemalloc.stop()
    assert held[1] - held[0] < 20 * 149  # bytes an entry; it was 400
    assert read_chain(chain).gaps == []


def test_a_change_without_a_receipt_is_a_gap(tmp_path: Path) -> None:
    file = tmp_path / "receipts.jsonl"
    tree = FullyDynamicTreeClassifier().fit(np.eye(4), [0, 1, 0, 1])
    append(file, tree.forget([0]), KEY, time="")
    tree.partial_fit([[5.0, 5.0, 5.0, 5.0]], [1])
    receipt = tree.forget([1])
    append(file, receipt, KEY, time="")
    assert read_chain(file).gaps == [2]
    with refused("receipts.no_digests", ConfigError):
        append(file, replace(receipt, digest_after=None), KEY, time="")


@pytest.mark.parametrize("known", [True, False])
def test_a_model_that_the_chain_has_by_the_former_format_is_no_gap(tmp_path: Path, known: bool) -> None:
    file, old, asked = tmp_path / "receipts.jsonl", f"sha256:{7:064x}", []
    tree = FullyDynamicTreeClassifier().fit(np.eye(6), [0, 1, 0, 1, 0, 1])
    receipts = [tree.forget([i]) for i in range(3)]
    append(file, replace(receipts[0], digest_after=old), KEY, time="")

    def former() -> str:
        asked.append(1)
        return old if known else f"sha256:{8:064x}"

    with opened(file, KEY) as chain:
        chain.about(Origin("here", "fudyadt", None, None, old, {}, former=former))
        for receipt in receipts[1:]:
            chain.append(receipt, time="")
    read = read_chain(file, KEY)
    assert (read.gaps, len(asked)) == ([] if known else [2], 1)
    assert [entry.get("former") for entry in read.entries] == [None, old if known else None, None]
    before = receipts[1].digest_before
    assert before is not None
    back = read.course.rollback_to(before, receipts[0].options_hash, "fudyadt")
    assert back is not None
    assert back["rolled_back"] == 1
    assert (read.course.rollback_to(old, receipts[0].options_hash, "fudyadt") or {})["rolled_back"] == 1


def test_signatures(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    file, pem = tmp_path / "receipts.jsonl", tmp_path / "key.pem"
    private_key(pem)
    signer = Signer(pem)
    tree = FullyDynamicTreeClassifier().fit(np.eye(4), [0, 1, 0, 1])
    append(file, tree.forget([0]), KEY, time="", signer=signer)
    append(file, tree.forget([1]), KEY, time="")
    read = read_chain(file)
    assert (read.signers, read.all_signed) == ([signer.public_key], False)
    entry = json.loads(file.read_text().splitlines()[0])
    entry["time"] = "another"
    file.write_bytes(encoded(sealed(entry)) + b"\n")
    with refused("receipts.bad_signature", InputError, row=0):
        read_chain(file)


def test_a_bad_key_is_one_error_with_the_way_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("00ff")
    for name, id in (("short", "bad_key"), ("missing", "unread_key")):
        with refused(f"receipts.{id}", ConfigError, file=str(tmp_path / name)) as caught:
            Key.read(tmp_path / name)
        assert "token_hex" in str(caught.value)
    for name, id in (("short", "no_ed25519"), ("missing", "private_key"), ("", "private_key")):
        with refused(f"receipts.{id}", ConfigError, file=str(tmp_path / name)) as caught:
            Signer(tmp_path / name)
        assert "openssl" in str(caught.value)


# -- one line, one meaning ------------------------------------------------------------------------------------------

FORMER = Path(__file__).parents[1] / "former" / "receipts-1.jsonl"
SECOND = FORMER.with_name("receipts-2.jsonl")
#: What a value becomes.
ODD = [None, True, 0, -1, 1.0, 1e300, 2**70, "", "x", [], {}, [5], [[]], {"a": 1}, float("nan"), float("inf")]


def leaves(value: Any) -> list[tuple[Any, Any]]:
    """Each container in a JSON value, and a key of it."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [leaf for key in keys for leaf in leaves(value[key])]


def another_value(line: bytes, draw: random.Random) -> bytes:
    entry = json.loads(line)
    holder, key = draw.choice(leaves(entry))
    holder[key] = draw.choice(ODD)
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def another_spelling(line: bytes, draw: random.Random) -> bytes:
    """The same values, or with one more, in other bytes."""
    entry = json.loads(line)
    pairs = list(entry.items())
    key, value = draw.choice(pairs)
    kind = draw.randrange(9)
    if kind == 0:
        return json.dumps(entry).encode() + b"\n"
    if kind == 1:
        return json.dumps(dict(draw.sample(pairs, len(pairs))), separators=(",", ":")).encode() + b"\n"
    if kind == 2:  # the key again, before or behind
        more = b"%s:%s" % (json.dumps(key).encode(), json.dumps(draw.choice([value, "x", 0])).encode())
        return draw.choice([b"{" + more + b"," + line[1:], line[:-2] + b"," + more + b"}\n"])
    if kind == 3:
        return json.dumps({k: v for k, v in pairs if k != key}, separators=(",", ":")).encode() + b"\n"
    if kind == 4:
        return (
            json.dumps({**entry, draw.choice(["more", "purged", "signature"]): 1}, separators=(",", ":")).encode()
            + b"\n"
        )
    if kind == 5:
        return line.replace(b"a", b"\\u0061", 1)
    if kind == 6:
        return draw.choice([b" " + line, line[:-1] + b" \n", line[:-1] + b"\r\n", b"\xef\xbb\xbf" + line, line + b"\n"])
    if kind == 7:
        return line[: draw.randrange(1, len(line))]
    return draw.choice(
        [b"[" * 100_000 + b"\n", b"null\n", b"[]\n", b"1" * 5000 + b"\n", line.decode().encode("utf-16")]
    )


def another_byte(line: bytes, draw: random.Random) -> bytes:
    return mutated(line, [line], draw, True)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Receipts and purges, signed, of this format."""
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("signed")
    private_key(folder / "key.pem")
    signer, file = Signer(folder / "key.pem"), folder / "receipts.jsonl"
    tree = FullyDynamicTreeClassifier().fit(np.arange(24.0).reshape(12, 2), [0, 1] * 6)
    append(file, tree.forget([0, 3], note="CASE-17"), KEY, time="", signer=signer)
    append(file, tree.replace_examples([1], [[9.0, 9.0]], [1]), KEY, time="", signer=signer)
    same = {"digest_before": tree.digest(), "digest_after": tree.digest(), "active_before": 10, "active": 10}
    purged = {"ids": KEY.hashes([0, 3]), "replaced": ["a"], "rewritten": [], "out_of_reach": ["backups"]}
    values = {key: read_chain(file).entries[0][key] for key in ("learner", "options_hash")}
    with opened(file, KEY, signer) as chain:
        rest = {"deleted": [], "inserted": [], "purged": purged}
        chain.append_values({**values, **same, **rest}, time="")
        first = read_chain(file).entries[0]["digest_after"]
        chain.append_rollback(first, values["options_hash"], values["learner"], time="", note="a restore")
    return file


@pytest.mark.parametrize("volume", [400, pytest.param(40_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("mutate", [another_value, another_spelling, another_byte])
def test_no_line_has_two_spellings_and_no_signed_line_can_be_changed(
    signed: Path, tmp_path: Path, mutate: Any, volume: int
) -> None:
    """Of a chain that is taken, each byte is what its values are written as; a change is one error with its line."""
    draw = random.Random(mutate.__name__)
    file = tmp_path / "receipts.jsonl"
    refusals: dict[int, Exception] = {}
    for number in range(volume):
        origin = draw.choice([signed, FORMER, SECOND])
        lines = origin.read_bytes().splitlines(keepends=True)
        at = draw.randrange(len(lines))
        at = draw.choice([at, len(lines) - 1])  # nothing follows the last one, whose hash would differ
        changed = [*lines[:at], mutate(lines[at], draw), *lines[at + 1 :]]
        if b"".join(changed) == b"".join(lines):
            continue
        file.write_bytes(b"".join(changed))
        try:
            read = read_chain(file, KEY)
        except (InputError, ConfigError) as error:
            refusals[number] = error
            continue
        assert b"".join(encoded(entry) + b"\n" for entry in read.entries) == file.read_bytes(), number
        assert len(read.entries) < len(lines) or not read.all_signed, f"{number}: a signed line was changed"
    assert len(refusals) > volume / 2
    for number, error in refusals.items():
        said, text = message_of(error), str(error)
        assert said is not None, number
        assert said.id.startswith("receipts."), (number, text)
        assert re.search(r"receipts\.jsonl, row \d+: ", text) or said.id == "receipts.empty", (number, text)
        assert len(text) < 600, number


def test_a_chain_of_an_earlier_version_is_read_and_continued(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    file = tmp_path / "receipts.jsonl"
    file.write_bytes(FORMER.read_bytes())
    read = read_chain(file, KEY)
    assert (len(read.entries), read.gaps, len(read.signers), read.keyed) == (4, [], 1, False)
    assert not read_chain(file, Key(bytes(32))).keyed  # such a chain does not tell
    append(file, FullyDynamicTreeClassifier().fit(np.eye(3), [0, 1, 0]).forget([0]), KEY, time="")
    assert file.read_bytes().startswith(FORMER.read_bytes())
    assert [entry["format"][-1] for entry in read_chain(file, KEY).entries] == ["1", "1", "1", "1", "6"]
    with refused("receipts.other_key", ConfigError, row=4):
        read_chain(file, Key(bytes(32)))


# -- where it cannot be kept ----------------------------------------------------------------------------------------


def test_one_process_at_a_time_appends(tmp_path: Path) -> None:
    file = tmp_path / "receipts.jsonl"
    receipt = FullyDynamicTreeClassifier().fit(np.eye(3), [0, 1, 0]).forget([0])
    with opened(file, KEY), refused("receipts.other_writer", ConfigError):
        append(file, receipt, KEY, time="")
    assert not file.exists()
    with opened(file, KEY) as chain:
        chain.append(receipt, time="")
        with refused("receipts.other_writer", ConfigError):
            append(file, receipt, KEY, time="")
    assert len(read_chain(file).entries) == 1


@pytest.mark.parametrize("step", ["write", "half", "fsync"])
def test_a_disk_that_is_full_leaves_the_chain_as_it_was(
    chain: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    receipt = FullyDynamicTreeClassifier().fit(np.eye(3), [0, 1, 0]).forget([0])
    room = [100 if step == "half" else 10**6 if step == "fsync" else 0]

    def full(file: int, data: Any) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(file, bytes(data)[: room[0]])
        room[0] -= written
        return written

    def unflushed(file: int) -> None:
        if step == "fsync":
            raise OSError(errno.EIO, "Input/output error")

    with opened(chain, KEY) as open_chain, monkeypatch.context() as patch:
        open_chain.append(receipt, time="")
        before = chain.read_bytes()
        patch.setattr(os, "write", full)
        patch.setattr(os, "fsync", unflushed)
        reason = "Input/output error" if step == "fsync" else "No space left on device"
        with refused("machine.not_written", InputError, file=str(chain), reason=reason):
            open_chain.append(receipt, time="")
    assert chain.read_bytes() == before
    append(chain, receipt, KEY, time="")
