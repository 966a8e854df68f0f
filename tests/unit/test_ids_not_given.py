"""Ids of estimators: of any kind, or those of the index of a data frame; and no id is rounded to another."""

from __future__ import annotations

import copy
import uuid
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
from raydt.folders.arrays import OF_THE_FOLDER, open_folder, save_folder
from tests.refusals import refused
from tests.small_tables import HOSTILE

ESTIMATORS = [name for name in raydt.__all__ if name.endswith(("Classifier", "Regressor", "Split"))]
ESTIMATORS = [name for name in ESTIMATORS if not name.startswith(("River", "Keyed"))]
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
@pytest.mark.parametrize("kind", [int, str])
def test_a_named_index_is_the_ids(name: str, call: str, kind: type, tmp_path: Path) -> None:
    model: Any = getattr(raydt, name)()
    given, earlier = [kind(i + 1) for i in range(N)], [kind(i + 1000) for i in range(N)]
    frame, y = bookings(name, pd.Index(given, name="booking"))
    if call == "replace_examples":
        model.fit(frame, y, ids=earlier)
        receipt = model.replace_examples(earlier, frame, y)
        assert receipt.inserted.tolist() == given
    else:
        getattr(model, call)(frame, y)
    assert model.row_ids_.tolist() == model.live_ids_.tolist() == given
    assert kind(7) in model
    assert kind(999) not in model
    assert model.forget([kind(7)]).ids.tolist() == [kind(7)]
    assert kind(7) not in model
    with refused("estimators.repeated_id", UpdateError):
        model.partial_fit(frame.iloc[[0, 0]], [0, 1])
    with refused("estimators.refused", UpdateError, subject="id 1"):
        model.partial_fit(frame.iloc[:1], [0])
    model.save(tmp_path / "state", with_examples=True)
    again = raydt.load_model(tmp_path / "state")
    assert again.live_ids_.tolist() == model.live_ids_.tolist()
    gone = ids_file(tmp_path / "gone.csv", [kind(5)], "booking" if call == "fit" else "id")
    receipt = update(tmp_path / "state", delete=gone, out=tmp_path / "next")
    assert receipt.digest_after == again.forget(kind(5)).digest_after == model.forget(kind(5)).digest_after


def test_rows_that_an_earlier_version_numbered_are_not_deleted_by_number(tmp_path: Path) -> None:
    """Although their frame had a named index: a state of it says which they are."""
    frame, y = bookings("", None)
    raydt.FullyDynamicTreeClassifier().fit(frame, y).save(tmp_path / "new", with_examples=True)
    meta, components = open_folder(tmp_path / "new", "state")
    own = {key: value for key, value in meta.items() if key not in OF_THE_FOLDER}
    save_folder(tmp_path / "state", "state", own | {"numbered": [[3, 30]]}, dict(components))
    model = raydt.load_model(tmp_path / "state")
    with pytest.raises(InputError, match=r"id 7 was not given.*ids=X\.index"):
        model.forget([1, 7])
    assert model.forget([1]).ids.tolist() == [1]
    model.save(tmp_path / "again", with_examples=True)
    with pytest.raises(InputError, match=r"gone\.csv, row 1: id 7 was not given"):
        update(tmp_path / "again", delete=ids_file(tmp_path / "gone.csv", [2, 7]), dry_run=True)


