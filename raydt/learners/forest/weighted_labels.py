"""Sums of numeric labels of rows that have weights: what nodes and buckets have in place of n and the sum of labels.

A sum of w y, of up to 2**77, does not fit into 64 bits. So a label y in units is ``upper 2**20 + lower`` with lower
below 2**20, and a node has W, A and B, the sums of w, of w upper and of w lower. They commute and undo as any sums do.
Labels that are rounded to 20 bits have lower = 0, and A is the sum of w y in units of 2**20.

``totals`` of a node have W, A, B; then, of rows that count 1 each, the squares of labels in two words and their sum:
whether all labels are equal does not depend on weights, and these are what is left once all weights are 1 again.
A bucket has W, A, B only.

Invariant: up to ``MOST_WEIGHT`` units all sums are exact, and a difference that decides is rounded once. If weights are
whole numbers it is 2**32 times the one of repeated rows, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel
from raydt.arrays.types import AnyArray, Floats, Ints
from raydt.examples.weights import BITS, UNIT
from raydt.learners.forest.label_scale import COARSE_BITS, MOST_NUMBERS
from raydt.trees.exact_products import difference_words, rounded_words

#: Largest sum of weights in units: that of as many rows of weight 1 as a forest may have.
MOST_WEIGHT = MOST_NUMBERS << BITS
#: Columns of ``totals`` without weights (n, sum, squares in two words) and with them; the latter's first are those of a
#: bucket and of a model.
PLAIN, WEIGHTED, SUMS = 4, 6, 3
_LOWER = (1 << COARSE_BITS) - 1


@inlined_kernel
def add_weighted(sums: Any, y: int, by: int) -> None:
    """Add a label to W, A and B; a negative weight takes it away."""
    sums[0] += by
    sums[1] += by * (y >> COARSE_BITS)
    sums[2] += by * (y & _LOWER)


@inlined_kernel
def floor_mean(sums: Any) -> int:
    """``floor(sum of w y / W)`` in units, of a node that is not empty."""
    n, upper = sums[0], sums[1]
    whole = upper // n
    mean: int = (whole << COARSE_BITS) + (((upper - whole * n) << COARSE_BITS) + sums[2]) // n
    return mean


def floor_means(totals: Ints) -> Ints:
    """:func:`floor_mean` of each of some nodes, shape (nodes,), with weights or without; 0 of an empty one."""
    n, some = totals[:, 0], np.maximum(totals[:, 0], 1)
    if totals.shape[1] == PLAIN:
        return np.where(n > 0, totals[:, 1] // some, 0)
    whole = totals[:, 1] // some
    rest = ((totals[:, 1] - whole * some) << COARSE_BITS) + totals[:, 2]
    return np.where(n > 0, (whole << COARSE_BITS) + rest // some, 0)


def label_sums(totals: AnyArray) -> Floats:
    """Sums of labels in units, shape (nodes,), of totals with weights or without."""
    sums: Floats = totals[:, 1].astype(np.float64)
    return sums if totals.shape[1] == PLAIN else sums * 2.0**COARSE_BITS + totals[:, 2]


@inner_kernel
def weighted_lack(left: Any, totals: Any) -> float:
    """``W times the sum on the left - W on the left times the sum``: an integer below 2**113, rounded once."""
    n, n_left = totals[0], left[0]
    upper, upper_rest = difference_words(left[1], n, n_left, totals[1])
    lower, lower_rest = difference_words(left[2], n, n_left, totals[2])
    # upper 2**68 + upper_rest 2**20 + lower 2**48 + lower_rest, in units of 2**60 and the rest
    rest = ((upper_rest & 0xFFFFFFFFFF) << 20) + ((lower & 0xFFF) << 48) + lower_rest
    high = (upper << 8) + (upper_rest >> 40) + (lower >> 12) + (rest >> 60)
    lack: float = rounded_words(high, rest & 0xFFFFFFFFFFFFFFF)
    return lack


def weighed_sums(sums: Ints) -> Ints:
    """W, A and B, shape (..., 3), of n and sums of labels, shape (..., 2), of rows that have had no weights."""
    n, total = sums[..., 0], sums[..., 1]
    return np.stack([n, total >> COARSE_BITS, total & _LOWER], axis=-1) * UNIT


def canonical_sums(totals: Ints) -> Ints:
    """W, A and B with B from 0 to below 2**20, shape (nodes, 3): the same for equal sums."""
    n, upper, lower = totals[:, :SUMS].T
    return np.stack([n, upper + (lower >> COARSE_BITS), lower & _LOWER], axis=1)
