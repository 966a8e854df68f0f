"""Products, and differences of products, of which nothing is lost to rounding, or which are rounded once."""

from __future__ import annotations

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel


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


@inner_kernel
def difference_words(a: int, b: int, c: int, d: int) -> tuple[int, int]:
    """a b - c d in two words, ``high 2**48 + low``: a, d up to 2**58 in absolute value, b, c from 0 up to 2**40."""
    a_high, a_low, d_high, d_low = a >> 28, a & 0xFFFFFFF, d >> 28, d & 0xFFFFFFF
    b_high, b_low, c_high, c_low = b >> 20, b & 0xFFFFF, c >> 20, c & 0xFFFFF
    middle = ((a_high * b_low - c_low * d_high) << 8) + a_low * b_high - c_high * d_low  # in units of 2**20
    low = a_low * b_low - c_low * d_low + ((middle & 0xFFFFFFF) << 20)
    return a_high * b_high - c_high * d_high + (middle >> 28) + (low >> 48), low & 0xFFFFFFFFFFFF


@inner_kernel
def difference(a: int, b: int, c: int, d: int) -> float:
    """a b - c d, rounded once to float64: sums of labels a, d up to 2**56, of weights b, c up to 2**40."""
    high, low = difference_words(a, b, c, d)
    rounded: float = np.float64(high) * 281474976710656.0 + np.float64(low)
    return rounded


@inner_kernel
def rounded_words(high: int, low: int) -> float:
    """``high 2**60 + low``, rounded once to float64: high up to 2**53 in absolute value, low from 0 to below 2**60."""
    upper = np.float64(high) * 1152921504606846976.0
    middle, rest = np.float64(low >> 30) * 1073741824.0, np.float64(low & 0x3FFFFFFF)
    total = upper + middle
    lost = middle - (total - upper)  # by rounding, exactly: a multiple of 2**30
    if rest > 0.0 and abs(total) >= 19342813113834066795298816.0:
        # From 2**84 on the rest only says between which multiples of 2**30 the number lies; so it stays exact.
        rest = 536870912.0
    rounded: float = total + (lost + rest)
    return rounded
