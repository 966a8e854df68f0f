"""Products of a rate and a size, of which nothing is lost to rounding."""

from __future__ import annotations

import numpy as np

from raydt.arrays.kernel import inlined_kernel, kernel


@inlined_kernel
def rest_of_product(rate: float, size: float, product: float) -> float:
    """What rounding has taken from a product of float64: ``rate * size - product``, exactly (Dekker's two-product)."""
    split = 134217729.0
    a = split * rate
    a_high = a - (a - rate)
    a_low = rate - a_high
    b = split * size
    b_high = b - (b - size)
    b_low = size - b_high
    rest: float = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return rest


@kernel
def floor_product(rate: float, size: int) -> int:
    """``floor(rate * size)`` of the exact product of a float64 and an integer below 2**53."""
    product = rate * size
    whole = np.floor(product)
    if whole == product and rest_of_product(rate, np.float64(size), product) < 0.0:
        whole -= 1.0
    return int(whole)
