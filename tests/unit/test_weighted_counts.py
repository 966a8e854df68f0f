"""Weights of the learners that count rows: confidence tree, sparse tree and best split, as estimators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import raydt
from raydt.examples.updates import fixed

DRAW = np.random.default_rng(7)
ONES = DRAW.random((160, 12)) < 0.3
Y = (ONES[:, 0] | ONES[:, 3]) ^ (DRAW.random(160) < 0.1)
W = DRAW.choice((0.5, 1.0, 1.25, 3.0), 160)

MAKERS: dict[str, Callable[..., Any]] = {
    "confidence tree": lambda **given: raydt.ConfidenceTreeClassifier(c=0.001, grace_period=5, n_jobs=1, **given),
    "sparse tree": lambda **given: raydt.SparseDynamicTreeClassifier(beta=0.02, n_jobs=1, **given),
    "best split": lambda **given: raydt.SparseBestSplit(finder="updent", n_jobs=1, **given),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def rows(part: Any) -> Any:
    return sparse.csr_array(ONES[part].astype(np.float64))


@every
def test_a_weighted_model_is_sound_saved_and_restored(make: Callable[..., Any], tmp_path: Path) -> None:
    model = make(class_weight="balanced").fit(rows(slice(100)), Y[:100], W[:100])
    model.partial_fit(rows(slice(100, 160)), Y[100:], sample_weight=W[100:])
    model.forget([3, 50, 120])
    assert model.audit().failures == []
    model.save(tmp_path / "model", with_examples=True)
    again = raydt.load_model(tmp_path / "model")
    for one in (model, again):
        one.forget([30, 130])
    assert again.digest() == model.digest()
    np.testing.assert_array_equal(again.predict_proba(rows(slice(160))), model.predict_proba(rows(slice(160))))


@every
def test_weights_of_one_leave_no_trace(make: Callable[..., Any]) -> None:
    plain = make().fit(rows(slice(160)), Y)
    assert make().fit(rows(slice(160)), Y, np.ones(160)).digest() == plain.digest()
    assert "unit" not in plain.session_.state()[0]


@every
def test_weights_of_classes_multiply_those_of_rows(make: Callable[..., Any]) -> None:
    both = make(class_weight={True: 3.0}).fit(rows(slice(160)), Y, W)
    by_rows = make().fit(rows(slice(160)), Y, fixed(W) / 65536 * np.where(Y, 3.0, 1.0))
    assert both.digest() == by_rows.digest()


@every
def test_all_that_weighs_is_deleted(make: Callable[..., Any]) -> None:
    """Counts stay masses; the rows that remain count one row each."""
    model = make().fit(rows(slice(80)), Y[:80])
    model.partial_fit(rows(slice(80, 160)), Y[80:], sample_weight=W[80:])
    model.forget(range(80, 160))
    state = model.session_.state()[0]
    assert state["unit"][0] == 65536
    assert "weight" not in state
    assert model.audit().failures == []


#: Learners of dense rows that count rows.
DENSE = {"FuDyADT": raydt.FullyDynamicTreeClassifier, "forest": raydt.ExactForestClassifier}


@pytest.mark.parametrize("name", [*MAKERS, *DENSE])
def test_a_restored_model_without_a_weight_takes_rows(name: str, tmp_path: Path) -> None:
    """A state has no weights if all that live are 1, though counts are masses."""
    X = rows(slice(160)) if name in MAKERS else ONES.astype(np.float64)
    model = MAKERS[name]() if name in MAKERS else DENSE[name](n_jobs=1)
    model.fit(X[:80], Y[:80]).partial_fit(X[80:120], Y[80:120], sample_weight=W[80:120])
    model.forget(range(80, 120))
    model.save(tmp_path / "model", with_examples=True)
    again = raydt.load_model(tmp_path / "model")
    for one in (model, again):
        one.partial_fit(X[120:], Y[120:])
        one.forget(range(10))
    assert again.digest() == model.digest()
    assert again.audit().failures == []
