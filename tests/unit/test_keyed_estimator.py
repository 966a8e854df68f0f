"""Models by key: estimators, packed models, and streams."""

from __future__ import annotations

import copy
import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils import estimator_checks

from raydt import (
    ExactForestClassifier,
    FullyDynamicTreeClassifier,
    FullyDynamicTreeRegressor,
    KeyedClassifier,
    KeyedRegressor,
    OnlineGradientBoostingRegressor,
    SparseBestSplit,
    load_model,
)
from raydt.errors import ConfigError, InputError, ModelFileError, UpdateError
from raydt.keyed import stream
from raydt.keyed.groups import digest_of, group_of
from raydt.keyed.members import KeyedJob
from raydt.keyed.packing import keys_of, packed, unpacked
from raydt.keyed.session import KeyedSession
from raydt.keyed.source import SharedSource
from raydt.keyed.stream import KeyedStream
from raydt.learners import learners
from raydt.messages import message
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles
from raydt.streams.windows import Incremental
from tests.refusals import refused, warned
from tests.small_tables import written

# -- keyed estimator -------------------------------------------------------------------------------------------------
# KeyedClassifier and KeyedRegressor: keys that are hard to tell apart, bad calls, requests by id, priors, saving.
#
# That each key's model is that of its rows alone is in tests/property/test_keyed_estimators.py.

RNG = np.random.default_rng(7)
X = np.round(RNG.normal(size=(60, 3)), 1)
Y = (X[:, 0] > 0).astype(int)
STORES = np.array(["a", "b", "c"])[np.arange(60) % 3]
FRAME = pd.DataFrame(X, columns=list("pqr")).assign(store=STORES)


def fitted(**parameters: Any) -> KeyedClassifier:
    return KeyedClassifier(FullyDynamicTreeClassifier(), "store", **parameters).fit(FRAME, Y)


def test_frames_of_all_kinds_and_given_keys_agree() -> None:
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    frames = [FRAME, FRAME[["store", "p", "q", "r"]], pl.from_pandas(FRAME), table, table.to_batches()[0]]
    frames.append(FRAME.astype({"store": "category"}))
    models = [KeyedClassifier(FullyDynamicTreeClassifier(), "store").fit(frame, Y) for frame in frames]
    given = [np.array(STORES), STORES.tolist(), FRAME["store"], pl.Series(STORES), pa.array(STORES)]
    models += [KeyedClassifier(FullyDynamicTreeClassifier()).fit(FRAME[list("pqr")], Y, keys=keys) for keys in given]
    assert len({model.digest() for model in models}) == 1
    assert models[0].n_features_in_ == 3
    assert models[1].feature_names_in_.tolist() == ["p", "q", "r"]
    assert models[0].keys_.tolist() == ["a", "b", "c"]
    for frame, model in zip(frames, models, strict=False):
        np.testing.assert_array_equal(model.predict(frame), models[0].predict(FRAME))


def test_keys_that_look_alike_are_keys_of_their_own(tmp_path: Path) -> None:
    texts = ["1", "01", "", " ", "a", "A", "a\0", "é", "e\u0301", "\ud800", "nan", "x" * 100_000]
    for keys in (texts, [1, -1, 0, 2**53, 2**53 + 1, 2**63 - 1]):
        keep_their_own(keys, tmp_path / type(keys[0]).__name__)
    whole = KeyedClassifier(FullyDynamicTreeClassifier()).fit(X[:4], Y[:4], keys=[1.0, 2.0, 1.0, 2.0])
    assert whole.keys_.tolist() == [1, 2]


def keep_their_own(keys: list[Any], folder: Path) -> None:
    """Require a model of its own for each key, also once it is loaded."""
    n = len(keys)
    model = KeyedClassifier(FullyDynamicTreeClassifier()).fit(X[:n], Y[:n], keys=keys)
    assert model.keys_.tolist() == keys
    model.save(folder, with_examples=True)
    loaded = load_model(folder)
    assert loaded.keys_.tolist() == keys
    assert loaded.digest() == model.digest() == digest_of({key: one.digest() for key, one in model.models_.items()})


