"""Kernels of an update in place (Algorithms 2 and 3): a batch D' passes through a window of iterations.

The window is processed as if no tree of it had to be retrained. ``update`` finds the first tree that must be, and rolls
back what was assumed of later ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.binning import Bins
from raydt.batches.rows_on_shards import RowBlock
from raydt.learners.gbdt.derivative_tolerance import kept_entries, kept_residual, move
from raydt.learners.gbdt.derivatives import Loss, gradient, hessian, probabilities, quantise, residual
from raydt.learners.gbdt.split_search import gain_of
from raydt.learners.gbdt.trees import LEAF, Rates, Trees, leaf_of, value_of

#: Role of a row in a batch. The derivatives of a refreshed row are computed again.
DELETED, INSERTED, REFRESHED = 0, 1, 2


class ModelArrays(NamedTuple):
    """Trees, leaves and ledger, as kernels take them."""

    trees: Trees
    #: Shape (trees, capacity): leaf of the row in each slot, ``absent`` of a row that is not in the model.
    leaf: npt.NDArray[Any]
    ledger: npt.NDArray[Any]  #: Shape (trees, capacity): the derivative that was added for it.
    absent: int
    loss: Loss
    rates: Rates
    bins: Bins
    drift: npt.NDArray[np.uint16]  #: Shape (capacity,): how far the scores of each row may have moved (``staleness``).


class Batch(NamedTuple):
    """The rows of a batch D'."""

    slots: npt.NDArray[np.int32]  #: Shape (n,).
    role: npt.NDArray[np.int8]  #: Shape (n,).
    rows: RowBlock  #: Features of the inserted rows, which are the first.
    F: npt.NDArray[np.float64]  #: Shape (n, K'): score before the next iteration.
    y: npt.NDArray[Any]


class Window(NamedTuple):
    """The iterations from ``first`` up to before ``stop`` as a batch passes through them."""

    first: int
    stop: int
    dg: npt.NDArray[np.int32]  #: ``dg``, ``dh``: Shape (trees, n): by how much the derivatives of a row change.
    dh: npt.NDArray[np.int32]
    leaf: npt.NDArray[np.int16]  #: Shape (trees, n).
    ledger: npt.NDArray[np.int32]  #: Shape (trees, n): entries before the batch.
    touched: npt.NDArray[np.uint8]  #: Shape (trees, nodes): 1 for each node whose sums may have changed.
    G: npt.NDArray[np.int64]  #: ``G``, ``H``, ``value``: Shape (trees, nodes): those of ``Trees`` before the batch.
    H: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]


def new_window(model: ModelArrays, first: int, stop: int, rows: int) -> Window:
    """A window that no batch has passed through yet."""
    per, trees = model.loss.trees, model.trees
    part = slice(first * per, stop * per)
    shape = (stop - first) * per, rows
    dg, dh, ledger = (np.empty(shape, dtype=np.int32) for _ in range(3))
    touched = np.zeros((shape[0], trees.feature.shape[1]), dtype=np.uint8)
    before = trees.G[part].copy(), trees.H[part].copy(), trees.value[part].copy()
    return Window(first, stop, dg, dh, np.empty(shape, dtype=np.int16), ledger, touched, *before)


@kernel
def process_window(model: Any, batch: Any, window: Any, stale: Any, compares: bool, scratch: Any) -> None:
    """Take a batch through a window as if no tree had to be retrained: change sums, values, leaves and ledger.

    ``batch.F`` becomes the score before ``window.stop``, and all arrays of the window but G, H and value are filled.
    With ``compares``, entries of refreshed rows that may stay do (``stale``: Staleness). ``scratch``, float64, has K'
    entries. O(trees x rows x depth).
    """
    trees, loss, leaf, ledger = model.trees, model.loss, model.leaf, model.ledger
    slots, role, F, y = batch.slots, batch.role, batch.F, batch.y
    dg, dh, touched = window.dg, window.dh, window.touched
    per = loss.trees
    n = len(slots)
    for m in range(window.first, window.stop):
        base = (m - window.first) * per
        for i in range(n):  # the derivatives of all trees of an iteration follow from the F before it
            if role[i] == DELETED:
                continue
            slot = slots[i]
            compared = compares and role[i] == REFRESHED
            if loss.squared:
                now = residual(y[slot], F[i, 0], loss.unit)
                dg[base, i] = kept_residual(np.int64(ledger[m, slot]), now, stale.residual) if compared else now
            elif compared:
                kept_entries(F[i], ledger, m * per, slot, stale.stays, scratch, dg, base, i)
            else:
                probabilities(F[i], scratch)
                for k in range(per):
                    dg[base + k, i] = quantise(scratch[k])
        for k in range(per):
            t, w = m * per + k, base + k
            for i in range(n):
                slot = slots[i]
                entry = dg[w, i]
                before = ledger[t, slot]
                window.ledger[w, i] = before
                node = leaf_of(trees, t, batch.rows, i, model.bins) if role[i] == INSERTED else leaf[t, slot]
                window.leaf[w, i] = node
                G, H = np.int64(0), np.int64(0)
                if role[i] != INSERTED:
                    g = gradient(np.int64(before), y[slot], k, loss)
                    G, H = -g, -hessian(g, loss.squared)
                if role[i] != DELETED:
                    g = gradient(np.int64(entry), y[slot], k, loss)
                    G, H = G + g, H + hessian(g, loss.squared)
                    ledger[t, slot] = entry
                leaf[t, slot] = model.absent if role[i] == DELETED else node
                dg[w, i], dh[w, i] = G, H
                if role[i] == REFRESHED and entry == before:
                    continue
                above = np.int64(node)
                while above >= 0:
                    trees.G[t, above] += G
                    trees.H[t, above] += H
                    touched[w, above] = 1
                    above = np.int64(trees.parent[t, above])
            for node in range(touched.shape[1]):
                if touched[w, node] and trees.feature[t, node] == LEAF:
                    trees.value[t, node] = value_of(trees.G[t, node], trees.H[t, node], model.rates)
        for i in range(n):
            if role[i] != DELETED:
                for k in range(per):
                    F[i, k] += trees.value[m * per + k, window.leaf[base + k, i]]


