"""Frames, ids that were not given, and the adapters for river."""

from __future__ import annotations

import ast
import copy
import math
import random
import subprocess
import sys
import textwrap
import threading
import uuid
import warnings
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
import raydt
from pipelines import replay
from pipelines.prediction import predict_file
from pipelines.updating import update
from raydt import FullyDynamicTreeClassifier, KeyedClassifier, RiverTreeClassifier, load_model
from raydt.errors import ConfigError, InputError, UpdateError
from raydt.estimators.arguments import ids_of
from raydt.estimators.river import RiverClassifier
from raydt.folders.arrays import OF_THE_FOLDER, open_folder, save_folder
from tests import volume
from tests.cases import Trial, every_case
from tests.nets.test_owners import OwnersLife as Life
from tests.nets.test_owners import forms_of
from tests.refusals import refused, warned
from tests.small_tables import HOSTILE
from tests.unit.updatable import ids_file, replayed

# -- frames ----------------------------------------------------------------------------------------------------------
# Frames that estimators cannot take as they are, and what differs between the frames of training and prediction.

Y = [0, 1, 0]
GOOD = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]})
WIDE = pl.DataFrame({"a": [1, 2, 3], "b": pl.Series([1, 2, 3], dtype=pl.Int128)})
SPARSE = pd.DataFrame({"a": [1, 2, 3], "b": pd.arrays.SparseArray([0, 0, 1])})


