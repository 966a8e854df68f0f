"""One sort per feature and BUILD: rows become packed elements that scans and partitions work on alone.

An element is an int64: ``rank << 32 | row << label_bits | label``, where *rank* grows with the feature's value
(equal values, equal rank) and *row* is the position in the list of rows. Ranks are exact for float64: values are
compared by all their bits, nothing is rounded to float32.

Short lists are sorted by insertion. Of longer ones the leading bits of the order-preserving integer codes, as far as
they differ, are sorted by two radix passes, and the few inversions that leaves by insertion; if these are not few,
which a sample tells beforehand, all bits by radix passes. Where the codes differ in at most 31 bits, these bits are the
rank; else the rank is counted at the end. Where they differ in more than ``EXACT_BITS``, only the leading ``CODE_BITS``
are kept, and the few runs of equal ones are put in order afterwards on their full codes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel

#: Longest list that insertion sort gets.
SHORT = 64
#: Bits of a code that an element keeps when a column needs more than ``EXACT_BITS``.
CODE_BITS = 33
#: Columns whose codes differ in no more bits are kept whole.
EXACT_BITS = 44
#: Shortest list that is looked at before it is sorted, and elements looked at.
CROWDED, SAMPLE = 1 << 14, 1 << 11

#: Counters of a radix pass.
DIGITS = 2048

_FLIP = np.int64(0x7FFFFFFFFFFFFFFF)


@kernel
def label_bits_of(classes: int) -> int:
    """Bits a class code takes in an element."""
    bits = 1
    while (1 << bits) < classes:
        bits += 1
    return bits


@functools.cache
def largest_build(classes: int) -> int:
    """Rows that one BUILD can take: row and class share the 32 low bits of an element."""
    return int(2 ** (32 - label_bits_of(classes)))


@inner_kernel
def code_of(bits: int) -> int:
    """Order-preserving integer of a float64 given by its bits (no -0.0); a missing number comes last."""
    return bits if bits >= 0 else bits ^ _FLIP


@inner_kernel
def bit_length(value: int) -> int:
    """Bits needed for a non-negative integer (as unsigned)."""
    n = 0
    v = np.uint64(value)
    while v:
        v >>= np.uint64(1)
        n += 1
    return n


@inner_kernel
def _sort_short(E: Any, low: Any, n: int) -> None:
    """Codes in ``E`` and their low halves in ``low``: sort both by code, leave elements in ``E``."""
    for i in range(1, n):
        code = E[i]
        rest = low[i]
        at = i
        while at > 0 and E[at - 1] > code:
            E[at] = E[at - 1]
            low[at] = low[at - 1]
            at -= 1
        E[at] = code
        low[at] = rest
    rank = 0
    previous = E[0]
    for i in range(n):
        code = E[i]
        if code != previous:
            rank += 1
            previous = code
        E[i] = (rank << 32) | low[i]


@inner_kernel
def _full_code(element: int, low_mask: int, shift: int, Xbits: Any, rows: Any, column: int) -> int:
    return code_of(Xbits[rows[(element & low_mask) >> shift], column])


@inner_kernel
def _sort_run(S: Any, first: int, stop: int, low_mask: int, shift: int, Xbits: Any, rows: Any, column: int) -> None:
    """Put one run of equal leading bits in order of the full codes (Shell sort: mostly runs of two or of equals)."""
    previous = _full_code(S[first], low_mask, shift, Xbits, rows, column)
    after = first + 1
    while after < stop:
        code = _full_code(S[after], low_mask, shift, Xbits, rows, column)
        if code < previous:
            break
        previous = code
        after += 1
    if after == stop:
        return
    gap = 1
    while 3 * gap + 1 < stop - first:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(first + gap, stop):
            element = S[i]
            code = _full_code(element, low_mask, shift, Xbits, rows, column)
            at = i
            while at >= first + gap and _full_code(S[at - gap], low_mask, shift, Xbits, rows, column) > code:
                S[at] = S[at - gap]
                at -= gap
            S[at] = element
        gap //= 3


@inner_kernel
def _radix_sort(E: Any, spare: Any, n: int, low: int, high: int, widest: int, count: Any) -> None:
    """Sort elements by their bits ``low`` to ``high`` alone, stably."""
    source, target = E, spare
    passes = (high - low + widest - 1) // widest
    if passes == 0:
        return
    digit = (high - low + passes - 1) // passes
    mask = np.uint64((1 << digit) - 1)
    at = np.uint64(low)
    for _ in range(passes):
        for b in range(1 << digit):
            count[b] = 0
        for i in range(n):
            count[np.uint64(source[i]) >> at & mask] += 1
        total = 0
        for b in range(1 << digit):
            here = count[b]
            count[b] = total
            total += here
        for i in range(n):
            element = source[i]
            b = np.uint64(element) >> at & mask
            target[np.uint64(count[b])] = element
            count[b] += 1
        source, target = target, source
        at += np.uint64(digit)
    if passes & 1:
        for i in range(n):
            E[i] = spare[i]


@inner_kernel
def _crowded(E: Any, spare: Any, n: int, low: int, high: int, widest: int, count: Any) -> bool:
    """Return True if too many values have equal bits ``low`` to ``high`` for insertion, judged by a sample.

    Half of the pairs with equal bits are inversions: s of them among m elements stand for s n^2 / (2 m^2) moves.
    """
    m = min(SAMPLE, n // 2)
    S = spare[:m]
    for i in range(m):
        S[i] = E[i * (n // m)]
    _radix_sort(S, spare[m : 2 * m], m, low, high, widest, count)
    pairs = run = 0
    for i in range(1, m):
        run = run + 1 if S[i] >> low == S[i - 1] >> low else 0
        pairs += run
    return bool(pairs * n > 4 * m * m)


@inner_kernel
def _finish_by_insertion(S: Any, n: int) -> bool:
    """Sort elements that are nearly in order; False, with some of it done, if that takes more than 2 n moves."""
    budget = 2 * n
    previous = S[0]
    for i in range(1, n):
        element = S[i]
        if element < previous:
            at = i
            while at > 0 and S[at - 1] > element:
                S[at] = S[at - 1]
                at -= 1
            S[at] = element
            budget -= i - at
            if budget < 0:
                return False
        else:
            previous = element
    return True


@inner_kernel
def _sort_long(
    E: Any, spare: Any, n: int, labels: Any, label_bits: int, Xbits: Any, rows: Any, column: int, count: Any
) -> None:
    """Codes in ``E``: replace them by elements in order."""
    flip = np.int64(1) << 63  # codes compare as signed, their bits sort as unsigned
    differ = np.uint64(0)
    for i in range(n):
        differ |= np.uint64(E[i] ^ E[0])
    zeros = 0
    if differ:
        while not (differ >> np.uint64(zeros)) & np.uint64(1):
            zeros += 1
    width = bit_length(np.int64(differ)) - zeros
    kept = width
    low_bits = 32  # a short code is as good as a rank
    if width > 31:
        low_bits = bit_length(n - 1) + label_bits
        if kept > EXACT_BITS or kept > 63 - low_bits:
            kept = min(CODE_BITS, 63 - low_bits)
    low_mask = (1 << low_bits) - 1
    drop = np.uint64(zeros + width - kept)
    lead_mask = (np.int64(1) << kept) - 1
    for i in range(n):
        lead = np.int64(np.uint64(E[i] ^ flip) >> drop) & lead_mask
        E[i] = (lead << low_bits) | (i << label_bits) | labels[i]

    # Two passes over the leading bits leave few inversions, unless the values crowd.
    widest = 11 if n >= 4096 else (9 if n >= 512 else 7)
    high = low_bits + kept
    leading = max(low_bits, high - 2 * widest)
    sorts_all = kept > 2 * widest and n >= CROWDED and _crowded(E, spare, n, leading, high, widest, count)
    if not sorts_all:
        _radix_sort(E, spare, n, leading, high, widest, count)
        sorts_all = kept > 2 * widest and not _finish_by_insertion(E, n)
    if sorts_all:
        _radix_sort(E, spare, n, low_bits, high, widest, count)

    if width <= 31:
        return
    exact = kept == width
    if not exact:
        first = np.int64(0)
        while first < n:
            lead = E[first] >> low_bits
            stop = first + 1
            while stop < n and E[stop] >> low_bits == lead:
                stop += 1
            if stop - first > 1:
                _sort_run(E, first, stop, low_mask, label_bits, Xbits, rows, column)
            first = stop
    rank = 0
    previous = E[0]
    for i in range(n):
        element = E[i]
        if element >> low_bits != previous >> low_bits:
            rank += 1
        elif not exact and i > 0:
            a = Xbits[rows[(element & low_mask) >> label_bits], column]
            b = Xbits[rows[(previous & low_mask) >> label_bits], column]
            if a != b:
                rank += 1
        previous = element
        E[i] = (rank << 32) | (element & low_mask)


@kernel
def fill_codes(X: Any, rows: Any, begin: int, stop: int, E: Any) -> None:
    """``E[j, i]`` = ``code_of`` the value of row i, from ``begin`` to before ``stop``, in each column j of ``X``.

    Rows are read once, so that each cache line is.
    """
    Xbits = X.view(np.int64)
    for i in range(begin, stop):
        row = rows[i]
        for j in range(X.shape[1]):
            E[j, i] = code_of(Xbits[row, j])


@inner_kernel
def sort_column(
    codes: Any, column: int, labels: Any, label_bits: int, X: Any, rows: Any, spare: Any, count: Any
) -> None:
    """Replace the codes of one column by its elements in order."""
    n = len(codes)
    if n > SHORT:
        _sort_long(codes, spare, n, labels, label_bits, X.view(np.int64), rows, column, count)
        return
    low = spare[:n]
    for i in range(n):
        low[i] = (i << label_bits) | labels[i]
    _sort_short(codes, low, n)


@kernel
def presort(X: Any, rows: Any, labels: Any, n: int, label_bits: int, E: Any, spare: Any, count: Any) -> None:
    """Fill ``E[j, :n]`` with the sorted elements of every column j of ``X``, which is in C order.

    O(n d) for codes of fixed width. ``rows`` lists rows of ``X``, ``labels`` has the class of each, below ``1 <<
    label_bits``; ``spare`` (n) and ``count`` (``DIGITS``) are scratch.
    """
    fill_codes(X, rows, 0, n, E)
    for j in range(E.shape[0]):
        sort_column(E[j, :n], j, labels, label_bits, X, rows, spare, count)
