"""The exact forest at its limits: large leaves, entries beyond 32 bits, trees that stay with their shards."""

from __future__ import annotations

import numpy as np
import pytest

from raydt.errors import InputError
from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.forest import coordinator
from raydt.learners.forest.model import leaf_votes
from raydt.sessions.session import InProcessSession
from tests.refusals import refused

LEARNER = learners()["forest"]


@pytest.mark.parametrize("rows", [2**23 - 1, 2**23, 9_000_000, 2**31 - 1])
def test_votes_of_large_leaves_are_exact(rows: int) -> None:
    totals = np.array([[rows - 5, 5], [rows, 0]])
    assert leaf_votes(totals, False).tolist() == [[(rows - 5 << 40) // rows, (5 << 40) // rows], [1 << 40, 0]]


def session(**options: object) -> InProcessSession:
    chosen = LEARNER.Options(**{"n_estimators": 1, "sample_share": 1.0, "min_samples_split": 2, **options})
    return InProcessSession(LEARNER, chosen, Features(("x",), (False,), 1), 1)


def test_more_entries_than_are_numbered_are_refused_before_anything_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MOST_ENTRIES", 25)
    forest = session(n_estimators=5)
    X, y = np.arange(5.0)[:, None], np.array([0, 1, 0, 1, 0], dtype=np.int32)
    op = np.full(5, INSERT, dtype=np.int8)
    forest.apply(UpdateBatch(0, op, np.arange(5), X, y, 2, np.full(5, -1)))
    with refused("learners.examples", InputError, examples=6, what="each in 5 trees", most=5):
        forest.apply(UpdateBatch(5, op[:1], np.array([5]), X[:1], y[:1], 2, np.array([-1])))
    assert forest.statistics()["active"] == 5


def test_trees_leave_their_shards_only_when_they_are_wanted() -> None:
    """Bytes of a batch do not grow with the trees; the second digest without an update fetches nothing."""
    options = LEARNER.Options(n_estimators=8, sample_share=1.0, min_samples_split=2)
    forest = InProcessSession(LEARNER, options, Features(("x",), (False,), 1), 4, WorkPlan(shared_store=False))
    draws = np.random.default_rng(0)
    op, none, sent = np.full(50, INSERT, dtype=np.int8), np.full(50, -1), []
    for start in range(0, 500, 50):
        before = forest.statistics()["bytes_exchanged"]
        X, y = draws.random((50, 1)), draws.integers(0, 2, 50).astype(np.int32)
        forest.apply(UpdateBatch(start, op, np.arange(start, start + 50), X, y, 2, none))
        sent.append(forest.statistics()["bytes_exchanged"] - before)
    assert forest.statistics()["nodes"] > 500
    assert max(sent) == min(sent)
    digest, rounds = forest.digest(), forest.statistics()["rounds"]
    assert forest.digest() == digest
    assert forest.statistics()["rounds"] == rounds
    one = InProcessSession(LEARNER, options, Features(("x",), (False,), 1))
    one.restore(*forest.state())
    assert one.digest() == digest
