"""A restored confidence tree holds nothing but what its state says, however many nodes it has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from raydt.examples.features import Features
from raydt.learners.binning import Bins
from raydt.learners.confidence_tree.dynamic_tree import DynamicTree
from raydt.learners.confidence_tree.model import Split, live_tree, splits_as_arrays
from raydt.learners.confidence_tree.tree import new_tree

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
        Split(2 * i + 1, 2, i + 1, 2, -1, -1, 0, 0.0, 0.0, 0.5, 0.0, (1, 1), (1, 0)) for i in range(int(inner.sum()))
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
    live = DynamicTree(Features(("a",), (False,), 1), 10, drift_period=0, leaf_prediction="adaptive")
    live.restore(state)
    leaf = state["feature"] < 0
    for name in ("majority_right", "naive_right"):
        assert live.tree.nodes[name][:NODES].tolist() == leaf.astype(int).tolist()
    assert [live.clear(int(node)) for node in np.flatnonzero(leaf)] == [[i] for i in range(int(leaf.sum()))]
