"""Estimators, their calls, and calls that have their effect or none."""

from __future__ import annotations

import copy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import pipelines
import raydt
from pipelines import saved_runs
from pipelines.prediction import predict_file
from raydt import (
    ConfidenceTreeClassifier,
    FullyDynamicTreeClassifier,
    OnlineGradientBoostingClassifier,
    OnlineGradientBoostingRegressor,
    SparseDynamicTreeClassifier,
    load_model,
)
from raydt.errors import ConfigError, HalfAppliedError, InputError, ModelFileError, UpdateError
from raydt.learners.fudyadt.coordinator import FuDyADTCoordinator
from raydt.messages import message
from raydt.sessions.session import InProcessSession
from tests.refusals import refused, warned

# -- estimator -------------------------------------------------------------------------------------------------------
# FullyDynamicTreeClassifier: ids, bad calls, frames, saving. The contract of all learners is in the nets.

RNG = np.random.default_rng(4)
X = np.round(RNG.normal(size=(300, 4)), 1)
Y = (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] > 1)


def test_calls_may_be_cut_anyhow() -> None:
    whole = FullyDynamicTreeClassifier(epsilon=0.3).partial_fit(X, Y, [0, 1, 2])
    parts = FullyDynamicTreeClassifier(epsilon=0.3)
    for begin in range(0, 300, 7):
        parts.partial_fit(X[begin : begin + 7], Y[begin : begin + 7], [0, 1, 2])
    assert whole.digest() == parts.digest()
    assert (whole.row_ids_ == np.arange(300)).all()
    assert (parts.row_ids_ == np.arange(294, 300)).all()


def test_fit_builds_at_once_and_forgets_what_was() -> None:
    tree = FullyDynamicTreeClassifier(alpha=0.01, beta=0.01, smoothing=0.0).partial_fit(X, Y).fit(X, Y)
    assert tree.session_.statistics()["active"] == 300
    assert tree.session_.statistics()["rebuilds"] == 1
    assert tree.score(X, Y) > 0.95
    assert clone(tree).get_params() == tree.get_params()


def test_forget_gives_a_receipt_and_leaves_no_count() -> None:
    tree = FullyDynamicTreeClassifier().partial_fit(X, Y, ids=np.arange(1000, 1300))
    receipt = tree.forget([1000, 1299, 1004])
    assert receipt.active == 297
    assert receipt.digest_before != receipt.digest_after == tree.digest()
    state, groups = tree.session_.state()
    assert not np.isin([1000, 1299, 1004], state["id"]).any()
    left = np.setdiff1d(np.arange(300), [0, 299, 4])
    assert (state["counts"][0] == np.bincount(Y[left])).all()
    assert all(len(group["X"]) == 297 for group in groups.values())


