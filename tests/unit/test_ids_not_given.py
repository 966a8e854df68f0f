"""Ids that were not given: an index of a data frame is not lost in silence, and no id is rounded to another."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from updatable import ids_file, replayed

import raydt
from pipelines import replay
from pipelines.updating import update
from raydt.errors import InputError, UpdateError
from raydt.estimators.arguments import ids_of
from raydt.folders.arrays import open_folder
from raydt.messages import message
from tests.refusals import refused

ESTIMATORS = [name for name in raydt.__all__ if name.endswith(("Classifier", "Regressor", "Split"))]
ESTIMATORS = [name for name in ESTIMATORS if not name.startswith("River")]
N = 40


def bookings(name: str, index: Any) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows for an estimator."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"a": rng.normal(size=N).round(1), "b": rng.integers(0, 5, N).astype(float)}, index=index)
    if name.startswith("Sparse"):
        frame = pd.DataFrame({"words": [[int(i % 3), 3 + int(i % 2)] for i in range(N)]}, index=index)
    return frame, np.arange(N) % 2


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("call", ["fit", "partial_fit", "replace_examples"])
def test_a_named_index_is_told_and_its_rows_are_not_deleted_by_number(name: str, call: str, tmp_path: Path) -> None:
    model: Any = getattr(raydt, name)()
    frame, y = bookings(name, pd.Index(np.arange(N) + 1, name="booking"))
    given = np.arange(N) + 1000
    if call == "replace_examples":
        model.fit(frame, y, ids=given)
        with pytest.warns(UserWarning, match="booking") as warned:
            model.replace_examples(given[:1], frame, y)
    else:
        with pytest.warns(UserWarning, match="booking") as warned:
            getattr(model, call)(frame, y)
        model.partial_fit(frame, y, ids=given)
    first = int(model.row_ids_[0]) if call == "replace_examples" else 0
    assert first == (1040 if call == "replace_examples" else 0)
    assert str(warned[-1].message) == message(
        "estimators.unused_index", index="'booking'", first=first, last=first + 39
    )
    digest = model.digest()
    model.save(tmp_path / "state", with_examples=True)
    for holder in (model, raydt.load_model(tmp_path / "state")):
        with pytest.raises(InputError, match=rf"id {first + 7} was not given.*ids=X\.index"):
            holder.forget([given[5], first + 7])
        assert holder.digest() == digest
        assert holder.forget([given[5]]).ids.tolist() == [given[5]]
        assert len(holder.forget_examples(frame[:1], y[:1]).ids) == 1
    gone = ids_file(tmp_path / "gone.csv", [int(given[5]), first + 7])
    with pytest.raises(InputError, match=rf"gone.csv, row 1: id {first + 7} was not given"):
        update(tmp_path / "state", delete=gone, out=tmp_path / "next")
    update(tmp_path / "state", delete=ids_file(tmp_path / "one.csv", [int(given[5])]), out=tmp_path / "next")
    with pytest.raises(InputError, match="was not given"):
        update(tmp_path / "next", delete=ids_file(tmp_path / "two.csv", [first + 7]), dry_run=True)


def test_ranges_of_ids_that_follow_one_another_are_one_range(tmp_path: Path) -> None:
    model = raydt.FullyDynamicTreeClassifier()
    frame, y = bookings("", pd.Index(np.arange(N), name="booking"))
    model.fit(frame, y, ids=np.arange(N))
    for given in (None, None, None, np.arange(N) + 1000, None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.partial_fit(frame, y, ids=given)
    model.save(tmp_path / "state", with_examples=True)
    assert open_folder(tmp_path / "state", "state")[0]["numbered"] == [[N, 4 * N], [1000 + N, 1000 + 2 * N]]


@pytest.mark.parametrize("index", [None, pd.Index(np.arange(N)[::-1])])
def test_an_index_without_a_name_and_ids_that_are_given_are_no_warning(index: Any) -> None:
    frame, y = bookings("", index)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        raydt.FullyDynamicTreeClassifier().fit(frame, y).forget([7])
        named = frame.set_axis(pd.Index(np.arange(N) + 5, name="booking"))
        model = raydt.FullyDynamicTreeClassifier().fit(named, y, ids=named.index)
        assert model.forget([5]).ids.tolist() == [5]
        with refused("estimators.refused", UpdateError, subject="id 0"):
            model.forget([0])
        model.fit(frame, y).forget([0])


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_float_to_which_two_integers_round_is_no_id(kind: str, sign: int) -> None:
    """2**53 is what 2**53 + 1 becomes; of narrower floats that comes sooner."""
    limit = 2 ** (np.finfo(kind).nmant + 1)
    whole = sign * np.array([limit - 1, limit, limit + 1], dtype="i8")
    assert ids_of(whole[:1].astype(kind)).tolist() == [sign * (limit - 1)]
    for i in (1, 2):
        with refused("estimators.id_type", InputError):
            ids_of(whole[i : i + 1].astype(kind))
        with refused("estimators.id_type", InputError):
            ids_of([sign * (2**53 + i - 1), 0.5 * 2])  # NumPy makes floats of such a list
    assert ids_of(whole).tolist() == whole.tolist()


@pytest.mark.parametrize("kind", ["M8[ns]", "M8[s]", "m8[ns]"])
def test_times_are_no_ids(kind: str) -> None:
    with refused("estimators.id_type", InputError):
        ids_of(np.array([5], dtype=kind))


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
def test_ids_as_floats_are_refused_in_every_file(suffix: str, tmp_path: Path) -> None:
    """In a source, a deletion log and a list of ids; the value in the file may be what two ids round to."""
    run = replayed(tmp_path, text_ids=False)
    train = pq.read_table(tmp_path / "train.parquet")
    floats = pa.array([float(2**53)] + [1.0] * (len(train) - 1))

    def written(name: str, content: pa.Table) -> str:
        file = tmp_path / f"{name}.{suffix}"
        if suffix == "parquet":
            pq.write_table(content, file)
        elif suffix == "arrow":
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, content.schema) as out:
                out.write_table(content)
        else:  # in digits that no float has
            text = ["9007199254740993.0" if v == 2**53 else "1.0" for v in content.column(0).to_pylist()]
            rest = list(zip(*(content.column(i).to_pylist() for i in range(1, content.num_columns)), strict=True))
            rows = [",".join(map(str, (t, *(rest[i] if rest else ())))) for i, t in enumerate(text)]
            file.write_text("\n".join([",".join(content.column_names), *rows]) + "\n")
        return str(file)

    source = written("source", train.set_column(0, "key", floats))
    log = written("log", pa.table({"id": floats[:2]}))
    base = {"learner": {"kind": "fudyadt"}, "cluster": {"backend": "in_process"}, "output": {"report": False}}
    read = {"kind": suffix, "path": source, "id": "key", "label": "y"}
    with pytest.raises(InputError, match="column 'key'"):
        replay({**base, "source": read, "stream": {"model": "incremental"}}, tmp_path / "a")
    read = {"kind": "parquet", "path": str(tmp_path / "train.parquet"), "id": "key", "label": "y"}
    stream = {"model": "deletion_log", "deletion_log": log}
    with pytest.raises(InputError, match="column 'id': the ids are floating-point numbers"):
        replay({**base, "source": read, "stream": stream}, tmp_path / "b")
    with pytest.raises(InputError, match="column 'id': the ids are floating-point numbers"):
        update(run, delete=log, dry_run=True)
