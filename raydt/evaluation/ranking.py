"""AUC of two classes: the probability that an example of the positive class has a higher score than another one.

A score is the share of the positive class where the model holds an example, in steps of 1 / ``LEVELS``. Counting the
examples of either class by level makes the AUC of any stretch of a stream the difference of two tables of integers.

Invariant: pairs within a level count one half, so that the AUC is exact for the scores as they are rounded: the Mann
and Whitney statistic. It differs from that of unrounded scores by at most half the share of pairs within a level.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import AnyArray, Int32s, Ints

#: Steps of a score.
LEVELS = 1 << 12

#: The level of a prediction without a score.
NO_LEVEL = np.uint16(np.iinfo(np.uint16).max)

Levels = npt.NDArray[np.uint16]


def levels_of(positive: AnyArray, total: AnyArray, of_nothing: int) -> Levels:
    """Return the level of each share ``positive / total``, rounded half up; ``of_nothing`` for 0 / 0."""
    n = np.maximum(total, 1).astype(np.int64)
    level = (2 * LEVELS * positive.astype(np.int64) + n) // (2 * n)
    known: Levels = np.where(total > 0, level, of_nothing).astype(np.uint16)
    return known


def no_ranks(levels: int = 0) -> Ints:
    """Return a table without examples: by class (0: negative, 1: positive) and level, shape (2, levels)."""
    return np.zeros((2, levels), dtype=np.int64)


#: What is not 0 in a table of ranks: places and numbers.
Sparse = tuple[Int32s, Ints]


def sparse_ranks(ranks: Ints) -> Sparse:
    """Return what is not 0 in a table, as places in it, one class after the other, and numbers."""
    flat = ranks.reshape(-1)
    places = np.flatnonzero(flat)
    return places.astype(np.int32), flat[places]


def dense_ranks(sparse: Sparse) -> Ints:
    """Return the table of :func:`sparse_ranks`."""
    ranks = no_ranks(LEVELS + 1)
    ranks.reshape(-1)[sparse[0]] = sparse[1]
    return ranks


def auc(ranks: AnyArray, since: AnyArray) -> tuple[float, float]:
    """Return the AUC of the examples that ``ranks`` has in addition to ``since``, and their number.

    NaN while one of the classes has no example. O(LEVELS). Exact up to 2^32 examples; sums of weights are float64.
    """
    negative, positive, wins = _wins(ranks, since)
    return wins / (2 * negative * positive) if negative and positive else math.nan, negative + positive


@kernel
def _wins(ranks: Any, since: Any) -> tuple[float, float, float]:
    """Return examples of either class, and twice the pairs in which the positive one is higher; a tie counts once."""
    below = positives = wins = 0
    for level in range(ranks.shape[1]):
        negative, positive = ranks[0, level] - since[0, level], ranks[1, level] - since[1, level]
        wins += positive * (2 * below + negative)
        below += negative
        positives += positive
    return below, positives, wins
