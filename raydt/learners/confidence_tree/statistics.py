"""Counts of a shard at every node that gathers statistics, and the candidates it finds there.

A node that counts has a *site* at the shards: class counts by bin of every dense column, and for sparse features (two
classes) the rows in which they are 1, in the pool of a finder: a *unit* is one feature group at one site. All counts
are integers, so that whatever is counted in can be counted out again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.arrays.memory import empty
from raydt.arrays.sparse import group_of
from raydt.arrays.types import Int32s, Ints
from raydt.batches.binning import Bins
from raydt.examples import weights
from raydt.examples.features import CATEGORICAL
from raydt.finders.pool import find
from raydt.finders.scan import count
from raydt.learners.confidence_tree.impurity import CUT, FEATURE, offer, phi
from raydt.learners.confidence_tree.naive_bayes import log_count
from raydt.learners.confidence_tree.normal_bayes import score_normal

#: Rows of an array of deltas, what shards count: slot of the example, site of the node that counts it, sign (1: in, -1:
#: out, 0: the example is only scored), class. ``[[7], [2], [-1], [0]]``: example 7, of class 0, leaves site 2. Where
#: counts are masses (``raydt.trees.masses``) deltas are int64, and the sign is times the example's mass.
SLOT, SITE, SIGN, LABEL = range(4)


class BinnedColumns(NamedTuple):
    """The dense columns of a shard."""

    feature: Ints  #: Shape (columns,): their numbers, ascending.
    kinds: npt.NDArray[np.int8]  #: Shape (columns,).
    #: Shape (columns,): a numeric column has the cuts 0, 1, ...: bins up to the cut go left. Of a categorical one a bin
    #: against the rest: so many bins have a cut.
    cuts: Ints
    first: Ints  #: Shape (columns + 1,): where the bins of each column begin.
    group: Ints  #: Shape (groups + 1,): where the columns of each of the shard's feature groups begin.

    @classmethod
    def of(cls, bins: Bins, feature: Ints, group: Ints) -> BinnedColumns:
        """Columns whose bins are known."""
        sizes = np.diff(bins.starts)
        cuts = np.where(bins.kinds == CATEGORICAL, sizes, sizes + bins.seen)
        return cls(feature, bins.kinds, cuts, np.concatenate([[0], np.cumsum(bins.counts())]), group)


class Statistics(NamedTuple):
    """Counts by site."""

    totals: Ints  #: Shape (sites, K).
    #: Shape (sites, bins of all columns, K): int32, of masses int64.
    bins: Int32s | Ints

    @classmethod
    def none(cls) -> Statistics:
        """No sites."""
        return cls(np.zeros((0, 2), dtype=np.int64), np.zeros((0, 0, 2), dtype=np.int32))

    def with_room(self, sites: int, bins: int, classes: int) -> Statistics:
        """The same counts with room for more sites and classes; new ones are 0."""
        have, _, known = self.bins.shape
        if sites <= have and classes <= known:
            return self
        capacity, classes = (max(sites, have * 3 // 2) if sites > have else have), max(classes, known)
        by_bin = empty((capacity, bins, classes), self.bins.dtype)
        grown = Statistics(np.zeros((capacity, classes), dtype=np.int64), by_bin)
        grown.bins[:] = 0
        grown.totals[:have, :known] = self.totals
        if have:
            grown.bins[:have, :, :known] = self.bins
        return grown

    def weighed(self) -> Statistics:
        """Make the counts masses."""
        return Statistics(self.totals * weights.UNIT, self.bins.astype(np.int64) * weights.UNIT)

    def without_room(self) -> Statistics:
        """The same counts up to the last place and class that counts something, two classes at least; views.

        How much room there is beyond depends on how the stream was cut, and must not show in a state.
        """
        counted = self.totals != 0
        places = int(np.flatnonzero(counted.any(axis=1)).max(initial=-1)) + 1
        classes = max(2, int(np.flatnonzero(counted.any(axis=0)).max(initial=-1)) + 1)
        return Statistics(self.totals[:places, :classes], self.bins[:places, :, :classes])


class Naive(NamedTuple):
    """Rows to score by naive Bayes, just before they are counted."""

    asked: Any  #: Shape (rows,): their deltas, ascending.
    table: Any  #: T of ``naive_bayes``, up to the largest count.
    low: Any  #: ``low``, ``stop``: Shape (bins of all columns,): the group of each bin.
    stop: Any
    found: Any  #: Shape (rows, K): takes sum_j (T(n_jk) - T(n_k)) over the shard's features.
    normal: Any  #: Shape (columns,): whether a column is scored as a normal one, too (``normal_bayes``).
    score: Any  #: Shape (bins of all columns,): its score in each bin.
    halves: Any  #: Logarithms, for its variance.
    sums: Any  #: Shape (2, K): scratch.
    found_normal: Any  #: Shape (rows, K): takes the scores with normal columns; without rows if nobody wants them.


class Sparse(NamedTuple):
    """The sparse features of a shard: rows by slot, and which groups it owns (``first`` on, of ``of``)."""

    rows: Any
    first: int
    of: int
    dense: int


class Held(NamedTuple):
    """State of a shard."""

    counts: Any
    columns: Any
    codes: Any  #: Shape (slots, columns): bin of every row in every dense column.
    sparse: Any
    pool: Any  #: Of the sparse features.


class HeldDense(NamedTuple):
    """State of a shard without sparse features."""

    counts: Any
    columns: Any
    codes: Any


class Search(NamedTuple):
    """How candidates are compared, and scratch."""

    criterion: int
    by_feature: bool  #: Whether the rival of a candidate is on another feature.
    table: Any  #: k log k, for entropy.
    left: Any  #: Shape (K,): scratch: class counts on the left of a candidate.
    scores: Any  #: Shape (2,): scratch: scores of the best candidate and its rival.


class Checks(NamedTuple):
    """Questions that come up while rows are counted, and their answers."""

    asked: Any  #: Shape (checks, 2): after which delta, at which site.
    found: Any  #: Shape (checks, groups, 2, 2 + K): takes the candidates of each feature group.


@kernel
def recount(by_bin: Any, first: Any, codes: Any, counted: Any) -> None:
    """Count rows by bin, shape (sites, bins, K); ``counted`` are deltas."""
    for i in range(counted.shape[1]):
        slot, site, label = counted[SLOT, i], counted[SITE, i], counted[LABEL, i]
        for j in range(codes.shape[1]):
            by_bin[site, first[j] + codes[slot, j], label] += counted[SIGN, i]


@inlined_kernel
def count_dense(held: Any, site: int, slot: int, sign: int, label: int) -> None:
    """Count one row in or out at one site, in everything but its sparse features."""
    columns = held.columns
    held.counts.totals[site, label] += sign
    bins = held.counts.bins[site]
    for j in range(len(columns.feature)):
        bins[columns.first[j] + held.codes[slot, j], label] += sign


@inlined_kernel
def count_row(held: Any, site: int, slot: int, sign: int, label: int) -> None:
    """Count one row in or out at one site, in everything but the buckets of a structure."""
    count_dense(held, site, slot, sign, label)
    sparse = held.sparse
    if sparse.of:
        per = len(held.columns.group) - 1
        for k in range(sparse.rows.begin[slot], sparse.rows.end[slot]):
            index = sparse.rows.values[k]
            count(held.pool, site * per + group_of(index, sparse.of) - sparse.first, index, sign, label)


@inlined_kernel
def score_dense(held: Any, naive: Any, site: int, slot: int, scores: Any, sites: int) -> None:
    """Naive Bayes scores of one row into ``scores``, shape (K,), by its dense features. O(features x K).

    By what is counted at one site or, of 2 ``sites``, at that after it, too.
    """
    columns, table, totals, bins = held.columns, naive.table, held.counts.totals, held.counts.bins
    classes = totals.shape[1]
    for k in range(classes):
        n = totals[site, k]
        if sites > 1:
            n += totals[site + 1, k]
        scores[k] = -log_count(table, n) * len(columns.feature)
    for j in range(len(columns.feature)):
        code = columns.first[j] + held.codes[slot, j]
        low, stop = naive.low[code], naive.stop[code]
        for k in range(classes):
            n = np.int64(0)
            for b in range(low, stop):
                n += bins[site, b, k]
                if sites > 1:
                    n += bins[site + 1, b, k]
            scores[k] += log_count(table, n)


@inlined_kernel
def score_row(held: Any, naive: Any, site: int, slot: int, scores: Any, sites: int) -> None:
    """Naive Bayes scores of one row at one or two sites into ``scores``, shape (K,). O((features + ones) x K)."""
    score_dense(held, naive, site, slot, scores, sites)
    sparse, table, totals = held.sparse, naive.table, held.counts.totals
    if sparse.of:
        per = len(held.columns.group) - 1
        for i in range(sparse.rows.begin[slot], sparse.rows.end[slot]):
            index = sparse.rows.values[i]
            n1 = c11 = all0 = all1 = np.int64(0)
            for at in range(site, site + sites):
                all0, all1 = all0 + totals[at, 0], all1 + totals[at, 1]
                e = find(held.pool, at * per + group_of(index, sparse.of) - sparse.first, index)
                if e >= 0:
                    n1, c11 = n1 + np.int64(held.pool.n1[e]), c11 + np.int64(held.pool.c11[e])
            scores[0] += log_count(table, n1 - c11) - log_count(table, all0)
            scores[1] += log_count(table, c11) - log_count(table, all1)


@inner_kernel
def _scan_column(bins: Any, columns: Any, j: int, search: Any, totals: Any, m: int, found: Any) -> None:
    """Offer the cuts of one column."""
    left, first, category = search.left, columns.first[j], columns.kinds[j] == CATEGORICAL
    left[:] = 0
    n_left = before = offered = 0
    for t in range(columns.cuts[j]):
        inside = 0
        for k in range(len(left)):
            counted = np.int64(bins[first + t, k])
            left[k] = counted if category else left[k] + counted
            inside += counted
        n_left = inside if category else n_left + inside
        if n_left == m or (category and offered == 1 and before + inside == m):
            return  # nothing is on the right, or there are two categories, which part the same
        if inside > 0:  # else it parts as the cut before
            score = phi(search.criterion, search.table, left, totals)
            offer(found, search.scores, search.by_feature, score, columns.feature[j], t, left)
            before, offered = before + inside, offered + 1


@inner_kernel
def scan_group(held: Any, search: Any, site: int, group: int, m: int, found: Any) -> None:
    """Start the candidates of one group, shape (2, 2 + K), with those of its dense columns."""
    columns, totals = held.columns, held.counts.totals[site]
    found[:, FEATURE] = -1
    found[:, CUT:] = 0
    search.scores[:] = np.inf
    for j in range(columns.group[group], columns.group[group + 1]):
        _scan_column(held.counts.bins[site], columns, j, search, totals, m, found)


@inlined_kernel
def offer_sparse(held: Any, search: Any, e: int, totals: Any, m: int, found: Any) -> None:
    """Offer the sparse feature of one entry of the pool, if it has both values among m rows."""
    pool, left = held.pool, search.left
    if 0 < pool.n1[e] < m:
        _left_of(pool, e, totals, left)
        score = phi(search.criterion, search.table, left, totals)
        feature = held.sparse.dense + pool.feature[e]
        offer(found, search.scores, search.by_feature, score, feature, np.int64(0), left)


@inlined_kernel
def _left_of(pool: Any, e: int, totals: Any, left: Any) -> None:
    """Class counts of the rows in which a sparse feature is 0."""
    left[1] = totals[1] - pool.c11[e]
    left[0] = totals[0] - (pool.n1[e] - pool.c11[e])


@inner_kernel
def _scan_unit(held: Any, search: Any, unit: int, totals: Any, m: int, found: Any) -> None:
    """Offer all sparse features of one unit. O(its entries)."""
    e = held.pool.first[unit]
    while e >= 0:
        offer_sparse(held, search, e, totals, m, found)
        e = held.pool.next[e]


@inner_kernel
def _candidates(held: Any, search: Any, site: int, found: Any) -> None:
    """The best and its rival of each group at one site into ``found``, shape (groups, 2, 2 + K)."""
    totals, per = held.counts.totals[site], len(held.columns.group) - 1
    m = np.int64(0)  # a plain 0 would have all that is called below compiled for the literal, too
    for k in range(len(totals)):
        m += totals[k]
    for g in range(per):
        scan_group(held, search, site, g, m, found[g])
        if held.sparse.of:
            _scan_unit(held, search, site * per + g, totals, m, found[g])


@kernel
def take(
    held: Any, search: Any, deltas: Any, begin: int, stop: int, checks: Any, check: int, naive: Any, scored: int
) -> tuple[int, int]:
    """Count the deltas, shape (4, deltas), from ``begin`` to before ``stop``; answer the checks from ``check`` on.

    Rows to score are those from ``scored`` on. Returns the first check that was not answered, and the first row that
    was not scored.
    """
    asked = checks.asked
    for i in range(begin, stop):
        if scored < len(naive.asked) and naive.asked[scored] == i:
            site, slot, found = deltas[SITE, i], deltas[SLOT, i], naive.found[scored]
            score_row(held, naive, site, slot, found, 1)
            if len(naive.found_normal):
                inherits = len(naive.found_normal) > len(naive.asked)
                of_all = naive.found_normal[scored + len(naive.asked) if inherits else 0]
                if inherits:
                    score_row(held, naive, site, slot, of_all, 2)
                score_normal(held, naive, site, slot, found, naive.found_normal[scored], of_all, inherits)
            scored += 1
        # Scored before it is counted: a prediction must not know the label of its own row.
        if deltas[SIGN, i] != 0:
            count_row(held, deltas[SITE, i], deltas[SLOT, i], deltas[SIGN, i], deltas[LABEL, i])
        while check < len(asked) and asked[check, 0] <= i:
            _candidates(held, search, asked[check, 1], checks.found[check])
            check += 1
    return check, scored
