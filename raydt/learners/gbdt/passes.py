"""A batch D' on its way through the trees (Algorithms 2 and 3): the kernel that assumes no tree is retrained.

What follows from a tree that must be retrained is decided in ``updating``; then what was assumed of later trees is
taken back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.gbdt.derivatives import gradient, hessian, probabilities, quantise, residual
from raydt.learners.gbdt.split_search import gain_of
from raydt.learners.gbdt.trees import LEAF, leaf_of, value_of

#: What happens to a row: it leaves, it comes, its derivatives are computed anew.
OUT, IN, AGAIN = 0, 1, 2


@kernel
def advance(
    trees: Any,
    loss: Any,
    rates: Any,
    first: int,
    stop: int,
    slots: Any,
    role: Any,
    X: Any,
    indptr: Any,
    indices: Any,
    bins: Any,
    y: Any,
    F: Any,
    ledger: Any,
    leaf: Any,
    nowhere: int,
    dG: Any,
    dH: Any,
    at: Any,
    old: Any,
    touched: Any,
    p: Any,
) -> None:
    """Change sums, leaves and ledger of the iterations from ``first`` up to before ``stop`` by some rows.

    Rows that come are the first, and row i of ``X`` is row i. ``F``, shape (rows, K'), is that before ``first`` and
    becomes that before ``stop``. Of each tree and row ``dG``, ``dH`` take the change, ``at`` the leaf, ``old`` the
    ledger's entry before; ``touched`` takes 1 for each node whose sums may have changed.
    """
    per = loss.trees
    n = len(slots)
    for m in range(first, stop):
        base = (m - first) * per
        for i in range(n):  # the derivatives of all trees of an iteration follow from the F before it
            if role[i] == OUT:
                continue
            slot = slots[i]
            if loss.squared:
                dG[base, i] = residual(y[slot], F[i, 0], loss.unit)
            else:
                probabilities(F[i], p)
                for k in range(per):
                    dG[base + k, i] = quantise(p[k])
        for k in range(per):
            t, w = m * per + k, base + k
            for i in range(n):
                slot = slots[i]
                q = dG[w, i]
                before = ledger[t, slot]
                old[w, i] = before
                node = (
                    leaf_of(trees, t, X[i], indices, indptr[i], indptr[i + 1], bins) if role[i] == IN else leaf[t, slot]
                )
                at[w, i] = node
                G, H = np.int64(0), np.int64(0)
                if role[i] != IN:
                    g = gradient(np.int64(before), y[slot], k, loss)
                    G, H = -g, -hessian(g, loss.squared)
                if role[i] != OUT:
                    g = gradient(np.int64(q), y[slot], k, loss)
                    G, H = G + g, H + hessian(g, loss.squared)
                    ledger[t, slot] = q
                leaf[t, slot] = nowhere if role[i] == OUT else node
                dG[w, i], dH[w, i] = G, H
                if role[i] == AGAIN and q == before:
                    continue
                up = np.int64(node)
                while up >= 0:
                    trees.G[t, up] += G
                    trees.H[t, up] += H
                    touched[w, up] = 1
                    up = np.int64(trees.parent[t, up])
            for node in range(touched.shape[1]):
                if touched[w, node] and trees.feature[t, node] == LEAF:
                    trees.value[t, node] = value_of(trees.G[t, node], trees.H[t, node], rates)
        for i in range(n):
            if role[i] != OUT:
                for k in range(per):
                    F[i, k] += trees.value[m * per + k, at[base + k, i]]


@kernel
def visits_of(trees: Any, first_tree: int, touched: Any, units: Any, visits: Any, limits: Any, valid: Any) -> int:
    """The touched inner nodes: tree, node, G and H; the gain of their split, and whether it is one."""
    v = 0
    for w in range(len(touched)):
        t = first_tree + w
        for node in range(touched.shape[1]):
            if touched[w, node] and trees.feature[t, node] >= 0:
                left = trees.left[t, node]
                G, H, left_H = trees.G[t, node], trees.H[t, node], trees.H[t, left]
                visits[v, 0], visits[v, 1], visits[v, 2], visits[v, 3] = t, node, G, H
                valid[v] = left_H > 0 and left_H < H
                limits[v] = gain_of(trees.G[t, left], left_H, G, H, units) if valid[v] else np.inf
                v += 1
    return v


@kernel
def take_back(first: int, keep: int, slots: Any, role: Any, at: Any, old: Any, ledger: Any, leaf: Any) -> None:
    """Undo :func:`advance` on leaves and ledger for the trees from ``keep`` on; ``first`` is the first that it took."""
    for w in range(keep - first, len(at)):
        t = first + w
        for i in range(len(slots)):
            if role[i] == OUT:
                leaf[t, slots[i]] = at[w, i]
            elif role[i] == AGAIN:
                ledger[t, slots[i]] = old[w, i]


@inner_kernel
def may_grow(trees: Any, t: int, node: int, sigma: float) -> bool:
    """Whether a leaf is to be tried: its sums have moved by more than sigma of what they were when it failed."""
    H = trees.tried_h[t, node]
    if H < 0:
        return True
    G = trees.tried_g[t, node]
    return bool(abs(trees.G[t, node] - G) > sigma * abs(G) or abs(trees.H[t, node] - H) > sigma * H)


@kernel
def growing_leaves(trees: Any, first: int, touched: Any, sigma: float, most: int, needs: Any) -> None:
    """Mark in ``needs`` the trees, from ``first`` on, with a touched leaf to try and fewer than ``most`` leaves."""
    for w in range(len(touched)):
        t = first + w
        if trees.leaves[t] >= most:
            continue
        for node in range(touched.shape[1]):
            if touched[w, node] and trees.feature[t, node] == LEAF and may_grow(trees, t, node, sigma):
                needs[w] = True
