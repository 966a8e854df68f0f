"""AUC of two classes: the probability that an example of the positive class has a higher score than another one.

A score is the share of the positive class where the model holds an example, in steps of 1 / ``LEVELS``. Counting the
examples of either class by level makes the AUC of any stretch of a stream the difference of two tables of integers.

Invariant: pairs within a level count one half, so that the AUC is exact for the scores as they are rounded: the Mann
and Whitney statistic. It differs from that of unrounded scores by at most half the share of pairs within a level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import AnyArray, Int32s, Ints
from raydt.messages import message

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


def ranks_in(state: Mapping[str, Any], name: str) -> Sparse | None:
    """Return a table of which a state has what is not 0; None of one that is whole. ValueError if it cannot be."""
    if f"{name}_places" not in state:
        return None
    places, numbers = np.array(state[f"{name}_places"]), np.array(state[f"{name}_numbers"])
    fits = places.dtype == np.int32 and numbers.dtype == np.int64 and places.ndim == 1 and places.shape == numbers.shape
    ascending_within = fits and (np.diff(places, prepend=-1, append=2 * (LEVELS + 1)) > 0).all()
    if not ascending_within or numbers.min(initial=1) < 1:
        raise ValueError(message("states.impossible", array=name))
    return places, numbers


#: The table without examples.
NONE: Sparse = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)


def is_since(since: Sparse, ranks: Sparse) -> bool:
    """Return True if every example of the table ``since`` is in the later table ``ranks``, too."""
    if not len(since[0]):
        return True
    if not len(ranks[0]):
        return False
    at = np.minimum(np.searchsorted(ranks[0], since[0]), len(ranks[0]) - 1)
    return bool(((ranks[0][at] == since[0]) & (since[1] <= ranks[1][at])).all())


def auc(ranks: Sparse, since: Sparse = NONE, unit: int = 1) -> tuple[float, float]:
    """Return the AUC of the examples that ``ranks`` has in addition to ``since``, and their number.

    Numbers are multiples of ``unit``: products of sums of weights are beyond int64, and are taken as float64. NaN while
    one of the classes has no example. O(levels that occur). Exact up to 2^32 examples that count 1.
    """
    places, places_since = ranks[0], since[0]
    numbers: AnyArray = ranks[1]
    numbers_since: AnyArray = since[1]
    if unit > 1:
        numbers, numbers_since = numbers / unit, numbers_since / unit
    if len(places_since):
        numbers = numbers.copy()
        numbers[np.searchsorted(places, places_since)] -= numbers_since
    negative, positive, wins = _wins(places, numbers)
    return wins / (2 * negative * positive) if negative and positive else math.nan, negative + positive


@kernel
def _wins(places: Any, numbers: Any) -> tuple[float, float, float]:
    """Return examples of either class, and twice the pairs in which the positive one is higher; a tie counts once."""
    end = np.searchsorted(places, LEVELS + 1)  # of the negative ones
    below = positives = wins = none = numbers[:0].sum()  # 0 of the type of the numbers
    at = 0
    for i in range(end, len(places)):
        level = places[i] - (LEVELS + 1)
        while at < end and places[at] < level:
            below += numbers[at]
            at += 1
        equal = numbers[at] if at < end and places[at] == level else none
        wins += numbers[i] * (2 * below + equal)
        positives += numbers[i]
    return below + numbers[at:end].sum(), positives, wins
