"""Scores over the predictions of all keys, from sums that each key has."""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt

from raydt.evaluation.counting import LEARNER, MAJORITY, NO_CHANGE, SCORED
from raydt.evaluation.regression import PrequentialErrors


def pooled(sums: npt.NDArray[Any], *, numbers: bool) -> dict[str, float]:
    """Return the scores of sums, and those of the trivial predictors of each key; ``numbers``: labels are numbers."""
    if not len(sums):
        return {}
    if numbers:
        errors = PrequentialErrors()
        errors.add(sums)
        return {**errors.scores(), **errors.baselines()}
    scored = float(sums[SCORED])
    places = {"accuracy": LEARNER, "no_change": NO_CHANGE, "majority": MAJORITY}
    return {name: float(sums[place]) / scored if scored else math.nan for name, place in places.items()}
