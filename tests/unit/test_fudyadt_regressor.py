"""FuDyADT on numbers: the estimator, the range of the labels, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from pipelines.display import audit_lines
from raydt import FullyDynamicTreeRegressor
from raydt.errors import InputError
from raydt.learners import learners
from raydt.learners.fudyadt import dynamic_tree
from tests.refusals import refused

LEARNER = learners()["fudyadt"]


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.round(10 * (X[:, 0] > 0.5) + 4 * X[:, 1] + 0.3 * rng.normal(size=n), 1)


def options(**given: Any) -> Any:
    return LEARNER.Options(kind="fudyadt", criterion="squared_error", **given)


def test_as_good_as_a_tree_of_the_same_depth() -> None:
    X, y = rows(3000)
    ours = FullyDynamicTreeRegressor(max_depth=6).fit(X[:1000], y[:1000]).partial_fit(X[1000:2000], y[1000:2000])
    ours.forget(ours.row_ids_[:300])
    theirs = DecisionTreeRegressor(max_depth=6, random_state=0).fit(X[:2000], y[:2000])
    assert ours.score(X[2000:], y[2000:]) > theirs.score(X[2000:], y[2000:]) - 0.02
    report = ours.audit()
    assert (report.conformance, report.feasibility, report.failures) == ("holds", "proven", [])
    assert "leaf_variance" in report.worst
    assert "worst leaf variance" in audit_lines(report.as_dict(), None)


def test_labels_beyond_the_range_count_as_its_ends() -> None:
    tree = FullyDynamicTreeRegressor(label_range=(0.0, 8.0)).fit([[0.0], [1.0]], [-100.0, 100.0])
    assert tree.predict([[0.0], [1.0]]).tolist() == [0.0, 8.0]
    tree = FullyDynamicTreeRegressor().fit([[0.0], [1.0]], [1.0, 5.0]).partial_fit([[2.0]], [7.0])
    assert tree.predict([[2.0]]).tolist() == [5.0]
    assert tree.forget_examples([[2.0]], [7.0]).active == 2  # by value they are what they were


def test_an_empty_leaf_predicts_what_the_nearest_node_above_does() -> None:
    X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 7.0, 8.0]
    tree = FullyDynamicTreeRegressor(epsilon=5.0, alpha=0.0, beta=0.0, max_depth=1).fit(X, y)
    tree.forget(tree.row_ids_[2:])
    assert tree.session_.statistics()["leaves"] == 2
    assert tree.predict([[0.0], [3.0]]).tolist() == [0.5, 0.5]
    tree.forget(tree.row_ids_[:2])
    assert tree.predict([[0.0]]).tolist() == [0.0]


def test_defaults_of_alpha_and_beta_depend_on_the_criterion() -> None:
    assert (options().alpha, options().beta) == (0.005, 0.01)
    assert (options(alpha=0.1).alpha, options(alpha=0.1).beta) == (0.1, 0.01)
    assert (LEARNER.Options().alpha, LEARNER.Options().beta) == (0.02, 0.2)
    own = {name: FullyDynamicTreeRegressor().get_params()[name] for name in ("alpha", "beta")}
    assert own == {"alpha": 0.005, "beta": 0.01}


@pytest.mark.parametrize("label_range", [(1.0, 1.0), (2.0, 1.0), (0.0, float("inf")), (float("nan"), 1.0), (0, 1e300)])
def test_a_range_that_is_none_is_refused(label_range: tuple[float, float]) -> None:
    with refused("learners.label_range"):
        options(label_range=label_range)


def test_classes_have_no_range() -> None:
    with refused("learners.class_range"):
        LEARNER.Options(label_range=(0.0, 1.0))


def test_more_examples_than_sums_can_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_tree, "MOST_EXAMPLES", 20)
    X, y = rows(21)
    tree = FullyDynamicTreeRegressor().fit(X[:20], y[:20])
    with refused("learners.examples", InputError, examples=21, most=20):
        tree.partial_fit(X[20:], y[20:])
    assert tree.session_.statistics()["active"] == 20
