"""The outline of a fully dynamic tree follows its changes: places, depth and hash are those of the whole tree."""

from __future__ import annotations

import numpy as np
import pytest

from raydt import FullyDynamicTreeClassifier, FullyDynamicTreeRegressor
from raydt.trees.records import preorder
from tests.oracles.digests import node_root

CASES = {
    "scheduled": (FullyDynamicTreeClassifier, {"schedule": "published", "epsilon": 0.3, "alpha": 0.0}),
    "three classes": (FullyDynamicTreeClassifier, {"schedule": "published", "epsilon": 0.0}),
    "certificates": (FullyDynamicTreeClassifier, {"schedule": "certificate"}),
    "numbers": (FullyDynamicTreeRegressor, {"schedule": "published"}),
    "numbers, certificates": (FullyDynamicTreeRegressor, {"schedule": "certificate"}),
}


def values(name: str, rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=n) if "numbers" in name else rng.integers(0, 3 if name == "three classes" else 2, size=n)


@pytest.mark.parametrize("name", CASES)
def test_it_is_that_of_the_whole_tree_after_every_call(name: str) -> None:
    estimator, options = CASES[name]
    rng = np.random.default_rng(7)
    tree = estimator(**options).fit(rng.normal(size=(60, 3)), values(name, rng, 60))
    live = list(range(60))
    for step in range(40):
        if step % 3 and len(live) > 20:
            most = 4 if step % 5 else 20  # nodes side by side change, and along one path
            gone = rng.choice(live, size=min(int(rng.integers(1, most)), len(live) - 10), replace=False).tolist()
            tree.forget(gone, digests=step % 2 == 0)
            live = [one for one in live if one not in gone]
        else:
            n = int(rng.integers(1, 5))
            tree.partial_fit(rng.normal(size=(n, 3)), values(name, rng, n))
            live += tree.row_ids_.tolist()
        coordinator = tree.session_.coordinator
        state, live_tree = tree.session_.state()[0], coordinator.live.tree
        names = ["feature", "threshold", "s", "c"] + (["m0", "gone"] if coordinator.live.rules.certified else [])
        sums = {f"sum {i}": column for i, column in enumerate(state.get("sums", np.empty((0, 0))).T)}
        assert bytes(coordinator._outline.root(live_tree)) == bytes(node_root({**state, **sums}, [*names, *sums])), step
        order, position, deepest = preorder(live_tree)
        assert coordinator._outline.depth == deepest == coordinator.statistics()["depth"]
        assert coordinator._outline.places(live_tree, order).tolist() == position[order].tolist()