@pytest.mark.parametrize(
    ("call", "id", "parameters"),
    [
        (lambda t: t.forget([5, 999]), "estimators.refused", {"subject": "id 999", "row": 1}),
        (lambda t: t.forget([5, 999, 5, 777]), "estimators.unknown", {"names": "id 999, id 777"}),
        (lambda t: t.forget(), "estimators.nothing_named", {}),
        (lambda t: t.forget(subjects=[5]), "estimators.no_subjects", {}),
        (lambda t: t.forget([5], missing="pass"), "estimators.missing_choice", {"given": "pass"}),
        (lambda t: t.partial_fit(X[:2], Y[:2], ids=[777, 5]), "estimators.refused", {"subject": "id 5", "row": 1}),
        (lambda t: t.partial_fit(X[:2], [0, 9]), "estimators.new_class", {"label": 9}),
        (lambda t: t.partial_fit(np.where(X[:3] > 9, X[:3], np.inf), Y[:3]), "rows.infinite", {}),
        (lambda t: t.partial_fit([[0, 0, 0, 2**53 + 1]], [0]), "rows.inexact", {"row": 0, "column": "x3"}),
        (lambda t: t.partial_fit(np.full((2, 4), 2**64 - 1, "u8"), Y[:2]), "rows.inexact", {"column": "x0"}),
        (lambda t: t.predict(np.full((2, 4), -(2**53) - 1)), "rows.inexact", {"column": "x0"}),
        (lambda t: t.partial_fit(X[:3], Y[:2]), "estimators.other_labels", {"rows": 3, "labels": 2}),
        (lambda t: t.partial_fit(X[:3, :2], Y[:3]), "estimators.other_width", {"width": 2, "wanted": 4}),
        (lambda t: t.partial_fit(X[:2], Y[:2], ids=["a", {}]), "estimators.id_type", {"value": {}}),
        (lambda t: t.partial_fit(X[:2], Y[:2], ids=[900.0, 900.5]), "estimators.id_type", {"row": 1, "value": 900.5}),
        (lambda t: t.forget([2**63]), "estimators.id_type", {"value": 2**63}),
        (lambda t: t.forget([[1, 2]]), "estimators.id_shape", {"shape": (1, 2)}),
        (lambda t: t.partial_fit(X[:2], [0, None]), "estimators.unusable_label", {"row": 1, "what": "missing values"}),
        (lambda t: t.partial_fit(X[:2], ["a", np.nan]), "estimators.unusable_label", {"what": "missing values"}),
        (lambda t: t.partial_fit(X[:2], [0.0, np.nan]), "estimators.unusable_label", {"what": "NaN or infinity"}),
        (lambda t: t.partial_fit(X[:2], ["a", "b"]), "estimators.mixed_classes", {"label": "a"}),
        (lambda t: t.forget_examples(X[[7, 7]], Y[[7, 7]]), "examples.unknown_value", {"row": 0}),
    ],
)
def test_a_bad_call_has_no_effect(call: Any, id: str, parameters: dict[str, Any]) -> None:
    rows = X + np.arange(300)[:, None] * 1e-6  # all distinct
    tree = FullyDynamicTreeClassifier().partial_fit(rows, Y, [0, 1, 2])
    before = tree.digest()
    with refused(id, InputError, **parameters):
        call(tree)
    assert tree.digest() == before
    assert tree.session_.statistics()["active"] == 300


def test_frames_of_all_kinds_agree_and_text_is_categorical() -> None:
    words = np.array(["red", "green", "blue"])[(X[:, 3] > 0).astype(int) + (X[:, 2] > 0)]
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "colour": words})
    table = pa.Table.from_pandas(frame, preserve_index=False)
    trees = [
        FullyDynamicTreeClassifier().partial_fit(data, Y)
        for data in (frame, pl.from_pandas(frame), table, table.to_batches()[0])
    ]
    assert len({tree.digest() for tree in trees}) == 1
    assert trees[0].feature_names_in_.tolist() == ["a", "b", "colour"]
    assert trees[0]._features().categorical == (False, False, True)
    unseen = frame.assign(colour="mauve")
    with warned("estimators.unseen", rows=300, name="colour"):
        assert len(trees[0].predict(unseen[["colour", "b", "a"]])) == 300  # by name, in any order
    with refused("estimators.no_column", InputError, name="b", estimator="FullyDynamicTreeClassifier"):
        trees[0].predict(frame[["a", "colour"]])
    with refused("estimators.was_numbers", InputError, column="b", kind="text", was="numbers"):
        trees[0].predict(frame.assign(b="1.0"))
    with refused("estimators.was_text", InputError, column="colour", kind="integers", was="text"):
        trees[0].predict(frame.assign(colour=1))


def test_integers_that_float64_would_round_are_refused() -> None:
    frame = pd.DataFrame({"a": [1, 2**53, 2**53 + 1], "b": [1.5, 2, 3]})
    with refused("rows.inexact", InputError, row=2, column="a"):
        FullyDynamicTreeClassifier().partial_fit(frame, [0, 1, 0])
    FullyDynamicTreeClassifier().partial_fit(frame[:2], [0, 1])
    categories = FullyDynamicTreeClassifier(categorical_features=["a"]).partial_fit(frame, [0, 1, 0])
    assert len(categories._encoder.dictionaries["a"].values) == 3
    with refused("estimators.string", ConfigError, given="a"):
        FullyDynamicTreeClassifier(categorical_features="a").partial_fit(frame[:2], [0, 1])


