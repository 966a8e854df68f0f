"""Bounded staleness: what leaves note of their values; scores may move for a while before rows are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt import OnlineGradientBoostingClassifier
from raydt.learners.gbdt.derivatives import Loss
from raydt.learners.gbdt.row_shard import RowShard
from raydt.learners.gbdt.staleness import DRIFT_LIMIT, largest_moves, move, staleness

pytestmark = pytest.mark.timeout(900)

STALE = staleness(0.3, 100, 0, Loss(1, False, 0.0, 1.0))


@given(st.lists(st.floats(-0.002, 0.002), min_size=1, max_size=40))
def test_two_values_of_a_leaf_are_never_farther_apart_than_it_notes(changes: list[float]) -> None:
    above = below = 0
    values = [0.0]
    for change in changes:
        values.append(values[-1] + change)
        above, below = move.py_func(above, below, values[-1] - values[-2], STALE)
        assert above >= (max(values) - values[-1]) * STALE.units - 1e-6
        assert below >= (values[-1] - min(values)) * STALE.units - 1e-6


def test_a_leaf_that_moves_back_notes_it_once() -> None:
    above = below = 0
    for _ in range(50):
        for change in (0.001, -0.001):
            above, below = move.py_func(above, below, change, STALE)
    assert 0.001 * STALE.units <= above + below < 0.001 * STALE.units + 101  # each change is rounded up


def test_rows_below_retrained_subtrees_are_not_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single rows leave; a split stays only while it is the best, so that many trees are trained again."""
    rng = np.random.default_rng(3)
    rows = 1500
    X, y = rng.normal(size=(rows, 4)), rng.integers(0, 3, rows)
    X[:, 0] += 1.5 * y
    shared: dict[str, Any] = {"max_iter": 20, "max_leaf_nodes": 6, "robustness_tolerance": 0.0, "retrain": "never"}
    model = OnlineGradientBoostingClassifier(**shared).fit(X, y)
    found, update = [], RowShard.update

    def counted(self: RowShard, *given: Any) -> Any:
        counts = update(self, *given)
        e = self.ensemble
        assert int(e.drift.max()) + largest_moves(e.trees, e.per) <= DRIFT_LIMIT
        found.append((counts.rows, counts.refreshed, int(e.drift.max())))
        return counts

    monkeypatch.setattr(RowShard, "update", counted)
    for i in range(60):
        model.forget([i], digests=False)
    retrained, compared, drift = np.array(found).T
    assert retrained.sum() > 20 * rows
    assert 0 < compared.sum() < 0.2 * retrained.sum()
    assert drift.max() > 0
    report = model.audit()
    assert (report.conformance, report.feasibility) == ("holds", "proven")


def test_large_batches_compare_whatever_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    others = RowShard._others

    def noted(self: RowShard, *given: Any) -> Any:
        found = yield from others(self, *given)
        seen.append(self.ensemble.most_drift > 0)
        return found

    monkeypatch.setattr(RowShard, "_others", noted)
    rng = np.random.default_rng(4)
    model = OnlineGradientBoostingClassifier(max_iter=5, retrain="never").fit(
        rng.normal(size=(800, 2)), np.arange(800) % 2
    )
    model.forget(np.arange(3), digests=False)
    model.forget(np.arange(3, 7), digests=False)  # of 797
    assert seen == [True, False]
