"""Bounds of the confidence tree's rules, and ADWIN, in plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext
from functools import wraps
from typing import Any

# -- confidence bounds -----------------------------------------------------------------------------------------------
# Widths and rules of confidence trees in forty decimal digits: a transcription of the equations as they are printed.
#
# Source: De Rosa, Cesa-Bianchi, "Splitting with Confidence in Decision Trees with Application to Stream Mining", eqs
# (1), (2) and (4) to (8). Where this leaves the paper: (4) for K classes, in which label and side together take 2K
# values (appendix A), so that the bias is 1/2 (2K - 1) / m + 1/2 (2 - 1) / m; h of (8) is 1 at the root, h of (7) is
# 0.
#
# Estimates are written with p_k = P(Y = 1, F = k) and q_k = P(Y = 0, F = k), which is what appendices B and C compute
# with; section IV says q_k = 1 - p_k.

FORTY_DIGITS = Context(prec=40)


def exactly(equation: Callable[..., Decimal]) -> Callable[..., Decimal]:
    """The equation of numbers taken as they are, int, float or Decimal."""

    @wraps(equation)
    def evaluated(*numbers: Any) -> Decimal:
        with localcontext(FORTY_DIGITS):
            return equation(*map(Decimal, numbers))

    return evaluated


def log2(x: Decimal) -> Decimal:
    return x.ln() / Decimal(2).ln()


@exactly
def eq1(m: Decimal, delta: Decimal, R: Decimal) -> Decimal:
    return R * (1 / (2 * m) * (1 / delta).ln()).sqrt()


@exactly
def eq2(m: Decimal, delta: Decimal, K: Decimal) -> Decimal:
    C = 6 * (K * log2(Decimal(1).exp()) + log2(2 * m)) + 2 * log2(K)
    return C * (1 / (2 * m) * (1 / delta).ln()).sqrt()


@exactly
def eq4_bias(m: Decimal, K: Decimal) -> Decimal:
    return (2 * K - 1) / m / 2 + (2 - 1) / m / 2


@exactly
def eq4(m: Decimal, delta: Decimal, K: Decimal) -> Decimal:
    """Two entropies, of delta / 2 each, and their bias."""
    return 2 * (m.ln() / 2 * (2 / m * (4 / delta).ln()).sqrt()) + eq4_bias(m, K)


@exactly
def eq5(m: Decimal, delta: Decimal) -> Decimal:
    return (8 / m * (2 / delta).ln()).sqrt() + 4 * (1 / m).sqrt()


@exactly
def eq6(m: Decimal, delta: Decimal) -> Decimal:
    return 4 * (1 / m * (8 / delta).ln()).sqrt()


@exactly
def eq7(delta: Decimal, m: Decimal, t: Decimal, h: Decimal, d: Decimal) -> Decimal:
    """The delta at which (4), (5) or (6) is taken; h is 0 at the root."""
    return delta / ((h + 1) * (h + 2)) / (t * d * m)


@exactly
def eq8(m: Decimal, t: Decimal, h: Decimal, d: Decimal, c: Decimal) -> Decimal:
    """h is 1 at the root; the practical width of the entropy is ``ln m`` times this."""
    return c * (1 / m * (m**2 * h**2 * t * d).ln()).sqrt()


@exactly
def eq8_entropy(m: Decimal, t: Decimal, h: Decimal, d: Decimal, c: Decimal) -> Decimal:
    return m.ln() * eq8(m, t, h, d, c)


def width(options: Any, m: int, t: int, depth: int, d: int, K: int) -> Decimal:
    """The width that a rule with ``learner`` options uses; ``depth`` of the root is 0."""
    with localcontext(FORTY_DIGITS):
        delta = 1 / Decimal(t) if options.delta == "1/t" else Decimal(options.delta)
        criterion = criterion_of(options)
        if options.rule == "mcdiarmid":
            return eq2(m, delta, K)
        if options.rule != "ctree":
            return eq1(m, delta, log2(Decimal(K)) if criterion == "entropy" else 1)
        if options.confidence == "practical":
            return (eq8_entropy if criterion == "entropy" else eq8)(m, t, depth + 1, d, options.c)
        share = eq7(delta, m, t, depth, d)
        if criterion == "entropy":
            return eq4(m, share, K)
        return {"gini": eq5, "kearns_mansour": eq6}[criterion](m, share)


def criterion_of(options: Any) -> str:
    return options.criterion or {"corrected": "error", "mcdiarmid": "entropy"}.get(options.rule, "gini")


def beats(options: Any, best: float, rival: float, eps: float) -> bool:
    """Whether the best split is far enough before the rival."""
    if options.rule == "ctree":
        return best <= rival - 2 * eps
    gain = rival - best
    if criterion_of(options) == "entropy":  # halves of nats; the widths are in bits
        gain = gain * 2 / math.log(2)
    return gain > 2 * eps if options.rule == "corrected" else gain > eps


def reason(options: Any, best: float, rival: float, impurity: float, eps: float) -> int | None:
    """0: the rule; 1: a tie; None: no split."""
    if beats(options, best, rival, eps):
        return 0
    tau = options.tie_threshold
    return 1 if tau > 0 and eps <= tau and best < impurity else None


# ------------------------------------------------------------------ conditional impurities, of probabilities


def gini_given(joint: Sequence[Sequence[float]]) -> float:
    """J(Y | F) of the probabilities P(Y = y, F = k), ``joint[k][y]``."""
    return math.fsum(sum(side) * (1 - sum((p / sum(side)) ** 2 for p in side)) for side in joint if sum(side) > 0)


def entropy_given(joint: Sequence[Sequence[float]]) -> float:
    """H_1/2(Y, F) - H_1/2(F)."""

    def half(ps: Sequence[float]) -> float:
        return -math.fsum(p * math.log(p) for p in ps if p > 0) / 2

    return half([p for side in joint for p in side]) - half([sum(side) for side in joint])


def kearns_mansour_given(joint: Sequence[Sequence[float]]) -> float:
    """sqrt(p_1 q_1) + sqrt(p_0 q_0)."""
    return math.fsum(math.sqrt(q * p) for q, p in joint)


def error_given(joint: Sequence[Sequence[float]]) -> float:
    return math.fsum(sum(side) - max(side) for side in joint)


GIVEN: dict[str, Callable[[Sequence[Sequence[float]]], float]] = {
    "gini": gini_given,
    "entropy": entropy_given,
    "kearns_mansour": kearns_mansour_given,
    "error": error_given,
}


# -- adwin -----------------------------------------------------------------------------------------------------------
# ADWIN in plain loops: buckets are a list, the oldest first, and every cut is compared in full.
#
# Written from Bifet and Gavalda, Learning from time-changing data with adaptive windowing (SDM 2007), section 4, with
# the constants of river.

CLOCK, MOST_BUCKETS, LEAST_SIDE, GRACE = 32, 5, 5, 10


class SlowAdwin:
    """Feed outcomes (1: wrong) to :meth:`update`; it returns None, or what has changed."""

    def __init__(self, delta: float) -> None:
        self.delta = delta
        self.buckets: list[tuple[int, int]] = []  # size, errors
        self.n = 0

    def update(self, error: int) -> tuple[int, float, float] | None:
        """The length of the window and the shares of errors before and after the clearest cut, if there is one."""
        self.buckets.append((1, error))
        self.n += 1
        size = 1
        while sum(bucket[0] == size for bucket in self.buckets) > MOST_BUCKETS:
            at = next(k for k, bucket in enumerate(self.buckets) if bucket[0] == size)
            self.buckets[at : at + 2] = [(2 * size, self.buckets[at][1] + self.buckets[at + 1][1])]
            size *= 2
        if self.n % CLOCK or self.n <= GRACE:
            return None
        total = sum(errors for _, errors in self.buckets)
        variance = total / self.n * (1 - total / self.n)
        doubt = math.log(2 * math.log(self.n) / self.delta)
        cuts = []
        for k in range(1, len(self.buckets)):
            old = sum(size for size, _ in self.buckets[:k])
            new = self.n - old
            before = sum(errors for _, errors in self.buckets[:k]) / old
            after = sum(errors for _, errors in self.buckets[k:]) / new
            if old < LEAST_SIDE or new < LEAST_SIDE:
                continue
            inverse = 1 / (old - LEAST_SIDE + 1) + 1 / (new - LEAST_SIDE + 1)
            if abs(before - after) > math.sqrt(2 * inverse * variance * doubt) + 2 / 3 * doubt * inverse:
                cuts.append(((before - after) ** 2 * old * new, self.n, before, after))
        if not cuts:
            return None
        self.buckets, self.n = [], 0
        return max(cuts, key=lambda cut: cut[0])[1:]