def test_a_model_without_its_examples_only_predicts(tmp_path: Path) -> None:
    FullyDynamicTreeClassifier().fit(X, Y).save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    for call in (lambda: model.partial_fit(X, Y), lambda: model.forget([1]), model.audit, model.digest):
        with refused("estimators.no_rows", ModelFileError):
            call()


def test_the_ids_of_a_loaded_model_come_oldest_first(tmp_path: Path) -> None:
    tree = FullyDynamicTreeClassifier().partial_fit(X[:3], Y[:3], ids=[30.0, 10.0, 20.0])
    tree.forget(10)
    tree.partial_fit(X[3:5], Y[3:5], ids=[5, 10]).save(tmp_path / "tree", with_examples=True)
    assert load_model(tmp_path / "tree").row_ids_.tolist() == [30, 20, 5, 10]


def test_a_run_folder_stands_for_its_model(tmp_path: Path) -> None:
    tree = FullyDynamicTreeClassifier().fit(X, Y)
    tree.save(tmp_path / "run" / "model")
    for place in (tmp_path / "run", f"{tmp_path}/run/", (tmp_path / "run").as_uri()):
        assert (load_model(place).predict(X) == tree.predict(X)).all()
    with refused("models.no_model", ModelFileError, file=str(tmp_path)):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": "foo"}, "^epsilon='foo' should be a valid number.*, or should be 'auto'$"),
        ({"max_depth": -1, "alpha": 3}, "^alpha=3 should be .* equal to 1; max_depth=-1 should be .* equal to 0$"),
    ],
)
def test_a_parameter_that_is_not_allowed_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        FullyDynamicTreeClassifier(**options).fit(X, Y)


def test_works_without_scikit_learn() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from raydt import FullyDynamicTreeClassifier as T\n"
        "t = T().fit([[0.0], [1.0]], [0, 1]); print(t.predict([[1.0]]))\n"
        "try: T().predict([[1.0]])\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = message("estimators.not_fitted", estimator="FullyDynamicTreeClassifier")
    assert done.stdout == f"[1]\n{said}\n"


def test_labels_stay_text_or_numbers() -> None:
    """At every call that takes some; whole numbers, floats and truth values that are equal are one class."""
    texts = np.array(["0", "1", "2"])[Y]
    for own, other in ((Y, texts), (texts, Y)):
        tree = FullyDynamicTreeClassifier().fit(X, own)
        before = tree.digest()
        for call in (tree.partial_fit, tree.forget_examples, tree.score):
            with refused("estimators.mixed_classes", InputError):
                call(X[:3], other[:3])
        assert tree.digest() == before
    tree = FullyDynamicTreeClassifier().fit(X, Y).partial_fit(X[:3], Y[:3].astype(float)).partial_fit(X[:3], Y[:3] > 0)
    assert tree.classes_.tolist() == [0, 1, 2]


# -- estimator calls -------------------------------------------------------------------------------------------------
# Estimator calls that fail leave nothing behind; deletion by value; labels and categories across save and load.

COLOURS = ["red", "green", "blue", "grey"]


def coloured(n: int, seed: int = 3) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    colour = rng.integers(0, 4, n)
    frame = pd.DataFrame({"colour": np.array(COLOURS)[colour], "x": np.round(rng.normal(size=n), 1)})
    return frame, ((colour % 2) ^ (frame["x"] > 0)).to_numpy().astype(int)


