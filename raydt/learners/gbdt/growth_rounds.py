"""The steps of growing trees that several shards take together, each driven by a round of the coordinator.

Invariant: a split, made or ahead, changes the leaves of the request only. The trees are changed at the end, by the
splits that the coordinator has made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import kernel
from raydt.learners.gbdt.growth import copy_sums, open_roots, put_split, search_children, sides_of, split_leaf
from raydt.learners.gbdt.split_search import FEATURE

#: A leaf to split: its job, its number, and the sums of its left side.
STEP = np.dtype([("job", np.int64), ("leaf", np.int64), ("left_G", np.int64), ("left_H", np.int64)])


@kernel
def open_all(growth: Any, sums: Any) -> None:
    """Open the roots of all jobs; ``sums`` are the histograms of the trees."""
    for job in range(len(growth.jobs.tree)):
        open_roots(growth, job, sums)


@kernel
def split_each(growth: Any, steps: Any, on_left: Any, children: Any) -> None:
    """Split some open leaves (``STEP``); ``children``, shape (steps, 2), takes the left and right child of each.

    ``on_left`` has a bool for each row of these leaves, one leaf after the other.
    """
    used = 0
    for i in range(len(steps)):
        step = steps[i]
        e = step.leaf
        n = growth.leaves.leaf[e].end - growth.leaves.leaf[e].begin
        left = split_leaf(growth, step.job, e, on_left[used : used + n], step.left_G, step.left_H)
        search_children(growth, step.job, e)
        children[i, 0], children[i, 1] = left, left + 1
        used += n


@kernel
def sides(growth: Any, which: Any, out: Any) -> None:
    """Which rows of some leaves their best splits send to the left, one leaf after the other, into ``out`` (bool)."""
    used = 0
    for e in which:
        n = growth.leaves.leaf[e].end - growth.leaves.leaf[e].begin
        if growth.leaves.found[e, FEATURE] >= 0:
            sides_of(growth, e, out[used : used + n])
        used += n


@kernel
def keep_splits(growth: Any, splits: Any, histogram: Any, nodes: Any) -> None:
    """Put the splits that were made (``SPLIT``) into the trees.

    ``histogram``, shape (leaves,), has the number of the histogram that the trees keep of a leaf, -1 for none. That
    of a leaf that was split is the sum of its children's: the pool is rolled back to before each split.
    """
    jobs, leaves, pool = growth.jobs, growth.leaves, growth.pool
    for i in range(len(splits)):
        put_split(nodes, jobs.tree[splits[i].job], splits[i])
    for job in range(len(jobs.tree)):
        first = leaves.first[job]
        for e in range(first + leaves.opened[job] - 1, first - 1, -1):
            leaf = leaves.leaf[e]
            sums, left = pool[leaf.histogram], leaf.left
            if left >= 0:
                small = left if leaves.leaf[left].histogram != leaf.histogram else left + 1
                less = pool[leaves.leaf[small].histogram]
                for s in range(len(sums)):
                    sums[s, 0] += less[s, 0]
                    sums[s, 1] += less[s, 1]
            if histogram[e] >= 0:
                copy_sums(sums, nodes.sums[jobs.tree[job], histogram[e]])
