"""Which key an update means, what it refuses, and what receipts prove of models by key."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, verify_receipts, verify_run
from pipelines.keyed.updating import KeysOfState, ListedDeletions
from pipelines.receipts import ReceiptFile, roll_back
from pipelines.saved_runs import load_model
from pipelines.updating import apply_changes
from pipelines.updating.changes import StateNames
from raydt.errors import InputError, ModelFileError, UpdateError
from raydt.sources.files.datafile import TableInMemory
from tests.keyed_runs import of_keys
from tests.refusals import refused

ROWS = [(i, f"s{i % 3}", float(i % 7), "yes" if i % 7 > 3 else "no") for i in range(60)]


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table(dict(zip(("id", "store", "x", "y"), map(list, zip(*rows, strict=True)), strict=True)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three stores; id 7 lives in two of them."""
    folder = tmp_path_factory.mktemp("stores")
    rows = [*ROWS, (7, "s0", 3.0, "no")]
    pq.write_table(table(rows), folder / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(folder / "rows.parquet"), "id": "id", "key": "store"},
        "stream": {"model": "incremental"},
        "learner": {"kind": "fudyadt", "epsilon": 0.0},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    return Path(pipelines.replay(config, folder / "run").path)


def test_an_id_of_several_keys_needs_its_key(run: Path, tmp_path: Path) -> None:
    with refused("keyed.several_keys", UpdateError, id="7", count=1, keys="'s0', 's1'", column="store"):
        pipelines.update(run, delete=[3, 7], out=tmp_path / "state")
    assert not (tmp_path / "state").exists()
    receipt = pipelines.update(run, delete={"id": [7, 3], "store": ["s1", "s0"]}, out=tmp_path / "state")
    assert {key: one.ids.tolist() for key, one in receipt.by_key.items()} == {"s0": [3], "s1": [7]}
    assert 7 in of_keys(tmp_path / "state").saved("s0").arrays["id"]
    with pytest.raises(UpdateError, match="no live example"):
        pipelines.update(run, delete={"id": [7], "store": ["s2"]}, dry_run=True)
    passed = pipelines.update(run, delete={"id": [7, 8], "store": ["nobody", "s2"]}, missing="skip", dry_run=True)
    assert (passed.ids.tolist(), passed.missing) == ([8], (7,))


def test_all_keys_are_checked_before_anything_is_written(run: Path, tmp_path: Path) -> None:
    """The last row is refused, and names its place in the file."""
    new = [(100, "s0", 1.0, "no"), (101, "s9", 1.0, "no"), (5, "s2", 1.0, "no")]
    pq.write_table(table(new), tmp_path / "new.parquet")
    with pytest.raises(UpdateError, match=r"new\.parquet, row 2"):
        pipelines.update(run, insert=tmp_path / "new.parquet", out=tmp_path / "state")
    assert not (tmp_path / "state").exists()
    pq.write_table(table(new).drop_columns(["store"]), tmp_path / "new.parquet")
    with pytest.raises(InputError, match="store"):
        pipelines.update(run, insert=tmp_path / "new.parquet", out=tmp_path / "state")