NEW = coloured(2)[0].assign(colour="mauve")
#: Calls that are refused, each with its message and the parameters of it; without one Arrow refuses a type.
REFUSALS: list[tuple[Any, str | None, dict[str, Any]]] = [
    (lambda tree: tree.partial_fit(NEW, [0, 9]), "estimators.new_class", {"label": 9}),
    (lambda tree: tree.partial_fit(NEW, [0]), "estimators.other_labels", {"rows": 2, "labels": 1}),
    (lambda tree: tree.partial_fit(NEW, [0, 1], ids=[0, 500]), "estimators.refused", {"row": 0, "subject": "id 0"}),
    (lambda tree: tree.partial_fit(NEW, [0, 1], ids=["a", 1.5]), "estimators.id_type", {"row": 1, "value": 1.5}),
    (lambda tree: tree.partial_fit(NEW, [0, 1], ids=["a", None]), "estimators.no_key", {"row": 1, "what": "id"}),
    (lambda tree: tree.partial_fit(NEW, [0, 1], subjects=[1, 2]), "estimators.subjects_always", {}),
    (lambda tree: tree.fit(NEW, [0, 1], subjects=[1]), "estimators.other_subjects", {"rows": 2, "subjects": 1}),
    (lambda tree: tree.partial_fit(NEW.assign(x=[0, np.inf]), [0, 1]), "rows.infinite", {"row": 1, "column": "x"}),
    (lambda tree: tree.fit(NEW.assign(x=[0.0, np.inf]), [0, 1]), "rows.infinite", {"row": 1, "column": "x"}),
    (lambda tree: tree.fit(NEW, [0]), "estimators.other_labels", {"rows": 2, "labels": 1}),
    (lambda tree: tree.fit(NEW, [0, 1], ids=[7, 7]), "estimators.repeated_id", {"id": 7}),
    (lambda tree: tree.fit(NEW.assign(when=pd.Timestamp(0)), [0, 1]), None, {}),
]


@pytest.mark.parametrize(("call", "id", "parameters"), REFUSALS)
def test_a_refused_call_leaves_no_category_no_class_and_the_old_model(
    call: Any, id: str | None, parameters: dict[str, Any]
) -> None:
    frame, y = coloured(120)
    trees = [FullyDynamicTreeClassifier().partial_fit(frame[:60], y[:60], [0, 1]) for _ in range(2)]
    with refused(id, InputError, **parameters) if id else pytest.raises(InputError, match="column 'when'"):
        call(trees[0])
    late = frame[60:].assign(colour=["teal", "mauve"] * 30)  # categories that both see later
    for tree in trees:
        tree.partial_fit(late, y[60:])
    assert trees[0]._encoder.dictionaries["colour"].values == trees[1]._encoder.dictionaries["colour"].values
    assert trees[0].digest() == trees[1].digest()
    assert trees[0].classes_.tolist() == [0, 1]


def test_a_refused_call_adds_no_undeclared_class() -> None:
    tree = FullyDynamicTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    with refused("estimators.refused", UpdateError, row=0, subject="id 0"):
        tree.partial_fit([[2.0]], [2], ids=[0])
    assert tree.classes_.tolist() == [0, 1]
    assert tree.partial_fit([[2.0]], [2]).classes_.tolist() == [0, 1, 2]


def test_ids_as_labels_are_refused() -> None:
    X = np.zeros((1001, 1))
    for estimator in (FullyDynamicTreeClassifier(), OnlineGradientBoostingClassifier(), ConfidenceTreeClassifier()):
        with refused("estimators.many_classes", InputError, row=1000, most=1000, argument="y", label=1000):
            estimator.partial_fit(X, np.arange(1001))
        with refused("estimators.many_classes", InputError, row=None, most=1000, argument="classes", label=1000):
            estimator.partial_fit(X[:9], np.arange(9), classes=np.arange(1001))
        assert not estimator.__sklearn_is_fitted__()


def test_a_first_call_that_fails_leaves_an_estimator_that_is_not_fitted() -> None:
    frame, y = coloured(20)
    tree = FullyDynamicTreeClassifier()
    before = dict(vars(tree))
    for call in (tree.partial_fit, tree.fit):
        with refused("estimators.repeated_id", UpdateError, id=0):
            call(frame, y, ids=np.zeros(20, dtype=int))
        assert vars(tree) == before
    assert not tree.__sklearn_is_fitted__()


def test_a_failing_fit_keeps_a_loaded_model(tmp_path: Path) -> None:
    frame, y = coloured(40)
    FullyDynamicTreeClassifier().fit(frame, y).save(tmp_path / "model")
    tree = load_model(tmp_path / "model")
    with pytest.raises(ConfigError, match="alpha=7 should be less than or equal to 1"):
        tree.set_params(alpha=7).fit(frame, y)
    assert len(tree.predict(frame)) == 40
    tree.set_params(alpha=0.1).fit(frame, y, ids=np.arange(40) + 5)
    assert tree.forget([5]).active == 39  # nothing of the loaded model is left


