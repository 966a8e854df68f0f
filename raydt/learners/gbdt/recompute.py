"""Values that the audit of the online GBDT compares, recomputed from raw examples by dealing them down the trees.

Bins and candidates are recomputed from the raw rows of the last training; candidates are drawn from the same counter
(Lin et al., ICML 2025, section 3.3). Every candidate of every split's node is scored, from sums over binned rows.
Nothing of the fast path is imported. Not here: verdicts (``audit``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from raydt.arrays import rng
from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import AnyArray, Bools, Floats, Ints
from raydt.audits.recorded_bins import FeatureBins, MalformedModelError, derived_bins
from raydt.examples.features import Features
from raydt.messages import message
from raydt.parallel.threads import run

if TYPE_CHECKING:
    from raydt.learners.gbdt.options import GBDTOptions

#: Rows whose sums are exact in float64, if each adds less than 2**31; and what is exact.
EXACT_ROWS, EXACT = 2**22, 2**53


def exact_rows(g: Ints, h: Ints) -> int:
    """Return how many rows add up exactly in float64."""
    largest = max(int(np.abs(one).max(initial=1)) for one in (g, h))
    return max(1, min(EXACT_ROWS, EXACT // largest))


@dataclass(frozen=True)
class RecordedGBDTTree:
    """One tree's node arrays, shape (n,) each, in preorder."""

    feature: Ints
    cut: Ints
    left: Ints
    right: Ints

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def leaves(self) -> int:
        """Return the number of leaves."""
        return int((self.feature < 0).sum())

    def check(self, cuts: Ints) -> None:
        """Raise MalformedModelError unless each node is a leaf, or has a cut and the children preorder gives it."""
        n = len(self)
        feature, cut, left, right = (a.tolist() for a in (self.feature, self.cut, self.left, self.right))
        end = [0] * n
        for v in reversed(range(n)):
            if feature[v] < 0:
                sound, end[v] = left[v] == right[v] == -1, v + 1
            else:
                sound = feature[v] < len(cuts) and 0 <= cut[v] < cuts[feature[v]]
                sound = sound and left[v] == v + 1 < n and right[v] == end[v + 1] < n
                end[v] = end[right[v]] if sound else 0
            if not sound:
                shown = {"feature": f"{feature[v]}, cut {cut[v]}", "left": left[v], "right": right[v]}
                raise MalformedModelError(message("states.node", node=v, **shown))
        if n == 0 or end[0] != n:
            raise MalformedModelError(message("states.reach", reached=end[0] if n else 0, nodes=n))


def recorded_trees(state: Mapping[str, AnyArray], cuts: Ints) -> list[RecordedGBDTTree]:
    """Return the trees of a state; MalformedModelError unless in preorder over features with so many ``cuts``."""
    names = ("node_feature", "node_cut", "node_left", "node_right")
    nodes = [np.asarray(state[name], np.int64) for name in names]
    ends = np.cumsum(state["tree_nodes"])
    others = ("node_G", "node_H", "node_value", "node_tried_g", "node_tried_h")
    total = int(ends[-1]) if len(ends) else 0
    if any(len(array) != total for array in (*nodes, *(state[name] for name in others))):
        raise MalformedModelError(message("states.lengths"))
    trees = []
    for t, end in enumerate(ends.tolist()):
        begin = end - int(state["tree_nodes"][t])
        trees.append(RecordedGBDTTree(*(array[begin:end] for array in nodes)))
        try:
            trees[t].check(cuts)
        except MalformedModelError as error:
            raise MalformedModelError(error.args[0].at(f"tree {t}")) from error
    return trees


@dataclass(frozen=True)
class RecomputedTree:
    """Expected leaves and (G, H) of a tree, and of each split the candidates that are ``better`` (-1: it has none)."""

    leaf: Ints
    G: Ints
    H: Ints
    better: Ints
    gain: Floats
    best: Floats


def only(sparse: SparseRows, indices: Ints) -> SparseRows:
    """Return rows with some of their features only, ascending indices, which are numbered from 0."""
    place = np.searchsorted(indices, sparse.indices)
    kept = np.append(indices, -1)[place] == sparse.indices
    row = np.repeat(np.arange(len(sparse)), sparse.lengths)[kept]
    return SparseRows.of_lengths(np.bincount(row, minlength=len(sparse)), place[kept].astype(np.int32), len(indices))