def test_receipts_prove_each_key_and_older_states(run: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("7d" * 32)
    chain = ReceiptFile(str(tmp_path / "receipts"), str(tmp_path / "key"))
    pipelines.update(run, delete=[3, 4, 5], out=tmp_path / "first", receipts=chain)
    pipelines.update(tmp_path / "first", delete={"id": [7], "store": ["s1"]}, out=tmp_path / "second", receipts=chain)
    found = verify_receipts(chain.path, tmp_path / "second", key=chain.key, ids=["3"])
    assert (found["ok"], found["live"], found["rebuilt"], found["gaps"]) == (True, 0, True, [])
    assert not verify_receipts(chain.path, tmp_path / "first", key=chain.key)["ok"]
    elsewhere = verify_receipts(chain.path, tmp_path / "second", key=chain.key, ids=["7"])
    # Deleted of one key, live in another: nothing that is live is reported as deleted.
    assert (elsewhere["live"], elsewhere["ids"][0]["deleted"], elsewhere["ids"][0]["live"]) == (0, False, True)
    roll_back(tmp_path / "first", chain)
    assert verify_receipts(chain.path, tmp_path / "first", key=chain.key)["ok"]
    assert verify_run(run)["equal"]
    assert verify_run(tmp_path / "second")["equal"]


def test_changes_make_successive_states(run: Path, tmp_path: Path) -> None:
    rows = [(200, "s0", 6.0, "yes"), (201, "s8", 1.0, "no"), (6, "s0", 0.0, "no")]
    ops = pa.array(["insert", "insert", "delete"])
    pq.write_table(table(rows).append_column("op", ops), tmp_path / "monday.parquet")
    done = apply_changes(run, tmp_path / "monday.parquet", out=tmp_path / "states")
    assert (done.updates, done.counts["inserts"], done.counts["deletes"]) == (3, 2, 1)
    assert done.receipt is not None
    assert set(done.receipt.by_key) == {"s0", "s8"}
    assert done.scores["window_accuracy"] == 1.0
    assert apply_changes(tmp_path / "states", tmp_path / "monday.parquet").files == []
    assert (tmp_path / "states/report.html").exists()
    pq.write_table(table(rows[:1]).append_column("op", ops[:1]), tmp_path / "tuesday.parquet")
    with pytest.raises(InputError, match=r"tuesday\.parquet, row 0"):
        apply_changes(tmp_path / "states", tmp_path / "tuesday.parquet")


def test_one_model_is_wanted_elsewhere(run: Path) -> None:
    with refused("keyed.folder", ModelFileError):
        load_model(run / "model")
    with refused("keyed.folder", ModelFileError):
        load_model(run / "checkpoints")


@pytest.mark.nightly
def test_a_list_with_keys_takes_time_by_its_length(tmp_path: Path) -> None:
    """A fifth of a second; by the square of its length it took 20."""
    n = 20_000
    pq.write_table(table([(i, "s0", float(i % 7), "no") for i in range(n)]), tmp_path / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "id": "id", "key": "store"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    keys = of_keys(Path(pipelines.replay(config, tmp_path / "run").path))
    names = StateNames.of(keys.outline())
    listed = TableInMemory(pa.table({"id": range(n), "store": ["s0"] * n}), "list")
    began = time.process_time()
    found = ListedDeletions(KeysOfState(keys), names, listed, "store").by_key()
    assert time.process_time() - began < 3
    assert found["s0"].count() == n


def test_a_run_that_took_updates_in_is_audited_with_their_files(tmp_path: Path) -> None:
    """Lists with and without keys, a key that begins, a change log, an update of a state, and again after a resume."""
    rows = [(*row, "insert") for row in ROWS] + [(7, "s0", 3.0, "no", "insert")]
    pq.write_table(changes(rows), tmp_path / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "id": "id", "key": "store", "op": "op"},
        "stream": {"model": "changelog"},
        "learner": {"kind": "fudyadt", "epsilon": 0.0},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    run = Path(pipelines.replay(config, tmp_path / "run").path)
    pq.write_table(pa.table({"id": [3, 10]}), tmp_path / "gone.parquet")
    pq.write_table(pa.table({"id": [7], "store": ["s1"]}), tmp_path / "keyed.parquet")
    pq.write_table(table([(100, "s9", 1.0, "no"), (101, "s0", 6.0, "yes")]), tmp_path / "new.parquet")
    log = [(200, "s8", 6.0, "maybe", "insert"), (100, "s9", 2.0, "yes", "update"), (6, "s0", 0.0, "no", "delete")]
    pq.write_table(changes(log), tmp_path / "log.parquet")
    first = tmp_path / "first"
    pipelines.update(run, delete=tmp_path / "gone.parquet", insert=tmp_path / "new.parquet", out=first)
    second = apply_changes(first, tmp_path / "log.parquet", out=tmp_path / "second").state
    pipelines.resume(run, state=second)
    assert audit_run(run).checked["keys"] == 5
    pipelines.update(run, delete=tmp_path / "keyed.parquet", out=tmp_path / "third")
    digest = pipelines.resume(run, state=tmp_path / "third").digest
    report, found = audit_run(run), verify_run(run)
    assert (report.ok, found["equal"], found["rebuilt"], found["inserted"]) == (True, True, digest, 65), report.failures
    assert audit_run(run, key="s9").ok
    with refused("keyed.unknown", ModelFileError, key="'nobody'"):
        audit_run(run, key="nobody")
    pq.write_table(pa.table({"id": [7], "store": ["s0"]}), tmp_path / "keyed.parquet")
    with refused("updates.changed", InputError, files=str(tmp_path / "keyed.parquet")):
        verify_run(run)


def changes(rows: list[tuple[Any, ...]]) -> pa.Table:
    return table([row[:4] for row in rows]).append_column("op", pa.array([row[4] for row in rows]))
