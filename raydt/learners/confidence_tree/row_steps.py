"""One example at a time, where coordinator and shard are in one process: a compiled call for each.

The kernels of a window do the same in passes: walk, count, settle. Nothing here splits a leaf, renews bins or compares
trials: the coordinator checks the leaf that is due, and an example that makes the others due is taken as a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.batches.binning import code_of
from raydt.learners.confidence_tree.normal_bayes import score_normal
from raydt.learners.confidence_tree.prediction import (
    INHERITED,
    INHERITED_RIGHT,
    MAJORITY,
    MAJORITY_RIGHT,
    NAIVE,
    NAIVE_RIGHT,
    NORMAL_RIGHT,
    chosen,
    naive_class,
    tally,
)
from raydt.learners.confidence_tree.statistics import count_dense, score_dense
from raydt.learners.confidence_tree.tree import is_mixed
from raydt.trees.records import count_path, link, majority, route, total, unlink
from raydt.trees.row_search import oldest_equal


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
def class_of(
    tree: Any, categorical: Any, rows: Any, held: Any, bins: Any, naive: Any, adaptive: bool, inherits: bool
) -> int:
    """Class that the tree predicts for a row, whose bins go into slot 0: the codes of ``held`` are scratch.

    ``naive`` has room for one score, shape (1, K), and two normal ones if leaves inherit; a table of length 0 is that
    of a tree whose leaves predict the majority. O(depth + d K).
    """
    leaf = route(tree, categorical, rows, np.int64(0))
    best: int = np.int64(_majority_at(tree, leaf))
    if len(naive.table) == 0 or total(tree.own, leaf) == 0:
        return best
    choice = chosen(tree.nodes[leaf], adaptive, len(naive.found_normal) > 0, inherits)
    if choice == MAJORITY:
        return best
    _encode(held, bins, rows.X, np.int64(0))
    site = np.int64(tree.nodes[leaf].site)
    score_dense(held, naive, site, np.int64(0), naive.found[0], 1)
    if choice == NAIVE:
        best = np.int64(naive_class(tree.own[leaf], naive.found[0], naive.table))
        return best
    of_all = naive.found_normal[1 if inherits else 0]
    if choice == INHERITED:
        score_dense(held, naive, site, np.int64(0), of_all, 2)
    score_normal(held, naive, site, np.int64(0), naive.found[0], naive.found_normal[0], of_all, choice == INHERITED)
    if choice == INHERITED:
        best = np.int64(naive_class(tree.counts[leaf], of_all, naive.table))
    else:
        best = np.int64(naive_class(tree.own[leaf], naive.found_normal[0], naive.table))
    return best


@inlined_kernel
def _who_is_right(tree: Any, held: Any, naive: Any, leaf: int, slot: int, label: int, inherits: bool) -> int:
    """Who is right about an example that its leaf has not counted yet."""
    site, most = np.int64(tree.nodes[leaf].site), np.int64(_majority_at(tree, leaf))
    score_dense(held, naive, site, slot, naive.found[0], 1)
    k = np.int64(naive_class(tree.own[leaf], naive.found[0], naive.table))
    who = (MAJORITY_RIGHT if most == label else 0) | (NAIVE_RIGHT if (most if k < 0 else k) == label else 0)
    if len(naive.found_normal):
        of_all = naive.found_normal[1 if inherits else 0]
        if inherits:
            score_dense(held, naive, site, slot, of_all, 2)
        score_normal(held, naive, site, slot, naive.found[0], naive.found_normal[0], of_all, inherits)
        k = np.int64(naive_class(tree.own[leaf], naive.found_normal[0], naive.table))
        who |= NORMAL_RIGHT if (most if k < 0 else k) == label else 0
        if inherits:
            k = np.int64(naive_class(tree.counts[leaf], of_all, naive.table))
            who |= INHERITED_RIGHT if (most if k < 0 else k) == label else 0
    return who


@kernel
def learn(
    tree: Any, categorical: Any, examples: Any, by_slot: Any, rows: Any, held: Any, bins: Any, naive: Any, rules: Any
) -> int:
    """Take a new example, whose class and birth are known; return its leaf if a check of that is due, else -1.

    ``by_slot``: who was right, and the features, of all examples; ``rules``: slot, grace period, whether leaves are
    adaptive, and whether they inherit. O(depth + d K).
    """
    (right, X), (slot, grace, adaptive, inherits) = by_slot, rules
    for j in range(X.shape[1]):
        X[slot, j] = rows.X[0, j]
    leaf = np.int64(route(tree, categorical, rows, np.int64(0)))
    _encode(held, bins, rows.X, slot)
    label = np.int64(examples.y[slot])
    if adaptive:
        who = _who_is_right(tree, held, naive, leaf, slot, label, inherits)
        right[slot] = who
        tally(tree, leaf, 2 * examples.born[slot] + 1, who, 1)
    count_path(tree, leaf, label, 1)
    link(tree, examples.members, leaf, slot)
    tree.own[leaf, label] += 1
    tree.nodes[leaf].since += 1
    count_dense(held, np.int64(tree.nodes[leaf].site), slot, 1, label)
    due: int = np.int64(-1)
    if tree.nodes[leaf].since >= grace:
        tree.nodes[leaf].since = 0
        if is_mixed(tree.own, leaf):
            due = leaf
    return due


@kernel
def find(tree: Any, categorical: Any, examples: Any, X: Any, rows: Any, code: int) -> int:
    """Slot of the oldest live example that equals a row and has a class; -1 of none. O(depth + examples x d)."""
    leaf = np.int64(route(tree, categorical, rows, np.int64(0)))
    oldest: int = np.int64(oldest_equal(tree, examples, X, rows.X, leaf, code))
    return oldest


@kernel
def forget(tree: Any, examples: Any, right: Any, held: Any, slot: int, adaptive: bool, inherits: bool) -> None:
    """Take a live example out of its leaf. O(depth + d)."""
    leaf, label, stamp = np.int64(examples.members[slot].leaf), np.int64(examples.y[slot]), 2 * examples.born[slot] + 1
    if adaptive:
        tally(tree, leaf, stamp, np.int64(right[slot]), -1)
    count_path(tree, leaf, label, -1)
    unlink(tree, examples.members, slot)
    site = np.int64(tree.nodes[leaf].site)
    if stamp > tree.nodes[leaf].created:
        tree.own[leaf, label] -= 1
        count_dense(held, site, slot, -1, label)
    elif inherits:
        count_dense(held, site + 1, slot, -1, label)
