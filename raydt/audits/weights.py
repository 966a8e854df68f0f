"""Weights of examples and classes, recomputed from raw examples; in units of 2**-16 (``raydt.examples.weights``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.types import AnyArray, Floats, Ints
from raydt.examples.history import History
from raydt.examples.weights import MOST, UNIT
from raydt.messages import Message, message

Arrays = Mapping[str, AnyArray]

#: Bits of the mantissa of a float64.
_MANTISSA = 53


def given_weights(weight: AnyArray | None, n: int) -> Ints:
    """Weights of n examples, 1 where there are none."""
    return np.full(n, UNIT, np.int64) if weight is None else np.asarray(weight, np.int64)


def times(numbers: Ints, weight: Ints) -> Ints:
    """Products, rounded to the nearest number, halves away from 0."""
    size: Ints = (np.abs(numbers) * weight + UNIT // 2) // UNIT
    return np.where(numbers < 0, -size, size)


def effective(weight: Ints, y: AnyArray, factors: Ints | None) -> Ints:
    """Return effective weights of examples: their own times those of their classes."""
    if factors is None:
        return weight
    of_row = np.array([factors[code] if code < len(factors) else UNIT for code in y.tolist()], np.int64)
    return np.minimum(times(weight, of_row), MOST)


def class_sums(state: Arrays, history: History) -> Ints | None:
    """Return the weights that the examples of each class had, and those of all, when a state weighed its classes.

    Shape (classes + 1,), int64, in units; those of some rows add up to those of all. None if there is nothing to know.
    """
    recorded = state.get("class_weight")
    if recorded is None or not history.complete:
        return None
    end = int(state["weighed"][0])
    live = (history.inserted < end) & (history.deleted >= end)
    y, weight = history.y[live], given_weights(history.weight, len(live))[live]
    sums = [weight[y == code].sum() for code in range(len(recorded))]
    return np.array([*sums, weight.sum()], np.int64)


def compare_factors(options: Any, state: Arrays, sums: Ints | None) -> tuple[Ints | None, list[Message]]:
    """Return the weights of classes in a state, and failures: ``sums`` of all examples say what they are."""
    wanted, recorded = options.class_weight == "balanced", state.get("class_weight")
    if (recorded is not None) != wanted:
        there = {"found": "none", "expected": "some"} if wanted else {"found": "some", "expected": "none"}
        return None, [message("audits.value", name="weights of classes", **there)]
    if recorded is None or sums is None:
        return recorded, []
    *of_class, total = sums.tolist()
    some = [one for one in of_class if one]
    exact = [Fraction(sum(of_class) * UNIT, len(some) * one) if one else Fraction(UNIT) for one in of_class]
    expected = [min(MOST, (exact_one + Fraction(1, 2)).__floor__()) for exact_one in exact]
    if expected == recorded.tolist() and sum(of_class) == total:
        return recorded, []
    shown = {"name": "weights of classes", "found": recorded.tolist(), "expected": expected}
    return recorded, [message("audits.value", **shown)]


def class_factors(options: Any, state: Arrays, history: History) -> tuple[Ints | None, list[Message]]:
    """Return the weights of classes in a state, and failures: a complete history knows them by its live examples."""
    return compare_factors(options, state, class_sums(state, history))


def counted_weights(
    options: Any, state: Arrays, history: History, *, resolved: bool
) -> tuple[Ints | None, list[Message]]:
    """Return what all examples count (None: 1), and failures; ``resolved``: balanced weights have to be there."""
    factors, failures = (None, []) if not resolved else class_factors(options, state, history)
    if history.weight is None and factors is None:
        return None, failures
    return effective(given_weights(history.weight, len(history.id)), history.y, factors), failures


class TargetSums(NamedTuple):
    """Sums and range of the numeric targets of some rows; parts add up to those of all rows (:func:`of_all`)."""

    weighted: Fraction  #: Exact sum of the targets, each times its weight in units.
    weight: int  #: In units.
    least: float  #: inf of no rows.
    greatest: float  #: -inf of no rows.

    @property
    def mean(self) -> float:
        """The weighted mean: the exact sum, rounded once, over that of the weights; 0 if there is no weight."""
        return float(self.weighted / UNIT) / (self.weight / UNIT) if self.weight else 0.0


def target_sums(y: Floats, weight: Ints) -> TargetSums:
    """Sum up numeric targets of some rows with weights in units, both of shape (rows,). O(rows)."""
    weighted, (fraction, exponents) = Fraction(0), np.frexp(y)
    whole = np.ldexp(fraction, _MANTISSA).astype(np.int64)
    for exponent in np.unique(exponents).tolist():  # Python's integers have no bounds
        rows = np.flatnonzero(exponents == exponent)
        total = int((whole[rows].astype(object) * weight[rows]).sum())
        weighted += total * Fraction(2) ** (exponent - _MANTISSA)
    least, greatest = float(y.min(initial=math.inf)), float(y.max(initial=-math.inf))
    return TargetSums(weighted, int(weight.sum()), least, greatest)


def of_all(parts: Sequence[TargetSums]) -> TargetSums:
    """Return the sums of all rows, from those of parts of them."""
    weighted, weight, least, greatest = zip(*parts, strict=True)
    return TargetSums(sum(weighted, Fraction(0)), sum(weight), min(least), max(greatest))
