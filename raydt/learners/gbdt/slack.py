"""Splits that surely stay: how much the sums of a node may change before other candidates can pass its split.

A node is judged by a look at all its candidates. Then all but a few of them gain less than its split by a *margin*.
Until the changes of the node's sums since then may have used it up, the split stays without another look: for most rows
of several classes, whose derivatives in most trees are tiny, that is soon decided.

Invariant: a split that surely stays would be kept by ``scan``, so nothing here changes a result. A gain is the sum of
G**2 / (H + l2) of both sides, less that of the whole, which all candidates share. With v = G / (H + l2) the derivatives
of a side's part are 2 v and -v**2. So if rows change G and H by at most g and h in all, and abs(v) of every side stays
below s, the parts of a candidate change by at most 2 s g + s**2 h.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel
from raydt.learners.gbdt.split_search import part, scan

#: Of the gain of a split: the margin.
_SHARE = 2.0**-5
#: Of a gain and of a margin, for rounding, which is far below.
_ROUNDING, _A_LITTLE_MORE = 2.0**-40, 1.0 + 2.0**-20


class Slack(NamedTuple):
    """By tree and node.

    Attributes
    ----------
    margin : ndarray of float64
        How much less all but a few candidates gain than the split; 0: not known; -1: there is none.
    steepest : ndarray of float64
        Largest abs(v) of any side of any candidate, when the margin was found.
    G, H : ndarray of int64
        By how much rows have changed the sums since: the sums of absolute values.
    """

    margin: npt.NDArray[np.float64]
    steepest: npt.NDArray[np.float64]
    G: npt.NDArray[np.int64]
    H: npt.NDArray[np.int64]


def no_slack(trees: int, nodes: int) -> Slack:
    """Nothing is known."""
    shape = trees, nodes
    return Slack(np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64))


@inner_kernel
def surely_stays(slack: Any, t: int, node: int, units: Any) -> bool:
    """Whether the margin of a split cannot be used up. O(1)."""
    g, h = slack.G[t, node] * units.g, slack.H[t, node] * units.h
    if slack.margin[t, node] <= 0 or 2 * h > units.l2:
        return False
    steepest = (slack.steepest[t, node] + g / units.l2) / (1 - h / units.l2)
    change = 2 * steepest * g + steepest * steepest * h  # of the split, and of another candidate
    return bool(2 * change * _A_LITTLE_MORE <= slack.margin[t, node])


@inner_kernel
def stays(
    slack: Any, t: int, node: int, sums: Any, G: int, H: int, gain: float, local: Any, row: int, most: int, found: Any
) -> bool:
    """Whether fewer than ``most`` candidates gain more than the split; notes the margin, if there is one. O(C)."""
    units = local.units
    if gain > 0 and slack.margin[t, node] >= 0:
        margin = _SHARE * gain
        better, _, steepest = scan(sums, G, H, local.candidates, row, units, gain - margin, most, found)
        slack.margin[t, node], slack.steepest[t, node] = -1.0, steepest
        slack.G[t, node] = slack.H[t, node] = 0
        if better < most:
            slack.margin[t, node] = margin - _ROUNDING * (part(G, H, units) + gain)
            return True
    better, _, _ = scan(sums, G, H, local.candidates, row, units, gain, most, found)
    return bool(better < most)
