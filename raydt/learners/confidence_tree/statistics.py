"""What a shard counts at every node that gathers statistics, and the candidates it finds there.

A node has a *place* at the shards. There are: class counts by bin of every dense column, and for sparse features (two
classes) the rows in which they are 1, in the pool of a finder: a *unit* is one feature group at one place. All counts
are integers, so that whatever is counted in can be counted out again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.arrays.memory import empty
from raydt.arrays.sparse import group_of
from raydt.examples.features import CATEGORICAL
from raydt.finders.scan import count
from raydt.learners.binning import Bins, code_of
from raydt.learners.confidence_tree.impurity import COUNTS, CURRENT, CUT, FEATURE, offer, phi


class Columns(NamedTuple):
    """The dense columns of a shard.

    Attributes
    ----------
    feature : ndarray of int64, shape (columns,)
        Their numbers, ascending.
    kinds : ndarray of int8, shape (columns,)
    cuts : ndarray of int64, shape (columns,)
        A numeric column has the cuts 0, 1, ...: bins up to the cut go left. Of a categorical one a bin against the
        rest: so many bins have a cut.
    first : ndarray of int64, shape (columns + 1,)
        Where the bins of each column begin.
    group : ndarray of int64, shape (groups + 1,)
        Where the columns of each of the shard's feature groups begin.
    """

    feature: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.int8]
    cuts: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]

    @classmethod
    def of(cls, bins: Bins, feature: npt.NDArray[np.int64], group: npt.NDArray[np.int64]) -> Columns:
        """Columns whose bins are known."""
        sizes = np.diff(bins.starts)
        cuts = np.where(bins.kinds == CATEGORICAL, sizes, sizes + bins.seen)
        return cls(feature, bins.kinds, cuts, np.concatenate([[0], np.cumsum(bins.counts())]), group)


class Statistics(NamedTuple):
    """Counts by place.

    Attributes
    ----------
    totals : ndarray of int64, shape (places, K)
    bins : ndarray of int32, shape (places, bins of all columns, K)
    """

    totals: npt.NDArray[np.int64]
    bins: npt.NDArray[np.int32]

    @classmethod
    def none(cls) -> Statistics:
        """No places."""
        return cls(np.zeros((0, 2), dtype=np.int64), np.zeros((0, 0, 2), dtype=np.int32))

    def with_room(self, places: int, bins: int, classes: int) -> Statistics:
        """The same counts with room for more places and classes; new ones are 0."""
        have, _, known = self.bins.shape
        if places <= have and classes <= known:
            return self
        capacity, classes = (max(places, have * 3 // 2) if places > have else have), max(classes, known)
        grown = Statistics(np.zeros((capacity, classes), dtype=np.int64), empty((capacity, bins, classes), np.int32))
        grown.bins[:] = 0
        grown.totals[:have, :known] = self.totals
        if have:
            grown.bins[:have, :, :known] = self.bins
        return grown

    def without_room(self) -> Statistics:
        """The same counts up to the last place and class that counts something, two classes at least; views.

        How much room there is beyond depends on how the stream was cut, and must not show in a state.
        """
        counted = self.totals != 0
        places = int(np.flatnonzero(counted.any(axis=1)).max(initial=-1)) + 1
        classes = max(2, int(np.flatnonzero(counted.any(axis=0)).max(initial=-1)) + 1)
        return Statistics(self.totals[:places, :classes], self.bins[:places, :, :classes])


class Sparse(NamedTuple):
    """The sparse features of a shard: rows by slot, and which groups it owns (``first`` on, of ``of``)."""

    rows: Any
    first: int
    of: int
    dense: int


class Search(NamedTuple):
    """How candidates are compared; ``pool`` has the sparse features, ``table`` k log k for entropy."""

    criterion: int
    by_feature: bool
    pool: Any
    table: Any


@kernel
def encode(X: Any, bins: Any, slots: Any, codes: Any) -> None:
    """Bins of rows into ``codes``, shape (slots, columns)."""
    for i in range(len(slots)):
        for j in range(X.shape[1]):
            begin, end = bins.starts[j], bins.starts[j + 1]
            codes[slots[i], j] = code_of(X[i, j], bins.kinds[j], bins.values, bins.ranks, begin, end)


@inlined_kernel
def _add(
    counts: Any, columns: Any, codes: Any, sparse: Any, search: Any, place: int, slot: int, sign: int, label: int
) -> None:
    """Count one row at one place in or out, in everything but the buckets of a structure."""
    counts.totals[place, label] += sign
    bins = counts.bins[place]
    for j in range(len(columns.feature)):
        bins[columns.first[j] + codes[slot, j], label] += sign
    if sparse.of:
        per = len(columns.group) - 1
        for at in range(sparse.rows.begin[slot], sparse.rows.end[slot]):
            index = sparse.rows.values[at]
            count(search.pool, place * per + group_of(index, sparse.of) - sparse.first, index, sign, label)


@inner_kernel
def scan_column(
    bins: Any, columns: Any, j: int, search: Any, totals: Any, m: int, left: Any, found: Any, scores: Any
) -> None:
    """Offer the cuts of one column."""
    first, stop = columns.first[j], columns.first[j + 1]
    left[:] = 0
    if columns.kinds[j] != CATEGORICAL:
        n_left = 0
        for t in range(columns.cuts[j]):
            inside = 0
            for k in range(len(left)):
                left[k] += bins[first + t, k]
                inside += bins[first + t, k]
            n_left += inside
            if n_left == m:
                return
            if inside > 0:  # else it parts as the cut before
                score = phi(search.criterion, search.table, left, totals)
                offer(found, scores, search.by_feature, score, columns.feature[j], t, left)
        return
    filled = 0
    for t in range(stop - first):
        for k in range(len(left)):
            if bins[first + t, k] > 0:
                filled += 1
                break
    if filled < 2:
        return
    for t in range(columns.cuts[j]):
        inside = 0
        for k in range(len(left)):
            left[k] = bins[first + t, k]
            inside += bins[first + t, k]
        if inside > 0:
            score = phi(search.criterion, search.table, left, totals)
            offer(found, scores, search.by_feature, score, columns.feature[j], t, left)
            if filled == 2:  # the other one parts the same
                return


@inlined_kernel
def left_of(pool: Any, e: int, totals: Any, left: Any) -> None:
    """Class counts of the rows in which a sparse feature is 0."""
    left[1] = totals[1] - pool.c11[e]
    left[0] = totals[0] - (pool.n1[e] - pool.c11[e])


@inner_kernel
def _scan_unit(sparse: Any, unit: int, search: Any, totals: Any, m: int, left: Any, found: Any, scores: Any) -> None:
    """Offer all sparse features of one unit. O(its entries)."""
    pool = search.pool
    e = pool.first[unit]
    while e >= 0:
        if 0 < pool.n1[e] < m:
            left_of(pool, e, totals, left)
            score = phi(search.criterion, search.table, left, totals)
            offer(found, scores, search.by_feature, score, sparse.dense + pool.feature[e], np.int64(0), left)
        e = pool.next[e]


@inner_kernel
def _current(
    counts: Any, columns: Any, sparse: Any, search: Any, place: int, feature: int, cut: int, found: Any
) -> None:
    """Class counts on the left of the split a node has, if this shard owns its feature, for its group."""
    totals = counts.totals[place]
    if feature < sparse.dense:
        for g in range(len(columns.group) - 1):
            for j in range(columns.group[g], columns.group[g + 1]):
                if columns.feature[j] != feature:
                    continue
                mine = found[g, CURRENT]
                mine[FEATURE], mine[CUT] = feature, cut
                mine[COUNTS:] = 0
                begin = cut if columns.kinds[j] == CATEGORICAL else 0
                for t in range(begin, cut + 1):
                    for k in range(len(totals)):
                        mine[COUNTS + k] += counts.bins[place, columns.first[j] + t, k]
        return
    per = len(columns.group) - 1
    g = group_of(feature - sparse.dense, sparse.of) - sparse.first
    if not 0 <= g < per:
        return
    mine = found[g, CURRENT]
    mine[FEATURE], mine[CUT] = feature, cut
    mine[COUNTS], mine[COUNTS + 1] = totals[0], totals[1]
    e = search.pool.first[place * per + g]
    while e >= 0:
        if search.pool.feature[e] == feature - sparse.dense:
            left_of(search.pool, e, totals, mine[COUNTS:])
        e = search.pool.next[e]


@inner_kernel
def _candidates(
    counts: Any, columns: Any, sparse: Any, search: Any, place: int, left: Any, scores: Any, found: Any
) -> None:
    """The best and its rival of each group at one place into ``found``, shape (groups, 3, 2 + K)."""
    totals, per = counts.totals[place], len(columns.group) - 1
    m = np.int64(0)  # a plain 0 would have all that is called below compiled for the literal, too
    for k in range(len(totals)):
        m += totals[k]
    for g in range(per):
        found[g, :, FEATURE] = -1
        found[g, :, CUT:] = 0
        scores[:] = np.inf
        for j in range(columns.group[g], columns.group[g + 1]):
            scan_column(counts.bins[place], columns, j, search, totals, m, left, found[g], scores)
        if sparse.of:
            _scan_unit(sparse, place * per + g, search, totals, m, left, found[g], scores)


@kernel
def take(
    counts: Any, columns: Any, codes: Any, sparse: Any, search: Any, slot: Any, place: Any, sign: Any, label: Any,
    begin: int, stop: int, checks: Any, check: int, left: Any, scores: Any, found: Any,
) -> int:  # fmt: skip
    """Count the entries from ``begin`` to before ``stop``, and answer the checks among them, from ``check`` on.

    Parameters
    ----------
    slot, place, sign, label : ndarray, shape (entries,)
        Each a row that is counted in or out at a place.
    checks : ndarray of int64, shape (checks, 4)
        After which entry, at which place; feature and cut of the split that is there, -1 for a leaf. Those of one
        step may come in any order: their places are different.
    found : ndarray of int64, shape (checks, groups, 3, 2 + K)
        Takes the answers.

    Returns
    -------
    check : int
        The first check that was not answered.
    """
    for i in range(begin, stop):
        _add(counts, columns, codes, sparse, search, place[i], slot[i], sign[i], label[i])
        while check < len(checks) and checks[check, 0] <= i:
            at, feature, cut = checks[check, 1], checks[check, 2], checks[check, 3]
            _candidates(counts, columns, sparse, search, at, left, scores, found[check])
            if feature >= 0:
                _current(counts, columns, sparse, search, at, feature, cut, found[check])
            check += 1
    return check


@kernel
def confirm(
    counts: Any, columns: Any, codes: Any, sparse: Any, search: Any, places: Any, later: Any, slot: Any, sign: Any,
    label: Any, left: Any, scores: Any, found: Any,
) -> None:  # fmt: skip
    """Exact candidates at some places as they were before their later entries, which are counted out and in again.

    ``later``, shape (places + 1,), is where the later entries of each place begin in ``slot``, ``sign``, ``label``.
    """
    for c in range(len(places)):
        for i in range(later[c], later[c + 1]):
            _add(counts, columns, codes, sparse, search, places[c], slot[i], -sign[i], label[i])
        _candidates(counts, columns, sparse, search, places[c], left, scores, found[c])
        for i in range(later[c], later[c + 1]):
            _add(counts, columns, codes, sparse, search, places[c], slot[i], sign[i], label[i])
