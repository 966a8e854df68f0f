"""``update`` and estimators on a state: ids, and that none is given twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from updatable import ids_file, replayed, table

from pipelines.updating import apply_changes, update
from raydt import FullyDynamicTreeClassifier, load_model
from raydt.errors import InputError, ModelFileError, UpdateError
from raydt.examples.updates import UNIT
from raydt.folders.arrays import load_folder, save_folder
from tests.refusals import refused


@pytest.fixture
def saved(tmp_path: Path) -> tuple[FullyDynamicTreeClassifier, Path]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 2))
    tree = FullyDynamicTreeClassifier().partial_fit(pa.table({"u": X[:, 0], "v": X[:, 1]}), (X[:, 0] > 0) + 0, [0, 1])
    tree.save(tmp_path / "state", with_examples=True)
    return tree, tmp_path


def test_without_an_id_column_rows_go_on_being_numbered(tmp_path: Path) -> None:
    run = replayed(tmp_path, text_ids=False, id=None, features=["a", "colour"])
    pq.write_table(table(200, 203), tmp_path / "new.parquet")
    gone = ids_file(tmp_path / "gone.csv", [199])
    update(run, delete=gone, out=tmp_path / "second")
    receipt = update(tmp_path / "second", insert=tmp_path / "new.parquet", dry_run=True)
    assert receipt.inserted.tolist() == [200, 201, 202]


@pytest.mark.parametrize("permutation", [None, 3])
@pytest.mark.parametrize("key", [None, "key"])
@pytest.mark.parametrize("order", ["lifo", "fifo"])
def test_no_id_is_given_twice(tmp_path: Path, key: str | None, order: str, permutation: int | None) -> None:
    """Ids of examples deleted in the run are not given again, by ``update`` or by an estimator."""
    stream = {"model": "batches", "steps": [200, 20], "removal_order": order}
    source = {"id": key, "features": ["a", "colour"], "permutation": permutation}
    run = replayed(tmp_path, stream=stream, text_ids=False, **source)
    tree = load_model(run / "checkpoints" / "380")
    rows = table(200, 203).select(["a", "colour"])
    tree.partial_fit(rows, ["yes"] * 3)
    assert tree.row_ids_.tolist() == [200, 201, 202]
    tree.forget(tree.row_ids_)
    tree.save(tmp_path / "own", with_examples=True)
    assert load_folder(tmp_path / "own")[0]["columns"] == load_folder(run / "checkpoints" / "380")[0]["columns"]
    assert load_model(tmp_path / "own").partial_fit(rows, ["yes"] * 3).row_ids_.tolist() == [203, 204, 205]
    if key is None:
        pq.write_table(table(200, 203), tmp_path / "new.parquet")
        for state, first in ((run, 200), (tmp_path / "own", 203)):
            receipt = update(state, insert=tmp_path / "new.parquet", dry_run=True)
            assert receipt.inserted.tolist() == [first, first + 1, first + 2]


@pytest.mark.parametrize("next_id", [None, 119, -1, "200"])
def test_a_state_that_cannot_number_new_rows_is_refused(tmp_path: Path, next_id: Any) -> None:
    FullyDynamicTreeClassifier().fit(np.arange(240.0).reshape(120, 2), [0, 1] * 60).save(tmp_path / "s", True)
    meta, components = load_folder(tmp_path / "s")
    assert meta["next_id"] == 120
    kept = {key: value for key, value in meta.items() if key not in ("kind", "next_id")}
    save_folder(tmp_path / "t", "state", kept if next_id is None else {**kept, "next_id": next_id}, components)
    with refused("models.unfit", ModelFileError, kind="state"):
        load_model(tmp_path / "t")


def test_an_estimator_knows_the_text_ids_of_a_run(shared: Path, tmp_path: Path) -> None:
    tree = load_model(shared / "run" / "checkpoints" / "200")
    assert tree.row_ids_.tolist() == tree.live_ids_.tolist() == [f"k{i:04d}" for i in range(200)]
    with refused("estimators.other_type", InputError, value="7", known="text"):
        tree.forget([7])  # is the number of a text id, not the id itself
    assert tree.forget(["k0007", "k0007"]).ids.tolist() == ["k0007"]
    rows = table(200, 202)
    tree.partial_fit(rows.select(["a", "colour"]), ["yes", "not yes"], ids=rows["key"])
    tree.save(tmp_path / "own", with_examples=True)
    gone = ids_file(tmp_path / "gone.csv", ["k0200", "k0009"])
    receipt = update(tmp_path / "own", delete=gone, out=tmp_path / "second")
    assert receipt.digest_after == tree.forget(["k0200", "k0009"]).digest_after
    assert load_model(tmp_path / "second").live_ids_.tolist() == tree.live_ids_.tolist()
    assert b"k0007" not in b"".join(file.read_bytes() for file in (tmp_path / "own").rglob("*") if file.is_file())
    tree.save(tmp_path / "model")
    tree.fit(table(0, 20).select(["a", "colour"]), ["yes", "no"] * 10).save(tmp_path / "new", with_examples=True)
    assert load_model(tmp_path / "new").row_ids_.tolist() == list(range(20))


def test_an_estimators_state_takes_running_ids(saved: tuple[FullyDynamicTreeClassifier, Path]) -> None:
    tree, folder = saved
    new = pa.table({"target": [1, 0], "u": [0.5, -0.5], "v": [0.0, 1.0]})
    pq.write_table(new, folder / "new.parquet")
    gone = ids_file(folder / "gone.csv", [119, 4])
    with refused("updates.no_column", column="y"):
        update(folder / "state", insert=folder / "new.parquet", dry_run=True)
    receipt = update(
        folder / "state", insert=folder / "new.parquet", delete=gone, out=folder / "second", label="target"
    )
    assert receipt.inserted.tolist() == [120, 121]
    tree.forget([119, 4])
    tree.partial_fit(new.select(["u", "v"]), [1, 0])
    assert receipt.digest_after == tree.digest() == load_model(folder / "second").digest()
    # the state remembers the label column, and which numbers were used
    assert update(folder / "second", insert=folder / "new.parquet", dry_run=True).inserted.tolist() == [122, 123]
    pq.write_table(new.set_column(0, "target", pa.array([1, 2])), folder / "new.parquet")
    with refused("updates.unknown_label", UpdateError, row=1, column="target", label="2"):
        update(folder / "second", insert=folder / "new.parquet", dry_run=True)


def test_ids_of_another_kind_than_the_states(saved: tuple[FullyDynamicTreeClassifier, Path]) -> None:
    _, folder = saved
    for text, name, parameters in (
        ("id\n1.5\n", "not_integer", {"value": "'1.5'", "owner": "state", "row": 0, "column": "id"}),
        ("id\ntrue\n", "other_ids", {"found": "truth values", "wanted": "integers", "column": "id"}),
        ("id\nx\n", "not_integer", {"value": "'x'", "owner": "state", "row": 0, "column": "id"}),
        ("id,foo\n,3\n", "no_id", {"row": 0, "column": "id"}),
    ):
        (folder / "gone.csv").write_text(text)
        with refused(f"streams.{name}", InputError, **parameters) as caught:
            update(folder / "state", delete=folder / "gone.csv", dry_run=True)
        assert caught.value.remedy == "Correct the list of ids"


def test_ids_beyond_64_bits_are_refused(saved: tuple[FullyDynamicTreeClassifier, Path]) -> None:
    _, folder = saved
    pq.write_table(pa.table({"id": pa.array([1, 2**64 - 1], pa.uint64())}), folder / "gone.parquet")
    with refused("streams.wide_id", row=1, column="id"):
        update(folder / "state", delete=folder / "gone.parquet", dry_run=True)


def test_a_state_of_an_estimator_knows_the_names_of_the_series(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(40.0), "who": [f"p{i % 8}" for i in range(40)], "w": 1.0 + np.arange(40) % 3})
    frame["sold"] = np.where(frame["a"] > 20, "yes", "no")
    frame.index = pd.Index([f"k{i}" for i in range(40)], name="key")
    model = FullyDynamicTreeClassifier()
    model.fit(frame[["a"]], frame["sold"], frame["w"], subjects=frame["who"]).save(tmp_path / "one", with_examples=True)
    new = frame.iloc[:3].assign(w=7.0).rename(index=lambda key: f"{key}b")
    receipt = update(tmp_path / "one", delete={"who": ["p3"]}, insert=new, out=tmp_path / "two")
    assert receipt.ids.tolist() == ["k3", "k11", "k19", "k27", "k35"]
    (tmp_path / "log.csv").write_text("op,key,a,who,w,sold\nupdate,k5,5,p5,2.5,no\n")
    apply_changes(tmp_path / "two", tmp_path / "log.csv", out=tmp_path / "states")
    again = load_model(tmp_path / "states" / "49")
    weight = dict(zip(again.live_ids_.tolist(), again._store().weight[again._store().in_order_of_birth()], strict=True))
    assert [weight[key] / UNIT for key in ("k0", "k1", "k1b", "k5")] == [1.0, 2.0, 7.0, 2.5]
    assert again.forget(subjects=["p1"]).ids.tolist() == ["k1", "k9", "k17", "k25", "k33", "k1b"]


def test_a_series_that_is_called_as_a_feature_names_no_column(tmp_path: Path) -> None:
    X, y = np.arange(20.0)[:, None], pd.Series(np.arange(20) % 2, name="x0")
    FullyDynamicTreeClassifier().fit(X, y).save(tmp_path / "one", with_examples=True)
    new = pd.DataFrame({"x0": [3.0], "y": [1]})
    assert update(tmp_path / "one", insert=new, dry_run=True).active == 21
