"""Labels of many rows as a small summary: summaries of parts of the rows give what the labels of all would, exactly.

Of classes it is the number of rows of each. Of numbers it is their count, the least, the largest, and numbers that add
up to their sum exactly; of numbers with weights the sum of these, in rows, and the sum of the products.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.types import AnyArray
from raydt.examples.weights import BITS, UNIT, Weights, sum_of

Labels = AnyArray


class Targets(NamedTuple):
    """Labels of rows, and what each counts, by slot; no weights where all count 1."""

    y: Labels
    weight: Weights


#: int64 by class, or float64: count, least, largest, parts of the sum.
Summary = AnyArray


def summary_of(y: Labels, weights: Weights | None = None) -> Summary:
    """Return the summary of some labels; classes have no weights."""
    if y.dtype.kind != "f":
        return np.bincount(y, minlength=1)
    terms = y if weights is None else _products(y, weights)
    count = sum_of(weights, len(y)) / UNIT
    # 0 for -0, so that it does not matter which comes first.
    return np.array([count, y.min(initial=np.inf) + 0.0, y.max(initial=-np.inf) + 0.0, *_exact_sum(terms)])


def summaries_before(store: Any, seqs: Any, deleted: Any, since: Any) -> list[Summary]:
    """Return summaries of the labels live before updates ``seqs``; slots ``deleted`` were emptied at ``since``."""
    after, y, born, found = store.slots(), store.y, store.born, []
    for seq in seqs.tolist():
        slots = np.concatenate([after, deleted[since > seq]])
        found.append(summary_of(y[slots[born[slots] < seq]]))
    return found


def joined_summary(parts: Sequence[Summary]) -> Summary:
    """Return the summary of all labels, from those of parts of them."""
    if parts[0].dtype.kind != "f":
        counts = np.zeros(max(map(len, parts)), dtype=np.int64)
        for part in parts:
            counts[: len(part)] += part
        return counts
    count, least, largest = (np.array([part[i] for part in parts]) for i in range(3))
    return np.array([count.sum(), least.min(), largest.max(), *np.concatenate([part[3:] for part in parts])])


def constant_of(summary: Summary) -> float:
    """Return the most frequent class (of equals the smallest, 0 of none), or the mean of numbers."""
    if summary.dtype.kind == "f":
        return math.fsum(summary[3:]) / (float(summary[0]) or 1.0)
    return int(summary.argmax())


def classes_in(summary: Summary) -> int:
    """Return the number of classes, those between that no row has included."""
    return 1 + int(np.flatnonzero(summary).max(initial=-1))


def scale_of(summary: Summary) -> tuple[float, int]:
    """Return origin (mean) and exponent e: 2**e is at least the largest distance from it (of equals, from 0)."""
    least, largest = summary[1:3].tolist()
    if least >= largest:  # the least of no numbers is inf
        origin = least if least == largest else 0.0
        farthest = abs(origin)
    else:
        origin = constant_of(summary)
        farthest = max(largest - origin, origin - least)
    mantissa, exponent = math.frexp(farthest)
    return origin, exponent - (mantissa == 0.5)


def _products(y: Labels, weights: Weights) -> Labels:
    """Return numbers that add up to the sum of all products exactly: each is one of parts of a number and a weight."""
    mantissa, exponent = np.frexp(y)
    whole, units = np.ldexp(mantissa, 53).astype(np.int64), weights.astype(np.int64)
    products = [
        np.ldexp((part * (units >> shift & UNIT - 1)).astype(np.float64), exponent - 53 + up + shift - BITS)
        for part, up in ((whole >> 27, 27), (whole & (1 << 27) - 1, 0))
        for shift in (0, BITS)
    ]
    return np.concatenate(products)


def _exact_sum(y: Labels) -> list[float]:
    """Return numbers of which the first is the sum of some, rounded, and all have exactly their sum. O(n) each."""
    parts: list[float] = []
    while rest := math.fsum(itertools.chain(y, (-part for part in parts))):
        parts.append(rest)
    return parts
