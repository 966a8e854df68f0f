"""What every estimator does with labels that it cannot hold, and without any examples."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raydt
from raydt import load_model
from raydt.errors import InputError
from raydt.estimators.base import Estimator, Regressor

ESTIMATORS = sorted(
    (
        one
        for one in (getattr(raydt, name) for name in raydt.__all__)
        if inspect.isclass(one) and issubclass(one, Estimator)
    ),
    key=lambda one: one.__name__,
)
REGRESSORS = [one for one in ESTIMATORS if issubclass(one, Regressor)]
SPARSE = {"SparseBestSplit", "SparseDynamicTreeClassifier"}
#: Labels that no learner takes, and the nearest ones that all take.
TOO_LARGE, TOO_SMALL = (1.7976931348623157e308, -1e300, 1.1e140), (5e-324, -1e-300, 9e-141)
ENDS = np.array([1e-140, 1e140, 0.0, -1e140])


def rows(kind: type[Estimator], seed: int) -> tuple[Any, Any]:
    """Rows and labels that need two features."""
    draws = np.random.default_rng(seed)
    x = draws.integers(0, 2, (80, 4))
    y = x[:, 0] ^ x[:, 1]
    if kind.__name__ in SPARSE:
        return [np.flatnonzero(row).tolist() for row in x], y
    X = x + draws.random(x.shape)
    return X, y * draws.normal(5.0, 1.0, 80) if issubclass(kind, Regressor) else y


@pytest.mark.parametrize("kind", REGRESSORS, ids=lambda kind: kind.__name__)
def test_a_label_out_of_range_is_refused_before_anything_is_applied(kind: Any) -> None:
    X, y = rows(kind, 1)
    models = [kind().fit(X, first) for first in (y, np.zeros(80))]
    before = [model.digest() for model in models]
    for label in (*TOO_LARGE, *TOO_SMALL):
        bad = np.array([*y[:3], label, *y[4:10]])
        calls = [lambda bad=bad: kind().fit(X[:10], bad)]
        for model in models:
            calls.append(lambda model=model, bad=bad: model.partial_fit(X[:10], bad))
            calls.append(lambda model=model, bad=bad: model.replace_examples(model.row_ids_[:2], X[:10], bad))
        for call in calls:
            with pytest.raises(InputError, match=r"neither 0 nor from 1e-140 to 1e\+140") as caught:
                call()
            assert caught.value.row == 3, label
            assert [model.digest() for model in models] == before, label
    assert all(model.audit().ok for model in models)


@pytest.mark.parametrize("kind", REGRESSORS, ids=lambda kind: kind.__name__)
def test_the_ends_of_the_range_are_learned(kind: Any) -> None:
    X, y = np.repeat([[0.0], [1.0], [2.0], [3.0]], 40, axis=0), np.repeat(ENDS, 40)
    model = kind().fit(X, y)
    assert model.audit().ok
    assert np.isfinite(model.predict(X)).all()
    assert model.score(X, y) > 0.8
    small = np.repeat([1e-140, 3e-140, 0.0, -2e-140], 40)
    model = kind().fit(X, small)
    assert model.audit().ok
    assert model.score(X, small) > 0.8


def test_beside_an_outlier_and_far_from_zero_small_differences_are_learned() -> None:
    """The forest counts labels by the largest; labels of 1 beside one of 1e7 were 0, and Unix seconds one number."""
    draws = np.random.default_rng(5)
    X = draws.random((400, 2))
    y = np.where(X[:, 0] > 0.5, 1.0, 2.0) + draws.normal(0.0, 0.01, 400)
    forest = raydt.ExactForestRegressor(n_estimators=20, sample_share=0.5).fit(X, y)
    plain, digest = forest.score(X, y), forest.digest()
    assert plain > 0.95
    forest.partial_fit([[5.0, 5.0]], [1e7], ids=[1000])
    assert forest.audit().ok
    assert forest.score(X[X[:, 0] < 0.9], y[X[:, 0] < 0.9]) > 0.95
    assert forest.forget([1000]).digest_after == digest
    moved = raydt.ExactForestRegressor(n_estimators=20, sample_share=0.5).fit(X, y + 1.7e9)
    assert moved.audit().ok
    assert moved.score(X, y + 1.7e9) == pytest.approx(plain, abs=0.01)


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_without_examples_nothing_of_former_ones_is_predicted(kind: Any, tmp_path: Path) -> None:
    found = []
    for seed in range(2):
        X, y = rows(kind, seed)
        model = kind().fit(X, y)
        model.forget(model.row_ids_)
        model.save(tmp_path / f"model {seed}")
        model.save(tmp_path / f"state {seed}", with_examples=True)
        for one in (model, *(load_model(tmp_path / f"{what} {seed}") for what in ("model", "state"))):
            asked = rows(kind, 9)[0]
            found.append(one.predict(asked))
            if issubclass(kind, Regressor):
                assert not found[-1].any()
            else:
                found[-1] = np.column_stack([found[-1], one.predict_proba(asked)])
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