@kernel
def move_leaves(trees: Any, first: int, touched: Any, value: Any, kept: Any, stale: Any, moved: Any) -> None:
    """How far the leaves of ``kept`` have been above and below their values; 0 of other nodes, and without rows.

    ``touched``, ``value`` (before) and ``kept`` have shape (trees, nodes) and are of the trees from ``first`` on;
    ``moved``, int32, has shape (2, trees, nodes).
    """
    for w in range(len(touched)):
        t = first + w
        for node in range(touched.shape[1]):
            a, b = np.int64(trees.above[t, node]), np.int64(trees.below[t, node])
            if not kept[w, node] or trees.H[t, node] <= 0:
                a, b = 0, 0
            elif touched[w, node]:
                a, b = move(a, b, trees.value[t, node] - value[w, node], stale)
            moved[0, w, node], moved[1, w, node] = a, b


@kernel
def row_moves(model: Any, t: int, slots: Any, before: Any, above: Any, below: Any, stale: Any, moves: Any) -> None:
    """How far the scores of some rows have moved by one tree, since their leaves began at 0, into ``moves``.

    ``before``, ``above`` and ``below`` are of the leaf that held each of them.
    """
    for i in range(len(slots)):
        now = model.trees.value[t, model.leaf[t, slots[i]]]
        a, b = move(np.int64(above[i]), np.int64(below[i]), now - before[i], stale)
        moves[i] = a + b


def roll_back(model: ModelArrays, batch: Batch, window: Window, keep: int) -> None:
    """Undo :func:`process_window` on the trees from ``keep`` on; ``batch.F`` is left as it is. O(trees x rows)."""
    first = window.first * model.loss.trees
    part, i = slice(keep, first + len(window.leaf)), keep - first
    model.trees.G[part], model.trees.H[part], model.trees.value[part] = window.G[i:], window.H[i:], window.value[i:]
    deleted, refreshed = batch.role == DELETED, batch.role == REFRESHED
    model.leaf[part, batch.slots[deleted]] = window.leaf[i:, deleted]
    model.ledger[part, batch.slots[refreshed]] = window.ledger[i:, refreshed]


@kernel
def touched_splits(trees: Any, first_tree: int, touched: Any, units: Any, splits: Any, valid: Any) -> int:
    """The touched splits (``split_search.RANKED``), and which of them have rows on both sides; returns how many."""
    n = 0
    for w in range(len(touched)):
        t = first_tree + w
        for node in range(touched.shape[1]):
            if touched[w, node] and trees.feature[t, node] >= 0:
                left = trees.left[t, node]
                G, H, left_H = trees.G[t, node], trees.H[t, node], trees.H[t, left]
                split = splits[n]
                split.tree, split.node, split.G, split.H = t, node, G, H
                valid[n] = left_H > 0 and left_H < H
                split.gain = gain_of(trees.G[t, left], left_H, G, H, units) if valid[n] else np.inf
                n += 1
    return n


@inner_kernel
def may_grow(trees: Any, t: int, node: int, sigma: float) -> bool:
    """Whether a leaf is to be tried: its sums have moved by more than sigma of what they were when it failed."""
    H = trees.tried_h[t, node]
    if H < 0:
        return True
    G = trees.tried_g[t, node]
    return bool(abs(trees.G[t, node] - G) > sigma * abs(G) or abs(trees.H[t, node] - H) > sigma * H)


@kernel
def growing_trees(trees: Any, first: int, touched: Any, sigma: float, most: int, needs: Any) -> None:
    """Mark in ``needs`` the trees, from ``first`` on, with a touched leaf to try and fewer than ``most`` leaves."""
    for w in range(len(touched)):
        t = first + w
        if trees.leaves[t] >= most:
            continue
        for node in range(touched.shape[1]):
            if touched[w, node] and trees.feature[t, node] == LEAF and may_grow(trees, t, node, sigma):
                needs[w] = True
