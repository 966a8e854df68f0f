"""Who takes part: the two structures, and for each criterion the scan of all seen features from tables.

All take the same steps in turns within one run, on one core; what is compared is CPU time. The scan is the honest
opponent: the paper's baselines call the logarithm for every feature, which makes them some five to ten times as slow.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sparse.data import Steps

from raydt.finders.finder import Finder, FinderName, xlogx_table
from raydt.finders.finder import FinderSteps as FinderSteps

#: Finder and criterion (entropy or not).
CONTESTANTS: dict[str, tuple[FinderName, bool]] = {
    "UPDGINI": ("updgini", False),
    "scan, Gini": ("scan", False),
    "UPDENT": ("updent", True),
    "scan, entropy": ("scan", True),
}
#: Each structure, and the scan by the same criterion.
OPPONENT = {"UPDGINI": "scan, Gini", "UPDENT": "scan, entropy"}
ALPHA = 0.1

Answers = npt.NDArray[np.int32]


class Taken(NamedTuple):
    """What one contestant did."""

    seconds: float
    answers: Answers
    finder: Finder


def new(who: str, alpha: float = ALPHA, groups: int = 1) -> Finder:
    """A contestant that has seen nothing."""
    name, entropy = CONTESTANTS[who]
    return Finder(name, entropy, alpha, groups)


def take(finder: Finder, steps: Steps, groups: int = 1, query: bool = True) -> Taken:
    """Take the steps, with a query after each or none."""
    unit = steps.feature % np.int32(groups)
    queries = np.full(len(steps), query)
    began = time.process_time()
    answers = finder.apply(FinderSteps(*steps, unit, queries))
    return Taken(time.process_time() - began, answers, finder)


def in_turns(steps: Steps, turns: int, alpha: float = ALPHA, groups: int = 1) -> dict[str, Taken]:
    """All contestants from nothing on, in turns after one that is not counted; the median of their times."""
    times: dict[str, list[float]] = {who: [] for who in CONTESTANTS}
    last: dict[str, Taken] = {}
    for turn in range(turns + 1):
        for who in CONTESTANTS:
            last[who] = take(new(who, alpha, groups), steps, groups)
            if turn or not turns:
                times[who].append(last[who].seconds)
    return {who: taken._replace(seconds=statistics.median(times[who])) for who, taken in last.items()}


def scores(answers: Answers, steps: Steps, entropy: bool) -> npt.NDArray[np.float64]:
    """The score of the best candidate after each step."""
    n, c1 = (total[:, None].astype(np.float64) for total in steps.totals())
    n1, c11 = answers[:, :, 1].astype(np.float64), answers[:, :, 2].astype(np.float64)
    sides = (n1, c11), (n - n1, c1 - c11)
    if entropy:
        table = xlogx_table(int(n.max(initial=0)))
        counts = ((size, size - own, own) for size, own in sides)
        parts = ([table[count.astype(np.int64)] for count in side] for side in counts)
        every = sum(whole - one - other for whole, one, other in parts) / np.maximum(n, 1)
    else:
        every = 2 * sum((size - own) * own / np.maximum(size, 1) for size, own in sides) / np.maximum(n, 1)
    every[answers[:, :, 0] < 0] = np.inf
    least: npt.NDArray[np.float64] = every.min(axis=1)
    return least


class Comparison(NamedTuple):
    """How far a structure's answers are from the optimum: the worst ratio, and after how many steps they are worse."""

    worst: float
    suboptimal: int
    steps: int

    def cells(self) -> list[str]:
        """For a table."""
        return [f"{self.worst:.4f}", f"{self.suboptimal:,} of {self.steps:,}"]


def compare(who: str, taken: dict[str, Taken], steps: Steps) -> Comparison:
    """Compare with the scan by the same criterion; rounding of the score does not count."""
    entropy = CONTESTANTS[who][1]
    own, least = (scores(taken[name].answers, steps, entropy) for name in (who, OPPONENT[who]))
    some = np.isfinite(least)
    assert np.array_equal(some, np.isfinite(own))
    own, least = own[some], least[some]
    worse = own > least * (1 + 1e-9) + 1e-12
    zero = least < 1e-12
    assert not (worse & zero).any(), f"{who} missed a perfect split"
    ratio = own[~zero] / least[~zero]
    return Comparison(float(ratio.max(initial=1.0)), int(worse.sum()), len(own))
