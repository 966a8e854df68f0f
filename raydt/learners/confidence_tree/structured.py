"""Sparse features whose candidates a structure keeps at hand (UPDGINI, UPDENT): approximate, confirmed exactly later.

Each unit, one feature group at one site, has the buckets of ``raydt.finders``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.arrays.sparse import group_of
from raydt.finders.pool import find
from raydt.finders.structure import Structure, attach, best, change, detach, settle
from raydt.learners.confidence_tree.statistics import count_dense, offer_sparse, scan_group, score_row


@inlined_kernel
def _count_row(held: Any, search: Any, buckets: Any, site: int, slot: int, sign: int, label: int) -> None:
    """Count one row in or out at one site, and bring the buckets up to date."""
    count_dense(held, site, slot, sign, label)
    sparse, structure = held.sparse, Structure(held.pool, buckets, search.table)
    per = len(held.columns.group) - 1
    c1 = held.counts.totals[site, 1]
    n = held.counts.totals[site, 0] + c1
    for k in range(sparse.rows.begin[slot], sparse.rows.end[slot]):
        index = sparse.rows.values[k]
        unit = site * per + group_of(index, sparse.of) - sparse.first
        change(structure, unit, index, sign, label, n, c1)
    for group in range(per):
        settle(structure, site * per + group, n, c1)


@inner_kernel
def _ask_unit(held: Any, search: Any, buckets: Any, unit: int, totals: Any, m: int, found: Any) -> None:
    """Offer the best sparse feature of one unit and the best without it, as the structure has them."""
    structure, c1 = Structure(held.pool, buckets, search.table), totals[1]
    first, _ = best(structure, unit, m, c1)
    if first < 0:
        return
    k = np.int64(held.pool.bucket[first])
    detach(structure, first)
    second, _ = best(structure, unit, m, c1)
    attach(structure, first, k)
    for e in (first, second):
        if e >= 0:
            offer_sparse(held, search, e, totals, m, found)


@kernel
def take_structured(
    held: Any,
    search: Any,
    buckets: Any,
    deltas: Any,
    begin: int,
    stop: int,
    checks: Any,
    check: int,
    naive: Any,
    scored: int,
) -> tuple[int, int]:
    """As ``statistics.take``, with the candidates of sparse features from a structure."""
    per, asked = len(held.columns.group) - 1, checks.asked
    for i in range(begin, stop):
        if scored < len(naive.asked) and naive.asked[scored] == i:
            score_row(held, naive, deltas[1, i], deltas[0, i], naive.found[scored])
            scored += 1
        if deltas[2, i] != 0:
            _count_row(held, search, buckets, deltas[1, i], deltas[0, i], deltas[2, i], deltas[3, i])
        while check < len(asked) and asked[check, 0] <= i:
            site = asked[check, 1]
            totals = held.counts.totals[site]
            m = totals[0] + totals[1]
            for g in range(per):
                found = checks.found[check, g]
                scan_group(held, search, site, g, m, found)
                _ask_unit(held, search, buckets, site * per + g, totals, m, found)
            check += 1
    return check, scored


@kernel
def put_back(structure: Any, unit: Any, feature: Any, bucket: Any) -> None:
    """Put entries that are there into their buckets."""
    for i in range(len(unit)):
        attach(structure, find(structure.pool, unit[i], feature[i]), np.int64(bucket[i]))
