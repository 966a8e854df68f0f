"""BUILD spread over shards, one round per tree level: the kernels of both sides and the packed reply.

A shard sorts its columns once, then answers each round with, for every open node and each of its feature
groups, the best split it has; and with one bit per row, the side on which its own best split puts the row.
The coordinator picks the winners by the total order, combines the bits of the winning shards, and sends them
with the next round: no second round is needed to learn the sides.

A reply is one int64 array: ``open * groups * (3 + K)`` words of candidates (bits of the score, bits of the
threshold, feature, class counts on the left), then ``ceil(rows / 64)`` words of sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.fudyadt.split_search import is_constant, mark_sides, partition, scan
from raydt.learners.live_tree import start_node, stays_leaf
from raydt.learners.nodes import link, split_node, threshold_between

#: Words of a candidate before the class counts.
SCORE, THRESHOLD, FEATURE, LEFT = 0, 1, 2, 3
#: Flags of a round: what becomes of the two children of an open node.
KEEP_LEFT, KEEP_RIGHT = 1, 2


def side_words(rows: int) -> int:
    """int64 words that hold one bit per row."""
    return (rows + 63) // 64


@kernel
def find_candidates(
    E: Any,
    bounds: Any,
    X: Any,
    rows: Any,
    columns: Any,
    group_of: Any,
    groups: int,
    categorical: Any,
    node_counts: Any,
    label_bits: int,
    side: Any,
    scratch: Any,
    out: Any,
) -> None:
    """Fill ``out`` (open, groups, 3 + K) with the best split of each group; ``side`` with the shard's own choice.

    Columns ascend over the groups of a shard, so that "the first best" is the total order. O(rows x columns) a level.
    """
    K = node_counts.shape[1]
    left = scratch[0, :K]
    column_of = scratch[1]
    at_of = scratch[2]
    scores = out[:, :, :2].view(np.float64)
    for f in range(len(bounds)):
        first, stop = bounds[f, 0], bounds[f, 1]
        size = stop - first
        for g in range(groups):
            scores[f, g, SCORE] = -1.0
            column_of[g] = -1
        for j in range(len(columns)):
            g = group_of[j]
            best = scores[f, g, SCORE]
            score, at = scan(E, j, first, size, categorical[j], node_counts, f, left, label_bits, best, scratch[3])
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
            threshold = X[rows[(segment[at] & 0xFFFFFFFF) >> label_bits], j]
            if not categorical[j]:
                threshold = threshold_between(threshold, X[rows[(segment[at + 1] & 0xFFFFFFFF) >> label_bits], j])
            scores[f, g, THRESHOLD] = threshold
            out[f, g, FEATURE] = columns[j]
            mark_counts(segment, at, categorical[j], label_bits, left)
            for k in range(K):
                out[f, g, LEFT + k] = left[k]
            if scores[f, g, SCORE] > shard_best:
                shard_best, shard_column, shard_at = scores[f, g, SCORE], j, at
        if shard_column >= 0:
            mark_sides(E, shard_column, first, size, shard_at, categorical[shard_column], label_bits, side, left)


@inner_kernel
def mark_counts(E: Any, at: int, categorical: bool, label_bits: int, left: Any) -> None:
    """Class counts on the left of a split of one segment."""
    mask = (1 << label_bits) - 1
    left[:] = 0
    i = at
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
def next_level(E: Any, bounds: Any, keep: Any, label_bits: int, side: Any, spare: Any, size_left: Any, out: Any) -> int:
    """Partition every open segment and write the bounds of the nodes that stay open; returns their number."""
    n = 0
    for f in range(len(bounds)):
        if keep[f] == 0:
            continue
        first, stop = bounds[f, 0], bounds[f, 1]
        size = stop - first
        left = (keep[f] & KEEP_LEFT) != 0
        right = (keep[f] & KEEP_RIGHT) != 0
        for j in range(E.shape[0]):
            if is_constant(E, j, first, size):
                continue
            partition(E, j, first, size, label_bits, side, spare, left, right)
        middle = first + size_left[f]
        if left:
            out[n, 0], out[n, 1] = first, middle
            n += 1
        if right:
            begin = middle if left else first
            out[n, 0], out[n, 1] = begin, begin + size - size_left[f]
            n += 1
    return n


@kernel
def grow_level(
    tree: Any,
    members: Any,
    nodes: Any,
    candidates: Any,
    shard_of: Any,
    words: Any,
    place: Any,
    slots: Any,
    rules: Any,
    stamp: int,
    sides: Any,
    keep: Any,
    size_left: Any,
    grown: Any,
    scratch: Any,
) -> int:
    """Merge the candidates of one level, split its nodes and send every row one level down.

    Parameters
    ----------
    nodes : ndarray of int64, shape (open,)
    candidates : ndarray of int64, shape (open, all groups, 3 + K)
    shard_of : ndarray of int64, shape (all groups,)
        Shard that answered for each group.
    words : ndarray of int64, shape (shards, words)
    place : ndarray of int32, shape (rows,)
        Open node of each row of this BUILD, -1 once it is in a leaf; updated.
    sides, keep, size_left : arrays to fill for the next round
    grown : ndarray of int64, shape (2 open,)
        Receives the nodes that are open next.
    scratch : ndarray of int64, shape (3, open)

    Returns
    -------
    Number of nodes that are open next.
    """
    K = candidates.shape[2] - LEFT
    scores = candidates[:, :, :2].view(np.float64)
    n_open = len(nodes)
    chosen, to_left, to_right = scratch[0], scratch[1], scratch[2]
    n = 0
    for f in range(n_open):
        node = nodes[f]
        best = -1
        for g in range(candidates.shape[1]):
            if candidates[f, g, FEATURE] < 0:
                continue
            better = best < 0 or scores[f, g, SCORE] > scores[f, best, SCORE]
            tie = best >= 0 and scores[f, g, SCORE] == scores[f, best, SCORE]
            if better or (tie and candidates[f, g, FEATURE] < candidates[f, best, FEATURE]):
                best = g
        keep[f] = 0
        chosen[f] = -1
        if best < 0:  # nothing separates the rows
            continue
        chosen[f] = shard_of[best]
        left, right = split_node(tree, node, candidates[f, best, FEATURE], scores[f, best, THRESHOLD])
        size_left[f] = 0
        for k in range(K):
            tree.counts[left, k] = candidates[f, best, LEFT + k]
            tree.counts[right, k] = tree.counts[node, k] - tree.counts[left, k]
            size_left[f] += tree.counts[left, k]
        start_node(tree, left, stamp, rules)
        start_node(tree, right, stamp, rules)
        to_left[f] = to_right[f] = -1
        if not stays_leaf(tree.counts, left, tree.nodes[left].depth, rules):
            keep[f] |= KEEP_LEFT
            to_left[f] = n
            grown[n] = left
            n += 1
        if not stays_leaf(tree.counts, right, tree.nodes[right].depth, rules):
            keep[f] |= KEEP_RIGHT
            to_right[f] = n
            grown[n] = right
            n += 1
    sides[:] = 0
    for i in range(len(place)):
        f = place[i]
        if f < 0:
            continue
        if chosen[f] < 0:
            link(tree, members, nodes[f], slots[i])
            place[i] = -1
            continue
        bit = (words[chosen[f], i >> 6] >> (i & 63)) & 1
        sides[i >> 6] |= np.int64(bit) << (i & 63)
        place[i] = to_right[f] if bit else to_left[f]
        if place[i] < 0:
            link(tree, members, np.int64(tree.nodes[nodes[f]].right if bit else tree.nodes[nodes[f]].left), slots[i])
    return n


def split_reply(
    replies: list[npt.NDArray[np.int64]], groups: list[int], n_open: int, classes: int, rows: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Candidates of all groups, the shard of each group, and the side words of each shard."""
    width = LEFT + classes
    candidates = [
        reply[: n_open * count * width].reshape(n_open, count, width)
        for reply, count in zip(replies, groups, strict=True)
    ]
    words = np.stack([reply[len(reply) - side_words(rows) :] for reply in replies])
    shard_of = np.repeat(np.arange(len(replies)), groups)
    return np.ascontiguousarray(np.concatenate(candidates, axis=1)), shard_of, words
