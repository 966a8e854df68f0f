"""Estimator calls that fail leave nothing behind; deletion by value; labels and categories across save and load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

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
from raydt.errors import ConfigError, InputError, UpdateError
from tests.refusals import refused

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
