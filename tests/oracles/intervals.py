"""Intervals of the jackknife+ in plain fractions, with the rows of a person sharing its weight.

Source: Lee, Barber and Willett, "Distribution-free inference with hierarchical data", arXiv:2306.06342; of persons with
one row each Barber, Candes, Ramdas and Tibshirani (2021), equation 7.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any


def upper_end(values: Sequence[float], persons: Sequence[Hashable], alpha: str) -> float:
    """The least value at or below which rows of at least (1 - alpha) (persons + 1) persons lie, or infinity."""
    rows, below = Counter(persons), Fraction(0)
    least = (1 - Fraction(alpha)) * (len(rows) + 1)
    for value, person in sorted(zip(values, persons, strict=True), key=lambda pair: pair[0]):
        below += Fraction(1, rows[person])
        if below >= least:
            return value
    return math.inf


def ends_of(
    without: Sequence[Sequence[float]], errors: Sequence[float], persons: Sequence[Hashable], alpha: str
) -> list[list[float]]:
    """Lower and upper ends for each of some rows.

    ``without`` has, for each example, the predictions of these rows by the model without its person; ``errors`` are how
    far each example is from what that model predicts.
    """
    pairs = list(zip(without, errors, strict=True))
    return [
        [
            -upper_end([error - own[row] for own, error in pairs], persons, alpha),
            upper_end([own[row] + error for own, error in pairs], persons, alpha),
        ]
        for row in range(len(without[0]))
    ]


def after_forget(
    model: Any, X: Any, own: Any, y: Sequence[float], persons: Sequence[Hashable], alpha: str
) -> list[list[float]]:
    """The ends for rows ``X`` by copies of an estimator that forget one person each.

    ``own``, ``y`` and ``persons`` are features, labels and persons of the live examples, oldest first.
    """
    ids = model.live_ids_.tolist()
    without: list[list[float]] = [[] for _ in ids]
    errors = [0.0 for _ in ids]
    for person in dict.fromkeys(persons):
        mine = [place for place, whose in enumerate(persons) if whose == person]
        other = copy.deepcopy(model)
        other.forget([ids[place] for place in mine], digests=False)
        asked, numbers = other.predict(X).tolist(), other.predict(own).tolist()
        for place in mine:
            without[place], errors[place] = asked, abs(y[place] - numbers[place])
    return ends_of(without, errors, persons, alpha)
