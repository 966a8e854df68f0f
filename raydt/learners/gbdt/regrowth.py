"""The roots of growth: subtrees whose split has failed are collapsed, and leaves that may be split are found."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.learners.gbdt.trees import FREE, LEAF, Trees, next_in_preorder
from raydt.learners.gbdt.window import may_grow


class Roots(NamedTuple):
    """Leaves from which trees grow, tree after tree, in preorder."""

    tree: npt.NDArray[np.int64]  #: ``tree``, ``node``: Shape (roots,).
    node: npt.NDArray[np.int64]
    #: Shape (roots,): its number at the shards if the root was a subtree, -1 if it was a leaf.
    histogram: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]  #: ``begin``, ``end``: Shape (roots,): the rows of each are ``slots[begin:end]``.
    end: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]  #: Shape (rows,).

    @property
    def collapsed(self) -> npt.NDArray[np.bool_]:
        """Which were subtrees."""
        return self.histogram >= 0


@kernel
def collapse_tree(trees: Any, t: int, touched: Any, failed: Any, sigma: float, most: int, mark: Any, roots: Any) -> int:
    """Make leaves of the topmost failed nodes of a tree and list the roots it grows from; returns how many.

    ``touched`` and ``failed`` are by node, and so is ``mark``, which takes the root above each node (-1: none).
    ``roots`` takes node and histogram of each.
    """
    mark[:] = -1
    node = np.int64(0)
    while node >= 0:  # in preorder
        up = np.int64(trees.parent[t, node])
        if up >= 0 and mark[up] >= 0:
            mark[node] = mark[up]
        elif trees.feature[t, node] >= 0 and failed[node]:
            mark[node] = node
        node = next_in_preorder(trees, t, node)
    for node in range(len(mark)):
        if mark[node] < 0:
            continue
        if trees.feature[t, node] == LEAF:
            trees.leaves[t] -= 1
        if mark[node] == node:
            trees.feature[t, node] = LEAF
            trees.tried_h[t, node] = -1
            trees.leaves[t] += 1
        else:
            trees.feature[t, node] = FREE
    n = 0
    node = np.int64(0)
    while node >= 0:
        if trees.feature[t, node] == LEAF:
            collapsed = mark[node] == node
            if collapsed or (trees.leaves[t] < most and touched[node] and may_grow(trees, t, node, sigma)):
                mark[node] = node
                roots[n, 0], roots[n, 1] = node, trees.histogram[t, node]
                trees.histogram[t, node] = -1
                n += 1
        node = next_in_preorder(trees, t, node)
    return n


@kernel
def rows_below(leaf: Any, root: Any, n_roots: int, below: Any, ends: Any, slots: Any) -> int:
    """Slots of the rows below the roots, root after root, into ``slots``, ``ends`` of each; how many there are.

    ``root`` has the root above each leaf, -1 for none; ``below`` is scratch.
    """
    n = 0
    for slot in range(len(leaf)):  # no branch: whether a row is below a root cannot be predicted
        below[n] = slot
        n += root[leaf[slot]] >= 0
    ends[:] = 0
    for i in range(n):
        ends[root[leaf[below[i]]]] += 1
    total = 0
    for r in range(n_roots):
        total, ends[r] = total + ends[r], total
    for i in range(n):
        r = root[leaf[below[i]]]
        slots[ends[r]] = below[i]
        ends[r] += 1
    return n


def collapse(
    trees: Trees,
    which: npt.NDArray[np.int64],
    touched: npt.NDArray[np.uint8],
    failed: npt.NDArray[np.uint8],
    sigma: float,
    most: int,
    leaf: npt.NDArray[Any],
) -> Roots:
    """Collapse the failed subtrees of some trees, and find the roots to grow from. O(capacity) for each tree.

    Parameters
    ----------
    trees : Trees
        Changed in place.
    which : ndarray of int64, shape (w,)
    touched, failed : ndarray of uint8, shape (w, nodes)
    sigma : float
    most : int
        Leaves of a tree, at most.
    leaf : ndarray, shape (trees, capacity)
    """
    nodes, capacity = trees.feature.shape[1], leaf.shape[1]
    below, slots = np.empty(capacity + 1, dtype=np.int32), np.empty(capacity, dtype=np.int32)
    mark, found = np.empty(nodes, dtype=np.int16), np.empty((most, 2), dtype=np.int64)
    tree, node, histogram, counts, parts = [], [], [], [], []
    for i, t in enumerate(which.tolist()):
        n = collapse_tree(trees, t, touched[i], failed[i], sigma, most, mark, found)
        if not n:
            continue
        number = np.full(nodes, -1, dtype=np.int16)
        number[found[:n, 0]] = np.arange(n)
        root = np.full(np.iinfo(leaf.dtype).max + 1, -1, dtype=np.int16)  # by leaf; of absent rows too
        root[:nodes] = np.where(mark >= 0, number[mark], -1)
        ends = np.empty(n, dtype=np.int64)
        rows = rows_below(leaf[t], root, n, below, ends, slots)
        tree.append(np.full(n, t))
        node.append(found[:n, 0].copy())
        histogram.append(found[:n, 1].copy())
        counts.append(np.diff(ends, prepend=0))
        parts.append(slots[:rows].copy())
    if not tree:
        none = np.empty(0, dtype=np.int64)
        return Roots(none, none, none, none, none, none.astype(np.int32))
    ends = np.cumsum(np.concatenate(counts))
    return Roots(
        np.concatenate(tree),
        np.concatenate(node),
        np.concatenate(histogram),
        ends - np.concatenate(counts),
        ends,
        np.concatenate(parts),
    )