MISSING = [
    (np.array([[1.0, 0.0], [np.nan, 0.0]]), [0]),
    (pd.DataFrame({"a": [1.0, np.nan], "b": [0.0, 1.0]}), ["a"]),
    (pa.table({"a": [1.0, float("nan")], "b": [0.0, 1.0]}), ["a"]),
    (pa.table({"a": [1, None], "b": [0.0, 1.0]}), ["a"]),
    (pa.table({"a": ["k", None], "b": [0.0, 1.0]}), None),
    (pa.table({"a": pa.array(["k", None]).dictionary_encode(), "b": [0.0, 1.0]}), None),
]


@pytest.mark.parametrize("named", [[1], ["x1"], [False, True, False], np.array([False, True, False]), np.array([1])])
def test_categories_by_name_position_or_mask(named: Any) -> None:
    X = np.array([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 1.0, 1.0]])
    for rows in (X, pa.table({f"x{j}": X[:, j] for j in range(3)})):
        tree = FullyDynamicTreeClassifier(categorical_features=named, epsilon=0.0).fit(rows, [0, 1, 0])
        assert tree._features().categorical == (False, True, False)


@pytest.mark.parametrize(
    ("named", "name", "parameters"),
    [
        ([7], "no_position", {"position": 7, "columns": 3, "last": 2}),
        ([-1], "no_position", {"position": -1, "columns": 3}),
        ([True, False], "mask_length", {"flags": 2, "columns": 3}),
        ([0, True], "mixed_mask", {"flag": True}),
        (np.eye(3, dtype=bool), "dimensions", {"shape": (3, 3)}),
        (["y"], "unknown_name", {"name": "y", "rows": "X"}),
    ],
)
def test_categories_that_no_column_has(named: Any, name: str, parameters: dict[str, Any]) -> None:
    with refused(f"estimators.{name}", InputError, **parameters):
        FullyDynamicTreeClassifier(categorical_features=named).fit(np.zeros((2, 3)), [0, 1])


@pytest.mark.parametrize(("X", "categorical"), MISSING)
def test_a_missing_category_is_a_category_of_its_own(X: Any, categorical: Any) -> None:
    """It is told from the other one, may come first in a prediction, and is found by its values."""
    tree = FullyDynamicTreeClassifier(categorical_features=categorical).fit(X, [0, 1])
    assert tree.predict(X).tolist() == [0, 1]
    assert tree.forget_examples(X, [0, 1]).active == 0
    good = X[:1] if not isinstance(X, pa.Table) else X.slice(0, 1)
    tree.fit(good, [0])
    assert tree.predict(X).tolist() == [0, 0]
    assert tree.partial_fit(X, [0, 0]).audit().ok


def test_an_infinite_category_is_refused() -> None:
    tree = FullyDynamicTreeClassifier(categorical_features=[0]).fit([[1.0, 0.0]], [0])
    X = np.array([[1.0, 0.0], [np.inf, 0.0]])
    for call in (lambda: tree.fit(X, [0, 1]), lambda: tree.predict(X), lambda: tree.partial_fit(X, [0, 1])):
        with refused("rows.infinite_category", InputError, row=1):
            call()


def test_arrow_string_views_are_categories() -> None:
    column = pa.array(["k", "l", "k"]).cast(pa.string_view())
    tree = FullyDynamicTreeClassifier(smoothing=0).fit(pa.table({"a": column}), [0, 1, 0])
    assert tree.predict(pa.table({"a": ["l", "k", "unseen"]})).tolist()[:2] == [1, 0]


def test_deletion_by_value_tells_300_classes_apart() -> None:
    y = np.arange(300)
    tree = FullyDynamicTreeClassifier().partial_fit(np.zeros((300, 1)), y, ids=1000 + y)
    assert tree.forget_examples(np.zeros((2, 1)), [1, 257]).ids.tolist() == [1001, 1257]


