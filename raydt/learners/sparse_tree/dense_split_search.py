"""The exact search over dense features of a node that is built: every threshold of a number, every value of a category.

Missing numbers are tried on the right of each threshold, and of an infinite one, and then on its left. A split counts
what is on its right, as a sparse feature counts its ones, so that one score compares all kinds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import Floats
from raydt.finders.scores import score_of
from raydt.trees.counted_tree import TO_LEFT, TO_RIGHT, UNDECIDED
from raydt.trees.masses import mass_of
from raydt.trees.records import threshold_between


@kernel
def _scan(
    entropy: bool,
    table: Any,
    totals: Any,
    values: Any,
    labels: Any,
    masses: Any,
    categorical: bool,
    first: int,
    least: float,
    out: Any,
) -> float:
    """Best cut from place ``first`` on of one sorted column, the smaller of equals: its score, if below ``least``.

    ``totals`` are the counts of all rows and of those of class 1, ``masses`` those of the rows, empty of 1 each.
    ``out`` takes rows and rows of class 1 on its right, and the last place of what is left of it.
    """
    n, c1, rows = totals[0], totals[1], len(values)
    size, size_before = np.int64(0), np.int64(0)
    ones, ones_before = np.int64(0), np.int64(0)
    for i in range(rows):
        mass = mass_of(masses, i)
        size += mass
        ones += mass * labels[i]
        if i < first or (i + 1 < rows and (values[i + 1] == values[i] or values[i] != values[i])):
            continue
        left, left_ones = (size - size_before, ones - ones_before) if categorical else (size, ones)
        if left < n:
            score = score_of(entropy, table, n, c1, n - left, c1 - left_ones)
            if score < least:
                least = score
                out[0], out[1], out[2] = n - left, c1 - left_ones, i
        size_before, ones_before = size, ones
    return least


def totals_of(labels: npt.NDArray[np.int8], masses: npt.NDArray[np.uint32]) -> tuple[int, int]:
    """Counts of rows and of those of class 1."""
    if not len(masses):
        return len(labels), int(labels.sum())
    return int(masses.sum(dtype=np.int64)), int(masses[labels == 1].sum(dtype=np.int64))


def best_cut(
    entropy: bool,
    table: Floats,
    X: Floats,
    kinds: npt.NDArray[np.int8],
    labels: npt.NDArray[np.int8],
    masses: npt.NDArray[np.uint32],
) -> tuple[int, int, int, float, int]:
    """Return the best split by the columns of ``X``, shape (rows, columns): smallest (score, column, side, threshold).

    The result has the column, -1 if none has two values; rows and rows of class 1 on the right; the threshold; and the
    side of missing numbers, of which the right one comes first. ``masses`` are those of the rows, empty of 1 each.
    """
    best, least = (-1, 0, 0, 0.0, UNDECIDED), np.inf
    totals = np.array(totals_of(labels, masses))
    out = np.zeros(3, dtype=np.int64)
    for column, kind in enumerate(kinds):
        order = np.argsort(X[:, column], kind="stable")  # missing numbers come last
        lacking = int(np.isnan(X[:, column]).sum())
        for side in (TO_RIGHT, TO_LEFT) if lacking else (UNDECIDED,):
            if side == TO_LEFT:
                order = np.roll(order, lacking)
            values, first = X[order, column], lacking if side == TO_LEFT else 0
            of_rows = values, labels[order], masses[order] if len(masses) else masses
            score = _scan(entropy, table, totals, *of_rows, bool(kind), first, least, out)
            if score < least:
                n1, c11, last = out.tolist()
                least = score
                cut = float(values[last]) if kind else float(between(values[last], values[last + 1]))
                best = column, n1, c11, cut, side
    return best


@kernel
def between(a: float, b: float) -> float:
    """:func:`raydt.trees.records.threshold_between`, for Python."""
    threshold: float = threshold_between(a, b)
    return threshold
