"""BUILD spread over shards, one round per tree level: the kernels of both sides and the packed reply.

A shard sorts its columns once, then answers each round with, for every open node and each of its feature
groups, the best split it has; and with one bit per row, the side on which its own best split puts the row.
The coordinator picks the winners by the total order, combines the bits of the winning shards, and sends them
with the next round: no second round is needed to learn the sides.

A reply is one int64 array: ``open * groups * (4 + K)`` words of candidates (bits of the score, bits of the
threshold, feature, side of missing numbers, class counts on the left), then ``ceil(rows / 64)`` words of sides. Where
labels are numbers, K is 1 and two words more of each candidate are the sums of the labels on the left and of their
squares.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.fudyadt.split_search import scan_column, scan_missing_left
from raydt.learners.fudyadt.split_sides import (
    is_constant,
    mark_sides,
    missing_side,
    partition,
    sum_left,
    threshold_of,
)
from raydt.trees.counted_tree import start_children, stays_leaf
from raydt.trees.records import link, split_node

#: Words of a candidate before the class counts.
SCORE, THRESHOLD, FEATURE, MISSING, LEFT = range(5)
#: Flags of a round: what becomes of the two children of an open node.
KEEP_LEFT, KEEP_RIGHT = 1, 2


def side_words(rows: int) -> int:
    """int64 words that hold one bit per row."""
    return (rows + 63) // 64


class ShardColumns(NamedTuple):
    """The columns of a shard, ascending over its groups, and the rows of one BUILD."""

    X: npt.NDArray[np.float64]  #: Shape (any, columns).
    rows: npt.NDArray[np.int32]  #: Shape (rows,): row of ``X`` of each row of the BUILD.
    feature: npt.NDArray[np.int64]  #: Shape (columns,).
    group: npt.NDArray[np.int64]  #: Shape (columns,).
    groups: int
    categorical: npt.NDArray[np.bool_]  #: Shape (columns,).
    gaps: npt.NDArray[np.bool_]  #: Shape (columns,): whether numbers are missing.
    numbers: npt.NDArray[np.int32]  #: Shape (rows,): numeric labels in units; with classes it is empty.


class Sorted(NamedTuple):
    """The open nodes of a BUILD on a shard."""

    E: npt.NDArray[np.int64]  #: Shape (columns, rows): sorted elements (``presort``).
    bounds: npt.NDArray[np.int64]  #: Shape (open, 2): where in each row of ``E`` the elements of a node begin and end.
    side: npt.NDArray[np.uint8]  #: Shape (rows,).
    spare: npt.NDArray[np.int64]  #: Shape (rows,): scratch.
    label_bits: int


@kernel
def find_candidates(level: Any, columns: Any, node_counts: Any, node_sums: Any, scratch: Any, out: Any) -> None:
    """Fill ``out`` (open, groups, 4 + K) with the best split of each group; ``side`` with the shard's own choice.

    With numeric labels, ``out`` has 4 + 1 + 2 words of a candidate.
    Columns ascend over the groups of a shard, so that "the first best" is the total order. O(rows x columns) a level.
    """
    E, bounds, side, label_bits = level.E, level.bounds, level.side, level.label_bits
    X, rows, groups, categorical = columns.X, columns.rows, columns.groups, columns.categorical
    K = node_counts.shape[1]
    left = scratch[0, :K]
    column_of = scratch[1]
    at_of = scratch[2]
    scores = out[:, :, :2].view(np.float64)
    for f in range(len(bounds)):
        first, stop = bounds[f, 0], bounds[f, 1]
        for g in range(groups):
            scores[f, g, SCORE] = -1.0
            column_of[g] = -1
        for j in range(len(columns.feature)):
            g = columns.group[j]
            best = scores[f, g, SCORE]
            S = E[j, first:stop]
            category, numbers, spare = categorical[j], columns.numbers, scratch[3]
            score, at = scan_column(S, category, node_counts, node_sums, f, numbers, left, label_bits, best, spare)
            if at >= 0:
                scores[f, g, SCORE] = best = score
                column_of[g] = j
                at_of[g] = at
            if columns.gaps[j]:
                score, at = scan_missing_left(
                    S, X, rows, np.int64(j), node_counts, node_sums, f, numbers, left, label_bits, best, spare,
                    level.spare,
                )  # fmt: skip
                if at >= 0:
                    scores[f, g, SCORE] = score
                    column_of[g] = j
                    at_of[g] = at
        shard_best = -1.0
        shard_column, shard_at = np.int64(-1), np.int64(-1)
        for g in range(groups):
            j = column_of[g]
            if j < 0:
                out[f, g, FEATURE] = -1
                continue
            at = at_of[g]
            segment = E[j, first:stop]
            scores[f, g, THRESHOLD] = threshold_of(segment, at, categorical[j], X, rows, j, label_bits)
            out[f, g, FEATURE] = columns.feature[j]
            out[f, g, MISSING] = missing_side(segment, at, columns.gaps[j], X, rows, j, label_bits)
            mark_counts(segment, at, categorical[j], label_bits, left)
            for k in range(K):
                out[f, g, LEFT + k] = left[k]
            if K == 1:
                mark_sides(segment, at, categorical[j], label_bits, side, left)
                q, squares = sum_left(segment, label_bits, side, columns.numbers)
                out[f, g, LEFT + 1], out[f, g, LEFT + 2] = q, squares
            if scores[f, g, SCORE] > shard_best:
                shard_best, shard_column, shard_at = scores[f, g, SCORE], j, at
        if shard_column >= 0:
            segment = E[shard_column, first:stop]
            mark_sides(segment, shard_at, categorical[shard_column], label_bits, side, left)


@inner_kernel
def mark_counts(E: Any, at: int, categorical: bool, label_bits: int, left: Any) -> None:
    """Count the classes on the left of a split of one segment; unlike the sides, without a write for each row."""
    mask = (1 << label_bits) - 1
    left[:] = 0
    i, n = at, len(E)
    if at >= n:
        last = n - 1
        while E[last] >> 32 == E[n - 1] >> 32:
            left[E[last] & mask] += 1
            last -= 1
        i = at - n
    while i >= 0 and (not categorical or E[i] >> 32 == E[at] >> 32):
        left[E[i] & mask] += 1
        i -= 1


@kernel
def pack_sides(side: Any, n: int, words: Any) -> None:
    """One bit per row."""
    words[:] = 0
    for i in range(n):
        words[i >> 6] |= np.int64(side[i]) << (i & 63)


@kernel
def unpack_sides(words: Any, n: int, side: Any) -> None:
    """The inverse of :func:`pack_sides`."""
    for i in range(n):
        side[i] = (words[i >> 6] >> (i & 63)) & 1


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


class OpenLevel(NamedTuple):
    """The open nodes of a BUILD at the coordinator."""

    nodes: npt.NDArray[np.int64]  #: Shape (open,).
    slots: npt.NDArray[np.int32]  #: Shape (rows,).
    node_of: npt.NDArray[np.int32]  #: Shape (rows,): number of the open node of each row, -1 once it is in a leaf.


class Children(NamedTuple):
    """Decisions about the open nodes of a level."""

    keep: npt.NDArray[np.uint8]  #: Shape (open,): which children stay open.
    size_left: npt.NDArray[np.int64]  #: Shape (open,): rows on the left.
    #: ``left``, ``right``: Shape (open,): number of each child among the next open nodes, -1 of one that is a leaf.
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    below: npt.NDArray[np.int64]  #: Shape (2 open,): the next open nodes.

    @classmethod
    def of(cls, n_open: int) -> Children:
        """No children of so many nodes."""
        left, right = np.full((2, n_open), -1, dtype=np.int64)
        sizes, below = np.zeros(n_open, dtype=np.int64), np.empty(2 * n_open, dtype=np.int64)
        return cls(np.zeros(n_open, dtype=np.uint8), sizes, left, right, below)


@kernel
def choose_splits(candidates: Any, chosen: Any) -> None:
    """The group with the best candidate of each open node by the total order, -1 where nothing separates the rows."""
    scores = candidates[:, :, :2].view(np.float64)
    for f in range(len(candidates)):
        best = -1
        for g in range(candidates.shape[1]):
            if candidates[f, g, FEATURE] < 0:
                continue
            better = best < 0 or scores[f, g, SCORE] > scores[f, best, SCORE]
            tie = best >= 0 and scores[f, g, SCORE] == scores[f, best, SCORE]
            if better or (tie and candidates[f, g, FEATURE] < candidates[f, best, FEATURE]):
                best = g
        chosen[f] = best


@kernel
def split_nodes(tree: Any, nodes: Any, candidates: Any, chosen: Any, rules: Any, stamp: int, children: Any) -> int:
    """Split the open nodes by their candidates, and fill ``children``; returns the number of nodes open next."""
    K = tree.counts.shape[1]
    thresholds = candidates[:, :, :2].view(np.float64)
    n = 0
    for f in range(len(nodes)):
        g, node = chosen[f], nodes[f]
        if g < 0:
            continue
        left, right = split_node(tree, node, candidates[f, g, FEATURE], thresholds[f, g, THRESHOLD])
        tree.nodes[node].missing = candidates[f, g, MISSING]
        for k in range(K):
            tree.counts[left, k] = candidates[f, g, LEFT + k]
            tree.counts[right, k] = tree.counts[node, k] - tree.counts[left, k]
            children.size_left[f] += tree.counts[left, k]
        for k in range(tree.sums.shape[1]):
            tree.sums[left, k] = candidates[f, g, LEFT + K + k]
            tree.sums[right, k] = tree.sums[node, k] - tree.sums[left, k]
        start_children(tree, node, stamp, rules)
        if not stays_leaf(tree, left, rules):
            children.keep[f] |= KEEP_LEFT
            children.left[f], children.below[n] = n, left
            n += 1
        if not stays_leaf(tree, right, rules):
            children.keep[f] |= KEEP_RIGHT
            children.right[f], children.below[n] = n, right
            n += 1
    return n


@kernel
def send_rows(tree: Any, members: Any, level: Any, shards: Any, words: Any, children: Any, sides: Any) -> None:
    """Send every row of the open nodes one level down, and gather the sides of all in ``sides``.

    Brings ``level.node_of`` up to date. ``shards`` is the shard whose split each open node has, -1 of a node that is
    not split; ``words``, shape (shards, words), has the sides by each shard.
    """
    sides[:] = 0
    nodes, slots, node_of = level.nodes, level.slots, level.node_of
    for i in range(len(node_of)):
        f = node_of[i]
        if f < 0:
            continue
        if shards[f] < 0:
            link(tree, members, nodes[f], slots[i])
            node_of[i] = -1
            continue
        bit = (words[shards[f], i >> 6] >> (i & 63)) & 1
        sides[i >> 6] |= np.int64(bit) << (i & 63)
        node_of[i] = children.right[f] if bit else children.left[f]
        if node_of[i] < 0:
            link(tree, members, np.int64(tree.nodes[nodes[f]].right if bit else tree.nodes[nodes[f]].left), slots[i])


def split_reply(
    replies: list[npt.NDArray[np.int64]], groups: list[int], n_open: int, words: int, rows: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Candidates of all groups, with ``words`` of counts and sums, the shard of each, and the sides of each shard."""
    width = LEFT + words
    candidates = [
        reply[: n_open * count * width].reshape(n_open, count, width)
        for reply, count in zip(replies, groups, strict=True)
    ]
    sides = np.stack([reply[len(reply) - side_words(rows) :] for reply in replies])
    shard_of = np.repeat(np.arange(len(replies)), groups)
    return np.ascontiguousarray(np.concatenate(candidates, axis=1)), shard_of, sides
