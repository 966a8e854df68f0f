"""BUILD (Algorithm 2) in one process: code or sort each column once, then scan and partition down the levels.

Not here: its division among threads (``build_divided``), and the same BUILD spread over shards, two meetings per level
(``build_sharded``); all use ``split_search``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel, task_kernel
from raydt.arrays.memory import empty
from raydt.arrays.types import Bools, Floats, Int32s, Ints
from raydt.examples.weights import DTYPE, NO_WEIGHTS, Weights
from raydt.learners.fudyadt.histograms import (
    COUNTED,
    MOST_VALUES,
    Histograms,
    best_value,
    best_value_missing_left,
    choose_counted,
    count_side,
    divide,
    encode_columns,
    has_missing,
    mark_rows,
    most_counted,
    new_histograms,
    to_elements,
    value_at,
)
from raydt.learners.fudyadt.presort import DIGITS, fill_codes, label_bits_of, sort_column
from raydt.learners.fudyadt.split_search import scan_column, scan_missing_left
from raydt.learners.fudyadt.split_sides import (
    is_constant,
    lacking,
    mark_sides,
    missing_side,
    partition,
    sum_left,
    threshold_of,
)
from raydt.learners.fudyadt.weighted_search import weigh_left, weigh_numbers_left
from raydt.trees.counted_tree import TO_LEFT, TO_RIGHT, UNDECIDED, start_children, start_node, stays_leaf
from raydt.trees.records import NODES, link, split_node
from raydt.trees.weighted_numbers import subtract_sums


class BuildScratch(NamedTuple):
    """Working memory of one BUILD of up to n rows; the last line of ``E`` lists the rows of each open node.

    ``gaps`` tells which columns lack numbers; only their segments are ``turned``.
    """

    E: Ints
    spare: Ints
    side: npt.NDArray[np.uint8]
    slots: Int32s
    labels: Int32s
    stack: Ints
    digits: Ints
    left: Ints
    histograms: Histograms
    numbers: Int32s
    gaps: Bools
    turned: Ints
    weights: Weights


def new_scratch(rows: int, columns: int, classes: int, weighted: bool = False) -> BuildScratch:
    """Scratch for ``rows`` rows; with one class, that of numeric labels, or with weights no column is counted."""
    return BuildScratch(
        empty((columns + 1, rows), dtype=np.int64),
        empty(rows, dtype=np.int64),
        empty(rows, dtype=np.uint8),
        empty(rows, dtype=np.int32),
        empty(rows, dtype=np.int32),
        empty((rows + 2, 4), dtype=np.int64),
        empty(DIGITS, dtype=np.int64),
        empty(classes, dtype=np.int64),
        new_histograms(rows, columns, classes, MOST_VALUES if classes > 1 and not weighted else 0),
        empty(rows if classes == 1 else 0, dtype=np.int32),
        np.empty(columns, dtype=np.bool_),
        empty(rows, dtype=np.int64),
        empty(rows if weighted else 0, dtype=DTYPE),
    )


#: The numbers of a BUILD whose labels are classes.
NO_NUMBERS = np.empty(0, dtype=np.int32)


class Listing(NamedTuple):
    """Rows to build a subtree from."""

    X: Floats  #: Shape (any, d).
    categorical: Bools  #: Shape (d,).
    #: ``rows``, ``slots``, ``labels``: Shape (n,): row of ``X``, slot and class of each of them.
    rows: Int32s
    slots: Int32s
    labels: Int32s
    #: Shape (n,): of numeric labels, which are all of class 0: the labels in units.
    numbers: Int32s = NO_NUMBERS
    #: Shape (n,): weights in units; it is empty where rows have none.
    weights: Weights = NO_WEIGHTS


@inner_kernel
def push(stack: Any, top: int, node: int, first: int, stop: int, histogram: int) -> int:
    """Put an open node on the stack and return its new height."""
    stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = node, first, stop, histogram
    return top + 1


@kernel
def build(tree: Any, members: Any, root: int, listing: Any, rules: Any, stamp: int, scratch: Any) -> None:
    """Build the subtree at leaf ``root`` from the rows of a ``Listing``.

    ``tree.counts[root]`` holds the class counts of the rows, ``tree.sums[root]`` the sums of numeric labels, with
    weights ``pairs`` how many rows there are, and the tree has room for the nodes. O(n d (log n + depth)) for sorting
    codes of fixed width once and one pass per level; O(n d log n) for the columns of few values, which are counted
    (``histograms``), and a pass over the rows alone per level.
    """
    if not start_root(tree, members, root, listing, rules, stamp):
        return
    E, H = scratch.E, scratch.histograms
    n, d, K = len(listing.slots), np.int64(len(E) - 1), tree.counts.shape[1]
    label_bits, most = label_bits_of(K), most_counted(H, n)
    fill_codes(listing.X, listing.rows, np.int64(0), n, E)
    encode_columns(H, E, n, most, np.int64(0), d)
    choose_counted(H, most, n, K)
    sort_columns(listing, scratch, label_bits, np.int64(0), d)
    histogram = count_root(listing, scratch, label_bits, K)
    top = push(scratch.stack, np.int64(0), np.int64(root), np.int64(0), np.int64(n), histogram)
    grow(tree, members, listing, rules, stamp, scratch, top, tree.reg[NODES] + 2 * n)


@task_kernel
def start_root(tree: Any, members: Any, root: int, listing: Any, rules: Any, stamp: int) -> bool:
    """Start the root of a subtree; False, and its rows are listed, if it stays a leaf."""
    start_node(tree, root, stamp, rules)
    if not stays_leaf(tree, root, rules):
        return True
    for slot in listing.slots:
        link(tree, members, root, slot)
    return False


@task_kernel
def sort_columns(listing: Any, scratch: Any, label_bits: int, begin: int, end: int) -> None:
    """Sort those of the columns from ``begin`` to before ``end`` that are not counted; note which lack numbers."""
    E, H, labels, n = scratch.E, scratch.histograms, listing.labels, len(listing.slots)
    for j in range(begin, end):
        if H.width[j]:
            last = H.bits[j].view(np.float64)[np.int64(H.width[j]) - 1]
            scratch.gaps[j] = last != last
        else:
            sort_column(E[j, :n], j, labels, label_bits, listing.X, listing.rows, scratch.spare, scratch.digits)
            scratch.gaps[j] = lacking(E[j, :n], listing.X, listing.rows, np.int64(j), label_bits) > 0


@task_kernel
def count_root(listing: Any, scratch: Any, label_bits: int, K: int) -> int:
    """List the rows and count the root's histogram, if columns are counted; its number, else -1."""
    E, H, side, n = scratch.E, scratch.histograms, scratch.side, len(listing.slots)
    histogram: int = np.int64(0 if H.reg[COUNTED] else -1)
    if histogram < 0:
        return histogram
    for i in range(n):
        E[len(E) - 1, i] = (i << label_bits) | listing.labels[i]
        side[i] = 0
    count_side(H, histogram, E[len(E) - 1, :n], label_bits, K, side, np.int64(0))
    return histogram


