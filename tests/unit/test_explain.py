"""Shapley values against their definition and against shap, importances against a loop, and paths in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from raydt import (
    ConfidenceTreeClassifier,
    ExactForestClassifier,
    ExactForestRegressor,
    FullyDynamicTreeClassifier,
    FullyDynamicTreeRegressor,
    OnlineGradientBoostingClassifier,
    OnlineGradientBoostingRegressor,
    SparseBestSplit,
    SparseDynamicTreeClassifier,
)
from raydt.errors import InputError
from raydt.trees import shapley
from raydt.trees.canonical_arrays import SUMS
from tests.oracles.shapley import shapley as defined
from tests.refusals import refused

DRAW = np.random.default_rng(8)
N, D = 240, 5
DENSE = np.column_stack([DRAW.integers(0, 4, (N, 3)).astype(float), DRAW.random((N, 1)), DRAW.integers(0, 3, N)])
ONES = (DRAW.random((N, D)) < 0.4).astype(float)
NOISE = DRAW.random(N) < 0.1


def labels(X: Any, classes: int) -> Any:
    return ((X[:, 0] + (X[:, 1] > 0) * (X[:, 3] > 0.5) + NOISE) % classes).astype(int)


def fitted(estimator: Any, X: Any, y: Any, forget: int = 0) -> Any:
    estimator.fit(X, y)
    if forget:
        estimator.forget(estimator.row_ids_[:forget])
    return estimator


def csr(X: Any) -> Any:
    return scipy.sparse.csr_matrix(X)


MODELS = {
    "two classes": lambda: (fitted(FullyDynamicTreeClassifier(), DENSE, labels(DENSE, 2)), DENSE),
    "unsmoothed": lambda: (
        fitted(FullyDynamicTreeClassifier(smoothing=0, beta=0.01), DENSE, labels(DENSE, 2), 100),
        DENSE,
    ),
    "three classes, categories, deletions": lambda: (
        fitted(FullyDynamicTreeClassifier(categorical_features=[0, 4]), DENSE, labels(DENSE, 3), 60),
        DENSE,
    ),
    "numbers": lambda: (
        fitted(FullyDynamicTreeRegressor(label_range=(0, 9)), DENSE, DENSE[:, 0] + DENSE[:, 3], 80),
        DENSE,
    ),
    "sparse": lambda: (fitted(SparseDynamicTreeClassifier(), csr(ONES), labels(ONES, 2), 40), csr(ONES)),
    "confidence": lambda: (
        fitted(
            ConfidenceTreeClassifier(tie_threshold=0.3, grace_period=20, leaf_prediction="majority"),
            DENSE,
            labels(DENSE, 2),
        ),
        DENSE,
    ),
}


def inside(model: Any, X: Any) -> tuple[dict[str, Any], Any, Any]:
    """The tree, its outputs by node, and a function of row and node that says where the row goes."""
    predictor = model._predictor()
    tree, kinds = predictor._model, predictor._categorical
    numeric = hasattr(predictor, "numbers")
    outputs = predictor.numbers[:, None] if numeric else predictor._shares(len(model.classes_))
    dense = model._rows(X)[0] if isinstance(X, np.ndarray) else X.toarray()  # codes in place of categories

    def left(row: int, node: int) -> bool:
        j, value = int(tree["feature"][node]), dense[row, int(tree["feature"][node])]
        if j >= len(kinds):
            return bool(value == 0)
        return bool(value == tree["threshold"][node] if kinds[j] else value <= tree["threshold"][node])

    return tree, outputs, left


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_definition_and_add_up(name: str) -> None:
    model, X = MODELS[name]()
    tree, outputs, left = inside(model, X)
    assert (tree["feature"] >= 0).sum() >= 2
    found = model.explain(X)
    numeric = name == "numbers"
    expected = model.predict(X) if numeric else model.predict_proba(X)
    assert found.values.shape == ((N, D) if numeric else (N, D, len(model.classes_)))
    assert np.abs(found.values.sum(axis=1) + found.base - expected).max() < 1e-9
    for row in range(0, N, 24):
        values, base = defined(tree, outputs, lambda node, row=row: left(row, node), D)
        np.testing.assert_allclose(found.values[row].reshape(D, -1), values, atol=1e-12)
        np.testing.assert_allclose(found.base, base.ravel() if not numeric else base[0], atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_importances_are_what_the_splits_take_from_the_impurity(name: str) -> None:
    model, X = MODELS[name]()
    tree, _, _ = inside(model, X)
    taken = np.zeros(D)

    def impurity(node: int) -> float:
        counts = tree["counts"][node].astype(float)
        if name == "numbers":  # less the sum of squares, which all sides share
            total = model._model()[SUMS][node, 0]
            return -(float(total) ** 2) / counts[0] if counts[0] else 0.0
        return float(counts.sum() - (counts**2).sum() / counts.sum()) if counts.sum() else 0.0

    for node in np.flatnonzero(tree["feature"] >= 0):
        sides = impurity(tree["left"][node]) + impurity(tree["right"][node])
        taken[tree["feature"][node]] += max(0.0, impurity(node) - sides)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(model.feature_importances_, taken / taken.sum(), atol=1e-12)


def test_a_tree_without_a_split_has_nothing_to_explain() -> None:
    model = FullyDynamicTreeClassifier().fit([[0.0, 1.0], [1.0, 1.0]], [1, 1])
    assert model.feature_importances_.tolist() == [0.0, 0.0]
    found = model.explain([[0.5, 0.5]])
    assert found.values.tolist() == [[[0.0], [0.0]]]
    assert found.base.tolist() == [1.0]


def test_nodes_that_deletions_have_emptied_add_up_too() -> None:
    X = np.arange(40.0).reshape(-1, 1)
    model = FullyDynamicTreeClassifier(schedule="published", epsilon=5.0, smoothing=0).fit(
        X, (X[:, 0] > 19).astype(int)
    )
    model.forget(model.row_ids_[:20])
    assert (model._predictor()._model["counts"].sum(axis=1) == 0).any()
    found = model.explain(X)
    assert np.abs(found.values.sum(axis=1) + found.base - model.predict_proba(X)).max() < 1e-12


def test_the_best_split_is_all_that_counts_and_unknown_widths_are_refused() -> None:
    rows = csr(ONES)
    stump = SparseBestSplit().fit(rows, labels(ONES, 2))
    expected = np.zeros(D)
    expected[stump.best_split_.feature] = 1.0
    assert stump.feature_importances_.tolist() == expected.tolist()
    for estimator in (SparseBestSplit(), SparseDynamicTreeClassifier()):
        estimator.fit([[0, 7], [7], [0, 3], []], [1, 1, 0, 0])
        with refused("export.unknown_width", InputError):
            _ = estimator.feature_importances_
        with refused("export.unknown_width", InputError):
            estimator.explain_path([[0, 7]])


SMALL = {"max_iter": 5, "max_leaf_nodes": 6, "max_bins": 16, "candidate_fraction": 0.5}
SUMS_OF_TREES = {
    "forest, two classes": (ExactForestClassifier(n_estimators=6, sample_share=0.5), labels(DENSE, 2)),
    "forest, three classes": (ExactForestClassifier(n_estimators=3, sample_share=1.0), labels(DENSE, 3)),
    "forest, numbers": (ExactForestRegressor(n_estimators=5, sample_share=0.6), DENSE[:, 0] + DENSE[:, 3]),
    "boosting, two classes": (OnlineGradientBoostingClassifier(**SMALL), labels(DENSE, 2)),
    "boosting, three classes": (OnlineGradientBoostingClassifier(**SMALL), labels(DENSE, 3)),
    "boosting, numbers": (OnlineGradientBoostingRegressor(**SMALL), DENSE[:, 0] + DENSE[:, 3]),
}


def sums_of_tree(trees: Any, tree: int) -> tuple[Any, Any]:
    """One tree of a sum as the definition takes it, and its outputs by node."""
    part = slice(int(trees.starts[tree]), int(trees.starts[tree + 1]))
    nodes = {"feature": trees.feature[part], "counts": trees.cover[part]}
    nodes |= {name: getattr(trees, name)[part] - part.start for name in ("left", "right")}
    return nodes, trees.value[part]


def side_taken(trees: Any, x: Any, begin: int) -> Any:
    """Whether a row goes left at a node, by its number within the tree that begins there."""

    def left(node: int) -> bool:
        members = trees.members_of(begin + node).tolist()
        value = x[trees.feature[begin + node]]
        return bool(value in members if members else value <= trees.threshold[begin + node])

    return left


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", SUMS_OF_TREES)
def test_values_of_sums_of_trees_are_those_of_the_definition_and_add_up(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapley, "_TASK_NS", 1)  # so that few rows are divided among threads
    estimator, y = SUMS_OF_TREES[name]
    for categorical in (None, [0, 4]):
        model = fitted(estimator.set_params(categorical_features=categorical), DENSE, y, 60)
        trees, X, found = model.tree_sum(), model._rows(DENSE)[0], model.explain(DENSE)
        for threads in (2, 3, 5):
            again = model.set_params(n_jobs=threads).explain(DENSE)
            assert (again.values.tobytes(), np.asarray(again.base).tobytes()) == (
                found.values.tobytes(),
                np.asarray(found.base).tobytes(),
            )
        scores = trees.scores(X)[:, np.argsort(trees.codes) if len(trees.codes) else [0]]
        added = (found.values.sum(axis=1) + found.base).reshape(N, -1)
        assert np.abs(added - scores).max() < 1e-9
        if trees.link == "identity":
            predicted = model.predict_proba(DENSE) if len(trees.codes) else model.predict(DENSE)
            assert np.abs(added - predicted.reshape(N, -1)).max() < 1e-9
        for row in (0, 100):
            total = np.zeros((D, trees.outputs))
            for tree in range(trees.trees):
                nodes, outputs = sums_of_tree(trees, tree)
                left = side_taken(trees, X[row], int(trees.starts[tree]))
                total += defined(nodes, outputs, left, D)[0]
            total = total / trees.trees if trees.mean else total
            total = total[:, np.argsort(trees.codes)] if len(trees.codes) > 1 else total
            np.testing.assert_allclose(found.values[row].reshape(D, -1), total, atol=1e-11)


@pytest.mark.parametrize("name", SUMS_OF_TREES)
def test_values_equal_those_of_shap_on_the_exported_model(name: str) -> None:
    """shap reads LightGBM's trees, boosted ones, and scikit-learn's forests, whose columns are ranks of ours.

    It needs two sides with examples at every node, and computes with float32 thresholds of its own making.
    """
    shap = pytest.importorskip("shap")
    estimator, y = SUMS_OF_TREES[name]
    model = fitted(estimator.set_params(categorical_features=None), DENSE, y, 60)
    ours = model.explain(DENSE)
    if name.startswith("boosting"):
        booster = model.export("lightgbm")
        theirs = booster.predict(DENSE, pred_contrib=True).reshape(N, -1, D + 1)
        theirs, base = np.moveaxis(theirs[:, :, :-1], 1, 2), theirs[:, :, -1]
        expected = shap.TreeExplainer(booster).shap_values(DENSE)
        np.testing.assert_allclose(np.asarray(expected).reshape(N, D, -1), theirs, atol=1e-9)
        np.testing.assert_allclose(base, np.broadcast_to(ours.base, base.shape), atol=1e-9)
    else:
        pipeline = model.export("sklearn")
        used = [int(name.removeprefix("ranks")) for name, _, _ in pipeline[0].transformers]
        found = shap.TreeExplainer(pipeline[-1]).shap_values(pipeline[0].transform(DENSE), check_additivity=False)
        theirs = np.zeros((N, D, ours.values.reshape(N, D, -1).shape[2]))
        theirs[:, used] = np.asarray(found).reshape(N, len(used), -1)
    np.testing.assert_allclose(ours.values.reshape(N, D, -1), theirs, atol=1e-9)


def test_a_path_in_words_names_feature_threshold_and_value() -> None:
    import pandas as pd

    frame = pd.DataFrame({"age": [20.0, 25.5, 40.0, 60.0] * 10, "pet": ["cat", "dog", "cat", "dog"] * 10})
    y = ["yes" if age > 30 and pet == "dog" else "no" for age, pet in zip(frame["age"], frame["pet"], strict=True)]
    model = FullyDynamicTreeClassifier(smoothing=0).fit(frame, y)
    young, old = model.explain_path(pd.DataFrame({"age": [27.0, 70.0], "pet": ["cat", "dog"]}))
    assert set(young[:-1]) <= {f"age {test} (value 27)" for test in ("> 25.5", "<= 25.5", "<= 40", "<= 50")} | {
        "pet is cat (value cat)",
        "pet is not dog (value cat)",
    }
    assert any(word.startswith(("age > ", "pet is dog", "pet is not cat")) for word in old)
    assert "leaf of" in young[-1]
    assert "no 1, yes 0" in young[-1]
    unknown = model.explain_path(pd.DataFrame({"age": [27.0], "pet": ["fish"]}))[0]
    assert all("value unknown" in word for word in unknown if word.startswith("pet"))
    with refused("export.no_tree", InputError, tree=1, trees=1):
        model.explain_path(frame, tree=1)


def test_paths_of_missing_numbers_sparse_features_and_scores() -> None:
    X = DENSE[:, :2].copy()
    X[::3, 0] = np.nan
    boosting = OnlineGradientBoostingClassifier(**SMALL).fit(X, labels(DENSE, 2))
    words = [sentence for tree in range(5) for path in boosting.explain_path(X[:9], tree) for sentence in path]
    assert any("x0 is missing" in word for word in words)
    assert all(word.endswith("to the score") for word in words if word.startswith("leaf"))
    stump = SparseDynamicTreeClassifier().fit(csr(ONES), labels(ONES, 2))
    sentences = stump.explain_path(csr(ONES[:5]))
    assert all(word.endswith((" is 0", " is 1")) for path in sentences for word in path[:-1])


def test_leaves_of_naive_bayes_are_not_explained() -> None:
    model = fitted(ConfidenceTreeClassifier(leaf_prediction="naive_bayes"), DENSE, labels(DENSE, 2))
    with refused("learners.naive_leaves", InputError):
        model.explain(DENSE)
