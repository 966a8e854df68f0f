"""Bins of a feature, value by value: the slow twin of ``raydt.batches.binning``.

Source: Lin, Chung, Lao, Zhao, "Online Gradient Boosting Decision Tree" (ICML 2025), appendix A, Algorithm 4. Where
this leaves it: the printed loop never counts its first bin, and so makes one more than B; its width of 1e-10 is halved
as well as doubled, and there are values whose differences are not numbers; a value that was not seen
goes to the nearest bin; NaN has a code of its own, right of every cut; categories have a bin each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise


class NumericBins:
    """Bins of a numeric feature; ``code <= cut`` goes left."""

    def __init__(self, values: Sequence[float], max_bins: int, binning: str) -> None:
        finite = sorted(v for v in values if not math.isnan(v))
        self.has_nan = len(finite) < len(values)
        most = max_bins - 1 if self.has_nan else max_bins
        bins = doubling(finite, most) if binning == "doubling" else quantile(finite, most)
        self.boundaries = [between(low[-1], high[0]) for low, high in pairwise(bins)]
        self.cuts = list(range(max(1, len(bins)) - 1 + self.has_nan))

    def code(self, x: float) -> int:
        return len(self.boundaries) + 1 if math.isnan(x) else sum(boundary < x for boundary in self.boundaries)

    def is_left(self, code: int, cut: int) -> bool:
        return code <= cut


class CategoryBins:
    """Bins of a categorical feature: the commonest categories, and one for all others; ``code == cut`` goes left."""

    def __init__(self, values: Sequence[float], max_bins: int) -> None:
        count = Counter(int(v) for v in values if v >= 0)
        self.kept = sorted(count, key=lambda category: (-count[category], category))[: max_bins - 1]
        self.has_other = any(v not in self.kept for v in values)
        self.cuts = sorted({self.code(v) for v in values})
        self.cuts = {0: [], 1: [], 2: self.cuts[:1]}.get(len(self.cuts), self.cuts)

    def code(self, x: float) -> int:
        return self.kept.index(int(x)) if x in self.kept else len(self.kept)

    def is_left(self, code: int, cut: int) -> bool:
        return code == cut


def doubling(values: Sequence[float], most: int) -> list[list[float]]:
    """Algorithm 4: the members of each bin, for sorted ``values``; the width begins where equal values alone share."""
    gaps = [high / 2 - low / 2 for low, high in pairwise(values) if low < high]
    if len(gaps) < most:
        return [list(equal) for _, equal in groupby(values)]
    largest = max(map(abs, values))
    by = 2.0**64 if largest < 2.0**-960 else 2.0**-64 if largest >= 2.0**960 else 1.0
    k = -1060
    if by == 1.0:
        k = math.frexp(min(gaps) / 1e-10)[1] - 1
    while True:
        width = math.ldexp(1e-10, k)
        bins: list[list[float]] = []
        for v in values:
            if not bins or v * by - bins[-1][0] * by > width:
                bins.append([])
            bins[-1].append(v)
        if len(bins) <= most:
            return bins
        k += 1


def quantile(values: Sequence[float], most: int) -> list[list[float]]:
    """The members of each of at most ``most`` bins that hold about as many of the sorted ``values``."""
    ends = sorted(set(values))
    if len(ends) > most:
        n = len(values)
        ends = sorted({values[-(-i * n // most) - 1] for i in range(1, most + 1)})
    bins: list[list[float]] = [[] for _ in ends]
    for v in values:
        bins[next(b for b, end in enumerate(ends) if v <= end)].append(v)
    return bins


def between(low: float, high: float) -> float:
    """The boundary of two bins, of which ``low`` is the largest and ``high`` the smallest value."""
    middle = low / 2 + high / 2
    return middle if middle < high else low
