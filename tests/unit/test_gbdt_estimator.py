"""OnlineGradientBoostingClassifier and -Regressor: scikit-learn's checks, one batch D' a call, stages, saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from raydt import OnlineGradientBoostingClassifier, OnlineGradientBoostingRegressor, load_model
from raydt.errors import InputError, UpdateError

RNG = np.random.default_rng(11)
X = np.round(RNG.normal(size=(400, 4)), 1)
CLASSES = (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
NUMBERS = 3.0 * X[:, 0] - X[:, 1] ** 2 + 100.0
SMALL: dict[str, Any] = {"max_iter": 12, "max_leaf_nodes": 6, "max_bins": 64}
BOTH = [(OnlineGradientBoostingClassifier, CLASSES), (OnlineGradientBoostingRegressor, NUMBERS)]
each = pytest.mark.parametrize(("make", "y"), BOTH, ids=["classifier", "regressor"])


@each
def test_each_call_is_one_batch(make: Any, y: np.ndarray) -> None:
    model = make(**SMALL).partial_fit(X[:300], y[:300])
    assert model.digest() == make(**SMALL).fit(X[:300], y[:300]).digest()
    model.partial_fit(X[300:], y[300:])
    assert (model.last_update_["inserts"], model.last_update_["deletes"]) == (100, 0)
    receipt = model.forget(model.row_ids_[:40])
    assert (model.last_update_["inserts"], model.last_update_["deletes"]) == (0, 40)
    assert (receipt.active, len(receipt.ids), receipt.digest_after) == (360, 40, model.digest())
    np.testing.assert_array_equal(receipt.deletions["label"], y[300:340])
    assert model.audit().conformance == "holds"


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


@each
def test_saved_models_go_on(make: Any, y: np.ndarray, tmp_path: Path) -> None:
    model = make(**SMALL).fit(X[:300], y[:300])
    model.save(tmp_path / "model")
    model.save(tmp_path / "state", with_examples=True)
    predicts, continues = load_model(tmp_path / "model"), load_model(tmp_path / "state")
    assert type(predicts) is type(continues) is make
    np.testing.assert_array_equal(predicts.predict(X), model.predict(X))
    np.testing.assert_array_equal(predicts.feature_importances_, model.feature_importances_)
    for other in (model, continues):
        other.partial_fit(X[300:], y[300:]).forget(np.arange(20))
    assert continues.digest() == model.digest()
    assert clone(continues).get_params() == {**model.get_params(), "categorical_features": None}


@each
def test_missing_values(make: Any, y: np.ndarray) -> None:
    frame = pd.DataFrame(X, columns=list("abcd")).assign(colour=np.where(X[:, 3] > 0, "red", "blue"))
    frame.loc[::7, "a"] = np.nan
    frame.loc[::5, "colour"] = None
    model = make(**SMALL).fit(frame[:300], y[:300]).partial_fit(frame[300:], y[300:])
    model.forget(model.row_ids_[:10])
    assert model.audit().conformance == "holds"
    nothing = pd.DataFrame({name: [None, None] for name in frame.columns})
    assert len(set(model.predict(nothing).tolist())) == 1
    with pytest.raises(InputError, match=r"row 0, column 'b': .*infinity"):
        model.predict(frame[:1].assign(b=np.inf))


def test_labels_of_a_regression() -> None:
    model = OnlineGradientBoostingRegressor(**SMALL).fit(X, NUMBERS)
    before = model.digest()
    with pytest.raises(InputError, match=r"row 1: .*NaN"):
        model.partial_fit(X[:2], [1.0, np.nan])
    with pytest.raises(InputError, match=r"row 0: .*infinity"):
        model.partial_fit(X[:2], [np.inf, 1.0])
    with pytest.raises(InputError, match=r"row 1: .*text, 'two'"):
        model.partial_fit(X[:2], [1.0, "two"])
    with pytest.raises(UpdateError, match=r"row 1: .*target is more than 32 times"):
        model.partial_fit(X[:2], [1.0, 1e9])
    assert model.digest() == before
    assert OnlineGradientBoostingRegressor(**SMALL).fit(X, NUMBERS.astype(int)).predict(X).dtype == np.float64


def test_early_stopping_makes_fewer_trees() -> None:
    noise = RNG.integers(0, 2, 400)
    model = OnlineGradientBoostingClassifier(early_stopping=True, n_iter_no_change=2, max_bins=64).fit(X, noise)
    assert model.n_iter_ < 100


@pytest.mark.parametrize("estimator", [OnlineGradientBoostingClassifier, OnlineGradientBoostingRegressor])
def test_examples_are_forgotten_by_value(estimator: Any) -> None:
    rng = np.random.default_rng(3)
    X = np.round(rng.normal(size=(60, 3)), 1)
    X[4, 1] = np.nan
    X[7], y = X[4], (np.nan_to_num(X[:, 0]) > 0).astype(int)
    y[7] = y[4]
    by_value, by_id = (estimator(max_iter=3).fit(X, y, ids=np.arange(100, 160)) for _ in range(2))
    receipt = by_value.forget_examples(X[[4, 4, 9]], y[[4, 4, 9]])
    assert receipt.deletions["id"].tolist() == [104, 107, 109]
    by_id.forget([104, 107, 109])
    assert by_value.digest() == by_id.digest()
    with pytest.raises(UpdateError, match="row 0: no live example equals this one"):
        by_value.forget_examples(X[[4]], y[[4]])
    assert by_value.digest() == by_id.digest()


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
    first = OnlineGradientBoostingRegressor(early_stopping=True, tol=1e-3).fit(X, y)
    other = OnlineGradientBoostingRegressor(early_stopping=True, tol=1e-3).fit(X, y * unit)
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
