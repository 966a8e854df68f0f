"""Columns of few distinct values within one BUILD: counted by value and class instead of sorted.

Every row has a code per column, and an open node a histogram: rows of the node by code and class, for all such
columns. At a split the smaller child is counted from its rows; the larger keeps the parent's histogram less that
of the smaller. A row is therefore counted once per halving of its node: O(n d log n) for a BUILD of columns of
bounded cardinality, however deep (the paper's Theorem 3.3). A node with fewer rows than a histogram has cells per
column is cheaper to scan than to count: its columns become sorted elements, and its subtree is built from those.

Invariants: histograms of the nodes on the stack lie one behind the other, the top of the stack has the last. A
node with a histogram has at least as many cells of rows and columns as the histogram has counters, so that all
histograms, and one more, fit in ``2 x rows x columns`` counters. Scores are those of ``split_search``.

Not here: columns of many values (``presort``, ``split_search``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.kernel import inner_kernel
from raydt.learners.fudyadt.live_tree import goes_left
from raydt.learners.fudyadt.presort import code_of
from raydt.learners.fudyadt.split_search import split_score, threshold_between
from raydt.memory import empty

#: Most distinct values of a counted column: a code is one byte.
MOST_VALUES = 256
#: Rows a BUILD has for each distinct value of a counted column, at least.
ROWS_PER_VALUE = 16
#: A BUILD that has rows for fewer values than this counts no column: the attempt would cost more than it gains.
FEWEST_VALUES = 4

#: Registers: counted columns, and counters of one histogram.
COUNTED, CELLS = 0, 1


class Histograms(NamedTuple):
    """Working memory of the counted columns of one BUILD of up to n rows and d columns.

    ``codes[i, j]`` is the code of row i, in order of first appearance; ``values[j]`` the value of each code,
    ``order[j]`` the codes by ascending value, ``width[j]`` their number. ``table[j]`` finds the code of a value.
    ``columns`` lists the counted columns, then the others; ``start`` where in a histogram the counted ones begin
    (``offset[j]`` the same by column). ``seen[j]`` is what earlier BUILDs found: the distinct values of a column in the
    last one that counted them, or one more than that could count; 0 at first. It decides about speed alone.
    """

    codes: npt.NDArray[np.uint8]
    values: npt.NDArray[np.float64]
    order: npt.NDArray[np.uint8]
    table: npt.NDArray[np.uint16]
    width: npt.NDArray[np.int64]
    seen: npt.NDArray[np.int64]
    counted: npt.NDArray[np.bool_]
    columns: npt.NDArray[np.uint64]
    start: npt.NDArray[np.uint64]
    offset: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int32]
    reg: npt.NDArray[np.int64]
    rows_per_value: int


def new_histograms(
    rows: int, columns: int, most_values: int = MOST_VALUES, rows_per_value: int = ROWS_PER_VALUE
) -> Histograms:
    """Room for BUILDs of ``rows`` rows; ``most_values`` of 0 counts no column."""
    most = min(most_values, rows // rows_per_value)
    return Histograms(
        empty((rows, columns), dtype=np.uint8),
        empty((columns, most), dtype=np.float64),
        empty((columns, most), dtype=np.uint8),
        empty((columns, 4 * most), dtype=np.uint16),
        np.empty(columns, dtype=np.int64),
        np.zeros(columns, dtype=np.int64),
        np.zeros(columns, dtype=np.bool_),
        np.empty(columns, dtype=np.uint64),
        np.empty(columns, dtype=np.uint64),
        np.empty(columns, dtype=np.int64),
        empty(2 * rows * columns, dtype=np.int32),
        np.zeros(2, dtype=np.int64),
        rows_per_value,
    )


@inner_kernel
def _few_enough(H: Any, most: int) -> bool:
    """Whether at least half of the columns that are not constant may have few values."""
    few = many = 0
    for j in range(len(H.seen)):
        few += H.seen[j] != 1 and H.seen[j] <= most
        many += H.seen[j] > most
    return few > 0 and few >= many


@inner_kernel
def encode(H: Any, X: Any, rows: Any, n: int, K: int) -> None:
    """Code the columns that have few values among n rows and mark them as counted; none if counting is no gain.

    O(n d): a column of many values is given up as soon as they are seen, and not tried again by a BUILD that could
    count no more.
    """
    H.counted[:] = False
    H.reg[COUNTED] = H.reg[CELLS] = 0
    d = H.codes.shape[1]
    for j in range(d):
        H.columns[j] = j
    Xbits, bits = X.view(np.int64), H.values.view(np.int64)
    most = min(H.values.shape[1], n // H.rows_per_value)
    if most < FEWEST_VALUES or not _few_enough(H, most):
        return
    shift = 62
    while (1 << (64 - shift)) < 2 * most:
        shift -= 1
    mask = np.uint64((1 << (64 - shift)) - 1)
    tried = 0
    for j in range(d):
        if H.seen[j] <= most:
            H.columns[tried], H.columns[j] = H.columns[j], H.columns[tried]
            H.table[j, : 1 << (64 - shift)] = 0
            H.width[j] = 0
            tried += 1
    for i in range(n):
        row = rows[i]
        codes = H.codes[i]
        c = 0
        while c < tried:
            j = H.columns[c]
            value = Xbits[row, j]
            at = (np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift)
            found = np.int64(H.table[j, at])
            while found and bits[j, found - 1] != value:
                at = (at + np.uint64(1)) & mask
                found = np.int64(H.table[j, at])
            if not found:
                if H.width[j] == most:
                    H.seen[j] = most + 1
                    tried -= 1
                    H.columns[c], H.columns[tried] = H.columns[tried], j
                    if not _few_enough(H, most):
                        return
                    continue
                bits[j, H.width[j]] = value
                H.width[j] += 1
                found = H.width[j]
                H.table[j, at] = found
            codes[j] = found - 1
            c += 1
    cells = 0
    for c in range(tried):
        j = H.columns[c]
        H.seen[j] = H.width[j]
        H.offset[j] = cells
        H.start[c] = cells
        cells += H.width[j] * K
    if n * tried < cells or not _few_enough(H, most):
        return
    H.reg[COUNTED], H.reg[CELLS] = tried, cells
    for c in range(tried):
        j = H.columns[c]
        H.counted[j] = True
        _sort_values(H.order[j], bits[j], H.width[j])


@inner_kernel
def _sort_values(order: Any, bits: Any, n: int) -> None:
    """Codes by ascending value."""
    for i in range(n):
        at = i
        while at > 0 and code_of(bits[order[at - 1]]) > code_of(bits[i]):
            order[at] = order[at - 1]
            at -= 1
        order[at] = i


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
            cells[H.start[c] + np.uint64(codes[H.columns[c]]) * classes + label] += 1


@inner_kernel
def divide(
    H: Any, slot: int, elements: Any, label_bits: int, K: int, side: Any, n_left: int, left: bool, right: bool
) -> tuple[int, int]:
    """Histograms of the children from their parent's; returns their slots (-1: none).

    Parameters
    ----------
    elements : ndarray of int64
        The parent's rows, ``n_left`` of them on the left by ``side``.
    left, right : bool
        Which children stay open. One of few rows gets no histogram all the same.
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
def best_value(
    H: Any, j: int, slot: int, n: int, categorical: bool, counts: Any, node: int, left: Any, best: float
) -> tuple[float, int]:
    """As ``split_search.scan``: (score, place in ``order[j]`` of the last or only value on the left), or (best, -1)."""
    K = len(left)
    begin = slot * H.reg[CELLS] + H.offset[j]
    cells = H.cells[begin : begin + H.width[j] * K]
    at = -1
    n_left = 0
    for k in range(K):
        left[k] = 0
    for r in range(H.width[j]):
        first = np.int64(H.order[j, r]) * K
        here = 0
        for k in range(K):
            here += cells[first + k]
        if here == 0:
            continue
        if here == n:
            break
        if categorical:
            n_left = here
            for k in range(K):
                left[k] = cells[first + k]
        else:
            n_left += here
            for k in range(K):
                left[k] += cells[first + k]
            if n_left == n:
                break
        score = split_score(left, counts, node, n_left, n)
        if score > best:
            best, at = score, r
    return best, at


