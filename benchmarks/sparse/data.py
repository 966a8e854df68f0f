"""Rows of ones with labels 0 and 1, and the structures and scans that search them for the best split.

The synthetic family is the paper's; the real data are those at hand. All contestants take the same steps in turns
within one run, on one core; CPU time is compared. The scan is the honest opponent: the paper's baselines call the
logarithm for every feature, which makes them five to ten times as slow.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from harness import read

from raydt.finders.finder import Finder, FinderName, xlogx_table
from raydt.finders.finder import FinderSteps as FinderSteps

#: Names of data sets, and their files. Farm Ads is the paper's; RCV1, Author, real-sim and news20 are not at hand.
SETS = {
    "farm": "farm_ads", "reuters": "reuters21578_earn_bydate", "spamassassin": "spamassassin", "w8a": "w8a",
    "a9a": "a9a_train",
}  # fmt: skip


class Steps(NamedTuple):
    """Rows that come (``sign`` 1) and go (-1), as ``Finder.apply`` takes them."""

    sign: npt.NDArray[np.int8]
    label: npt.NDArray[np.int8]
    indptr: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.sign)

    def part(self, begin: int, stop: int) -> Steps:
        ptr = self.indptr[begin : stop + 1]
        return Steps(self.sign[begin:stop], self.label[begin:stop], ptr - ptr[0], self.feature[ptr[0] : ptr[-1]])

    def totals(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        sign = self.sign.astype(np.int64)
        return np.cumsum(sign), np.cumsum(sign * self.label)


def sparse(n: int, d1: int, d2: int, q: float, seed: int = 0) -> Steps:
    """The paper's family: d1 features tell the label, each wrong as often as was drawn for it; d2 are 1 with q.

    A one of the d2 features is found by geometric gaps, so that time follows the ones.
    """
    rng = np.random.default_rng(seed)
    wrong = rng.random(d1)
    label = rng.integers(0, 2, n, dtype=np.int8)
    informative = np.flatnonzero((label[:, None] == 1) ^ (rng.random((n, d1)) < wrong))
    cells, most = [np.empty(0, dtype=np.int64)], n * d2
    last = -1
    while last < most:
        gaps = rng.geometric(q, int(1.1 * (most - last) * q) + 100)
        cells.append(last + np.cumsum(gaps))
        last = int(cells[-1][-1])
    noise = np.concatenate(cells)
    noise = noise[noise < most]
    row = np.concatenate([informative // d1, noise // d2])
    feature = np.concatenate([informative % d1, d1 + noise % d2])
    feature = feature[np.argsort(row, kind="stable")].astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    return Steps(np.ones(n, dtype=np.int8), label, indptr, feature)


def window(rows: Steps, size: int) -> Steps:
    """The same rows; from row ``size`` on, the oldest goes after each one that comes."""
    n = len(rows)
    order = np.concatenate([np.arange(n), np.arange(n - size)])
    when = np.concatenate([2 * np.arange(n), 2 * np.arange(size, n) + 1])
    sign = np.where(np.arange(len(order)) < n, 1, -1)[np.argsort(when)].astype(np.int8)
    order = order[np.argsort(when)]
    lengths = np.diff(rows.indptr)[order]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(rows.indptr[:-1][order] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return Steps(sign, rows.label[order], indptr, rows.feature[places])


def real(name: str, rows: int | None = None) -> tuple[Steps, int]:
    """The first rows of a data set in its own order, all inserted, and its number of features."""
    table = read(SETS[name])
    d = int(table.schema.metadata[b"n_features"])
    table = table.slice(0, rows)
    ones = table["indices"].combine_chunks()
    lengths = ones.value_lengths().to_numpy(zero_copy_only=False)
    feature = ones.flatten().to_numpy(zero_copy_only=False).astype(np.int32)
    label = (table["y"].to_numpy() > 0).astype(np.int8)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Steps(np.ones(len(label), dtype=np.int8), label, indptr, feature), d


#: Finder and criterion (entropy or not).
CONTESTANTS: dict[str, tuple[FinderName, bool]] = {
    "UPDGINI": ("updgini", False), "scan, Gini": ("scan", False), "UPDENT": ("updent", True),
    "scan, entropy": ("scan", True),
}  # fmt: skip
#: Each structure, and the scan by the same criterion.
OPPONENT = {"UPDGINI": "scan, Gini", "UPDENT": "scan, entropy"}
ALPHA = 0.1

Answers = npt.NDArray[np.int32]


class Taken(NamedTuple):
    seconds: float
    answers: Answers
    finder: Finder


def new(who: str, alpha: float = ALPHA, groups: int = 1) -> Finder:
    name, entropy = CONTESTANTS[who]
    return Finder(name, entropy, alpha, groups)


def take(finder: Finder, steps: Steps, groups: int = 1, query: bool = True) -> Taken:
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
    """Worst ratio of the answers of a structure to the optimum, and the number of steps after which they are worse."""

    worst: float
    suboptimal: int
    steps: int

    def cells(self) -> list[str]:
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
