"""The online GBDT before it has trees, and a state as a predictor: what is predicted follows from the updates alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from raydt.examples.updates import DELETE, INSERT, QUERY, Features, UpdateBatch
from raydt.learners.gbdt.learner import LEARNER
from raydt.learners.gbdt.options import GBDTOptions
from raydt.sessions.session import InProcessSession

FEATURES = Features(("a",), (False,))
#: Kind, id, label.
UPDATES = [
    (INSERT, 0, 1), (QUERY, 0, -1), (DELETE, 0, -1), (INSERT, 1, 0), (QUERY, 0, -1), (INSERT, 2, 1), (DELETE, 1, -1),
    (QUERY, 0, -1),
]  # fmt: skip


def batch_of(start: int, updates: list[Any], warmup: int, dtype: Any = np.int32) -> UpdateBatch:
    op = np.array([kind for kind, *_ in updates], dtype=np.int8)
    rows = [update for update in updates if update[0] != DELETE]
    X = np.array([[float(number)] for _, number, _ in rows]).reshape(-1, 1)
    y = np.array([label for *_, label in rows], dtype=dtype)
    classes = 0 if dtype is np.float64 else 2
    return UpdateBatch(start, op, np.array([n for _, n, _ in updates]), X, y, classes, np.full(len(op), -1), warmup)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_query_sees_what_lives_then_whatever_the_batch_deletes_later(size: int) -> None:
    session = InProcessSession(LEARNER, GBDTOptions(max_iter=2), FEATURES)
    found = []
    for begin in range(0, len(UPDATES), size):
        found += session.apply(batch_of(begin, UPDATES[begin : begin + size], 100)).predictions.tolist()
    assert found == [-1, 1, -1, -1, 0, -1, -1, 1]


def test_a_query_whose_label_is_far_is_predicted() -> None:
    options = GBDTOptions(max_iter=2, objective="squared_error", update_every=5)
    session = InProcessSession(LEARNER, options, FEATURES)
    session.apply(batch_of(0, [(INSERT, i, float(i)) for i in range(10)], 10, np.float64))
    result = session.apply(batch_of(10, [(QUERY, 0, 1e9)], 10, np.float64))
    assert not result.refused
    assert np.isfinite(result.predictions).all()
