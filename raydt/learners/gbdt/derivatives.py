"""Derivatives of the loss in fixed point.

Invariant: probabilities have the same bits on every machine (``elementary``); what is stored are integers.

Classification (eq. (4) of the paper): a probability is quantised to q of 65536, never 0 and never 1. The first
derivative with its sign turned is g = 65536 r - q, r being 1 for the class of the example, and the second is
h = |g| (65536 - |g|), since |g| is q or 65536 - q. Regression: g is the residual in units of 2**(e - 24), h is 1, in
units of a weight.

A weight multiplies both. The products are rounded to the same units, of equal distances away from 0: a weight that is a
whole number w adds what w equal rows add, bit for bit, and what a row adds follows from its ledger entry and its weight
alone, so that its deletion subtracts it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.elementary import TOGETHER, AnyArray, Floats, Ints, probabilities, probabilities_together
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.examples.updates import BITS, UNIT

#: A probability of 1.
ONE = 65536
#: Bits below the target's scale in a regression's residual; and the largest residual, in these units.
RESIDUAL_BITS = 24
LARGEST_RESIDUAL = 2.0**29


class Loss(NamedTuple):
    """The objective, as kernels need it.

    ``trees`` per iteration K' (1, or K for several classes); ``squared`` whether it is squared error; ``origin`` F of
    no trees; ``unit`` value of 1 of a residual in the target's units (regression).
    """

    trees: int
    squared: bool
    origin: float
    unit: float


@inner_kernel
def quantise(p: float) -> int:
    """Return a probability as a number of 65536ths, from 1 to 65535."""
    q: int = np.int32(min(max(np.floor(p * ONE + 0.5), 1.0), ONE - 1.0))
    return q


@inner_kernel
def residual(y: float, F: float, unit: float) -> int:
    """Return y - F in units of ``unit``."""
    r = np.floor((y - F) / unit + 0.5)
    whole: int = np.int64(min(max(r, -LARGEST_RESIDUAL), LARGEST_RESIDUAL))
    return whole


@inner_kernel
def gradient(q: int, y: Any, k: int, loss: Any) -> int:
    """Return g of a ledger entry; ``k`` is the number of the tree within its iteration."""
    if loss.squared:
        return q
    # The one tree of two classes is that of class 1.
    return (ONE if np.int64(y) == (1 if loss.trees == 1 else k) else 0) - q


@inner_kernel
def hessian(g: int, squared: bool) -> int:
    """Return h of a g of a row with a weight of 1."""
    if squared:
        return UNIT
    a = abs(g)
    return a * (ONE - a)


@inner_kernel
def times(derivative: int, weight: int) -> int:
    """Return a derivative times a weight, rounded; the sign changes nothing else."""
    size = (abs(derivative) * weight + UNIT // 2) >> BITS
    return size if derivative >= 0 else -size


@inner_kernel
def weighted(g: int, weight: int, squared: bool) -> tuple[int, int]:
    """Return what a row with this g adds to G and H."""
    g = np.int64(g)
    h = np.int64(hessian(g, squared))
    if weight == UNIT:
        return g, h
    return times(g, weight), np.int64(weight) if squared else times(h, weight)


@inner_kernel
def derive_together(F: Any, first: int, stop: int, p: Any, out: Any) -> None:
    """Make the ledger entries of some rows of a classification; arrays as in :func:`probabilities_together`."""
    for begin in range(np.uint64(first), np.uint64(stop), np.uint64(TOGETHER)):
        n = min(np.uint64(TOGETHER), np.uint64(stop) - begin)
        probabilities_together(F, begin, n, p)
        for k in range(np.uint64(len(F))):
            of_class, entry = p[k], out[k]
            for i in range(n):
                entry[begin + i] = quantise(of_class[i])


@kernel
def derive(F: Any, y: Any, loss: Any, scratch: Any, out: Any) -> None:
    """Put the ledger entries of rows with given F, shape (n, K'), into ``out``, shape (K', n)."""
    for i in range(len(F)):
        if loss.squared:
            out[0, i] = residual(y[i], F[i, 0], loss.unit)
        else:
            probabilities(F[i], scratch)
            for k in range(F.shape[1]):
                out[k, i] = quantise(scratch[k])


def quantised(F: Floats, y: AnyArray, loss: Loss) -> Ints:
    """Return the ledger entries of rows with given F, shape (n, K'), and targets: int64, shape (K', n)."""
    out = np.empty((loss.trees, len(F)), dtype=np.int64)
    derive(np.ascontiguousarray(F), y, loss, np.empty(loss.trees), out)
    return out
