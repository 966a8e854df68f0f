"""An update of a state is what the same changes are elsewhere: further calls of an estimator, or of a run's stream."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from pipelines.updating import update
from raydt import FullyDynamicTreeClassifier, load_model
from tests.volume import examples

LEARNER = {"alpha": 0.05, "beta": 0.05, "max_depth": 4}


@dataclass(frozen=True)
class Case:
    """A sequence of examples: the first ``begun`` make the state, then some are deleted and the others inserted."""

    seed: int
    begun: int
    gone: tuple[int, ...]
    replaced: tuple[int, ...]
    new: int
    text_ids: bool

    def table(self, places: list[int], ids: list[int]) -> pa.Table:
        rng = np.random.default_rng(self.seed)
        a, b = rng.integers(0, 9, 90) / 2.0, np.array(["red", "green", "blue", "grey"])[rng.integers(0, 4, 90)]
        y = ((a > 2) ^ (b == "red")).astype(int) + (rng.random(90) < 0.1)
        key: list[Any] = [f"id {i}" for i in ids] if self.text_ids else ids
        kind = pa.string() if self.text_ids else pa.int64()
        return pa.table({"key": pa.array(key, kind), "a": a[places], "b": b[places], "y": y[places]})

    @property
    def first(self) -> pa.Table:
        return self.table(list(range(self.begun)), list(range(self.begun)))

    @property
    def inserted(self) -> pa.Table:
        ids = [*self.replaced, *range(self.begun, self.begun + self.new)]
        return self.table(list(range(self.begun, self.begun + len(ids))), ids)

    @property
    def deleted(self) -> pa.Table:
        return self.table([0] * len(self.gone), list(self.gone)).select(["key"]).rename_columns(["id"])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    begun = draw(st.integers(3, 40))
    gone = draw(st.lists(st.integers(0, begun - 1), unique=True, max_size=begun))
    replaced = draw(st.lists(st.sampled_from(gone), unique=True, max_size=5)) if gone else []
    new = draw(st.integers(0, 20))
    return Case(draw(st.integers(0, 99)), begun, tuple(gone), tuple(replaced), new, draw(st.booleans()))


def replay(folder: Path, name: str, rows: pa.Table) -> pipelines.RunResult:
    pq.write_table(rows, folder / f"{name}.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(folder / f"{name}.parquet"), "id": "key", "op": "op"},
        "stream": {"model": "changelog"},
        "learner": {"kind": "fudyadt", **LEARNER},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    return pipelines.replay(config, folder / name)


def with_op(rows: pa.Table, op: str) -> pa.Table:
    return rows.append_column("op", pa.array([op] * rows.num_rows, pa.string()))


@examples(8)
@given(cases())
def test_an_update_is_the_rest_of_the_stream(case: Case) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begun = with_op(case.first, "insert")
        gone = with_op(case.deleted.rename_columns(["key"]), "delete")
        changes = pa.concat_tables([begun, gone, with_op(case.inserted, "insert")], promote_options="default")
        run = replay(folder, "begun", begun)
        whole = replay(folder, "whole", changes.select(begun.column_names))
        pq.write_table(case.deleted, folder / "gone.parquet")
        pq.write_table(case.inserted, folder / "new.parquet")
        files = {"delete": folder / "gone.parquet" if case.gone else None, "insert": folder / "new.parquet"}
        receipt = update(run.path, out=folder / "second", **files)
        assert receipt.digest_before == run.digest
        assert receipt.digest_after == whole.digest
        again = load_model(folder / "second")
        assert again.digest() == whole.digest
        assert again.audit().ok
        assert (receipt.active, len(receipt.ids)) == (whole.summary["active"], len(case.gone))
        assert receipt.rebuilds == whole.summary["rebuilds"] - run.summary["rebuilds"]


@examples(25)
@given(cases())
def test_an_update_is_further_calls_of_the_estimator(case: Case) -> None:
    case = Case(case.seed, case.begun, case.gone, case.replaced, case.new, text_ids=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first, new = case.first, case.inserted
        tree = FullyDynamicTreeClassifier(**LEARNER)
        tree.fit(first.select(["a", "b"]), first["y"].to_numpy(), ids=first["key"].to_numpy())
        tree.partial_fit(first.slice(0, 3).select(["a", "b"]), [0, 1, 2], ids=[1000, 1001, 1002])  # no class is new
        tree.save(folder / "state", with_examples=True)
        pq.write_table(case.deleted, folder / "gone.parquet")
        pq.write_table(new, folder / "new.parquet")
        told = update(
            folder / "state",
            delete=folder / "gone.parquet" if case.gone else None,
            insert=folder / "new.parquet",
            id_column="key",
            out=folder / "second",
        )
        receipt = tree.forget(np.array(case.gone, dtype=np.int64))
        for column, values in receipt.deletions.items():
            assert told.deletions[column].tolist() == values.tolist()
        if new.num_rows:
            tree.partial_fit(new.select(["a", "b"]), new["y"].to_numpy(), ids=new["key"].to_numpy())
        assert told.digest_after == tree.digest() == load_model(folder / "second").digest()
