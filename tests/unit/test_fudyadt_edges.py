"""Edges of the coordinator: restore in the middle of a warm-up, refusals before new classes, limits, options."""

from __future__ import annotations

import numpy as np
import pytest

from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.fudyadt.presort import largest_build
from raydt.sessions.session import InProcessSession
from tests.refusals import refused

LEARNER = learners()["fudyadt"]
FEATURES = Features(("a", "b", "c"), (False, False, True))
RNG = np.random.default_rng(8)
X = np.column_stack([RNG.normal(size=(200, 2)), RNG.integers(0, 4, 200)]).astype(np.float64)
Y = ((X[:, 0] > 0) ^ (X[:, 2] == 1)).astype(np.int32)


def session(plan: WorkPlan, shards: int = 2, **options: object) -> InProcessSession:
    return InProcessSession(LEARNER, LEARNER.Options(kind="fudyadt", **options), FEATURES, shards, plan)


def inserts(begin: int, stop: int, warmup: int = 0) -> UpdateBatch:
    n = stop - begin
    op = np.zeros(n, dtype=np.int8)
    return UpdateBatch(begin, op, np.arange(begin, stop), X[begin:stop], Y[begin:stop], 2, np.full(n, -1), warmup)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_class_announced_after_a_refusal_does_not_show(size: int) -> None:
    op = np.array([INSERT, INSERT, INSERT, DELETE, INSERT], dtype=np.int8)
    key, y = np.array([0, 1, 2, 99, 3]), np.array([0, 1, 0, 2], dtype=np.int32)
    run = session(WorkPlan())
    for begin in range(0, 5, size):
        part = slice(begin, min(begin + size, 5))
        rows = slice(int((op[:begin] == INSERT).sum()), int((op[: part.stop] == INSERT).sum()))
        classes = max(2, int(y[: rows.stop].max(initial=0)) + 1)
        row = np.full(part.stop - begin, -1)
        result = run.apply(UpdateBatch(begin, op[part], key[part], X[:4][rows], y[rows], classes, row))
        if result.refused:
            break
    assert run.statistics()["active"] == 3
    assert run.state()[0]["counts"].shape[1] == 2
    expected = session(WorkPlan())
    expected.apply(UpdateBatch(0, op[:3], key[:3], X[:3], y[:3], 2, np.full(3, -1)))
    assert run.digest() == expected.digest()


def test_more_rows_and_classes_than_an_element_holds_are_refused() -> None:
    assert largest_build(2) == 2**31
    classes = 2**26
    assert largest_build(classes) == 64
    run = session(WorkPlan())
    batch = inserts(0, 65)
    huge = UpdateBatch(0, batch.op, batch.id, batch.X, batch.y, classes, batch.row)
    with refused("learners.examples", InputError, examples=65, what="of 67,108,864 classes", most=64):
        run.apply(huge)
    assert run.statistics()["active"] == 0


@pytest.mark.parametrize("epsilon", [-0.1, 1e19, float("inf"), float("nan")])
def test_epsilon_has_to_be_a_sensible_number(epsilon: float) -> None:
    with refused("learners.epsilon", most=1e6):
        LEARNER.Options(kind="fudyadt", epsilon=epsilon)
