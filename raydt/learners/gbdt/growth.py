"""Leaf-wise growth of one tree: in one call where one shard has all rows, or in rounds with other shards.

The leaf whose best split gains most is split next (the one opened first among equals), until the tree may gain no more
leaves or no open leaf can be split.

With other shards, each shard has some rows with all features and parts them, and *owns* a range of features: it has the
histograms of all rows over their segments. In a round each shard opens the children of some leaves and sums up the
smaller child of each over its own rows; the owners add these parts, subtract them from the parents', and answer with
their best splits. All shards make the same splits on the same answers. Only the owners know the gains of the children
of a leaf, so leaves that may be split later are opened *ahead*, in the same round. They are found by growing as if no
unknown child could be split; so a tree takes about as many rounds as it is deep. Of a split that failed the owners have
the histogram, and have told its best split with the rank: so a subtree that grows again begins with its children.

Invariants: the histogram of an open leaf lies in the pool. That of the smaller child is summed up from its rows, and
the parent's, less that one, becomes the larger child's: exactly, since sums are integers. So does that of a leaf that
grows again, where its sibling has one. What is opened ahead changes
no result: only :func:`_put_split` makes splits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.blocks import is_one
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.gbdt.candidates import add_cells, add_places
from raydt.learners.gbdt.ensemble import FREE, LEAF, set_values
from raydt.learners.gbdt.histograms import add_packed, beside, make_from_others, subtract
from raydt.learners.gbdt.split_search import (
    AHEAD,
    BUDGET,
    CUT,
    FEATURE,
    HISTOGRAM,
    LEFT_G,
    LEFT_H,
    MADE,
    MOST_AHEAD,
    NODE,
    OPENED,
    ORDER,
    ROOTS,
    SEARCHED,
    best_of_owners,
    gain_of,
    search,
)

# -------------------------------------------------------------------- one leaf


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
def _sum_up(local: Any, row: int, room: Any, e: int, sums: Any, squared: bool) -> None:
    """Make the histogram of an open leaf from its rows."""
    a, b = room.leaf[e].begin, room.leaf[e].end
    sums[:] = 0
    if len(room.places.ends):
        add_places(room.slots[a:b], room.g[a:b], local.weight, squared, room.places, sums)
    else:
        segment = local.candidates.segment[row]
        add_cells(room.slots[a:b], room.g[a:b], local.weight, squared, local.cells, segment, sums)


@inner_kernel
def _copy(sums: Any, into: Any, begin: int, end: int) -> None:
    """Copy some segments of a histogram."""
    for s in range(begin, end):
        into[s, 0] = sums[s, 0]
        into[s, 1] = sums[s, 1]


@inner_kernel
def _search(local: Any, row: int, room: Any, e: int) -> None:
    """Find the best split of an open leaf among the features that this shard owns."""
    leaf = room.leaf[e]
    leaf.gain = search(room.pool[leaf.histogram], leaf.G, leaf.H, local, row, room.found[e])


# -------------------------------------------------------------------- the tree


@inner_kernel
def _open_roots(model: Any, t: int, room: Any, roots: int) -> None:
    """Make open leaves of the roots of a tree (``room.root``), and begin to grow it."""
    trees, register = model.trees, room.register
    feature, nodes = trees.feature[t], trees.feature.shape[1]
    budget = nodes // 2 + 1 - trees.leaves[t]
    register[:] = 0
    register[ROOTS] = roots
    register[OPENED], register[BUDGET], register[AHEAD], register[ORDER] = roots, budget, MOST_AHEAD * budget, roots
    room.used[:] = False
    for node in range(nodes):
        if feature[node] >= 0:
            room.used[trees.histogram[t, node]] = True
    begin = np.int64(0)
    for e in range(roots):
        leaf, node = room.leaf[e], room.root[e, 0]
        leaf.node, leaf.left, leaf.order, leaf.begin, leaf.end, leaf.histogram = node, -1, e, begin, room.ends[e], e
        leaf.G, leaf.H, leaf.gain = trees.G[t, node], trees.H[t, node], 0.0
        begin = leaf.end
        trees.tried_h[t, node], room.made[e], room.root_of[e] = -1, 0, e


@inner_kernel
def _best_leaf(room: Any) -> int:
    """Return the leaf of the tree to split next; -1: none."""
    best, gain, order = np.int64(-1), 0.0, np.int64(0)
    for e in range(room.register[OPENED]):
        leaf = room.leaf[e]
        if leaf.order >= 0 and (leaf.gain > gain or (leaf.gain == gain and leaf.order < order)):
            best, gain, order = np.int64(e), leaf.gain, leaf.order
    return int(best)


@inner_kernel
def _open_children(local: Any, room: Any, e: int) -> int:
    """Part the rows of an open leaf by its best split, and open its children; returns the left one."""
    leaf, found, a = room.leaf[e], room.found[e], room.register[OPENED]
    middle = _part(room, leaf.begin, leaf.end, found[FEATURE], found[CUT], local.cells, local.candidates)
    left, right = room.leaf[a], room.leaf[a + 1]
    left.begin, left.end, left.G, left.H = leaf.begin, middle, found[LEFT_G], found[LEFT_H]
    right.begin, right.end, right.G, right.H = middle, leaf.end, leaf.G - found[LEFT_G], leaf.H - found[LEFT_H]
    for child in range(a, a + 2):
        one = room.leaf[child]
        one.node, one.left, one.order, one.gain, one.histogram = -1, -1, -1, 0.0, child
        room.root_of[child] = room.root_of[e]
    leaf.left = a
    room.register[OPENED] += 2
    return int(a)


@inner_kernel
def _put_split(trees: Any, t: int, room: Any, e: int) -> int:
    """Make the split of an open leaf, whose children are open, in the tree; returns the number of its histogram."""
    register, leaf, found = room.register, room.leaf[e], room.found[e]
    feature, node = trees.feature[t], leaf.node
    while room.used[register[HISTOGRAM]]:
        register[HISTOGRAM] += 1
    h = register[HISTOGRAM]
    room.used[h] = True
    feature[node], trees.cut[t, node], trees.value[t, node] = found[FEATURE], found[CUT], 0.0
    trees.histogram[t, node] = h
    for side in range(2):
        while feature[register[NODE]] != FREE:
            register[NODE] += 1
        free, child = register[NODE], room.leaf[leaf.left + side]
        child.node, child.order = free, register[ORDER]
        register[ORDER] += 1
        if side == 0:
            trees.left[t, node] = free
        else:
            trees.right[t, node] = free
        trees.G[t, free], trees.H[t, free], feature[free], trees.parent[t, free] = child.G, child.H, LEAF, node
        trees.histogram[t, free] = trees.tried_h[t, free] = -1
    room.made[room.root_of[e]] += 1
    leaf.order, leaf.gain = -1, 0.0
    register[MADE] += 1
    return int(h)


@inner_kernel
def _end_tree(model: Any, t: int, room: Any) -> None:
    """Note the leaves of the rows, which leaves could not be split, and the values of the leaves."""
    trees, of_row, made = model.trees, model.leaf[t], room.register[MADE]
    trees.leaves[t] += made
    for e in range(room.register[OPENED]):
        leaf = room.leaf[e]
        if leaf.order < 0:
            continue
        node = leaf.node
        if made < room.register[BUDGET]:
            trees.tried_g[t, node], trees.tried_h[t, node] = trees.G[t, node], trees.H[t, node]
        for i in range(leaf.begin, leaf.end):
            of_row[np.uint32(room.slots[i])] = node
    set_values(trees, t, model.rates)


@inner_kernel
def grow_tree(model: Any, local: Any, t: int, row: int, roots: int, room: Any) -> None:
    """Grow one tree from ``roots`` leaves (``room.root``), set its values and the leaves of the rows below them.

    ``row`` is that of the candidates. ``room.slots`` and ``room.g`` hold the rows, root after root, and ``room.made``
    takes the splits of each root. O(rows x features x depth).
    """
    trees, squared, register, pool = model.trees, model.loss.squared, room.register, room.pool
    sums, segments = local.sums[t], local.sums.shape[2]
    _open_roots(model, t, room, roots)
    if register[BUDGET] > 0:
        for e in range(roots):
            if room.root[e, 1] >= 0:
                _copy(sums[room.root[e, 1]], pool[e], 0, segments)
            elif beside(trees, t, room, e)[0] < 0:
                _sum_up(local, row, room, e, pool[e], squared)
        for e in range(roots):
            if room.root[e, 1] < 0 and beside(trees, t, room, e)[0] >= 0:
                make_from_others(trees, local, t, room, e, 0, segments)
            if room.leaf[e].end - room.leaf[e].begin > 1:
                _search(local, row, room, e)
    pooled = roots
    while register[MADE] < register[BUDGET]:
        best = _best_leaf(room)
        if best < 0:
            break
        leaf = room.leaf[best]
        a = _open_children(local, room, best)
        h = _put_split(trees, t, room, best)
        _copy(pool[leaf.histogram], sums[h], 0, segments)
        if register[MADE] < register[BUDGET]:
            left, right = room.leaf[a], room.leaf[a + 1]
            left_rows, right_rows = left.end - left.begin, right.end - right.begin
            small, large = (a, a + 1) if left_rows <= right_rows else (a + 1, a)
            room.leaf[large].histogram, room.leaf[small].histogram = leaf.histogram, pooled
            _sum_up(local, row, room, small, pool[pooled], squared)
            subtract(sums[h], pool[pooled], pool[leaf.histogram], 0, segments)
            pooled += 1
            for child in range(a, a + 2):
                if room.leaf[child].end - room.leaf[child].begin > 1:
                    _search(local, row, room, child)
    _end_tree(model, t, room)


# -------------------------------------------------------------------- with other shards


@kernel
def begin_growth(model: Any, local: Any, t: int, row: int, roots: int, room: Any) -> int:
    """Begin to grow a tree from ``roots``; those with a histogram have been searched (``room.found``).

    Returns how many leaves were summed up, as :func:`next_leaves`: of the other roots those that have to be and, until
    all are searched, children of the first ones.
    """
    _open_roots(model, t, room, roots)
    n, squared, unknown = 0, model.loss.squared, False
    for e in range(roots):
        leaf, found, h = room.leaf[e], room.found[e], room.root[e, 1]
        unknown |= h < 0
        if h < 0 and beside(model.trees, t, room, e)[0] < 0:
            room.step[n], room.small[n] = -1, e
            _sum_up(local, row, room, e, room.parts[n], squared)
            n += 1
        elif h >= 0:
            _copy(local.sums[t, h], room.pool[e], local.begin, local.end)
            if found[FEATURE] >= 0:
                leaf.gain = gain_of(found[LEFT_G], found[LEFT_H], leaf.G, leaf.H, local.units)
    if unknown:
        return int(_open_more(local, row, room, n, 0, squared))
    room.register[SEARCHED] = roots
    return int(_split(model, local, t, row, room))


@kernel
def search_opened(model: Any, local: Any, t: int, row: int, room: Any, n: int, head: Any, packed: Any) -> None:
    """Put together all shards' parts of ``n`` leaves, and search these and their larger siblings.

    ``head`` takes the sums of the rows of all shards, if it is not empty: then the tree is new.
    """
    for i in range(n):
        room.pool[room.small[i], local.begin : local.end] = 0
    add_packed(packed, head, room.pool, local.begin, local.end)
    if len(head):
        root = room.leaf[0]
        root.G, root.H = head[0], head[1]
        model.trees.G[t, 0], model.trees.H[t, 0] = head[0], head[1]
    for i in range(n):
        e, small = room.step[i], room.small[i]
        if e >= 0:
            large = 2 * room.leaf[e].left + 1 - small
            subtract(room.pool[e], room.pool[small], room.pool[large], local.begin, local.end)
            _search(local, row, room, large)
        _search(local, row, room, small)
    for e in range(room.register[ROOTS] if room.register[SEARCHED] == 0 else 0):
        if room.root[e, 1] < 0 and beside(model.trees, t, room, e)[0] >= 0:
            make_from_others(model.trees, local, t, room, e, local.begin, local.end)
            _search(local, row, room, e)


@inner_kernel
def _open_more(local: Any, row: int, room: Any, n: int, needed: int, squared: bool) -> int:
    """Open the children of ``needed`` leaves and of others ahead, and sum up the smaller one of each.

    ``n`` leaves are summed up already. Returns how many are then.
    """
    register, gain, turn = room.register, room.ahead, room.turn
    opened, order, begin = register[OPENED], register[ORDER], n
    for e in range(opened):
        leaf = room.leaf[e]
        gain[e], turn[e] = leaf.gain if leaf.order >= 0 else 0.0, leaf.order
    for _ in range(register[BUDGET] - register[MADE] - 1):  # list them, the one needed first
        best = -1
        for e in range(opened):
            if gain[e] > 0.0 and (best < 0 or gain[e] > gain[best] or (gain[e] == gain[best] and turn[e] < turn[best])):
                best = e
        if best < 0:
            break
        gain[best], a = 0.0, room.leaf[best].left
        if a < 0:
            room.step[n] = best
            n += 1
        else:
            for child in range(a, a + 2):
                gain[child], turn[child] = room.leaf[child].gain, order
                order += 1
    n = min(n, begin + needed + max(np.int64(0), register[AHEAD]))
    register[AHEAD] -= n - begin
    for i in range(begin, n):
        e = room.step[i]
        a = _open_children(local, room, e)
        small = a if 2 * room.leaf[a].H <= room.leaf[e].H else a + 1  # the same at all shards, unlike their rows
        room.small[i] = small
        _sum_up(local, row, room, small, room.parts[i], squared)
    return int(n)


@inner_kernel
def _split(model: Any, local: Any, t: int, row: int, room: Any) -> int:
    """Make all splits that are known; return as :func:`next_leaves`."""
    trees, register = model.trees, room.register
    while True:
        best = _best_leaf(room) if register[MADE] < register[BUDGET] else -1
        if best < 0:
            _end_tree(model, t, room)
            return -1
        if room.leaf[best].left >= 0:
            register[AHEAD] += 1
        elif register[MADE] + 1 < register[BUDGET]:
            return int(_open_more(local, row, room, 0, 1, model.loss.squared))
        else:  # the children of the last split are searched by nobody
            _open_children(local, room, best)
        h = _put_split(trees, t, room, best)
        _copy(room.pool[best], local.sums[t, h], local.begin, local.end)


@kernel
def next_leaves(model: Any, local: Any, t: int, row: int, room: Any, answers: Any) -> int:
    """Make all splits that are known from the answers of the owners, int64, shape (owners, leaves, FIELDS).

    Then open the children of some leaves and sum up the smaller one of each over the own rows, and return how many were
    summed up (``room.small``); or -1, if the tree is grown.
    """
    register = room.register
    for i in range(register[OPENED] - register[SEARCHED]):
        e = register[SEARCHED] + i
        leaf = room.leaf[e]
        leaf.gain = best_of_owners(answers[:, i], leaf.G, leaf.H, local.units, room.found[e])
    register[SEARCHED] = register[OPENED]
    return int(_split(model, local, t, row, room))
