"""New nodes on a shard: features are counted and put into buckets, and the best split of each is found exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.sparse import group_of, is_one
from raydt.finders.pool import find_or_add, release
from raydt.finders.scores import score_of
from raydt.finders.structure import place

#: A candidate: feature (-1: none), rows and rows of class 1 on its right, bits of the threshold.
FEATURE, RIGHT, RIGHT_ONES, THRESHOLD, CANDIDATE = 0, 1, 2, 3, 4
#: The threshold between 0 and 1, as bits.
_HALF = np.float64(0.5).view(np.int64)


@kernel
def release_nodes(pool: Any, groups: int, nodes: Any) -> None:
    """Empty the units of nodes that are gone."""
    for node in nodes:
        for group in range(groups):
            release(pool, node * groups + group)


@inner_kernel
def _count(
    pool: Any, groups: int, first_group: int, of_groups: int, rows: Any, node: int, slot: Any, label: Any
) -> None:
    """Count the ones of a new node's rows."""
    for i in range(len(slot)):
        for k in range(rows.begin[slot[i]], rows.end[slot[i]]):
            j = rows.values[k]
            e = find_or_add(pool, node * groups + group_of(j, of_groups) - first_group, j)
            pool.n1[e] += 1
            pool.c11[e] += label[i]


@inner_kernel
def _enter(pool: Any, buckets: Any, table: Any, unit: int, n: int, c1: int) -> int:
    """Put the counted features of a unit into buckets; the entry of the smallest (score, feature), -1 if none."""
    e = np.int64(pool.first[unit])
    least, chosen = np.inf, np.int64(-1)
    while e >= 0:
        place(pool, buckets, table, e, n, c1)
        score = score_of(buckets.entropy, table, n, c1, pool.n1[e], pool.c11[e])
        if score < least or (score == least and pool.feature[e] < pool.feature[chosen]):
            least, chosen = score, e
        e = np.int64(pool.next[e])
    return int(chosen)


@inner_kernel
def _ones_of(rows: Any, slots: Any, feature: int, out: Any) -> None:
    """Which of some rows have a 1 in a sparse feature."""
    for i in range(len(slots)):
        out[i] = is_one(rows.values, rows.begin[slots[i]], rows.end[slots[i]], feature)


@kernel
def open_nodes(
    pool: Any,
    buckets: Any,
    table: Any,
    nodes: Any,
    groups: int,
    first_group: int,
    of_groups: int,
    rows: Any,
    opened: Any,
    ends: Any,
    slots: Any,
    labels: Any,
    max_depth: int,
    dense: int,
    found: Any,
    right: Any,
) -> None:
    """Open nodes whose rows are given one after the other; the caller has made room.

    ``found``, shape (nodes, groups, CANDIDATE), takes the best sparse split of each group; ``right`` whether each row
    is on the right of the best of these for its node. O(ones of the rows + features seen).
    """
    begin = 0
    for i in range(len(opened)):
        node, end = opened[i], ends[i]
        slot, label = slots[begin:end], labels[begin:end]
        n, c1 = end - begin, 0
        for r in range(n):
            c1 += label[r]
        nodes.n[node], nodes.c1[node] = n, c1
        if nodes.depth[node] < max_depth:
            _count(pool, groups, first_group, of_groups, rows, node, slot, label)
            chosen, least = np.int64(-1), np.inf
            for group in range(groups):
                e = _enter(pool, buckets, table, node * groups + group, n, c1)
                if e < 0:
                    continue
                candidate = found[i, group]
                candidate[FEATURE], candidate[THRESHOLD] = dense + pool.feature[e], _HALF
                candidate[RIGHT], candidate[RIGHT_ONES] = pool.n1[e], pool.c11[e]
                score = score_of(buckets.entropy, table, n, c1, pool.n1[e], pool.c11[e])
                if score < least or (score == least and pool.feature[e] < pool.feature[chosen]):
                    chosen, least = e, score
            if chosen >= 0:
                _ones_of(rows, slot, pool.feature[chosen], right[begin:end])
        begin = end


@kernel
def best_candidates(entropy: bool, table: Any, totals: Any, found: Any, chosen: Any) -> None:
    """Of each node (``totals``: its rows, and those of class 1) the candidate of smallest (score, feature), or -1."""
    for i in range(len(found)):
        n, c1 = totals[i, 0], totals[i, 1]
        best, least = -1, np.inf
        for g in range(found.shape[1]):
            j = found[i, g, FEATURE]
            if j < 0:
                continue
            score = score_of(entropy, table, n, c1, found[i, g, RIGHT], found[i, g, RIGHT_ONES])
            if score < least or (score == least and j < found[i, best, FEATURE]):
                best, least = g, score
        chosen[i] = best
