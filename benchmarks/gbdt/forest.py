"""The trees of a fitted classifier as arrays: routing, sums of the candidates' two sides, and leaf values anew.

Reads the state that checkpoints write and computes everything else here, from the raw rows, in NumPy. Numeric features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays import elementary as rng

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: A probability of 1, and the units of G and H.
ONE = 65536
G_UNIT, H_UNIT = 2.0**-16, 2.0**-32
LARGEST_LEAF = 128.0


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree in preorder; ``end[i]`` is the place after the subtree of node ``i``."""

    feature: Ints
    cut: Ints
    left: Ints
    right: Ints
    value: Floats
    end: Ints


@dataclass(frozen=True, slots=True)
class Sums:
    """G and H left of every candidate and of the whole node, in the paper's units, and rows likewise.

    Shapes (inner nodes, candidates) and (inner nodes, 1).
    """

    G_left: Floats
    H_left: Floats
    n_left: Floats
    G: Floats
    H: Floats
    n: Floats

    def valid(self) -> npt.NDArray[np.bool_]:
        """Whether both sides have rows."""
        return (self.H_left > 0) & (self.H - self.H_left > 0)

    def gains(self, l2: float) -> Floats:
        """Gain of every candidate, -inf where one side is empty."""
        with np.errstate(divide="ignore", invalid="ignore"):
            both = self.G_left**2 / (self.H_left + l2) + (self.G - self.G_left) ** 2 / (self.H - self.H_left + l2)
            gain = both - self.G**2 / (self.H + l2)
        return np.where(self.valid(), gain, -np.inf)


