"""What the rows of a batch change in one tree: their leaves and ledger entries, sums of nodes, histograms.

With other shards, each changes its own rows and sums up by how much the leaves change and, at the nodes above these,
the histograms. All shards add the changes of all leaves, and the owners of features those of their histograms; then
they move the changes up the tree.

Invariant: a histogram is the sum over the rows below its node, whichever way it was changed: sums are integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.elementary import add_pair
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.binning import is_left
from raydt.examples.updates import UNIT
from raydt.learners.gbdt.candidates import add_row, row_of, segments_of
from raydt.learners.gbdt.derivatives import gradient, weighted
from raydt.learners.gbdt.ensemble import LEAF, LEDGER_PART_BITS, next_in_preorder, value_of
from raydt.learners.gbdt.split_search import DELETED, INSERTED, ROOTS
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
