"""The exact forest for river: the forest of the other estimator, one example at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from raydt import ExactForestClassifier, RiverForestClassifier
from raydt.errors import UpdateError

SMALL: dict[str, Any] = {"n_estimators": 4, "sample_share": 0.5, "thresholds": 2, "min_samples_split": 2}


def examples(n: int, seed: int = 0) -> tuple[list[dict[str, Any]], list[bool]]:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 9, n), rng.integers(0, 4, n)
    y = ((a > 4) ^ (b == 2) ^ (rng.random(n) < 0.1)).tolist()
    y[0] = False  # the first label seen gets the first code, and so does the smaller one in the other estimator
    return [{"a": i / 2, "b": int(j)} for i, j in zip(a.tolist(), b.tolist(), strict=True)], y


@pytest.mark.parametrize("rebuild", ["eager", "lazy"])
def test_it_is_the_forest_trained_from_nothing_on_what_is_not_forgotten(rebuild: str) -> None:
    xs, ys = examples(120)
    forest = RiverForestClassifier(**SMALL, max_features="all", rebuild=rebuild)
    kept: dict[int, tuple[dict[str, Any], bool]] = {}
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        forest.predict_proba_one(x)
        forest.learn_one(x, y)
        kept[i] = x, y
        if i % 3 == 2:
            wanted = xs[i // 2], ys[i // 2]
            oldest = next((key for key, example in kept.items() if example == wanted), None)
            if oldest is None:
                with pytest.raises(UpdateError):
                    forest.forget_one(*wanted)
            else:
                forest.forget_one(*kept.pop(oldest))
        if i % 20 == 19:
            frame, labels = pd.DataFrame([x for x, _ in kept.values()]), [y for _, y in kept.values()]
            other = ExactForestClassifier(**SMALL, max_features="all").fit(frame, labels, ids=list(kept))
            for row in range(5):
                shares = dict(zip([False, True], other.predict_proba(frame[row : row + 1])[0].tolist(), strict=True))
                assert forest.predict_proba_one(frame.iloc[row].to_dict()) == shares
    assert forest._session is not None
    theirs = other.session_.model()
    assert {k: v.tolist() for k, v in forest._session.model().items()} == {k: v.tolist() for k, v in theirs.items()}
    assert len(theirs["feature"]) > 30


def test_values_may_be_missing() -> None:
    xs, ys = examples(120)
    for i, x in enumerate(xs):
        x |= {"a": (None, float("nan"), np.float32("nan"))[i % 3]} if i % 4 == 1 else {}
        x |= {"b": None} if i % 7 == 0 else {}
    forest = RiverForestClassifier(**SMALL, max_features="all", rebuild="eager")
    for x, y in zip(xs, ys, strict=True):
        forest.learn_one(x, y)
    for x, y in zip(xs[:20], ys[:20], strict=True):
        forest.forget_one(x, y)
    assert forest.audit().feasibility == "proven"
    live = sorted(np.asarray(forest._session.coordinator.store.id)[forest._session.coordinator.in_order_of_birth()])
    frame = pd.DataFrame([xs[i] for i in live], dtype=float)
    other = ExactForestClassifier(**SMALL, max_features="all").fit(frame, [ys[i] for i in live], ids=live)
    assert forest._session.coordinator.digest() == other.session_.coordinator.digest()


def test_categories_may_be_missing() -> None:
    forest = RiverForestClassifier(**SMALL, max_features="all", categorical_features=["b"])
    for i in range(60):
        forest.learn_one({"a": i % 2, "b": (None, "u", "v")[i % 3]}, i % 3 == 0)
    assert [forest.predict_one({"a": 0, "b": b}) for b in (None, float("nan"), "u", "v")] == [True, True, False, False]
    forest.forget_one({"a": 0, "b": float("nan")}, True)
    assert forest.audit().feasibility == "proven"
