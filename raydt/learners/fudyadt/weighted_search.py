"""The best split of a sorted segment whose rows have weights: what ``split_search`` is for rows that count 1 each.

Counts are sums of weights in units of 2**-16, whose products do not fit into 64 bits. So D_k is taken between the two
sides, D_k = l_k n_right - n_left r_k (which equals l_k n - n_left c_k), of products that are rounded to float64 once.
Where weights are whole numbers the products are exact, and scores are 2**32 times those of repeated rows. Always they
are the same, to the last bit, whichever side is the left one. With numeric labels D is exact (96 bits), and rounded
once, as it is without weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel
from raydt.learners.fudyadt.split_sides import is_constant
from raydt.trees.exact_products import difference
from raydt.trees.weighted_numbers import add_number


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
