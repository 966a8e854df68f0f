"""BUILD (Algorithm 2) in one process: sort once, then scan and partition down the levels.

Not here: the same BUILD spread over shards, one round per level (``levels``); both use ``split_search``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.kernel import inner_kernel, kernel
from raydt.learners.fudyadt.live_tree import link, split_node, start_node, stays_leaf
from raydt.learners.fudyadt.presort import DIGITS, label_bits_of, presort
from raydt.learners.fudyadt.split_search import is_constant, mark_sides, partition, scan, threshold_between
from raydt.memory import empty


class Scratch(NamedTuple):
    """Working memory of one BUILD of up to n rows."""

    E: npt.NDArray[np.int64]
    spare: npt.NDArray[np.int64]
    side: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    stack: npt.NDArray[np.int64]
    digits: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def new_scratch(rows: int, columns: int, classes: int) -> Scratch:
    """Scratch for ``rows`` rows."""
    return Scratch(
        empty((columns, rows), dtype=np.int64),
        empty(rows, dtype=np.int64),
        empty(rows, dtype=np.uint8),
        empty(rows, dtype=np.int32),
        empty(rows, dtype=np.int32),
        empty((rows + 2, 3), dtype=np.int64),
        empty(DIGITS, dtype=np.int64),
        empty(classes, dtype=np.int64),
        empty((1, classes), dtype=np.int64),
    )


@inner_kernel
def settle(tree: Any, members: Any, leaf: int, E: Any, first: int, n: int, label_bits: int, slots: Any) -> None:
    """Give a leaf the rows of one segment (of any column)."""
    for i in range(first, first + n):
        link(tree, members, leaf, slots[(E[0, i] & 0xFFFFFFFF) >> label_bits])


@kernel
def build(
    tree: Any,
    members: Any,
    root: int,
    X: Any,
    rows: Any,
    slots: Any,
    labels: Any,
    n: int,
    categorical: Any,
    rules: Any,
    stamp: int,
    scratch: Any,
) -> None:
    """Build the subtree at leaf ``root`` from n rows.

    Parameters
    ----------
    rows, slots, labels : ndarray of int32, shape (>= n,)
        Row of ``X``, slot and class of each of them. ``tree.counts[root]`` holds their class counts, and the
        tree has room for the nodes.

    Notes
    -----
    O(n d (log n + depth)) for sorting codes of fixed width once and one pass per level.
    """
    start_node(tree, root, stamp, rules)
    if stays_leaf(tree.counts, root, tree.nodes[root].depth, rules):
        for i in range(n):
            link(tree, members, root, slots[i])
        return
    E, spare, side, stack, left = scratch.E, scratch.spare, scratch.side, scratch.stack, scratch.left
    d = E.shape[0]
    K = tree.counts.shape[1]
    label_bits = label_bits_of(K)
    presort(X, rows, labels, n, label_bits, E, spare, scratch.digits)

    stack[0, 0], stack[0, 1], stack[0, 2] = root, 0, n
    top = 1
    while top:
        top -= 1
        node, first, stop = stack[top, 0], stack[top, 1], stack[top, 2]
        size = stop - first
        perfect = np.inf
        if K == 2:
            perfect = 2.0 * np.float64(tree.counts[node, 0]) * np.float64(tree.counts[node, 1])
        best = -1.0
        feature = -1
        at = -1
        for j in range(d):
            score, here = scan(E, j, first, size, categorical[j], tree.counts, node, left, label_bits, best, spare)
            if here >= 0:
                best, feature, at = score, j, here
                if best >= perfect:  # both sides pure: no later feature can do better
                    break
        if feature < 0:  # nothing separates the rows
            settle(tree, members, node, E, first, size, label_bits, slots)
            continue
        threshold = X[rows[(E[feature, first + at] & 0xFFFFFFFF) >> label_bits], feature]
        if not categorical[feature]:
            threshold = threshold_between(
                threshold, X[rows[(E[feature, first + at + 1] & 0xFFFFFFFF) >> label_bits], feature]
            )
        n_left = mark_sides(E, feature, first, size, at, categorical[feature], label_bits, side, left)
        child, other = split_node(tree, node, feature, threshold)
        for k in range(K):
            tree.counts[child, k] = left[k]
            tree.counts[other, k] = tree.counts[node, k] - left[k]
        start_node(tree, child, stamp, rules)
        start_node(tree, other, stamp, rules)
        keep_left = not stays_leaf(tree.counts, child, tree.nodes[child].depth, rules)
        keep_right = not stays_leaf(tree.counts, other, tree.nodes[other].depth, rules)
        if not (keep_left and keep_right):
            for i in range(size):
                row = (E[feature, first + i] & 0xFFFFFFFF) >> label_bits
                if side[row]:
                    if not keep_right:
                        link(tree, members, other, slots[row])
                elif not keep_left:
                    link(tree, members, child, slots[row])
        if not (keep_left or keep_right):
            continue
        for j in range(d):
            if j > 0 and is_constant(E, j, first, size):  # and stays so: only column 0 must always list the rows
                continue
            if j != feature or categorical[j] or not keep_left:
                partition(E, j, first, size, label_bits, side, spare, keep_left, keep_right)
        if keep_right:
            begin = first + n_left if keep_left else first
            stack[top, 0], stack[top, 1], stack[top, 2] = other, begin, begin + size - n_left
            top += 1
        if keep_left:
            stack[top, 0], stack[top, 1], stack[top, 2] = child, first, first + n_left
            top += 1
