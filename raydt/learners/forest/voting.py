"""The votes of the trees of a shard, and of a saved model (``whole_trees.add_vote``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.nodes import goes_left
from raydt.learners.whole_trees import add_vote


@inner_kernel
def vote(forest: Any, row: Any, examples: Any, numeric: bool, votes: Any) -> None:
    """Add the votes of all trees of a shard for a row. O(trees depth)."""
    nodes, categorical = forest.nodes, examples.categorical
    for tree in range(len(forest.roots)):
        node = np.int64(forest.roots[tree])
        j = nodes[node].feature
        while j >= 0:
            left = goes_left(row[j], nodes[node].threshold, categorical[j])
            node = np.int64(nodes[node].left) if left else np.int64(nodes[node].right)
            j = nodes[node].feature
        add_vote(forest.totals, node, numeric, votes)


@kernel
def vote_of_model(
    starts: Any,
    feature: Any,
    threshold: Any,
    right: Any,
    totals: Any,
    categorical: Any,
    X: Any,
    numeric: bool,
    out: Any,
) -> None:
    """Votes of a saved model for each row of ``X``: trees in preorder from ``starts`` on, the right child by number."""
    for tree in range(len(starts)):
        root = starts[tree]
        for i in range(len(X)):
            node = root
            while feature[node] >= 0:
                j = feature[node]
                if goes_left(X[i, j], threshold[node], categorical[j]):
                    node += 1
                else:
                    node = root + right[node]
            add_vote(totals, node, numeric, out[i])