@pytest.mark.parametrize(
    ("X", "id", "parameters"),
    [
        (pd.DataFrame([[1.0, 2.0]] * 3, columns=["b", "b"]), "repeated_column", {"column": "b"}),
        (pd.DataFrame([[1.0, 2.0]] * 3, columns=[1, "1"]), "repeated_column", {"column": "1"}),
        (pa.table([pa.array([1.0, 2.0, 3.0])] * 2, names=["b", "b"]), "repeated_column", {"column": "b"}),
        (WIDE, "frame", {"column": "b", "kind": "Int128"}),
        (WIDE.lazy(), "lazy", {}),
        (SPARSE, "frame", {"column": "b", "kind": "Sparse[int64, 0]"}),
        (pd.DataFrame({"a": [1, 2, 3], "b": [1j, 2, 3]}), "frame", {"column": "b", "kind": "complex128"}),
        (pd.DataFrame({"a": [1, 2, 3], "b": [1, "x", 3]}), "frame", {"column": "b", "kind": "object"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_frame_that_cannot_be_taken_names_column_and_remedy(X: Any, id: str, parameters: dict[str, Any]) -> None:
    fitted, keyed = FullyDynamicTreeClassifier().fit(GOOD, Y), KeyedClassifier(FullyDynamicTreeClassifier())
    keyed.fit(GOOD, Y, keys=[1, 1, 1])
    calls = (
        lambda: FullyDynamicTreeClassifier().fit(X, Y),
        lambda: fitted.partial_fit(X, Y),
        lambda: fitted.predict(X),
        lambda: keyed.predict(X, keys=[1, 1, 1]),
    )
    for call in calls:
        with refused(f"estimators.{id}", InputError, **parameters):
            call()


def test_the_remedies_work() -> None:
    tree = FullyDynamicTreeClassifier().fit(GOOD, Y)
    for X in (WIDE.cast({"b": pl.Int64}), WIDE.lazy().cast({"b": pl.Int64}).collect()):
        assert len(tree.predict(X)) == 3
    assert len(tree.predict(SPARSE.assign(b=SPARSE["b"].sparse.to_dense()))) == 3


@every_case("names of a frame")
def test_names_of_columns_are_checked_as_scikit_learn_does(trial: Trial) -> None:
    """An array given to a model that was fitted on a frame, and a frame to one that was fitted on an array, warn."""
    if not trial.shipped or "matrix" not in forms_of(trial):
        pytest.skip("no estimator of arrays")
    life = Life(trial, "matrix", 1, keyed=False)
    frame, y = life.plain_rows(life.first), life.values("fit", "y", life.first)
    array = np.stack([column.to_numpy() for column in frame.columns], axis=1)
    named, unnamed = life.estimator().fit(frame, y), life.estimator().fit(array, y)
    with warned("estimators.names_lost"):
        found = named.predict(array).tolist()
    assert found == named.predict(frame).tolist()
    with warned("estimators.names_new"):
        assert unnamed.predict(frame).tolist() == found
    assert unnamed.predict(pd.DataFrame(array)).tolist() == found  # without names of its own
    life.keyed, keys = True, {"keys": [1] * len(array)}
    with refused("estimators.other_form", InputError):
        life.estimator().fit(frame, y, **keys).predict(array, **keys)
    with refused("estimators.other_form", InputError):
        life.estimator().fit(array, y, **keys).predict(frame, **keys)


def test_a_column_of_text_that_pandas_reads_as_numbers(tmp_path: Path) -> None:
    """A run reads a column as text. The remedy of the error gives its predictions; what Python writes does not."""
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 9, 300)
    texts = ["" if draw.random() < 0.1 else str(code) for code in codes]
    rows = pd.DataFrame({"code": texts, "a": draw.normal(size=300), "y": np.where(codes % 2, "yes", "no")})
    served = tmp_path / "served.csv"
    rows[1:].to_csv(served, index=False)
    rows.loc[rows.index % 5 > 1, "code"] = "other"  # fewer, and the column would be one of numbers
    rows.to_csv(tmp_path / "rows.csv", index=False)
    config = {
        "source": {"kind": "csv", "path": str(tmp_path / "rows.csv"), "features": ["code", "a"], "label": "y"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    run = pipelines.replay(config, tmp_path / "run").path
    predict_file(run, served, out=tmp_path / "out.parquet")
    expected = pq.read_table(tmp_path / "out.parquet")["prediction"].to_pylist()
    model, read = load_model(run), pd.read_csv(served)
    with refused("estimators.was_text", InputError, column="code", kind="floating-point numbers"):
        model.predict(read)
    written = read.assign(code=[None if value != value else str(value) for value in read["code"]])
    with warned("estimators.unseen", name="code", rows=int(read["code"].notna().sum())):
        model.predict(written)
    assert model.predict(pd.read_csv(served, dtype={"code": str})).tolist() == expected
    assert model.predict(pl.read_csv(served, schema_overrides={"code": pl.String})).tolist() == expected


# -- ids not given ---------------------------------------------------------------------------------------------------
# Ids of estimators: of any kind, or those of the index of a data frame; and no id is rounded to another.

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


@pytest.mark.turns(18)
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


# -- river -----------------------------------------------------------------------------------------------------------
# The adapters for river: the same tree as of the other estimators, one example at a time; river's own checks.

PUBLIC = [getattr(raydt, name) for name in raydt.__all__]
ADAPTERS = [each for each in PUBLIC if isinstance(each, type) and issubclass(each, RiverClassifier)]
#: Adapters that river's own checks take longest with: they are left to the night, as all adapters have one base.
SLOW = (raydt.RiverForestClassifier, raydt.RiverGradientBoostingClassifier)
OPTIONS = {"epsilon": 0.3, "alpha": 0.0, "beta": 0.0, "max_depth": 6, "smoothing": 5.0}


def examples(n: int, seed: int = 0) -> tuple[list[dict[str, Any]], list[bool]]:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 9, n), rng.integers(0, 4, n)
    y = ((a > 4) ^ (b == 2) ^ (rng.random(n) < 0.1)).tolist()
    return [{"b": "wxyz"[j], "a": i / 2} for i, j in zip(a.tolist(), b.tolist(), strict=True)], y


def arrays(tree: Any) -> dict[str, list[Any]]:
    session = tree._session if isinstance(tree, RiverTreeClassifier) else tree.session_
    return {name: array.tolist() for name, array in session.model().items()}


def test_labels_are_what_they_were() -> None:
    for labels in ([True, False], ["up", "down"], [7, 3], [np.bool_(True), np.bool_(False)]):
        tree = RiverTreeClassifier()
        for i, y in enumerate(labels * 5):
            tree.learn_one({"a": i % 2}, y)
        assert [tree.predict_one({"a": i}) for i in (0, 1)] == labels
        assert tree.predict_proba_one({"a": 0}) == {labels[0]: 1.0, labels[1]: 0.0}
        assert not isinstance(tree.predict_one({"a": 0}), np.generic)


def test_a_class_too_many_is_refused_before_it_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydt.estimators.river.MOST_CLASSES", 3)
    tree = RiverTreeClassifier()
    for i in range(6):
        tree.learn_one({"a": i}, i % 3)
    before = arrays(tree)
    with refused("estimators.class_beyond", InputError, label=3, most=3):
        tree.learn_one({"a": 9}, 3)
    assert arrays(tree) == before


def test_the_order_of_keys_does_not_matter() -> None:
    xs, ys = examples(120)
    tree, turned = RiverTreeClassifier(**OPTIONS), RiverTreeClassifier(**OPTIONS)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        tree.learn_one(x, y)
        turned.learn_one(dict(sorted(x.items(), reverse=i % 2 == 0)), y)
    assert arrays(tree) == arrays(turned)


def test_numbers_may_be_categories_and_keys_need_not_be_text() -> None:
    tree = RiverTreeClassifier(categorical_features=(1,))
    for i in range(40):
        tree.learn_one({1: i % 4, 0: -0.0}, int(i % 4 == 2))
    assert len(arrays(tree)["feature"]) == 3
    assert [tree.predict_one({0: 0, 1: value}) for value in (1, 2, 3, 99)] == [0, 1, 0, 0]
    with refused("estimators.unknown_name", InputError, name=5, rows="the first example"):
        RiverTreeClassifier(categorical_features=(5,)).learn_one({1: 2}, 0)


@pytest.mark.parametrize(
    ("x", "y", "name", "parameters"),
    [
        ({"a": math.inf, "b": "w"}, 0, "not_finite", {"column": "a", "value": math.inf}),
        ({"a": 10**400, "b": "w"}, 0, "not_finite", {"column": "a", "value": 10**400}),
        ({"a": 2**53 + 1, "b": "w"}, 0, "inexact", {"column": "a", "value": 2**53 + 1}),
        ({"a": np.int64(-(2**53) - 1), "b": "w"}, 0, "inexact", {"column": "a", "value": -(2**53) - 1}),
        ({"a": "1", "b": "w"}, 0, "other_value", {"column": "a", "value": "1", "was": "numbers"}),
        ({"a": 1.0, "b": 3}, 0, "other_value", {"column": "b", "value": 3, "was": "text"}),
        ({"a": 1.0, "b": "new"}, None, "no_label", {}),
        ({"a": 1.0, "b": "new"}, math.nan, "no_label", {}),
        ({"a": 1.0, "b": "new"}, "text", "mixed_labels", {"first": 0, "label": "text"}),
    ],
)
def test_a_bad_example_has_no_effect(x: dict[str, Any], y: Any, name: str, parameters: dict[str, Any]) -> None:
    tree = RiverTreeClassifier()
    for i in range(8):
        tree.learn_one({"a": i, "b": "wx"[i % 2]}, i % 2)
    before = arrays(tree)
    with refused(f"estimators.{name}", InputError, **parameters):
        tree.learn_one(x, y)
    assert arrays(tree) == before
    with refused(f"estimators.{name}", InputError, **parameters):
        tree.forget_one(x, y)
    assert arrays(tree) == before
    assert tree._categories == {"b": {"w": 0, "x": 1}}


def test_a_bad_first_example_decides_nothing() -> None:
    tree = RiverTreeClassifier()
    for x, name, column in (
        ({}, "no_features", None),
        ({"a": math.inf}, "not_finite", "a"),
    ):
        with refused(f"estimators.{name}", InputError, column=column):
            tree.learn_one(x, 1)
        assert tree.predict_one({"a": 1}) is None
    tree.learn_one({"c": 1}, 1)
    assert tree.predict_one({"c": 2}) == 1


def test_calls_take_turns() -> None:
    """A reader waits for a change of another thread to be complete."""
    tree = RiverTreeClassifier()
    for i in range(10):
        tree.learn_one({"a": i}, i > 4)
    read: list[Any] = []
    readers = [
        threading.Thread(target=lambda call=call: read.append(call({"a": 9})))
        for call in (tree.predict_one, tree.predict_proba_one)
    ]
    with tree._lock:  # as a call has it that changes the tree
        for reader in readers:
            reader.start()
        readers[0].join(0.2)
        assert not read
    for reader in readers:
        reader.join(10)
    assert len(read) == 2


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_numbers_of_any_kind_are_the_same_example(adapter: Any) -> None:
    """Truth values, NumPy's numbers and integers; and mappings that are no dictionaries, or make up what they lack."""
    tree, plain = adapter(), adapter()
    for i in range(30):
        a, b = i % 7, i % 2
        tree.learn_one([{"a": a, "b": bool(b)}, {"a": np.float32(a), "b": np.int8(b)}, OrderedDict(b=b, a=a)][i % 3], b)
        plain.learn_one({"a": float(a), "b": float(b)}, b)
    assert tree._session.digest() == plain._session.digest()
    tree.forget_one({"b": np.True_, "a": 1}, 1)
    plain.forget_one({"a": 1.0, "b": 1.0}, 1)
    assert tree._session.digest() == plain._session.digest()
    for lacking in (Counter(a=1), defaultdict(float, a=1.0)):  # none is made up
        tree.learn_one(lacking, 1)
        plain.learn_one({"a": 1, "b": None}, 1)
    assert tree._session.digest() == plain._session.digest()


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_features_that_come_and_go_are_missing_values(adapter: Any) -> None:
    tree, plain = adapter(), adapter()
    with warned("estimators.new_key", name="c"):
        for i in range(40):
            x = {"a": float(i % 5), "b": "wx"[i % 2]}
            lacking = {key: value for key, value in x.items() if i == 0 or (i % 3, key) != (0, "b")}
            tree.learn_one(lacking if i % 4 else {**lacking, **({"c": i} if i else {})}, i % 5 > 2)
            plain.learn_one({"b": None, **lacking}, i % 5 > 2)
    assert tree._session.digest() == plain._session.digest()
    assert tree.predict_proba_one({}) == plain.predict_proba_one({"a": None, "b": None})
    tree.forget_one({"a": 3.0, "c": 1}, True)
    plain.forget_one({"a": 3.0, "b": None}, True)
    assert tree._session.digest() == plain._session.digest()


def test_a_trimmed_tree_takes_single_rows() -> None:
    """The models behind river's adapters are updated without a batch, by arguments that a trim lets go of."""
    xs, ys = examples(60)
    for adapter in (raydt.RiverConfidenceTreeClassifier, RiverTreeClassifier):
        plain, trimmed = adapter(), adapter()
        for x, y in zip(xs, ys, strict=True):
            for one in (plain, trimmed):
                one.learn_one(x, y)
            trimmed._session.trim()
            assert trimmed.predict_one(x) == plain.predict_one(x)
        assert trimmed._session.digest() == plain._session.digest()


def test_missing_values_are_learned_and_forgotten() -> None:
    tree = RiverTreeClassifier()
    for i in range(40):
        tree.learn_one({"a": None if i % 4 == 0 else float(i % 4), "b": None if i % 8 == 4 else "w"}, int(i % 4 == 0))
    assert [tree.predict_one({"a": a, "b": "w"}) for a in (math.nan, None, 1.0, 3.0)] == [1, 1, 0, 0]
    tree.forget_one({"a": math.nan, "b": "w"}, 1)
    assert tree.audit().ok


def test_a_string_is_no_list_of_features() -> None:
    with refused("estimators.string", ConfigError, given="ab"):
        RiverTreeClassifier(categorical_features="ab").learn_one({"a": 1, "b": 2}, 0)


def test_it_works_without_river() -> None:
    script = """
        import sys
        sys.modules["river"] = None
        from raydt import RiverTreeClassifier
        tree = RiverTreeClassifier()
        for i in range(10):
            tree.learn_one({"a": i}, i > 4)
        tree.forget_one({"a": 9}, True)
        assert (tree.predict_one({"a": 8}), tree.predict_one({"a": 1})) == (True, False)
        assert not any("river" in kind.__module__.split(".")[:1] for kind in RiverTreeClassifier.__mro__)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=200)


# ---------------------------------------------------------------------- with river


def test_every_adapter_is_public_and_found() -> None:
    defined = [
        (path.stem, node.name)
        for path in Path(raydt.__file__).parent.glob("estimators/*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and "RiverClassifier" in map(ast.unparse, node.bases)
    ]
    assert sorted((each.__module__.rpartition(".")[2], each.__name__) for each in ADAPTERS) == sorted(defined)
    assert len(ADAPTERS) >= 3


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("names", ["ab", (True, False), (3, 5)])
def test_the_labels_learned_last_are_features(adapter: Any, names: Sequence[Any]) -> None:
    draw, last = random.Random(1), list[Any]()
    tree, twin = adapter(previous_labels=2), adapter(categorical_features=["previous_label_1", "previous_label_2"])
    for i in range(60):
        x = {"size": draw.randrange(4), "kind": draw.choice("pq")}
        y = last[0] if last and draw.random() < 0.7 else draw.choice(names)
        own = x | dict(zip_longest(("previous_label_1", "previous_label_2"), last))
        assert tree.predict_one(x) == twin.predict_one(own) == tree.predict_one(own)
        assert tree.predict_proba_one(x) == twin.predict_proba_one(own)
        tree.learn_one(x, y)
        twin.learn_one(own, y)
        last = [y, *last][:2]
        if i % 5 == 4:
            tree.forget_one(own, y)
            twin.forget_one(own, y)
    with refused("estimators.previous_labels", ConfigError):
        adapter(previous_labels=9).learn_one({"size": 1}, 0)


@pytest.mark.turns(1)
@pytest.mark.share
@pytest.mark.filterwarnings("default")  # what river and its data sets warn of is not ours
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "adapter", [pytest.param(each, marks=[pytest.mark.nightly] if each in SLOW else []) for each in ADAPTERS]
)
def test_checks_of_river(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = pytest.importorskip("river.checks", reason="river is not installed")
    tree = adapter()
    with monkeypatch.context() as patch:
        if not volume.nightly:  # this one takes longer than all others; by day ``tests/nets/test_identity.py`` must do
            skips = tree._unit_test_skips() | {"check_bounded_memory_growth"}
            patch.setattr(adapter, "_unit_test_skips", lambda tree: skips)
        checks.check_estimator(tree)
    assert not tree._unit_test_skips()
    assert len([*checks.yield_checks(tree)]) > 20


@pytest.mark.turns(1)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_they_take_part_in_progressive_validation(adapter: Any) -> None:
    pytest.importorskip("river", reason="river is not installed")
    from river import datasets, evaluate, metrics

    score = evaluate.progressive_val_score(datasets.Phishing(), adapter().clone(), metrics.Accuracy())
    assert score.get() > 0.85


def test_all_columns_of_dates_are_in_one_error(tmp_path):
    """Of a file and of a frame, with what else cannot be used; a column alone keeps its own sentence."""
    days = pd.date_range("2026-01-01", periods=4)
    frame = pd.DataFrame({"a": range(4), "came": days, "left": days.date, "stay": days - days[0], "y": [0, 1, 0, 1]})
    with refused("columns.several_unusable", InputError) as caught:
        FullyDynamicTreeClassifier().fit(frame.drop(columns="y"), frame["y"])
    assert all(f"{name} (" in str(caught.value) for name in ("came", "left", "stay"))
    frame.to_parquet(tmp_path / "rows.parquet")
    base = {"learner": {"kind": "fudyadt"}, "stream": {"model": "incremental"}, "output": {"report": False}}
    source = {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "label": "y"}
    with refused("columns.several_unusable_of_file", InputError) as caught:
        pipelines.replay({**base, "source": source}, tmp_path / "run")
    assert "source.exclude: [came, left, stay]" in str(caught.value)
    with refused("columns.unusable_times", InputError):
        pipelines.replay({**base, "source": {**source, "exclude": ["came", "stay"]}}, tmp_path / "other")
    rows = {**source, "exclude": ["left", "stay"], "ts": "came"}
    assert pipelines.replay({**base, "source": rows}, tmp_path / "usable").summary["updates"] == 4
