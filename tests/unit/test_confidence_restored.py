"""A restored confidence tree holds nothing but what its state says, however many nodes it has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from raydt.batches.binning import Bins
from raydt.examples.features import Features
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.learners.confidence_tree.dynamic_tree import LiveConfidenceTree
from raydt.learners.confidence_tree.learner import LEARNER
from raydt.learners.confidence_tree.model import SplitRecord, live_tree, splits_as_arrays
from raydt.learners.confidence_tree.tree import new_tree
from raydt.sessions.session import InProcessSession
from tests.unit.confidence_cases import Case, case

#: More nodes than a new tree has room for.
NODES = 101


@pytest.fixture
def _memory_that_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not set holds what some earlier array has left there."""

    def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
        dims = shape if isinstance(shape, tuple) else (shape,)
        size = math.prod(dims) * np.dtype(dtype).itemsize
        return np.frombuffer(bytearray(b"\x05" * size), dtype=dtype).reshape(dims)

    monkeypatch.setattr("raydt.arrays.memory.empty", empty)


def chain() -> dict[str, Any]:
    """Canonical arrays of a tree whose left children are leaves, each with a live example that both were right about.

    The example of leaf i came just after the split above.
    """
    inner = np.arange(NODES) % 2 == 0
    inner[-1] = False
    at, leaves = np.arange(NODES, dtype=np.int32), np.flatnonzero(~inner)
    below = np.array([(leaves >= node).sum() if inner[node] else 1 for node in at], dtype=np.int64)
    counts = np.stack([below, np.zeros_like(below)], axis=1)
    splits = [
        SplitRecord(2 * i + 1, 2, i + 1, 2, -1, -1, 0, 0.0, 0.0, 0.5, 0.0, (1, 1), (1, 0))
        for i in range(int(inner.sum()))
    ]
    return {
        "feature": np.where(inner, 0, -1).astype(np.int32),
        "threshold": np.where(inner, at, 0).astype(np.float64),
        "left": np.where(inner, at + 1, -1).astype(np.int32),
        "right": np.where(inner, at + 2, -1).astype(np.int32),
        "cut": np.where(inner, 0, -1).astype(np.int32),
        "created": at.astype(np.int64) - 1,
        "since": np.where(inner, 0, 1),
        "place": np.where(inner, -1, np.cumsum(~inner) - 1).astype(np.int32),
        "counts": counts,
        "own": np.where(inner[:, None], 0, counts),
        "id": np.arange(len(leaves)),
        "y": np.zeros(len(leaves), dtype=np.int32),
        "born": leaves.astype(np.int64),
        "leaf": leaves.astype(np.int32),
        "was_right": np.full(len(leaves), 3, dtype=np.uint8),
        **{f"bins_{name}": np.zeros(2 if name == "starts" else 1, dtype=np.int64) for name in Bins._fields},
        **splits_as_arrays(splits, 2),
    }


@pytest.mark.usefixtures("_memory_that_was_used")
def test_no_node_has_a_trial_or_a_tally() -> None:
    tree, splits = live_tree(chain())
    assert len(splits) == NODES // 2
    assert len(tree.trials) >= NODES
    assert (tree.trials[:NODES] == new_tree().trials[0]).all()
    assert not tree.fresh[:NODES].any()
    assert not tree.nodes["majority_right"][:NODES].any()
    assert not tree.nodes["naive_right"][:NODES].any()


@pytest.mark.usefixtures("_memory_that_was_used")
def test_a_split_frees_the_site_of_its_leaf_only_and_tallies_are_of_the_live_examples() -> None:
    state = chain()
    live = LiveConfidenceTree(Features(("a",), (False,), 1), 10, drift_period=0, leaf_prediction="adaptive")
    live.restore(state)
    leaf = state["feature"] < 0
    leaves = np.flatnonzero(leaf)
    for name in ("majority_right", "naive_right"):
        assert live.tree.nodes[name][:NODES].tolist() == leaf.astype(int).tolist()
    assert [live.clear(leaves[[0]]).tolist(), live.clear(leaves[1:]).tolist()] == [[0], [*range(1, len(leaves))]]


def digest_of(one: Case, state: dict[str, Any]) -> str:
    session = InProcessSession(LEARNER, one.options, one.features, 2)
    session.restore(state, one.groups)
    return session.digest()


def test_who_was_right_shows_in_the_digest() -> None:
    """Adaptive leaves predict by it: of two trees that differ in nothing else one may predict another class."""
    one = case("gini")
    other = one.state["was_right"].copy()
    other[0] ^= 1
    assert digest_of(one, {**one.state, "was_right": other}) != digest_of(one, one.state)


def test_the_tallies_of_a_leaf_show_in_the_digest() -> None:
    """A row in another leaf: nothing that the digest has of rows is another, but a leaf lacks its part."""
    one = case("gini")
    state, leaf = one.state, one.state["leaf"].copy()
    tallied = (2 * state["born"] + 1 > state["created"][leaf]) & (state["was_right"] > 0)
    row = int(np.flatnonzero(tallied)[0])
    leaf[row] = next(v for v in np.flatnonzero(state["feature"] < 0) if v != leaf[row])
    assert digest_of(one, {**state, "leaf": leaf}) != digest_of(one, state)


def test_a_digest_of_the_warm_up_is_not_kept_beyond_it() -> None:
    n, features = 200, Features(("a", "b"), (False, False), 2)
    session = InProcessSession(LEARNER, LEARNER.Options(), features, 2)
    X = np.random.default_rng(0).random((n, 2))
    op, key, y = np.full(n, INSERT, dtype=np.int8), np.arange(n), (X[:, 0] > 0.5).astype(np.int32)
    session.apply(UpdateBatch(0, op, key, X, y, 2, np.full(n, -1), 1000))
    session.digest()
    session.finish()
    again = InProcessSession(LEARNER, LEARNER.Options(), features, 2)
    again.restore(*session.state())
    assert session.digest() == again.digest()
