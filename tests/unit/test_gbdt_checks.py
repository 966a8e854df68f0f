"""A state of the online GBDT from a file whose arrays kernels would follow out of bounds is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from raydt.examples.features import Features
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.learners.gbdt.learner import LEARNER
from raydt.learners.gbdt.options import GBDTOptions
from raydt.sessions.session import InProcessSession

FEATURES = Features(("a", "b"), (False, True))
OPTIONS = GBDTOptions(max_iter=3, max_leaf_nodes=3, update_every=10)
ROWS, WARMUP = 25, 20

Arrays = dict[str, Any]


def state_after(warmup: int) -> tuple[Arrays, dict[int, Arrays]]:
    """Of 25 rows of three classes, of which five wait, or all if the warm-up is longer."""
    x = np.arange(ROWS, dtype=np.float64)
    batch = UpdateBatch(
        0, np.full(ROWS, INSERT, dtype=np.int8), np.arange(ROWS), np.stack([x, x % 4], axis=1),
        (np.arange(ROWS) // 2 % 3).astype(np.int32), 3, np.full(ROWS, -1), warmup,
    )  # fmt: skip
    session = InProcessSession(LEARNER, OPTIONS, FEATURES)
    session.apply(batch)
    state, groups = session.state()
    return {**{name: array.copy() for name, array in state.items()}, "born": np.arange(ROWS)}, groups


def put(name: str, where: Any, value: Any) -> Callable[[Arrays], None]:
    def change(state: Arrays) -> None:
        state[name][where] = value

    return change


def drop_a_tree(state: Arrays) -> None:
    last = int(state["tree_nodes"][-1])
    for name in [name for name in state if name.startswith("node_")]:
        state[name] = state[name][:-last]
    for name in ("leaf", "ledger"):
        state[name] = state[name][:, :-1]
    state["tree_nodes"] = state["tree_nodes"][:-1]


CASES: dict[str, tuple[int, Callable[[Arrays], None], str]] = {
    "a row of no model": (ROWS + 1, put("pending", 3, 0), "'pending' has a row in a model"),
    "a row that goes from no model": (ROWS + 1, put("pending", 3, 2), "'pending' has a row in a model"),
    "a leaf of a row that waits": (WARMUP, put("leaf", (-1, 0), 0), "'leaf' names a node of a row that waits"),
    "a row without leaf": (WARMUP, put("pending", -1, 0), "'leaf' names a node that is not there"),
    "an inner node": (WARMUP, put("leaf", (0, 0), 0), "'leaf' names a node that is not a leaf"),
    "an exponent": (WARMUP, put("exponent", 0, 1100), "'exponent' is beyond that of any target"),
    "a tree less": (WARMUP, drop_a_tree, "'tree_nodes' has an iteration that is not complete"),
}


@pytest.mark.parametrize(("warmup", "change", "message"), CASES.values(), ids=CASES)
def test_a_state_that_cannot_be_is_refused(warmup: int, change: Callable[[Arrays], None], message: str) -> None:
    state, groups = state_after(warmup)
    LEARNER.check(OPTIONS, FEATURES, 3, state, groups)
    change(state)
    with pytest.raises(ValueError, match=message):
        LEARNER.check(OPTIONS, FEATURES, 3, state, groups)


def test_trees_larger_than_the_options_allow_are_refused() -> None:
    state, groups = state_after(WARMUP)
    smaller = OPTIONS.model_copy(update={"max_leaf_nodes": 2})
    with pytest.raises(ValueError, match="'tree_nodes' has a tree of more leaves"):
        LEARNER.check(smaller, FEATURES, 3, state, groups)
