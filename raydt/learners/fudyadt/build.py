"""BUILD (Algorithm 2) in one process: code or sort each column once, then scan and partition down the levels.

Not here: the same BUILD spread over shards, one round per level (``build_sharded``); both use ``split_search``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.arrays.memory import empty
from raydt.learners.fudyadt.histograms import (
    COUNTED,
    MOST_VALUES,
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
from raydt.learners.fudyadt.split_search import is_constant, mark_sides, partition, scan_column, sum_left
from raydt.trees.counted_tree import start_children, start_node, stays_leaf
from raydt.trees.records import link, split_node, threshold_between


class BuildScratch(NamedTuple):
    """Working memory of one BUILD of up to n rows; the last line of ``E`` lists the rows of each open node."""

    E: npt.NDArray[np.int64]
    spare: npt.NDArray[np.int64]
    side: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    stack: npt.NDArray[np.int64]
    digits: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    histograms: Histograms
    numbers: npt.NDArray[np.int32]


def new_scratch(rows: int, columns: int, classes: int) -> BuildScratch:
    """Scratch for ``rows`` rows; with one class, that of numeric labels, no column is counted."""
    return BuildScratch(
        empty((columns + 1, rows), dtype=np.int64),
        empty(rows, dtype=np.int64),
        empty(rows, dtype=np.uint8),
        empty(rows, dtype=np.int32),
        empty(rows, dtype=np.int32),
        empty((rows + 2, 4), dtype=np.int64),
        empty(DIGITS, dtype=np.int64),
        empty(classes, dtype=np.int64),
        new_histograms(rows, columns, classes, MOST_VALUES if classes > 1 else 0),
        empty(rows if classes == 1 else 0, dtype=np.int32),
    )


#: The numbers of a BUILD whose labels are classes.
NO_NUMBERS = np.empty(0, dtype=np.int32)


class Listing(NamedTuple):
    """Rows to build a subtree from."""

    X: npt.NDArray[np.float64]  #: Shape (any, d).
    categorical: npt.NDArray[np.bool_]  #: Shape (d,).
    #: ``rows``, ``slots``, ``labels``: Shape (n,): row of ``X``, slot and class of each of them.
    rows: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    #: Shape (n,): of numeric labels, which are all of class 0: the labels in units.
    numbers: npt.NDArray[np.int32] = NO_NUMBERS


@inner_kernel
def push(stack: Any, top: int, node: int, first: int, stop: int, histogram: int) -> int:
    """Put an open node on the stack and return its new height."""
    stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = node, first, stop, histogram
    return top + 1


@kernel
def build(tree: Any, members: Any, root: int, listing: Any, rules: Any, stamp: int, scratch: Any) -> None:
    """Build the subtree at leaf ``root`` from the rows of a ``Listing``.

    ``tree.counts[root]`` holds the class counts of the rows, ``tree.sums[root]`` the sums of numeric labels, and the
    tree has room for the nodes. O(n d (log n + depth)) for sorting codes of fixed width once and one pass per level;
    O(n d log n) for the columns of few values, which are counted (``histograms``), and a pass over the rows alone per
    level.
    """
    slots, categorical = listing.slots, listing.categorical
    start_node(tree, root, stamp, rules)
    if stays_leaf(tree, root, rules):
        for slot in slots:
            link(tree, members, root, slot)
        return
    E, side, stack, H = scratch.E, scratch.side, scratch.stack, scratch.histograms
    d = len(E) - 1
    K = tree.counts.shape[1]
    label_bits = label_bits_of(K)
    histogram = _fill_columns(listing, scratch, label_bits, K)
    top = push(stack, np.int64(0), np.int64(root), np.int64(0), np.int64(len(slots)), histogram)
    while top:
        top -= 1
        node, first, stop, histogram = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        size = stop - first
        listed = E[d if histogram >= 0 else 0, first:stop]  # the node's rows, in any order
        feature, at = _best_split(tree, node, listing, scratch, first, stop, histogram, label_bits)
        if feature < 0:  # nothing separates the rows
            for i in range(size):
                link(tree, members, node, slots[(listed[i] & 0xFFFFFFFF) >> label_bits])
            continue
        threshold, n_left = _divide_rows(listing, scratch, first, stop, histogram, label_bits, feature, at)
        left, right = split_node(tree, node, feature, threshold)
        for k in range(K):
            tree.counts[left, k] = scratch.left[k]
            tree.counts[right, k] = tree.counts[node, k] - scratch.left[k]
        if K == 1:
            q, squares = sum_left(listed, label_bits, side, listing.numbers)
            tree.sums[left, 0], tree.sums[left, 1] = q, squares
            tree.sums[right, 0], tree.sums[right, 1] = tree.sums[node, 0] - q, tree.sums[node, 1] - squares
        start_children(tree, node, stamp, rules)
        left_open = not stays_leaf(tree, left, rules)
        right_open = not stays_leaf(tree, right, rules)
        if not (left_open and right_open):
            for i in range(size):
                row = (listed[i] & 0xFFFFFFFF) >> label_bits
                if side[row]:
                    if not right_open:
                        link(tree, members, right, slots[row])
                elif not left_open:
                    link(tree, members, left, slots[row])
        if not (left_open or right_open):
            continue
        of_left = of_right = np.int64(-1)
        if histogram >= 0:
            of_left, of_right = divide(H, histogram, listed, label_bits, K, side, n_left, left_open, right_open)
        in_order = feature if left_open and not categorical[feature] else -1
        _partition_columns(scratch, first, stop, histogram, label_bits, in_order, left_open, right_open)
        middle = first + n_left if left_open else first
        end = middle + size - n_left
        if histogram >= 0 and left_open and of_left < 0:
            to_elements(H, E, first, n_left, label_bits, scratch.digits)
        if histogram >= 0 and right_open and of_right < 0:
            to_elements(H, E, middle, size - n_left, label_bits, scratch.digits)
        # The later histogram belongs on top.
        if left_open and of_left < of_right:
            top = push(stack, top, left, first, first + n_left, of_left)
        if right_open:
            top = push(stack, top, right, middle, end, of_right)
        if left_open and of_left >= of_right:
            top = push(stack, top, left, first, first + n_left, of_left)


@inlined_kernel
def _fill_columns(listing: Any, scratch: Any, label_bits: int, K: int) -> int:
    """Code or sort every column; the number of the root's histogram, -1 if all columns are sorted."""
    E, H, side = scratch.E, scratch.histograms, scratch.side
    n, d, labels = len(listing.slots), len(E) - 1, listing.labels
    fill_codes(listing.X, listing.rows, n, E[:d])
    encode(H, E, n, K)
    for j in range(d):
        if not H.width[j]:
            sort_column(E[j, :n], j, labels, label_bits, listing.X, listing.rows, scratch.spare, scratch.digits)
    histogram: int = np.int64(0 if H.reg[COUNTED] else -1)
    if histogram < 0:
        return histogram
    for i in range(n):
        E[d, i] = (i << label_bits) | labels[i]
        side[i] = 0
    count_side(H, histogram, E[d, :n], label_bits, K, side, np.int64(0))
    return histogram


