"""``update --receipts`` and ``verify RECEIPTS [STATE]``: what holds is confirmed, and what does not is told."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from updatable import ids_file, replayed, table

from pipelines.cli import cli
from raydt.errors import ConfigError, InputError
from raydt.folders.folder import Folder
from raydt.messages import message, message_of
from raydt.sessions.receipt_chain import Signer
from tests.refusals import refused


def raydt(*arguments: Any) -> tuple[int, Any]:
    result = CliRunner().invoke(cli, [*map(str, arguments), "--json"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, json.loads(result.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two updates of a run with text ids, and their receipts."""
    folder = tmp_path_factory.mktemp("receipts")
    replayed(folder)
    (folder / "key").write_text("0f" * 32)
    pq.write_table(table(200, 210), folder / "new.parquet")
    ids_file(folder / "one.csv", ["k0003", "k0150"])
    ids_file(folder / "two.csv", ["k0200", "k0004"])
    chain = ["--receipts", folder / "receipts.jsonl", "--receipt-key", folder / "key"]
    new = ["--insert", folder / "new.parquet"]
    raydt("update", folder / "run", "--delete", folder / "one.csv", *new, "--out", folder / "second", *chain)
    raydt("update", folder / "second", "--delete", folder / "two.csv", "--out", folder / "third", *chain)
    return folder


def test_the_state_of_the_last_receipt_is_confirmed(folder: Path) -> None:
    code, found = raydt("verify", folder / "receipts.jsonl")
    assert (code, found["receipts"], found["deletes"], found["gaps"], "equal" in found) == (0, 2, 4, [], False)
    code, found = raydt("verify", folder / "receipts.jsonl", folder / "third", "--receipt-key", folder / "key")
    assert (code, found["equal"], found["live"], found["ok"]) == (0, True, 0, True)
    text = (folder / "receipts.jsonl").read_text()
    assert not [name for name in ("k0003", "k0150", "k0200", "k0004") if name in text]


def test_another_state_is_told(folder: Path) -> None:
    code, found = raydt("verify", folder / "receipts.jsonl", folder / "second", "--receipt-key", folder / "key")
    assert (code, found["equal"], found["live"], found["ok"]) == (3, False, 2, False)


