"""OnlineGradientBoostingClassifier and -Regressor: scikit-learn's checks, one batch D' a call, stages, saving."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt import OnlineGradientBoostingClassifier, OnlineGradientBoostingRegressor
from raydt.learners.gbdt.trainer import exact_parts
from tests.volume import examples

RNG = np.random.default_rng(11)
X = np.round(RNG.normal(size=(400, 4)), 1)
CLASSES = (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
NUMBERS = 3.0 * X[:, 0] - X[:, 1] ** 2 + 100.0
SMALL: dict[str, Any] = {"max_iter": 12, "max_leaf_nodes": 6, "max_bins": 64}
BOTH = [(OnlineGradientBoostingClassifier, CLASSES), (OnlineGradientBoostingRegressor, NUMBERS)]
each = pytest.mark.parametrize(("make", "y"), BOTH, ids=["classifier", "regressor"])


@each
def test_stages_end_with_the_prediction(make: Any, y: np.ndarray) -> None:
    model = make(**SMALL).fit(X, y)
    stages = list(model.staged_predict(X))
    assert len(stages) == model.n_iter_ == 12
    np.testing.assert_array_equal(stages[-1], model.predict(X))
    assert model.score(X, y) > 0.75
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert model.feature_importances_[:2].sum() > model.feature_importances_[3] >= 0.0


@pytest.mark.parametrize("labels", [CLASSES, CLASSES > 0, np.zeros(400, dtype=int)], ids=["three", "two", "one"])
def test_stages_of_shares(labels: np.ndarray) -> None:
    model = OnlineGradientBoostingClassifier(**SMALL).fit(X, labels)
    stages = list(model.staged_predict_proba(X))
    np.testing.assert_array_equal(stages[-1], model.predict_proba(X))
    assert stages[0].shape == (400, len(np.unique(labels)))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_early_stopping_makes_fewer_trees() -> None:
    noise = RNG.integers(0, 2, 400)
    model = OnlineGradientBoostingClassifier(early_stopping=True, n_iter_no_change=2, max_bins=64).fit(X, noise)
    assert model.n_iter_ < 100


@pytest.mark.parametrize("classes", [2, 3])
def test_a_new_class_gives_leaves_another_value_also_where_no_derivative_changes(classes: int) -> None:
    """With saturated probabilities: the factor (K-1)/K and the sign of the mirrored trees change all the same."""
    X = np.arange(60.0)[:, None]
    y = np.arange(60) // (60 // classes)
    boosting = OnlineGradientBoostingClassifier(max_iter=60, learning_rate=1.0, l2_regularization=0.0, max_leaf_nodes=8)
    boosting.fit(X, y)
    boosting.partial_fit([[1000.0]], [classes])
    assert boosting.audit().conformance == "holds"


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40])
def test_early_stopping_does_not_depend_on_the_unit_of_targets(unit: float) -> None:
    draws = np.random.default_rng(2)
    X = draws.random((300, 3))
    y = X[:, 0] + draws.normal(0.0, 0.3, 300)
    # Few bins: more than 256 would take kernels of their own.
    first = OnlineGradientBoostingRegressor(early_stopping=True, tol=1e-3, max_bins=64).fit(X, y)
    other = OnlineGradientBoostingRegressor(early_stopping=True, tol=1e-3, max_bins=64).fit(X, y * unit)
    assert 1 < first.n_iter_ < 100
    assert other.n_iter_ == first.n_iter_
    np.testing.assert_array_equal(other.predict(X), first.predict(X) * unit)


def test_equal_targets_have_a_scale_of_their_own() -> None:
    """The mean of three times 0.1 is not 0.1: rounding is no distance that others could be too far by."""
    boosting = OnlineGradientBoostingRegressor(max_iter=2).fit(X[:3], [0.1] * 3)
    assert boosting.predict(X).tolist() == [0.1] * len(X)
    assert boosting.partial_fit(X[:1], [0.2]).audit().ok
    small = OnlineGradientBoostingRegressor(retrain="never").fit(X[:3], [1e-9] * 3)
    assert small.partial_fit(X[:3], [3e-9] * 3).predict(X[:3]) == pytest.approx([2e-9] * 3, rel=0.2)


def test_what_was_given_may_change_afterwards() -> None:
    """A matrix that is taken as it is (float64, nothing to replace) is copied by the shard that keeps its rows."""
    X = np.random.default_rng(0).random((300, 4))
    given = X.copy()
    model = OnlineGradientBoostingClassifier(max_iter=5).fit(given, (X[:, 0] > 0.5).astype(int))
    given[:] = 0.0
    model.forget([0, 1])
    assert model.audit().conformance == "holds"


@given(st.lists(st.floats(-1e200, 1e200)), st.integers(1, 5))
@examples(200)
def test_sums_of_losses_do_not_depend_on_whose_rows_they_are(values: list[float], owners: int) -> None:
    parts = np.concatenate([exact_parts(values[owner::owners]) for owner in range(owners)])
    assert math.fsum(parts) == math.fsum(values)
    assert len(exact_parts(np.round(np.array(values) % 1, 3).tolist())) <= 2
