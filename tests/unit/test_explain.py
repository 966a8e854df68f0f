"""Shapley values against their definition, and importances against a loop, of every estimator of one tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from raydt import (
    ConfidenceTreeClassifier,
    FullyDynamicTreeClassifier,
    FullyDynamicTreeRegressor,
    SparseBestSplit,
    SparseDynamicTreeClassifier,
)
from raydt.errors import InputError
from raydt.learners.tree_arrays import SUMS
from tests.oracles.shapley import shapley

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
    dense = model._rows(X) if isinstance(X, np.ndarray) else X.toarray()  # codes in place of categories

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
        values, base = shapley(tree, outputs, lambda node, row=row: left(row, node), D)
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
        with pytest.raises(InputError, match=r"the number of sparse features is not known. Set n_features"):
            _ = estimator.feature_importances_


def test_leaves_of_naive_bayes_are_not_explained() -> None:
    model = fitted(ConfidenceTreeClassifier(leaf_prediction="naive_bayes"), DENSE, labels(DENSE, 2))
    with pytest.raises(InputError, match=r"predict by naive Bayes, which splits do not explain.*leaf_prediction"):
        model.explain(DENSE)
