"""Confidence trees at the edges of what a shard takes at once, and with options and states that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import raydt.finders.pool as pool_module
import raydt.learners.confidence_tree.shard as shard_module
from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import DELETE, INSERT, Features, UpdateBatch
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


def test_classes_that_were_announced_only_need_not_be_announced_again() -> None:
    options, features, session = of_dense_rows(9)
    again = InProcessSession(LEARNER, options, features, 2)
    again.restore(*session.state())
    X = np.random.default_rng(1).random((200, 2))
    batch = [np.full(200, INSERT, dtype=np.int8), np.arange(200, 400), X, (X[:, 1] > 0.5).astype(np.int32)]
    for one in (session, again):
        one.apply(UpdateBatch(200, *batch, 9 if one is session else 2, np.full(200, -1), 50))
    assert session.digest() == again.digest()


@pytest.mark.parametrize("name", ["was_right", "leaf"])
def test_who_was_right_and_the_tallies_of_a_leaf_show_in_the_digest(name: str) -> None:
    """Adaptive leaves predict by them: of two trees that differ in nothing else one may predict another class.

    A row in another leaf: nothing that the digest has of rows is another, but a leaf lacks its part.
    """
    options, features, session = of_dense_rows(2)
    state, groups = session.state()
    leaf, leaves = state["leaf"], np.flatnonzero(state["feature"] < 0)
    tallied = (2 * state["born"] + 1 > state["created"][leaf]) & (state["was_right"] > 0)
    row = int(np.flatnonzero(tallied)[0])
    other = state[name].copy()
    other[row] = state[name][row] ^ 1 if name == "was_right" else leaves[leaves != leaf[row]][0]
    again = InProcessSession(LEARNER, options, features, 2)
    again.restore({**state, name: other}, groups)
    assert again.digest() != session.digest()
