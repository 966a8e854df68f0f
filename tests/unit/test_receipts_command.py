"""``update --receipts`` and ``verify RECEIPTS [STATE]``: what holds is confirmed, and what does not is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from updatable import ids_file, replayed, table

from pipelines.cli import cli


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
    ("arguments", "message"),
    [
        (["--receipts", "r.jsonl"], "needs --receipt-key"),
        (["--receipt-key", "key"], "apply only with --receipts"),
        (["--receipts", "r.jsonl", "--receipt-key", "none"], "cannot be used as the key"),
    ],
)
def test_what_does_not_fit_is_one_error(folder: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    ids_file(tmp_path / "gone.csv", ["k0008"])
    with pytest.raises(Exception, match=message):
        raydt("update", folder / "run", "--delete", tmp_path / "gone.csv", "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()
    with pytest.raises(Exception, match="is not a file of receipts"):
        raydt("verify", folder / "third", folder / "second")


def test_with_epsilon_0_the_deletion_is_repeated(tmp_path: Path) -> None:
    replayed(tmp_path, learner={"kind": "fudyadt", "epsilon": 0.0, "schedule": "published"})
    (tmp_path / "key").write_text("0f" * 32)
    ids_file(tmp_path / "gone.csv", ["k0003", "k0150"])
    chain = ["--receipts", tmp_path / "receipts.jsonl", "--receipt-key", tmp_path / "key"]
    raydt("update", tmp_path / "run", "--delete", tmp_path / "gone.csv", "--out", tmp_path / "second", *chain)
    code, found = raydt("verify", tmp_path / "receipts.jsonl", tmp_path / "second")
    assert (code, found["equal"], found["rebuilt"]) == (0, True, True)
