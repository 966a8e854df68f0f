"""Confidence trees at the edges of what a shard takes at once, and with options and states that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import raydt.finders.pool as pool_module
import raydt.learners.confidence_tree.shard as shard_module
from raydt.arrays.sparse import SparseRows
from raydt.examples.features import Features
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.learners.confidence_tree.learner import LEARNER
from raydt.sessions.session import InProcessSession


def test_nodes_are_restarted_where_dead_entries_are_freed_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels turn around, so that nodes of a sliding window are restarted while the pool of the shards is swept."""
    monkeypatch.setattr(shard_module, "_TOGETHER", 7)
    monkeypatch.setattr(shard_module, "free_dead", pool_module._sweep)
    n, window, width = 1500, 150, 400
    rng = np.random.default_rng(3)
    ones = [np.unique(np.append(rng.integers(10, width, 12), rng.integers(0, 10, 3))) for _ in range(n)]
    y = np.array([(0 in row) ^ (i // 250 % 2) for i, row in enumerate(ones)], dtype=np.int32)
    steps = [(op, i) for i in range(n) for op in ((INSERT, DELETE) if i >= window else (INSERT,))]
    op = np.array([kind for kind, _ in steps], dtype=np.int8)
    key = np.array([i if kind == INSERT else i - window for kind, i in steps])
    options = LEARNER.Options(drift_period=10, grace_period=10, c=0.03)
    features = Features((), (), 3, sparse=width)
    digests = set()
    for shards in (1, 2):
        session = InProcessSession(LEARNER, options, features, shards)
        lengths = np.array([len(row) for row in ones])
        rows = SparseRows.of_lengths(lengths, np.concatenate(ones).astype(np.int32), width)
        session.apply(UpdateBatch(0, op, key, np.empty((n, 0)), y, 2, np.full(len(op), -1), 30, sparse=rows))
        state, groups = session.state()
        LEARNER.check(options, features, 2, state, groups)
        digests.add(session.digest())
        assert session.statistics()["restarted"] > 2
    assert len(digests) == 1


def of_dense_rows(n_classes: int) -> tuple[Any, Features, InProcessSession]:
    options, features = LEARNER.Options(grace_period=10, c=0.01), Features(("a", "b"), (False, False), 2)
    session = InProcessSession(LEARNER, options, features, 2)
    X = np.random.default_rng(0).random((200, 2))
    y = (X[:, 0] > 0.5).astype(np.int32)
    op, key = np.full(200, INSERT, dtype=np.int8), np.arange(200)
    session.apply(UpdateBatch(0, op, key, X, y, n_classes, np.full(200, -1), 50))
    return options, features, session


def test_counts_in_other_bins_than_those_of_the_rows_are_refused() -> None:
    options, features, session = of_dense_rows(2)
    state, groups = session.state()
    bins = groups[0]["bins"].copy()
    place = int(np.argmax(bins[:, 0, 0]))
    bins[place, [0, 1], 0] += [-1, 1]
    with pytest.raises(ValueError, match="'bins' does not count the rows"):
        LEARNER.check(options, features, 2, state, {**groups, 0: {**groups[0], "bins": bins}})


def test_classes_that_were_announced_only_need_not_be_announced_again() -> None:
    options, features, session = of_dense_rows(9)
    again = InProcessSession(LEARNER, options, features, 2)
    again.restore(*session.state())
    X = np.random.default_rng(1).random((200, 2))
    batch = [np.full(200, INSERT, dtype=np.int8), np.arange(200, 400), X, (X[:, 1] > 0.5).astype(np.int32)]
    for one in (session, again):
        one.apply(UpdateBatch(200, *batch, 9 if one is session else 2, np.full(200, -1), 50))
    assert session.digest() == again.digest()


def test_a_delta_that_leaves_the_numbers_is_refused() -> None:
    with pytest.raises(ValidationError, match="delta"):
        LEARNER.Options(confidence="theorem", delta=1e-300)