def test_deletion_by_value_compares_lengths() -> None:
    tree = FullyDynamicTreeClassifier().fit([[0.0], [0.0]], [0, 0])
    for X, y in (([[0.0], [0.0]], [0]), ([[0.0]], [0, 0])):
        with refused("estimators.other_labels", InputError, rows=len(X), labels=len(y)):
            tree.forget_examples(X, y)
    assert tree.session_.statistics()["active"] == 2


@pytest.mark.parametrize("classes", [None, [0, 1]])
def test_loading_changes_neither_digests_nor_what_labels_are_taken(tmp_path: Path, classes: Any) -> None:
    frame, y = coloured(80)
    tree = FullyDynamicTreeClassifier().partial_fit(frame, y, classes)
    tree.save(tmp_path / "state", with_examples=True)
    again = load_model(tmp_path / "state")
    for each in (tree, again):
        if classes is None:
            each.partial_fit(frame[:1].assign(colour="mauve"), [5])
            assert each.classes_.tolist() == [0, 1, 5]
        else:
            with refused("estimators.new_class", InputError, label=5, classes=classes):
                each.partial_fit(frame[:1], [5])
    assert again.digest() == tree.digest()


def test_a_run_and_an_estimator_read_each_others_categories(tmp_path: Path) -> None:
    frame, y = coloured(300)
    frame.assign(y=y).to_csv(tmp_path / "train.csv", index=False)
    new = coloured(50, seed=5)[0].assign(colour=[*COLOURS[::-1], "mauve"] * 10)
    pa.parquet.write_table(pa.Table.from_pandas(new, preserve_index=False), tmp_path / "new.parquet")

    def predicted(model: Path, out: str) -> list[Any]:
        predict_file(model, tmp_path / "new.parquet", tmp_path / out)
        return pa.parquet.read_table(tmp_path / out)["prediction"].to_pylist()

    config = {
        "source": {"kind": "csv", "path": str(tmp_path / "train.csv")},
        "stream": {"model": "incremental"},
        "learner": {"kind": "fudyadt", "alpha": 0.01, "beta": 0.01},
        "cluster": {"backend": "in_process"},
    }
    pipelines.replay(config, tmp_path / "run")
    loaded = load_model(tmp_path / "run")
    assert len(set(loaded.predict(new))) == 2
    assert loaded.predict(new).tolist() == predicted(tmp_path / "run", "a.parquet")
    assert saved_runs.load_model(tmp_path / "run").categories == {
        "colour": loaded._encoder.dictionaries["colour"].values
    }

    for name, examples in (("model", False), ("state", True)):
        tree = FullyDynamicTreeClassifier(alpha=0.01, beta=0.01).fit(frame[::-1], y[::-1])  # other codes than the run's
        tree.save(tmp_path / name, with_examples=examples)
        assert predicted(tmp_path / name, f"{name}.parquet") == tree.predict(new).tolist()
        assert load_model(tmp_path / name).predict(new).tolist() == tree.predict(new).tolist()


class Unbounded:
    """What scipy's sparse matrices look like, with more columns than can be numbered."""

    shape = (1, 2**31)

    def tocsr(self) -> Unbounded:
        return self


TWO = [[0.0], [1.0]]


@pytest.mark.parametrize(
    ("estimator", "X", "y", "arguments", "name", "parameters"),
    [
        (FullyDynamicTreeClassifier(), TWO, ["a", 1], {}, "mixed_labels", {"row": 1, "first": "a", "label": 1}),
        (FullyDynamicTreeClassifier(), TWO, [0, 1], {"ids": [5]}, "other_ids", {"rows": 2, "shape": (1,)}),
        (FullyDynamicTreeClassifier(), pd.DataFrame({"a": [1, "b"]}, dtype=object), [0, 1], {}, "frame", {}),
        (SparseDynamicTreeClassifier(), Unbounded(), [0], {}, "sparse_width", {"width": 2**31}),
        (OnlineGradientBoostingRegressor(), [[0.0]], [{}], {}, "no_numbers", {}),
    ],
)
def test_arguments_that_cannot_be_read(
    estimator: Any, X: Any, y: Any, arguments: dict[str, Any], name: str, parameters: dict[str, Any]
) -> None:
    with refused(f"estimators.{name}", InputError, **parameters):
        estimator.partial_fit(X, y, **arguments)
    assert not estimator.__sklearn_is_fitted__()


