"""Naive Bayes at the leaves, in whole numbers, from the counts that a leaf has anyway.

A leaf has counted n_k examples of class k, n_jk of them in the bin of feature j that a row falls into. With T(n) =
log(64 n + 1) the score of class k is

    T(n_k) + sum_j (T(n_jk) - T(n_k)),

the logarithm of the naive Bayes numerator, in which each bin has 1/64 of an example more than were counted, so that
none is impossible. A class without examples has no score. Of a numeric feature up to ``POOLS`` neighbouring groups of
bins count instead of the bins, which are too narrow to estimate shares from; of the sparse features those that are 1.

T is rounded to a multiple of 2^-20 once, by the coordinator, and travels as a table of whole numbers: sums over
features do not depend on their order, on shards, or on a processor's logarithm. T(0) is 0. Masses
(``raydt.trees.records``) may be any numbers: there is no table of them, and whoever needs T makes it of operations that
have the same bits everywhere; T of the mass of n rows is T(n).

Source: Gama, Rocha, Medas, Accurate decision trees for mining high-speed data streams, KDD 2003 (naive Bayes leaves);
Holmes, Kirkby, Pfahringer, Stress-testing Hoeffding trees, PKDD 2005 (the choice by what has been right more often).
"""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import AnyArray, Int32s, Ints, log_of, natural_log
from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.batches.binning import Bins
from raydt.examples import updates as weights
from raydt.examples.updates import CATEGORICAL, NUMERIC
from raydt.examples.updates import UNIT as ROW

LeafPrediction = Literal["majority", "naive_bayes", "adaptive", "adaptive_normal", "adaptive_inherited"]
#: Those where a leaf chooses by who has been right, and of these those with normal features, too.
ADAPTIVE = ("adaptive", "adaptive_normal", "adaptive_inherited")
NORMAL = ADAPTIVE[1:]
#: That of leaves that know what the examples they began with are, too.
INHERITED = "adaptive_inherited"

#: Groups of the bins of a numeric feature, at most; that of NaN comes on top.
POOLS = 16
#: A bin has 1 / PARTS of an example more than were counted.
PARTS = 64
#: The unit of T is 1 / UNIT.
UNIT = 1 << 20
#: Above T of any number of examples.
LARGEST_LOG = 1 << 26
#: Entries of the smallest table.
_SHORTEST = 1 << 10
#: Units of a mass that make 1 / ``PARTS`` of a row.
_PART = weights.UNIT // PARTS


def log_table(n: int, table: Ints | None = None) -> Ints:
    """T(0), T(1), ... in units of 1 / ``UNIT``, up to T(n) at least; ``table`` if that is long enough. O(n)."""
    if table is not None and n < len(table):
        return table
    return _table_of(max(_SHORTEST, 1 << n.bit_length()))


@functools.lru_cache(4)
def _table_of(size: int) -> Ints:
    """Make a table, to which nobody writes: that of thousands of models is the same."""
    table: Ints = np.rint(UNIT * natural_log(np.arange(1.0, PARTS * size + 1.0, PARTS))).astype(np.int64)
    return table


@inlined_kernel
def log_count(table: Any, n: int) -> int:
    """T(n) of n rows, from the table; without a table n is a mass."""
    value: int = table[n] if len(table) > 0 else np.int64(np.rint(UNIT * log_of(np.float64(n + _PART) / _PART)))
    return value


@kernel
def _log_masses(masses: Any, out: Any) -> None:
    for i in range(len(masses)):
        out[i] = log_count(out[:0], masses[i])


class SharedLogs:
    """The table of T at the coordinator, long enough for all counts so far, and how much of it the shards have."""

    def __init__(self) -> None:
        self.table, self._sent = log_table(0), 0

    def reach(self, counts: Ints) -> Ints:
        """The table, long enough for some counts. O(entries) when it grows, and then it doubles at least."""
        if len(self.table):
            self.table = log_table(int(counts.max(initial=0)), self.table)
        return self.table

    def of(self, counts: Ints) -> Ints:
        """T of some counts."""
        if len(self.table):
            return self.reach(counts)[counts]
        found = np.empty(counts.shape, dtype=np.int64)
        _log_masses(np.ascontiguousarray(counts).ravel(), found.ravel())
        return found

    def unsent(self, counts: Ints) -> Ints:
        """The table to send with what is scored by some counts; empty if the shards have it."""
        if not len(counts):
            return self.table[:0]
        table = self.reach(counts)
        more = table[: len(table) if len(table) > self._sent else 0]
        self._sent = len(table)
        return more

    def restart(self, *, masses: bool) -> None:
        """After a restore: the shards have nothing of the table; there is none of masses."""
        self.table, self._sent = np.empty(0, dtype=np.int64) if masses else log_table(0), 0


class Pools(NamedTuple):
    """Groups of bins, of all features one after the other."""

    of: Int32s  #: Shape (bins of all features,): group of each bin, numbered from 0 in each feature.
    #: ``low``, ``stop``: Shape (bins of all features,): first bin of its group, and that after the last, numbered
    #: through all features.
    low: Int32s
    stop: Int32s
    first: Ints  #: Shape (features + 1,): where the groups of each feature begin, if they are numbered through.


