"""Leaf-wise growth of one tree in the process that holds all features, in one kernel call for many trees.

The leaf whose best split gains most is split next (the one opened first among equals), until the tree may gain no more
leaves or no open leaf can be split: the same splits that several shards find in rounds (``growth``).

Invariant: the histogram of an open leaf lies in the pool. When the leaf is split, the histogram of the smaller child is
summed up from its rows, and the parent's, less that one, becomes the larger child's: exactly, since sums are integers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel
from raydt.arrays.sparse import is_one
from raydt.learners.gbdt.binned_rows import Places, no_places
from raydt.learners.gbdt.leaf_search import OPEN_LEAF, copy_sums, search, sum_up_leaf
from raydt.learners.gbdt.split_search import CUT, FEATURE, FIELDS, LEFT_G, LEFT_H
from raydt.learners.gbdt.trees import FREE, LEAF, set_values


class GrowthRoom(NamedTuple):
    """Room to grow one tree after the other."""

    #: ``slots``, ``g``, ``spare_slots``, ``spare_g``: Shape (capacity,): rows leaf after leaf, their first derivatives,
    #: and scratch.
    slots: npt.NDArray[np.int32]
    g: npt.NDArray[np.int32]
    spare_slots: npt.NDArray[np.int32]
    spare_g: npt.NDArray[np.int32]
    root: npt.NDArray[np.int64]  #: Shape (leaves, 2): node and former histogram (-1: none) of the roots to grow from.
    ends: npt.NDArray[np.int64]  #: Shape (leaves,): where the rows of each root end.
    made: npt.NDArray[np.int64]  #: Shape (leaves,): splits below each root.
    leaf: npt.NDArray[np.void]  #: Shape (2 x leaves,).
    root_of: npt.NDArray[np.int64]  #: Shape (2 x leaves,): root above each opened leaf.
    found: npt.NDArray[np.int64]  #: Shape (2 x leaves, FIELDS): its best split.
    best: npt.NDArray[np.float64]  #: Shape (1,): scratch: the gain of one.
    pool: npt.NDArray[np.int64]  #: Shape (leaves, S + 1, 2).
    used: npt.NDArray[np.bool_]  #: Shape (inner nodes,): histograms of the tree that are in use.
    places: Places  #: Where all rows add, or of no rows: then it is looked up whenever a row is added.


def growth_room(capacity: int, leaves: int, segments: int) -> GrowthRoom:
    """Room for trees of so many leaves over histograms of ``segments``."""
    slots, g, spare_slots, spare_g = (np.empty(capacity, dtype=np.int32) for _ in range(4))
    ends, made = (np.empty(leaves, dtype=np.int64) for _ in range(2))
    return GrowthRoom(
        *(slots, g, spare_slots, spare_g),
        np.empty((leaves, 2), dtype=np.int64),
        *(ends, made),
        np.empty(2 * leaves, dtype=OPEN_LEAF),
        np.empty(2 * leaves, dtype=np.int64),
        np.empty((2 * leaves, FIELDS), dtype=np.int64),
        np.empty(1),
        np.empty((leaves, segments + 1, 2), dtype=np.int64),
        np.empty(max(1, leaves - 1), dtype=np.bool_),
        no_places(segments),
    )


@inner_kernel
def _part(room: Any, begin: int, end: int, j: int, cut: int, cells: Any, candidates: Any) -> int:
    """Part the rows of a leaf by a split; returns where those on the right begin. Both sides keep their order."""
    slots, g, spare_slots, spare_g = room.slots, room.g, room.spare_slots, room.spare_g
    n_left, n_right = np.uint64(begin), np.uint64(0)
    one = np.uint64(1)
    if j < len(cells.columns):
        column = cells.columns[j]
        exact = candidates.categorical[j] != 0
        for i in range(np.uint64(begin), np.uint64(end)):
            slot, of_slot = slots[i], g[i]
            code = column[np.uint32(slot)]
            left = np.uint64(code == cut if exact else code <= cut)
            slots[n_left], g[n_left] = slot, of_slot  # no branch: the side of a row cannot be predicted
            spare_slots[n_right], spare_g[n_right] = slot, of_slot
            n_left += left
            n_right += one - left
    else:
        entry = candidates.offsets[j] + 1  # of a sparse feature: its rows without this entry go left
        for i in range(np.uint64(begin), np.uint64(end)):
            slot, of_slot = slots[i], g[i]
            left = np.uint64(not is_one(cells.values, cells.begin[slot], cells.end[slot], entry))
            slots[n_left], g[n_left] = slot, of_slot
            spare_slots[n_right], spare_g[n_right] = slot, of_slot
            n_left += left
            n_right += one - left
    for i in range(n_right):
        slots[n_left + i], g[n_left + i] = spare_slots[i], spare_g[i]
    return int(n_left)


@inner_kernel
def _keep_and_subtract(sums: Any, into: Any, less: Any) -> None:
    """Copy a histogram, and subtract another one from it."""
    for s in range(len(sums)):
        G, H = sums[s, 0], sums[s, 1]
        into[s, 0], into[s, 1] = G, H
        sums[s, 0], sums[s, 1] = G - less[s, 0], H - less[s, 1]


@inner_kernel
def grow_tree(model: Any, local: Any, t: int, row: int, roots: int, room: Any) -> int:
    """Grow one tree from ``roots`` leaves (``room.root``), set its values and the leaves of the rows below them.

    ``row`` is that of the candidates. ``room.slots`` and ``room.g`` hold the rows, root after root, and
    ``room.made`` takes the splits of each root; returns how many there are. O(rows x features x depth).
    """
    trees, leaves, squared = model.trees, room.leaf, model.loss.squared
    feature, parent, histogram, G, H = trees.feature[t], trees.parent[t], trees.histogram[t], trees.G[t], trees.H[t]
    tried_g, tried_h = trees.tried_g[t], trees.tried_h[t]
    sums, nodes = local.sums[t], trees.feature.shape[1]
    budget = nodes // 2 + 1 - trees.leaves[t]
    room.used[:] = False
    for node in range(nodes):
        if feature[node] >= 0:
            room.used[histogram[node]] = True
    begin = np.int64(0)
    for e in range(roots):
        leaf, node = leaves[e], room.root[e, 0]
        leaf.node, leaf.left, leaf.begin, leaf.end, leaf.histogram = node, -1, begin, room.ends[e], e
        leaf.G, leaf.H = G[node], H[node]
        begin = leaf.end
        tried_h[node], room.made[e], room.root_of[e] = -1, 0, e
        if budget > 0:
            if room.root[e, 1] >= 0:
                copy_sums(sums[room.root[e, 1]], room.pool[e])
            else:
                sum_up_leaf(local, row, room, e, squared)
            search(local, row, room, e)
    opened, pooled, added = roots, roots, 0
    free_node, free_histogram = 0, 0
    while added < budget:
        best, gain = -1, 0.0
        for e in range(opened):
            if leaves[e].gain > gain:
                best, gain = e, leaves[e].gain
        if best < 0:
            break
        leaf, node = leaves[best], leaves[best].node
        j, cut = room.found[best, FEATURE], room.found[best, CUT]
        middle = _part(room, leaf.begin, leaf.end, j, cut, local.cells, local.candidates)
        while room.used[free_histogram]:
            free_histogram += 1
        room.used[free_histogram] = True
        feature[node], trees.cut[t, node], trees.value[t, node] = j, cut, 0.0
        histogram[node] = free_histogram
        left_G, left_H = room.found[best, LEFT_G], room.found[best, LEFT_H]
        for side in range(2):
            while feature[free_node] != FREE:
                free_node += 1
            child = leaves[opened + side]
            child.node, child.left, child.gain = free_node, -1, 0.0
            if side == 0:
                trees.left[t, node] = free_node
                child.begin, child.end, child.G, child.H = leaf.begin, middle, left_G, left_H
            else:
                trees.right[t, node] = free_node
                child.begin, child.end, child.G, child.H = middle, leaf.end, leaf.G - left_G, leaf.H - left_H
            G[free_node], H[free_node], feature[free_node], parent[free_node] = child.G, child.H, LEAF, node
            histogram[free_node] = tried_h[free_node] = -1
            room.root_of[opened + side] = room.root_of[best]
        room.made[room.root_of[best]] += 1
        leaf.left, leaf.gain = opened, 0.0
        added += 1
        if added < budget:
            a, b = opened, opened + 1
            small, large = (a, b) if middle - leaf.begin <= leaf.end - middle else (b, a)
            leaves[large].histogram, leaves[small].histogram = leaf.histogram, pooled
            pooled += 1
            sum_up_leaf(local, row, room, small, squared)
            _keep_and_subtract(room.pool[leaf.histogram], sums[free_histogram], room.pool[leaves[small].histogram])
            search(local, row, room, a)
            search(local, row, room, b)
        else:
            copy_sums(room.pool[leaf.histogram], sums[free_histogram])
        opened += 2
    trees.leaves[t] += added
    of_row = model.leaf[t]
    for e in range(opened):
        leaf = leaves[e]
        if leaf.left >= 0:
            continue
        node = leaf.node
        if added < budget:
            tried_g[node], tried_h[node] = G[node], H[node]
        for i in range(leaf.begin, leaf.end):
            of_row[np.uint32(room.slots[i])] = node
    set_values(trees, t, model.rates)
    return added
