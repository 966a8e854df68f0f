"""What is said of trials: performance at a number of leaves by rule, and paired differences with their lower bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ctree.leaves import averaged, performance_at, sizes_between
from ctree.rules import RULES
from ctree.streams import Setting

Floats = npt.NDArray[np.float64]

#: Places of a drawn line.
POINTS = 60


def along(settings: Sequence[Setting], rule: str, places: npt.NDArray[np.integer]) -> Floats:
    """Figure 2: the mean score so far of all moments of all settings of a rule, by number of leaves."""
    own = [setting for setting in settings if setting.rule == rule]
    leaves, score = (np.concatenate([getattr(setting, name) for setting in own]) for name in ("leaves", "score"))
    return performance_at(leaves, score, places)


def at_end(settings: Sequence[Setting], rule: str, places: npt.NDArray[np.integer]) -> Floats:
    """The score at the end of the stream by number of leaves there, between settings by straight lines."""
    own = [setting for setting in settings if setting.rule == rule]
    return performance_at(np.array([s.leaves[-1] for s in own]), np.array([s.score[-1] for s in own]), places)


class Difference(NamedTuple):
    """A paired difference over trials.

    Attributes
    ----------
    mean, lower : float
        Its mean, and the lower end of its one-sided 95 % confidence interval (Student's t).
    trials : int
        Those in which both have a value.
    """

    mean: float
    lower: float
    trials: int


def difference(ours: Floats, theirs: Floats) -> Difference:
    """Of two scores in the same trials; a trial in which one of them has none is left out.

    Parameters
    ----------
    ours, theirs : ndarray of float64, shape (trials,)
    """
    from scipy.stats import t

    paired = (ours - theirs)[np.isfinite(ours) & np.isfinite(theirs)]
    n = len(paired)
    if n < 2:
        return Difference(float(paired.mean()) if n else math.nan, -math.inf, n)
    mean = float(paired.mean())
    return Difference(mean, mean - float(t.ppf(0.95, n - 1)) * float(paired.std(ddof=1)) / math.sqrt(n), n)


def lines(trials: Sequence[Sequence[Setting]]) -> dict[str, list[tuple[float, float]]]:
    """For each rule its line of Figure 2: the mean of the trials, where at least half have such trees."""
    most = max(int(setting.leaves.max()) for settings in trials for setting in settings)
    places = sizes_between(1, most, POINTS)
    drawn = {rule: averaged([along(settings, rule, places) for settings in trials]) for rule in RULES}
    return {
        rule: [(float(x), float(y)) for x, y in zip(places, line, strict=True) if math.isfinite(y)]
        for rule, line in drawn.items()
    }


def best(trials: Sequence[Sequence[Setting]], rule: str) -> tuple[float, Floats, Floats]:
    """The value of a rule whose mean score at the end is best; its scores and leaves there, by trial."""
    own = [[setting for setting in settings if setting.rule == rule] for settings in trials]
    scores = np.array([[setting.score[-1] for setting in settings] for settings in own])
    leaves = np.array([[setting.leaves[-1] for setting in settings] for settings in own], dtype=np.float64)
    place = int(scores.mean(axis=0).argmax())
    return own[0][place].value, scores[:, place], leaves[:, place]
