"""Passes through all trees in the process that holds all features: training, and updates in place, without messages.

An update is Algorithms 2 and 3 as they are printed, iteration after iteration: the sums of a tree change, subtrees
whose split ranks too low are grown again, and rows below them join the batch. Passes with shards (``update``) give the
same bits; they process many iterations as if no tree had to be grown again, and roll back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.gbdt.binned_rows import find_places
from raydt.learners.gbdt.candidates import row_of
from raydt.learners.gbdt.derivative_tolerance import compare
from raydt.learners.gbdt.derivatives import derive_together, gradient, hessian, residual
from raydt.learners.gbdt.pass_growth import follow, grow_again, has_to_grow, join_below
from raydt.learners.gbdt.pass_sums import change_rows, change_sums, list_nodes
from raydt.learners.gbdt.tree_growth import grow_tree
from raydt.learners.gbdt.window import DELETED
from raydt.learners.gbdt.workspace import BOUNDED, DEPTH, REFRESHED, RETRAINED


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
            batch.differs[:] = True
            _derive(batch, kept, n, loss, room.p)
        joined = n
        for k in range(per):
            t = m * per + k
            changed = change_rows(model, local, batch, t, k, role, own, n, room)
            if changed:
                for node in range(len(room.value)):
                    room.value[node] = trees.value[t, node]
                nodes = list_nodes(trees, t, room)
                change_sums(model, local, t, row, changed, nodes, room)
                roots = 0
                if has_to_grow(model, local, t, row, nodes, rules, room):
                    roots = grow_again(model, local, batch.y, t, k, row, rules, room, grow_room, counts)
                if rules.follow == RETRAINED:
                    joined = join_below(batch, joined, roots, grow_room)
                elif rules.follow == BOUNDED and m + 1 < iterations:
                    joined = follow(model, batch, t, joined, roots, rules, room, grow_room)
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