class RawRows:
    """Binned rows, dealt down one tree after the other."""

    def __init__(
        self, X: Floats, sparse: SparseRows | None, bins: Sequence[FeatureBins], l2: float, units: tuple[float, float]
    ) -> None:
        self.codes = run([partial(b.codes, X[:, j]) for j, b in enumerate(bins)])
        self.sparse = SparseRows.empty(0, len(X)) if sparse is None else sparse
        many = self.sparse.n_features
        self.categorical = np.array([b.categorical for b in bins] + [False] * many, np.bool_)
        self.offsets = np.cumsum([0, *(b.bins for b in bins), *([2] * many)], dtype=np.int64)
        # The rows that have a 1, feature by feature.
        order = np.argsort(self.sparse.indices, kind="stable")
        self.ones = np.repeat(np.arange(len(X)), self.sparse.lengths)[order]
        self.ones_begin = np.searchsorted(self.sparse.indices[order], np.arange(many + 1))
        self.n, self.l2, self.units = len(X), l2, units

    def deal(self, tree: RecordedGBDTTree, g: Ints, h: Ints, candidates: tuple[Ints, Ints]) -> RecomputedTree:
        """Recompute everything about one tree. O(features * depth * rows)."""
        n = len(tree)
        nothing, zero = np.zeros(n, np.int64), np.zeros(n)
        out = RecomputedTree(np.zeros(self.n, np.int64), nothing, nothing.copy(), nothing.copy(), zero, zero.copy())
        used = np.unique(candidates[0][candidates[0] < len(self.codes)])
        everything = np.arange(self.n)
        root = self.histogram(everything, g, h, used) if tree.feature[0] >= 0 else None
        work: list[tuple[int, Ints, Ints | None]] = [(0, everything, root)]
        while work:
            v, rows, sums = work.pop()
            out.G[v], out.H[v] = g[rows].sum(), h[rows].sum()
            if sums is None:
                out.leaf[rows] = v
                continue
            self.judge(out, v, sums, candidates, (int(tree.feature[v]), int(tree.cut[v])))
            left = self.is_left(int(tree.feature[v]), int(tree.cut[v]), rows)
            children = [(int(tree.left[v]), rows[left]), (int(tree.right[v]), rows[~left])]
            (small, few), (large, many) = sorted(children, key=lambda child: len(child[1]))
            inner = tree.feature[small] >= 0, tree.feature[large] >= 0
            part = self.histogram(few, g, h, used) if any(inner) else None
            work.append((small, few, part if inner[0] else None))
            work.append((large, many, sums - part if inner[1] and part is not None else None))
        return out

    def is_left(self, feature: int, cut: int, rows: Ints) -> Bools:
        """Return which of some rows are on the left of a cut."""
        if feature < len(self.codes):
            codes = self.codes[feature][rows]
            left: Bools = codes == cut if self.categorical[feature] else codes <= cut
            return left
        index = feature - len(self.codes)
        zero = np.ones(self.n, np.bool_)
        zero[self.ones[self.ones_begin[index] : self.ones_begin[index + 1]]] = False
        left = zero[rows]
        return left

    def histogram(self, rows: Ints, g: Ints, h: Ints, features: Ints) -> Ints:
        """(G, H) of each bin of some of the dense features and of all sparse ones, shape (2, bins of all)."""
        sums = np.zeros((2, self.offsets[-1]), np.int64)
        together = exact_rows(g, h)
        for some in range(0, len(rows), together):
            part = rows[some : some + together]
            weights = g[part].astype(np.float64), h[part].astype(np.float64)
            for j in features.tolist():
                codes, begin, end = self.codes[j][part], int(self.offsets[j]), int(self.offsets[j + 1])
                for s in (0, 1):
                    sums[s, begin:end] += np.bincount(codes, weights[s], end - begin).astype(np.int64)
            if self.sparse.n_features:
                sparse, begin = self.sparse[part], int(self.offsets[len(self.codes)])
                for s in (0, 1):
                    each = np.repeat(weights[s], sparse.lengths)
                    ones = np.bincount(sparse.indices, each, self.sparse.n_features).astype(np.int64)
                    sums[s, begin::2] += int(weights[s].sum()) - ones
                    sums[s, begin + 1 :: 2] += ones
        return sums

    def judge(
        self, out: RecomputedTree, v: int, sums: Ints, candidates: tuple[Ints, Ints], own: tuple[int, int]
    ) -> None:
        """Score all candidates of a node, and rank its split among them."""
        feature, cut = candidates
        column = self.offsets[feature] + cut
        before = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum(sums, axis=1)], axis=1)
        up_to = before[:, column + 1] - before[:, self.offsets[feature]]
        left = np.where(self.categorical[feature], sums[:, column], up_to)
        node = np.array([out.G[v], out.H[v]])[:, None]
        right = node - left
        valid = (left[1] > 0) & (right[1] > 0)
        gains = np.where(valid, 0.0, -math.inf)
        gains[valid] = self.term(left[:, valid]) + self.term(right[:, valid]) - self.term(node)
        mine = np.flatnonzero((feature == own[0]) & (cut == own[1]) & valid)
        out.best[v] = gains.max(initial=-math.inf)
        if len(mine):
            out.gain[v], out.better[v] = gains[mine[0]], (gains > gains[mine[0]]).sum()
        else:
            out.gain[v], out.better[v] = -math.inf, -1

    def term(self, sums: Ints) -> Floats:
        """G^2 / (H + lambda) in real units."""
        G, H = sums[0] * self.units[0], sums[1] * self.units[1]
        with np.errstate(invalid="ignore", divide="ignore"):  # an empty node without lambda has no candidates
            value: Floats = G * G / (H + self.l2)
        return value


