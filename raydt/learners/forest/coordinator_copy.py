"""The trees of a forest as the coordinator has fetched them last from the shards.

The trees live with the shards. Only a digest, a model or a checkpoint needs them at the coordinator, which then fetches
those that have changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.learners.forest.model import Arrays, OneTree, each_tree, trees_of_model
from raydt.learners.forest.nodes import TreeArrays
from raydt.learners.forest.options import ForestOptions


class FetchedTrees:
    """All trees, by number; without examples at first.

    Attributes
    ----------
    trees : list of OneTree
    stale : bool
        Whether trees of the shards have changed since they were fetched.
    """

    def __init__(self, options: ForestOptions) -> None:
        leaf = np.full(1, -1, dtype=np.int32)
        nothing = OneTree(leaf, np.zeros(1), leaf.copy(), np.zeros((1, 4 if options.numeric else 2), np.int64))
        self.trees: list[OneTree] = [nothing] * options.n_estimators
        self.stale = False

    def take(self, replies: list[Any]) -> None:
        """Take the trees that shards have sent, because they have changed. O(their nodes)."""
        for reply in replies:
            for number, tree in zip(reply["changed"].tolist(), each_tree(TreeArrays(*reply["trees"])), strict=True):
                self.trees[number] = tree
        self.stale = False

    def restore(self, model: Arrays) -> None:
        """Begin with the trees of a model. O(nodes)."""
        self.trees, self.stale = trees_of_model(model), False
