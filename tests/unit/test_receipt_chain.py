"""Receipts on file form a chain: no change of it goes unseen, and no id is in it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt import FullyDynamicTreeClassifier
from raydt.errors import ConfigError, InputError
from raydt.sessions.receipt_chain import ENTRY, Key, Signer, append, read_chain

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
    assert (first["learner"], first["active_before"], first["active"], tuple(first)) == ("fudyadt", 30, 28, ENTRY)


def test_ids_are_there_for_who_has_the_key(chain: Path) -> None:
    entries = read_chain(chain).entries
    assert entries[0]["deleted"] == sorted(KEY.hash(int(one)) for one in IDS[:2])
    assert entries[3]["inserted"] == [KEY.hash(int(IDS[0]))]
    assert str(IDS[0]) not in chain.read_text()
    assert Key(bytes(32)).hash(7) != KEY.hash(7) != KEY.hash("7")


@pytest.mark.parametrize("line", range(4))
@pytest.mark.parametrize("part", ["digest_after", "deleted", "time", "previous"])
def test_a_change_shows(chain: Path, line: int, part: str) -> None:
    lines = chain.read_text().splitlines()
    entry = json.loads(lines[line])
    entry[part] = "another"
    lines[line] = json.dumps(entry, separators=(",", ":"))
    chain.write_text("\n".join(lines) + "\n")
    if line == 3 and part != "previous":  # what nothing follows: its hash is another
        assert read_chain(chain).head != "sha256:" + hashlib.sha256(lines[-1].encode()).hexdigest()
    else:
        with pytest.raises(InputError, match="does not follow"):
            read_chain(chain)


@pytest.mark.parametrize(
    "damaged",
    [lambda lines: lines[1:], lambda lines: lines[:1] + lines[2:], lambda lines: [lines[0], lines[0]], lambda _: []],
    ids=["first gone", "second gone", "repeated", "empty"],
)
def test_a_missing_line_shows(chain: Path, damaged: Any) -> None:
    chain.write_text("".join(damaged(chain.read_text().splitlines(keepends=True))))
    with pytest.raises(InputError, match=r"does not follow|has no receipts"):
        read_chain(chain)


def test_a_half_written_line_is_one_error_and_nothing_is_appended(chain: Path) -> None:
    chain.write_bytes(chain.read_bytes()[:-30])
    before = chain.read_bytes()
    tree = FullyDynamicTreeClassifier().fit(np.eye(3), [0, 1, 0])
    with pytest.raises(InputError, match="is not a receipt"):
        append(chain, tree.forget([0]), KEY, time="")
    assert chain.read_bytes() == before


def test_a_change_without_a_receipt_is_a_gap(tmp_path: Path) -> None:
    file = tmp_path / "receipts.jsonl"
    tree = FullyDynamicTreeClassifier().fit(np.eye(4), [0, 1, 0, 1])
    append(file, tree.forget([0]), KEY, time="")
    tree.partial_fit([[5.0, 5.0, 5.0, 5.0]], [1])
    receipt = tree.forget([1])
    append(file, receipt, KEY, time="")
    assert read_chain(file).gaps == [2]
    with pytest.raises(ConfigError, match="without digests"):
        append(file, replace(receipt, digest_after=None), KEY, time="")


def _private_key() -> bytes:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def test_signatures(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    file, pem = tmp_path / "receipts.jsonl", tmp_path / "key.pem"
    pem.write_bytes(_private_key())
    signer = Signer(pem)
    tree = FullyDynamicTreeClassifier().fit(np.eye(4), [0, 1, 0, 1])
    append(file, tree.forget([0]), KEY, time="", signer=signer)
    append(file, tree.forget([1]), KEY, time="")
    read = read_chain(file)
    assert (read.signers, read.all_signed) == ([signer.public_key], False)
    entry = json.loads(file.read_text().splitlines()[0])
    entry["active"] += 1
    file.write_text(json.dumps(entry, separators=(",", ":")) + "\n")
    with pytest.raises(InputError, match="the signature is not that of its public key"):
        read_chain(file)


def test_a_bad_key_is_one_error_with_the_way_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("00ff")
    for name in ("short", "missing"):
        with pytest.raises(ConfigError, match="token_hex"):
            Key.read(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be read as a private key"):
        Signer(tmp_path / "short")
