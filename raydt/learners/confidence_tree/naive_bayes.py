"""Naive Bayes at the leaves, in whole numbers, from the counts that a leaf has anyway.

A leaf has counted n_k examples of class k, n_jk of them in the bin of feature j that a row falls into. With T(n) =
log(64 n + 1) the score of class k is

    T(n_k) + sum_j (T(n_jk) - T(n_k)),

the logarithm of the naive Bayes numerator, in which each bin has 1/64 of an example more than were counted, so that
none is impossible. A class without examples has no score. Of a numeric feature up to ``POOLS`` neighbouring groups of
bins count instead of the bins, which are too narrow to estimate shares from; of the sparse features those that are 1.

T is rounded to a multiple of 2^-20 once, by the coordinator, and travels as a table of whole numbers: sums over
features do not depend on their order, on shards, or on a processor's logarithm. T(0) is 0. Masses
(``raydt.trees.masses``) may be any numbers: there is no table of them, and whoever needs T makes it of operations that
have the same bits everywhere; T of the mass of n rows is T(n).

Source: Gama, Rocha, Medas, Accurate decision trees for mining high-speed data streams, KDD 2003 (naive Bayes leaves);
Holmes, Kirkby, Pfahringer, Stress-testing Hoeffding trees, PKDD 2005 (the choice by what has been right more often).
"""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple

import numpy as np

from raydt.arrays.elementary import log_of, natural_log
from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.arrays.types import Int32s, Ints
from raydt.batches.binning import Bins
from raydt.examples import weights
from raydt.examples.features import CATEGORICAL

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
