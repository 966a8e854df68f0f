"""exp, log, logistic and softmax that have the same bits on every machine.

Invariant: all are made of IEEE additions, multiplications and divisions in a fixed order, without a library's ``exp``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.simd import power_of_two
from raydt.arrays.types import Floats

#: 1/n! for n from 3 on.
_T3, _T4, _T5, _T6, _T7, _T8, _T9, _T10, _T11, _T12, _T13 = (1.0 / math.factorial(n) for n in range(3, 14))
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
_LN2 = 0.6931471805599453


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


@kernel
def _softmax(F: Any, out: Any) -> None:
    for i in range(len(F)):
        probabilities(F[i], out[i])


def softmax(F: Floats) -> Floats:
    """Probabilities of the classes, shape (n, K), of F, shape (n, K); of one logit, shape (n, 1), those of two."""
    p = np.empty_like(F)
    _softmax(np.ascontiguousarray(F), p)
    return np.concatenate([1.0 - p, p], axis=1) if F.shape[1] == 1 else p


@inner_kernel
def log_of(x: float) -> float:
    """log(x) of a positive number, the same bits as :func:`natural_log`."""
    m, e = math.frexp(x)
    if m < 0.7071067811865476:
        m, e = 2.0 * m, e - 1
    s = (m - 1.0) / (m + 1.0)
    square, series = s * s, 0.0
    for n in range(25, 0, -2):
        series = series * square + 1.0 / n
    value: float = e * _LN2 + 2.0 * s * series
    return value


def natural_log(x: Floats) -> Floats:
    """Natural logarithm of positive numbers: x = m 2**e with m near 1, and 2 artanh((m - 1) / (m + 1))."""
    m, e = np.frexp(x)
    low = m < 0.7071067811865476
    m, e = np.where(low, 2.0 * m, m), e - low
    s = (m - 1.0) / (m + 1.0)
    square, series = s * s, np.zeros_like(s)
    for n in range(25, 0, -2):
        series = series * square + 1.0 / n
    value: Floats = e * _LN2 + 2.0 * s * series
    return value
