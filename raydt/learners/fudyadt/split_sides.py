"""What a split does with sorted segments (``presort``): its threshold, the sides of rows, and their partition.

A split is given by ``at``, the last element on its left; plus the length of the segment, where missing numbers, which
are the last elements, go left, too (``split_search``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel
from raydt.trees.counted_tree import TO_LEFT, TO_RIGHT, UNDECIDED
from raydt.trees.records import threshold_between


@inner_kernel
def is_constant(S: Any) -> bool:
    """Whether all rows of a sorted segment have the same value."""
    same: bool = S[0] >> 32 == S[len(S) - 1] >> 32
    return same


@inner_kernel
def value_of(element: int, X: Any, rows: Any, column: int, label_bits: int) -> float:
    """Value of the row of an element."""
    value: float = X[rows[(element & 0xFFFFFFFF) >> label_bits], column]
    return value


@inner_kernel
def lacking(S: Any, X: Any, rows: Any, column: int, label_bits: int) -> int:
    """How many elements of a sorted segment are missing numbers; they are the last ones."""
    n = len(S)
    value = value_of(S[n - 1], X, rows, column, label_bits)
    if value == value:
        return 0
    m = 1
    while m < n and S[n - 1 - m] >> 32 == S[n - 1] >> 32:
        m += 1
    return m


@inner_kernel
def threshold_of(S: Any, at: int, categorical: bool, X: Any, rows: Any, column: int, label_bits: int) -> float:
    """Threshold of a split of a segment after element ``at``, or its category."""
    i = at if at < len(S) else at - len(S)
    value = value_of(S[i], X, rows, column, label_bits)
    if categorical:
        return value
    return threshold_between(value, value_of(S[i + 1], X, rows, column, label_bits))


@inner_kernel
def missing_side(S: Any, at: int, gap: bool, X: Any, rows: Any, column: int, label_bits: int) -> int:
    """Side of missing numbers at a split of a segment; it is not decided if there are none."""
    if at >= len(S):
        return TO_LEFT
    if gap and lacking(S, X, rows, column, label_bits) > 0:
        return TO_RIGHT
    return UNDECIDED


@inner_kernel
def sum_left(S: Any, label_bits: int, side: Any, numbers: Any) -> tuple[int, int]:
    """Sums of the labels, and of their squares, of the rows of a segment that are on the left."""
    bits = np.uint64(label_bits)
    q = squares = 0
    for i in range(len(S)):
        row = np.uint64(S[i] & 0xFFFFFFFF) >> bits
        number = np.int64(numbers[row]) * (1 - np.int64(side[row]))
        q += number
        squares += number * number
    return q, squares


@inner_kernel
def mark_sides(S: Any, at: int, categorical: bool, label_bits: int, side: Any, left: Any) -> int:
    """Write the side (0 left, 1 right) of each row of a segment split after element ``at``; count the left.

    Returns the number of rows on the left; ``left`` receives their class counts.
    """
    n = len(S)
    missing_left = at >= n
    if missing_left:
        at -= n
    start = 0
    if categorical:
        start = at
        while start > 0 and S[start - 1] >> 32 == S[at] >> 32:
            start -= 1
    mask = (1 << label_bits) - 1
    for k in range(len(left)):
        left[k] = 0
    bits = np.uint64(label_bits)
    for i in range(start):
        side[np.uint64(S[i] & 0xFFFFFFFF) >> bits] = 1
    ones = 0
    for i in range(start, at + 1):
        side[np.uint64(S[i] & 0xFFFFFFFF) >> bits] = 0
        ones += S[i] & 1
    for i in range(at + 1, len(S)):
        side[np.uint64(S[i] & 0xFFFFFFFF) >> bits] = 1
    if len(left) == 2:
        left[0], left[1] = at - start + 1 - ones, ones
    else:
        for i in range(start, at + 1):
            left[S[i] & mask] += 1
    n_left = at - start + 1
    if missing_left:
        i = n - 1
        while S[i] >> 32 == S[n - 1] >> 32:
            side[np.uint64(S[i] & 0xFFFFFFFF) >> bits] = 0
            left[S[i] & mask] += 1
            n_left += 1
            i -= 1
    return n_left


@inner_kernel
def partition(S: Any, label_bits: int, side: Any, spare: Any, keep_left: bool, keep_right: bool) -> None:
    """Stable partition of one segment by side; a side that is not kept is dropped, the other moves up."""
    n = len(S)
    bits = np.uint64(label_bits)
    one = np.uint64(1)
    kept = np.uint64(0)
    if not keep_left:
        for i in range(n):
            element = S[i]
            S[kept] = element
            kept += np.uint64(side[np.uint64(element & 0xFFFFFFFF) >> bits])
        return
    moved = np.uint64(0)
    for i in range(n):
        element = S[i]
        right = np.uint64(side[np.uint64(element & 0xFFFFFFFF) >> bits])
        S[kept] = element
        spare[moved] = element
        moved += right
        kept += one - right
    if keep_right:
        for i in range(np.int64(moved)):
            S[np.int64(kept) + i] = spare[i]
