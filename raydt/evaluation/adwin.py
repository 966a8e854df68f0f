"""ADWIN on a stream of errors: an alarm when the share of wrong predictions has risen.

A window of the most recent outcomes (1: wrong, 0: right) is kept in buckets of 1, 2, 4, ... outcomes, at most
``MOST_BUCKETS`` of a size. After every ``CLOCK`` outcomes the window is cut at each border of buckets in turn; where
the shares of the two sides differ by more than chance allows, the share has changed: the window begins again, and if
the newer side has more errors, there is an alarm. A share that has fallen restarts the window in silence.

=============  =====================================================================
paper          here
=============  =====================================================================
W, W0, W1      window, its older and its newer side
mu_W0, mu_W1   ``before``, ``after``: shares of errors in the two sides
delta          ``delta``
epsilon_cut    ``limit`` (the normal form with the variance of the window)
=============  =====================================================================

Invariant: outcomes are 0 or 1, so that a bucket is one integer, the number of its errors, and the variance of the
window follows exactly. The logarithm is computed here by addition, multiplication and division alone: an alarm does not
depend on the mathematical library of a machine.

Changes are found where river's ``drift.ADWIN`` finds them, which keeps the variance as a float that it updates. MOA
goes on with the newer side, and so may find a change again that it has found before.

Source: A. Bifet and R. Gavalda, Learning from time-changing data with adaptive windowing, SDM 2007. Not here: errors of
numbers, which have no bound, as the method needs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.elementary import AnyArray, Floats, Ints, stream_key, uniform
from raydt.arrays.kernel import inner_kernel

#: Outcomes between two checks (a power of two), buckets of one size, least outcomes of a side, and outcomes before the
#: first check.
CLOCK, MOST_BUCKETS, LEAST_SIDE, GRACE = 32, 5, 5, 10

#: Registers of a window: outcomes in it, errors in it, outcomes since it began, used sizes of buckets.
WIDTH, ERRORS, TICK, SIZES = 0, 1, 2, 3

#: Places in the ring of one size, which has room for MOST_BUCKETS + 1: a power of two, and the mask of a place.
RING, _RING = 8, 7
#: Sizes of buckets in a window of any number of outcomes.
MOST_SIZES = 64
_LOG_2 = math.log(2.0)


class Adwin(NamedTuple):
    """A window of outcomes."""

    reg: Ints  #: Shape (4,): registers ``WIDTH`` to ``SIZES``.
    #: ``used``, ``first``: Shape (sizes,): buckets of 2^k outcomes: how many, and where in its ring of ``errors`` the
    #: oldest is.
    used: Ints
    first: Ints
    errors: Ints  #: Shape (sizes, 8): errors of each bucket.
    sides: Floats  #: Shape (2,): shares of errors before and after the last change that was found.


def new_adwin() -> Adwin:
    """Return an empty window with room for any number of outcomes."""
    return Adwin(
        np.zeros(4, dtype=np.int64),
        np.zeros(MOST_SIZES, dtype=np.int64),
        np.zeros(MOST_SIZES, dtype=np.int64),
        np.zeros((MOST_SIZES, RING), dtype=np.int64),
        np.zeros(2),
    )


def sizes_for(outcomes: int) -> int:
    """Return how many sizes of buckets a window of so many outcomes may have; it has five of all but the largest."""
    return outcomes.bit_length() + 1


@inner_kernel
def natural_log(x: float) -> float:
    """Return the logarithm of x >= 1, to one unit in the last place or two. O(log x)."""
    halvings = 0.0
    while x >= 2.0:
        x *= 0.5
        halvings += 1.0
    z = (x - 1.0) / (x + 1.0)  # at most 1/3: 17 terms of the series of artanh are exact to a double
    square, power, total = z * z, z, 0.0
    for k in range(17):
        total += power / (2 * k + 1)
        power *= square
    return 2.0 * total + halvings * _LOG_2


@inner_kernel
def observe(window: Any, error: int, delta: float) -> int:
    """Add one outcome. Return 1 or -1 if the share of errors has changed, up or down, else 0.

    O(1), and O(log width) at a check. After a change the window is empty, and ``sides`` has the two shares.
    """
    reg, used, first, errors = window.reg, window.used, window.first, window.errors
    reg[WIDTH] += 1
    reg[TICK] += 1
    reg[ERRORS] += error
    size, merged = 0, error
    while True:
        at, here = first[size], used[size]
        errors[size, (at + here) & _RING] = merged
        if here < MOST_BUCKETS:
            used[size] = here + 1
            break
        # The two oldest of a size become one of the next.
        merged = errors[size, at] + errors[size, (at + 1) & _RING]
        first[size], used[size] = (at + 2) & _RING, here - 1
        size += 1
    reg[SIZES] = max(reg[SIZES], size + 1)
    if reg[TICK] & (CLOCK - 1) or reg[WIDTH] <= GRACE:
        return 0
    return _check(window, delta)


@inner_kernel
def _check(window: Any, delta: float) -> int:
    """Compare the two sides of every cut; ``sides`` are those of the clearest, whose shares chance explains least."""
    reg, used, first, errors = window.reg, window.used, window.first, window.errors
    width = float(reg[WIDTH])
    doubt = natural_log(2.0 * natural_log(width) / delta)
    share = reg[ERRORS] / width
    variance = share * (1.0 - share)
    # A side that is shortened only raises the limit: most cuts are passed over without a division or a root.
    least = 2.0 * width * variance * doubt * 0.999999
    old, new, clearest = 0.0, width, 0.0
    old_errors, new_errors = 0.0, float(reg[ERRORS])
    for size in range(reg[SIZES] - 1, -1, -1):
        length = float(np.int64(1) << size)
        for k in range(used[size]):
            here = errors[size, (first[size] + k) & _RING]
            old, new = old + length, new - length
            old_errors, new_errors = old_errors + here, new_errors - here
            apart = old_errors * new - new_errors * old
            if old < LEAST_SIDE or new < LEAST_SIDE or apart * apart < least * old * new:
                continue
            before, after = old_errors / old, new_errors / new
            inverse = 1.0 / (old - LEAST_SIDE + 1.0) + 1.0 / (new - LEAST_SIDE + 1.0)
            limit = np.sqrt(2.0 * inverse * variance * doubt) + 2.0 / 3.0 * doubt * inverse
            if abs(before - after) > limit and apart * apart > clearest * old * new:
                clearest = apart * apart / (old * new)
                window.sides[0], window.sides[1] = before, after
    if clearest == 0.0:
        return 0
    reg[:] = 0
    used[:] = 0
    first[:] = 0
    errors[:] = 0  # so that what a state leaves out is 0
    return 1 if window.sides[1] > window.sides[0] else -1


# Whether two runs over the same stream differ by more than chance: McNemar's test, and a bootstrap interval.
#
# Both take the predictions of the same examples in pairs. McNemar's test assumes that one prediction does not depend on
# another; the interval draws whole blocks of neighbouring predictions, and so allows for errors that come in stretches,
# as they do after a drift.
#
# Invariant: the interval is drawn from a counter, so that two calls with the same predictions give the same numbers.
#
# Sources: Q. McNemar, Note on the sampling error of the difference between correlated proportions, Psychometrika 1947;
# H. R. Kuensch, The jackknife and the bootstrap for general stationary observations, Annals of Statistics 1989.

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
