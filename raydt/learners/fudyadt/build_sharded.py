"""BUILD spread over shards, which meet twice for every level of the tree: what each of them does.

A shard sorts its columns once. At a meeting it gives all others, for every open node, the best split of its columns;
and it *owns* a range of the rows: from every shard it gets one bit for each of them, the side on which that shard's
best split puts the row. All choose the same winners by the total order, and split the same nodes. The owner of a row
takes the bit of the winner at the row's node, moves the row down, and tells all the bits of its rows. So a row costs
two bits a level, however many shards there are, and everything else is divided. At the end the coordinator gets the
winners, from which it makes the same nodes, and from each owner the nodes of its rows.

A candidate has ``4 + K`` words: bits of the score, bits of the threshold, feature (-1: there is none), side of missing
numbers, class counts on the left. Where labels are numbers, K is 1 and two words more are the sums of the labels on the
left and of their squares.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.memory import empty
from raydt.arrays.types import AnyArray, Bools, Floats, Int32s, Ints
from raydt.examples.weights import NO_WEIGHTS, Weights
from raydt.exchange.meeting import Steps
from raydt.learners.fudyadt.build import NO_NUMBERS
from raydt.learners.fudyadt.presort import DIGITS, label_bits_of, presort
from raydt.learners.fudyadt.split_search import BLOCK, scan_column, scan_missing_left
from raydt.learners.fudyadt.split_sides import (
    is_constant,
    mark_sides,
    missing_side,
    partition,
    sum_left,
    threshold_of,
)
from raydt.trees.counted_tree import (
    CountedTree,
    TreeRules,
    new_tree,
    start_children,
    start_node,
    stays_leaf,
    with_room,
)
from raydt.trees.records import USED, link, split_node
from raydt.trees.regression_sums import LabelRange

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


class ShardColumns(NamedTuple):
    """The columns of a shard, ascending, and the rows of one BUILD."""

    X: Floats  #: Shape (any, columns).
    rows: Int32s  #: Shape (rows,): row of ``X`` of each row of the BUILD.
    feature: Ints  #: Shape (columns,).
    categorical: Bools  #: Shape (columns,).
    gaps: Bools  #: Shape (columns,): whether numbers are missing.
    numbers: Int32s  #: Shape (rows,): numeric labels in units; with classes it is empty.
    weights: Weights = NO_WEIGHTS  #: Shards know none.


class Sorted(NamedTuple):
    """The open nodes of a BUILD on a shard."""

    E: Ints  #: Shape (columns, rows): sorted elements (``presort``).
    bounds: Ints  #: Shape (open, 2): where in each row of ``E`` the elements of a node begin and end.
    side: npt.NDArray[np.uint8]  #: Shape (rows,).
    spare: Ints  #: Shape (rows,): scratch.
    label_bits: int


@kernel
def find_candidates(level: Any, columns: Any, node_counts: Any, node_sums: Any, scratch: Any, out: Any) -> None:
    """Fill ``out`` (open, 4 + K) with the best split of each open node, and ``side`` with the sides of its rows.

    With numeric labels, ``out`` has 4 + 1 + 2 words of a candidate. Columns ascend, so that "the first best" is the
    total order. O(rows x columns) a level.
    """
    E, bounds, side, label_bits = level.E, level.bounds, level.side, level.label_bits
    X, rows, categorical, numbers = columns.X, columns.rows, columns.categorical, columns.numbers
    K = node_counts.shape[1]
    left, spare = scratch[0, :K], scratch[1]
    scores = out[:, :2].view(np.float64)
    for f in range(len(bounds)):
        first, stop = bounds[f, 0], bounds[f, 1]
        best, perfect = -1.0, np.inf
        if K == 2:
            perfect = 2.0 * np.float64(node_counts[f, 0]) * np.float64(node_counts[f, 1])
        column, at = np.int64(-1), np.int64(-1)
        for j in range(len(columns.feature)):
            S = E[j, first:stop]
            score, here = scan_column(
                S, categorical[j], node_counts, node_sums, f, numbers, columns.weights, left, label_bits, best, spare
            )
            if here >= 0:
                best, column, at = score, np.int64(j), np.int64(here)
                if best >= perfect:  # both sides pure: no later column can do better
                    break
            if columns.gaps[j]:
                score, here = scan_missing_left(
                    S, X, rows, np.int64(j), node_counts, node_sums, f, numbers, columns.weights, left, label_bits,
                    best, spare, level.spare,
                )  # fmt: skip
                if here >= 0:
                    best, column, at = score, np.int64(j), np.int64(here)
                    if best >= perfect:
                        break
        out[f, FEATURE] = -1
        if column < 0:
            continue
        segment, category = E[column, first:stop], categorical[column]
        scores[f, SCORE] = best
        scores[f, THRESHOLD] = threshold_of(segment, at, category, X, rows, column, label_bits)
        out[f, FEATURE] = columns.feature[column]
        out[f, MISSING] = missing_side(segment, at, columns.gaps[column], X, rows, column, label_bits)
        mark_sides(segment, at, category, label_bits, side, left)
        for k in range(K):
            out[f, LEFT + k] = left[k]
        if K == 1:
            q, squares = sum_left(segment, label_bits, side, numbers)
            out[f, LEFT + 1], out[f, LEFT + 2] = q, squares


@kernel
def next_level(level: Any, keep: Any, size_left: Any, out: Any) -> int:
    """Partition every open segment and write the bounds of the nodes that stay open; returns their number."""
    n = 0
    E, bounds = level.E, level.bounds
    for f in range(len(bounds)):
        if keep[f] == 0:
            continue
        first, stop = bounds[f, 0], bounds[f, 1]
        size = stop - first
        left = (keep[f] & KEEP_LEFT) != 0
        right = (keep[f] & KEEP_RIGHT) != 0
        for j in range(E.shape[0]):
            segment = E[j, first:stop]
            if not is_constant(segment):
                partition(segment, level.label_bits, level.side, level.spare, left, right)
        middle = first + size_left[f]
        if left:
            out[n, 0], out[n, 1] = first, middle
            n += 1
        if right:
            begin = middle if left else first
            out[n, 0], out[n, 1] = begin, begin + size - size_left[f]
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
def move_rows(node_of: Any, open_of: Any, shards: Any, below: Any, sides: Any, out: Any) -> None:
    """Move rows one level down, by the bits of the shard that has the split of their node; ``out`` gets their sides.

    ``node_of`` has the node of each row, ``open_of`` the number of a node among the open ones (-1: a leaf), ``shards``
    the winner at each open node (-1: it is not split), ``below``, shape (open, 2), its children; ``sides``, shape
    (shards, bytes), the bits by each shard.
    """
    for i in range(len(node_of)):
        out[i] = 0
        f = open_of[node_of[i]]
        if f < 0 or shards[f] < 0:
            continue
        out[i] = (sides[shards[f], i >> 3] >> (i & 7)) & 1
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
    (features, categorical), n = own, len(rows)
    width, bits, numbers = len(features), int(label_bits_of(len(order.counts))), NO_NUMBERS
    if order.label_range is not None:
        labels, numbers = np.zeros(len(labels), dtype=np.int32), LabelRange.of(*order.label_range).units(labels)
    E, spare = empty((width, n), dtype=np.int64), empty(n, dtype=np.int64)
    gaps = np.zeros(width, dtype=np.bool_)
    if width:
        presort(X, rows, labels, n, bits, E, spare, np.empty(DIGITS, dtype=np.int64))
        gaps = np.isnan(X[rows[(E[:, -1] & 0xFFFFFFFF) >> bits], np.arange(width)])
    columns = ShardColumns(X, rows, features, categorical, gaps, numbers)
    level = Sorted(E, np.array([[0, n]], dtype=np.int64), np.zeros(n, dtype=np.uint8), spare, bits)
    return build_steps(level, columns, order, place)


def build_steps(level: Sorted, columns: ShardColumns, order: BuildOrder, place: tuple[int, int]) -> Steps[Any]:
    """Make a BUILD with the other shards; this one is the first of ``place`` among so many.

    Returns which is the first of this shard's rows, and their nodes, numbered in the order in which they are made, the
    root first; and of the first shard the splits of all open nodes in that order.
    """
    index, shards = place
    n, K = len(level.side), len(order.counts)
    edges = [(n + 7) // 8 * s // shards for s in range(shards + 1)]  # of the rows that each owns, in bytes of bits
    node_of = np.zeros(min(8 * edges[index + 1], n) - min(8 * edges[index], n), dtype=np.int32)
    sides, tree = np.empty(len(node_of), dtype=np.uint8), _one_leaf(order)
    nodes, splits = np.zeros(1, dtype=np.int64), list[Words]()
    while len(nodes):
        mine = np.full((len(nodes), LEFT + K + len(order.sums)), -1, dtype=np.int64)
        if len(columns.feature):
            scratch = np.empty((2, max(K, BLOCK)), dtype=np.int64)
            find_candidates(level, columns, tree.counts[nodes], tree.sums[nodes], scratch, mine)
        bits = as_bits(level.side)
        parts = [{"splits": mine, "sides": bits[begin:end]} for begin, end in pairwise(edges)]
        received = yield parts
        candidates = np.stack([part["splits"] for part in received], axis=1)
        chosen, winners = np.empty_like(mine), np.empty(len(nodes), dtype=np.int64)
        choose_splits(candidates, chosen, winners)
        splits.append(chosen)
        tree, open_of = with_room(tree, 2 * len(nodes), K), np.full(int(tree.reg[USED]), -1, dtype=np.int32)
        open_of[nodes] = np.arange(len(nodes))
        children = Children.of(len(nodes))
        count = split_nodes(tree, nodes, chosen, order.rules, 0, children)
        below = np.stack([tree.nodes["left"][nodes], tree.nodes["right"][nodes]], axis=1)
        move_rows(node_of, open_of, winners, below, np.stack([part["sides"] for part in received]), sides)
        nodes = children.below[:count]
        if int(tree.statistics["n"][nodes].sum()) < order.few:
            nodes = nodes[:0]
        if len(nodes):
            taken = yield [as_bits(sides)] * shards
            level = level._replace(side=flags_of(np.concatenate(taken), n))
            bounds = np.empty((2 * len(children.keep), 2), dtype=np.int64)
            next_level(level, children.keep, children.size_left, bounds)
            level = level._replace(bounds=bounds[: len(nodes)].copy())
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