def training_bins(
    X: Floats, sparse: SparseRows | None, features: Features, options: GBDTOptions
) -> tuple[list[FeatureBins], Ints]:
    """Bins of the dense features from the raw rows of a training, and indices of the sparse ones with both values."""
    tasks = [
        partial(derived_bins, X[:, j], categorical, options.max_bins, options.binning)
        for j, categorical in enumerate(features.categorical)
    ]
    dense = run(tasks)
    indices, ones = np.unique([] if sparse is None else sparse.indices, return_counts=True)
    return dense, indices[ones < len(X)].astype(np.int64)


class RecomputedCandidates:
    """Candidates: which cuts may split, and how many a feature has at most, of dense features and ``sparse`` ones."""

    def __init__(self, bins: Sequence[FeatureBins], sparse: int, options: GBDTOptions) -> None:
        self.cuts = np.array([*(b.cuts for b in bins), *([1] * sparse)], np.int64)
        self.per_feature = math.ceil(options.candidate_fraction * options.max_bins)
        self.key = rng.stream_key(options.random_state, "gbdt candidates")
        self.total = int(np.minimum(self.cuts, self.per_feature).sum())

        # The run of a cut is the last that does not begin after it: run i of r begins at cut i n // r of n.
        self._feature = np.repeat(np.arange(len(self.cuts)), self.cuts)
        self._cut = np.arange(len(self._feature)) - (np.cumsum(self.cuts) - self.cuts)[self._feature]
        runs = np.minimum(self.cuts, self.per_feature)
        within = ((self._cut + 1) * runs[self._feature] - 1) // self.cuts[self._feature]
        self._run = (np.cumsum(runs) - runs)[self._feature] + within  # numbered through all features
        self._opens = np.flatnonzero(np.diff(self._run, prepend=-1))

    def of(self, m: int) -> tuple[Ints, Ints]:
        """Features and cuts of the candidates of iteration m, ascending: of each run the least number. O(cuts)."""
        if not len(self._run):
            return self._feature, self._cut
        drawn = rng.bits(self.key, (m << 40) + np.arange(len(self._run)))
        least = np.flatnonzero(drawn == np.minimum.reduceat(drawn, self._opens)[self._run])
        chosen = least[np.diff(self._run[least], prepend=-1) != 0]  # of equal numbers, the first
        return self._feature[chosen], self._cut[chosen]
