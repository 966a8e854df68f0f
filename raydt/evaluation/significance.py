"""Whether two runs over the same stream differ by more than chance: McNemar's test, and a bootstrap interval.

Both take the predictions of the same examples in pairs. McNemar's test assumes that one prediction does not depend on
another; the interval draws whole blocks of neighbouring predictions, and so allows for errors that come in stretches,
as they do after a drift.

Invariant: the interval is drawn from a counter, so that two calls with the same predictions give the same numbers.

Sources: Q. McNemar, Note on the sampling error of the difference between correlated proportions, Psychometrika 1947;
H. R. Kuensch, The jackknife and the bootstrap for general stationary observations, Annals of Statistics 1989.
"""

from __future__ import annotations

import math

import numpy as np

from raydt.arrays.rng import stream_key, uniform
from raydt.arrays.types import AnyArray, Floats

#: Up to so many pairs that differ, the test is exact.
EXACT_PAIRS = 1000

RESAMPLES = 2000


def mcnemar(first_only: int, second_only: int) -> float:
    """Return the two-sided p-value that both are right equally often, from the examples that only one has right.

    Of the binomial distribution up to :data:`EXACT_PAIRS` such examples, beyond that of chi squared with the correction
    of continuity; 1 if there are none.
    """
    n, smaller = first_only + second_only, min(first_only, second_only)
    if n > EXACT_PAIRS:
        distance = max(0, abs(first_only - second_only) - 1)
        return math.erfc(math.sqrt(distance * distance / n / 2.0))
    term = tail = 1
    for k in range(smaller):
        term = term * (n - k) // (k + 1)
        tail += term
    return min(1.0, 2 * tail / (1 << n))


def interval(differences: Floats, share: float = 0.95) -> tuple[float, float]:
    """Return an interval that covers the mean of n >= 1 differences, in stream order, in ``share`` of cases.

    Its ends are percentiles of :data:`RESAMPLES` means over blocks of n^(1/3) predictions, drawn with replacement.
    """
    n = len(differences)
    length = math.ceil(n ** (1 / 3))
    begins = np.arange(0, n, length)
    return interval_of_blocks(np.add.reduceat(differences, begins), np.diff(np.append(begins, n)), share)


def interval_of_blocks(sums: AnyArray, sizes: AnyArray, share: float = 0.95) -> tuple[float, float]:
    """Return the interval of :func:`interval` from the sums of the differences in blocks of ``sizes`` predictions."""
    key, blocks = stream_key(0, "bootstrap"), len(sums)
    means = np.empty(RESAMPLES)
    for k in range(RESAMPLES):
        drawn = (uniform(key, np.arange(k * blocks, (k + 1) * blocks)) * blocks).astype(np.int64)
        means[k] = sums[drawn].sum() / sizes[drawn].sum()
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)