def pools_of(bins: Bins) -> Pools:
    """The groups of the bins of dense features. O(bins)."""
    of, first = [np.empty(0, dtype=np.int32)], [0]
    for kind, size, count in zip(bins.kinds, np.diff(bins.starts), bins.counts(), strict=True):
        code, numbers = np.arange(count), int(size) + 1
        if kind != CATEGORICAL and numbers > POOLS:
            code = np.append(code[:numbers] * POOLS // numbers, POOLS)  # the last bin is that of NaN
        of.append(code.astype(np.int32))
        first.append(first[-1] + int(code[-1]) + 1)
    within = np.concatenate(of)
    through = within + np.repeat(first[:-1], bins.counts())
    low = np.searchsorted(through, through).astype(np.int32)
    stop = np.searchsorted(through, through, side="right").astype(np.int32)
    return Pools(within, low, stop, np.array(first, dtype=np.int64))


# Naive Bayes whose numeric features are normally distributed in each class, in whole numbers, from the counts of bins.
#
# Few examples fill narrow bins with chance; their mean and variance they give well. So a feature of more than ``POOLS``
# bins of numbers has a *normal score* in each bin: about the value that a standard normal variable has at that rank,
# z(p) = (p^(1/8) - (1 - p)^(1/8)) / (3/16) at p = (bin + 1/2) / bins (Tukey's lambda distribution; square roots alone,
# so that every processor computes the same), in units of 1 / ``SCORE``. With n examples of class k that have a number,
# whose scores sum up to s and their squares to q, the class has there
#
#     m = s / (n + 1),  v = (q + 1) / (n + 1) - m^2,  T(n) - T(n_k) - log(v) / 2 - (z - m)^2 / (2 v)
#
# as if one example at distance 1 from the middle had come before all others. Sums are floats, exact up to 2^27
# examples, since those of masses (``raydt.trees.records``) have more than 64 bits. m and v are rounded to whole
# numbers, so that a saved model scores as the tree does. What is counted out leaves s and q as it came. Missing
# numbers, categories and features of few values count as in ``naive_bayes``.

#: The unit of scores and means is 1 / SCORE, and so is that of variances.
SCORE = 1 << 10
#: The least variance, in that unit, and the number of bits of the largest.
LEAST, MOST_BITS = 10, 16
#: The logarithm of 2, in units of 1 / ``UNIT``.
LOG_2 = 726_817


def half_logs() -> Ints:
    """Return the logarithms of 256/256, 257/256, ... 511/256, in units of 1 / ``UNIT``: the same on every machine."""
    one = Decimal(256)
    return np.array(
        [int((UNIT * (Decimal(m) / one).ln()).to_integral_value()) for m in range(256, 512)], dtype=np.int64
    )


#: Scores of the bins of all features, one after the other, and which features are normal.
NormalScores = tuple[Int32s, npt.NDArray[np.uint8]]


def normal_scores(bins: Bins) -> NormalScores:
    """Return the score of every bin, of all features one after the other, and which features are normal. O(bins)."""
    scores, normal = [np.empty(0, dtype=np.int32)], np.zeros(len(bins), dtype=np.uint8)
    for j, (kind, size, count) in enumerate(zip(bins.kinds, np.diff(bins.starts), bins.counts(), strict=True)):
        score, numbers = np.zeros(count, dtype=np.int32), int(size) + 1
        if kind == NUMERIC and numbers > POOLS:
            normal[j] = 1
            p = (2 * np.arange(numbers) + 1) / (2 * numbers)
            z = np.sqrt(np.sqrt(np.sqrt(p))) - np.sqrt(np.sqrt(np.sqrt(1.0 - p)))
            score[:numbers] = np.rint(z / 0.1875 * SCORE)
        scores.append(score)
    return np.concatenate(scores), normal


@inlined_kernel
def mean_of(n: int, s: float, unit: int) -> int:
    """Mean of n scores whose sum is s, with the one before all others; a row is ``unit`` units of a count."""
    mean: int = np.int64(np.floor(s / np.float64(n + unit) + 0.5))
    return mean


@inlined_kernel
def variance_of(n: int, s: float, q: float, unit: int) -> int:
    """Variance of n scores of these sums of scores and of their squares, with the one before all others."""
    mean = s / np.float64(n + unit)
    first = np.float64(SCORE * SCORE) * np.float64(unit)
    variance = np.int64(((q + first) / np.float64(n + unit) - mean * mean) / SCORE)
    bounded: int = min(max(variance, np.int64(LEAST)), np.int64((1 << MOST_BITS) - 1))
    return bounded


@inlined_kernel
def half_log(variance: int, halves: Any) -> int:
    """Half of the logarithm of a variance in units of 1 / ``SCORE``, but for a constant."""
    bits = np.int64(0)
    while (variance >> bits) > 1:
        bits += 1
    nine = variance << (8 - bits) if bits <= 8 else variance >> (bits - 8)
    half: int = (bits * LOG_2 + halves[nine - 256]) >> 1
    return half


@inlined_kernel
def distance(score: int, mean: int, variance: int) -> int:
    """Return (z - m)^2 / (2 v), in units of 1 / ``UNIT``."""
    apart: int = (((score - mean) * (score - mean)) << 9) // variance
    return apart


@inlined_kernel
def sum_scores(bins: Any, score: Any, first: int, last: int, sums: Any) -> None:
    """Add the scores, and their squares, of the examples of each class in the bins before ``last``. O(bins x K)."""
    for k in range(sums.shape[1]):
        s, q = sums[0, k], sums[1, k]  # in registers: twice as fast
        for b in range(first, last):
            n, z = np.float64(bins[b, k]), np.float64(score[b])
            s += n * z
            q += n * (z * z)
        sums[0, k], sums[1, k] = s, q


@inlined_kernel
def _add_normal(held: Any, naive: Any, site: int, j: int, code: int, scores: Any, sites: int) -> None:
    """Put the normal score of a column in place of that of its counts, at one or two sites; sums are there."""
    columns, table, totals, bins = held.columns, naive.table, held.counts.totals, held.counts.bins
    unit = np.int64(1) if len(table) > 0 else np.int64(ROW)  # there is no table of masses
    last = columns.first[j + 1] - 1
    for k in range(len(scores)):
        n = together = np.int64(0)
        for at in range(site, site + sites):
            n += totals[at, k] - bins[at, last, k]
            for b in range(naive.low[code], naive.stop[code]):
                together += bins[at, b, k]
        variance = variance_of(n, naive.sums[0, k], naive.sums[1, k], unit)
        log = log_count(table, n) - half_log(variance, naive.halves)
        apart = distance(np.int64(naive.score[code]), mean_of(n, naive.sums[0, k], unit), variance)
        scores[k] += log - apart - log_count(table, together)


@inlined_kernel
def score_normal(
    held: Any, naive: Any, site: int, slot: int, counted: Any, scores: Any, of_all: Any, inherits: bool
) -> None:
    """Scores of one row at one site into ``scores``, shape (K,), from those of counts. O(features x bins x K).

    If the leaf ``inherits``, ``of_all`` has the scores of counts at both its sites, and those of normal columns come in
    their places there, too: the sums of the second site are added to those of the first.
    """
    columns, bins = held.columns, held.counts.bins
    for k in range(len(scores)):
        scores[k] = counted[k]
    for j in range(len(columns.feature)):
        first, last = columns.first[j], columns.first[j + 1] - 1  # the last bin is that of missing numbers
        code = first + held.codes[slot, j]
        if naive.normal[j] == 0 or code == last:
            continue
        naive.sums[:] = 0.0
        sum_scores(bins[site], naive.score, first, last, naive.sums)
        _add_normal(held, naive, site, j, code, scores, 1)
        if inherits:
            sum_scores(bins[site + 1], naive.score, first, last, naive.sums)
            _add_normal(held, naive, site, j, code, of_all, 2)


@kernel
def summarise(bins: Any, first: Any, normal: Any, score: Any, unit: int, sums: Any, out: Any) -> None:
    """Numbers, mean and variance of every class and normal feature at some sites into ``out``, (3, sites, normal, K).

    ``bins`` has the counts of these sites, of which a row is ``unit`` units; ``sums``, shape (2, K), is scratch.
    """
    for site in range(len(bins)):
        c = 0
        for j in range(len(normal)):
            if normal[j] == 0:
                continue
            last = first[j + 1] - 1
            sums[:] = 0.0
            sum_scores(bins[site], score, first[j], last, sums)
            for k in range(bins.shape[2]):
                n = np.int64(0)
                for b in range(first[j], last):
                    n += bins[site, b, k]
                out[0, site, c, k], out[1, site, c, k] = n, mean_of(n, sums[0, k], unit)
                out[2, site, c, k] = variance_of(n, sums[0, k], sums[1, k], unit)
            c += 1


@kernel
def take_half_logs(variance: Any, halves: Any, out: Any) -> None:
    """Half logarithms of variances, of one dimension."""
    for i in range(len(variance)):
        out[i] = half_log(variance[i], halves)


def normal_arrays(leaves: AnyArray, parts: Ints, table: SharedLogs) -> dict[str, AnyArray]:
    """Return the arrays of a model for leaves with normal features, given their places among those of naive Bayes.

    ``parts``, shape (3, leaves, normal features, K), is what :func:`summarise` gives.
    """
    halves = np.empty(parts[2].size, dtype=np.int64)
    take_half_logs(np.ascontiguousarray(parts[2]).reshape(-1), half_logs(), halves)
    logs = table.of(parts[0]) - halves.reshape(parts[2].shape)
    given = {"leaf": leaves.astype(np.int32), "log": logs}
    return {f"normal_{name}": array for name, array in given.items()} | {
        "normal_mean": parts[1].astype(np.int32),
        "normal_variance": parts[2].astype(np.int32),
    }
