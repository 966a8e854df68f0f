"""Where the rows of a counted tree go, also those that lack a number.

Invariant: a row that is learned decides the side of its missing numbers at every split it passes, so that it leaves
the tree by the path on which it came.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.trees.counted_tree import TO_LEFT, TO_RIGHT, UNDECIDED
from raydt.trees.records import goes_left, refine, total


@inner_kernel
def side_of_missing(tree: Any, node: int) -> int:
    """Side of a missing number at a split: where it is not decided, that of more examples, and right if they are as
    many.
    """
    side: int = np.int64(tree.nodes[node].missing)
    if side == UNDECIDED:
        left, right = np.int64(tree.nodes[node].left), np.int64(tree.nodes[node].right)
        side = np.int64(TO_LEFT if total(tree.counts, left) > total(tree.counts, right) else TO_RIGHT)
    return side


@inner_kernel
def passes_left(tree: Any, node: int, value: float, categorical: bool) -> bool:
    """Return True if a value, or a missing one, goes left at a split."""
    if value != value:
        missing: bool = side_of_missing(tree, node) == TO_LEFT
        return missing
    return goes_left(value, tree.nodes[node].threshold, categorical)


@kernel
def route(tree: Any, categorical: Any, X: Any, row: int, learns: bool) -> int:
    """Leaf of one row of ``X``. If it is learned, the sides of its missing numbers are decided from then on."""
    node = 0
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        value = X[row, j]
        if learns and value != value:
            tree.nodes[node].missing = side_of_missing(tree, node)
        left = passes_left(tree, node, value, categorical[j])
        node = tree.nodes[node].left if left else tree.nodes[node].right
    return node


@kernel
def smooth_rows(tree: Any, categorical: Any, X: Any, smoothing: float, shares: Any) -> None:
    """Refine the root's shares, in every row of ``shares``, down to the leaf of that row of ``X``. O(depth K) a row."""
    for row in range(len(X)):
        node = 0
        while tree.nodes[node].feature >= 0:
            j = tree.nodes[node].feature
            left = passes_left(tree, node, X[row, j], categorical[j])
            node = np.int64(tree.nodes[node].left) if left else np.int64(tree.nodes[node].right)
            refine(tree.counts, node, np.int64(tree.nodes[node].depth), smoothing, shares, row, row)
