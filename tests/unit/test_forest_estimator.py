"""The estimators of the exact forest: classes and categories by value, lazy trees, importances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raydt import ExactForestClassifier
from raydt.learners import learners

LEARNER = learners()["forest"]
SMALL = {"n_estimators": 12, "sample_share": 0.5, "max_depth": 8, "min_samples_split": 4}


def data(n: int = 300, seed: int = 0) -> tuple[Any, Any]:
    draws = np.random.default_rng(seed)
    X = np.round(draws.normal(size=(n, 4)), 2)
    X[:, 3] = draws.integers(0, 3, n)
    X[::17, 1] = np.nan
    return X, (X[:, 0] + X[:, 3] > 1).astype(int)


def letters(n: int = 300) -> tuple[Any, Any]:
    X, _ = data(n)
    return X, np.array(["c", "a", "d", "b"])[np.floor(X[:, 0] * 2).astype(int) % 4]


def test_no_order_of_classes_shows() -> None:
    X, y = letters()
    whole = ExactForestClassifier(**SMALL).fit(X, y)
    parts = np.concatenate([np.flatnonzero(y == label) for label in "dbca"])
    other = ExactForestClassifier(**SMALL).fit(X[parts[:1]], y[parts[:1]], ids=parts[:1])
    for part in np.array_split(parts[1:], 9):
        other.partial_fit(X[part], y[part], ids=part)
    assert other.classes_.tolist() != whole.classes_.tolist()
    assert other.digest() == whole.digest()
    assert other.predict(X).tolist() == whole.predict(X).tolist()
    assert other.audit().ok


def test_lazy_trees_are_rebuilt_when_somebody_looks() -> None:
    X, y = data()
    forest = ExactForestClassifier(**SMALL, rebuild="lazy").fit(X, y)
    nodes = forest.session_.statistics()["nodes"]
    forest.forget(np.arange(200), digests=False)
    few = forest.session_.statistics()["nodes"]
    forest.predict(X[:1])
    assert few < nodes
    assert forest.digest() == ExactForestClassifier(**SMALL).fit(X[200:], y[200:], ids=range(200, 300)).digest()


def test_features_that_tell_nothing_are_not_important() -> None:
    X, y = data()
    forest = ExactForestClassifier(**SMALL).fit(X, y)
    shares = forest.feature_importances_
    assert shares.sum() == pytest.approx(1.0)
    assert min(shares[0], shares[3]) > max(shares[1], shares[2])
    assert ExactForestClassifier(**SMALL).fit(X, np.ones(300)).feature_importances_.tolist() == [0.0] * 4


def colours() -> tuple[Any, Any]:
    pd = pytest.importorskip("pandas")
    draws = np.random.default_rng(3)
    words = draws.choice(["red", "green", "blue", "black", "white", None], 200)
    frame = pd.DataFrame({"colour": words, "x": draws.random(200).round(1)})
    return frame, np.isin(words, ["red", "black"]).astype(int)


def test_categories_count_by_value_and_not_by_the_order_of_their_appearance() -> None:
    frame, y = colours()
    forward = ExactForestClassifier(**SMALL).fit(frame, y, ids=np.arange(200))
    backward = ExactForestClassifier(**SMALL).fit(frame[::-1], y[::-1], ids=np.arange(200)[::-1])
    assert forward.digest() == backward.digest()
    assert forward.score(frame, y) > 0.95
    other = type(frame)({"colour": ["violet", None], "x": [0.5, 0.5]})
    assert forward.predict(other).tolist() == backward.predict(other).tolist()
    rare = ExactForestClassifier(**SMALL).fit(frame[10:], y[10:], ids=np.arange(10, 200))
    forward.forget(np.arange(10))
    assert forward.digest() == rare.digest()


def test_codes_instead_of_values_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, y = colours()
    true = type(LEARNER).traits
    monkeypatch.setattr(type(LEARNER), "traits", lambda self, options: with_codes(true(self, options)))
    forward = ExactForestClassifier(**SMALL).fit(frame, y, ids=np.arange(200))
    backward = ExactForestClassifier(**SMALL).fit(frame[::-1], y[::-1], ids=np.arange(200)[::-1])
    assert forward.digest() != backward.digest()


def with_codes(traits: Any) -> Any:
    return replace(traits, reading=replace(traits.reading, by_value=False))
