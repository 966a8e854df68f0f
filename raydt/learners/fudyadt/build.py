"""BUILD (Algorithm 2) in one process: code or sort each column once, then scan and partition down the levels.

Not here: its division among threads (``build_divided``), and the same BUILD spread over shards, two meetings per level
(``build_sharded``); all use ``split_search``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel, task_kernel
from raydt.examples.updates import DTYPE, NO_WEIGHTS, Weights
from raydt.exchange.links import Steps
from raydt.exchange.meetings import AllGather, ReduceScatter
from raydt.learners.fudyadt.histograms import (
    COUNTED,
    DIGITS,
    MOST_VALUES,
    Histograms,
    best_value,
    choose_counted,
    count_side,
    divide,
    encode_columns,
    fill_codes,
    has_missing,
    label_bits_of,
    mark_rows,
    most_counted,
    new_histograms,
    sort_column,
    to_elements,
    value_at,
)
from raydt.learners.fudyadt.split_search import (
    BLOCK,
    is_constant,
    lacking,
    mark_sides,
    missing_side,
    partition,
    scan_column,
    scan_missing_left,
    sum_left,
    threshold_of,
    weigh_left,
    weigh_numbers_left,
)
from raydt.trees.counted_tree import (
    MULTIPLES,
    TO_LEFT,
    TO_RIGHT,
    UNDECIDED,
    CountedTree,
    LabelRange,
    TreeRules,
    new_tree,
    start_children,
    start_node,
    stays_leaf,
    subtract_sums,
    with_room,
)
from raydt.trees.records import NODES, USED, link, split_node


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
    shares: Floats  #: Shape (multiples - 2, classes): of a row that is predicted (``predict_smoothed``).


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
        np.empty((len(MULTIPLES) - 1, classes)),
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
        counted = histogram >= 0 and H.width[j] > 0
        for missing_left in range(2 if scratch.gaps[j] else 1):  # missing numbers on the right, then on the left
            if counted:
                score, here = best_value(
                    H, j, histogram, stop - first, categorical[j], missing_left == 1, counts, node, left, best
                )
            elif missing_left == 0:
                score, here = scan_column(
                    E[j, first:stop], categorical[j], counts, tree.sums, node, listing.numbers, listing.weights, left,
                    label_bits, best, scratch.spare,
                )  # fmt: skip
            else:
                score, here = scan_missing_left(
                    E[j, first:stop], listing.X, listing.rows, np.int64(j), counts, tree.sums, node, listing.numbers,
                    listing.weights, left, label_bits, best, scratch.spare, scratch.turned,
                )  # fmt: skip
            if here >= 0:
                best, feature, at = score, j, here
                if best >= perfect:
                    break
        if best >= perfect:  # both sides pure: no later feature can do better
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


# BUILD spread over shards, which meet three times for every level of the tree: what each of them does.
#
# A shard sorts its columns once. At the first meeting it gives all others, for every open node, the best split of its
# columns. All choose the same winners by the total order, and split the same nodes. A shard also *owns* a range of the
# rows: at the second meeting it gets one bit for each of them, the side on which the best split of the row's node puts
# the row. The winner at that node has it, and all others 0, so bits are added on their way. The owner moves the row
# down, and tells all the bits of its rows at the third meeting. So a row costs two bits a level, however many shards
# there are, and everything else is divided. At the end the coordinator gets the winners, from which it makes the same
# nodes, and from each owner the nodes of its rows.
#
# A candidate has ``4 + K`` words: bits of the score, bits of the threshold, feature (-1: there is none), side of
# missing numbers, class counts on the left. Where labels are numbers, K is 1 and two words more are the sums of the
# labels on the left and of their squares.

#: Words of a candidate before the class counts.
SCORE, THRESHOLD, FEATURE, MISSING, LEFT = range(5)
#: Flags of a round: what becomes of the two children of an open node.
KEEP_LEFT, KEEP_RIGHT = 1, 2
#: Rows of a BUILD whose nodes go to the coordinator at once.
FETCHED = 1 << 20

Words = Ints


class BuildOrder(NamedTuple):
    """One BUILD, as the coordinator asks for it."""

    rows: npt.NDArray[np.uint8]  #: A bit for each slot, whether its row is below the node; the first is the lowest.
    counts: Ints  #: Shape (K,): classes of the rows; ``sums`` of numeric labels as in the tree.
    sums: Ints
    depth: int  #: Of the node.
    rules: TreeRules
    label_range: tuple[float, float] | None  #: Of numeric labels, in which they are counted.
    few: int  #: With fewer rows in open nodes than that the coordinator finishes them itself.


@kernel
def find_candidates(tree: Any, nodes: Any, bounds: Any, listing: Any, scratch: Any, features: Any, out: Any) -> None:
    """Fill ``out`` (open, 4 + K) with the best split of each open node, and ``side`` with the sides of its rows.

    ``bounds``, shape (open, 2), says where in each of the sorted columns the rows of a node begin and end, ``features``
    which features these are. They ascend, so that "the first best" is the total order. With numeric labels, ``out`` has
    4 + 1 + 2 words of a candidate. O(rows x columns) a level.
    """
    E, K = scratch.E, tree.counts.shape[1]
    label_bits, uncounted = label_bits_of(K), np.int64(-1)
    scores = out[:, :2].view(np.float64)
    for f in range(len(nodes)):
        first, stop = bounds[f, 0], bounds[f, 1]
        best, column, at = search(
            tree, nodes[f], listing, scratch, first, stop, uncounted, np.int64(0), np.int64(len(features))
        )
        out[f, FEATURE] = -1
        if column < 0:
            continue
        column, at = np.int64(column), np.int64(at)
        threshold, missing, _ = _divide_rows(listing, scratch, first, stop, uncounted, label_bits, column, at)
        scores[f, SCORE], scores[f, THRESHOLD] = best, threshold
        out[f, FEATURE], out[f, MISSING] = features[column], missing
        for k in range(K):
            out[f, LEFT + k] = scratch.left[k]
        if K == 1:
            q, squares = sum_left(E[column, first:stop], label_bits, scratch.side, listing.numbers)
            out[f, LEFT + 1], out[f, LEFT + 2] = q, squares


@kernel
def next_level(scratch: Any, bounds: Any, label_bits: int, keep: Any, size_left: Any, out: Any) -> int:
    """Partition every open segment and write the bounds of the nodes that stay open; returns their number."""
    n = 0
    none, columns = np.int64(-1), np.int64(len(scratch.E))
    for f in range(len(bounds)):
        if keep[f] == 0:
            continue
        first, stop = bounds[f, 0], bounds[f, 1]
        left = (keep[f] & KEEP_LEFT) != 0
        right = (keep[f] & KEEP_RIGHT) != 0
        partition_columns(scratch, first, stop, none, label_bits, none, left, right, np.int64(0), columns)
        middle = first + size_left[f]
        if left:
            out[n, 0], out[n, 1] = first, middle
            n += 1
        if right:
            begin = middle if left else first
            out[n, 0], out[n, 1] = begin, begin + stop - middle
            n += 1
    return n


class Children(NamedTuple):
    """Decisions about the open nodes of a level."""

    keep: npt.NDArray[np.uint8]  #: Shape (open,): which children stay open.
    size_left: Ints  #: Shape (open,): rows on the left.
    below: Ints  #: Shape (2 open,): the next open nodes.

    @classmethod
    def of(cls, n_open: int) -> Children:
        """No children of so many nodes."""
        sizes, below = np.zeros(n_open, dtype=np.int64), np.empty(2 * n_open, dtype=np.int64)
        return cls(np.zeros(n_open, dtype=np.uint8), sizes, below)


@kernel
def choose_splits(candidates: Any, chosen: Any, shards: Any) -> None:
    """The best candidate of each open node by the total order, and its shard: -1 where nothing separates the rows.

    ``candidates`` has shape (open, shards, words), ``chosen`` (open, words).
    """
    scores = candidates[:, :, :2].view(np.float64)
    for f in range(len(candidates)):
        best = np.int64(-1)
        for s in range(candidates.shape[1]):
            if candidates[f, s, FEATURE] < 0:
                continue
            better = best < 0 or scores[f, s, SCORE] > scores[f, best, SCORE]
            tie = best >= 0 and scores[f, s, SCORE] == scores[f, best, SCORE]
            if better or (tie and candidates[f, s, FEATURE] < candidates[f, best, FEATURE]):
                best = np.int64(s)
        shards[f] = best
        for word in range(chosen.shape[1]):
            chosen[f, word] = candidates[f, max(best, np.int64(0)), word]


@kernel
def split_nodes(tree: Any, nodes: Any, chosen: Any, rules: Any, stamp: int, children: Any) -> int:
    """Split the open nodes by their candidates, and fill ``children``; returns the number of nodes open next."""
    K = tree.counts.shape[1]
    thresholds = chosen[:, :2].view(np.float64)
    n = 0
    for f in range(len(nodes)):
        node = nodes[f]
        if chosen[f, FEATURE] < 0:
            continue
        left, right = split_node(tree, node, chosen[f, FEATURE], thresholds[f, THRESHOLD])
        tree.nodes[node].missing = chosen[f, MISSING]
        for k in range(K):
            tree.counts[left, k] = chosen[f, LEFT + k]
            tree.counts[right, k] = tree.counts[node, k] - tree.counts[left, k]
            children.size_left[f] += tree.counts[left, k]
        for k in range(tree.sums.shape[1]):
            tree.sums[left, k] = chosen[f, LEFT + K + k]
            tree.sums[right, k] = tree.sums[node, k] - tree.sums[left, k]
        start_children(tree, node, stamp, rules)
        if not stays_leaf(tree, left, rules):
            children.keep[f] |= KEEP_LEFT
            children.below[n] = left
            n += 1
        if not stays_leaf(tree, right, rules):
            children.keep[f] |= KEEP_RIGHT
            children.below[n] = right
            n += 1
    return n


@kernel
def mark_won(E: Any, bounds: Any, winners: Any, index: int, label_bits: int, side: Any, out: Any) -> None:
    """Copy to ``out`` the sides of the rows of the open nodes whose best split shard ``index`` has; others stay."""
    bits = np.uint64(label_bits)
    for f in range(len(winners)):
        if winners[f] != index:
            continue
        for i in range(bounds[f, 0], bounds[f, 1]):
            row = np.uint64(E[0, i] & 0xFFFFFFFF) >> bits
            out[row] = side[row]


@kernel
def move_rows(node_of: Any, open_of: Any, winners: Any, below: Any, sides: Any, out: Any) -> None:
    """Move rows one level down, by the bits of the winner at their node; ``out`` gets their sides.

    ``node_of`` has the node of each row, ``open_of`` the number of a node among the open ones (-1: a leaf), ``winners``
    the shard that has the split of each open node (-1: it is not split), ``below``, shape (open, 2), its children;
    ``sides`` has a bit for each row.
    """
    for i in range(len(node_of)):
        out[i] = 0
        f = open_of[node_of[i]]
        if f < 0 or winners[f] < 0:
            continue
        out[i] = (sides[i >> 3] >> (i & 7)) & 1
        node_of[i] = below[f, out[i]]


@kernel
def place_rows(lists: Any, marked: Any, node_of: Any, made: Any, waits: Any, open_rows: Any) -> int:
    """Put the next rows of a BUILD into the ``lists`` (tree, members) of their leaves; returns the slot after them.

    ``marked``: bits of all slots of the BUILD, and the slot from which on to look for the next. ``node_of`` has the
    node of each row by the number that shards give it, ``made`` the node of each number. Rows of a node that ``waits``
    are in no list yet: ``open_rows`` (count, slots and nodes) gets these.
    """
    (tree, members), (bits, slot) = lists, marked
    count, slots, nodes = open_rows
    for i in range(len(node_of)):
        while not (bits[slot >> 3] >> (slot & 7)) & 1:
            slot += 1
        leaf = made[node_of[i]]
        if waits[leaf] < 0:
            link(tree, members, leaf, slot)
        else:
            slots[count[0]], nodes[count[0]] = slot, waits[leaf]
            count[0] += 1
        slot += 1
    after: int = slot
    return after


def as_bits(flags: AnyArray) -> npt.NDArray[np.uint8]:
    """One bit for each flag, the first the lowest of the first byte."""
    return np.packbits(flags, bitorder="little")


def flags_of(bits: npt.NDArray[np.uint8], count: int | None = None) -> npt.NDArray[np.uint8]:
    """The flags of :func:`as_bits`, 0 or 1."""
    return np.unpackbits(bits, count=count, bitorder="little")


def slots_of(bits: npt.NDArray[np.uint8]) -> Int32s:
    """Return the slots with a bit, ascending."""
    return np.flatnonzero(flags_of(bits).view(np.bool_)).astype(np.int32)


def begun(
    X: Floats, rows: Int32s, labels: AnyArray, own: tuple[Ints, Bools], order: BuildOrder, place: tuple[int, int]
) -> Steps[Any]:
    """Sort the ``own`` columns (numbers, and which are categorical) of the rows of a BUILD, and make its steps.

    ``rows``: the row of ``X`` of each; no ``labels`` where there are no columns.
    """
    (features, categorical), n, K = own, len(rows), len(order.counts)
    numbers = NO_NUMBERS
    if order.label_range is not None:
        labels, numbers = np.zeros(len(labels), dtype=np.int32), LabelRange.of(*order.label_range).units(labels)
    listing = Listing(X, categorical, rows, rows, labels, numbers)
    columns, spare = len(features), empty(n, dtype=np.int64)
    E, side = empty((columns, n), dtype=np.int64), np.zeros(n, dtype=np.uint8)
    scratch = new_scratch(0, columns, K)._replace(E=E, side=side, spare=spare, numbers=numbers)
    if columns:
        fill_codes(X, rows, 0, n, E)
        sort_columns(listing, scratch, label_bits_of(K), 0, columns)
    return build_steps(listing, scratch, features, order, place)


def build_steps(
    listing: Listing, scratch: BuildScratch, features: Ints, order: BuildOrder, place: tuple[int, int]
) -> Steps[Any]:
    """Make a BUILD with the other shards; this one is the first of ``place`` among so many.

    Returns which is the first of this shard's rows, and their nodes, numbered in the order in which they are made, the
    root first; and of the first shard the splits of all open nodes in that order.
    """
    index, shards = place
    n, K = len(scratch.side), len(order.counts)
    # Searches and partitions take turns with the long array: a scan of a copy and its scratch are two.
    searching = scratch._replace(spare=np.empty(max(K, BLOCK), dtype=np.int64), turned=scratch.spare)
    edges = [(n + 7) // 8 * s // shards for s in range(shards + 1)]  # of the rows that each owns, in bytes of bits
    node_of = np.zeros(min(8 * edges[index + 1], n) - min(8 * edges[index], n), dtype=np.int32)
    sides, tree = np.empty(len(node_of), dtype=np.uint8), _one_leaf(order)
    nodes, splits, bounds = np.zeros(1, dtype=np.int64), list[Words](), np.array([[0, n]], dtype=np.int64)
    while len(nodes):
        mine = np.full((len(nodes), LEFT + K + len(order.sums)), -1, dtype=np.int64)
        if len(features):
            find_candidates(tree, nodes, bounds, listing, searching, features, mine)
        candidates = np.stack((yield AllGather(mine, shards)), axis=1)
        chosen, winners = np.empty_like(mine), np.empty(len(nodes), dtype=np.int64)
        choose_splits(candidates, chosen, winners)
        won = np.zeros(n, dtype=np.uint8)
        if len(features):
            mark_won(scratch.E, bounds, winners, index, label_bits_of(K), scratch.side, won)
        bits = as_bits(won)
        parts = [bits[begin:end] for begin, end in pairwise(edges)]
        told = np.bitwise_or.reduce((yield ReduceScatter(parts, np.bitwise_or)))
        splits.append(chosen)
        tree, open_of = with_room(tree, 2 * len(nodes), K), np.full(int(tree.reg[USED]), -1, dtype=np.int32)
        open_of[nodes] = np.arange(len(nodes))
        children = Children.of(len(nodes))
        count = split_nodes(tree, nodes, chosen, order.rules, 0, children)
        below = np.stack([tree.nodes["left"][nodes], tree.nodes["right"][nodes]], axis=1)
        move_rows(node_of, open_of, winners, below, told, sides)
        nodes = children.below[:count]
        if int(tree.statistics["n"][nodes].sum()) < order.few:
            nodes = nodes[:0]
        if len(nodes):
            taken = yield AllGather(as_bits(sides), shards)
            scratch.side[:] = flags_of(np.concatenate(taken), n)
            of_children = np.empty((2 * len(children.keep), 2), dtype=np.int64)
            next_level(scratch, bounds, label_bits_of(K), children.keep, children.size_left, of_children)
            bounds = of_children[: len(nodes)].copy()
    numbers = node_of.astype(np.min_scalar_type(int(tree.reg[USED])))
    return 8 * edges[index], numbers, np.concatenate(splits)[: None if index == 0 else 0]


def _one_leaf(order: BuildOrder) -> CountedTree:
    """A tree of the node that is built."""
    tree = new_tree(64, len(order.counts))
    tree.counts[0], tree.sums[0], tree.nodes["depth"][0] = order.counts, order.sums, order.depth
    start_node(tree, 0, 0, order.rules)
    return tree


def split_alike(
    tree: CountedTree, root: int, splits: Words, rules: TreeRules, stamp: int
) -> tuple[CountedTree, Ints, Ints]:
    """Split a leaf, which is started, as shards have.

    Returns the tree, the nodes by the numbers that shards give them, and those that are still open.
    """
    nodes, made = np.array([root], dtype=np.int64), [np.array([root], dtype=np.int64)]
    begin = 0
    while begin < len(splits):
        chosen = splits[begin : begin + len(nodes)]
        begin += len(nodes)
        tree, children = with_room(tree, 2 * len(nodes), tree.counts.shape[1]), Children.of(len(nodes))
        count = split_nodes(tree, nodes, chosen, rules, stamp, children)
        split = nodes[chosen[:, FEATURE] >= 0]
        made.append(np.stack([tree.nodes["left"][split], tree.nodes["right"][split]], axis=1).ravel().astype(np.int64))
        nodes = children.below[:count]
    return tree, np.concatenate(made), nodes
