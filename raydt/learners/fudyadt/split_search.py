"""The best split of a sorted segment: what coordinator and shards share.

All statistics are integer counts. ``split_score`` is the only function that turns them into a float64, and a
split is compared by (greater score, smaller feature, missing numbers on the right, smaller threshold), so that the
result depends neither on who evaluates a feature nor on the order in which features are evaluated.

Missing numbers are the last elements of a segment. With them on the right, the segment is scanned as it is, and a
threshold between the last number and them, infinity, is the question whether there is a number. With them on the left,
a copy is scanned in which they come first; ``at`` is then the place of the last number on the left plus the length of
the segment.

Symbols (paper, Definition 2.1): n = |S|, c_k = examples of class k in S, l_k those on the left side,
D_k = l_k n - n_left c_k. The Gini gain is G = sum_k D_k^2 / (n_left n_right) / n^2; the score leaves out n^2,
which is the same for all splits of a node. The gain in variance of numeric labels is the same of a single D, with the
sums of the labels for l and c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.trees.counted_tree import TO_LEFT, TO_RIGHT, UNDECIDED, add_number
from raydt.trees.records import difference, threshold_between

# What a split does with sorted segments: its threshold, the sides of rows, and their partition.
#
# A split is given by ``at``, the last element on its left; plus the length of the segment, where missing numbers, which
# are the last elements, go left, too (``split_search``).


@inner_kernel
def is_constant(S: Any) -> bool:
    """Return True if all rows of a sorted segment have the same value."""
    same: bool = S[0] >> 32 == S[len(S) - 1] >> 32
    return same


@inner_kernel
def value_of(element: int, X: Any, rows: Any, column: int, label_bits: int) -> float:
    """Value of the row of an element."""
    value: float = X[rows[(element & 0xFFFFFFFF) >> label_bits], column]
    return value


@inner_kernel
def lacking(S: Any, X: Any, rows: Any, column: int, label_bits: int) -> int:
    """Return the number of missing numbers in a sorted segment; they are the last ones."""
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


# The best split of a sorted segment whose rows have weights: what ``split_search`` is for rows that count 1 each.
#
# Counts are sums of weights in units of 2**-16, whose products do not fit into 64 bits. So D_k is taken between the two
# sides, D_k = l_k n_right - n_left r_k (which equals l_k n - n_left c_k), of products that are rounded to float64 once.
# Where weights are whole numbers the products are exact, and scores are 2**32 times those of repeated rows. Always they
# are the same, to the last bit, whichever side is the left one. With numeric labels D is exact (96 bits), and rounded
# once, as it is without weights.


@inner_kernel
def weighted_score(left: Any, counts: Any, node: int, n_left: int, n: int) -> float:
    """As ``split_search.split_score``, of sums of weights: up to a factor of 2**32."""
    on_left, on_right = np.float64(n_left), np.float64(n - n_left)
    total = 0.0
    for k in range(len(left)):
        D = np.float64(left[k]) * on_right - on_left * np.float64(counts[node, k] - left[k])
        total += D * D
    score: float = total / (on_left * on_right)
    return score


@inner_kernel
def scan_weights(
    S: Any, categorical: bool, counts: Any, node: int, left: Any, weights: Any, label_bits: int, best: float
) -> tuple[float, int]:
    """Return the best split of one sorted segment as ``split_search.scan``, a score for each value.

    ``weights`` has those of each row that elements name.
    """
    at = -1
    if is_constant(S):
        return best, at
    size, whole, mask, bits = len(S), np.int64(0), (1 << label_bits) - 1, np.uint64(label_bits)
    for k in range(len(left)):
        whole += counts[node, k]
        left[k] = 0
    n_left = np.int64(0)
    for i in range(size):
        weight = np.int64(weights[np.uint64(S[i] & 0xFFFFFFFF) >> bits])
        left[S[i] & mask] += weight
        n_left += weight
        if i == size - 1:
            if not categorical:
                break
        elif (S[i + 1] >> 32) == (S[i] >> 32):
            continue
        score = weighted_score(left, counts, node, n_left, whole)
        if score > best:
            best, at = score, i
        if categorical:
            n_left = np.int64(0)
            for k in range(len(left)):
                left[k] = 0
    return best, at


@inner_kernel
def scan_weighted_numbers(
    S: Any, categorical: bool, n: int, total: int, numbers: Any, weights: Any, label_bits: int, best: float
) -> tuple[float, int]:
    """Search as ``split_search.scan_numbers`` does, of a segment whose weights add up to ``n``, weight times label to
    ``total``.
    """
    at = -1
    if is_constant(S):
        return best, at
    size, bits = len(S), np.uint64(label_bits)
    q_left = n_left = np.int64(0)
    for i in range(size):
        row = np.uint64(S[i] & 0xFFFFFFFF) >> bits
        weight = np.int64(weights[row])
        q_left += weight * numbers[row]
        n_left += weight
        if i == size - 1:
            if not categorical:
                break
        elif (S[i + 1] >> 32) == (S[i] >> 32):
            continue
        D = difference(q_left, n, n_left, total)
        score = D * D / (np.float64(n_left) * np.float64(n - n_left))
        if score > best:
            best, at = score, i
        if categorical:
            q_left = n_left = np.int64(0)
    return best, at


@inner_kernel
def weigh_numbers_left(S: Any, label_bits: int, side: Any, numbers: Any, weights: Any, sums: Any, node: int) -> None:
    """Make the sums of a node those of the rows of a segment that are on the left."""
    bits = np.uint64(label_bits)
    for k in range(sums.shape[1]):
        sums[node, k] = 0
    for i in range(len(S)):
        row = np.uint64(S[i] & 0xFFFFFFFF) >> bits
        if side[row] == 0:
            add_number(sums, node, np.int64(numbers[row]), np.int64(weights[row]))


@inner_kernel
def weigh_left(S: Any, label_bits: int, side: Any, weights: Any, left: Any) -> None:
    """Sum of the weights of each class, ``left``, of the rows of a segment that are on the left."""
    bits, mask = np.uint64(label_bits), (1 << label_bits) - 1
    for k in range(len(left)):
        left[k] = 0
    for i in range(len(S)):
        row = np.uint64(S[i] & 0xFFFFFFFF) >> bits
        left[S[i] & mask] += np.int64(weights[row]) * (1 - np.int64(side[row]))


#: Elements of a block that is judged as a whole before its elements are.
BLOCK = 64
#: A screen that may pass too much but never too little: rounding of the cheap test is far below it.
SLACK = 1e-12


@kernel
def split_score(left: Any, counts: Any, node: int, n_left: int, n: int) -> float:
    """Score of a split from integer counts, ``left`` and ``counts[node]``.

    A float64 sum over the classes in order and one division. Every D_k is exact in float64 for n < 9.4e7.
    """
    total = 0.0
    for k in range(len(left)):
        D = np.float64(left[k] * n - n_left * counts[node, k])
        total += D * D
    score: float = total / np.float64(n_left * (n - n_left))
    return score


@inner_kernel
def _beats(left_ones: float, n_left: float, ones: float, n: float, bar: float) -> bool:
    """Return True if a point (n_left, left_ones) scores above ``bar``."""
    D = left_ones * n - n_left * ones
    return bar * (n_left * (n - n_left)) < D * D + D * D


@inner_kernel
def _scan_binary(S: Any, total_ones: int, best: float, spare: Any) -> tuple[float, int]:
    """Best threshold of a numeric column with two classes: (score, last element on the left) or (best, -1).

    A block of elements is first judged as a whole. The gain is convex in (n_left, left_ones), and over a block with
    k ones the path of these two lies in the parallelogram "ones first" / "zeros first": no split in it beats the best
    if none of its corners does. Then all its elements are screened at once, without a division or a branch.
    """
    size = len(S)
    ahead = spare.view(np.int32)  # ones up to each element of a block
    at = -1
    n = np.float64(size)
    ones = np.float64(total_ones)
    bar = best * (1.0 - SLACK)
    before = 0
    last = size - 1  # the last element cannot end the left side
    for begin in range(0, last, BLOCK):
        m = min(BLOCK, last - begin)
        B = S[begin : begin + m + 1]
        left_ones = before
        if size > 2 * BLOCK:
            inside = 0
            for i in range(m):
                inside += B[i] & 1
            before += inside
            a, b = np.float64(begin), np.float64(begin + m)
            p, k = np.float64(left_ones), np.float64(inside)
            if not (
                _beats(p, a, ones, n, bar)
                or _beats(p + k, a + k, ones, n, bar)
                or _beats(p, b - k, ones, n, bar)
                or _beats(p + k, b, ones, n, bar)
            ):
                continue
        running = np.int32(left_ones)
        for i in range(m):
            running += np.int32(B[i] & 1)
            ahead[i] = running
        before = np.int64(running)
        passed = 0
        for i in range(m):
            n_left = np.float64(np.int32(begin + 1 + i))
            passed += _beats(np.float64(ahead[i]), n_left, ones, n, bar)
        if not passed:
            continue
        for i in range(m):
            n_left = np.float64(begin + 1 + i)
            D = np.float64(ahead[i]) * n - n_left * ones
            twice = D * D + D * D
            sides = n_left * (n - n_left)
            if twice > bar * sides and (B[i + 1] >> 32) != (B[i] >> 32):
                score = twice / sides
                if score > best:
                    best, at = score, begin + i
                    bar = best * (1.0 - SLACK)
    return best, at


@inner_kernel
def _scan_classes(S: Any, counts: Any, node: int, left: Any, mask: int, best: float) -> tuple[float, int]:
    """The same for K classes. A cheap test on sums of squares, kept up to date, screens the exact score."""
    n = len(S)
    total = 0
    for k in range(len(left)):
        left[k] = 0
        total += counts[node, k] * counts[node, k]
    squares = np.float64(total)  # sum c_k^2
    A = 0.0  # sum of squares on the left
    B = squares  # and on the right
    size = np.float64(n)
    at = -1
    for i in range(n - 1):
        k = S[i] & mask
        A += 2.0 * left[k] + 1.0
        B -= 2.0 * (counts[node, k] - left[k]) - 1.0
        left[k] += 1
        n_left = np.float64(i + 1)
        n_right = size - n_left
        sides = n_left * n_right
        mixed = size * (A * n_right + B * n_left)
        if mixed * (1.0 + SLACK) - squares * sides > best * sides and (S[i + 1] >> 32) != (S[i] >> 32):
            score = split_score(left, counts, node, i + 1, n)
            if score > best:
                best, at = score, i
    return best, at


@inner_kernel
def _scan_values(S: Any, counts: Any, node: int, left: Any, mask: int, best: float) -> tuple[float, int]:
    """Best value against the rest of a categorical column: (score, last element of the value's run)."""
    n = len(S)
    at = -1
    start = 0
    while start < n:
        rank = S[start] >> 32
        for k in range(len(left)):
            left[k] = 0
        stop = start
        while stop < n and S[stop] >> 32 == rank:
            left[S[stop] & mask] += 1
            stop += 1
        if stop - start < n:
            score = split_score(left, counts, node, stop - start, n)
            if score > best:
                best, at = score, stop - 1
        start = stop
    return best, at


@kernel
def scan(
    S: Any, categorical: bool, counts: Any, node: int, left: Any, label_bits: int, best: float, spare: Any
) -> tuple[float, int]:
    """Return the best split of one sorted segment, if its score is above ``best`` (-1: none to beat).

    ``S`` are sorted elements of one column, ``counts[node]`` the class counts of their rows; ``left`` (K)
    and ``spare`` (min(n, 32) or more) are scratch. The result is the better of ``best`` and the segment's score, and
    the last element on the left (numeric) or of the chosen value's run (categorical), -1 if nothing is better.
    """
    if is_constant(S):
        return best, -1
    if categorical:
        return _scan_values(S, counts, node, left, (1 << label_bits) - 1, best)
    if len(left) == 2:
        return _scan_binary(S, counts[node, 1], best, spare)
    return _scan_classes(S, counts, node, left, (1 << label_bits) - 1, best)


@inner_kernel
def _number_score(q_left: int, n_left: int, q: int, n: int, bar: float) -> float:
    """Score of a split of numeric labels with these sums, or -1 if it is not above ``bar``.

    The products may leave 64 bits, their difference does not (``number_sums.MOST_EXAMPLES``).
    """
    D = np.float64(q_left * n - n_left * q)
    sides = np.float64(n_left * (n - n_left))
    if bar * sides >= D * D:
        return -1.0
    score: float = D * D / sides
    return score


@kernel
def scan_numbers(
    S: Any, categorical: bool, numbers: Any, total: int, label_bits: int, best: float
) -> tuple[float, int]:
    """Search as :func:`scan` does, for numeric labels.

    ``numbers`` has the label, in units, of each row that elements name, and ``total`` is their sum over the segment.
    """
    at = -1
    if is_constant(S):
        return best, at
    n = len(S)
    bits = np.uint64(label_bits)
    bar = best * (1.0 - SLACK)
    q_left = n_left = 0
    for i in range(n):
        q_left += numbers[np.uint64(S[i] & 0xFFFFFFFF) >> bits]
        n_left += 1
        if i == n - 1:
            if not categorical:
                break
        elif (S[i + 1] >> 32) == (S[i] >> 32):
            continue
        score = _number_score(q_left, n_left, total, n, bar)
        if score > best:
            best, at = score, i
            bar = best * (1.0 - SLACK)
        if categorical:
            q_left = n_left = 0
    return best, at


@inlined_kernel
def scan_column(
    S: Any,
    categorical: bool,
    counts: Any,
    sums: Any,
    node: int,
    numbers: Any,
    weights: Any,
    left: Any,
    label_bits: int,
    best: float,
    spare: Any,
) -> tuple[float, int]:
    """Scan as :func:`scan`, of numeric labels as :func:`scan_numbers`, of rows with weights as ``scan_weights``."""
    if len(weights) > 0:
        if counts.shape[1] == 1:
            return scan_weighted_numbers(
                S, categorical, counts[node, 0], sums[node, 0], numbers, weights, label_bits, best
            )
        return scan_weights(S, categorical, counts, node, left, weights, label_bits, best)
    if counts.shape[1] == 1:
        return scan_numbers(S, categorical, numbers, sums[node, 0], label_bits, best)
    return scan(S, categorical, counts, node, left, label_bits, best, spare)


@kernel
def scan_missing_left(
    S: Any,
    X: Any,
    rows: Any,
    column: int,
    counts: Any,
    sums: Any,
    node: int,
    numbers: Any,
    weights: Any,
    left: Any,
    label_bits: int,
    best: float,
    spare: Any,
    turned: Any,
) -> tuple[float, int]:
    """Scan a segment of a number as :func:`scan_column`, with its missing numbers on the left.

    ``turned`` (as long as the segment, or longer) is scratch. Of the threshold that parts the missing from all others
    the gain is that of infinity with the missing on the right, to the last bit, so that it is never above ``best``.
    """
    n = len(S)
    m = lacking(S, X, rows, column, label_bits)
    if m == 0 or m == n:
        return best, -1
    T = turned[:n]
    for i in range(m):
        T[i] = S[n - m + i]
    for i in range(m, n):
        T[i] = S[i - m]
    score, at = scan_column(T, False, counts, sums, node, numbers, weights, left, label_bits, best, spare)
    if at < m:
        return best, -1
    return score, at - m + n
