"""Sums of numeric labels with weights at the nodes of a tree, in units of 2**-16, and masses made of these sums.

A node has n, the sum of the weights w; in ``sums``, of the labels q in units of their range, the sum of w q, and that
of w q^2, which 64 bits do not hold: ``sums[:, 1]`` has its whole rows, ``sums[:, 2]`` the rest, from 0 to below 2**16.
Where weights are whole numbers the rest is 0, and the whole rows are the sum of squares of repeated rows.

Invariant: up to ``LARGEST_SUM`` units of weight all sums are exact, and so is every difference that decides; a mass is
the one of repeated rows, to the last bit, where weights are whole (``regression_sums.number_mass``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel
from raydt.arrays.types import Int32s, Ints
from raydt.examples.weights import BITS, UNIT, Weights
from raydt.trees.exact_products import rest_of_product
from raydt.trees.regression_sums import MOST_EXAMPLES

#: Largest sum of weights in units: that of as many rows of weight 1 as there may be.
LARGEST_SUM = MOST_EXAMPLES << BITS
#: Columns of ``sums`` with weights.
COLUMNS = 3
_REST = UNIT - 1


@inner_kernel
def add_number(sums: Any, node: int, q: int, weight: int) -> None:
    """Add a label to the sums of a node; a negative weight takes it away."""
    product = weight * q
    rest = sums[node, 2] + (product & _REST) * q
    sums[node, 0] += product
    sums[node, 1] += (product >> BITS) * q + (rest >> BITS)
    sums[node, 2] = rest & _REST


@inner_kernel
def subtract_sums(sums: Any, node: int, less: int, out: int) -> None:
    """Write the sums of one node less those of another to a third."""
    rest = sums[node, 2] - sums[less, 2]
    sums[out, 0] = sums[node, 0] - sums[less, 0]
    sums[out, 1] = sums[node, 1] - sums[less, 1] + (rest >> BITS)
    sums[out, 2] = rest & _REST


@inner_kernel
def _around_mean(n: int, sums: Any, node: int) -> tuple[int, int, int]:
    """Sum of w (q - mean)^2, in rows and a rest, around the whole part of the mean; and what that part leaves of q."""
    q = sums[node, 0]
    mean = q // n
    rest = sums[node, 2] - 2 * mean * (q & _REST) + mean * mean * (n & _REST)
    rows = sums[node, 1] - 2 * mean * (q >> BITS) + mean * mean * (n >> BITS) + (rest >> BITS)
    return rows, rest & _REST, q - mean * n


@inner_kernel
def weighted_number_mass(n: int, sums: Any, node: int) -> float:
    """The mass of labels whose weights add up to n, in units squared and rows of weight 1."""
    if n == 0:
        return 0.0
    rows, rest, left = _around_mean(n, sums, node)
    high, low = rows >> 20, ((rows & 0xFFFFF) << BITS) | rest  # so that their sum is rounded once
    around = np.float64(high) * 1048576.0 + np.float64(low) / np.float64(UNIT)
    mass: float = around - np.float64(left) * np.float64(left) / np.float64(n) / np.float64(UNIT)
    return mass


@inner_kernel
def are_equal(n: int, sums: Any, node: int) -> bool:
    """Return True if all labels of a node that is not empty are equal."""
    rows, rest, left = _around_mean(n, sums, node)
    equal: bool = rows == 0 and rest == 0 and left == 0
    return equal


@inner_kernel
def are_close(n: int, sums: Any, node: int, limit: int) -> bool:
    """Return True if the mass of a node that is not empty is at most ``limit`` a row; exact."""
    rows, rest, left = _around_mean(n, sums, node)
    rest -= limit * (n & _REST)
    rows += (rest >> BITS) - limit * (n >> BITS)
    rest &= _REST
    if rows < 0 or rows >= LARGEST_SUM >> BITS:  # left^2 / n is below n
        close: bool = rows < 0
        return close
    # (rows, rest) n <= left^2, by the rounded products and, if these are equal, by what rounding took.
    above, size, square = np.float64((rows << BITS) | rest), np.float64(n), np.float64(left) * np.float64(left)
    product = above * size
    if product == square:
        close = rest_of_product(above, size, product) <= rest_of_product(np.float64(left), np.float64(left), square)
        return close
    close = product < square
    return close


def sums_of(units: Int32s, weights: Weights) -> Ints:
    """Add up labels in units with weights: the ``sums`` of a node that has them, shape (COLUMNS,)."""
    total = squares = 0
    for q, weight in zip(units.tolist(), weights.tolist(), strict=True):
        total += q * weight
        squares += q * q * weight
    return np.array([total, squares >> BITS, squares & _REST], dtype=np.int64)


def in_units(sums: Ints) -> Ints:
    """Return the ``sums`` of nodes, shape (nodes, 2), whose rows all have weight 1, as those with weights."""
    return np.column_stack([sums[:, 0] * UNIT, sums[:, 1], np.zeros(len(sums), dtype=np.int64)])
