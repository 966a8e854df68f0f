"""Sparse features whose candidates a structure keeps at hand (UPDGINI, UPDENT): approximate, confirmed exactly later.

Each unit, one feature group at one place, has the buckets of ``raydt.finders``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.arrays.sparse import group_of
from raydt.finders.pool import find
from raydt.finders.structure import attach, best, change, detach, settle
from raydt.learners.confidence_tree.impurity import CUT, FEATURE, offer, phi
from raydt.learners.confidence_tree.statistics import left_of, scan_column


@inlined_kernel
def _add(
    counts: Any,
    columns: Any,
    codes: Any,
    sparse: Any,
    search: Any,
    buckets: Any,
    place: int,
    slot: int,
    sign: int,
    label: int,
) -> None:
    """Count one row at one place in or out, and bring the buckets up to date."""
    counts.totals[place, label] += sign
    bins = counts.bins[place]
    for j in range(len(columns.feature)):
        bins[columns.first[j] + codes[slot, j], label] += sign
    per = len(columns.group) - 1
    c1 = counts.totals[place, 1]
    n = counts.totals[place, 0] + c1
    for at in range(sparse.rows.begin[slot], sparse.rows.end[slot]):
        index = sparse.rows.values[at]
        unit = place * per + group_of(index, sparse.of) - sparse.first
        change(search.pool, buckets, search.table, unit, index, sign, label, n, c1)
    for group in range(per):
        settle(search.pool, buckets, search.table, place * per + group, n, c1)


@inner_kernel
def _ask_unit(
    sparse: Any, unit: int, search: Any, buckets: Any, totals: Any, m: int, left: Any, found: Any, scores: Any
) -> None:
    """Offer the best sparse feature of one unit and the best without it, as the structure has them."""
    pool, n, c1 = search.pool, m, totals[1]
    first, _ = best(pool, buckets, search.table, unit, n, c1)
    if first < 0:
        return
    k = np.int64(pool.bucket[first])
    detach(pool, buckets, first)
    second, _ = best(pool, buckets, search.table, unit, n, c1)
    attach(pool, buckets, search.table, first, k)
    for e in (first, second):
        if e >= 0 and 0 < pool.n1[e] < m:
            left_of(pool, e, totals, left)
            score = phi(search.criterion, search.table, left, totals)
            offer(found, scores, search.by_feature, score, sparse.dense + pool.feature[e], np.int64(0), left)


@kernel
def take_structured(
    counts: Any, columns: Any, codes: Any, sparse: Any, search: Any, buckets: Any, slot: Any, place: Any, sign: Any,
    label: Any, begin: int, stop: int, checks: Any, check: int, left: Any, scores: Any, found: Any,
) -> int:  # fmt: skip
    """As ``statistics.take``, with the candidates of sparse features from a structure."""
    per = len(columns.group) - 1
    for i in range(begin, stop):
        _add(counts, columns, codes, sparse, search, buckets, place[i], slot[i], sign[i], label[i])
        while check < len(checks) and checks[check, 0] <= i:
            at = checks[check, 1]
            totals = counts.totals[at]
            m = totals[0] + totals[1]
            for g in range(per):
                mine = found[check, g]
                mine[:, FEATURE] = -1
                mine[:, CUT:] = 0
                scores[:] = np.inf
                for j in range(columns.group[g], columns.group[g + 1]):
                    scan_column(counts.bins[at], columns, j, search, totals, m, left, mine, scores)
                _ask_unit(sparse, at * per + g, search, buckets, totals, m, left, mine, scores)
            check += 1
    return check


@kernel
def put_back(pool: Any, buckets: Any, table: Any, unit: Any, feature: Any, bucket: Any) -> None:
    """Put entries that are there into their buckets."""
    for i in range(len(unit)):
        attach(pool, buckets, table, find(pool, unit[i], feature[i]), np.int64(bucket[i]))
