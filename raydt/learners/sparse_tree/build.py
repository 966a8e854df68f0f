"""New nodes on a shard: features are counted and put into buckets, and the best split of each is found exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import group_of, is_one
from raydt.arrays.elementary import Bools, Int32s, Ints
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.examples.updates import UNIT
from raydt.finders.finder import assign, score_of
from raydt.finders.pool import find_or_add
from raydt.trees.counted_tree import UNDECIDED
from raydt.trees.records import mass_of

# A shard's view of the tree: the nodes, and which feature groups of each are its own.
#
# A *unit* is one of the shard's feature groups at one node: unit = node * groups + group, counted within the shard. A
# node at the largest depth, which is never split, has no structure.

#: A node as a shard knows it, by node id: links (-1: none), depth, rows and those of class 1.
NODE = np.dtype(
    [
        ("parent", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("depth", np.int32),
        ("n", np.int64),
        ("c1", np.int64),
    ]
)


class Groups(NamedTuple):
    """The feature groups of a shard: how many it owns, the first of them, and how many all shards own."""

    owned: int
    first: int
    total: int


@inlined_kernel
def unit_of(groups: Any, node: int, index: int) -> int:
    """The unit of a sparse feature at a node."""
    unit: int = node * groups.owned + group_of(index, groups.total) - groups.first
    return unit


#: A candidate: feature (-1: none), rows and rows of class 1 on its right, bits of the threshold, and the side of
#: missing numbers.
FEATURE, RIGHT, RIGHT_ONES, THRESHOLD, MISSING, CANDIDATE = range(6)
#: The threshold between 0 and 1, as bits.
_HALF = np.float64(0.5).view(np.int64)


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
    """Mark the rows, among some, that have a 1 in a sparse feature."""
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


# The rules of the sparse tree as numbers, and the tests that coordinator and shards share.
#
# Symbols: n rows of a node, c1 of class 1, or their masses (``raydt.trees.records``); I its impurity, the Gini index
# 2p(1 - p) or the entropy in nats; I(j) the score of a split (``raydt.finders.finder``).


class WatchRules(NamedTuple):
    """``entropy``: the criterion; ``slack``: beta; ``alpha``; k + 1, a count, and h."""

    entropy: bool
    slack: float
    alpha: float
    min_samples_split: int
    max_depth: int

    def weighed(self) -> WatchRules:
        """Return the rules where counts are masses."""
        return self._replace(min_samples_split=self.min_samples_split * UNIT)


@inner_kernel
def impurity(rules: Any, table: Any, n: int, c1: int) -> float:
    """I of a node of n > 0 rows."""
    value: float = score_of(rules.entropy, table, n, c1, 0, 0)
    return value


@inner_kernel
def beaten(rules: Any, score: float, candidate: float) -> bool:
    """Return True if a split, or a leaf whose impurity is its ``score``, lacks more than beta to a finder's candidate.

    A candidate is at most 1 + finder_alpha times the least score, so what is not beaten is within that, plus beta.
    """
    return bool(score > candidate + rules.slack)


@inner_kernel
def must_be_leaf(rules: Any, n: int, c1: int) -> bool:
    """|S| <= k or I = 0."""
    return bool(n < rules.min_samples_split or c1 == 0 or c1 == n)


@inner_kernel
def may_split(rules: Any, table: Any, n: int, c1: int, depth: int) -> bool:
    """Return True if a leaf that is beaten must be split: large and impure enough, and not at the largest depth."""
    if depth >= rules.max_depth or must_be_leaf(rules, n, c1):
        return False
    return bool(impurity(rules, table, n, c1) >= rules.alpha)


@inner_kernel
def _tells_nothing(n: int, c1: int, n1: int, c11: int) -> bool:
    """Return True if the classes have the same shares on both sides: c11 n = n1 c1.

    Products of masses have up to 96 bits. With equal lowest 64 bits they are equal, or differ by 2**64 at least.
    """
    return bool(c11 * n == n1 * c1 and abs(np.float64(c11) * np.float64(n) - np.float64(n1) * np.float64(c1)) < 2.0**62)


@kernel
def keep_leaves(rules: Any, table: Any, totals: Any, depth: Any, found: Any, chosen: Any) -> None:
    """Line 3 of BUILD: |S| <= k, or I <= alpha / 2, or depth = h, or no split tells the classes apart: chosen = -1."""
    for i in range(len(chosen)):
        n, c1 = totals[i, 0], totals[i, 1]
        if chosen[i] < 0:
            continue
        n1, c11 = found[i, chosen[i], RIGHT], found[i, chosen[i], RIGHT_ONES]
        large = depth[i] < rules.max_depth and not must_be_leaf(rules, n, c1)
        if not large or _tells_nothing(n, c1, n1, c11) or impurity(rules, table, n, c1) <= rules.alpha / 2:
            chosen[i] = -1
