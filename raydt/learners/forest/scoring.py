"""The best candidate of a node: scores of integer counts, and the total order on candidates."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel
from raydt.learners.forest.node_pool import listed_by_class, mass_of

#: If a < b c SURELY_LESS, of float64 numbers from 0 on, then a / c is less than b also when all is rounded: the factor
#: is 8 units of roundoff below 1, and a product or quotient errs by one. So most candidates need no division.
SURELY_LESS = 1.0 - 2.0**-50


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
    """As :func:`best_of_classes` scores a split, where counts are weights: 2**43 units a node need a float64's room.

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
def number_score(left: Any, n_left: int, totals: Any, n: int) -> float:
    """As :func:`best_of_classes` scores a split, of the sums of n numeric labels; -1 if it does not part them."""
    n_right = n - n_left
    if n_left <= 0 or n_right <= 0:
        return -1.0
    lack = lack_of(left[1], n_left, totals[1], n)
    score: float = lack * lack / np.float64(n_left * n_right)
    return score


@inlined_kernel
def best_of_two(forest: Any, node: int, block: int, examples: Any, scratch: Any) -> Any:
    """As :func:`best_of_classes`, of two classes, whose differences are of one size: all stays in registers."""
    blocks, n, ones = forest.blocks, np.int64(forest.nodes[node].n), scratch.present[1, 1]
    a, b = scratch.present[0, 0], scratch.present[0, 1]
    best, feature, threshold = -1.0, np.int64(-1), 0.0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j_feature = np.int64(tried.feature)
        category = examples.categorical[j_feature]
        counts, cuts, n_left, on_left = (
            blocks.buckets[block, place],
            blocks.cuts[block, place],
            np.int64(0),
            np.int64(0),
        )
        for j in range(tried.used):
            counted = np.int64(counts[j, b])
            rows = counted + np.int64(counts[j, a])
            on_left = counted if category else on_left + counted
            n_left = rows if category else n_left + rows
            if 0 < n_left < n:
                lack = np.float64(on_left * n - n_left * ones)
                squares, product = lack * lack + lack * lack, np.float64(n_left * (n - n_left))
                if squares < best * product * SURELY_LESS:
                    continue
                score = squares / product
                if score > best or (score == best and j_feature < feature):
                    best, feature, threshold = score, j_feature, cuts[j]
    return feature, threshold


@inlined_kernel
def best_of_classes(forest: Any, node: int, block: int, examples: Any, scratch: Any) -> Any:
    """As :func:`best_of`, of rows that each count 1 for a class. O(P S) times the classes that the node has.

    The score of a split: the sum over the classes of (n l_k - n_left c_k)^2, over n_left n_right: the decrease of the
    Gini index times n^2. Each difference is an exact integer; what follows are the same float64 operations everywhere.
    Classes are added up in the order of their labels, not of their codes. A class without rows adds 0: it is left out.
    """
    blocks, n, left = forest.blocks, np.int64(forest.nodes[node].n), scratch.left
    present, here, classes = scratch.present[0], scratch.present[1], 0
    for place in range(forest.totals.shape[1]):
        k = forest.order[place]
        if forest.totals[node, k] > 0:
            present[classes], here[classes] = k, forest.totals[node, k]
            classes += 1
    if classes == 2:
        of_two: Any = best_of_two(forest, node, block, examples, scratch)
        return of_two
    best, feature, threshold = -1.0, np.int64(-1), 0.0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j_feature = np.int64(tried.feature)
        category = examples.categorical[j_feature]
        counts, cuts = blocks.buckets[block, place], blocks.cuts[block, place]
        for m in range(classes):
            left[m] = 0
        for j in range(tried.used):
            n_left = np.int64(0)
            for m in range(classes):
                counted = np.int64(counts[j, np.uint32(present[m])])
                left[m] = counted if category else left[m] + counted
                n_left += left[m]
            if 0 < n_left < n:
                squares, product = 0.0, np.float64(n_left * (n - n_left))
                for m in range(classes):
                    lack = np.float64(left[m] * n - n_left * here[m])
                    squares += lack * lack
                if squares < best * product * SURELY_LESS:
                    continue
                score = squares / product
                if score > best or (score == best and j_feature < feature):
                    best, feature, threshold = score, j_feature, cuts[j]
    return feature, threshold


@inlined_kernel
def best_of(forest: Any, node: int, block: int, examples: Any, scratch: Any, rules: Any) -> Any:
    """The best candidate of a node: feature (-1: none) and threshold. O(P S K).

    The greatest score; of equals the smaller feature, of one feature the candidate that comes first.
    """
    if listed_by_class(rules):
        of_classes: Any = best_of_classes(forest, node, block, examples, scratch)
        return of_classes
    blocks, left, n = forest.blocks, scratch.left, mass_of(forest, node, rules)
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
                score = number_score(left, n_left, totals, n)
            if score > best or (score == best and score >= 0.0 and j_feature < feature):
                best, feature, threshold = score, j_feature, blocks.cuts[block, place, j]
    return feature, threshold
