"""Changes of one tree by the rows of a batch (leaves, ledger entries, sums, histograms), and the growth of a tree.

With other shards, each changes its own rows and sums up by how much the leaves change and, at the nodes above these,
the histograms. All shards add the changes of all leaves, and the owners of features those of their histograms; then
they move the changes up the tree.

Invariant: a histogram is the sum over the rows below its node, whichever way it was changed: sums are integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.blocks import is_one
from raydt.arrays.elementary import Ints, add_pair
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.binning import is_left
from raydt.examples.updates import UNIT
from raydt.learners.gbdt.candidates import add_cells, add_places, add_row, row_of, segments_of
from raydt.learners.gbdt.derivatives import gradient, weighted
from raydt.learners.gbdt.ensemble import FREE, LEAF, LEDGER_PART_BITS, next_in_preorder, set_values, value_of
from raydt.learners.gbdt.split_search import (
    AHEAD,
    ALONE,
    BUDGET,
    CUT,
    DELETED,
    FEATURE,
    HISTOGRAM,
    INSERTED,
    LEFT_G,
    LEFT_H,
    MADE,
    NODE,
    OPENED,
    ORDER,
    ROOTS,
    SEARCHED,
    best_of_owners,
    gain_of,
    search,
)
from raydt.trees.records import mass_of


@inner_kernel
def _route(model: Any, local: Any, t: int, slot: int) -> int:
    """Return the leaf of a row in one tree, by its cells. O(depth)."""
    feature, cut, left, right = model.trees.feature[t], model.trees.cut[t], model.trees.left[t], model.trees.right[t]
    categorical, offsets = local.candidates.categorical, local.candidates.offsets
    node = np.int64(0)
    while feature[node] >= 0:
        goes_left = is_left(local.cells, slot, np.int64(feature[node]), np.int64(cut[node]), categorical, offsets)
        node = np.int64(left[node] if goes_left else right[node])
    return int(node)


@inner_kernel
def _note(room: Any, n: int, slot: int, node: int, G: int, H: int) -> None:
    """Note one row that changes the tree."""
    room.slots[n], room.leaf[n], room.g[n], room.h[n] = slot, node, G, H
    room.G[node] += G
    room.H[node] += H
    room.absolute[node, 0] += abs(G)
    room.absolute[node, 1] += abs(H)
    room.rows[node] += 1


@inner_kernel
def change_rows(model: Any, local: Any, batch: Any, t: int, k: int, role: int, own: int, n: int, room: Any) -> int:
    """Change ledger and leaves of the rows of a batch in one tree; returns how many rows change its sums."""
    loss, leaf, ledger, to_hash = model.loss, model.leaf[t], model.ledger[t], model.changed[:, t >> LEDGER_PART_BITS]
    slots, y, entry = batch.slots, batch.y, batch.entry[k]
    changed = 0
    if role == DELETED:
        for i in range(own):
            slot = slots[i]
            g = gradient(np.int64(ledger[slot]), y[slot], k, loss)
            G, H = weighted(g, mass_of(local.weight, slot, UNIT), loss.squared)
            _note(room, changed, slot, np.int64(leaf[slot]), -G, -H)
            changed += 1
            leaf[slot] = model.absent
    elif role == INSERTED:
        for i in range(own):
            slot = slots[i]
            g = gradient(np.int64(entry[i]), y[slot], k, loss)
            G, H = weighted(g, mass_of(local.weight, slot, UNIT), loss.squared)
            node = _route(model, local, t, np.int64(slot))
            _note(room, changed, slot, node, G, H)
            changed += 1
            leaf[slot], ledger[slot], to_hash[slot] = node, entry[i], True
    if not batch.differs[k]:
        return changed
    for i in range(np.uint64(own), np.uint64(n)):  # unsigned: no test for an index from the end
        slot = np.uint32(slots[i])
        before, now = np.int64(ledger[slot]), np.int64(entry[i])
        if before == now:
            continue
        old, new = gradient(before, y[slot], k, loss), gradient(now, y[slot], k, loss)
        weight = mass_of(local.weight, slot, UNIT)
        old_G, old_H = weighted(old, weight, loss.squared)
        new_G, new_H = weighted(new, weight, loss.squared)
        _note(room, changed, slot, np.int64(leaf[slot]), new_G - old_G, new_H - old_H)
        changed += 1
        ledger[slot], to_hash[slot] = now, True
    return changed


@inner_kernel
def list_nodes(trees: Any, t: int, room: Any) -> int:
    """List the nodes in preorder and their depths; return how many there are."""
    n = 0
    node = np.int64(0)
    room.depth[0] = 0
    while node >= 0:
        if n:
            room.depth[node] = room.depth[trees.parent[t, node]] + 1
        room.order[n] = node
        n += 1
        node = np.int64(next_in_preorder(trees, t, node))
    return n


@inner_kernel
def change_nodes(model: Any, t: int, nodes: int, room: Any) -> tuple[int, int]:
    """Change the sums of all nodes above changed leaves (``room.G``, ``H``, ``rows``), and the values of the leaves.

    Marks them in ``room.touched``. Returns how many inner nodes these are, and the sum of the depths of the rows.
    """
    trees = model.trees
    feature, parent, G, H = trees.feature[t], trees.parent[t], trees.G[t], trees.H[t]
    path, inner = np.int64(0), np.int64(0)
    room.touched[:] = 0
    for q in range(nodes - 1, -1, -1):
        node = np.int64(room.order[q])
        if feature[node] == LEAF:
            path += room.rows[node] * room.depth[node]
        if room.rows[node]:
            room.touched[node] = 1
            G[node] += room.G[node]
            H[node] += room.H[node]
            absolute = room.absolute[node]
            room.slack.G[t, node] += absolute[0]
            room.slack.H[t, node] += absolute[1]
            if feature[node] == LEAF:
                trees.value[t, node] = value_of(G[node], H[node], model.rates)
            else:
                inner += 1
            up = np.int64(parent[node])
            if up >= 0:
                room.G[up] += room.G[node]
                room.H[up] += room.H[node]
                room.rows[up] += room.rows[node]
                room.absolute[up, 0] += absolute[0]
                room.absolute[up, 1] += absolute[1]
            absolute[0] = absolute[1] = 0
            room.G[node] = room.H[node] = room.rows[node] = 0
    return inner, path


@inner_kernel
def change_sums(model: Any, local: Any, t: int, row: int, changed: int, nodes: int, room: Any) -> None:
    """Change the sums of all nodes on the paths of some rows, the values of their leaves, and the histograms."""
    inner, path = change_nodes(model, t, nodes, room)
    if not inner:
        return
    parent, sums, histogram = model.trees.parent[t], local.sums[t], model.trees.histogram[t]
    segment, stored = local.candidates.segment[row], sums.shape[1]
    # Along the paths, or to the last inner node and then from node to node: the same sums, whichever takes longer.
    bottom_up = (path - changed) * len(room.segments) > inner * stored
    into = room.delta if bottom_up else sums
    for i in range(changed):
        node = np.int64(parent[room.leaf[i]])
        if room.g[i] == 0 and room.h[i] == 0:
            continue
        dg, dh = np.int64(room.g[i]), np.int64(room.h[i])
        length = segments_of(np.uint32(room.slots[i]), local.cells, segment, room.segments)
        while node >= 0:
            of_node = into[histogram[node]]
            for e in range(np.uint64(length)):
                add_pair(of_node, room.segments[e], dg, dh)
            node = -1 if bottom_up else np.int64(parent[node])
    if bottom_up:
        move_all_up(model.trees, local, t, nodes, room, 0, stored)


@inner_kernel
def move_all_up(trees: Any, local: Any, t: int, nodes: int, room: Any, begin: int, end: int) -> None:
    """Add the changes of histograms (``room.delta``) to them and to all above, and make them 0."""
    sums, histogram = local.sums[t], trees.histogram[t]
    for q in range(nodes - 1, -1, -1):
        node = np.int64(room.order[q])
        if trees.feature[t, node] < 0 or not room.touched[node]:
            continue
        h, up = np.int64(histogram[node]), np.int64(trees.parent[t, node])
        if up >= 0:
            _move_up(room.delta[h], sums[h], room.delta[histogram[up]], begin, end)
        else:
            _move_in(room.delta[h], sums[h], begin, end)


@kernel
def sum_up_changes(
    model: Any, local: Any, batch: Any, t: int, k: int, role: int, own: int, n: int, room: Any, head: Any
) -> int:
    """Change the rows of a shard in one tree, and sum up by how much; returns how many histograms change.

    ``head``, int64, shape (5 nodes,), takes the changes of leaves: G, H, their absolute values, and rows. Those of
    histograms are in ``room.delta``, for the nodes in ``room.changed``.
    """
    trees, segment = model.trees, local.candidates.segment[row_of(local.candidates, t // model.loss.trees)]
    changed, parent, n_changed = change_rows(model, local, batch, t, k, role, own, n, room), trees.parent[t], 0
    room.touched[:] = 0
    for node in range(len(room.value)):
        absolute, at = room.absolute[node], 5 * node
        head[at], head[at + 1], head[at + 4] = room.G[node], room.H[node], room.rows[node]
        head[at + 2], head[at + 3] = absolute[0], absolute[1]
        absolute[0] = absolute[1] = room.G[node] = room.H[node] = room.rows[node] = 0
    for i in range(changed):
        node = np.int64(parent[room.leaf[i]])
        if node < 0 or (room.g[i] == 0 and room.h[i] == 0):
            continue
        h = np.int64(trees.histogram[t, node])
        if not room.touched[node]:
            room.touched[node] = 1
            room.changed[n_changed] = h
            n_changed += 1
        add_row(np.uint32(room.slots[i]), np.int64(room.g[i]), np.int64(room.h[i]), local.cells, segment, room.delta[h])
    return n_changed


@inner_kernel
def _move_up(delta: Any, into: Any, above: Any, begin: int, end: int) -> None:
    """Add segments of a histogram to two others, and make them 0."""
    for s in range(np.uint64(begin), np.uint64(end)):
        G, H = delta[s, 0], delta[s, 1]
        into[s, 0] += G
        into[s, 1] += H
        above[s, 0] += G
        above[s, 1] += H
        delta[s, 0], delta[s, 1] = 0, 0


@inner_kernel
def _move_in(delta: Any, into: Any, begin: int, end: int) -> None:
    """Add segments of a histogram to another one, and make them 0."""
    for s in range(np.uint64(begin), np.uint64(end)):
        into[s, 0] += delta[s, 0]
        into[s, 1] += delta[s, 1]
        delta[s, 0], delta[s, 1] = 0, 0


@kernel
def sum_up(model: Any, local: Any, y: Any, slots: Any, first: int, stop: int, room: Any, into: Any) -> None:
    """Make the histograms of the trees ``first`` to before ``stop`` from leaves and ledger entries of some rows.

    ``into``, int64, shape (trees, inner nodes, S + 1, 2), takes them.
    """
    trees, loss = model.trees, model.loss
    for t in range(first, stop):
        row = row_of(local.candidates, t // loss.trees)
        ledger, leaf = model.ledger[t], model.leaf[t]
        nodes = list_nodes(trees, t, room)
        sums, histogram, parent = into[t - first], trees.histogram[t], trees.parent[t]
        segment = local.candidates.segment[row]
        for q in range(nodes):
            node = np.int64(room.order[q])
            if trees.feature[t, node] >= 0:
                sums[histogram[node]] = 0
        for i in range(len(slots)):
            slot = slots[i]
            node = np.int64(parent[leaf[slot]])
            if node < 0:
                continue
            g = gradient(np.int64(ledger[slot]), y[slot], t % loss.trees, loss)
            G, H = weighted(g, mass_of(local.weight, slot, UNIT), loss.squared)
            add_row(np.uint32(slot), G, H, local.cells, segment, sums[histogram[node]])
        for q in range(nodes - 1, 0, -1):
            node = np.int64(room.order[q])
            if trees.feature[t, node] >= 0:
                _add(sums[histogram[node]], sums[histogram[parent[node]]])


@inner_kernel
def _add(sums: Any, into: Any) -> None:
    """Add a histogram to another one."""
    for s in range(len(sums)):
        into[s, 0] += sums[s, 0]
        into[s, 1] += sums[s, 1]


@inner_kernel
def subtract(sums: Any, less: Any, into: Any, begin: int, end: int) -> None:
    """Put some segments of the difference of two histograms into a third one."""
    for s in range(begin, end):
        into[s, 0] = sums[s, 0] - less[s, 0]
        into[s, 1] = sums[s, 1] - less[s, 1]


@inner_kernel
def beside(trees: Any, t: int, room: Any, e: int) -> tuple[int, int, int]:
    """Return the histograms from which that of a root without one follows: of the parent, and of its other child.

    -1 for the parent: it has to be summed up. -1 for the other child: it is that of another root, the third number,
    which has to be summed up.
    """
    node = room.root[e, 0]
    up = np.int64(trees.parent[t, node])
    if up < 0:
        return -1, -1, -1
    left, above = np.int64(trees.left[t, up]), np.int64(trees.histogram[t, up])
    other = np.int64(trees.right[t, up]) if left == node else left
    if trees.feature[t, other] >= 0:
        return above, np.int64(trees.histogram[t, other]), -1
    for root in range(room.register[ROOTS]):
        if room.root[root, 0] == other:
            if room.root[root, 1] >= 0:
                return above, room.root[root, 1], -1
            H, of_other = trees.H[t, node], trees.H[t, other]  # the same at all shards
            if of_other < H or (of_other == H and left == node):
                return above, -1, np.int64(root)
    return -1, -1, -1


@inner_kernel
def make_from_others(trees: Any, local: Any, t: int, room: Any, e: int, begin: int, end: int) -> None:
    """Make the histogram of a root that need not be summed up."""
    above, other, root = beside(trees, t, room, e)
    less = room.pool[root] if other < 0 else local.sums[t, other]
    subtract(local.sums[t, above], less, room.pool[e], begin, end)


# -------------------------------------------------------------------- what shards send each other


@kernel
def pack(head: Any, which: Any, at: Any, sums: Any, ends: Any, out: Any) -> None:
    """Write what every owner is sent: a head, where histograms belong, and their segments (:func:`add_packed`).

    They are ``sums[at]``, and segments of an owner end where those of the next one begin (``ends``).
    """
    n, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    for owner in range(len(ends) - 1):
        for i in range(len(head)):
            out[n] = head[i]
            n += one
        out[n] = len(which)
        n += one
        for i in range(len(which)):
            out[n] = which[i]
            n += one
        for i in range(len(at)):
            of_node = sums[at[i]]
            for s in range(np.uint64(ends[owner]), np.uint64(ends[owner + 1])):
                out[n], out[n + one] = of_node[s, 0], of_node[s, 1]
                n += two


@kernel
def add_packed(packed: Any, head: Any, into: Any, begin: int, end: int) -> None:
    """Add what all shards have sent, one after the other: their heads, and segments ``begin`` to before ``end``.

    Each has sent a head, the number of its histograms, where in ``into`` these are, and their segments. ``head`` takes
    the sum of the heads; those in ``into`` grow by the histograms.
    """
    head[:] = 0
    at, two = np.uint64(0), np.uint64(2)  # unsigned: no test for an index from the end
    while at < np.uint64(len(packed)):
        for i in range(np.uint64(len(head))):
            head[i] += packed[at + i]
        which = at + np.uint64(len(head) + 1)
        n = np.uint64(packed[which - np.uint64(1)])
        at = which + n
        for i in range(n):
            sums = into[packed[which + i]]
            for s in range(np.uint64(begin), np.uint64(end)):
                sums[s, 0] += packed[at]
                sums[s, 1] += packed[at + np.uint64(1)]
                at += two


def joined_packed(ours: Ints, theirs: Ints, head: int) -> Ints:
    """Return as one what two shards have packed for the same owner, with ``head`` numbers each; twice as nothing.

    Histograms that both have are added. Also shards that pass this on may do so: sums are integers.
    """
    at = slice(head, head + 1 + int(ours[head]))
    if len(ours) == len(theirs) and np.array_equal(ours[at], theirs[at]):
        joined = ours + theirs
        joined[at] = ours[at]
        return joined
    counts = [int(part[head]) for part in (ours, theirs)]
    which = [part[head + 1 : head + 1 + n] for part, n in zip((ours, theirs), counts, strict=True)]
    every = np.union1d(*which)
    width = max((len(part) - head - 1) // n - 1 if n else 0 for part, n in zip((ours, theirs), counts, strict=True))
    joined = np.zeros(head + 1 + len(every) * (1 + width), dtype=np.int64)
    joined[:head], joined[head] = ours[:head] + theirs[:head], len(every)
    joined[head + 1 : head + 1 + len(every)] = every
    sums = joined[head + 1 + len(every) :].reshape(len(every), width)
    for part, n, own in zip((ours, theirs), counts, which, strict=True):
        sums[np.searchsorted(every, own)] += part[head + 1 + n :].reshape(n, width)
    return joined


# Leaf-wise growth of one tree: in one call where one shard has all rows, or in rounds with other shards.
#
# The leaf whose best split gains most is split next (the one opened first among equals), until the tree may gain no
# more leaves or no open leaf can be split.
#
# With other shards, each shard has some rows with all features and parts them, and *owns* a range of features: it has
# the histograms of all rows over their segments. In a round each shard opens the children of some leaves and sums up
# the smaller child of each over its own rows; the owners add these parts, subtract them from the parents', and answer
# with their best splits. All shards make the same splits on the same answers. Only the owners know the gains of the
# children of a leaf, so leaves that may be split later are opened *ahead*, in the same round. They are found by
# growing as if no unknown child could be split; so a tree takes about as many rounds as it is deep. Of a split that
# failed the owners have the histogram, and have told its best split with the rank: so a subtree that grows again
# begins with its children.
#
# Invariants: the histogram of an open leaf lies in the pool. That of the smaller child is summed up from its rows,
# and the parent's, less that one, becomes the larger child's: exactly, since sums are integers. So does that of a
# leaf that grows again, where its sibling has one. What is opened ahead changes no result: only :func:`_put_split`
# makes splits.

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
def _sum_up(local: Any, row: int, room: Any, e: int, n: int, squared: bool) -> None:
    """Make the histogram of an open leaf from the own rows; with other shards it is part ``n`` of those to send."""
    a, b = room.leaf[e].begin, room.leaf[e].end
    sums = room.pool[e] if room.register[ALONE] else room.parts[n]
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
    leaf.gain = search(room.pool[e], leaf.G, leaf.H, local, row, room.found[e])


# -------------------------------------------------------------------- the tree


@inner_kernel
def _open_roots(model: Any, t: int, room: Any, roots: int, alone: bool) -> None:
    """Make open leaves of the roots of a tree (``room.root``), and begin to grow it."""
    trees, register = model.trees, room.register
    feature, nodes = trees.feature[t], trees.feature.shape[1]
    budget = nodes // 2 + 1 - trees.leaves[t]
    register[:] = 0
    register[ROOTS] = roots
    register[OPENED], register[BUDGET], register[ORDER], register[ALONE] = roots, budget, roots, alone
    register[AHEAD] = 0 if alone else min(np.int64(budget), np.int64(room.most_ahead))
    room.used[:] = False
    for node in range(nodes):
        if feature[node] >= 0:
            room.used[trees.histogram[t, node]] = True
    begin = np.int64(0)
    for e in range(roots):
        leaf, node = room.leaf[e], room.root[e, 0]
        leaf.node, leaf.left, leaf.order, leaf.begin, leaf.end = node, -1, e, begin, room.ends[e]
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
        one.node, one.left, one.order, one.gain = -1, -1, -1, 0.0
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


# -------------------------------------------------------------------- alone, and with other shards


@inner_kernel
def grow_tree(model: Any, local: Any, t: int, row: int, roots: int, room: Any) -> None:
    """Grow one tree from ``roots`` leaves (``room.root``), set its values and the leaves of the rows below them.

    ``row`` is that of the candidates. ``room.slots`` and ``room.g`` hold the rows, root after root, and ``room.made``
    takes the splits of each root. O(rows x features x depth).
    """
    n, _ = _sum_up_roots(model, local, t, row, roots, room, True)
    while n >= 0:
        _search_opened(model.trees, local, t, row, room, n)
        n = _split(model, local, t, row, room)


@kernel
def begin_growth(model: Any, local: Any, t: int, row: int, roots: int, room: Any) -> int:
    """Begin to grow a tree together with other shards; roots with a histogram are known (``room.found``).

    Returns how many leaves were summed up, as :func:`next_leaves`: of the other roots those that have to be and, until
    all are searched, children of the first ones.
    """
    n, unknown = _sum_up_roots(model, local, t, row, roots, room, False)
    if unknown:
        return int(_open_more(local, row, room, n, 0, model.loss.squared))
    return int(_split(model, local, t, row, room))


@inner_kernel
def _sum_up_roots(model: Any, local: Any, t: int, row: int, roots: int, room: Any, alone: bool) -> tuple[int, bool]:
    """Open roots, search those with a histogram, and sum up the others but those that follow from others.

    Returns how many were summed up, and whether there are roots without a histogram.
    """
    _open_roots(model, t, room, roots, alone)
    n, squared, unknown = np.int64(0), model.loss.squared, False
    for e in range(roots):
        leaf, found, h = room.leaf[e], room.found[e], room.root[e, 1]
        unknown |= h < 0
        if h < 0 and beside(model.trees, t, room, e)[0] < 0:
            room.step[n], room.small[n] = -1, e
            _sum_up(local, row, room, e, n, squared)
            n += 1
        elif h >= 0:
            _copy(local.sums[t, h], room.pool[e], local.begin, local.end)
            if alone:
                _search(local, row, room, e)
            elif found[FEATURE] >= 0:
                leaf.gain = gain_of(found[LEFT_G], found[LEFT_H], leaf.G, leaf.H, local.units)
    return n, unknown


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
    _search_opened(model.trees, local, t, row, room, n)


@inner_kernel
def _search_opened(trees: Any, local: Any, t: int, row: int, room: Any, n: int) -> None:
    """Search ``n`` leaves that are summed up, their larger siblings, and the roots that follow from others."""
    for i in range(n):
        e, small = room.step[i], room.small[i]
        if e >= 0:
            large = 2 * room.leaf[e].left + 1 - small
            subtract(room.pool[e], room.pool[small], room.pool[large], local.begin, local.end)
            _search(local, row, room, large)
        _search(local, row, room, small)
    for e in range(room.register[ROOTS] if room.register[SEARCHED] == 0 else 0):
        if room.root[e, 1] < 0 and beside(trees, t, room, e)[0] >= 0:
            make_from_others(trees, local, t, room, e, local.begin, local.end)
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
    last = begin + needed + max(np.int64(0), register[AHEAD])
    for _ in range(register[BUDGET] - register[MADE] - 1):  # list them, the one needed first
        best = -1
        if n == last:
            break
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
    register[AHEAD] -= n - begin
    for i in range(begin, n):
        e = room.step[i]
        a = _open_children(local, room, e)
        left, right = room.leaf[a], room.leaf[a + 1]
        is_left = left.end - left.begin <= right.end - right.begin
        if not register[ALONE]:
            is_left = left.H <= right.H  # the same at all shards, unlike their rows
        room.small[i] = a if is_left else a + 1
        _sum_up(local, row, room, room.small[i], i, squared)
    return int(n)


@inner_kernel
def _split(model: Any, local: Any, t: int, row: int, room: Any) -> int:
    """Make all splits that are known; return as :func:`next_leaves`."""
    trees, register = model.trees, room.register
    register[SEARCHED] = register[OPENED]
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
    return int(_split(model, local, t, row, room))