@inner_kernel
def value_at(H: Any, j: int, slot: int, at: int, categorical: bool, K: int) -> float:
    """Threshold of the split after place ``at``: the value, or the midpoint to the next one the node has."""
    value: float = H.values[j, H.order[j, at]]
    if categorical:
        return value
    while True:
        at += 1
        code = H.order[j, at]
        begin = slot * H.reg[CELLS] + H.offset[j] + np.int64(code) * K
        for k in range(K):
            if H.cells[begin + k]:
                return threshold_between(value, H.values[j, code])


@inner_kernel
def mark_rows(
    H: Any, j: int, threshold: float, categorical: bool, elements: Any, label_bits: int, side: Any, left: Any
) -> int:
    """As ``split_search.mark_sides``, for a counted column and the rows of a list."""
    right = H.table[j]  # not needed after coding
    for code in range(H.width[j]):
        right[code] = not goes_left(H.values[j, code], threshold, categorical)
    mask = (1 << label_bits) - 1
    for k in range(len(left)):
        left[k] = 0
    n_left = 0
    for i in range(len(elements)):
        row = np.uint64(elements[i]) >> np.uint64(label_bits)
        goes = right[H.codes[row, j]]
        side[row] = goes
        left[elements[i] & mask] += 1 - goes
        n_left += 1 - goes
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
        for r in range(H.width[j]):
            code = H.order[j, r]
            here = ends[code]
            ends[code] = total
            total += here
        for i in range(n):
            code = H.codes[np.uint64(listed[i]) >> np.uint64(label_bits), j]
            S[np.uint64(ends[code])] = (np.int64(code) << 32) | listed[i]
            ends[code] += 1