@task_kernel
def grow(tree: Any, members: Any, listing: Any, rules: Any, stamp: int, scratch: Any, top: int, most: int) -> int:
    """Build the subtrees of the ``top`` open nodes on the stack while the tree has fewer than ``most - 1`` nodes.

    Returns the number of nodes that are left on the stack.
    """
    stack, label_bits = scratch.stack, label_bits_of(tree.counts.shape[1])
    while top > 0 and most - tree.reg[NODES] >= 2:
        top -= 1
        node, first, stop, histogram = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        columns = np.int64(len(scratch.E) - 1)
        _, feature, at = search(tree, node, listing, scratch, first, stop, histogram, np.int64(0), columns)
        sides = divide_node(
            tree, members, node, listing, rules, stamp, scratch, first, stop, histogram, np.int64(feature), np.int64(at)
        )
        _, left_open, right_open, _, _ = sides
        if left_open or right_open:
            in_order = in_order_of(tree, node, listing, left_open)
            last = columns + (histogram >= 0)
            partition_columns(
                scratch, first, stop, histogram, label_bits, in_order, left_open, right_open, np.int64(0), last
            )
            top = push_children(tree, node, scratch, first, stop, histogram, label_bits, sides, top)
    return top


@task_kernel
def search(
    tree: Any, node: int, listing: Any, scratch: Any, first: int, stop: int, histogram: int, begin: int, end: int
) -> tuple[float, int, int]:
    """Find a node's best split among the columns from ``begin`` to before ``end``.

    Returns its score and feature (-1: none), and the element or code that ends its left side, plus the number of
    elements or codes where missing numbers are on the left.
    """
    E, H, counts, left, categorical = scratch.E, scratch.histograms, tree.counts, scratch.left, listing.categorical
    label_bits, perfect = label_bits_of(counts.shape[1]), np.inf
    if len(left) == 2 and len(listing.weights) == 0:
        perfect = 2.0 * np.float64(counts[node, 0]) * np.float64(counts[node, 1])
    best = -1.0
    feature, at = -1, -1
    for j in range(begin, end):
        if histogram >= 0 and H.width[j]:
            score, here = best_value(H, j, histogram, stop - first, categorical[j], counts, node, left, best)
        else:
            S, numbers, weights = E[j, first:stop], listing.numbers, listing.weights
            score, here = scan_column(
                S, categorical[j], counts, tree.sums, node, numbers, weights, left, label_bits, best, scratch.spare
            )
        if here >= 0:
            best, feature, at = score, j, here
            if best >= perfect:  # both sides pure: no later feature can do better
                break
        if scratch.gaps[j]:  # with missing numbers on the left
            if histogram >= 0 and H.width[j]:
                score, here = best_value_missing_left(H, j, histogram, stop - first, counts, node, left, best)
            else:
                score, here = scan_missing_left(
                    E[j, first:stop], listing.X, listing.rows, np.int64(j), counts, tree.sums, node, listing.numbers,
                    listing.weights, left, label_bits, best, scratch.spare, scratch.turned,
                )  # fmt: skip
            if here >= 0:
                best, feature, at = score, j, here
                if best >= perfect:
                    break
    return best, feature, at


