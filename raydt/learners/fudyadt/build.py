"""BUILD (Algorithm 2) in one process: code or sort each column once, then scan and partition down the levels.

Not here: the same BUILD spread over shards, one round per level (``levels``); both use ``split_search``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.memory import empty
from raydt.learners.fudyadt.histograms import (
    COUNTED,
    Histograms,
    best_value,
    count_side,
    divide,
    encode,
    mark_rows,
    new_histograms,
    to_elements,
    value_at,
)
from raydt.learners.fudyadt.presort import DIGITS, fill_codes, label_bits_of, sort_column
from raydt.learners.fudyadt.split_search import is_constant, mark_sides, partition, scan
from raydt.learners.live_tree import start_node, stays_leaf
from raydt.learners.nodes import link, split_node, threshold_between


class Scratch(NamedTuple):
    """Working memory of one BUILD of up to n rows; the last line of ``E`` lists the rows of each open node."""

    E: npt.NDArray[np.int64]
    spare: npt.NDArray[np.int64]
    side: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    stack: npt.NDArray[np.int64]
    digits: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    histograms: Histograms


def new_scratch(rows: int, columns: int, classes: int) -> Scratch:
    """Scratch for ``rows`` rows."""
    return Scratch(
        empty((columns + 1, rows), dtype=np.int64),
        empty(rows, dtype=np.int64),
        empty(rows, dtype=np.uint8),
        empty(rows, dtype=np.int32),
        empty(rows, dtype=np.int32),
        empty((rows + 2, 4), dtype=np.int64),
        empty(DIGITS, dtype=np.int64),
        empty(classes, dtype=np.int64),
        empty((1, classes), dtype=np.int64),
        new_histograms(rows, columns, classes),
    )


@inner_kernel
def push(stack: Any, top: int, node: int, first: int, stop: int, slot: int) -> int:
    """Put an open node on the stack and return its new height."""
    stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = node, first, stop, slot
    return top + 1


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
    O(n d (log n + depth)) for sorting codes of fixed width once and one pass per level; O(n d log n) for the
    columns of few values, which are counted (``histograms``), and a pass over the rows alone per level.
    """
    start_node(tree, root, stamp, rules)
    if stays_leaf(tree.counts, root, tree.nodes[root].depth, rules):
        for i in range(n):
            link(tree, members, root, slots[i])
        return
    E, spare, side, stack, left = scratch.E, scratch.spare, scratch.side, scratch.stack, scratch.left
    H = scratch.histograms
    d = len(E) - 1
    K = tree.counts.shape[1]
    label_bits = label_bits_of(K)
    fill_codes(X, rows, n, E[:d])
    encode(H, E, n, K)
    for j in range(d):
        if not H.width[j]:
            sort_column(E[j, :n], j, labels, label_bits, X, rows, spare, scratch.digits)
    slot = np.int64(-1)  # of the node's histogram; -1: all columns are sorted
    if H.reg[COUNTED]:
        slot = np.int64(0)
        for i in range(n):
            E[d, i] = (i << label_bits) | labels[i]
            side[i] = 0
        count_side(H, slot, E[d, :n], label_bits, K, side, np.int64(0))

    top = push(stack, np.int64(0), np.int64(root), np.int64(0), n, slot)
    while top:
        top -= 1
        node, first, stop, slot = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        size = stop - first
        counted = slot >= 0
        listed = E[d if counted else 0, first:stop]  # the node's rows, in any order
        perfect = np.inf
        if K == 2:
            perfect = 2.0 * np.float64(tree.counts[node, 0]) * np.float64(tree.counts[node, 1])
        best = -1.0
        feature = -1
        at = -1
        for j in range(d):
            if counted and H.width[j]:
                score, here = best_value(H, j, slot, size, categorical[j], tree.counts, node, left, best)
            else:
                score, here = scan(E, j, first, size, categorical[j], tree.counts, node, left, label_bits, best, spare)
            if here >= 0:
                best, feature, at = score, j, here
                if best >= perfect:  # both sides pure: no later feature can do better
                    break
        if feature < 0:  # nothing separates the rows
            for i in range(size):
                link(tree, members, node, slots[(listed[i] & 0xFFFFFFFF) >> label_bits])
            continue
        if counted and H.width[feature]:
            threshold = value_at(H, feature, slot, at, categorical[feature], K)
            n_left = mark_rows(H, feature, threshold, categorical[feature], listed, label_bits, side, left)
        else:
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
                row = (listed[i] & 0xFFFFFFFF) >> label_bits
                if side[row]:
                    if not keep_right:
                        link(tree, members, other, slots[row])
                elif not keep_left:
                    link(tree, members, child, slots[row])
        if not (keep_left or keep_right):
            continue
        left_slot = right_slot = np.int64(-1)
        if counted:
            left_slot, right_slot = divide(H, slot, listed, label_bits, K, side, n_left, keep_left, keep_right)
        for j in range(d + counted):
            if counted and j < d and H.width[j]:
                continue
            if 0 < j < d and is_constant(E, j, first, size):  # and stays so; column 0 always lists the rows
                continue
            if j != feature or categorical[j] or not keep_left:
                partition(E, j, first, size, label_bits, side, spare, keep_left, keep_right)
        middle = first + n_left if keep_left else first
        if counted and keep_left and left_slot < 0:
            to_elements(H, E, first, n_left, label_bits, scratch.digits)
        if counted and keep_right and right_slot < 0:
            to_elements(H, E, middle, size - n_left, label_bits, scratch.digits)
        for turn in range(2):  # the later histogram belongs on top
            if (turn == 1) == (left_slot >= right_slot):
                if keep_left:
                    top = push(stack, top, child, first, first + n_left, left_slot)
            elif keep_right:
                top = push(stack, top, other, middle, middle + size - n_left, right_slot)
