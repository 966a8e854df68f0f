"""The gain of a split, and the candidates of a node searched for the best one or for the rank of the current one.

The rank decides whether a split stays (paper, section 3.4).

Invariant: a gain depends on integer sums only, through one function; gains are compared, never added.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import inner_kernel

#: A split must gain more than this to be made, since what remains of gains that are 0 is rounding: with classes as it
#: is; of a regression, whose targets have no scale of their own, times the part of the node.
LEAST_GAIN, LEAST_SHARE = 1e-10, 2.0**-44
#: Rounding of the comparison without division is far below this.
_SURELY_LESS = 1.0 - 1e-12
#: Fields of a split that was found: local feature, cut, and the sums of its left side.
FEATURE, CUT, LEFT_G, LEFT_H, FIELDS = 0, 1, 2, 3, 4


class Units(NamedTuple):
    """Value of 1 of a sum of first and of second derivatives, and the L2 term (eq. (5) with it in all denominators)."""

    g: float
    h: float
    l2: float


@inner_kernel
def part(G: int, H: int, units: Any) -> float:
    """G**2 / (H + l2) of sums with H > 0."""
    g = G * units.g
    whole: float = g * g / (H * units.h + units.l2)
    return whole


@inner_kernel
def gain_of(left_G: int, left_H: int, G: int, H: int, units: Any) -> float:
    """Gain of a split (eq. (5)); both sides must have H > 0."""
    return part(left_G, left_H, units) + part(G - left_G, H - left_H, units) - part(G, H, units)


@inner_kernel
def least_gain(G: int, H: int, units: Any) -> float:
    """What a split of a node must gain more than."""
    least: float = part(G, H, units) * LEAST_SHARE if units.h == 1.0 else LEAST_GAIN
    return least


@inner_kernel
def rest_of(sums: Any, G: int, H: int, c: Any, row: int, j: int) -> tuple[int, int, int]:
    """The segment of a feature whose sums are not stored, -1 if all are, and its G and H. O(segments)."""
    if c.whole[j]:
        return np.int64(-1), G, H
    default = np.int64(c.default[row, j])
    if default >= 0:
        s = np.uint64(c.stored[j])
        for i in range(s, s + (np.uint64(c.first[j + 1]) - np.uint64(c.first[j]))):
            G -= sums[i, 0]
            H -= sums[i, 1]
    return default, G, H


@inner_kernel
def scan(sums: Any, G: int, H: int, local: Any, row: int, limit: float, best: Any, found: Any) -> None:
    """Search the candidates of a node, on the features of a shard, for the one that gains most, and more than a limit.

    ``best``, float64, shape (1,), takes its gain and ``found`` the split (FIELDS), feature -1 if there is none: of
    equal gains the smaller feature, then the smaller cut. O(C).
    """
    c, units = local.candidates, local.units
    whole = part(G, H, units) if H > 0 else 0.0
    found[FEATURE] = -1
    for j in range(local.first, local.stop):
        begin, end = np.uint64(c.first[j]), np.uint64(c.first[j + 1])
        if begin == end:
            continue
        s, categorical = np.uint64(c.stored[j]), c.categorical[j] != 0
        default, rest_G, rest_H = rest_of(sums, G, H, c, row, j)
        left_G, left_H = np.int64(0), np.int64(0)
        for i in range(np.int64(end - begin)):
            is_rest = i == default
            g, h = rest_G, rest_H
            if not is_rest or categorical:  # the segment of a drawn default category holds what is not drawn
                if not is_rest:
                    g, h = sums[s, 0], sums[s, 1]
                s += np.uint64(1)
            left_G, left_H = (g, h) if categorical else (left_G + g, left_H + h)
            if left_H <= 0 or left_H >= H:
                continue
            # Most cannot win, which needs no division: a gain is a sum of parts less the whole.
            a, x = left_G * units.g, left_H * units.h + units.l2
            b, y = (G - left_G) * units.g, (H - left_H) * units.h + units.l2
            if a * a * y + b * b * x < (limit + whole) * (x * y) * _SURELY_LESS:
                continue
            gain = part(left_G, left_H, units) + part(G - left_G, H - left_H, units) - whole
            if gain > limit:
                best[0] = limit = gain
                cut = c.cuts[row, begin + np.uint64(i)]
                found[FEATURE], found[CUT], found[LEFT_G], found[LEFT_H] = j, cut, left_G, left_H