class Forest:
    """Trees, bins, and the live rows with their leaves and ledger; ids must be numbers of the training rows."""

    def __init__(self, model: Any) -> None:
        state, _ = model.session_.state()
        self.options = model.get_params()
        self.ids, self.y = state["id"], state["y"].astype(np.int64)
        self.leaf, self.ledger = state["leaf"].astype(np.int64), state["ledger"].astype(np.int64)
        self.classes = int(state["classes"][0])
        self.per_iteration = 1 if self.classes <= 2 else self.classes
        self.trees = _trees(state)
        borders = pairwise(state["bins_starts"])
        self.boundaries = [state["bins_values"][a:b] for a, b in borders]
        self.has_nan = state["bins_seen"].astype(np.bool_)
        #: First histogram column of each feature, and their number: a bin each and one for NaN.
        self.start = np.concatenate([[0], np.cumsum([len(b) + 2 for b in self.boundaries])]).astype(np.int64)

    @property
    def iterations(self) -> int:
        """Iterations."""
        return len(self.trees) // self.per_iteration

    def codes(self, X: Floats) -> Ints:
        """Bin of every value, shape (n, d): the number of boundaries below it; NaN comes after all bins."""
        parts = []
        for column, boundaries in zip(X.T, self.boundaries, strict=True):
            code = np.searchsorted(boundaries, column, side="left")
            parts.append(np.where(np.isnan(column), len(boundaries) + 1, code))
        return np.column_stack(parts).astype(np.int64)

    def route(self, codes: Ints) -> Ints:
        """Leaf of every row in every tree, shape (n, trees)."""
        out = np.empty((len(codes), len(self.trees)), dtype=np.int64)
        rows = np.arange(len(codes))
        for t, tree in enumerate(self.trees):
            at = np.zeros(len(codes), dtype=np.int64)
            while (inner := tree.feature[at] >= 0).any():
                here, i = at[inner], rows[inner]
                goes_left = codes[i, tree.feature[here]] <= tree.cut[here]
                at[inner] = np.where(goes_left, tree.left[here], tree.right[here])
            out[:, t] = at
        return out

    def gradients(self, ledger: Ints, y: Ints) -> Ints:
        """g of every row and tree, from ledger entries of shape (n, trees)."""
        tree_class = np.arange(len(self.trees)) % self.per_iteration if self.per_iteration > 1 else np.ones(1, np.int64)
        return (y[:, None] == tree_class) * ONE - ledger

    def ledger_of(self, leaf: Ints) -> Ints:
        """What the ledger of new rows in these leaves would be, shape (n, trees)."""
        out = np.empty_like(leaf)
        F = np.zeros((len(leaf), self.per_iteration))
        for m in range(self.iterations):
            trees = range(m * self.per_iteration, (m + 1) * self.per_iteration)
            out[:, trees] = quantised(F)
            F += np.column_stack([self.trees[t].value[leaf[:, t]] for t in trees])
        return out

    def fresh_values(self, leaf: Ints, y: Ints) -> list[Floats]:
        """Values of the nodes of every tree if the derivatives of all rows were computed anew, structure as it is."""
        values = []
        F = np.zeros((len(leaf), self.per_iteration))
        for m in range(self.iterations):
            q = quantised(F)
            for k in range(self.per_iteration):
                t = m * self.per_iteration + k
                target = (y == (k if self.per_iteration > 1 else 1)) * ONE
                g = target - q[:, k]
                h = np.abs(g) * (ONE - np.abs(g))
                nodes = len(self.trees[t].feature)
                G = np.bincount(leaf[:, t], g, nodes) * G_UNIT
                values.append(self._value(G, np.bincount(leaf[:, t], h, nodes) * H_UNIT))
                F[:, k] += values[-1][leaf[:, t]]
        return values

    def _value(self, G: Floats, H: Floats) -> Floats:
        factor = (self.classes - 1) / self.classes if self.per_iteration > 1 else 1.0
        beta = np.divide(G, H + self.options["l2_regularization"], out=np.zeros_like(G), where=H > 0) * factor
        return self.options["learning_rate"] * np.clip(beta, -LARGEST_LEAF, LARGEST_LEAF)

    def candidates(self, m: int) -> Ints:
        """Histogram columns of the cuts that iteration ``m`` tries, ascending: of each run of neighbours one."""
        most = math.ceil(self.options["candidate_fraction"] * self.options["max_bins"])
        key = rng.stream_key(self.options["random_state"], "gbdt candidates")
        found, offset = [], 0
        for j, boundaries in enumerate(self.boundaries):
            available = len(boundaries) + int(self.has_nan[j])
            chosen = np.arange(available)
            if available > most:
                drawn = rng.bits(key, (m << 40) + offset + chosen)
                runs = pairwise(i * available // most for i in range(most + 1))
                chosen = np.array([begin + int(np.argmin(drawn[begin:end])) for begin, end in runs])
            found.append(self.start[j] + chosen)
            offset += available
        return np.concatenate(found)

    def sums(self, t: int, codes: Ints, leaf: Ints, g: Ints, cuts: Ints) -> Sums:
        """Of the inner nodes of tree ``t`` over the given rows; ``leaf`` and ``g`` have shape (n,)."""
        tree, width = self.trees[t], int(self.start[-1])
        place = (leaf[:, None] * width + self.start[:-1] + codes).ravel()
        size = len(tree.feature) * width
        first = self.start[np.searchsorted(self.start, cuts, side="right") - 1]
        inner = np.flatnonzero(tree.feature >= 0)
        left, whole = [], []
        for weight in (g * G_UNIT, np.abs(g) * (ONE - np.abs(g)) * H_UNIT, np.ones(len(g))):
            histogram = np.bincount(place, np.repeat(weight, codes.shape[1]), size).reshape(-1, width)
            upto = np.zeros((len(histogram) + 1, width + 1))  # sums before a node and before a column
            np.cumsum(np.cumsum(histogram, axis=0), axis=1, out=upto[1:, 1:])
            node = upto[tree.end[inner]] - upto[inner]
            left.append(node[:, cuts + 1] - node[:, first])
            whole.append(node[:, self.start[1]][:, None])
        return Sums(*left, *whole)


def quantised(F: Floats) -> Ints:
    """Probabilities of logits, shape (n, K'), as numbers of 65536ths."""
    if F.shape[1] == 1:
        p = 1.0 / (1.0 + np.exp(-F))
    else:
        e = np.exp(F - F.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
    return np.clip(np.floor(p * ONE + 0.5), 1, ONE - 1).astype(np.int64)


def _trees(state: dict[str, npt.NDArray[Any]]) -> list[Tree]:
    names = ("node_feature", "node_cut", "node_left", "node_right")
    borders = np.concatenate([[0], np.cumsum(state["tree_nodes"])]).astype(np.int64)
    trees = []
    for a, b in pairwise(borders):
        feature, cut, left, right = (state[name][a:b].astype(np.int64) for name in names)
        end = np.arange(1, b - a + 1)
        for i in range(b - a - 1, -1, -1):
            if feature[i] >= 0:
                end[i] = end[right[i]]
        trees.append(Tree(feature, cut, left, right, state["node_value"][a:b], end))
    return trees