@pytest.mark.parametrize("key", [None, np.nan, float("nan"), pd.NA, pd.NaT])
def test_a_row_without_a_key_is_named(key: Any) -> None:
    model = fitted()
    before = model.digest()
    for call in (model.partial_fit, model.fit):
        with refused("estimators.no_key", InputError, what="key", row=1):
            call(X[:2], Y[:2], keys=["a", key])
    with refused("estimators.no_key", InputError, what="key", row=1, column="store"):
        model.partial_fit(FRAME[:2].assign(store=[7, None]), Y[:2])
    with refused("estimators.no_key", InputError, row=0):
        model.partial_fit(X[:2], Y[:2], keys=np.array([np.nan, 1.0]))
    assert model.digest() == before


Bad = tuple[Callable[[Any], Any], str, type[Exception], dict[str, Any]]
BAD: list[Bad] = [
    (lambda m: m.partial_fit(X[:2], Y[:2]), "estimators.no_key_column", InputError, {"name": "store"}),
    (lambda m: m.partial_fit(FRAME[["p"]], Y), "estimators.no_key_column", InputError, {"name": "store"}),
    (lambda m: m.partial_fit(FRAME, Y, keys=STORES), "estimators.two_keys", InputError, {"name": "store"}),
    (lambda m: m.partial_fit(FRAME[list("pqr")], Y, keys=STORES[:9]), "estimators.other_keys", InputError, {"keys": 9}),
    (lambda m: m.partial_fit(X, Y, keys=STORES), "estimators.other_form", InputError, {"found": "a matrix or lists"}),
    (lambda m: m.partial_fit(FRAME[["p", "q", "store"]], Y), "estimators.no_column", InputError, {"name": "r"}),
    (lambda m: m.partial_fit(FRAME.assign(store=0.5), Y), "estimators.key_type", InputError, {"row": 0}),
    (lambda m: m.partial_fit(FRAME.assign(store=True), Y), "estimators.key_type", InputError, {"row": 0}),
    (lambda m: m.partial_fit(X[:1], Y[:1], keys=[2**63]), "estimators.key_type", InputError, {"row": 0}),
    (lambda m: m.partial_fit(X[:1], Y[:1], keys=[("a", 1)]), "estimators.key_type", InputError, {"row": 0}),
    (lambda m: m.partial_fit(FRAME, Y[:9]), "estimators.other_labels", InputError, {"rows": 60, "labels": 9}),
    (lambda m: m.partial_fit(FRAME, ["x"] * 60), "estimators.mixed_classes", InputError, {}),
    (lambda m: m.partial_fit(FRAME[:4].assign(p=[0, 0, 0, np.inf]), Y[:4]), "rows.infinite", InputError, {"row": 3}),
    (lambda m: m.partial_fit(FRAME[:4], Y[:4], ids=[90, 91, 92, 3]), "estimators.refused", UpdateError, {"row": 3}),
    (lambda m: m.partial_fit(FRAME, Y, ids=[1, 2]), "estimators.other_ids", InputError, {}),
    (lambda m: m.partial_fit(FRAME, Y, subjects=[1] * 60), "estimators.subjects_always", InputError, {}),
    (lambda m: m.predict(FRAME.assign(store="z")), "estimators.unknown_keys", InputError, {"rows": 60, "keys": 1}),
    (lambda m: m.forget([2, 999]), "estimators.refused", UpdateError, {"subject": "id 999", "row": 1}),
    (lambda m: m.forget([2, 999, 777]), "estimators.unknown", UpdateError, {"names": "id 999, id 777"}),
    (lambda m: m.forget({"a": [0, 1]}), "estimators.refused", UpdateError, {"subject": "id 1"}),
    (lambda m: m.forget({"z": [0]}), "estimators.no_model", InputError, {"key": "'z'"}),
    (lambda m: m.forget(), "estimators.nothing_named", InputError, {}),
    (lambda m: m.forget(subjects=[1]), "estimators.no_subjects", InputError, {}),
    (lambda m: m.replace_examples([0], FRAME[:2], [0, 9], new_ids=[3, 4]), "estimators.refused", UpdateError, {}),
    (lambda m: m.forget_examples(FRAME[:1].assign(p=9.5), Y[:1]), "examples.unknown_value", UpdateError, {"row": 0}),
]


