"""What whole numbers make exact: deletion as if it had never been, any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from raydt.examples.updates import DELETE, INSERT, Features, UpdateBatch, history_of_live
from raydt.learners import learners
from raydt.learners.gbdt.audit import audit
from raydt.learners.gbdt.options import GBDTOptions
from raydt.sessions.session import InProcessSession

FEATURES = Features(("a", "b", "c", "d"), (False, False, False, True))
ROWS = 240
OBJECTIVES = ("binary", "multiclass", "squared_error")


class Replay:
    """A session, and calls of its own that are one D' each."""

    def __init__(self, objective: str, **others: Any) -> None:
        small = {
            "max_iter": 5,
            "max_leaf_nodes": 6,
            "max_bins": 16,
            "candidate_fraction": 0.5,
            "update_every": 10**9,
            "retrain": "never",
        }
        self.options = GBDTOptions(**{**small, "objective": objective, **others})
        self.session = InProcessSession(learners()["gbdt"], self.options, FEATURES, 2)
        self.seq = 0

    def send(self, op: Sequence[int], ids: Sequence[int], X: Any = (), y: Any = (), warmup: int = 0) -> None:
        """Updates that wait for more."""
        kind = np.float64 if self.options.regression else np.int32
        batch = UpdateBatch(
            self.seq,
            np.array(op, np.int8),
            np.array(ids, np.int64),
            np.array(X, np.float64).reshape(-1, len(FEATURES)),
            np.array(y, kind),
            0 if self.options.regression else 3,
            np.full(len(op), -1),
            warmup=warmup,
        )
        self.seq += len(op)
        assert not self.session.apply(batch).refused

    def apply(self, *updates: Any, **others: Any) -> int:
        """One D'; returns how many trees it has retrained."""
        before = self.session.statistics()["rebuilds"]
        self.send(*updates, **others)
        self.session.finish()
        return self.session.statistics()["rebuilds"] - before

    def failures(self) -> list[str]:
        """What an audit of the live rows finds."""
        state, groups = self.session.state()
        return audit(self.options, FEATURES, state, history_of_live(state, groups, FEATURES)).failures


def data(objective: str, n: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows with ties, NaN and categories, and labels that follow them."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 4)) * 4) / 4
    X[:, 3] = rng.integers(0, 5, n)
    X[rng.random(n) < 0.1, 1] = np.nan
    score = X[:, 0] + np.where(X[:, 3] == 2, 1.5, 0.0) + 0.5 * np.nan_to_num(X[:, 1]) + 0.3 * rng.normal(size=n)
    if objective == "squared_error":
        return X, score
    return X, np.digitize(score, [0.2] if objective == "binary" else [-0.5, 0.7]).astype(np.int32)


def trained(objective: str, **others: Any) -> tuple[Replay, Any, Any]:
    """A model of the first 240 rows, and rows."""
    X, y = data(objective, 2000)
    replay = Replay(objective, **others)
    replay.apply([INSERT] * ROWS, range(ROWS), X[:ROWS], y[:ROWS], warmup=ROWS)
    return replay, X, y


@pytest.mark.turns(3)
@pytest.mark.parametrize("tolerance", [0.5, 1.0])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_insert_then_delete_restores_the_model(objective: str, tolerance: float) -> None:
    """Unless a tree is retrained, whatever the D' holds besides."""
    replay, X, y = trained(objective, robustness_tolerance=tolerance, derivatives="retrained")
    eligible = 0
    for i in range(ROWS, 2000):
        state, digest = replay.session.state(), replay.session.digest()
        size = 1 + i % 3
        new = [10_000 + i + 3 * n for n in range(size)]
        at = [ROWS + (i * 7 + n) % 1700 for n in range(size)]
        touched = replay.apply([INSERT] * size, new, X[at], y[at])
        assert touched or replay.session.digest() != digest
        touched += replay.apply([DELETE] * size, new)
        if touched:
            replay.session.restore(*state)
        else:
            assert replay.session.digest() == digest
            eligible += 1
        if eligible == 75:
            break
    assert eligible == 75


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_neither_order_nor_grouping_of_deletions_within_one_update_matters(objective: str) -> None:
    rng = np.random.default_rng(2)
    for trial in range(4):
        gone = rng.choice(ROWS, 30, replace=False)
        digests = set()
        for cut in (30, 7, 1):
            replay, _, _ = trained(objective, random_state=trial, update_every=ROWS + 30)
            order = rng.permutation(gone)
            for begin in range(0, 30, cut):
                some = order[begin : begin + cut]
                replay.send([DELETE] * len(some), some)
            replay.session.finish()
            digests.add(replay.session.digest())
        assert len(digests) == 1
