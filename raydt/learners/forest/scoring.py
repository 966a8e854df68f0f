"""The best candidate of a node: scores of integer counts, and the total order on candidates."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel
from raydt.learners.forest.node_pool import mass_at


@inlined_kernel
def lack_of(left: int, n_left: int, total: int, n: int) -> float:
    """``left n - n_left total`` of sums of numeric labels, up to 2**62, rounded once from the exact difference."""
    above = (left >> 32) * n - n_left * (total >> 32)
    below = (left & 0xFFFFFFFF) * n - n_left * (total & 0xFFFFFFFF)
    above += below >> 32
    lack: float = np.float64(above) * 4294967296.0 + np.float64(below & 0xFFFFFFFF)
    return lack


@inlined_kernel
def weighted_score(left: Any, n_left: int, totals: Any, n: int, order: Any) -> float:
    """As :func:`score_of`, where counts are weights in units: up to 2**43 a node, so that only a float64 has room.

    Each difference is taken between the sides, l_k n_right - n_left r_k, whose products are rounded once: exact, and so
    2**32 times that of repeated rows, where all weights are whole, and of the same size for both sides always.
    """
    n_right = n - n_left
    if n_left <= 0 or n_right <= 0:
        return -1.0
    squares = 0.0
    for place in range(len(left)):
        k = order[place]
        lack = np.float64(left[k]) * np.float64(n_right) - np.float64(n_left) * np.float64(totals[k] - left[k])
        squares += lack * lack
    score: float = squares / (np.float64(n_left) * np.float64(n_right))
    return score


@inlined_kernel
def score_of(left: Any, n_left: int, totals: Any, n: int, numeric: bool, order: Any) -> float:
    """The score of a split of n rows, the larger the better; -1 if it does not part them.

    Classes are added up in the order of their labels, not of their codes: a class without rows adds 0, so that the sum
    depends on the rows alone.

    The sum over the classes of (n l_k - n_left c_k)^2, over n_left n_right: the decrease of the Gini index times n^2.
    Of numbers the same of their sums, instead of the counts of a class. Each difference is an exact integer; what
    follows are the same float64 operations everywhere.
    """
    n_right = n - n_left
    if n_left <= 0 or n_right <= 0:
        return -1.0
    if numeric:
        lack = lack_of(left[1], n_left, totals[1], n)
        squares = lack * lack
    elif len(left) == 2:  # both differences are of one size
        lack = np.float64(left[1] * n - n_left * totals[1])
        squares = lack * lack + lack * lack
    else:
        squares = 0.0
        for place in range(len(left)):
            k = order[place]
            lack = np.float64(left[k] * n - n_left * totals[k])
            squares += lack * lack
    score: float = squares / np.float64(n_left * n_right)
    return score


@inlined_kernel
def best_of_two(forest: Any, node: int, block: int, examples: Any) -> Any:
    """As :func:`best_of`, of two classes: nothing is kept in memory on the way."""
    blocks, n, ones = forest.blocks, np.int64(forest.nodes[node].n), forest.totals[node, 1]
    best, feature, threshold = -1.0, np.int64(-1), 0.0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j_feature = np.int64(tried.feature)
        category = examples.categorical[j_feature]
        n_left = on_left = np.int64(0)
        for j in range(tried.used):
            counted = np.int64(blocks.buckets[block, place, j, 1])
            rows = counted + np.int64(blocks.buckets[block, place, j, 0])
            on_left = counted if category else on_left + counted
            n_left = rows if category else n_left + rows
            score = -1.0
            if 0 < n_left < n:
                lack = np.float64(on_left * n - n_left * ones)
                score = (lack * lack + lack * lack) / np.float64(n_left * (n - n_left))
            if score > best or (score == best and score >= 0.0 and j_feature < feature):
                best, feature, threshold = score, j_feature, blocks.cuts[block, place, j]
    return feature, threshold


@inlined_kernel
def best_of(forest: Any, node: int, block: int, examples: Any, scratch: Any, rules: Any) -> Any:
    """The best candidate of a node: feature (-1: none) and threshold. O(P S K).

    The greatest score; of equals the smaller feature, of one feature the candidate that comes first.
    """
    if not rules.numeric and forest.totals.shape[1] == 2 and rules.unit == 1:
        of_two: Any = best_of_two(forest, node, block, examples)
        return of_two
    blocks, left, n = forest.blocks, scratch.left, mass_at(forest, node, rules)
    totals, width = forest.totals[node], blocks.buckets.shape[3]
    best, feature, threshold = -1.0, np.int64(-1), 0.0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j_feature = np.int64(tried.feature)
        category = examples.categorical[j_feature]
        n_left = np.int64(0)
        for m in range(width):
            left[m] = 0
        for j in range(tried.used):
            if category:
                n_left = np.int64(0)
            for m in range(width):
                counted = np.int64(blocks.buckets[block, place, j, m])
                left[m] = counted if category else left[m] + counted
                n_left += counted
            if rules.numeric:
                n_left = left[0]
            if rules.unit > 1:
                score = weighted_score(left, n_left, totals, n, forest.order)
            else:
                score = score_of(left, n_left, totals, n, rules.numeric, forest.order)
            if score > best or (score == best and score >= 0.0 and j_feature < feature):
                best, feature, threshold = score, j_feature, blocks.cuts[block, place, j]
    return feature, threshold