@pytest.mark.parametrize(("call", "id", "error", "parameters"), BAD)
def test_a_bad_call_changes_no_key(call: Any, id: str, error: type[Exception], parameters: dict[str, Any]) -> None:
    model = fitted()
    before = model.__dict__.copy(), model.digest()
    with refused(id, error, **parameters):
        call(model)
    assert (model.__dict__, model.digest()) == before
    model.forget([0])


def test_an_id_of_two_keys_is_deleted_by_key() -> None:
    model = fitted()
    model.partial_fit(FRAME[1:3], Y[1:3], ids=[0, 100])  # 0 of "b", too
    with refused("estimators.shared_id", InputError, id=0, keys="'a', 'b'"):
        model.forget([0])
    receipt = model.forget({"b": [0]}, note="case 7")
    assert list(receipt.receipts) == ["b"]
    assert receipt.receipts["b"].note == receipt.note == "case 7"
    assert receipt.active == 61
    assert model.forget([0, 4, 999], missing="skip").missing == (999,)
    assert 0 not in model
    assert 100 in model
    assert receipt.as_dict()["receipts"][0]["key"] == "b"


def test_subjects_are_deleted_in_all_keys() -> None:
    model = KeyedClassifier(FullyDynamicTreeClassifier(), "store").fit(FRAME, Y, subjects=np.arange(60) // 5)
    receipt = model.forget(subjects=[0, 1])
    assert sorted(receipt.receipts) == ["a", "b", "c"]
    assert model.live_ids_.tolist() == [i for key in range(3) for i in range(10, 60) if i % 3 == key]
    with refused("estimators.unknown", UpdateError, names="subject 0"):
        model.forget(subjects=[0, 2])


def test_categories_that_no_key_has_seen_are_counted_over_all_keys() -> None:
    """One warning of the call, however few rows each key has; rows of keys that know their values count, too."""
    rows = pd.DataFrame({"a": np.arange(60) % 3, "c": np.tile(["u", "v", "w"], 20)})
    keys = np.arange(60) // 5
    model = KeyedClassifier(FullyDynamicTreeClassifier()).fit(rows, np.arange(60) % 2, keys=keys)
    other = rows.assign(c=rows["c"].where(keys % 3 == 0, rows["c"] + " "))
    for call in (model.predict, model.predict_proba):
        with warned("estimators.unseen", rows=40, all=60, name="c", estimator="KeyedClassifier"):
            call(other, keys=keys)
        call(rows.assign(c=rows["c"].where(keys % 3 != 0, rows["c"] + " ")), keys=keys)  # 20 of 60


def test_the_prior_stands_for_keys_without_a_model(tmp_path: Path) -> None:
    model = fitted(unknown="prior")
    asked = FRAME[:4].assign(store=["z", "a", "z", "1"])
    model.forget(np.flatnonzero(Y == 0)[3:])
    shares = np.bincount(Y[model.live_ids_]) / len(model.live_ids_)
    assert model.has_model(asked).tolist() == [False, True, False, False]
    model.save(tmp_path / "model")
    for one in (model, load_model(tmp_path / "model")):
        np.testing.assert_array_equal(one.predict_proba(asked)[[0, 2, 3]], [shares] * 3)
        assert one.predict(asked)[[0, 2, 3]].tolist() == [1, 1, 1]
    numbers = KeyedRegressor(FullyDynamicTreeRegressor(), unknown="prior").fit(X, X[:, 0], keys=STORES)
    assert numbers.predict(X[:1], keys=["z"])[0] == pytest.approx(X[:, 0].mean())
    heavy = KeyedRegressor(OnlineGradientBoostingRegressor(max_iter=2), unknown="prior")
    heavy.fit(X[:2], [1.0, 5.0], keys=["a", "b"], sample_weight=[3.0, 1.0])
    assert heavy.predict(X[:1], keys=["z"]).tolist() == [2.0]
    numbers.forget(numbers.live_ids_)
    assert numbers.predict(X[:2], keys=["z", "a"])[0] == 0.0


def test_weighted_numbers_of_a_key_are_those_of_a_model_of_its_own() -> None:
    """Weights of which some are 0 and none is whole, by insertion, deletion and replacement."""
    ids, weights = np.arange(60), np.tile([0.25, 1.7, 0.0, 65535.0, 0.5, 3.1], 10)
    model = KeyedRegressor(FullyDynamicTreeRegressor()).fit(X[:40], X[:40, 1], weights[:40], keys=STORES[:40])
    model.partial_fit(X[40:50], X[40:50, 1], weights[40:50], keys=STORES[40:50], ids=ids[40:50])
    model.forget(ids[3:9])
    model.replace_examples([12], X[50:], X[50:, 1], keys=STORES[50:], new_ids=ids[50:], sample_weight=weights[50:])
    for key, own in model.models_.items():
        of_key = key == STORES
        first, then, last = (of_key & (ids >= a) & (ids < b) for a, b in ((0, 40), (40, 50), (50, 60)))
        alone = FullyDynamicTreeRegressor().fit(X[first], X[first, 1], weights[first], ids=ids[first])
        alone.partial_fit(X[then], X[then, 1], weights[then], ids=ids[then])
        alone.forget(ids[3:9][of_key[3:9]])
        gone = [12] if of_key[12] else []
        alone.replace_examples(gone, X[last], X[last, 1], new_ids=ids[last], sample_weight=weights[last])
        assert own.digest() == alone.digest()
        assert alone.audit().conformance == "holds"


def test_classes_of_keys_may_be_fewer() -> None:
    words = np.array(["no", "yes", "maybe"])[np.arange(60) % 3]  # one class for each store
    model = KeyedClassifier(FullyDynamicTreeClassifier(smoothing=0.0), "store").fit(FRAME, words)
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    assert model.models_["b"].classes_.tolist() == ["yes"]
    assert model.predict_proba(FRAME[:2]).tolist() == [[0, 1, 0], [0, 0, 1]]
    declared = KeyedClassifier(FullyDynamicTreeClassifier(), "store").partial_fit(FRAME[:9], Y[:9], classes=[0, 1, 2])
    declared.partial_fit(FRAME[:1].assign(store="new"), [2])
    assert declared.models_["new"].classes_.tolist() == [0, 1, 2]
    with refused("estimators.new_class", InputError, label=3):
        declared.partial_fit(FRAME[:1].assign(store="newer"), [3])
    forest = ExactForestClassifier(n_estimators=2, class_weight={"no": 2.0})
    weights = KeyedClassifier(forest, "store").fit(FRAME, words)
    assert weights.score(FRAME, words) == 1.0


def test_rows_of_indices_are_divided_too() -> None:
    lists = [[0, 2], [1], [0, 1, 2], [3]]
    model = KeyedClassifier(SparseBestSplit(finder="updgini")).fit(lists, [1, 0, 1, 0], keys=["a", "b", "b", "b"])
    alone = SparseBestSplit(finder="updgini").fit(lists[1:], [0, 1, 0], ids=[1, 2, 3])
    assert model.models_["b"].digest() == alone.digest()
    assert model.predict(lists, keys=["b"] * 4).tolist() == alone.predict(lists).tolist()


def test_all_keys_are_one_folder(tmp_path: Path) -> None:
    many = KeyedClassifier(FullyDynamicTreeClassifier()).fit(X, Y, keys=np.arange(60) % 40)
    many.save(tmp_path / "many", with_examples=True)
    assert len(list((tmp_path / "many").iterdir())) <= 41  # keys of one group share a file
    loaded = load_model(tmp_path / "many")
    assert loaded.digest() == many.digest()
    assert loaded.keys_.tolist() == many.keys_.tolist()
    many.save(tmp_path / "model")
    with refused("estimators.no_rows", ModelFileError):
        load_model(tmp_path / "model").forget([0])


def test_scikit_learns_habits() -> None:
    model = fitted()
    again = clone(model)
    assert not again.__sklearn_is_fitted__()
    assert again.set_params(estimator__alpha=0.5, unknown="prior").get_params()["estimator__alpha"] == 0.5
    assert model.estimator.alpha != 0.5
    copied = copy.deepcopy(model)
    copied.forget([0])
    assert 0 in model
    for wrong, id in ((FullyDynamicTreeRegressor(), "not_keyed"), ("tree", "not_keyed")):
        with refused(f"estimators.{id}", ConfigError):
            KeyedClassifier(wrong, "store").fit(FRAME, Y)
    with refused("estimators.unknown_choice", ConfigError, given="guess"):
        fitted(unknown="guess")
    with refused("estimators.no_keys", InputError):
        KeyedClassifier(FullyDynamicTreeClassifier()).fit(FRAME, Y)
    with pytest.raises(ValueError, match="not fitted yet"):
        again.predict(FRAME)


class OneKey(KeyedClassifier):
    """All rows have the same key: then scikit-learn's checks can be made."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().fit(X, y, sample_weight, keys=_keys(X))

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        return super().partial_fit(X, y, classes, sample_weight, keys=_keys(X))

    def predict(self, X: Any) -> Any:
        return super().predict(X, keys=_keys(X))

    def predict_proba(self, X: Any, *, keys: Any = None) -> Any:  # logarithms of shares ask it with keys
        return super().predict_proba(X, keys=_keys(X))

    def predict_log_proba(self, X: Any) -> Any:
        return super().predict_log_proba(X, keys=_keys(X))

    def score(self, X: Any, y: Any) -> float:
        return super().score(X, y, keys=_keys(X))


def _keys(X: Any) -> list[str]:
    return ["k"] * (X.shape[0] if hasattr(X, "shape") else len(X))


CHECKS = [
    "check_classifiers_classes",
    "check_dict_unchanged",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_estimators_partial_fit_n_features",
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_fit_idempotent",
    "check_get_params_invariance",
    "check_methods_sample_order_invariance",
    "check_n_features_in",
    "check_set_params",
]


@pytest.mark.nightly
@pytest.mark.parametrize("check", CHECKS)
def test_scikit_learns_checks_of_one_key(check: str) -> None:
    getattr(estimator_checks, check)("OneKey", OneKey(FullyDynamicTreeClassifier()))


def test_a_search_finds_parameters_by_key() -> None:
    search = GridSearchCV(
        KeyedClassifier(FullyDynamicTreeClassifier(), key="store", unknown="prior"),
        {"estimator__max_depth": [0, 3]},
        cv=3,
        error_score="raise",
    )
    assert search.fit(FRAME, Y).best_params_ == {"estimator__max_depth": 3}


@pytest.mark.parametrize(
    "estimator",
    [
        FullyDynamicTreeClassifier(),
        OnlineGradientBoostingRegressor(),
        KeyedClassifier(FullyDynamicTreeClassifier(), unknown="prior"),
        KeyedRegressor(FullyDynamicTreeRegressor(), unknown="prior"),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_metadata_is_routed(estimator: Any) -> None:
    given = {"sample_weight": np.ones(60), "ids": np.arange(100, 160), "subjects": STORES}
    if "keys" in estimator._metadata_of("fit"):
        given["keys"] = STORES
    with pytest.raises(RuntimeError, match="enable_metadata_routing"):
        estimator.set_fit_request(ids=True)
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(TypeError, match="nonsense"):
            estimator.set_fit_request(nonsense=True)
        with pytest.raises(UnsetMetadataPassedError):
            GridSearchCV(estimator, {}, cv=3).fit(X, Y, **given)
        asked = clone(estimator).set_fit_request(**dict.fromkeys(given, True))
        asked.set_score_request(**{name: True for name in given if name in asked._metadata_of("score")})
        asked.set_partial_fit_request(subjects=True)
        found = GridSearchCV(asked, {}, cv=3, error_score="raise").fit(X, Y, **given)
        assert sorted(found.best_estimator_.live_ids_.tolist()) == list(range(100, 160))
        assert found.best_estimator_.get_metadata_routing().fit.requests == dict.fromkeys(given, True)
        assert found.score(X, Y, **{name: given[name] for name in given if name in asked._metadata_of("score")}) > 0.5
    assert hasattr(estimator, "set_predict_request") == ("keys" in given)


def test_weights_of_no_rows_are_of_the_wrong_length() -> None:
    """As the inner estimator says; weights that are all zero are another fault."""
    for model, keys in (
        (FullyDynamicTreeClassifier(), {}),
        (KeyedClassifier(FullyDynamicTreeClassifier()), {"keys": STORES}),
    ):
        with refused("estimators.weight_shape", rows=60):
            model.fit(X, Y, sample_weight=[], **keys)
        with refused("estimators.zero_weights"):
            model.fit(X, Y, sample_weight=np.zeros(60), **keys)


# -- keyed packing ---------------------------------------------------------------------------------------------------
# What is packed comes back, and what no packing has made is refused as damage of the folder.

VALUES: dict[Any, dict[str, Any]] = {
    "a": {"x": np.arange(6.0).reshape(2, 3), "below": {"y": np.arange(3)}, "words": ["b", None]},
    "c": {"x": np.zeros((0, 3)), "below": {}, "words": []},
}
X_PACKING, Y_PACKING = "x#f8#2", "below/y#i8#1"


def text(change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    """A change of the JSON values."""

    def changed(arrays: dict[str, Any]) -> None:
        value = change(json.loads(bytes(arrays["json"])))
        arrays["json"] = np.frombuffer((value if isinstance(value, str) else json.dumps(value)).encode(), np.uint8)

    return changed


def put(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.update(values)


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a key twice": text(lambda rest: [rest[0], rest[0]]),
    "keys in another order": text(lambda rest: rest[::-1]),
    "a key less": text(lambda rest: rest[1:]),
    "keys of two kinds": text(lambda rest: [[7, rest[0][1]], rest[1]]),
    "a truth value for a key": text(lambda rest: [[True, rest[0][1]], rest[1]]),
    "a list for a key": text(lambda rest: [[["a"], rest[0][1]], rest[1]]),
    "no values": text(lambda rest: [["a", None], rest[1]]),
    "no keys": text(lambda rest: {}),
    "a number": text(lambda rest: 3),
    "NaN": text(lambda rest: '[["a", {"z": NaN}], ["c", {}]]'),
    "deep": text(lambda rest: "[" * 100_000),
    "a value where an array belongs": text(lambda rest: [["a", {**rest[0][1], "x": 1}], rest[1]]),
    "a value above an array": text(lambda rest: [["a", {**rest[0][1], "below": 1}], rest[1]]),
    "text of another type": lambda arrays: arrays.update(json=arrays["json"].astype(np.int8)),
    "no text": lambda arrays: arrays.pop("json"),
    "no places": lambda arrays: arrays.pop(f"{X_PACKING}#key"),
    "no shapes": lambda arrays: arrays.pop(f"{X_PACKING}#shape"),
    "no array": lambda arrays: arrays.pop(X_PACKING),
    "a stranger": put(z=np.zeros(3)),
    "a negative place": put(**{f"{X_PACKING}#key": np.array([-1, 1])}),
    "a place beyond": put(**{f"{X_PACKING}#key": np.array([0, 2])}),
    "one place twice": put(**{f"{X_PACKING}#key": np.array([0, 0])}),
    "a place less": put(**{f"{X_PACKING}#key": np.array([0])}),
    "places of floats": put(**{f"{X_PACKING}#key": np.array([0.0, 1.0])}),
    "a place alone": put(**{f"{X_PACKING}#key": np.array(0)}),
    "a negative shape": put(**{f"{X_PACKING}#shape": np.array([[-2, -3], [0, 3]])}),
    "a huge shape": put(**{f"{X_PACKING}#shape": np.array([[2**62, 2**62], [0, 3]])}),
    "a shape too many": put(**{f"{X_PACKING}#shape": np.array([[2, 3], [1, 0], [0, 3]])}),
    "a shape of one dimension": put(**{f"{X_PACKING}#shape": np.array([[6], [0]])}),
    "a value less": put(**{X_PACKING: np.arange(5.0)}),
    "a value more": put(**{X_PACKING: np.arange(7.0)}),
    "values of another type": put(**{X_PACKING: np.arange(6, dtype=np.float32)}),
    "values of two dimensions": put(**{X_PACKING: np.arange(6.0).reshape(2, 3)}),
    "one array by two names": lambda arrays: arrays.update(
        {f"below/y#f8#1{part}": arrays[f"{Y_PACKING}{part}"] for part in ("#key", "#shape")},
        **{"below/y#f8#1": np.arange(3.0)},
    ),
}


def test_what_is_packed_comes_back() -> None:
    found = unpacked(packed(VALUES))
    assert {key: repr(sorted(value.items())) for key, value in found.items()} == {
        key: repr(sorted(value.items())) for key, value in VALUES.items()
    }


@pytest.mark.parametrize("name", DAMAGE)
def test_what_cannot_be_is_refused(name: str) -> None:
    arrays = packed(VALUES)
    DAMAGE[name](arrays)
    with pytest.raises(ModelFileError, match="do not fit together"):
        keys_of(arrays, group_of("a"), "folder")


def test_a_key_of_another_group_is_refused() -> None:
    arrays = packed({"a": VALUES["a"]})
    assert list(keys_of(arrays, group_of("a"), "folder")) == ["a"]
    with pytest.raises(ModelFileError, match="another group"):
        keys_of(arrays, group_of("a") ^ 1, "folder")


# -- keyed stream ----------------------------------------------------------------------------------------------------
# Blocks of a stream of many keys: rows that are read apart come together, with the bad ones among them.

N, KEYS, BAD_STREAM = 90, 20, (41, 77)


def opened(folder: Path, *, skip_bad: bool) -> KeyedStream:
    """A stream of a file that is read two rows at a time, two of which have no number where one is wanted."""
    x: list[float | None] = [None if row in BAD_STREAM else row / 7 for row in range(N)]
    key = [f"k{row % KEYS}" for row in range(N)]
    table = pa.table({"x": pa.array(x, pa.float64()), "y": [row % 2 for row in range(N)], "key": key})
    source: Any = open_source(ArrowFiles(path=str(written(folder / "rows.arrow", table)), label="y", key="key"))
    source._chunk_rows = 2
    return KeyedStream(source, skip_bad=skip_bad)


def test_blocks_grow_with_the_keys_and_have_all_rows_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are cut by: at most as many rows as keys call for, or as memory allows."""
    for most in (1 << 22, 30):
        monkeypatch.setattr(stream, "MOST_CELLS", most)
        blocks = list(opened(tmp_path, skip_bad=True).batches(3))
        assert np.concatenate([block.rows.row for block in blocks]).tolist() == list(range(N))
        assert [block.start for block in blocks] == [int(block.rows.row[0]) for block in blocks]
        assert len(blocks[0]) == 3
        assert 10 < max(map(len, blocks)) <= most + 1  # they end with what is read together
        bad = [block.start + place for block in blocks for place in sorted(block.rows.bad)]
        assert tuple(bad) == BAD_STREAM


def test_keys_get_more_rows_of_large_blocks_also_those_that_are_new(tmp_path: Path) -> None:
    key = np.arange(40_000) % 3_000
    table = pa.table({"x": np.zeros(len(key)), "y": key % 2, "key": key})
    source: Any = open_source(ArrowFiles(path=str(written(tmp_path / "rows.arrow", table)), label="y", key="key"))
    source._chunk_rows = 10_000
    size = 10 * stream.ROWS_FOR_ONE
    assert [len(block) for block in KeyedStream(source, skip_bad=True).batches(size)] == [30_000, 10_000]


def test_the_garbage_collector_passes_over_models_until_their_session_is_closed(tmp_path: Path) -> None:
    blocks = opened(tmp_path, skip_bad=True)
    learner, before = learners()["fudyadt"], gc.get_freeze_count()
    options = learner.Options(kind="fudyadt")
    shared = SharedSource(blocks.source, learner.traits(options).reading)
    kept = Incremental(on_error="skip")
    session = KeyedSession(KeyedJob(shared, learner, options, blocks.source.features, kept, every=10))
    counts = [(session.apply(block), gc.get_freeze_count())[1] for block in blocks.batches(3)]
    assert before < counts[0] < counts[-1]  # with more keys, of more models
    session.close()
    assert gc.get_freeze_count() == 0


def test_the_rows_before_a_bad_one_come_first(tmp_path: Path) -> None:
    rows: list[int] = []
    blocks = (block.rows.row.tolist() for block in opened(tmp_path, skip_bad=False).batches(3))
    with pytest.raises(InputError, match=f"row {BAD_STREAM[0]}"):
        rows.extend(row for block in blocks for row in block)
    assert rows == list(range(BAD_STREAM[0]))


def test_a_stream_goes_on_where_it_was_left(tmp_path: Path) -> None:
    """Though rows beyond had been read."""
    whole = list(opened(tmp_path, skip_bad=True).batches(3))
    before = opened(tmp_path, skip_bad=True)
    blocks = before.batches(3)
    taken = [next(blocks) for _ in range(3)]
    state = before.state()
    after = opened(tmp_path, skip_bad=True)
    after.restore(state)
    taken += after.batches(3)
    rows = np.concatenate([block.rows.row for block in taken])
    assert rows.tolist() == list(range(N))
    assert state["row"] == whole[2].stop


def fresh_each_time(keyed: KeyedStream) -> Iterator[int]:
    """Rows of blocks, each of which is asked for anew."""
    while (block := next(keyed.batches(3), None)) is not None:
        yield from block.rows.row.tolist()


def in_one_go(keyed: KeyedStream) -> Iterator[int]:
    """Rows of blocks, one after the other."""
    for block in keyed.batches(3):
        yield from block.rows.row.tolist()


@pytest.mark.parametrize("rows_of", [fresh_each_time, in_one_go])
@pytest.mark.parametrize("breaks", [False, True])
def test_what_is_good_before_an_error_comes_first(breaks: bool, rows_of: Any, tmp_path: Path) -> None:
    """Of a file that breaks off as of one with a bad row, and also if somebody goes on after a block."""
    keyed, end = opened(tmp_path, skip_bad=breaks), 54 if breaks else BAD_STREAM[0]
    read = keyed.source.rows

    def broken(start: int = 0) -> Iterator[Any]:
        for rows in read(start):
            if rows.start >= 54:
                raise InputError(message("sources.no_path"), row=54)
            yield rows

    if breaks:
        keyed.source.rows = broken  # type: ignore[method-assign, assignment]
    rows: list[int] = []
    with pytest.raises(InputError, match=f"row {end}"):
        rows.extend(rows_of(keyed))
    assert rows == list(range(end))
