"""Numeric labels of a tree as whole numbers: their range, the unit they are counted in, and the mass of a node.

A label y of the range [low, high] counts as ``q = floor((y - low) / unit + 1/2)`` units, from 0 to ``top``; one outside
as the nearer end. The unit is the power of two for which ``top`` is at most 65536, so that whole numbers, and fractions
of them by powers of two, are counted exactly. All a node keeps of its labels are n, the sum of q, and the sum of q^2:
integers, which do not depend on the order of insertions and deletions.

Mass of a node, h = sum (q - mean)^2 in units squared. Its variance is h / n, and h / (n top^2) in units of the range
squared, in which alpha and beta are given.

Invariant: up to ``MOST_EXAMPLES`` examples, every sum and the numerator of every gain fit into 64 bits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.types import Floats, Int32s, Ints

#: A label has at most so many units.
MOST_UNITS = 65536
#: |l n - n_left q| <= n^2 / 4 * 65536 is below 2**63, and n^2 * 65536^2 / 4 as sum of squares.
MOST_EXAMPLES = 2**24
#: No node has a greater mass, with classes or with numbers.
LARGEST_MASS = 2.0**56
#: Of a power of two: a range below its inverse is none, and no end of one lies beyond it.
LARGEST_EXPONENT = 900


class LabelRange(NamedTuple):
    """The range that labels are counted in; NaN while it is not known."""

    low: float
    high: float
    unit: float  #: A power of two.
    top: int  #: Units of ``high``.

    @classmethod
    def of(cls, low: float, high: float) -> LabelRange:
        """Return the range from ``low`` to ``high``, with its unit; of NaN or infinity the range that is not known."""
        if not 2.0**-LARGEST_EXPONENT <= high - low < math.inf:
            return cls(math.nan, math.nan, math.nan, 0)
        mantissa, exponent = math.frexp(high - low)
        unit = math.ldexp(1.0, exponent - (mantissa == 0.5) - 16)
        return cls(low, high, unit, math.floor((high - low) / unit + 0.5))

    @classmethod
    def seen(cls, y: Floats) -> LabelRange:
        """A range around the labels of a warm-up, whose ends no label can be read from. O(n).

        The ends are multiples of a step, the power of two for which the labels extend over 8 to 16 steps; a label that
        they all have counts as if they extended from 0 to twice as far.
        """
        if len(y) == 0:
            return cls.of(0.0, 1.0)
        low, high = float(y.min()), float(y.max())
        room = (abs(low) or 1.0) if low == high else 0.0
        low, high = low - room, high + room
        step = math.ldexp(1.0, math.frexp(high - low)[1] - 4)
        return cls.of(low // step * step, 0.0 - -high // step * step)

    @property
    def known(self) -> bool:
        """Whether there is a range."""
        return self.top > 0

    def units(self, y: Floats) -> Int32s:
        """Labels in units, shape (n,); 0 of a range that is not known."""
        if not self.known:
            return np.zeros(len(y), dtype=np.int32)
        near = np.clip(y, self.low, self.high)
        units: Int32s = np.floor((near - self.low) / self.unit + 0.5).astype(np.int32)
        return units

    def numbers(self, mean: Floats) -> Floats:
        """Predictions, shape (n,), of means in units; of a negative one, where there is no example, 0."""
        numbers: Floats = np.where(mean < 0.0, 0.0, self.low + self.unit * mean)
        return numbers


@inner_kernel
def mass_ceiling(n: int, q: int, squares: int) -> int:
    """The mass of n labels with these sums, rounded up to whole units squared; exact, and 0 only if all are equal."""
    if n == 0:
        return 0
    mean = q // n
    rest = q - mean * n
    ceiling: int = squares - 2 * mean * q + n * mean * mean - rest * rest // n
    return ceiling


@inner_kernel
def number_mass(n: int, q: int, squares: int) -> float:
    """The mass of n labels with these sums: around the whole part of their mean, exact integers; then one division."""
    if n == 0:
        return 0.0
    mean = q // n
    rest = q - mean * n
    mass: float = np.float64(squares - 2 * mean * q + n * mean * mean) - np.float64(rest * rest) / np.float64(n)
    return mass


@kernel
def _mass_ceilings(n: Any, sums: Any, out: Any) -> None:
    for i in range(len(n)):
        out[i] = mass_ceiling(n[i], sums[i, 0], sums[i, 1])


def mass_ceilings(n: Ints, sums: Ints) -> Ints:
    """:func:`mass_ceiling` of each row of ``sums``, shape (nodes, 2)."""
    out = np.empty(len(n), dtype=np.int64)
    _mass_ceilings(np.ascontiguousarray(n), np.ascontiguousarray(sums), out)
    return out
