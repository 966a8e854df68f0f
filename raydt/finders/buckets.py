"""Buckets of features by rho = c01 / n0, the share of class 1 where the feature is 0.

Within a bucket features are compared by a key that depends on their own counters only, so that a row changes the
keys of its ones and no others; the interval [s, t] of rho is such that the smallest key is within (1 + alpha) of the
best score of the bucket (paper, Propositions 4.2 and 5.2). Intervals overlap, so that a feature at a border does not
move at every update. For entropy this departs from the paper, which keeps a feature in a range of trees; see
``docs/explanation/guarantees.md``.

A mirrored bucket takes class 0 for class 1: of entropy those with rho > 1/2.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel
from raydt.arrays.types import Bools, Floats

#: Rows of a node stay below two to this power, and the units of its mass do not exceed the other: the least rho that is
#: not 0 is one row, or unit, of them all.
_LOG_ROWS, _LOG_MASS = 31, 48
#: How far inside the true interval the tests of entropy are, relative: far above their rounding.
_RIM = 1e-9


class Buckets(NamedTuple):
    """Constants of all buckets."""

    entropy: bool  #: The criterion; else Gini.
    #: ``s``, ``t``: Shape (buckets,): a member whose rho (1 - rho if mirrored) is outside [s, t] is in the wrong
    #: bucket.
    s: Floats
    t: Floats
    low: Bools  #: ``low``, ``high``: Shape (buckets,): whether rho can be below s, above t at all.
    high: Bools
    #: ``a``, ``b``: Shape (buckets,): key of a member: its own impurity (``of_side``; twice that for Gini) plus ``a``
    #: c10 plus ``b`` c11.
    a: Floats
    b: Floats
    mirrored: Bools  #: Shape (buckets,).
    edges: Floats  #: Where one bucket follows on another (:func:`bucket_of`).


@functools.lru_cache(maxsize=8)  # of every shard of a process
def buckets_of(finder: Literal["updgini", "updent"], alpha: float, *, masses: bool = False) -> Buckets:
    """The buckets of a finder: about 4 / alpha of UPDGINI, 14 / alpha of UPDENT. Nobody changes them.

    UPDENT has a tenth more of them where counts are ``masses``, whose rho may be less.
    """
    if finder == "updgini":
        return _of_gini(alpha)
    return _of_entropy(alpha, _LOG_MASS if masses else _LOG_ROWS)


def among_masses(buckets: Buckets, wide: Buckets, bucket: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """Numbers that buckets of rows have among those ``wide`` of masses: the mirrored ones follow on all others."""
    more = (len(wide.s) - len(buckets.s)) // 2
    return np.where(bucket >= len(buckets.s) // 2, bucket + more, bucket).astype(np.int16) if more else bucket


def _of_gini(alpha: float) -> Buckets:
    """Intervals of equal width (section 5)."""
    beta = alpha / (alpha + 2)
    k = np.arange(math.floor(2 / beta) + 1)
    s, t, mu = (k / 2 - 1 / 4) * beta, (k / 2 + 3 / 4) * beta, (k / 2 + 1 / 4) * beta
    a, b = np.where(mu < 0.5, 0.0, -2.0 * mu), np.where(mu < 0.5, -2.0 * (1.0 - mu), 0.0)
    return Buckets(False, s, t, s > 0, t < 1, a, b, np.zeros(len(k), dtype=np.bool_), np.array([2 / beta]))


def _of_entropy(alpha: float, log_rows: int) -> Buckets:
    """An exact bucket for rho = 0, intervals of equal width in log log 1/rho up to 1/2, and all of these mirrored."""
    most = math.floor(2 * math.log(log_rows) / math.log1p(alpha))
    edges = [2.0 ** -((1 + alpha) ** (k / 2)) for k in range(most + 1)]
    lowest = [2.0 ** -((1 + alpha) ** (k / 2 + 3 / 4)) for k in range(most + 1)]
    highest = [2.0 ** -((1 + alpha) ** (k / 2 - 1 / 4)) for k in range(most + 1)]
    s = np.array([0.0, *(value * (1 + _RIM) for value in lowest)])
    t = np.array([0.0, *(value * (1 - _RIM) for value in highest)])
    a = np.array([0.0, *(math.log1p(-mu) for mu in lowest)])
    b = np.array([0.0, *(math.log(mu) for mu in lowest)])
    mirrored = np.repeat([False, True], len(s))
    always = np.ones(2 * len(s), dtype=np.bool_)
    swapped = np.concatenate([a, b]), np.concatenate([b, a])
    low = np.tile(s > 0, 2)
    return Buckets(True, np.tile(s, 2), np.tile(t, 2), low, always, *swapped, mirrored, np.array(edges))


@inlined_kernel
def _at_edges(edges: Any, rho: float) -> int:
    """The last edge, of falling ones, that is not below rho."""
    low, high = 0, len(edges) - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if edges[middle] >= rho:
            low = middle
        else:
            high = middle - 1
    return low


@inlined_kernel
def bucket_of(buckets: Any, n0: int, c01: int) -> int:
    """The bucket in whose middle rho = c01 / n0 lies, away from its ends; a feature that is always 1 has rho 0."""
    if not buckets.entropy:
        rho = c01 / n0 if n0 > 0 else 0.0
        middle: int = min(len(buckets.s) - 1, np.int64(rho * buckets.edges[0]))
        return middle
    if c01 == 0:
        return 0
    half = len(buckets.s) // 2
    if c01 == n0:
        return half
    if 2 * c01 <= n0:
        return 1 + _at_edges(buckets.edges, c01 / n0)
    return half + 1 + _at_edges(buckets.edges, (n0 - c01) / n0)
