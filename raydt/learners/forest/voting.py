"""Votes of leaves, of a shard's trees and of a saved model: whole numbers, which add up in any order."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel
from raydt.arrays.types import Ints
from raydt.learners.forest.weighted_labels import PLAIN, floor_mean, floor_means
from raydt.trees.records import goes_left

#: A share of a class is counted in parts of 2**-40.
SHARE_BITS = 40
_HALF_BITS = SHARE_BITS // 2
#: From so many rows (units of weights) on, shares are counted 10 bits at a time: 20 do not fit any more.
_WIDE = 1 << 43


@inner_kernel
def add_vote(totals: Any, node: int, numeric: bool, votes: Any) -> None:
    """Add the vote of a leaf; of numbers ``votes`` are the sum and how many trees it has. A leaf without rows has none.

    Of n rows, class k gets ``floor(2**40 c_k / n)``; of numbers the vote is ``floor(sum / n)`` in units.
    """
    if numeric:
        n = totals[node, 0]
        if n > 0:
            votes[0] += totals[node, 1] // n if totals.shape[1] == PLAIN else floor_mean(totals[node])
            votes[1] += 1
        return
    n = np.int64(0)
    for k in range(totals.shape[1]):
        n += totals[node, k]
    if n >= _WIDE:  # sums of weights
        for k in range(totals.shape[1]):
            share, rest = np.int64(0), totals[node, k]
            for _ in range(4):
                share, rest = (share << 10) + (rest << 10) // n, (rest << 10) % n
            votes[k] += share
    elif n > 0:
        for k in range(totals.shape[1]):
            if totals[node, k]:
                parts = totals[node, k] << _HALF_BITS  # in two steps: 2**40 c_k overflows from 2**23 rows on
                whole = parts // n
                votes[k] += (whole << _HALF_BITS) + ((parts - whole * n) << _HALF_BITS) // n


def leaf_votes(totals: Ints, numeric: bool) -> Ints:
    """The votes of leaves, shape (leaves, K) or, of numbers, (leaves, 2), as :func:`add_vote` counts them."""
    if numeric:
        return np.stack([floor_means(totals), (totals[:, 0] > 0).astype(np.int64)], axis=1)
    n = totals.sum(axis=1)
    some = np.maximum(n, 1)
    if n.max(initial=0) >= _WIDE:
        share, rest = np.zeros_like(totals), totals
        for _ in range(4):
            share, rest = (share << 10) + (rest << 10) // some[:, None], (rest << 10) % some[:, None]
        return share
    parts = totals << _HALF_BITS
    whole = parts // some[:, None]
    votes: Ints = (whole << _HALF_BITS) + ((parts - whole * some[:, None]) << _HALF_BITS) // some[:, None]
    return votes


@inner_kernel
def vote(forest: Any, row: Any, examples: Any, numeric: bool, votes: Any) -> None:
    """Add the votes of all trees of a shard for a row. O(trees depth)."""
    nodes, categorical = forest.nodes, examples.categorical
    for tree in range(len(forest.roots)):
        node = np.int64(forest.roots[tree])
        j = nodes[node].feature
        while j >= 0:
            left = goes_left(row[j], nodes[node].threshold, categorical[j])
            node = np.int64(nodes[node].left) if left else np.int64(nodes[node].right)
            j = nodes[node].feature
        add_vote(forest.totals, node, numeric, votes)
