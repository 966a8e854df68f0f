"""Trees that several shards grow: how many rounds they take, and that what is opened ahead leaves no trace."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from raydt.examples.updates import DELETE, INSERT, Features, UpdateBatch
from raydt.exchange.messages import MET
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.split_search import FIELDS
from raydt.sessions.session import InProcessSession

FEATURES = Features(("a", "b", "c", "d"), (False, False, False, True))


class Told:
    """A session of regressions, each call of which is one D', and the requests that its shards were sent."""

    def __init__(self, shards: int, here: bool = False, **options: Any) -> None:
        small = {"max_bins": 32, "candidate_fraction": 1.0, "update_every": 10**9, "l2_regularization": 0.0}
        fixed = GBDTOptions(**{**small, "objective": "squared_error", **options})
        plan = WorkPlan(0, shared_store=here)  # else the shards do all work
        self.session = InProcessSession(learners()["gbdt"], fixed, FEATURES, shards, plan)
        self.requests: list[tuple[str, Any]] = []
        self._seq = 0
        worker = self.session.shards[0].worker
        handle = worker.handle

        def listen(method: str, payload: Any) -> Any:
            self.requests.append((method, payload))
            return handle(method, payload)

        worker.handle = listen  # type: ignore[method-assign]

    def apply(self, op: int, ids: npt.NDArray[np.int64], X: Any = (), y: Any = (), warmup: int = 0) -> None:
        """Insert or delete rows."""
        n = len(ids)
        rows, targets = np.array(X, np.float64).reshape(-1, len(FEATURES)), np.array(y, np.float64)
        batch = UpdateBatch(
            self._seq, np.full(n, op, np.int8), ids, rows, targets, 0, np.full(n, -1, np.int64), warmup=warmup
        )
        self._seq += n
        assert not self.session.apply(batch).refused
        self.session.finish()

    def train(self, X: Any, y: Any) -> Counter[str]:
        """Train; how many of each request there were."""
        self.apply(INSERT, np.arange(len(X)), X, y, len(X))
        return Counter(method for method, _ in self.requests)

    @property
    def searched(self) -> list[int]:
        """Leaves that the owners searched in each round of the only tree."""
        parts = [payload["parts"][0] for method, payload in self.requests if method == MET]
        return [len(part) for part in parts if np.ndim(part) == 2 and part.shape[1] == FIELDS]

    @property
    def trees(self) -> Any:
        return self.session.coordinator.ensemble.trees  # type: ignore[attr-defined]

    def depth(self, tree: int) -> int:
        """Edges from the root of a tree to its deepest leaf."""
        deepest = 0
        for node in np.flatnonzero(self.trees.feature[tree] == -1):
            depth, up = 0, self.trees.parent[tree, node]
            while up >= 0:
                depth, up = depth + 1, self.trees.parent[tree, up]
            deepest = max(deepest, depth)
        return deepest


def rows_of(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows with ties and categories, and targets that follow them."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 4)) * 4) / 4
    X[:, 3] = rng.integers(0, 5, n)
    return X, X[:, 0] * (X[:, 1] > 0) + np.where(X[:, 3] == 2, 1.5, 0.0) + 0.3 * rng.normal(size=n)


def bits_of(n: int) -> tuple[Any, Any]:
    """A balanced tree of 8 leaves: three features are the digits of the target."""
    target = np.arange(n) % 8
    return np.stack([target >> 2, target >> 1 & 1, target & 1, 0 * target], axis=1), target


def test_a_balanced_tree_takes_as_many_rounds_as_it_is_deep() -> None:
    told = Told(2, max_iter=1, max_leaf_nodes=8)
    asked = told.train(*bits_of(64))
    assert told.trees.leaves[0] == 8
    assert told.depth(0) == 3
    # The root, then the children of one leaf, of two, of three; those of the last split are asked for by nobody.
    assert asked["train"] == 1
    assert told.searched == [1, 2, 4, 6]


def test_a_subtree_grows_again_from_the_split_that_was_found_with_the_rank() -> None:
    told = Told(2, max_iter=1, max_leaf_nodes=8, retrain="never")
    X, target = bits_of(64)
    told.train(X, target)
    told.requests.clear()
    told.apply(DELETE, np.flatnonzero(target >> 2))
    assert told.depth(0) == 2
    # The other two digits are left: nobody meets for the root.
    assert told.searched == [2, 4]


@pytest.mark.parametrize("shards", [2, 3])
@pytest.mark.parametrize("leaves", [4, 12, 30])
def test_no_tree_takes_more_rounds_than_it_is_deep(shards: int, leaves: int) -> None:
    """Where the bound on what is opened ahead is not reached."""
    for seed in range(5):
        told = Told(shards, max_iter=1, max_leaf_nodes=leaves)
        told.train(*rows_of(400, seed))
        assert len(told.searched) <= 1 + told.depth(0)
