"""Passes through all trees in the process that holds all features: training, and updates in place, without messages.

An update is Algorithms 2 and 3 as they are printed, iteration after iteration: the sums of a tree change, subtrees
whose split ranks too low are grown again, and rows below them join the batch. Passes with shards (``update``) give the
same bits; they process many iterations as if no tree had to be grown again, and roll back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.gbdt.candidates import row_of
from raydt.learners.gbdt.cells import find_places, is_left, segments_of
from raydt.learners.gbdt.derivatives import TOGETHER, derive_together, gradient, hessian, residual
from raydt.learners.gbdt.roots import collapse_tree, rows_below
from raydt.learners.gbdt.slack import Slack, no_slack, stays
from raydt.learners.gbdt.split_search import FIELDS
from raydt.learners.gbdt.staleness import Staleness, compare, units_of
from raydt.learners.gbdt.tree_growth import grow_tree
from raydt.learners.gbdt.trees import LEAF, next_in_preorder, value_of
from raydt.learners.gbdt.window import DELETED, INSERTED, may_grow

#: What an update follows: nothing, rows of retrained subtrees, or rows of leaves whose value changes (``staleness``).
NEVER, RETRAINED, BOUNDED = 0, 1, 2
#: Fields of the counts of a pass; ``DEPTH`` is the smallest depth of a root that was grown again (-1: none).
TREES_RETRAINED, SUBTREES, ROWS, NODES, DEPTH, REFRESHED, COUNTS = 0, 1, 2, 3, 4, 5, 6


class Rules(NamedTuple):
    """How an update decides.

    Attributes
    ----------
    follow : int
        NEVER, RETRAINED or BOUNDED.
    sigma : float
        ``robustness_tolerance``.
    tolerance : int
        Rank down to which a split stays.
    stale : Staleness
    """

    follow: int
    sigma: float
    tolerance: int
    stale: Staleness


class LocalBatch(NamedTuple):
    """A batch: ``own`` rows of role ``role``, then rows whose derivatives are computed again.

    Attributes
    ----------
    slots : ndarray of int32, shape (capacity,)
    F : ndarray of float64, shape (K', capacity)
    entry : ndarray of int32, shape (K', capacity)
        Ledger entries in the current iteration.
    member : ndarray of bool, shape (capacity,)
        Slots of the batch.
    y : ndarray, by slot
    """

    slots: npt.NDArray[np.int32]
    F: npt.NDArray[np.float64]
    entry: npt.NDArray[np.int32]
    member: npt.NDArray[np.bool_]
    y: npt.NDArray[Any]


class PassRoom(NamedTuple):
    """Scratch of a pass.

    Attributes
    ----------
    slots, leaf, g, h : ndarray of int32, shape (capacity,)
        Rows that change a tree: where they are, and by how much.
    G, H, rows : ndarray of int64, shape (nodes,)
        Sums of these, and how many there are, by node.
    absolute : ndarray of int64, shape (nodes, 2)
        Sums of their absolute values.
    slack : Slack
    touched, failed : ndarray of uint8, shape (nodes,)
    value : ndarray of float64, shape (nodes,)
        Before the batch.
    before : ndarray of float64, shape (capacity,)
        Value of the leaf of each row below a root, before the batch.
    moved : ndarray of uint16, shape (capacity,)
        ``Trees.moved`` of that leaf.
    order, depth, mark : ndarray of int16, shape (nodes,)
    number : ndarray of int16, shape (absent + 1,)
        Root above each leaf, -1 for none; also of ``absent``.
    delta : ndarray of int64, shape (inner nodes, S + 1, 2)
        0 between trees.
    segments : ndarray of uint32, shape (longest row,)
    p : ndarray of float64, shape (K' + 2, TOGETHER)
        As in ``derivatives.probabilities_together``.
    top : ndarray of float64, shape (tolerance + 1,)
        The largest gains of a node; ``tolerance`` is that of ``Rules``.
    found : ndarray of int64, shape (FIELDS,)
    """

    slots: npt.NDArray[np.int32]
    leaf: npt.NDArray[np.int32]
    g: npt.NDArray[np.int32]
    h: npt.NDArray[np.int32]
    G: npt.NDArray[np.int64]
    H: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    absolute: npt.NDArray[np.int64]
    slack: Slack
    touched: npt.NDArray[np.uint8]
    failed: npt.NDArray[np.uint8]
    value: npt.NDArray[np.float64]
    before: npt.NDArray[np.float64]
    moved: npt.NDArray[np.uint16]
    order: npt.NDArray[np.int16]
    depth: npt.NDArray[np.int16]
    mark: npt.NDArray[np.int16]
    number: npt.NDArray[np.int16]
    delta: npt.NDArray[np.int64]
    segments: npt.NDArray[np.uint32]
    p: npt.NDArray[np.float64]
    top: npt.NDArray[np.float64]
    found: npt.NDArray[np.int64]


def pass_room(
    capacity: int, trees: int, inner: int, stored: int, longest: int, absent: int, per: int, tolerance: int
) -> PassRoom:
    """Scratch for ``capacity`` rows of at most ``longest`` entries, and so many trees of so many inner nodes."""
    nodes = 2 * inner + 1
    slots, leaf, g, h = (np.empty(capacity, dtype=np.int32) for _ in range(4))
    G, H, rows = (np.zeros(nodes, dtype=np.int64) for _ in range(3))
    touched, failed = (np.zeros(nodes, dtype=np.uint8) for _ in range(2))
    order, depth, mark = (np.zeros(nodes, dtype=np.int16) for _ in range(3))
    number = np.full(absent + 1, -1, dtype=np.int16)
    delta = np.zeros((inner, stored, 2), dtype=np.int64)
    segments, found = np.empty(longest, dtype=np.uint32), np.empty(FIELDS, dtype=np.int64)
    return PassRoom(
        *(slots, leaf, g, h),
        *(G, H, rows),
        *(np.zeros((nodes, 2), dtype=np.int64), no_slack(trees, nodes)),
        *(touched, failed),
        *(np.empty(nodes), np.empty(capacity)),
        np.empty(capacity, dtype=np.uint16),
        *(order, depth, mark, number),
        delta,
        segments,
        np.empty((per + 2, TOGETHER)),
        np.empty(tolerance + 1),
        found,
    )


# ---------------------------------------------------------------- derivatives and scores


@inner_kernel
def _derive(batch: Any, first: int, stop: int, loss: Any, p: Any) -> None:
    """Entries of some rows of the batch in the current iteration, from their scores."""
    if not loss.squared:
        derive_together(batch.F, first, stop, p, batch.entry)
        return
    F, entry, slots, y = batch.F[0], batch.entry[0], batch.slots, batch.y
    for i in range(first, stop):
        entry[i] = residual(y[slots[i]], F[i], loss.unit)


@inner_kernel
def _add_scores(model: Any, batch: Any, t: int, k: int, first: int, stop: int) -> None:
    """Add the values of one tree to the scores of some rows of the batch."""
    leaf, value, slots, F = model.leaf[t], model.trees.value[t], batch.slots, batch.F[k]
    for i in range(np.uint64(first), np.uint64(stop)):  # unsigned: no test for an index from the end
        F[i] += value[np.uint32(leaf[np.uint32(slots[i])])]


# ---------------------------------------------------------------- training


@kernel
def train_pass(model: Any, local: Any, batch: Any, own: int, first: int, stop: int, room: Any, p: Any) -> None:
    """Train the iterations from ``first`` up to before ``stop`` on ``own`` rows; ``p`` as in ``PassRoom``."""
    trees, loss, slots, y = model.trees, model.loss, batch.slots, batch.y
    for m in range(first, stop):
        row = row_of(local.candidates, m)
        if len(room.places.ends) and (m == first or row):
            nowhere = local.sums.shape[2] - 1
            find_places(slots[:own], local.cells, local.candidates.segment[row], nowhere, room.places)
        _derive(batch, 0, own, loss, p)
        for k in range(loss.trees):
            t = m * loss.trees + k
            ledger = model.ledger[t]
            G, H = np.int64(0), np.int64(0)
            for i in range(own):
                slot, entry = slots[i], batch.entry[k, i]
                ledger[slot] = entry
                g = gradient(np.int64(entry), y[slot], k, loss)
                room.slots[i], room.g[i] = slot, g
                G += g
                H += hessian(g, loss.squared)
            trees.G[t, 0], trees.H[t, 0] = G, H
            room.root[0, 0], room.root[0, 1], room.ends[0] = 0, -1, own
            grow_tree(model, local, t, row, 1, room)
            _add_scores(model, batch, t, k, 0, own)


# ---------------------------------------------------------------- one tree of an update


@inner_kernel
def _route(model: Any, local: Any, t: int, slot: int) -> int:
    """Leaf of a row in one tree, by its cells. O(depth)."""
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
def _change_rows(model: Any, local: Any, batch: Any, t: int, k: int, role: int, own: int, n: int, room: Any) -> int:
    """Change ledger and leaves of the rows of a batch in one tree; returns how many rows change its sums."""
    loss, leaf, ledger = model.loss, model.leaf[t], model.ledger[t]
    slots, y, entry = batch.slots, batch.y, batch.entry[k]
    changed = 0
    if role == DELETED:
        for i in range(own):
            slot = slots[i]
            g = gradient(np.int64(ledger[slot]), y[slot], k, loss)
            _note(room, changed, slot, np.int64(leaf[slot]), -g, -hessian(g, loss.squared))
            changed += 1
            leaf[slot] = model.absent
    elif role == INSERTED:
        for i in range(own):
            slot = slots[i]
            g = gradient(np.int64(entry[i]), y[slot], k, loss)
            node = _route(model, local, t, np.int64(slot))
            _note(room, changed, slot, node, g, hessian(g, loss.squared))
            changed += 1
            leaf[slot], ledger[slot] = node, entry[i]
    for i in range(np.uint64(own), np.uint64(n)):  # unsigned: no test for an index from the end
        slot = np.uint32(slots[i])
        before, now = np.int64(ledger[slot]), np.int64(entry[i])
        if before == now:
            continue
        old, new = gradient(before, y[slot], k, loss), gradient(now, y[slot], k, loss)
        G, H = new - old, hessian(new, loss.squared) - hessian(old, loss.squared)
        _note(room, changed, slot, np.int64(leaf[slot]), G, H)
        changed += 1
        ledger[slot] = now
    return changed


@inner_kernel
def _list_nodes(trees: Any, t: int, room: Any) -> int:
    """Nodes in preorder and their depths; returns how many there are."""
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
def _change_sums(model: Any, local: Any, t: int, row: int, changed: int, nodes: int, room: Any) -> None:
    """Change the sums of all nodes on the paths of some rows, the values of their leaves, and the histograms."""
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
    if not inner:
        return
    sums, histogram = local.sums[t], trees.histogram[t]
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
                s = room.segments[e]
                of_node[s, 0] += dg
                of_node[s, 1] += dh
            node = -1 if bottom_up else np.int64(parent[node])
    if bottom_up:
        for q in range(nodes - 1, -1, -1):
            node = np.int64(room.order[q])
            if feature[node] < 0 or not room.touched[node]:
                continue
            h, up = np.int64(histogram[node]), np.int64(parent[node])
            if up >= 0:
                _move_up(room.delta[h], sums[h], room.delta[histogram[up]])
            else:
                _move_in(room.delta[h], sums[h])


@inner_kernel
def _move_up(delta: Any, into: Any, above: Any) -> None:
    """Add a histogram to two others, and make it 0."""
    for s in range(np.uint64(len(delta))):
        G, H = delta[s, 0], delta[s, 1]
        into[s, 0] += G
        into[s, 1] += H
        above[s, 0] += G
        above[s, 1] += H
        delta[s, 0], delta[s, 1] = 0, 0


@inner_kernel
def _move_in(delta: Any, into: Any) -> None:
    """Add a histogram to another one, and make it 0."""
    for s in range(np.uint64(len(delta))):
        into[s, 0] += delta[s, 0]
        into[s, 1] += delta[s, 1]
        delta[s, 0], delta[s, 1] = 0, 0


@inner_kernel
def _check(model: Any, local: Any, t: int, row: int, nodes: int, rules: Any, room: Any) -> bool:
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
def _grow_again(
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
def _join_below(batch: Any, joined: int, roots: int, grow_room: Any) -> int:
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
def _follow(model: Any, batch: Any, t: int, joined: int, roots: int, stale: Any, room: Any, grow_room: Any) -> int:
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


# ---------------------------------------------------------------- updates


@kernel
def update_pass(
    model: Any,
    local: Any,
    batch: Any,
    role: int,
    own: int,
    n: int,
    rules: Any,
    compares: bool,
    room: Any,
    grow_room: Any,
    counts: Any,
) -> int:
    """Take a batch through all trees: ``own`` rows of ``role``, and others up to ``n`` in all.

    ``compares``: entries of others may stay. Returns how many rows are members of the batch at the end, those that
    joined in the last iteration too. ``counts`` takes what was done (COUNTS).
    """
    trees, loss = model.trees, model.loss
    per = loss.trees
    iterations = len(trees.feature) // per
    kept = own if role == DELETED else 0
    counts[:] = 0
    counts[DEPTH], counts[REFRESHED] = -1, n - own
    for m in range(iterations):
        row = row_of(local.candidates, m)
        if compares:
            _derive(batch, kept, own, loss, room.p)
            compare(model, batch, m, own, n, rules.stale, room.p)
        else:
            _derive(batch, kept, n, loss, room.p)
        joined = n
        for k in range(per):
            t = m * per + k
            changed = _change_rows(model, local, batch, t, k, role, own, n, room)
            if changed:
                for node in range(len(room.value)):
                    room.value[node] = trees.value[t, node]
                nodes = _list_nodes(trees, t, room)
                _change_sums(model, local, t, row, changed, nodes, room)
                roots = 0
                if _check(model, local, t, row, nodes, rules, room):
                    roots = _grow_again(model, local, batch.y, t, k, row, rules, room, grow_room, counts)
                if rules.follow == RETRAINED:
                    joined = _join_below(batch, joined, roots, grow_room)
                elif rules.follow == BOUNDED and m + 1 < iterations:
                    joined = _follow(model, batch, t, joined, roots, rules.stale, room, grow_room)
            _add_scores(model, batch, t, k, kept, n)
        if m + 1 == iterations:
            return joined
        if joined > n:
            for i in range(n, joined):
                for k in range(per):
                    batch.F[k, i] = loss.origin
            for t in range((m + 1) * per):
                _add_scores(model, batch, t, t % per, n, joined)
            counts[REFRESHED] += joined - n
            n = joined
    return n


@kernel
def sum_up(model: Any, local: Any, y: Any, slots: Any, room: Any) -> None:
    """Make all histograms from the leaves and the ledger entries of all rows."""
    trees, loss = model.trees, model.loss
    for t in range(len(trees.feature)):
        row = row_of(local.candidates, t // loss.trees)
        ledger, leaf = model.ledger[t], model.leaf[t]
        nodes = _list_nodes(trees, t, room)
        sums, histogram, parent = local.sums[t], trees.histogram[t], trees.parent[t]
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
            dg, dh = np.int64(g), np.int64(hessian(g, loss.squared))
            length = segments_of(np.uint32(slot), local.cells, segment, room.segments)
            of_node = sums[histogram[node]]
            for e in range(np.uint64(length)):
                s = room.segments[e]
                of_node[s, 0] += dg
                of_node[s, 1] += dh
        for q in range(nodes - 1, 0, -1):
            node = np.int64(room.order[q])
            if trees.feature[t, node] >= 0:
                of_node, above = sums[histogram[node]], sums[histogram[parent[node]]]
                for s in range(len(of_node)):
                    above[s, 0] += of_node[s, 0]
                    above[s, 1] += of_node[s, 1]
