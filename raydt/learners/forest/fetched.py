"""The trees of a forest as the coordinator has fetched them last from the shards.

The trees live with the shards. Only a digest, a model or a checkpoint needs them at the coordinator, which then fetches
those that have changed. After a restore it has them from the state, and gives trees of another learner back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.learners.forest.guests import draws_of, guest_arrays
from raydt.learners.forest.holding import TreeArrays
from raydt.learners.forest.model import Arrays, OneTree, each_tree, trees_of_model
from raydt.learners.forest.options import ForestOptions
from raydt.learners.whole_trees import TreeKind

Ints = npt.NDArray[np.int64]


class FetchedTrees:
    """All trees, by number; without examples at first.

    Parameters
    ----------
    options : ForestOptions
    features : Features

    Attributes
    ----------
    trees : list of OneTree
    stale : bool
        Whether trees of the shards have changed since they were fetched.
    """

    def __init__(self, options: ForestOptions, features: Features) -> None:
        self._guests, self.stale = options.guests(), False
        self.trees: list[OneTree]
        if self._guests is not None:
            self.trees = _planted(self._guests, options, features)
        else:
            self.trees = [_nothing(4 if options.numeric else 2)] * options.n_estimators

    def take(self, replies: list[Any]) -> None:
        """Take the trees that shards have sent, because they have changed. O(their nodes)."""
        for reply in replies:
            nodes, feature, threshold, right, totals = reply["trees"]
            trees = each_tree(TreeArrays(nodes, feature, threshold, right, totals, reply["own"]))
            for number, tree in zip(reply["changed"].tolist(), trees, strict=True):
                self.trees[number] = tree
        self.stale = False

    def restore(self, model: Arrays) -> None:
        """Begin with the trees of a model. O(nodes)."""
        self.trees, self.stale = trees_of_model(model), False

    def past(self, numbers: Ints) -> dict[str, Any]:
        """What a shard needs of its trees after a restore: of exact ones nothing, as they follow from the rows."""
        if self._guests is None:
            return {"numbers": numbers, "trees": (), "own": {}}
        held = [self.trees[number] for number in numbers.tolist()]
        nodes = np.array([len(tree.feature) for tree in held], dtype=np.int64)
        feature, threshold, right, totals = (
            np.concatenate([getattr(self.trees[0], name)[:0], *(getattr(tree, name) for tree in held)])
            for name in ("feature", "threshold", "right", "totals")
        )
        own = {
            name: np.concatenate([np.empty(0, dtype), *(tree.own[name] for tree in held)])
            for name, dtype in self._guests.types.items()
        }
        return {"numbers": numbers, "trees": (nodes, feature, threshold, right, totals), "own": own}


def _nothing(width: int) -> OneTree:
    """An exact tree without examples."""
    leaf = np.full(1, -1, dtype=np.int32)
    return OneTree(leaf, np.zeros(1), leaf.copy(), np.zeros((1, width), np.int64))


def _planted(guests: TreeKind, options: ForestOptions, features: Features) -> list[OneTree]:
    """Trees of another learner without examples."""
    draws = (draws_of(options, len(features), tree) for tree in range(options.n_estimators))
    return each_tree(guest_arrays([guests.plant(features, drawn, 2).arrays() for drawn in draws], guests))
