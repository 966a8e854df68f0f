"""When a model stays with the coordinator, and what stays the same when it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import SmallModel, most_cells, ones_of, small_stream


def small(kind: str, plan: WorkPlan, sparse: bool = False) -> SmallModel:
    """A model over three dense features."""
    learner = learners()[kind]
    case = next(case for case in learner.cases() if case.dense and case.sparse == sparse)
    options = learner.Options.model_validate({**case.options, "kind": kind})
    most = most_cells(learner.traits(options).divided, plan)
    return SmallModel(learner, options, small_stream(case)[0], most)


@pytest.mark.parametrize(
    ("plan", "rows", "stays"),
    [
        (WorkPlan(90), 29, True),
        (WorkPlan(90), 30, False),
        (WorkPlan(0), 0, False),
        (WorkPlan(10**9, 720), 29, True),
        (WorkPlan(10**9, 720), 30, False),
        (WorkPlan(10**9, 0), 0, False),
    ],
)
def test_limits_of_a_learner_with_large_work(plan: WorkPlan, rows: int, stays: bool) -> None:
    assert small("fudyadt", plan).holds(rows, 0) == stays


def test_a_learner_without_large_work_leaves_only_for_memory() -> None:
    assert small("confidence_tree", WorkPlan(90)).holds(10**9, 0)
    assert not small("confidence_tree", WorkPlan(90, 720)).holds(30, 0)
    assert not small("confidence_tree", WorkPlan(0)).holds(1, 0)


def test_ones_in_sparse_features_count_as_cells() -> None:
    model = small("gbdt", WorkPlan(90, 720))
    assert model.holds(10, 59)
    assert not model.holds(10, 60)


def test_live_rows_and_those_of_the_batch_count() -> None:
    """Of the live rows the ones are estimated by those of all rows."""
    learner = learners()["gbdt"]
    case = next(case for case in learner.cases() if case.dense and case.sparse)
    features, batch = small_stream(case)
    assert batch.sparse is not None
    cells = len(batch.X) * 3 + len(batch.sparse.indices)
    options = learner.Options.model_validate({**case.options, "kind": "gbdt"})
    for limit in (cells, cells + 1):
        model = SmallModel(learner, options, features, limit)
        assert model.holds_with(batch) == (cells < limit)
    model.session.apply(batch)
    later = replace(batch, start=batch.stop)
    assert not model.holds_with(later)


def test_a_restored_model_counts_its_ones() -> None:
    learner = learners()["gbdt"]
    case = next(case for case in learner.cases() if case.dense and case.sparse)
    features, batch = small_stream(case)
    options = learner.Options.model_validate({**case.options, "kind": "gbdt"})
    first, second = (SmallModel(learner, options, features, 10**9) for _ in range(2))
    first.session.apply(batch)
    state, groups = first.session.state()
    assert ones_of(groups) == len(state["id"])  # each row of the stream has one
    second.restore(state, groups)
    assert second.session.digest() == first.session.digest()
    assert np.array_equal(second.session.coordinator.in_order_of_birth(), np.arange(len(state["id"])))
