"""The best candidate of a node: scores of integer counts, and the total order on candidates."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel
from raydt.learners.forest.node_pool import list_classes, mass_at
from raydt.learners.forest.weighted_labels import weighted_lack


@inlined_kernel
def lack_of(left: int, n_left: int, total: int, n: int) -> float:
    """``left n - n_left total`` of sums of numeric labels, up to 2**62, rounded once from the exact difference."""
    above = (left >> 32) * n - n_left * (total >> 32)
    below = (left & 0xFFFFFFFF) * n - n_left * (total & 0xFFFFFFFF)
    above += below >> 32
    lack: float = np.float64(above) * 4294967296.0 + np.float64(below & 0xFFFFFFFF)
    return lack


@inlined_kernel
def weighted_squares(left: Any, n_left: int, totals: Any, n: int, classes: Any) -> float:
    """The sum over some classes of the squares of :func:`class_squares`, where counts are weights in units.

    These are up to 2**43 a node, so that only a float64 has room. Each difference is taken between the sides,
    l_k n_right - n_left r_k, whose products are rounded once: exact, and so 2**32 times that of repeated rows, where
    all weights are whole, and of the same size for both sides always.
    """
    squares = 0.0
    for m in range(len(classes)):
        own, all_own = left[m], totals[classes[m]]
        lack = np.float64(own) * np.float64(n - n_left) - np.float64(n_left) * np.float64(all_own - own)
        squares += lack * lack
    return squares


@inlined_kernel
def class_squares(left: Any, n_left: int, totals: Any, n: int, classes: Any) -> float:
    """The sum over some classes of (n l_k - n_left c_k)^2: each difference is an exact integer."""
    squares = 0.0
    for m in range(len(classes)):
        lack = np.float64(left[m] * n - n_left * totals[classes[m]])
        squares += lack * lack
    return squares


@inlined_kernel
def best_of_two(forest: Any, node: int, block: int, examples: Any, zero: int, one: int) -> Any:
    """As :func:`best_of`, of rows of two classes: nothing is kept in memory on the way."""
    blocks, n, ones = forest.blocks, np.int64(forest.nodes[node].n), forest.totals[node, one]
    best, feature, threshold = -1.0, np.int64(-1), 0.0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j_feature = np.int64(tried.feature)
        category = examples.categorical[j_feature]
        n_left = on_left = np.int64(0)
        for j in range(tried.used):
            counted = np.int64(blocks.buckets[block, place, j, one])
            rows = counted + np.int64(blocks.buckets[block, place, j, zero])
            on_left = counted if category else on_left + counted
            n_left = rows if category else n_left + rows
            score = -1.0
            if 0 < n_left < n:
                lack = np.float64(on_left * n - n_left * ones)  # both differences are of one size
                score = (lack * lack + lack * lack) / np.float64(n_left * (n - n_left))
            if score > best or (score == best and score >= 0.0 and j_feature < feature):
                best, feature, threshold = score, j_feature, blocks.cuts[block, place, j]
    return feature, threshold


@inlined_kernel
def best_of(forest: Any, node: int, block: int, examples: Any, scratch: Any, rules: Any) -> Any:
    """The best candidate of a node: feature (-1: none) and threshold. O(P S K).

    The greatest score; of equals the smaller feature, of one feature the candidate that comes first.

    The score of a split of n rows is the sum over the classes of (n l_k - n_left c_k)^2, over n_left n_right: the
    decrease of the Gini index times n^2. Of numbers the same of their sums, instead of the counts of a class. What
    follows an exact integer are the same float64 operations everywhere: classes are added up in the order of their
    labels, not of their codes, and one without rows, which would add 0, is passed over.
    """
    classes, many = scratch.column.classes, np.int64(forest.blocks.buckets.shape[3])  # columns of numbers
    if not rules.numeric:
        many = list_classes(forest, node, classes)
        if many == 2 and rules.unit == 1:
            of_two: Any = best_of_two(forest, node, block, examples, classes[0], classes[1])
            return of_two
    blocks, left, n, totals = forest.blocks, scratch.left, mass_at(forest, node, rules), forest.totals[node]
    some, best, feature, threshold = classes[:many], -1.0, np.int64(-1), 0.0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j_feature = np.int64(tried.feature)
        category = examples.categorical[j_feature]
        n_left = np.int64(0)
        for m in range(many):
            left[m] = 0
        for j in range(tried.used):
            if category:
                n_left = np.int64(0)
            for m in range(many):
                counted = np.int64(blocks.buckets[block, place, j, m if rules.numeric else classes[m]])
                left[m] = counted if category else left[m] + counted
                n_left += counted
            if rules.numeric:
                n_left = left[0]
            score = -1.0
            if 0 < n_left < n:
                if rules.numeric:
                    lack = weighted_lack(left, totals) if rules.unit > 1 else lack_of(left[1], n_left, totals[1], n)
                    squares = lack * lack
                elif rules.unit > 1:
                    squares = weighted_squares(left, n_left, totals, n, some)
                else:
                    squares = class_squares(left, n_left, totals, n, some)
                parted = (
                    np.float64(n_left) * np.float64(n - n_left) if rules.unit > 1 else np.float64(n_left * (n - n_left))
                )
                score = squares / parted
            if score > best or (score == best and score >= 0.0 and j_feature < feature):
                best, feature, threshold = score, j_feature, blocks.cuts[block, place, j]
    return feature, threshold
