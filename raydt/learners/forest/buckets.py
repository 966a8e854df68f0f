"""The buckets of one feature of a block: rows, by class, between thresholds or of a category."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel


@inlined_kernel
def add_to_bucket(bucket: Any, y: int, by: int, numeric: bool) -> None:
    """Count a row in or out; ``by`` is its weight, signed."""
    if numeric:
        bucket[0] += by
        bucket[1] += by * y
    else:
        bucket[y] += by


@inlined_kernel
def rows_in(bucket: Any, numeric: bool) -> int:
    """Rows of a bucket."""
    n: int = np.int64(0)
    if numeric:
        n += bucket[0]
    else:
        for k in range(len(bucket)):
            n += bucket[k]
    return n


@inlined_kernel
def clear(buckets: Any) -> None:
    """Set all counts to 0."""
    for b in range(buckets.shape[0]):
        for m in range(buckets.shape[1]):
            buckets[b, m] = 0


@inlined_kernel
def bucket_of(cuts: Any, used: int, value: float) -> int:
    """How many thresholds lie below a value."""
    b = 0
    for j in range(used):
        b += value > cuts[j]
    return b


@inlined_kernel
def category_at(cuts: Any, used: int, value: float) -> int:
    """Place of a category among the candidates, -1 if it is none."""
    for j in range(used):
        if cuts[j] == value:
            return j
    return -1


@inlined_kernel
def count_class(buckets: Any, cuts: Any, used: int, k: int, values: Any, category: bool) -> None:
    """Buckets of the values of class k: one pass for every five candidates, whose counts stay in registers."""
    last = used - 1
    if last == 0:
        cut, inside = cuts[0], np.int64(0)
        if category:
            for i in range(len(values)):
                inside += values[i] == cut
        else:
            for i in range(len(values)):
                inside += values[i] <= cut
        buckets[0, k] = inside
        return
    for first in range(0, used, 5):
        second, third = min(first + 1, last), min(first + 2, last)
        fourth, fifth = min(first + 3, last), min(first + 4, last)
        a, b, c, d, e = cuts[first], cuts[second], cuts[third], cuts[fourth], cuts[fifth]
        in_a = in_b = in_c = in_d = in_e = np.int64(0)
        if category:
            for i in range(len(values)):
                x = values[i]
                in_a += x == a
                in_b += x == b
                in_c += x == c
                in_d += x == d
                in_e += x == e
        else:
            for i in range(len(values)):
                x = values[i]
                in_a += x <= a
                in_b += x <= b
                in_c += x <= c
                in_d += x <= d
                in_e += x <= e
        buckets[first, k], buckets[second, k], buckets[third, k] = in_a, in_b, in_c
        buckets[fourth, k], buckets[fifth, k] = in_d, in_e
    if not category:
        for back in range(last):
            buckets[last - back, k] -= buckets[last - back - 1, k]


@inlined_kernel
def count_classes(buckets: Any, cuts: Any, used: int, totals: Any, values: Any, category: bool) -> None:
    """Buckets of values that are listed class after class, as many of each as ``totals`` says.

    Right of the last threshold nothing is counted, as nobody asks.
    """
    begin = np.int64(0)
    for k in range(len(totals)):
        end = begin + totals[k]
        if begin < end:
            # Of a part from 0 on the compiler knows that no index is negative: it loads eight values at once.
            count_class(buckets, cuts, used, k, values[begin:end], category)
        begin = end
