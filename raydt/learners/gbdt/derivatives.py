"""Derivatives of the loss in fixed point, and the softmax behind them.

Invariant: everything here is made of IEEE additions, multiplications and divisions in a fixed order (no ``exp`` of a
library), so that a probability has the same bits on every machine; what is stored are integers.

Classification (eq. (4) of the paper): a probability is quantised to q of 65536, never 0 and never 1. The first
derivative with its sign turned is g = 65536 r - q, r being 1 for the class of the example, and the second is
h = |g| (65536 - |g|), since |g| is q or 65536 - q. Regression: g is the residual in units of 2**(e - 24), h is 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.simd import power_of_two

#: A probability of 1.
ONE = 65536
#: Bits below the target's scale in a regression's residual; and the largest residual, in these units.
RESIDUAL_BITS = 24
LARGEST_RESIDUAL = 2.0**29
#: 1/n! for n from 3 on.
_T3, _T4, _T5, _T6, _T7, _T8, _T9, _T10, _T11, _T12, _T13 = (1.0 / math.factorial(n) for n in range(3, 14))
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10


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
def exp_of(x: float) -> float:
    """exp(x) for x <= 0 to about 1e-15, 0 below -700: x = k ln 2 + r, 2**k times the Taylor polynomial of r."""
    k = np.floor(x * _LOG2_E + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (0.5 + r * _T3)
    middle = (_T4 + r * _T5) + r2 * (_T6 + r * _T7)
    high = (_T8 + r * _T9) + r2 * (_T10 + r * _T11) + r4 * (_T12 + r * _T13)
    value: float = (low + r4 * (middle + r4 * high)) * power_of_two(k)
    return 0.0 if x < -700.0 else value


@inner_kernel
def logistic(x: float) -> float:
    """1 / (1 + exp(-x))."""
    e = exp_of(-abs(x))
    p: float = (1.0 if x >= 0 else e) / (1.0 + e)
    return p


@inner_kernel
def probabilities(F: Any, p: Any) -> None:
    """Softmax of ``F``, shape (K,), into ``p``; with one value the logistic function of it."""
    if len(F) == 1:
        p[0] = logistic(F[0])
        return
    top = F[0]
    for k in range(1, len(F)):
        top = max(top, F[k])
    total = 0.0
    for k in range(len(F)):
        p[k] = exp_of(F[k] - top)
        total += p[k]
    for k in range(len(F)):
        p[k] /= total


@inner_kernel
def quantise(p: float) -> int:
    """A probability as a number of 65536ths, from 1 to 65535."""
    q: int = np.int32(min(max(np.floor(p * ONE + 0.5), 1.0), ONE - 1.0))
    return q


@inner_kernel
def residual(y: float, F: float, unit: float) -> int:
    """y - F in units of ``unit``."""
    r = np.floor((y - F) / unit + 0.5)
    whole: int = np.int64(min(max(r, -LARGEST_RESIDUAL), LARGEST_RESIDUAL))
    return whole


@inner_kernel
def gradient(q: int, y: Any, k: int, loss: Any) -> int:
    """g of a ledger entry; ``k`` is the number of the tree within its iteration."""
    if loss.squared:
        return q
    # The one tree of two classes is that of class 1.
    return (ONE if np.int64(y) == (1 if loss.trees == 1 else k) else 0) - q


@inner_kernel
def hessian(g: int, squared: bool) -> int:
    """h of a g."""
    if squared:
        return 1
    a = abs(g)
    return a * (ONE - a)


#: Rows whose probabilities are computed together, class after class, so that the loops are vectorised.
TOGETHER = 128


@inner_kernel
def probabilities_together(F: Any, begin: Any, n: Any, p: Any) -> None:
    """Probabilities of ``n`` rows from ``begin`` on; ``F`` has shape (K', rows), ``p`` (K' + 2, TOGETHER).

    They are in ``p[:K', :n]``; the rest is scratch. The operations on a row, and so the bits, are those of
    :func:`probabilities`.
    """
    per = np.uint64(len(F))
    if per == 1:
        for i in range(n):
            p[0, i] = logistic(F[0, begin + i])
        return
    top, total = p[per], p[per + np.uint64(1)]
    for i in range(n):
        top[i], total[i] = F[0, begin + i], 0.0
    for k in range(np.uint64(1), per):
        for i in range(n):
            top[i] = max(top[i], F[k, begin + i])
    for k in range(per):
        of_class = p[k]
        for i in range(n):
            e = exp_of(F[k, begin + i] - top[i])
            of_class[i] = e
            total[i] += e
    for k in range(per):
        of_class = p[k]
        for i in range(n):
            of_class[i] /= total[i]


@inner_kernel
def derive_together(F: Any, first: int, stop: int, p: Any, out: Any) -> None:
    """Ledger entries of some rows of a classification; arrays as in :func:`probabilities_together`."""
    for begin in range(np.uint64(first), np.uint64(stop), np.uint64(TOGETHER)):
        n = min(np.uint64(TOGETHER), np.uint64(stop) - begin)
        probabilities_together(F, begin, n, p)
        for k in range(np.uint64(len(F))):
            of_class, entry = p[k], out[k]
            for i in range(n):
                entry[begin + i] = quantise(of_class[i])


@kernel
def derive(F: Any, y: Any, loss: Any, scratch: Any, out: Any) -> None:
    """Ledger entries of rows with given F, shape (n, K'), into ``out``, shape (K', n)."""
    for i in range(len(F)):
        if loss.squared:
            out[0, i] = residual(y[i], F[i, 0], loss.unit)
        else:
            probabilities(F[i], scratch)
            for k in range(F.shape[1]):
                out[k, i] = quantise(scratch[k])


@kernel
def _softmax(F: Any, out: Any) -> None:
    for i in range(len(F)):
        probabilities(F[i], out[i])


def quantised(F: npt.NDArray[np.float64], y: npt.NDArray[Any], loss: Loss) -> npt.NDArray[np.int64]:
    """Ledger entries of rows, shape (K', n), int64.

    Parameters
    ----------
    F : ndarray of float64, shape (n, K')
    y : ndarray of int32 or float64, shape (n,)
    loss : Loss
    """
    out = np.empty((loss.trees, len(F)), dtype=np.int64)
    derive(np.ascontiguousarray(F), y, loss, np.empty(loss.trees), out)
    return out


def softmax(F: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Probabilities of the classes, shape (n, K), of F, shape (n, K); of one logit, shape (n, 1), those of two."""
    p = np.empty_like(F)
    _softmax(np.ascontiguousarray(F), p)
    return np.concatenate([1.0 - p, p], axis=1) if F.shape[1] == 1 else p