@task_kernel
def divide_node(
    tree: Any,
    members: Any,
    node: int,
    listing: Any,
    rules: Any,
    stamp: int,
    scratch: Any,
    first: int,
    stop: int,
    histogram: int,
    feature: int,
    at: int,
) -> tuple[int, bool, bool, int, int]:
    """Split a node and list the rows of children that are leaves; list its own if nothing separates them (feature -1).

    Returns the number of rows on the left, which children stay open, and their histograms.
    """
    E, side, H, slots = scratch.E, scratch.side, scratch.histograms, listing.slots
    K, size = tree.counts.shape[1], stop - first
    label_bits = label_bits_of(K)
    listed = E[len(E) - 1 if histogram >= 0 else 0, first:stop]  # the node's rows, in any order
    of_left = of_right = np.int64(-1)
    if feature < 0:
        for i in range(size):
            link(tree, members, node, slots[(listed[i] & 0xFFFFFFFF) >> label_bits])
        return np.int64(0), False, False, of_left, of_right
    threshold, missing, n_left = _divide_rows(listing, scratch, first, stop, histogram, label_bits, feature, at)
    left, right = split_node(tree, node, feature, threshold)
    tree.nodes[node].missing = missing
    if len(listing.weights) > 0:
        weigh_left(listed, label_bits, side, listing.weights, scratch.left)
        tree.statistics[left].pairs, tree.statistics[right].pairs = n_left, size - n_left
    for k in range(K):
        tree.counts[left, k] = scratch.left[k]
        tree.counts[right, k] = tree.counts[node, k] - scratch.left[k]
    if K == 1 and len(listing.weights) > 0:
        weigh_numbers_left(listed, label_bits, side, listing.numbers, listing.weights, tree.sums, left)
        subtract_sums(tree.sums, node, left, right)
    elif K == 1:
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
    if histogram >= 0 and (left_open or right_open):
        of_left, of_right = divide(H, histogram, listed, label_bits, K, side, n_left, left_open, right_open)
    return np.int64(n_left), left_open, right_open, of_left, of_right


