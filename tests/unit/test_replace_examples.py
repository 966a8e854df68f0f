"""``replace_examples`` of every estimator: one batch that deletes and inserts, all of it or nothing."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import raydt
from raydt.errors import InputError
from raydt.estimators.base import Estimator
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.learners import learners
from tests.refusals import refused

PUBLIC = [getattr(raydt, name) for name in raydt.__all__]
ESTIMATORS = [public for public in PUBLIC if inspect.isclass(public) and issubclass(public, Estimator)]
N = 120


def takes_sparse_rows_only(estimator: Any) -> bool:
    options = estimator()._options()
    reading = learners()[estimator.kind].traits(options).reading
    return bool(reading.needs_sparse)


def data(estimator: Any) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (2 * N, 3)).astype(np.float64)
    y = (X[:, 0] + X[:, 1] + (rng.random(2 * N) < 0.1) > 1).astype(np.int64)
    if takes_sparse_rows_only(estimator):
        return csr_matrix(X), y
    return X, y * 1.5 if "Regressor" in estimator.__name__ else y


def fitted(estimator: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    X, y = data(estimator)
    return estimator().fit(X[:N], y[:N], ids=np.arange(N)), X, y


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_it_is_one_batch(estimator: Any) -> None:
    model, X, y = fitted(estimator)
    twin, _, _ = fitted(estimator)
    before = model.digest()
    receipt = model.replace_examples(np.arange(20), X[N : N + 30], y[N : N + 30], new_ids=np.arange(200, 230) * 10)
    assert (receipt.digest_before, receipt.digest_after) == (before, model.digest())
    assert before != model.digest()
    assert receipt.deletions["id"].tolist() == list(range(20))
    assert receipt.inserted.tolist() == model.row_ids_.tolist() == list(range(2000, 2300, 10))
    assert (receipt.active_before, receipt.active) == (N, N + 10)
    assert model.audit().ok
    if takes_sparse_rows_only(estimator):
        return
    op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [20, 30])
    ids = np.concatenate([np.arange(20), np.arange(2000, 2300, 10)])
    targets = y[N : N + 30].astype(np.float64 if y.dtype == np.float64 else np.int32)
    classes = 0 if y.dtype == np.float64 else 2
    batch = UpdateBatch(N, op, ids, X[N : N + 30], targets, classes, np.full(50, -1))
    assert not twin.session_.apply(batch).refused
    twin.session_.finish()
    assert twin.digest() == model.digest()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_an_error_leaves_everything(estimator: Any) -> None:
    model, X, y = fitted(estimator)
    before = model.digest()
    for name, parameters, ids, rows, labels, new_ids in (
        ("refused", {"subject": "id 500"}, [500], 1, 1, None),
        ("repeated_id", {"id": 500}, [3, 3], 2, 2, [500, 500]),
        ("refused", {"subject": "id 5"}, [3], 1, 1, [5]),
        ("other_labels", {"rows": 2, "labels": 1}, [3], 2, 1, None),
        ("other_ids", {"rows": 2, "shape": (1,)}, [3], 2, 2, [500]),
    ):
        with refused(f"estimators.{name}", InputError, **parameters):
            model.replace_examples(ids, X[:rows], y[:labels], new_ids=new_ids)
        assert model.digest() == before


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_an_id_may_come_back(estimator: Any) -> None:
    model, X, y = fitted(estimator)
    receipt = model.replace_examples([3], X[N : N + 1], y[N : N + 1], new_ids=[3], digests=False)
    assert (receipt.digest_before, receipt.active) == (None, N)
    assert model.forget([3]).active == N - 1
