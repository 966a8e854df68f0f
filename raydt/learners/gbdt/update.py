"""How a tree of an update in place changes: which of its splits fail, how it grows again, which rows join the batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel
from raydt.learners.gbdt.derivatives import gradient
from raydt.learners.gbdt.split_search import (
    FEATURE,
    FIELDS,
    RANKS,
    REACHES,
    best_of_owners,
    judged,
    look,
    search,
    surely_stays,
)
from raydt.learners.gbdt.staleness import move
from raydt.learners.gbdt.trees import FREE, LEAF, next_in_preorder
from raydt.learners.gbdt.workspace import DEPTH, NODES, ROWS, SUBTREES, TREES_RETRAINED

#: Leaves of a tree up to which its rows are compared with each.
_FEW = 4


@inner_kernel
def _has_rows(trees: Any, t: int, node: int) -> bool:
    """Return True if a split has rows on both sides."""
    left_H = trees.H[t, np.int64(trees.left[t, node])]
    return bool(0 < left_H < trees.H[t, node])


@inner_kernel
def look_at_splits(model: Any, local: Any, t: int, row: int, nodes: int, rules: Any, room: Any) -> int:
    """Count, among the features of a shard, the rivals of the touched splits that may fail, and find the best of these.

    Both go to ``room.ranks``. Lists the nodes in ``room.judged`` and returns how many there are: the same at all
    shards. The best split of a node whose split fails is a rival of it, so who has none need not search.
    """
    trees, n = model.trees, 0
    for q in range(nodes):
        node = np.int64(room.order[q])
        if not room.touched[node] or trees.feature[t, node] < 0:
            continue
        rank, stays = room.ranks[node], False
        rank[REACHES], rank[RANKS + FEATURE] = 1, -1
        if _has_rows(trees, t, node):
            stays = surely_stays(trees, t, node, local.units, room.slack)
            if not stays:
                look(trees, t, node, local, row, rules.tolerance, rank)
        if not stays:
            if rank[REACHES]:
                sums = local.sums[t, trees.histogram[t, node]]
                search(sums, trees.G[t, node], trees.H[t, node], local, row, rank[RANKS:])
            room.judged[n] = node
            n += 1
    return n


@inner_kernel
def add_ranks(trees: Any, t: int, answers: Any, units: Any, room: Any) -> None:
    """Put together what all owners have found at some nodes, int64, shape (owners, nodes, RANKS + FIELDS)."""
    for i in range(answers.shape[1]):
        node = np.int64(room.judged[i])
        rank = room.ranks[node]
        rank[:] = 0
        for owner in range(len(answers)):
            for r in range(RANKS):
                rank[r] += answers[owner, i, r]
        best_of_owners(answers[:, i, RANKS:], trees.G[t, node], trees.H[t, node], units, rank[RANKS:])


@inner_kernel
def has_to_grow(model: Any, local: Any, t: int, row: int, nodes: int, rules: Any, room: Any, looks: bool) -> bool:
    """Mark the topmost touched nodes whose split fails; return whether the tree has to grow.

    ``looks``: the candidates that are to be counted lie here; else the counts of all shards are in ``room.ranks``.
    """
    trees = model.trees
    feature = trees.feature[t]
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
            stays = _has_rows(trees, t, node)
            if stays and not surely_stays(trees, t, node, local.units, room.slack):
                if looks:
                    look(trees, t, node, local, row, rules.tolerance, room.ranks[node])
                stays = judged(trees, t, node, local.units, room.slack, rules.tolerance, room.ranks[node])
            if not stays:
                room.failed[node] = 1
                needs = True
    if needs or trees.leaves[t] >= trees.feature.shape[1] // 2 + 1:
        return needs
    for q in range(nodes):
        node = np.int64(room.order[q])
        if room.touched[node] and feature[node] == LEAF and _may_grow(trees, t, node, rules.sigma):
            return True
    return False


@inner_kernel
def _may_grow(trees: Any, t: int, node: int, sigma: float) -> bool:
    """Return True if the sums of a leaf have moved by more than sigma of what they were when it failed."""
    H = trees.tried_h[t, node]
    if H < 0:
        return True
    G = trees.tried_g[t, node]
    return bool(abs(trees.G[t, node] - G) > sigma * abs(G) or abs(trees.H[t, node] - H) > sigma * H)


@inner_kernel
def _collapse(trees: Any, t: int, touched: Any, failed: Any, sigma: float, most: int, mark: Any, roots: Any) -> int:
    """Make leaves of the topmost failed nodes of a tree and list the roots it grows from; returns how many.

    ``touched`` and ``failed`` are by node, and so is ``mark``, which takes the root above each node (-1: none).
    ``roots`` takes node and histogram of each.
    """
    mark[:] = -1
    node = np.int64(0)
    while node >= 0:  # in preorder
        up = np.int64(trees.parent[t, node])
        if up >= 0 and mark[up] >= 0:
            mark[node] = mark[up]
        elif trees.feature[t, node] >= 0 and failed[node]:
            mark[node] = node
        node = next_in_preorder(trees, t, node)
    for node in range(len(mark)):
        if mark[node] < 0:
            continue
        if trees.feature[t, node] == LEAF:
            trees.leaves[t] -= 1
        if mark[node] == node:
            trees.feature[t, node] = LEAF
            trees.tried_h[t, node] = -1
            trees.leaves[t] += 1
        else:
            trees.feature[t, node] = FREE
    n = 0
    node = np.int64(0)
    while node >= 0:
        if trees.feature[t, node] == LEAF:
            collapsed = mark[node] == node
            if collapsed or (trees.leaves[t] < most and touched[node] and _may_grow(trees, t, node, sigma)):
                mark[node] = node
                roots[n, 0], roots[n, 1] = node, trees.histogram[t, node]
                trees.histogram[t, node] = -1
                n += 1
        node = next_in_preorder(trees, t, node)
    return n


@inner_kernel
def _rows_below(leaf: Any, begin: int, end: int, roots: int, room: Any, grow_room: Any) -> int:
    """List the rows below the roots in slots ``begin`` to before ``end``, root after root; returns how many there are.

    ``room.number`` has the root above each leaf, -1 for none. ``grow_room.slots`` takes the rows, ``ends`` where those
    of each root end.
    """
    root, below, ends, slots = room.number, grow_room.spare_slots, grow_room.ends, grow_room.slots
    n = 0
    for slot in range(begin, end):  # no branch: whether a row is below a root cannot be predicted
        below[n] = slot
        n += root[leaf[slot]] >= 0
    ends[:] = 0
    for i in range(n):
        ends[root[leaf[below[i]]]] += 1
    total = np.int64(0)
    for r in range(roots):
        total, ends[r] = total + ends[r], total
    for i in range(n):
        r = root[leaf[below[i]]]
        slots[ends[r]] = below[i]
        ends[r] += 1
    return n


@inner_kernel
def collapse(model: Any, y: Any, t: int, k: int, rules: Any, room: Any, grow_room: Any) -> int:
    """Collapse the subtrees that failed; returns how many roots the tree is to grow from, whose rows are listed."""
    trees, loss = model.trees, model.loss
    most = trees.feature.shape[1] // 2 + 1
    roots = _collapse(trees, t, room.touched, room.failed, rules.sigma, most, room.mark, grow_room.root)
    if not roots:
        return 0
    for node in range(len(room.mark)):
        room.number[node] = -1
    for r in range(roots):
        node = grow_room.root[r, 0]
        room.number[node] = r
        for field in range(FIELDS):  # with other shards: found with the rank
            grow_room.found[r, field] = room.ranks[node, RANKS + field]
    for node in range(len(room.mark)):  # of the nodes that were below a root, too
        if room.mark[node] >= 0:
            room.number[node] = room.number[room.mark[node]]
    rows = _rows_below(model.leaf[t], rules.begin, rules.end, roots, room, grow_room)
    ledger = model.ledger[t]
    for i in range(rows):
        slot = grow_room.slots[i]
        grow_room.g[i] = gradient(np.int64(ledger[slot]), y[slot], k, loss)
        leaf = model.leaf[t, slot]
        room.before[slot] = room.value[leaf]
        room.above[slot], room.below[slot] = trees.above[t, leaf], trees.below[t, leaf]
    return int(roots)


@inner_kernel
def count_growth(model: Any, t: int, roots: int, room: Any, grow_room: Any, counts: Any) -> None:
    """Count the work of a tree that has grown, and forget what was noted of its nodes."""
    trees = model.trees
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
def _charge_leaf(leaf: Any, node: Any, drift: Any, batch: Any, joined: int, units: int, rules: Any) -> int:
    """Charge all rows of a leaf, as :func:`_charge`."""
    most, begin, end = rules.most_drift, np.uint64(rules.begin), np.uint64(rules.end)
    member, fits = batch.member, np.uint16(max(0, most - units))
    some = units > most
    if not some:
        for i in range(begin, end):  # no branch: many rows are looked at together
            some |= (leaf[i] == node) & (not member[i]) & (drift[i] > fits)
    if some:
        for slot in range(begin, end):
            if leaf[slot] == node:
                joined = _charge(drift, batch, joined, slot, units, most)
    else:
        more = np.uint16(units)
        for i in range(begin, end):
            drift[i] += more if (leaf[i] == node) & (not member[i]) else np.uint16(0)
    return joined


@inner_kernel
def _charge_leaves(leaf: Any, charge: Any, drift: Any, batch: Any, joined: int, rules: Any) -> int:
    """Charge every row: ``charge`` has the units of each leaf."""
    most = rules.most_drift
    for slot in range(np.uint64(rules.begin), np.uint64(rules.end)):
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
        return _charge_leaves(leaf, room.charge, drift, batch, joined, rules)
    for node in range(len(feature) if far and outside else 0):
        if room.charge[node]:
            joined = _charge_leaf(leaf, node, drift, batch, joined, np.int64(room.charge[node]), rules)
    return joined