UUIDS = [uuid.UUID(int=i) for i in range(N)]
#: Ids of any kind, all different, and what they are called afterwards.
KINDS: dict[str, tuple[Any, list[Any]]] = {
    "text": ([f"b{i}" for i in range(N)], [f"b{i}" for i in range(N)]),
    "hostile text": ([*HOSTILE, *map(str, range(1, N))][:N], [*HOSTILE, *map(str, range(1, N))][:N]),
    "NumPy text": (np.array([f"b{i}" for i in range(N)]), [f"b{i}" for i in range(N)]),
    "Arrow": (pa.array([f"b{i}" for i in range(N)]), [f"b{i}" for i in range(N)]),
    "UUIDs": (UUIDS, [str(one) for one in UUIDS]),
    "pandas UUIDs": (pd.Series(UUIDS), [str(one) for one in UUIDS]),
    "tuples": ([("a", i) for i in range(N)], [("a", i) for i in range(N)]),
    "several levels": (
        pd.MultiIndex.from_product([["a", "b"], range(N // 2)]),
        [(one, i) for one in "ab" for i in range(N // 2)],
    ),
    "times": (pd.date_range("2026-01-01", periods=N), list(pd.date_range("2026-01-01", periods=N))),
    "categories": (pd.Categorical([f"b{i}" for i in range(N)]), [f"b{i}" for i in range(N)]),
    "nullable integers": (pd.array(range(N), dtype="Int64"), list(range(N))),
}


@pytest.mark.parametrize("name", KINDS)
def test_ids_of_any_kind(name: str, tmp_path: Path) -> None:
    given, shown = KINDS[name]
    frame, y = bookings("", None)
    model, twin = raydt.FullyDynamicTreeClassifier(), raydt.FullyDynamicTreeClassifier().fit(frame, y)
    model.fit(frame, y, ids=given)
    assert model.live_ids_.tolist() == shown
    assert [one in model for one in shown[:3]] == [True, True, True]
    receipt = model.forget([shown[4], shown[30], shown[4]])
    assert receipt.ids.tolist() == [shown[4], shown[30]]
    assert model.digest() == twin.forget([4, 30]).digest_after
    assert shown[4] not in model
    model.partial_fit(frame[:1], y[:1], ids=[shown[4]])
    assert shown[4] in model
    with refused("estimators.refused", UpdateError):
        model.partial_fit(frame[:1], y[:1], ids=[shown[4]])
    with pytest.raises(UpdateError):
        model.forget([shown[30]])
    assert model.forget([shown[30]], missing="skip").missing == (shown[30],)
    copied = copy.deepcopy(model)
    assert copied.live_ids_.tolist() == model.live_ids_.tolist()
    if all(isinstance(one, str) for one in shown) or name == "nullable integers":
        model.save(tmp_path / "state", with_examples=True)
        assert raydt.load_model(tmp_path / "state").live_ids_.tolist() == model.live_ids_.tolist()
    else:
        with refused("estimators.unsaved_ids", InputError, what="id"):
            model.save(tmp_path / "state", with_examples=True)


def test_ids_keep_their_type() -> None:
    frame, y = bookings("", None)
    model = raydt.FullyDynamicTreeClassifier().fit(frame, y, ids=np.arange(N) - 5)
    before = model.digest()
    with refused("estimators.no_key", InputError):
        model.partial_fit(frame[:2], y[:2], ids=["a", None])
    with refused("estimators.other_type", InputError, value="'a'", found="text", known="integer", what="id", row=0):
        model.partial_fit(frame[:2], y[:2], ids=["a", "7"])
    assert model.digest() == before
    model.fit(frame, y, ids=[f"b{i}" for i in range(N)])  # a new life
    with refused("estimators.ids_always", InputError, known="text"):
        model.partial_fit(frame[:2], y[:2])
    with refused("estimators.other_type", InputError, value="7", known="text", what="id"):
        model.forget([7], missing="skip")


@pytest.mark.parametrize("bad", [None, float("nan"), pd.NA, pd.NaT])
def test_missing_subjects_are_refused(bad: Any) -> None:
    frame, y = bookings("", None)
    with refused("estimators.no_key", InputError, what="subject", row=1):
        raydt.FullyDynamicTreeClassifier().fit(frame, y, subjects=["a", bad, *map(str, range(N - 2))])


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
def test_ids_that_floats_may_have_rounded_are_refused_in_every_file(suffix: str, tmp_path: Path) -> None:
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
    no_integer = r"row 0, column 'id': (9007199254740992.0|'9007199254740993.0') is not an integer"
    with pytest.raises(InputError, match=no_integer):
        replay({**base, "source": read, "stream": stream}, tmp_path / "b")
    with pytest.raises(InputError, match=no_integer):
        update(run, delete=log, dry_run=True)


class Counted:
    """A subject that counts how often anybody has asked for its hash."""

    asked = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and other.number == self.number

    def __hash__(self) -> int:
        Counted.asked += 1
        return hash(self.number)


def test_many_subjects_are_looked_up_in_linear_time() -> None:
    persons, X = [Counted(number) for number in range(200)], np.arange(400.0)[:, None]
    model = raydt.FullyDynamicTreeClassifier().fit(X, X[:, 0] > 90, subjects=persons * 2)
    Counted.asked = 0
    assert len(model.forget(subjects=persons, digests=False).ids) == 400
    assert Counted.asked < 20 * 400
