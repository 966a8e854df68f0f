"""GBDT: what it promises about gains and derivatives that are not renewed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt import OnlineGradientBoostingClassifier, OnlineGradientBoostingRegressor
from raydt.examples.updates import DELETE, INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.gbdt.derivatives import Loss
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.row_shard import RowShard
from raydt.learners.gbdt.split_search import Slack
from raydt.learners.gbdt.staleness import DRIFT_LIMIT, largest_moves, move, staleness
from raydt.sessions.session import InProcessSession

# -- gbdt slack ------------------------------------------------------------------------------------------------------
#
# Splits that surely stay are not judged again: the same model as when every split is judged, alone or with shards.

pytestmark = pytest.mark.timeout(900)

FEATURES = Features(("a", "b", "c"), (False,) * 3)
ROWS, GONE = 600, 60


def batches(seed: int) -> list[UpdateBatch]:
    """Three classes that are nearly parted, so that most derivatives are tiny; then single rows leave and come back."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, ROWS).astype(np.int32)
    X = rng.normal(size=(ROWS, 3))
    X[:, 0] += 4.0 * y
    X[:, 1] -= 3.0 * (y == 1)
    op = [np.full(ROWS, INSERT)] + [np.array([DELETE, INSERT]) for _ in range(GONE)]
    ids = [np.arange(ROWS)] + [np.array([i, ROWS + i]) for i in range(GONE)]
    rows = [np.arange(ROWS)] + [np.array([i]) for i in range(GONE)]
    found, start = [], 0
    for o, i, r in zip(op, ids, rows, strict=True):
        none = np.full(len(o), -1, dtype=np.int64)
        found.append(UpdateBatch(start, o.astype(np.int8), i, X[r], y[r], 3, none, ROWS))
        start += len(o)
    return found


def slack_of(session: InProcessSession) -> Slack:
    local: Any = session.coordinator._trainer.shard
    slack: Slack = local._room[0].slack
    return slack


def judging_all(session: InProcessSession) -> None:
    """Have every split judged in the next batch."""
    trainer: Any = session.coordinator._trainer  # type: ignore[attr-defined]
    if trainer is not None and trainer.shard._room is not None:
        slack_of(session).level[:] = np.inf


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("seed", "changed"),
    [
        (0, {}),
        pytest.param(1, {}, marks=pytest.mark.nightly),
        (2, {"robustness_tolerance": 0.0}),  # only the best candidate stays
        (3, {"robustness_tolerance": 0.4, "candidate_fraction": 0.5}),
        (4, {"l2_regularization": 0.5}),
    ],
)
def test_the_model_is_the_same_if_every_split_is_judged(seed: int, changed: dict[str, Any]) -> None:
    options = GBDTOptions(max_iter=20, max_bins=200, max_leaf_nodes=6, update_every=2, retrain="never", **changed)
    one, all_judged, shards = (
        InProcessSession(learners()["gbdt"], options, FEATURES, shards, plan)
        for shards, plan in ((1, WorkPlan()), (1, WorkPlan()), (2, WorkPlan(0, 0, False)))
    )
    stayed = 0
    for batch in batches(seed):
        judging_all(all_judged)
        for session in (one, all_judged, shards):
            session.apply(batch)
        assert one.digest() == all_judged.digest() == shards.digest()
        if batch.start:
            slack = slack_of(one)
            stayed += int((np.isfinite(slack.level) & (slack.G > 0)).sum())  # a look would have made G 0 again
    assert stayed > 300


@pytest.mark.parametrize("labels", ["classes", "numbers"])
def test_without_l2_every_split_is_judged(labels: str) -> None:
    """Without it the part of a side that has no rows may become as large as it likes; and nothing fails."""
    rng = np.random.default_rng(5)
    X, noise = rng.normal(size=(200, 3)), rng.normal(size=200)
    shared: dict[str, Any] = {"l2_regularization": 0.0, "max_iter": 8, "max_leaf_nodes": 5, "retrain": "never"}
    model: Any
    if labels == "classes":
        model, y = OnlineGradientBoostingClassifier(**shared), (X[:, 0] + noise > 0).astype(int)
    else:
        model, y = OnlineGradientBoostingRegressor(**shared), X[:, 0] + noise
    model.fit(X, y)
    for i in range(40):
        model.forget([i], digests=False)
    assert model.audit().conformance == "holds"


# -- gbdt staleness --------------------------------------------------------------------------------------------------
#
# Bounded staleness: what leaves note of their values; scores may move for a while before rows are compared.

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
