"""Forests of another learner's trees: settings, predictions, saving, and what the audit finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from raydt import ExactForestClassifier, load_model
from raydt.examples.history import history_of_live
from raydt.learners import learners

LEARNER = learners()["forest"]
SMALL: dict[str, Any] = {
    "trees": "fudyadt",
    "tree_options": {"alpha": 0.01, "beta": 0.05},
    "n_estimators": 8,
    "sample_share": 0.5,
    "max_features": 2,
    "max_depth": 8,
}


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three classes."""
    draws = np.random.default_rng(0)
    X = np.round(draws.normal(size=(n, 5)), 2)
    return X, (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int) + (X[:, 3] > 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trees": "cart"}, "trees must be exact or fudyadt, not 'cart'"),
        ({"trees": "gbdt"}, "trees must be exact or fudyadt, not 'gbdt'"),
        ({"trees": "fudyadt", "criterion": "squared_error"}, "trees: fudyadt takes classes only"),
        ({"trees": "fudyadt", "rebuild": "lazy"}, "rebuild: lazy applies only to trees: exact"),
        ({"tree_options": {"alpha": 0.1}}, "tree_options apply only to the trees of another learner"),
        ({"trees": "fudyadt", "tree_options": {"max_depth": 3}}, "are alpha, beta, epsilon, schedule, not max_depth"),
        ({"trees": "fudyadt", "tree_options": {"alpha": 2}}, "alpha"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LEARNER.Options(**given)


def test_the_promise_is_that_of_the_trees() -> None:
    assert LEARNER.Options(trees="fudyadt").promise().promised
    by_schedule = LEARNER.Options(trees="fudyadt", tree_options={"epsilon": 0.5}).promise()
    assert not by_schedule.promised
    assert by_schedule.reason.startswith("of every tree, within the features that its nodes draw: epsilon 0.5")


def test_a_forest_learns_forgets_and_is_saved(tmp_path: Path) -> None:
    X, y = rows(900)
    forest = ExactForestClassifier(**SMALL).fit(X[:600], y[:600])
    forest.partial_fit(X[600:800], y[600:800], ids=np.arange(600, 800))
    assert forest.forget(range(100)).active == 700
    assert forest.score(X[800:], y[800:]) > 0.7
    shares = forest.predict_proba(X[800:])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(forest.classes_[shares.argmax(axis=1)], forest.predict(X[800:]))
    report = forest.audit()
    assert report.ok, report.failures
    assert 0 < report.worst["out_of_sample_error"] < 0.4
    forest.save(tmp_path / "model", with_examples=True)
    again = load_model(tmp_path / "model")
    assert again.digest() == forest.digest()
    assert again.forget(range(100, 150)).active == 650
    forest.forget(range(100, 150))
    assert again.digest() == forest.digest()


def test_a_state_whose_leaves_do_not_count_their_rows_is_refused() -> None:
    X, y = rows(400)
    forest = ExactForestClassifier(**SMALL).fit(X, y)
    state, groups = forest.session_.state()
    features = forest.session_.coordinator.features  # type: ignore[attr-defined]
    options = LEARNER.Options(**SMALL)
    LEARNER.check(options, features, 3, state, groups)
    stops = np.cumsum(state["tree_nodes"])
    feature = state["feature"]
    both = next(at for at in np.flatnonzero(feature >= 0) if feature[at + 1] < 0 and feature[at + 2] < 0)
    assert both + 2 < stops[np.searchsorted(stops, both, side="right")]
    totals = state["totals"].copy()
    column = int(totals[both + 1].argmax())
    totals[both + 1, column] -= 1
    totals[both + 2, column] += 1
    with pytest.raises(ValueError, match=r"'totals' has a leaf that does not count the rows in it"):
        LEARNER.check(options, features, 3, {**state, "totals": totals}, groups)
    with pytest.raises(ValueError, match=r"'totals' has a leaf that does not count the rows in it"):
        LEARNER.check(LEARNER.Options(**{**SMALL, "random_state": 1}), features, 3, state, groups)


def test_the_audit_finds_a_split_on_a_feature_that_the_node_does_not_draw() -> None:
    X, y = rows(400)
    forest = ExactForestClassifier(**SMALL).fit(X, y)
    session = forest.session_
    state, groups = session.state()
    features = session.coordinator.features  # type: ignore[attr-defined]
    options = LEARNER.Options(**{**SMALL, "max_features": 1})
    report = LEARNER.audit(options, features, state, history_of_live(state, groups, features), groups)
    assert report.conformance == "violated"
    assert any("a split on a feature that is not drawn" in failure for failure in report.failures)


def test_the_audit_finds_an_example_in_a_tree_that_is_not_its_own() -> None:
    X, y = rows(400)
    forest = ExactForestClassifier(**SMALL).fit(X, y)
    session = forest.session_
    state, groups = session.state()
    features = session.coordinator.features  # type: ignore[attr-defined]
    options = LEARNER.Options(**{**SMALL, "random_state": 1})
    report = LEARNER.audit(options, features, state, history_of_live(state, groups, features), groups)
    assert report.conformance == "violated"
    assert any("class counts differ" in failure for failure in report.failures)