@inlined_kernel
def _best_split(
    tree: Any, node: int, listing: Any, scratch: Any, first: int, stop: int, histogram: int, label_bits: int
) -> tuple[int, int]:
    """Feature of a node's best split (-1: none), and the element or code that ends its left side."""
    E, H, counts, left, categorical = scratch.E, scratch.histograms, tree.counts, scratch.left, listing.categorical
    perfect = np.inf
    if len(left) == 2:
        perfect = 2.0 * np.float64(counts[node, 0]) * np.float64(counts[node, 1])
    best = -1.0
    feature, at = -1, -1
    for j in range(len(E) - 1):
        if histogram >= 0 and H.width[j]:
            score, here = best_value(H, j, histogram, stop - first, categorical[j], counts, node, left, best)
        else:
            S, category, numbers = E[j, first:stop], categorical[j], listing.numbers
            score, here = scan_column(
                S, category, counts, tree.sums, node, numbers, left, label_bits, best, scratch.spare
            )
        if here >= 0:
            best, feature, at = score, j, here
            if best >= perfect:  # both sides pure: no later feature can do better
                break
    return feature, at


@inlined_kernel
def _divide_rows(
    listing: Any, scratch: Any, first: int, stop: int, histogram: int, label_bits: int, feature: int, at: int
) -> tuple[float, int]:
    """Threshold of a split and the number of rows on its left; marks their sides and counts the left."""
    E, H, side, left = scratch.E, scratch.histograms, scratch.side, scratch.left
    category = listing.categorical[feature]
    if histogram >= 0 and H.width[feature]:
        listed = E[len(E) - 1, first:stop]
        threshold = value_at(H, feature, histogram, at, category, len(left))
        return threshold, mark_rows(H, feature, threshold, category, listed, label_bits, side, left)
    S = E[feature, first:stop]
    threshold = listing.X[listing.rows[(S[at] & 0xFFFFFFFF) >> label_bits], feature]
    if not category:
        after = listing.X[listing.rows[(S[at + 1] & 0xFFFFFFFF) >> label_bits], feature]
        threshold = threshold_between(threshold, after)
    return threshold, mark_sides(S, at, category, label_bits, side, left)


@inlined_kernel
def _partition_columns(
    scratch: Any, first: int, stop: int, histogram: int, label_bits: int, in_order: int, left: bool, right: bool
) -> None:
    """Partition the sorted columns but that ``in_order`` and, where columns are counted, the list of the rows.

    ``left`` and ``right`` tell which children stay open.
    """
    E, H = scratch.E, scratch.histograms
    d, counted = len(E) - 1, histogram >= 0
    for j in range(d + counted):
        if j == in_order or (counted and j < d and H.width[j]):
            continue
        S = E[j, first:stop]
        if 0 < j < d and is_constant(S):  # and stays so; column 0 always lists the rows
            continue
        partition(S, label_bits, scratch.side, scratch.spare, left, right)
