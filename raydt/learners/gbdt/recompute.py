"""Values that the audit of the online GBDT compares, recomputed from raw examples by dealing them down the trees.

Bins and candidates are recomputed from the raw rows of the last training; candidates are drawn from the same counter
(Lin et al., ICML 2025, section 3.3). Every candidate of every split's node is scored, from sums over binned rows.
Sums are integers: those of some rows (:class:`DealtTree`) add up to those of all, which are scored.
Nothing of the fast path is imported. Not here: verdicts (``audit``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays import elementary as rng
from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import AnyArray, Floats, Ints
from raydt.arrays.kernel import kernel
from raydt.audits.bins import FeatureBins, MalformedModelError
from raydt.messages import message
from raydt.parallel import run

if TYPE_CHECKING:
    from raydt.learners.gbdt.options import GBDTOptions


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


class DealtTree(NamedTuple):
    """A tree with some rows dealt down, and sums of these; of a split those to the left of each candidate."""

    leaf: AnyArray  #: Shape (rows,), of the least type.
    G: Ints  #: Shape (nodes,), as ``H``.
    H: Ints
    left: Ints  #: (G, H) on the left: shape (2, splits, candidates), splits in preorder.


def added(parts: Sequence[DealtTree]) -> DealtTree:
    """Return the sums of all rows, from those of parts of them; it has no leaves."""
    G, H, left = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("G", "H", "left"))
    return DealtTree(parts[0].leaf[:0], G, H, left)


@dataclass(frozen=True)
class RecomputedTree:
    """Expected (G, H) of the nodes of a tree, and of each split how many candidates are ``better`` (-1: it is none)."""

    G: Ints
    H: Ints
    better: Ints
    gain: Floats
    best: Floats


class Gains(NamedTuple):
    """The gain of a split as a function of integer sums: ``units`` of G and H, and the regularization."""

    units: tuple[float, float]
    l2: float

    def scored(self, tree: RecordedGBDTTree, candidates: tuple[Ints, Ints], sums: DealtTree) -> RecomputedTree:
        """Score the candidates of each split by the sums of all rows, and rank the split among them."""
        n, (feature, cut) = len(tree), candidates
        better, gain, best = np.zeros(n, np.int64), np.zeros(n), np.zeros(n)
        for at, v in enumerate(np.flatnonzero(tree.feature >= 0).tolist()):
            node, left = np.array([sums.G[v], sums.H[v]])[:, None], sums.left[:, at]
            right = node - left
            valid = (left[1] > 0) & (right[1] > 0)
            gains = np.where(valid, 0.0, -math.inf)
            gains[valid] = self.term(left[:, valid]) + self.term(right[:, valid]) - self.term(node)
            mine = np.flatnonzero((feature == tree.feature[v]) & (cut == tree.cut[v]) & valid)
            best[v] = gains.max(initial=-math.inf)
            if len(mine):
                gain[v], better[v] = gains[mine[0]], (gains > gains[mine[0]]).sum()
            else:
                gain[v], better[v] = -math.inf, -1
        return RecomputedTree(sums.G, sums.H, better, gain, best)

    def term(self, sums: Ints) -> Floats:
        """G^2 / (H + lambda) in real units."""
        G, H = sums[0] * self.units[0], sums[1] * self.units[1]
        with np.errstate(invalid="ignore", divide="ignore"):  # an empty node without lambda has no candidates
            value: Floats = G * G / (H + self.l2)
        return value


def only(sparse: SparseRows, indices: Ints) -> SparseRows:
    """Return rows with some of their features only, ascending indices, which are numbered from 0."""
    place = np.searchsorted(indices, sparse.indices)
    kept = np.append(indices, -1)[place] == sparse.indices
    row = np.repeat(np.arange(len(sparse)), sparse.lengths)[kept]
    return SparseRows.of_lengths(np.bincount(row, minlength=len(sparse)), place[kept].astype(np.int32), len(indices))


class Divided(NamedTuple):
    """Bins of features by the candidates of an iteration, which divide them into segments.

    The bins on the left of a candidate are whole segments: 10 bins with cuts at 2 and 6 have the segments 0 to 2, 3 to
    6 and 7 to 9. A kept category has a segment of its own, and a sparse feature has two.
    """

    features: Ints  #: Dense ones with candidates, ascending, shape (features,).
    start: Ints  #: Where the bins of each of these begin in ``segment``.
    segment: npt.NDArray[np.uint32]  #: Of each bin of these features, among the segments of all.
    #: ``first``, ``last``: Shape (candidates,): the segments on the left of each.
    first: Ints
    last: Ints
    sparse: int  #: Where those of sparse features begin.
    segments: int

    def to_the_left(self, sums: Ints) -> Ints:
        """Return (G, H) to the left of each candidate from those of each segment, shape (2, candidates)."""
        before = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(sums, axis=0)])
        left: Ints = (before[self.last + 1] - before[self.first]).T
        return left


class Walk(NamedTuple):
    """A tree as rows pass it, by node: a leaf is its own child, so that all rows take as many steps as it has levels.

    The bins on the left of a split are ``width`` after ``low``: 0 to the cut, or the cut alone of a category.
    """

    column: npt.NDArray[np.uint64]  #: Shape (nodes,), as ``low`` and ``width``; of the codes of a row.
    low: npt.NDArray[np.uint64]
    width: npt.NDArray[np.uint64]
    child: Ints  #: Left and right, shape (nodes, 2).
    place: Ints  #: Of a leaf among the leaves in preorder.
    levels: int


#: Rows that pass the tree together, level by level: the processor waits for many of them at once.
_ROWS = 256


@kernel
def _pass_down(codes: Any, walk: Any, g: Any, h: Any, divided: Any, leaf: Any, sums: Any) -> None:
    """Enter the leaf of each row, and add its (G, H) to ``sums``, shape (leaves, segments + 1, 2), last is all."""
    column, low, width, child, features = walk.column, walk.low, walk.width, walk.child, divided.features
    for begin in range(0, len(codes), _ROWS):
        end = min(begin + _ROWS, len(codes))
        for i in range(begin, end):
            leaf[i] = 0
        for _ in range(walk.levels):
            for i in range(begin, end):
                v = np.uint64(leaf[i])  # unsigned: no test for an index from the end, and what is below low is far
                right = np.uint64(codes[i, column[v]]) - low[v] > width[v]
                leaf[i] = child[v, np.uint64(right)]
        for i in range(begin, end):
            of_leaf, g_i, h_i = sums[walk.place[np.uint64(leaf[i])]], np.int64(g[i]), np.int64(h[i])
            for k in range(len(features)):
                at = divided.segment[np.uint64(divided.start[k]) + np.uint64(codes[i, np.uint64(features[k])])]
                of_leaf[at, 0] += g_i
                of_leaf[at, 1] += h_i
            of_leaf[divided.segments, 0] += g_i
            of_leaf[divided.segments, 1] += h_i


class RawRows:
    """Binned rows, dealt down one tree after the other."""

    def __init__(self, X: Floats, sparse: SparseRows | None, bins: Sequence[FeatureBins]) -> None:
        self.n, self.dense = len(X), len(bins)
        widest = max((b.bins for b in bins), default=1)
        self.codes = np.empty((self.n, self.dense), np.min_scalar_type(widest))  # what a row has is together
        run([partial(self._encode, j, b, X[:, j]) for j, b in enumerate(bins)])
        self.sparse = SparseRows.empty(0, len(X)) if sparse is None else sparse
        self.categorical = np.array([b.categorical for b in bins], np.bool_)
        self.bins = np.array([b.bins for b in bins], np.int64)

    def _encode(self, j: int, bins: FeatureBins, x: Floats) -> None:
        self.codes[:, j] = bins.codes(x)

    def divided(self, candidates: tuple[Ints, Ints]) -> Divided:
        """Divide the bins by candidates, features and cuts, ascending. O(bins)."""
        feature, cut = candidates
        used = np.unique(feature[feature < self.dense])
        ends, tables = np.searchsorted(feature, np.append(used, self.dense)), list[Ints]()
        first, last, begin = np.empty_like(feature), np.empty_like(feature), 0
        for k, j in enumerate(used.tolist()):
            own, bins = slice(ends[k], ends[k + 1]), np.arange(self.bins[j])
            count = len(cut[own])
            last[own] = begin + np.arange(count)
            if self.categorical[j]:
                first[own] = last[own]
                tables.append(np.full(len(bins), begin + count))
                tables[k][cut[own]] = last[own]
            else:
                first[own] = begin
                tables.append(begin + np.searchsorted(cut[own], bins))
            begin += count + 1
        first[ends[-1] :] = last[ends[-1] :] = begin + 2 * (feature[ends[-1] :] - self.dense)
        starts, table = np.cumsum([0, *map(len, tables)])[:-1], np.concatenate([np.empty(0, np.int64), *tables])
        return Divided(used, starts, table.astype(np.uint32), first, last, begin, begin + 2 * self.sparse.n_features)

    def deal(self, tree: RecordedGBDTTree, g: Ints, h: Ints, divided: Divided) -> DealtTree:
        """Deal the rows down one tree, and sum up their g and h, shape (rows,). O((features + depth) * rows)."""
        n, inner = len(tree), tree.feature >= 0
        leaf, left = (
            np.empty(self.n, np.min_scalar_type(n)),
            np.empty((2, int(inner.sum()), len(divided.first)), np.int64),
        )
        sums = np.zeros((n - int(inner.sum()), divided.segments + 1, 2), np.int64)
        codes, walk = self._walk(tree)
        _pass_down(codes, walk, g, h, divided, leaf, sums)
        if self.sparse.n_features:
            self._add_sparse(walk.place[leaf], g, h, divided, sums)
        out, place = DealtTree(leaf, np.empty(n, np.int64), np.empty(n, np.int64), left), np.cumsum(inner) - 1
        above = list[Ints]()  # sums of the subtrees that come later in preorder, whose parents have not come yet
        for v in reversed(range(n)):
            below = above.pop() + above.pop() if inner[v] else sums[walk.place[v]]
            out.G[v], out.H[v] = below[divided.segments]
            if inner[v]:
                left[:, place[v]] = divided.to_the_left(below)
            above.append(below)
        return out

    def _walk(self, tree: RecordedGBDTTree) -> tuple[AnyArray, Walk]:
        """Return the codes of the rows, with a column for each sparse feature that splits the tree, and the tree."""
        inner, itself = tree.feature >= 0, np.arange(len(tree))
        sparse = np.unique(tree.feature[tree.feature >= self.dense])
        column = np.where(tree.feature < self.dense, tree.feature, self.dense + np.searchsorted(sparse, tree.feature))
        equal = inner & np.append(self.categorical, False)[np.minimum(np.maximum(tree.feature, 0), self.dense)]
        low, codes, depth = np.where(equal, tree.cut, 0), self.codes, np.zeros(len(tree), np.int64)
        if len(sparse):
            rows = np.repeat(np.arange(self.n), self.sparse.lengths)
            ones = [np.bincount(rows[self.sparse.indices == j - self.dense], minlength=self.n) for j in sparse.tolist()]
            codes = np.concatenate([codes, np.array(ones, codes.dtype).T], axis=1)
        if not codes.shape[1]:
            codes = np.zeros((self.n, 1), codes.dtype)  # which a tree of one node looks at
        for v in np.flatnonzero(inner).tolist():
            depth[[tree.left[v], tree.right[v]]] = depth[v] + 1
        child = np.stack([np.where(inner, tree.left, itself), np.where(inner, tree.right, itself)], axis=1)
        column, low, width = (np.where(inner, one, 0).astype(np.uint64) for one in (column, low, tree.cut - low))
        return codes, Walk(column, low, width, child, np.cumsum(~inner) - 1, int(depth.max()))

    def _add_sparse(self, place: Ints, g: Ints, h: Ints, divided: Divided, sums: Ints) -> None:
        """Add (G, H) of each value of all sparse features to those of the leaves, of which each row has a place."""
        lengths, begin, whole = self.sparse.lengths, divided.sparse, divided.segments
        at = np.repeat(place, lengths), begin + 1 + 2 * self.sparse.indices.astype(np.int64)
        for s, values in enumerate((g, h)):
            np.add.at(sums[:, :, s], at, np.repeat(values, lengths))
        sums[:, begin:whole:2] = sums[:, whole:] - sums[:, begin + 1 : whole : 2]


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
