"""The exact search: the score of every seen feature, from tables, in two passes over plain arrays.

It is what ``structure`` is measured against, and faster where rows are not sparse or queries are rare.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel
from raydt.finders.pool import USED, find_or_add
from raydt.finders.scores import score_of


@inner_kernel
def count(pool: Any, unit: int, feature: int, sign: int, label: int) -> int:
    """A row in which a feature is 1 came (``sign`` 1) or went (-1); the entry."""
    e = find_or_add(pool, unit, feature)
    pool.n1[e] += sign
    pool.c11[e] += sign * label
    return e


@inner_kernel
def best_of_all(pool: Any, entropy: bool, table: Any, n: int, c1: int, scores: Any, least: Any, found: Any) -> None:
    """The entry with the smallest (score, feature) of each unit, all at one node, into ``found``; -1 where none is.

    ``scores`` has room for all entries, ``least`` for all units. O(the most entries that were in use at
    once): the dead and the free are passed over, their n1 is 0.
    """
    used = pool.reg[USED]
    n1, c11, unit, feature = pool.n1, pool.c11, pool.unit, pool.feature
    if entropy:
        for e in range(used):
            scores[e] = score_of(True, table, n, c1, n1[e], c11[e])
    else:
        for e in range(used):
            scores[e] = score_of(False, table, n, c1, n1[e], c11[e])
    found[:] = -1
    least[:] = np.inf
    for e in range(used):
        if scores[e] <= least[unit[e]] and n1[e] > 0:
            u = unit[e]
            if scores[e] < least[u] or feature[e] < feature[found[u]]:
                found[u], least[u] = e, scores[e]