@pytest.mark.parametrize(
    "name",
    [name for name in raydt.__all__ if hasattr(getattr(raydt, name), "partial_fit") and not name.startswith("Keyed")],
)
def test_a_call_without_rows_and_an_unknown_parameter_are_said_in_words_of_the_field(name: str) -> None:
    estimator = getattr(raydt, name)
    with pytest.raises(TypeError, match=rf"^{name}\.__init__\(\) got an unexpected keyword argument 'depth'"):
        estimator(depth=3)
    empty = pd.DataFrame({"a": [], "b": []}, dtype=float)
    for nothing in (np.empty((0, 2)), empty) if "Sparse" not in name else ():
        with refused("estimators.empty", ValueError, what="sample", shape=(0, 2)):
            estimator().fit(nothing, np.empty(0))


@pytest.mark.parametrize("package", [raydt, pipelines])
def test_a_name_that_is_not_there(package: Any) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'FullyDynamicTree'"):
        _ = package.FullyDynamicTree


# -- atomic calls ----------------------------------------------------------------------------------------------------
# Calls that are interrupted while they change a model: handlers of signals, threads, copies (volume: the nets).

X_CALLS = np.arange(40.0).reshape(-1, 1)
Y_CALLS = (X_CALLS[:, 0] > 20).astype(int)


@pytest.fixture
def handler() -> Any:
    """Whatever handles SIGINT, put back after the test."""
    former = signal.getsignal(signal.SIGINT)
    yield former
    signal.signal(signal.SIGINT, former)


@pytest.fixture
def tree() -> FullyDynamicTreeClassifier:
    return FullyDynamicTreeClassifier().fit(X_CALLS, Y_CALLS)


