"""Weights of examples in fixed point, and how those of classes are found and multiplied with them.

A weight is a whole number of units of ``2**-16``, so that 1 is :data:`UNIT`. Products and sums of them are integers: a
sum does not depend on the order, and a deletion takes away what the insertion has added.

Invariant: where no example has another weight than 1, there is no array of weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray, Bools, Floats, Ints
from raydt.examples.targets import Targets

#: Bits after the binary point, and a weight of 1.
BITS = 16
UNIT = 1 << BITS
#: Least and largest weight in units (0 counts like no row at all), and the largest sum of the weights of live examples:
#: sums of derivatives, of which an example has less than 2**30 times its weight, stay within 63 bits.
LEAST, MOST, LARGEST_SUM = 0, 2**32 - 1, 2**48

#: Weights in units, shape (n,).
Weights = npt.NDArray[np.uint32]
DTYPE = np.dtype(np.uint32)
#: No array: all weights are 1.
NO_WEIGHTS: Weights = np.empty(0, dtype=DTYPE)


def out_of_range(weights: Floats) -> Bools:
    """Mask of the numbers that are no weights, shape (n,); NaN is among them."""
    inside: Bools = (weights == 0.0) | ((weights >= 1.0 / UNIT) & (weights <= MOST / UNIT))
    return ~inside


def fixed(weights: Floats) -> Weights:
    """Round weights to whole units: those in range that are not 0 are at least one."""
    return np.rint(weights * UNIT).astype(DTYPE)


def filled(weights: Weights | None, n: int) -> Weights:
    """Return weights of n examples as an array, if they are None, too."""
    return np.full(n, UNIT, dtype=DTYPE) if weights is None else weights


def unless_equal(weights: Weights | None) -> Weights | None:
    """Return None for weights that are all 1."""
    return None if weights is None or (weights == UNIT).all() else weights


def of_codes(factors: Ints, codes: AnyArray) -> Ints:
    """Return the factors of some classes; 1 of those that came later."""
    found: Ints = np.append(factors, UNIT)[np.minimum(codes, len(factors))]
    return found


def counting(rows: AnyArray, weights: Weights | None) -> AnyArray:
    """Return those of some rows that count: all but the ones of weight 0."""
    return rows if weights is None else rows[weights > 0]


def products(weights: Weights | int, factors: AnyArray) -> Weights:
    """Multiply weights, rounded to the nearest unit and kept within range."""
    whole = np.asarray(weights, dtype=np.uint64) * factors.astype(np.uint64)
    scaled = (whole + np.uint64(UNIT // 2)) >> np.uint64(BITS)
    found: Weights = np.clip(scaled, LEAST, MOST).astype(DTYPE)
    return found


def _text(label: Any) -> str:
    """Return a label as a config writes it: whole numbers without a fraction, truth values in small letters."""
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label).lower() if isinstance(label, bool) else str(label)


def by_label(class_weight: Mapping[Any, float]) -> tuple[tuple[str, float], ...]:
    """Return weights of classes with labels as text, in ascending order: the same for ``1`` and ``"1"``."""
    return tuple(sorted((_text(label), float(weight)) for label, weight in class_weight.items()))


def of_labels(class_weight: Sequence[tuple[str, float]], labels: Sequence[Any]) -> Weights:
    """Return the weight of each of some labels, in units; 1 of one without."""
    known = dict(class_weight)
    return fixed(np.array([known.get(_text(label), 1.0) for label in labels], dtype=np.float64))


def unknown_labels(class_weight: Sequence[tuple[str, float]], labels: Sequence[Any]) -> list[str]:
    """Return the labels with a weight that are none of ``labels``."""
    known = set(map(_text, labels))
    return [label for label, _ in class_weight if label not in known]


def sums_by_class(weights: Weights | None, y: Targets, classes: int = 0) -> Ints:
    """Add up the weights of each class, in units; None: all are 1. As long as ``classes``, or as the classes need."""
    if weights is None:
        return np.bincount(y, minlength=classes) * UNIT
    return np.bincount(y, weights, minlength=classes).astype(np.int64)  # exact: LARGEST_SUM is far below 2**53


def balanced(sums: Ints) -> Ints:
    """Return the factor of each class, in units: all classes come to weigh the same, and all examples what they did.

    That is n / (K n_c), with the sums of weights (:func:`sums_by_class`) for n and n_c and the number of classes that
    occur for K; 1 of a class that does not occur.
    """
    weighed = sums.tolist()
    total, occurring = sum(weighed), sum(one > 0 for one in weighed)
    factors = [UNIT if not one else round_half_up(UNIT * total, occurring * one) for one in weighed]
    return np.array([min(factor, MOST) for factor in factors], dtype=np.int64)


def round_half_up(numerator: int, denominator: int) -> int:
    """Round a fraction of whole numbers."""
    return (2 * numerator + denominator) // (2 * denominator)


def sum_of(weights: Weights | None, n: int) -> int:
    """Add up the weights of n examples, in units; None: all are 1."""
    return n * UNIT if weights is None else int(weights.sum(dtype=np.int64))
