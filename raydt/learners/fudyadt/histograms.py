"""Columns of few distinct values within one BUILD: counted by value and class instead of sorted.

Every row has a code per column, the rank of its value, and an open node a histogram: its rows by code and class, for
all such columns. At a split the smaller child is counted from its rows; the larger keeps the parent's histogram less
that of the smaller. A row is therefore counted once per halving of its node: O(n d log n) for a BUILD of columns of
bounded cardinality, however deep (the paper's Theorem 3.3). A node with fewer rows than a histogram has cells per
column is cheaper to scan than to count: its columns become sorted elements, and its subtree is built from those.

Invariants: histograms of the nodes on the stack lie one behind the other, the top of the stack has the last. At a
split only the smaller child takes a new slot, that behind its parent's: a node in slot s has at most n / 2^s of the
BUILD's n rows, so that slots end at floor(log2 n), or at one more while a node is divided. A node with a histogram has
at least as many cells of rows and columns as the histogram has counters, so that all histograms, and one more, also
fit in ``2 x rows x columns`` counters. Scores are those of ``split_search``.

Not here: the search in columns of many values (``split_search``).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty
from raydt.arrays.elementary import Int32s, Ints
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.fudyadt.split_search import split_score
from raydt.trees.records import goes_left, threshold_between

# One sort per feature and BUILD: rows become packed elements that scans and partitions work on alone.
#
# An element is an int64: ``rank << 32 | row << label_bits | label``, where *rank* grows with the feature's value
# (equal values, equal rank) and *row* is the position in the list of rows. Ranks are exact for float64: values are
# compared by all their bits, nothing is rounded to float32.
#
# Short lists are sorted by insertion. Of longer ones the leading bits of the order-preserving integer codes, as far as
# they differ, are sorted by two radix passes, and the few inversions that leaves by insertion; if these are not few,
# which a sample tells beforehand, all bits by radix passes. Where the codes differ in at most 31 bits, these bits are
# the rank; else the rank is counted at the end. Where they differ in more than ``EXACT_BITS``, only the leading
# ``CODE_BITS`` are kept, and the few runs of equal ones are put in order afterwards on their full codes.

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


#: Most distinct values of a counted column: a code is one byte.
MOST_VALUES = 256
#: Rows a BUILD has for each distinct value of a counted column, at least.
ROWS_PER_VALUE = 16
#: A BUILD that has rows for fewer values than this counts no column: it would cost more than it gains.
FEWEST_VALUES = 4

#: Registers: counted columns, and counters of one histogram.
COUNTED, CELLS = 0, 1


class Histograms(NamedTuple):
    """Working memory of the counted columns of one BUILD of up to n rows and d columns.

    ``codes[i, j]`` is the code of row i: the rank of its value. ``bits[j]`` has the value of each code, as the bits of
    a float64, ``width[j]`` their number (0: the column is not counted), ``offset[j]`` where its counters begin in a
    histogram. ``columns`` lists the counted columns. ``table``, ``found`` and ``rank`` are scratch of one column.
    """

    codes: npt.NDArray[np.uint8]
    bits: Ints
    width: Ints
    offset: npt.NDArray[np.uint64]
    columns: npt.NDArray[np.uint64]
    cells: Int32s
    table: npt.NDArray[np.uint16]
    found: Ints
    rank: Ints
    reg: Ints
    rows_per_value: int


def new_histograms(
    rows: int, columns: int, classes: int, most_values: int = MOST_VALUES, rows_per_value: int = ROWS_PER_VALUE
) -> Histograms:
    """Room for BUILDs of ``rows`` rows; ``most_values`` of 0 counts no column."""
    most = min(most_values, rows // rows_per_value)
    slots = rows.bit_length() + 1
    return Histograms(
        empty((rows, columns), dtype=np.uint8),
        empty((columns, most), dtype=np.int64),
        np.zeros(columns, dtype=np.int64),
        np.zeros(columns, dtype=np.uint64),
        np.zeros(columns, dtype=np.uint64),
        empty(min(2 * rows, slots * most * classes) * columns, dtype=np.int32),
        np.empty(4 * MOST_VALUES, dtype=np.uint16),
        np.empty(MOST_VALUES, dtype=np.int64),
        np.empty(MOST_VALUES, dtype=np.int64),
        np.zeros(2, dtype=np.int64),
        rows_per_value,
    )


@inner_kernel
def _encode_column(H: Any, S: Any, j: int, most: int) -> int:
    """Code one column, given as ``code_of`` values; the number of codes, or ``most + 1`` of a column of more values."""
    table, found, rank = H.table, H.found, H.rank
    bits = 4
    while (1 << bits) < 2 * most:
        bits += 1
    shift, mask = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    for k in range(1 << bits):
        table[k] = 0
    distinct = 0
    previous = S[0] - 1
    code = np.int64(0)
    for i in range(len(S)):
        value = S[i]
        if value != previous:
            previous = value
            at = (np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)) >> shift
            while table[at] and found[table[at] - 1] != value:
                at = (at + np.uint64(1)) & mask
            if not table[at]:
                if distinct == most:
                    return most + 1
                found[distinct] = value
                distinct += 1
                table[at] = distinct
            code = np.int64(table[at]) - 1
        H.codes[i, j] = code
    in_order = True
    for k in range(distinct):  # codes in order of first appearance become ranks
        rank[k] = 0
        for other in range(distinct):
            rank[k] += found[other] < found[k]
        in_order = in_order and rank[k] == k
        H.bits[j, rank[k]] = code_of(found[k])  # its own inverse
    if not in_order:
        for i in range(len(S)):
            H.codes[i, j] = rank[H.codes[i, j]]
    return distinct


@kernel
def encode_columns(H: Any, E: Any, n: int, most: int, begin: int, end: int) -> None:
    """Give codes to the columns of few values among those from ``begin`` to before ``end``; ``width`` has how many.

    ``E`` has ``code_of`` each value (``fill_codes``). O(n d + values^2 d): a column of more than ``most``
    values is given up as soon as they are seen.
    """
    for j in range(begin, end):
        H.width[j] = _encode_column(H, E[j, :n], j, most) if most > 0 else 1


@kernel
def most_counted(H: Any, n: int) -> int:
    """Most distinct values of a column that n rows count; 0: no column is counted."""
    most: int = min(np.int64(H.bits.shape[1]), np.int64(n // H.rows_per_value))
    return most if most >= FEWEST_VALUES else 0


@kernel
def choose_counted(H: Any, most: int, n: int, K: int) -> None:
    """Decide which columns are counted: those of up to ``most`` values; none, unless half of those that vary are."""
    H.reg[COUNTED] = H.reg[CELLS] = 0
    few = many = counted = cells = 0
    for j in range(len(H.width)):
        distinct = H.width[j]
        if distinct > most:
            many += 1
            H.width[j] = 0
            continue
        few += distinct > 1
        H.offset[j] = cells
        H.columns[counted] = j
        counted += 1
        cells += distinct * K
    if few == 0 or few < many or n * counted < cells:
        H.width[:] = 0
    else:
        H.reg[COUNTED], H.reg[CELLS] = counted, cells


@inner_kernel
def count_side(H: Any, slot: int, elements: Any, label_bits: int, K: int, side: Any, which: int) -> None:
    """The histogram in ``slot``: of the rows of a list that are on side ``which``."""
    cells = H.cells[slot * H.reg[CELLS] : (slot + 1) * H.reg[CELLS]]
    cells[:] = 0
    classes = np.uint64(K)
    for i in range(len(elements)):
        row = np.uint64(elements[i]) >> np.uint64(label_bits)
        if side[row] != which:
            continue
        label = np.uint64(elements[i] & ((1 << label_bits) - 1))
        codes = H.codes[row]
        for c in range(H.reg[COUNTED]):
            column = H.columns[c]
            cells[H.offset[column] + np.uint64(codes[column]) * classes + label] += 1


@inner_kernel
def divide(
    H: Any, slot: int, elements: Any, label_bits: int, K: int, side: Any, n_left: int, left: bool, right: bool
) -> tuple[int, int]:
    """Make the histograms of the children from their parent's; return their slots (-1: none).

    ``n_left`` of the parent's rows, ``elements``, are on the left by ``side``; ``left`` and ``right`` tell which
    children stay open. One of few rows gets no histogram all the same.
    """
    size = H.reg[CELLS]
    n_right = len(elements) - n_left
    left = left and H.reg[COUNTED] * n_left >= size
    right = right and H.reg[COUNTED] * n_right >= size
    of_smaller = of_larger = np.int64(-1)
    if not (left or right):
        return of_smaller, of_larger
    smaller = np.int64(n_left > n_right)  # side of the smaller child
    count_side(H, slot + 1, elements, label_bits, K, side, smaller)
    whole = H.cells[slot * size : (slot + 1) * size]
    part = H.cells[(slot + 1) * size : (slot + 2) * size]
    keep_smaller, keep_larger = (right, left) if smaller else (left, right)
    if keep_larger:
        of_larger = slot
        for b in range(size):
            whole[b] -= part[b]
        if keep_smaller:
            of_smaller = slot + 1
    else:
        of_smaller = slot
        for b in range(size):
            whole[b] = part[b]
    return (of_larger, of_smaller) if smaller else (of_smaller, of_larger)


@inner_kernel
def has_missing(H: Any, j: int, slot: int, K: int) -> bool:
    """Return True if a node has missing numbers of a counted column, whose code is the last."""
    begin = slot * H.reg[CELLS] + np.int64(H.offset[j])
    last = np.int64(H.width[j]) - 1
    value = H.bits[j].view(np.float64)[last]
    some = False
    if value != value:
        for k in range(K):
            some |= H.cells[begin + last * K + k] > 0
    return some


@inner_kernel
def best_value(
    H: Any,
    j: int,
    slot: int,
    n: int,
    categorical: bool,
    missing_left: bool,
    counts: Any,
    node: int,
    left: Any,
    best: float,
) -> tuple[float, int]:
    """As ``split_search.scan``: (score, code of the last or only value on the left), or (best, -1).

    With missing numbers on the left as ``split_search.scan_missing_left``: plus the number of codes.
    """
    K, at = len(left), -1
    if missing_left and not has_missing(H, j, slot, K):
        return best, at
    begin = slot * H.reg[CELLS] + np.int64(H.offset[j])
    cells = H.cells[begin : begin + H.width[j] * K]
    last = np.int64(H.width[j]) - (1 if missing_left else 0)
    n_left = 0
    for k in range(K):
        left[k] = cells[last * K + k] if missing_left else 0
        n_left += left[k]
    for code in range(last):
        here = 0
        for k in range(K):
            here += cells[code * K + k]
        if here == 0:
            continue
        if here == n:
            break
        if categorical:
            n_left = 0
            for k in range(K):
                left[k] = 0
        n_left += here
        for k in range(K):
            left[k] += cells[code * K + k]
        if n_left == n and not categorical:
            break
        score = split_score(left, counts, node, n_left, n)
        if score > best:
            best, at = score, code + H.width[j] if missing_left else code
    return best, at


@inner_kernel
def value_at(H: Any, j: int, slot: int, code: int, categorical: bool, K: int) -> float:
    """Threshold of the split after ``code``: its value, or the midpoint to the next one the node has."""
    values = H.bits[j].view(np.float64)
    if code >= H.width[j]:
        code -= H.width[j]
    value: float = values[code]
    if categorical:
        return value
    begin = slot * H.reg[CELLS] + np.int64(H.offset[j])
    after = code
    while True:
        after += 1
        for k in range(K):
            if H.cells[begin + after * K + k]:
                return threshold_between(value, values[after])


@inner_kernel
def mark_rows(
    H: Any,
    j: int,
    threshold: float,
    categorical: bool,
    missing_left: bool,
    elements: Any,
    label_bits: int,
    side: Any,
    left: Any,
) -> int:
    """As ``split_search.mark_sides``, for a counted column and the rows of a list."""
    values = H.bits[j].view(np.float64)
    mask = (1 << label_bits) - 1
    for k in range(len(left)):
        left[k] = 0
    n_left = 0
    for i in range(len(elements)):
        row = np.uint64(elements[i]) >> np.uint64(label_bits)
        value = values[H.codes[row, j]]
        goes = np.int64(goes_left(value, threshold, categorical) or (missing_left and value != value))
        side[row] = 1 - goes
        left[elements[i] & mask] += goes
        n_left += goes
    return n_left


@inner_kernel
def to_elements(H: Any, E: Any, first: int, n: int, label_bits: int, ends: Any) -> None:
    """Sorted elements of a segment of every counted column, from the list of rows in ``E``'s last line."""
    listed = E[len(E) - 1, first : first + n]
    for c in range(H.reg[COUNTED]):
        j = H.columns[c]
        S = E[j, first : first + n]
        for code in range(H.width[j]):
            ends[code] = 0
        for i in range(n):
            ends[H.codes[np.uint64(listed[i]) >> np.uint64(label_bits), j]] += 1
        total = 0
        for code in range(H.width[j]):
            here = ends[code]
            ends[code] = total
            total += here
        for i in range(n):
            code = H.codes[np.uint64(listed[i]) >> np.uint64(label_bits), j]
            S[np.uint64(ends[code])] = (np.int64(code) << 32) | listed[i]
            ends[code] += 1
