"""New nodes on a shard: features are counted and put into buckets, and the best split of each is found exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.sparse import is_one
from raydt.arrays.types import Bools, Int32s, Ints
from raydt.finders.pool import find_or_add, release
from raydt.finders.scores import score_of
from raydt.finders.structure import assign
from raydt.learners.sparse_tree.shard_nodes import unit_of
from raydt.trees.counted_tree import UNDECIDED
from raydt.trees.masses import mass_of

#: A candidate: feature (-1: none), rows and rows of class 1 on its right, bits of the threshold, and the side of
#: missing numbers.
FEATURE, RIGHT, RIGHT_ONES, THRESHOLD, MISSING, CANDIDATE = range(6)
#: The threshold between 0 and 1, as bits.
_HALF = np.float64(0.5).view(np.int64)


@kernel
def release_nodes(pool: Any, groups: int, nodes: Any) -> None:
    """Empty the units of nodes that are gone."""
    for node in nodes:
        for group in range(groups):
            release(pool, node * groups + group)


@inner_kernel
def _count(pool: Any, groups: Any, rows: Any, node: int, slot: Any, label: Any, masses: Any) -> None:
    """Count the ones of a new node's rows."""
    for i in range(len(slot)):
        mass = mass_of(masses, i)
        for k in range(rows.begin[slot[i]], rows.end[slot[i]]):
            j = rows.values[k]
            e = find_or_add(pool, unit_of(groups, node, j), j)
            pool.n1[e] += mass
            pool.c11[e] += mass * label[i]


@inner_kernel
def _enter(structure: Any, unit: int, n: int, c1: int) -> int:
    """Put the counted features of a unit into buckets; the entry of the smallest (score, feature), -1 if none."""
    pool, buckets, table = structure
    e = np.int64(pool.first[unit])
    least, chosen = np.inf, np.int64(-1)
    while e >= 0:
        assign(structure, e, n, c1)
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


class LevelRows(NamedTuple):
    """Nodes to open, and the rows of all of them, one node after the other."""

    nodes: Ints  #: Shape (nodes,).
    ends: Ints  #: Shape (nodes,): where the rows of each node end.
    slots: Int32s  #: Shape (rows,).
    labels: npt.NDArray[np.int8]  #: Shape (rows,).
    masses: npt.NDArray[np.uint32]  #: Shape (rows,): in units; empty while counts are numbers of rows.


class LevelCandidates(NamedTuple):
    """The best splits of a level."""

    candidates: Ints  #: Shape (nodes, groups, CANDIDATE): of each group.
    right: Bools  #: Shape (rows,): whether each row is on the right of the best of these for its node.


@kernel
def open_nodes(
    structure: Any, nodes: Any, groups: Any, rows: Any, level: Any, max_depth: int, dense: int, found: Any
) -> None:
    """Open the nodes of a level, and find their best sparse splits; the caller has made room.

    ``dense`` is the number of dense features. O(ones of the rows + features seen).
    """
    pool, buckets, table = structure
    begin = 0
    for i in range(len(level.nodes)):
        node, end = level.nodes[i], level.ends[i]
        slot, label, masses = level.slots[begin:end], level.labels[begin:end], level.masses[begin:end]
        n, c1 = np.int64(0), np.int64(0)
        for r in range(end - begin):
            mass = mass_of(masses, r)
            n += mass
            c1 += mass * label[r]
        nodes[node].n, nodes[node].c1 = n, c1
        if nodes[node].depth < max_depth:
            _count(pool, groups, rows, node, slot, label, masses)
            chosen, least = np.int64(-1), np.inf
            for group in range(groups.owned):
                e = _enter(structure, node * groups.owned + group, n, c1)
                if e < 0:
                    continue
                candidate = found.candidates[i, group]
                candidate[FEATURE], candidate[THRESHOLD] = dense + pool.feature[e], _HALF
                candidate[MISSING] = UNDECIDED
                candidate[RIGHT], candidate[RIGHT_ONES] = pool.n1[e], pool.c11[e]
                score = score_of(buckets.entropy, table, n, c1, pool.n1[e], pool.c11[e])
                if score < least or (score == least and pool.feature[e] < pool.feature[chosen]):
                    chosen, least = e, score
            if chosen >= 0:
                _ones_of(rows, slot, pool.feature[chosen], found.right[begin:end])
        begin = end
