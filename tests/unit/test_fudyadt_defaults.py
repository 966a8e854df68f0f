"""How well the tree predicts with default arguments, and what smoothing does to its shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from raydt import FullyDynamicTreeClassifier
from raydt.trees.records import smoothed_shares

Rows = npt.NDArray[np.float64]


def rare(n: int, seed: int) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Six numbers, two of which say how likely the rare class is: 6 % of the rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, (rng.random(n) < 1 / (1 + np.exp(4 - 1.5 * X[:, 0] - X[:, 1]))).astype(np.int64)


def auc(y: npt.NDArray[np.int64], scores: npt.NDArray[np.float64]) -> float:
    """Share of the pairs of a row of class 1 and one of class 0 that the scores order; a tie is half a pair."""
    ones, zeros = scores[y == 1][:, None], scores[y == 0][None]
    return float((ones > zeros).mean() + (ones == zeros).mean() / 2)


@pytest.fixture(scope="module")
def trees() -> dict[str, Any]:
    """Trees of the same rare class: with default arguments, and with the defaults of before there was smoothing."""
    X, y = rare(6000, 1)
    earlier = {"alpha": 0.1, "max_depth": None, "smoothing": 0.0}
    return {
        "now": FullyDynamicTreeClassifier().fit(X, y),
        "plain": FullyDynamicTreeClassifier(smoothing=0.0).fit(X, y),
        "earlier": FullyDynamicTreeClassifier(**earlier).fit(X, y),
    }


def test_the_defaults_find_a_rare_class(trees: dict[str, Any]) -> None:
    X, y = rare(3000, 2)
    areas = {name: auc(y, tree.predict_proba(X)[:, 1]) for name, tree in trees.items()}
    assert areas["now"] > areas["plain"] + 0.1
    assert areas["now"] > areas["earlier"] + 0.1
    assert areas["now"] > 0.75


def test_smoothing_changes_predictions_only(trees: dict[str, Any]) -> None:
    assert trees["now"].digest() == trees["plain"].digest()


def test_by_hand() -> None:
    """A root of 6 and 2 rows, a leaf of 4, and two leaves of one class each below: the weight of a parent is 3 d^3."""
    model = {
        "feature": np.array([0, -1, 0, -1, -1], np.int32),
        "left": np.array([1, -1, 3, -1, -1], np.int32),
        "right": np.array([2, -1, 4, -1, -1], np.int32),
        "counts": np.array([[6, 2], [4, 0], [2, 2], [0, 2], [2, 0]]),
    }
    middle = (2 + 3 * 0.75) / (4 + 3)
    first = [0.75, (4 + 3 * 0.75) / (4 + 3), middle, 24 * middle / (2 + 24), (2 + 24 * middle) / (2 + 24)]
    expected = [[share, 1 - share] for share in first]
    np.testing.assert_allclose(smoothed_shares(model, 2, 3000.0), expected, rtol=1e-14)
    assert smoothed_shares(model, 2, 0.0).tolist() == [[0.75, 0.25], [1, 0], [0.5, 0.5], [0, 1], [1, 0]]
    wider = smoothed_shares(model, 3, 3000.0)  # a class that no row has
    np.testing.assert_array_equal(wider[:, :2], smoothed_shares(model, 2, 3000.0))
    assert not wider[:, 2].any()
    model["counts"][:] = 0
    assert smoothed_shares(model, 2, 3000.0).tolist() == [[0.5, 0.5]] * 5