def test_a_dry_run_appends_nothing(folder: Path) -> None:
    before = (folder / "receipts.jsonl").read_bytes()
    chain = ["--receipts", folder / "receipts.jsonl", "--receipt-key", folder / "key"]
    ids_file(folder / "three.csv", ["k0007"])
    raydt("update", folder / "third", "--delete", folder / "three.csv", "--dry-run", *chain)
    assert (folder / "receipts.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--receipts", "r.jsonl"], message("commands.no_key")),
        (["--receipt-key", "key"], message("commands.no_receipts")),
        (["--receipts", "r.jsonl", "--receipt-key", "none"], "the key of receipts cannot be read"),
    ],
)
def test_what_does_not_fit_is_one_error(folder: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    ids_file(tmp_path / "gone.csv", ["k0008"])
    with pytest.raises(Exception, match=said):
        raydt("update", folder / "run", "--delete", tmp_path / "gone.csv", "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()
    with pytest.raises(Exception, match=message("commands.not_receipts", run=folder / "third")):
        raydt("verify", folder / "third", folder / "second")


def test_with_epsilon_0_the_deletion_is_repeated(tmp_path: Path) -> None:
    replayed(tmp_path, learner={"kind": "fudyadt", "epsilon": 0.0, "schedule": "published"})
    (tmp_path / "key").write_text("0f" * 32)
    ids_file(tmp_path / "gone.csv", ["k0003", "k0150"])
    chain = ["--receipts", tmp_path / "receipts.jsonl", "--receipt-key", tmp_path / "key"]
    raydt("update", tmp_path / "run", "--delete", tmp_path / "gone.csv", "--out", tmp_path / "second", *chain)
    code, found = raydt("verify", tmp_path / "receipts.jsonl", tmp_path / "second")
    assert (code, found["equal"], found["rebuilt"]) == (0, True, True)


def test_another_key_is_refused(folder: Path, tmp_path: Path) -> None:
    """Not found to be right: with it, no deleted id would live anywhere."""
    (tmp_path / "other").write_text("1e" * 32)
    before = (folder / "receipts.jsonl").read_bytes()
    ids_file(tmp_path / "gone.csv", ["k0008"])
    chain = ["--receipts", folder / "receipts.jsonl", "--receipt-key", tmp_path / "other"]
    for command in (
        ["verify", folder / "receipts.jsonl", folder / "second", "--receipt-key", tmp_path / "other"],
        ["verify", folder / "receipts.jsonl", "--receipt-key", tmp_path / "other"],
        ["update", folder / "third", "--delete", tmp_path / "gone.csv", "--out", tmp_path / "out", *chain],
        ["update", folder / "third", "--delete", tmp_path / "gone.csv", "--dry-run", *chain],
        ["purge", folder / "third", *chain],
        ["purge", folder / "third", "--dry-run", *chain],
    ):
        with refused("receipts.other_key", ConfigError, file=str(folder / "receipts.jsonl"), row=0):
            raydt(*command)
    assert not (tmp_path / "out").exists()
    assert (folder / "receipts.jsonl").read_bytes() == before


def updated(folder: Path, tmp_path: Path, receipts: Path) -> tuple[Path, list[Any]]:
    """An update with a receipt: where its state goes, and the command."""
    ids_file(tmp_path / "gone.csv", ["k0008"])
    out = tmp_path / "states" / "new"
    chain = ["--receipts", receipts, "--receipt-key", folder / "key"]
    return out, ["update", folder / "third", "--delete", tmp_path / "gone.csv", "--out", out, *chain]


@pytest.mark.parametrize("place", ["missing/receipts.jsonl", "pipe", "/dev/full", "."])
def test_a_chain_that_cannot_be_written_is_found_out_before_anything_is(
    folder: Path, tmp_path: Path, place: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    _, command = updated(folder, tmp_path, tmp_path / place)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError) as caught:
        raydt(*command)
    said = message_of(caught.value)
    assert said is not None
    assert said.id in ("receipts.no_folder", "receipts.no_file", "machine.not_written")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("full", ["chain", "components", "manifest"])
def test_a_full_disk_leaves_neither_receipt_nor_state(
    folder: Path, tmp_path: Path, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = tmp_path / "receipts.jsonl"
    chain.write_bytes((folder / "receipts.jsonl").read_bytes())
    out, command = updated(folder, tmp_path, chain)
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
            raydt(*command)
    assert sorted(tmp_path.rglob("*")) == before
    assert chain.read_bytes() == (folder / "receipts.jsonl").read_bytes()
    assert raydt(*command)[0] == 0
    assert raydt("verify", chain, out, "--receipt-key", folder / "key")[1]["ok"]


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(one, marks=[] if one in ("chain", "end") else pytest.mark.nightly)
        for one in (1, 3, "chain", "manifest", "end")
    ],
)
def test_an_update_that_was_killed_is_run_again(folder: Path, tmp_path: Path, moment: int | str) -> None:
    """Nothing is removed by hand; no state is without its receipt."""
    chain = tmp_path / "receipts.jsonl"
    chain.write_bytes((folder / "receipts.jsonl").read_bytes())
    out, command = updated(folder, tmp_path, chain)
    program = [sys.executable, str(Path(__file__).with_name("killed_update.py")), str(moment)]
    killed = subprocess.run([*program, *map(str, command)], capture_output=True)
    assert killed.returncode == -9, killed.stderr
    receipts = len(chain.read_bytes().splitlines())
    assert receipts == 2 + (moment in ("manifest", "end"))
    if moment == "end":  # all is done
        with pytest.raises(ConfigError, match="not empty"):
            raydt(*command)
    else:
        assert (out / ".lock").exists()
        assert raydt(*command)[0] == 0
    found = raydt("verify", chain, out, "--receipt-key", folder / "key")[1]
    assert (found["ok"], found["gaps"], found["rollbacks"]) == (True, [], int(moment == "manifest"))
    names = {entry["name"] for entry in json.loads((out / "manifest.json").read_text())["files"]} | {"manifest.json"}
    assert {path.name for path in out.iterdir()} == names | ({".lock"} if moment == "end" else set())


@pytest.mark.parametrize("foreign", [".env", "notes.txt", ".coordinator.npz", "manifest.json"])
def test_what_no_update_has_left_is_not_removed(folder: Path, tmp_path: Path, foreign: str) -> None:
    out, command = updated(folder, tmp_path, tmp_path / "receipts.jsonl")
    out.mkdir(parents=True)
    for name in (".lock", "coordinator.0123456789abcdef.npz", foreign):
        (out / name).write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        raydt(*command)
    (out / foreign).unlink()
    (out / ".lock").unlink()  # without it nobody knows who wrote the rest
    with pytest.raises(ConfigError, match="not empty"):
        raydt(*command)
    assert [path.name for path in out.iterdir()] == ["coordinator.0123456789abcdef.npz"]
    assert not (tmp_path / "receipts.jsonl").exists()


@pytest.mark.parametrize("asked", [["--id", "1", "--receipt-key"], ["--receipt", "1"]], ids=" ".join)
def test_a_file_of_receipts_that_is_not_there_is_named(asked: list[str], folder: Path, tmp_path: Path) -> None:
    asked = [*asked, folder / "key"] if asked[-1] == "--receipt-key" else asked
    with pytest.raises(InputError, match="No such file") as caught:
        raydt("verify", tmp_path / "none.jsonl", *asked)
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
        raydt(*(tmp_path / "rubbish" if word == "{}" else word for word in command))
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
