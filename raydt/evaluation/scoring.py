"""What both kinds of evaluation share: their settings, the alarms they raise, and scores made of counts.

Formulas and sources: docs/explanation/evaluation.md. Not here: counting (``raydt.evaluation.counting``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Watching:
    """How predictions are watched over the stream."""

    #: In faded scores a prediction counts ``fading`` times as much as the next one; above 0, at most 1.
    fading: float = 0.999
    delta: float = 0.002  #: Chance of a false alarm at a check of ADWIN; above 0, below 1.


class Alarm(NamedTuple):
    """ADWIN has found that the share of wrong predictions has risen."""

    seq: int  #: The update after whose prediction it was found.
    predictions: int  #: Predictions that were compared.
    before: float  #: ``before``, ``after``: Share of wrong ones in the older and in the newer part of them.
    after: float


def ratio(part: npt.NDArray[Any], total: npt.NDArray[Any]) -> Floats:
    """``part / total`` by moment; NaN where the total is 0. Integers of any size are divided exactly, then rounded."""
    known = total != 0
    result = np.full(np.shape(total), np.nan)
    result[known] = (part[known] / total[known]).astype(np.float64)
    return result


def beyond(right: npt.NDArray[Any], rival: npt.NDArray[Any], total: npt.NDArray[Any]) -> Floats:
    """The share of what a rival has wrong that is right: (right - rival) / (total - rival).

    NaN where nothing was scored, or the rival is always right.
    """
    return ratio(right - rival, total - rival)


def cohen(
    right: npt.NDArray[Any], true: npt.NDArray[Any], predicted: npt.NDArray[Any], total: npt.NDArray[Any]
) -> Floats:
    """Cohen's kappa of m moments, from counts by true and by predicted class, shape (m, K). O(m K).

    Whole counts are multiplied as Python integers: their products exceed int64 on long streams.
    """
    if true.dtype.kind == "i":
        right, true, predicted, total = (counts.astype(object) for counts in (right, true, predicted, total))
    chance = (true * predicted).sum(axis=1)
    return beyond(total * right, chance, total * total)


def determination(squared: Floats, spread: Floats, spread_squared: Floats, total: Floats) -> Floats:
    """R squared: 1 - squared errors / those of the mean of the labels; NaN where all labels are equal."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        variation = spread_squared - spread * spread / total
        return np.where(variation > 0.0, 1.0 - squared / variation, np.nan)
