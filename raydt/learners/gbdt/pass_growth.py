"""Which splits of a tree fail after its sums have changed, how it grows again, and which rows join the batch then."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel
from raydt.learners.gbdt.derivative_tolerance import move
from raydt.learners.gbdt.derivatives import gradient
from raydt.learners.gbdt.rank_cache import stays
from raydt.learners.gbdt.regrowth import collapse_tree, rows_below
from raydt.learners.gbdt.tree_growth import grow_tree
from raydt.learners.gbdt.trees import LEAF
from raydt.learners.gbdt.window import may_grow
from raydt.learners.gbdt.workspace import DEPTH, NODES, ROWS, SUBTREES, TREES_RETRAINED

#: Leaves of a tree up to which its rows are compared with each.
_FEW = 4


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
            empty = not 0 < H[left] < H[node]
            if empty or not stays(trees, t, node, local, row, room.slack, rules.tolerance, room.beyond):
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
        room.before[slot] = room.value[leaf]
        room.above[slot], room.below[slot] = trees.above[t, leaf], trees.below[t, leaf]
    grow_tree(model, local, t, row, roots, grow_room)
    for node in range(len(room.mark)):
        if room.number[node] >= 0:
            room.slack.level[t, node] = np.inf
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
def _charge(drift: Any, batch: Any, joined: int, slot: int, units: int, most: int) -> int:
    """Add how far the scores of a row may have moved to its drift or, if it grew too large, let the row join the batch.

    Nothing is added for members. Returns how many rows the batch has then.
    """
    if batch.member[slot]:
        return joined
    if np.int64(drift[slot]) + units > most:
        return _join(batch, joined, slot)
    drift[slot] += units
    return joined


@inner_kernel
def _charge_leaf(leaf: Any, node: Any, drift: Any, batch: Any, joined: int, units: int, most: int) -> int:
    """The same for all rows of a leaf."""
    member, fits = batch.member, np.uint16(max(0, most - units))
    some = units > most
    if not some:
        for i in range(len(leaf)):  # no branch: many rows are looked at together
            some |= (leaf[i] == node) & (not member[i]) & (drift[i] > fits)
    if some:
        for slot in range(len(leaf)):
            if leaf[slot] == node:
                joined = _charge(drift, batch, joined, slot, units, most)
    else:
        more = np.uint16(units)
        for i in range(len(leaf)):
            drift[i] += more if (leaf[i] == node) & (not member[i]) else np.uint16(0)
    return joined


@inner_kernel
def _charge_leaves(leaf: Any, charge: Any, drift: Any, batch: Any, joined: int, most: int) -> int:
    """The same for all rows, whatever leaf they are in; ``charge`` has the units of each leaf."""
    for slot in range(len(leaf)):
        units = np.int64(charge[leaf[slot]])
        units = 0 if batch.member[slot] else units
        moved = np.int64(drift[slot]) + units
        if (units > 0) & (moved > most):
            joined = _join(batch, joined, slot)
        else:
            drift[slot] = moved
    return joined


@inner_kernel
def follow(model: Any, batch: Any, t: int, joined: int, roots: int, rules: Any, room: Any, grow_room: Any) -> int:
    """Note how far the scores of rows move by a tree; those that move too far join the batch.

    Returns how many rows it has then. Moves of a step or less are noted by leaf, others by row.
    """
    trees, stale, most, drift = model.trees, rules.stale, rules.most_drift, model.drift
    feature, value, H, leaf = trees.feature[t], trees.value[t], trees.H[t], model.leaf[t]
    above, below, far = trees.above[t], trees.below[t], 0
    outside = joined < rules.rows  # there are rows whose drift counts
    for i in range(grow_room.ends[roots - 1] if roots and outside else 0):
        slot = grow_room.slots[i]
        change = value[leaf[slot]] - room.before[slot]
        a, b = move(np.int64(room.above[slot]), np.int64(room.below[slot]), change, stale)
        joined = _charge(drift, batch, joined, slot, a + b, most)
    for node in range(len(feature)):
        room.charge[node] = 0
        if roots and room.number[node] >= 0:
            above[node], below[node] = 0, 0
        elif feature[node] == LEAF and room.touched[node]:
            had, a, b = np.int64(above[node]) + np.int64(below[node]), 0, 0
            if H[node] > 0:
                a, b = move(np.int64(above[node]), np.int64(below[node]), value[node] - room.value[node], stale)
            if a + b > had + stale.step:
                room.charge[node] = a + b
                far += 1
                a, b = 0, 0
            above[node], below[node] = a, b
    if far > _FEW and outside:
        return _charge_leaves(leaf, room.charge, drift, batch, joined, most)
    for node in range(len(feature) if far and outside else 0):
        if room.charge[node]:
            joined = _charge_leaf(leaf, node, drift, batch, joined, np.int64(room.charge[node]), most)
    return joined
