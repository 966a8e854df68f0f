"""Passes through all trees: training, and updates in place. One call each where one shard has all rows.

An update is Algorithms 2 and 3 as they are printed, iteration after iteration: the sums of a tree change, subtrees
whose split ranks too low are grown again, and rows below them join the batch.

With other shards a pass is the same steps on the shard's own rows, cut where the shards have to meet (``row_shard``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.examples.weights import UNIT
from raydt.learners.gbdt.candidates import row_of
from raydt.learners.gbdt.cells import find_places
from raydt.learners.gbdt.derivatives import derive_together, gradient, residual, weighted
from raydt.learners.gbdt.growth import grow_tree
from raydt.learners.gbdt.histograms import add_packed, change_nodes, change_rows, change_sums, list_nodes, move_all_up
from raydt.learners.gbdt.staleness import compare
from raydt.learners.gbdt.update import (
    add_ranks,
    collapse,
    count_growth,
    follow,
    has_to_grow,
    join_below,
    look_at_splits,
)
from raydt.learners.gbdt.workspace import BOUNDED, DELETED, DEPTH, REFRESHED, RETRAINED
from raydt.trees.masses import mass_of


@inner_kernel
def _derive(batch: Any, first: int, stop: int, loss: Any, p: Any) -> None:
    """Make the entries of some rows of the batch in the current iteration, from their scores."""
    if not loss.squared:
        derive_together(batch.F, first, stop, p, batch.entry)
        return
    F, entry, slots, y = batch.F[0], batch.entry[0], batch.slots, batch.y
    for i in range(first, stop):
        entry[i] = residual(y[slots[i]], F[i], loss.unit)


@kernel
def add_scores(model: Any, batch: Any, t: int, first: int, stop: int) -> None:
    """Add the values of one tree to the scores of some rows of the batch."""
    k = t % model.loss.trees
    leaf, value, slots, F = model.leaf[t], model.trees.value[t], batch.slots, batch.F[k]
    for i in range(np.uint64(first), np.uint64(stop)):  # unsigned: no test for an index from the end
        F[i] += value[np.uint32(leaf[np.uint32(slots[i])])]


@inner_kernel
def _begin_iteration(local: Any, batch: Any, own: int, m: int, again: bool, loss: Any, room: Any, p: Any) -> None:
    """Derive the rows in the trees of an iteration, and look up where they add, if that serves several trees."""
    row = row_of(local.candidates, m)
    if len(room.places.ends) and again:
        nowhere = local.sums.shape[2] - 1
        find_places(batch.slots[:own], local.cells, local.candidates.segment[row], nowhere, room.places)
    _derive(batch, 0, own, loss, p)


@inner_kernel
def _begin_tree(model: Any, local: Any, batch: Any, t: int, k: int, own: int, room: Any) -> tuple[int, int]:
    """Note the derivatives of the rows in one tree, whose only leaf they are in; returns their sums."""
    loss, ledger, slots, y = model.loss, model.ledger[t], batch.slots, batch.y
    G, H = np.int64(0), np.int64(0)
    for i in range(own):
        slot, entry = slots[i], batch.entry[k, i]
        ledger[slot] = entry
        g = gradient(np.int64(entry), y[slot], k, loss)
        room.slots[i], room.g[i] = slot, g
        of_row_G, of_row_H = weighted(g, mass_of(local.weight, slot, UNIT), loss.squared)
        G += of_row_G
        H += of_row_H
    room.root[0, 0], room.root[0, 1], room.ends[0] = 0, -1, own
    return G, H


@kernel
def train_pass(model: Any, local: Any, batch: Any, own: int, first: int, stop: int, room: Any, p: Any) -> None:
    """Train the iterations from ``first`` up to before ``stop`` on ``own`` rows; ``p`` as in ``PassRoom``."""
    trees, loss = model.trees, model.loss
    for m in range(first, stop):
        row = row_of(local.candidates, m)
        _begin_iteration(local, batch, own, m, m == first or row > 0, loss, room, p)
        for k in range(loss.trees):
            t = m * loss.trees + k
            trees.G[t, 0], trees.H[t, 0] = _begin_tree(model, local, batch, t, k, own, room)
            grow_tree(model, local, t, row, 1, room)
            add_scores(model, batch, t, 0, own)


@kernel
def begin_tree(model: Any, local: Any, batch: Any, own: int, t: int, first: int, room: Any, p: Any, head: Any) -> None:
    """Begin to train one tree with other shards; ``first`` is the first iteration of the pass.

    ``head``, int64, shape (2,), takes the sums of the own rows.
    """
    loss, m = model.loss, t // model.loss.trees
    k = t - m * loss.trees
    if k == 0:
        again = m == first or row_of(local.candidates, m) > 0
        _begin_iteration(local, batch, own, m, again, loss, room, p)
    head[0], head[1] = _begin_tree(model, local, batch, t, k, own, room)


@kernel
def derive_batch(
    model: Any, batch: Any, m: int, own: int, n: int, kept: int, rules: Any, compares: bool, p: Any
) -> None:
    """Make the entries of a batch in an iteration: from its scores; of others, keep those that may stay."""
    if compares:
        _derive(batch, kept, own, model.loss, p)
        compare(model, batch, m, own, n, rules.stale, p)
    else:
        batch.differs[:] = True
        _derive(batch, kept, n, model.loss, p)


@inner_kernel
def _join(model: Any, batch: Any, t: int, joined: int, roots: int, rules: Any, room: Any, grow_room: Any) -> int:
    """Let the rows join that one tree has moved too far; returns how many rows the batch has then."""
    if rules.follow == RETRAINED:
        return join_below(batch, joined, roots, grow_room)
    if rules.follow == BOUNDED and t < len(model.leaf) - model.loss.trees:
        return follow(model, batch, t, joined, roots, rules, room, grow_room)
    return joined


@inner_kernel
def _welcome(model: Any, batch: Any, m: int, n: int, joined: int, counts: Any) -> None:
    """Make the scores after iteration ``m`` of the rows that have joined."""
    per = model.loss.trees
    for i in range(n, joined):
        for k in range(per):
            batch.F[k, i] = model.loss.origin
    for t in range((m + 1) * per if joined > n else 0):
        add_scores(model, batch, t, n, joined)
    counts[REFRESHED] += joined - n


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
        derive_batch(model, batch, m, own, n, kept, rules, compares, room.p)
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
                if has_to_grow(model, local, t, row, nodes, rules, room, True):
                    roots = collapse(model, batch.y, t, k, rules, room, grow_room)
                    if roots:
                        grow_tree(model, local, t, row, roots, grow_room)
                        count_growth(model, t, roots, room, grow_room, counts)
                joined = _join(model, batch, t, joined, roots, rules, room, grow_room)
            add_scores(model, batch, t, kept, n)
        if m + 1 == iterations:
            return joined
        _welcome(model, batch, m, n, joined, counts)
        n = joined
    return n


@kernel
def change_tree(model: Any, local: Any, t: int, rules: Any, room: Any, head: Any, packed: Any) -> int:
    """Change one tree by what all shards have changed; returns how many splits are to be judged (``room.judged``).

    ``head``, shape (5 nodes,), is scratch.
    """
    add_packed(packed, head, room.delta, local.begin, local.end)
    for node in range(len(room.value)):
        at = 5 * node
        room.value[node] = model.trees.value[t, node]
        room.G[node], room.H[node], room.rows[node] = head[at], head[at + 1], head[at + 4]
        room.absolute[node, 0], room.absolute[node, 1] = head[at + 2], head[at + 3]
    nodes = list_nodes(model.trees, t, room)
    change_nodes(model, t, nodes, room)
    move_all_up(model.trees, local, t, nodes, room, local.begin, local.end)
    return look_at_splits(model, local, t, row_of(local.candidates, t // model.loss.trees), nodes, rules, room)


@kernel
def judge_tree(model: Any, local: Any, batch: Any, t: int, rules: Any, room: Any, grow_room: Any, answers: Any) -> int:
    """Collapse what has failed in one tree, by the answers of all shards; returns how many roots are to grow."""
    add_ranks(model.trees, t, answers, local.units, room)
    per, nodes = model.loss.trees, list_nodes(model.trees, t, room)
    if not has_to_grow(model, local, t, row_of(local.candidates, t // per), nodes, rules, room, False):
        return 0
    return collapse(model, batch.y, t, t % per, rules, room, grow_room)


@kernel
def end_update(
    model: Any, batch: Any, t: int, kept: int, n: int, joined: int, roots: int, rules: Any, room: Any, grow_room: Any,
    counts: Any
) -> int:  # fmt: skip
    """End one tree: its scores, and the rows that join. Returns how many rows the batch has then.

    After the last tree of an iteration, rows that have joined get their scores.
    """
    if roots:
        count_growth(model, t, roots, room, grow_room, counts)
    joined = _join(model, batch, t, joined, roots, rules, room, grow_room)
    per = model.loss.trees
    add_scores(model, batch, t, kept, n)
    if t % per == per - 1 and t < len(model.leaf) - 1:
        _welcome(model, batch, t // per, n, joined, counts)
    return int(joined)