def during(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act in the middle of each change, of a batch or of one row."""

    def acting(apply: Callable[..., Any]) -> Callable[..., Any]:
        def take(*given: Any, **rest: Any) -> Any:
            act()
            result = apply(*given, **rest)
            act()
            return result

        return take

    for of, name in ((InProcessSession, "apply"), (InProcessSession, "take"), (FuDyADTCoordinator, "take_row")):
        monkeypatch.setattr(of, name, acting(getattr(of, name)))


def test_a_handler_of_the_user_is_called_once_the_change_is_complete(tree, handler, monkeypatch) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(tree.session_.coordinator.store.live))
    sent = iter([True])
    during(monkeypatch, lambda: signal.raise_signal(signal.SIGINT) if next(sent, False) else None)
    own = signal.getsignal(signal.SIGINT)
    assert tree.forget([3, 4]).active == 38
    assert (seen, signal.getsignal(signal.SIGINT)) == ([38], own)


def test_where_the_signal_is_ignored_nothing_is_deferred(tree, handler, monkeypatch) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    found: list[Any] = []
    during(monkeypatch, lambda: found.append(signal.getsignal(signal.SIGINT)))
    tree.forget([3])
    assert found == [signal.SIG_IGN] * 2


def test_the_first_waits_and_the_second_does_not(tree, handler, monkeypatch) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    after = copy.deepcopy(tree)
    after.forget([3])
    with monkeypatch.context() as patch:
        sent = iter([True])
        during(patch, lambda: signal.raise_signal(signal.SIGINT) if next(sent, False) else None)
        with pytest.raises(KeyboardInterrupt):
            tree.forget([3])
    assert tree.digest() == after.digest()
    with monkeypatch.context() as patch:
        during(patch, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            tree.forget([5])
    with refused("estimators.interrupted", HalfAppliedError, estimator="FullyDynamicTreeClassifier"):
        tree.predict(X_CALLS)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_that_raises_is_met_by_the_mark(tree, handler, monkeypatch, tmp_path) -> None:
    before = tree.digest()
    former = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("too slow")))
    acts = iter([lambda: None, lambda: signal.raise_signal(signal.SIGALRM)])
    with monkeypatch.context() as patch:
        during(patch, lambda: next(acts)())
        with pytest.raises(TimeoutError):
            tree.replace_examples([3], [[3.5]], [1])
    signal.signal(signal.SIGALRM, former)
    assert signal.getsignal(signal.SIGINT) is handler
    for call in (tree.digest, tree.audit, lambda: copy.copy(tree), lambda: copy.deepcopy(tree)):
        with pytest.raises(HalfAppliedError):
            call()
    tree.save(tmp_path / "state", with_examples=True)
    loaded = load_model(tmp_path / "state")
    assert sorted(loaded.row_ids_.tolist()) == list(range(40))
    assert loaded.digest() == before  # of one training: the same model
    assert tree.fit(X_CALLS, Y_CALLS).digest() == before


def test_in_another_thread_signals_are_left_alone(tree, handler, monkeypatch) -> None:
    found: list[Any] = []
    during(monkeypatch, lambda: found.append(signal.getsignal(signal.SIGINT)))
    thread = threading.Thread(target=tree.forget, args=([3],))
    thread.start()
    thread.join()
    assert found == [handler] * 2
    assert tree.session_.coordinator.store.live == 39


def test_a_prediction_waits_for_a_change_in_another_thread(tree, monkeypatch) -> None:
    before, found, others = tree.predict(X_CALLS), list[Any](), list[threading.Thread]()

    def ask() -> None:
        others.append(threading.Thread(target=lambda: found.append(tree.predict(X_CALLS))))
        others[-1].start()
        others[-1].join(0.1)

    during(monkeypatch, ask)
    tree.forget([3])
    for other in others:
        other.join()
    assert [len(one) for one in found] == [len(before)] * len(others)
    assert found


def test_threads_take_turns(tree) -> None:
    errors: list[BaseException] = []

    def change(first: int) -> None:
        try:
            for i in range(first, first + 20):
                tree.partial_fit([[i / 3]], [i % 2], ids=[i])
                tree.predict(X_CALLS)
                tree.digest()
                if i % 3 == 0:
                    tree.forget([i], digests=False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=change, args=(first,)) for first in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gone = sum(i % 3 == 0 for first in (100, 200, 300) for i in range(first, first + 20))
    assert (errors, tree.session_.coordinator.store.live) == ([], 100 - gone)
    assert tree.audit().ok


# Methods of scikit-learn's trees, forests and boosted trees.


@pytest.mark.parametrize(
    ("model", "trees"),
    [
        (FullyDynamicTreeClassifier(max_depth=4), None),
        (raydt.ExactForestClassifier(n_estimators=3), 3),
        (raydt.OnlineGradientBoostingClassifier(max_iter=4), 4),
    ],
)
def test_leaves_and_logarithms_are_those_of_the_prediction(model: Any, trees: int | None) -> None:
    rng = np.random.default_rng(4)
    X = rng.integers(9, size=(200, 3)).astype(np.float64)
    model.fit(X, X[:, 0] + X[:, 1] > 8)
    leaves, found = model.apply(X), model.tree_sum()
    assert leaves.shape == ((200,) if trees is None else (200, trees))
    at = found.starts[:-1] + leaves.reshape(200, -1)
    assert (found.feature[at] < 0).all()
    scores = found.origin + found.value[at].sum(axis=1)
    np.testing.assert_allclose(scores / found.trees if found.mean else scores, found.scores(X))
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(model.predict_log_proba(X), np.log(model.predict_proba(X)))


@pytest.mark.parametrize("classes", [2, 3])
def test_raw_scores_of_boosting_give_the_shares(classes: int) -> None:
    rng = np.random.default_rng(4)
    X = rng.integers(9, size=(200, 3)).astype(np.float64)
    model = raydt.OnlineGradientBoostingClassifier(max_iter=4).fit(X, (X[:, 0] + X[:, 1]) // 6 % classes)
    scores, shares = model.decision_function(X), model.predict_proba(X)
    if classes == 2:
        np.testing.assert_allclose(1.0 / (1.0 + np.exp(-scores)), shares[:, 1], rtol=1e-4)
    else:
        raised = np.exp(scores)
        np.testing.assert_allclose(raised / raised.sum(axis=1, keepdims=True), shares, rtol=1e-4)
