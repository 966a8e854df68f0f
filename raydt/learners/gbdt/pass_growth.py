"""Which splits of a tree fail after its sums have changed, how it grows again, and which rows join the batch then."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel
from raydt.learners.gbdt.derivatives import gradient
from raydt.learners.gbdt.pass_room import DEPTH, NODES, ROWS, SUBTREES, TREES_RETRAINED
from raydt.learners.gbdt.roots import collapse_tree, rows_below
from raydt.learners.gbdt.slack import stays
from raydt.learners.gbdt.staleness import units_of
from raydt.learners.gbdt.tree_growth import grow_tree
from raydt.learners.gbdt.trees import LEAF
from raydt.learners.gbdt.window import may_grow


@inner_kernel
def has_to_grow(model: Any, local: Any, t: int, row: int, nodes: int, rules: Any, room: Any) -> bool:
    """Mark the topmost touched nodes whose split fails; returns whether the tree has to grow."""
    trees = model.trees
    feature, H = trees.feature[t], trees.H[t]
    needs = False
    room.failed[:] = 0
    for q in range(nodes):
        node = np.int64(room.order[q])
        if not room.touched[node]:
            continue
        up = np.int64(trees.parent[t, node])
        if up >= 0 and room.failed[up]:  # nodes below need no verdict
            room.failed[node] = 1
        elif feature[node] >= 0:
            left = np.int64(trees.left[t, node])
            if not 0 < H[left] < H[node] or not stays(trees, t, node, local, row, room.slack, room.top, room.found):
                room.failed[node] = 1
                needs = True
    if needs or trees.leaves[t] >= trees.feature.shape[1] // 2 + 1:
        return needs
    for q in range(nodes):
        node = np.int64(room.order[q])
        if room.touched[node] and feature[node] == LEAF and may_grow(trees, t, node, rules.sigma):
            return True
    return False


@inner_kernel
def grow_again(
    model: Any, local: Any, y: Any, t: int, k: int, row: int, rules: Any, room: Any, grow_room: Any, counts: Any
) -> int:
    """Collapse the subtrees that failed and grow the tree; returns how many roots it had, and counts the work."""
    trees, loss = model.trees, model.loss
    most = trees.feature.shape[1] // 2 + 1
    roots = collapse_tree(trees, t, room.touched, room.failed, rules.sigma, most, room.mark, grow_room.root)
    if not roots:
        return 0
    for node in range(len(room.mark)):
        room.number[node] = -1
    for r in range(roots):
        room.number[grow_room.root[r, 0]] = r
    for node in range(len(room.mark)):  # of the nodes that were below a root, too
        if room.mark[node] >= 0:
            room.number[node] = room.number[room.mark[node]]
    rows = rows_below(model.leaf[t], room.number, roots, grow_room.spare_slots, grow_room.ends, grow_room.slots)
    ledger = model.ledger[t]
    for i in range(rows):
        slot = grow_room.slots[i]
        grow_room.g[i] = gradient(np.int64(ledger[slot]), y[slot], k, loss)
        leaf = model.leaf[t, slot]
        room.before[slot], room.moved[slot] = room.value[leaf], trees.moved[t, leaf]
    grow_tree(model, local, t, row, roots, grow_room)
    for node in range(len(room.mark)):
        if room.number[node] >= 0:
            room.slack.bar[t, node] = np.inf
    begin, again = np.int64(0), False
    for r in range(roots):
        collapsed, made = grow_room.root[r, 1] >= 0, grow_room.made[r]
        if collapsed or made:
            again = True
            counts[SUBTREES] += 1
            counts[ROWS] += grow_room.ends[r] - begin
            counts[NODES] += 2 * made + collapsed
            depth, node = np.int64(0), np.int64(trees.parent[t, grow_room.root[r, 0]])
            while node >= 0:
                depth, node = depth + 1, np.int64(trees.parent[t, node])
            counts[DEPTH] = depth if counts[DEPTH] < 0 else min(counts[DEPTH], depth)
        begin = grow_room.ends[r]
    counts[TREES_RETRAINED] += again
    return roots


@inner_kernel
def join_below(batch: Any, joined: int, roots: int, grow_room: Any) -> int:
    """Let the rows of retrained subtrees join the batch; returns how many rows it has then."""
    begin = np.int64(0)
    for r in range(roots):
        end = grow_room.ends[r]
        if grow_room.root[r, 1] >= 0 or grow_room.made[r]:
            for i in range(begin, end):
                joined = _join(batch, joined, grow_room.slots[i])
        begin = end
    return joined


@inner_kernel
def _join(batch: Any, joined: int, slot: int) -> int:
    """Let a row join the batch, if it is no member; returns how many rows it has then."""
    batch.slots[joined] = slot
    joined += not batch.member[slot]
    batch.member[slot] = True
    return joined


@inner_kernel
def follow(model: Any, batch: Any, t: int, joined: int, roots: int, stale: Any, room: Any, grow_room: Any) -> int:
    """Let the rows join the batch whose leaf's value has changed by more than a step; returns how many it has then.

    Other changes are added to ``trees.moved`` of the leaf.
    """
    trees = model.trees
    feature, value, H, moved, leaf = trees.feature[t], trees.value[t], trees.H[t], trees.moved[t], model.leaf[t]
    far = False
    for node in range(len(feature)):
        room.failed[node] = 0
        if roots and room.number[node] >= 0:
            moved[node] = 0
        elif feature[node] == LEAF and room.touched[node]:
            units = units_of(value[node] - room.value[node], stale)
            if H[node] > 0 and units > stale.step:
                room.failed[node], far = 1, True
            moved[node] = 0 if H[node] <= 0 or units > stale.step else moved[node] + np.uint16(units)
    for i in range(grow_room.ends[roots - 1] if roots else 0):
        slot = grow_room.slots[i]
        node = np.int64(leaf[slot])
        units = units_of(value[node] - room.before[slot], stale)
        if units > stale.step:
            joined = _join(batch, joined, slot)
        else:
            moved[node] = max(moved[node], np.uint16(room.moved[slot] + np.uint16(units)))
    if far:
        for slot in range(len(leaf)):
            if leaf[slot] != model.absent and room.failed[leaf[slot]]:
                joined = _join(batch, joined, slot)
    return joined
