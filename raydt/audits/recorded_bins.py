"""Bins of features for audits: as a state records them, and derived from the raw rows of the warm-up.

Nothing of the fast path is imported. Source: Lin et al. (ICML 2025), appendix A, whose loop makes one bin too many as
printed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raydt.arrays.types import AnyArray, Floats, Ints
from raydt.examples.features import Features
from raydt.messages import message

#: Width the bins of Algorithm 4 begin with here; doublings that make it infinite, and halvings that make it 0.
FIRST_WIDTH = 1e-10
FOREVER, NOTHING = 1058, -1042


class MalformedModelError(Exception):
    """Node arrays that are no trees in preorder, or bins that are none."""


@dataclass(frozen=True, eq=False)
class FeatureBins:
    """Bins of one feature: boundaries of numbers, or kept categories; ``seen``: the warm-up had others, or NaN."""

    categorical: bool
    values: Floats
    seen: bool

    @property
    def bins(self) -> int:
        """How many codes there are."""
        return len(self.values) + (1 if self.categorical else 2)

    @property
    def cuts(self) -> int:
        """How many cuts there are, numbered from 0: one of two categories, and no cut of fewer."""
        available = len(self.values) + self.seen
        return available - (available <= 2 and available > 0) if self.categorical else available

    def codes(self, x: Floats) -> Ints:
        """Bin of each value."""
        if self.categorical:
            codes = np.full(len(x), len(self.values))
            order = np.argsort(self.values)
            place = np.searchsorted(self.values, x, sorter=order)
            known = np.flatnonzero(place < len(order))
            known = known[self.values[order[place[known]]] == x[known]]
            codes[known] = order[place[known]]
            return codes
        return np.where(np.isnan(x), len(self.values) + 1, np.searchsorted(self.values, x))

    def equals(self, other: FeatureBins) -> bool:
        """Whether kind, values and what was seen are the same."""
        return (self.categorical, self.seen) == (other.categorical, other.seen) and np.array_equal(
            self.values, other.values
        )


def derived_bins(x: Floats, categorical: bool, max_bins: int, binning: str) -> FeatureBins:
    """Bins of one feature from its values in the warm-up. O(n log n)."""
    if categorical:
        categories, counts = np.unique(x[x >= 0], return_counts=True)
        kept = categories[np.lexsort((categories, -counts))][: max_bins - 1]
        return FeatureBins(True, kept, bool((~np.isin(x, kept)).any()))
    known = np.sort(x[~np.isnan(x)])
    seen = len(known) < len(x)
    most = max(1, max_bins - seen)
    values = np.unique(known)
    if len(values) <= most:
        first = np.arange(1, len(values))
    elif binning == "quantile":
        last = known[[-(-i * len(known) // most) - 1 for i in range(1, most + 1)]]
        first = np.unique(np.searchsorted(values, last, side="right"))[:-1]
    else:
        # Numbers from 2**960 on, or below 2**-960, in units of 2**64 or 2**-64: differences are normal numbers.
        size = math.frexp(float(np.abs(values).max()))[1]
        unit = math.ldexp(1.0, 64 * ((size > 960) - (size < -960)))
        first = np.array(_starts_of_doubled((values / unit).tolist(), most), np.int64)[1:]
    low, high = values[first - 1], values[first]
    middle = low / 2 + high / 2
    return FeatureBins(False, np.where(middle < high, np.maximum(middle, low), low), seen)


def _starts_of_doubled(values: list[float], most: int) -> list[int]:
    """First value of each bin of the least width, 1e-10 doubled or halved, that makes at most so many bins.

    A greater width never makes more bins (what begins a bin moves right only), so the doublings can be halved.
    """
    few, many = FOREVER, NOTHING
    while few - many > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if len(_starts(values, middle, most)) <= most else (few, middle)
    return _starts(values, few, most)


def _starts(values: list[float], doublings: int, most: int) -> list[int]:
    """First value of each bin; one too many at most. O(most log n)."""
    width = math.ldexp(FIRST_WIDTH, doublings) if doublings < FOREVER else math.inf
    starts = [0] if values else []
    while starts and len(starts) <= most:
        first = values[starts[-1]]
        after = bisect_right(values, width, lo=starts[-1], key=lambda v: v - first)
        if after == len(values):
            break
        starts.append(after)
    return starts


def recorded_bins(state: Mapping[str, AnyArray], features: Features) -> tuple[list[FeatureBins], Ints]:
    """Return the bins of the dense features, and indices of the sparse ones that had both values then.

    The one cut of such a sparse feature has 0 on the left. Bins of other features are a ``MalformedModelError``.
    """
    starts, values, ranks = state["bins_starts"], state["bins_values"], state["bins_ranks"]
    kinds, sparse = features.kinds, np.asarray(state.get("bins_sparse", ()), dtype=np.int64)
    if not np.array_equal(state["bins_kinds"], kinds) or not len(starts) - 1 == len(kinds) == len(state["bins_seen"]):
        raise MalformedModelError(message("states.kinds", array="bins_kinds"))
    if len(sparse) and not (sparse[0] >= 0 and (np.diff(sparse) > 0).all() and sparse[-1] < features.sparse):
        raise MalformedModelError(message("states.order", array="bins_sparse"))
    if starts[0] != 0 or (np.diff(starts) < 0).any() or not starts[-1] == len(values) == len(ranks):
        raise MalformedModelError(message("states.order", array="bins_starts"))
    found = []
    for j, categorical in enumerate(features.categorical):
        part, rank = values[starts[j] : starts[j + 1]], ranks[starts[j] : starts[j + 1]]
        if categorical:
            if not np.array_equal(np.sort(rank), np.arange(len(rank))):
                raise MalformedModelError(message("states.ranks", array="bins_ranks"))
            part = part[np.argsort(rank)]
        found.append(FeatureBins(categorical, np.asarray(part, np.float64), bool(state["bins_seen"][j])))
    return found, sparse
