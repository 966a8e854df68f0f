"""One example at a time, where coordinator and shard are in one process: a compiled call for each.

The kernels of a window do the same in passes: walk, count, settle. Nothing here checks or splits a leaf, renews bins or
compares trials; an example that makes one of these due is taken as a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.batches.binning import code_of
from raydt.learners.confidence_tree.normal_bayes import score_normal
from raydt.learners.confidence_tree.prediction import (
    MAJORITY,
    MAJORITY_RIGHT,
    NAIVE_RIGHT,
    NORMAL,
    NORMAL_RIGHT,
    chosen,
    naive_class,
    tally,
)
from raydt.learners.confidence_tree.statistics import count_dense, score_dense
from raydt.trees.records import count_path, link, majority, route, total, unlink


@inlined_kernel
def _encode(held: Any, bins: Any, X: Any, slot: int) -> None:
    """Find the bins of the first row of ``X``."""
    for j in range(X.shape[1]):
        held.codes[slot, j] = code_of(X[0, j], bins, j)


@inlined_kernel
def _majority_at(tree: Any, leaf: int) -> int:
    """Majority of a leaf or, where it has no examples, of the nearest node above that has some."""
    node = leaf
    while total(tree.counts, node) == 0 and tree.nodes[node].parent >= 0:
        node = np.int64(tree.nodes[node].parent)
    best: int = majority(tree.counts, node)
    return best


@kernel
def class_of(tree: Any, categorical: Any, rows: Any, held: Any, bins: Any, naive: Any, adaptive: bool) -> int:
    """Class that the tree predicts for a row, whose bins go into slot 0: the codes of ``held`` are scratch.

    ``naive`` has room for one score, shape (1, K); a table of length 0 is that of a tree whose leaves predict the
    majority. O(depth + d K).
    """
    leaf = route(tree, categorical, rows, np.int64(0))
    best: int = np.int64(_majority_at(tree, leaf))
    if len(naive.table) == 0 or total(tree.own, leaf) == 0:
        return best
    choice = chosen(tree.nodes[leaf], adaptive, len(naive.found_normal) > 0)
    if choice == MAJORITY:
        return best
    _encode(held, bins, rows.X, np.int64(0))
    site = np.int64(tree.nodes[leaf].site)
    score_dense(held, naive, site, np.int64(0), naive.found[0])
    if choice == NORMAL:
        score_normal(held, naive, site, np.int64(0), naive.found[0], naive.found_normal[0])
        best = np.int64(naive_class(tree.own[leaf], naive.found_normal[0], naive.table))
    else:
        best = np.int64(naive_class(tree.own[leaf], naive.found[0], naive.table))
    return best


@kernel
def learn(
    tree: Any, examples: Any, right: Any, X: Any, held: Any, bins: Any, naive: Any, leaf: int, slot: int, adaptive: bool
) -> None:
    """Take a new example, whose class and birth are known, into a leaf at which no check is due. O(depth + d K)."""
    _encode(held, bins, X, slot)
    label, site = np.int64(examples.y[slot]), np.int64(tree.nodes[leaf].site)
    if adaptive:  # who was right is asked before the example is counted
        score_dense(held, naive, site, slot, naive.found[0])
        most = np.int64(_majority_at(tree, leaf))
        k = np.int64(naive_class(tree.own[leaf], naive.found[0], naive.table))
        who = (MAJORITY_RIGHT if most == label else 0) | (NAIVE_RIGHT if (most if k < 0 else k) == label else 0)
        if len(naive.found_normal):
            score_normal(held, naive, site, slot, naive.found[0], naive.found_normal[0])
            k = np.int64(naive_class(tree.own[leaf], naive.found_normal[0], naive.table))
            who |= NORMAL_RIGHT if (most if k < 0 else k) == label else 0
        right[slot] = who
        tally(tree, leaf, 2 * examples.born[slot] + 1, who, 1)
    count_path(tree, leaf, label, 1)
    link(tree, examples.members, leaf, slot)
    tree.own[leaf, label] += 1
    tree.nodes[leaf].since += 1
    count_dense(held, site, slot, 1, label)


@kernel
def forget(tree: Any, examples: Any, right: Any, held: Any, slot: int, adaptive: bool) -> None:
    """Take a live example out of its leaf. O(depth + d)."""
    leaf, label, stamp = np.int64(examples.members[slot].leaf), np.int64(examples.y[slot]), 2 * examples.born[slot] + 1
    if adaptive:
        tally(tree, leaf, stamp, np.int64(right[slot]), -1)
    count_path(tree, leaf, label, -1)
    unlink(tree, examples.members, slot)
    if stamp > tree.nodes[leaf].created:  # a leaf has never counted what was there before it
        tree.own[leaf, label] -= 1
        count_dense(held, np.int64(tree.nodes[leaf].site), slot, -1, label)
