"""The shard's half of an update: the structures of all nodes on the path change, and every split is tested.

A *unit* is one of the shard's feature groups at one node: unit = node * groups + group, counted within the shard. A
node at the largest depth, which is never split, has no structure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.sparse import group_of
from raydt.finders.pool import NOTES
from raydt.finders.scores import score_of
from raydt.finders.structure import best, change, rewind, settle
from raydt.learners.sparse_tree.rules import beaten, impurity, may_split


class Nodes(NamedTuple):
    """What a shard knows of the nodes, by node id: parent, children (-1: none), depth, rows and those of class 1."""

    parent: npt.NDArray[np.int32]
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int32]
    n: npt.NDArray[np.int64]
    c1: npt.NDArray[np.int64]


@inner_kernel
def _is_beaten(pool: Any, buckets: Any, table: Any, nodes: Any, groups: int, node: int, rules: Any) -> bool:
    """Whether a candidate of this shard beats the split of a node, or asks for one at a leaf."""
    n, c1 = nodes.n[node], nodes.c1[node]
    right = nodes.right[node]
    if n == 0:
        return False
    if right < 0:
        if not may_split(rules, table, n, c1, nodes.depth[node]):
            return False
        score = impurity(rules, table, n, c1)
    else:
        score = score_of(rules.entropy, table, n, c1, nodes.n[right], nodes.c1[right])
    for group in range(groups):
        _, candidate = best(pool, buckets, table, node * groups + group, n, c1)
        if beaten(rules, score, candidate):
            return True
    return False


@kernel
def watch(
    pool: Any,
    buckets: Any,
    table: Any,
    nodes: Any,
    groups: int,
    first_group: int,
    of_groups: int,
    rows: Any,
    sign: Any,
    label: Any,
    slot: Any,
    leaf: Any,
    begin: int,
    rules: Any,
    marks: Any,
    room: int,
    notes: int,
) -> tuple[int, int]:
    """Take steps from ``begin`` on, as long as their new entries and notes surely fit, and through the first beaten.

    ``rows`` has the shard's sparse features by slot; the shard owns ``groups`` of ``of_groups`` groups, from
    ``first_group`` on. ``marks`` takes how many notes the journal had before each step; it may have ``notes``.

    Returns
    -------
    step, node : int
        The step after the last that was taken; the root-most node that was beaten by it, -1 if none was.
    """
    for i in range(begin, len(sign)):
        first, last = rows.begin[slot[i]], rows.end[slot[i]]
        depth = nodes.depth[leaf[i]] + 1
        room -= depth * (last - first)
        if room < 0 or pool.reg[NOTES] > notes:
            return i, -1
        marks[i] = pool.reg[NOTES]
        node = np.int64(leaf[i])
        while node >= 0:
            nodes.n[node] += sign[i]
            nodes.c1[node] += sign[i] * label[i]
            n, c1 = nodes.n[node], nodes.c1[node]
            if nodes.depth[node] < rules.max_depth:
                for k in range(first, last):
                    j = rows.values[k]
                    unit = node * groups + group_of(j, of_groups) - first_group
                    change(pool, buckets, table, unit, j, sign[i], label[i], n, c1)
                for group in range(groups):
                    settle(pool, buckets, table, node * groups + group, n, c1)
            node = np.int64(nodes.parent[node])
        found = -1
        node = np.int64(leaf[i])
        while node >= 0:
            if nodes.depth[node] < rules.max_depth and _is_beaten(pool, buckets, table, nodes, groups, node, rules):
                found = node
            node = np.int64(nodes.parent[node])
        if found >= 0:
            return i + 1, found
    return len(sign), -1


@kernel
def take_back(
    pool: Any, buckets: Any, table: Any, nodes: Any, sign: Any, label: Any, leaf: Any, marks: Any, keep: int, stop: int
) -> None:
    """Undo the steps from ``keep`` to before ``stop``."""
    if keep < stop:
        rewind(pool, buckets, table, marks[keep])
    for i in range(keep, stop):
        node = leaf[i]
        while node >= 0:
            nodes.n[node] -= sign[i]
            nodes.c1[node] -= sign[i] * label[i]
            node = nodes.parent[node]


@kernel
def places(left: Any, right: Any, parent: Any, place: Any) -> None:
    """The place in preorder of every node of the tree."""
    node, count = 0, 0
    while True:
        place[node] = count
        count += 1
        if right[node] >= 0:
            node = np.int64(left[node])
            continue
        while node != 0 and right[parent[node]] == node:
            node = np.int64(parent[node])
        if node == 0:
            return
        node = np.int64(right[parent[node]])
