"""Splits that surely stay: how much the sums of a node may change before other candidates can pass its split.

A split stays while fewer than ``tolerance`` candidates gain more. So a look at all candidates notes the *bar*, the gain
that only ``tolerance`` - 1 others exceed, and how steeply the gain of a candidate can grow. Until the changes of the
node's sums since then may have lifted another candidate from the bar to the split, the split stays without another
look.

Invariant: a split that surely stays would be kept by a look, so nothing here changes a result. A gain is the sum of
G**2 / (H + l2) of both sides, less that of the whole, which all candidates share and which is left out here. With
v = G / (H + l2) the derivatives of a side's part are 2 v and -v**2. So if rows change G and H by at most g and h in
all, and abs(v) of every side stays below s, the parts of a candidate grow by at most 2 s g + s**2 h. Those of the split
itself are known. A side without rows has part 0 and v 0: this holds for a candidate that gets its first row, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel
from raydt.learners.gbdt.split_search import gain_of, part, scan

#: For rounding, which is far below: of sums of parts.
_A_LITTLE_MORE = 1.0 + 2.0**-40


class Slack(NamedTuple):
    """By tree and node, since the last look at all its candidates.

    Attributes
    ----------
    bar : ndarray of float64
        The parts of both sides that fewer than ``tolerance`` other candidates exceeded; infinite before the first look.
    steepest : ndarray of float64
        Largest abs(v) of any side of any candidate.
    G, H : ndarray of int64
        By how much rows have changed the sums: the sums of absolute values.
    """

    bar: npt.NDArray[np.float64]
    steepest: npt.NDArray[np.float64]
    G: npt.NDArray[np.int64]
    H: npt.NDArray[np.int64]


def no_slack(trees: int, nodes: int) -> Slack:
    """Nothing is known."""
    shape = trees, nodes
    return Slack(np.full(shape, np.inf), np.zeros(shape), np.zeros(shape, dtype=np.int64), np.zeros(shape, np.int64))


@inner_kernel
def surely_stays(slack: Any, t: int, node: int, parts: float, units: Any) -> bool:
    """Whether no other candidate at the bar can have reached the ``parts`` of the split. O(1)."""
    g, h = slack.G[t, node] * units.g, slack.H[t, node] * units.h
    if slack.bar[t, node] > parts or 2 * h > units.l2:
        return False
    steepest = (slack.steepest[t, node] + g / units.l2) / (1 - h / units.l2)
    highest = slack.bar[t, node] + 2 * steepest * g + steepest * steepest * h
    return bool(highest * _A_LITTLE_MORE <= parts)  # not of NaN, which l2 = 0 may give


@inner_kernel
def stays(trees: Any, t: int, node: int, local: Any, row: int, slack: Any, top: Any, found: Any) -> bool:
    """Whether fewer than ``tolerance`` candidates gain more than a split with rows on both sides. O(C), mostly O(1).

    ``top``, float64, is scratch, of which ``tolerance`` is ``len(top) - 1``; ``found``, int64, has ``FIELDS`` entries.
    """
    units, left, G, H = local.units, np.int64(trees.left[t, node]), trees.G[t, node], trees.H[t, node]
    left_G, left_H = trees.G[t, left], trees.H[t, left]
    parts = part(left_G, left_H, units) + part(G - left_G, H - left_H, units)
    if surely_stays(slack, t, node, parts, units):
        return True
    gain = gain_of(left_G, left_H, G, H, units)
    sums = local.sums[t, trees.histogram[t, node]]
    _, steepest = scan(sums, G, H, local.candidates, row, units, min(gain, 0.0), top, found)
    slack.bar[t, node], slack.steepest[t, node] = top[0] + part(G, H, units), steepest
    slack.G[t, node] = slack.H[t, node] = 0
    # The split is among the candidates: top[0] is the largest gain but ``tolerance``, with it, and so of the others.
    return bool(_second(top) <= gain)


@inner_kernel
def _second(top: Any) -> float:
    """The second smallest number of a heap of two or more."""
    second: float = top[1] if len(top) == 2 else min(top[1], top[2])
    return second