@task_kernel
def push_children(
    tree: Any,
    node: int,
    scratch: Any,
    first: int,
    stop: int,
    histogram: int,
    label_bits: int,
    sides: tuple[int, bool, bool, int, int],
    top: int,
) -> int:
    """Put the open children of a node, whose columns are partitioned, on the stack; return its new height."""
    E, H, stack = scratch.E, scratch.histograms, scratch.stack
    n_left, left_open, right_open, of_left, of_right = sides
    left, right = np.int64(tree.nodes[node].left), np.int64(tree.nodes[node].right)
    middle = first + n_left if left_open else first
    end = middle + stop - first - n_left
    if histogram >= 0 and left_open and of_left < 0:
        to_elements(H, E, first, n_left, label_bits, scratch.digits)
    if histogram >= 0 and right_open and of_right < 0:
        to_elements(H, E, middle, end - middle, label_bits, scratch.digits)
    # The later histogram belongs on top.
    if left_open and of_left < of_right:
        top = push(stack, top, left, first, first + n_left, of_left)
    if right_open:
        top = push(stack, top, right, middle, end, of_right)
    if left_open and of_left >= of_right:
        top = push(stack, top, left, first, first + n_left, of_left)
    return top


@task_kernel
def in_order_of(tree: Any, node: int, listing: Any, left_open: bool) -> int:
    """The column that the split of a node leaves partitioned already (-1: none)."""
    feature = np.int64(tree.nodes[node].feature)
    parted = left_open and not listing.categorical[feature] and tree.nodes[node].missing != TO_LEFT
    in_order: int = np.int64(feature if parted else -1)
    return in_order


@inlined_kernel
def _divide_rows(
    listing: Any, scratch: Any, first: int, stop: int, histogram: int, label_bits: int, feature: int, at: int
) -> tuple[float, int, int]:
    """Threshold of a split, the side of missing numbers, and the rows on its left; marks sides and counts the left."""
    E, H, side, left = scratch.E, scratch.histograms, scratch.side, scratch.left
    category, gap = listing.categorical[feature], scratch.gaps[feature]
    if histogram >= 0 and H.width[feature]:
        listed = E[len(E) - 1, first:stop]
        threshold = value_at(H, feature, histogram, at, category, len(left))
        missing = np.int64(UNDECIDED)
        if at >= H.width[feature]:
            missing = np.int64(TO_LEFT)
        elif gap and has_missing(H, feature, histogram, len(left)):
            missing = np.int64(TO_RIGHT)
        goes = missing == TO_LEFT
        return threshold, missing, mark_rows(H, feature, threshold, category, goes, listed, label_bits, side, left)
    S = E[feature, first:stop]
    threshold = threshold_of(S, at, category, listing.X, listing.rows, feature, label_bits)
    missing = np.int64(missing_side(S, at, gap, listing.X, listing.rows, feature, label_bits))
    return threshold, missing, mark_sides(S, at, category, label_bits, side, left)


@task_kernel
def partition_columns(
    scratch: Any,
    first: int,
    stop: int,
    histogram: int,
    label_bits: int,
    in_order: int,
    left: bool,
    right: bool,
    begin: int,
    end: int,
) -> None:
    """Partition those from ``begin`` to before ``end`` of the columns and, where columns are counted, the list of rows.

    The counted columns and ``in_order`` stay as they are. ``left`` and ``right`` tell which children stay open.
    """
    E, H = scratch.E, scratch.histograms
    d, counted = len(E) - 1, histogram >= 0
    for j in range(begin, end):
        if j == in_order or (counted and j < d and H.width[j]):
            continue
        S = E[j, first:stop]
        if 0 < j < d and is_constant(S):  # and stays so; column 0 always lists the rows
            continue
        partition(S, label_bits, scratch.side, scratch.spare, left, right)
