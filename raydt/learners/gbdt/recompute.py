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
from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
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
    """Rows by the candidates of an iteration, which divide the bins of their features into segments.

    The bins on the left of a candidate are whole segments: 10 bins with cuts at 2 and 6 have the segments 0 to 2, 3 to
    6 and 7 to 9. A kept category has a segment of its own, and a sparse feature has two.
    """

    codes: AnyArray  #: Segment of each row, shape (rows, dense features with candidates), of the least type.
    begin: npt.NDArray[np.uint32]  #: Where the segments of each of these features begin among those of all.
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


@kernel
def _divide(codes: Any, features: Any, starts: Any, table: Any, out: Any) -> None:
    """Look up the segments of the bins of some features: ``out[i, k] = table[starts[k] + codes[i, features[k]]]``."""
    for i in range(len(codes)):
        for k in range(len(features)):
            out[i, k] = table[starts[k] + codes[i, features[k]]]


@kernel
def _sum_up(codes: Any, rows: Any, gradients: Any, begin: Any, sums: Any) -> None:
    """Add (G, H) of some rows to those of their segments, ``sums`` of shape (segments of all, 2)."""
    for i in range(len(rows)):
        row = rows[i]
        g, h = gradients[row, 0], gradients[row, 1]
        for k in range(len(begin)):
            segment = begin[k] + codes[row, k]  # unsigned: no test for an index from the end
            sums[segment, 0] += g
            sums[segment, 1] += h


@kernel
def _part(codes: Any, feature: int, cut: int, equal: bool, rows: Any, spare: Any, gradients: Any, left: Any) -> int:
    """Put the rows on the left of a cut first, in their order; return how many, and add their (G, H) to ``left``.

    Each row is written to both sides, of which one continues behind it: a branch that half of the rows take costs more.
    """
    n, one, column, G, H = np.uint64(0), np.uint64(1), np.uint64(feature), np.int64(0), np.int64(0)
    m = n
    for i in range(len(rows)):
        row = rows[i]
        code = codes[row, column]
        on_left = np.uint64(code == cut) if equal else np.uint64(code <= cut)
        rows[n], spare[m] = row, row
        n += on_left
        m += one - on_left
        G += np.int64(on_left) * gradients[row, 0]
        H += np.int64(on_left) * gradients[row, 1]
    for i in range(m):
        rows[n + i] = spare[i]
    left[0] += G
    left[1] += H
    on_the_left: int = np.int64(n)
    return on_the_left


class RawRows:
    """Binned rows, dealt down one tree after the other."""

    def __init__(self, X: Floats, sparse: SparseRows | None, bins: Sequence[FeatureBins]) -> None:
        self.n, self.dense = len(X), len(bins)
        widest = max((b.bins for b in bins), default=1)
        self.codes = np.empty((self.n, self.dense), np.min_scalar_type(widest))  # what a row has is together
        run([partial(self._encode, j, b, X[:, j]) for j, b in enumerate(bins)])
        self.sparse = SparseRows.empty(0, len(X)) if sparse is None else sparse
        many = self.sparse.n_features
        self.categorical = np.array([b.categorical for b in bins], np.bool_)
        self.bins = np.array([b.bins for b in bins], np.int64)
        # The rows that have a 1, feature by feature.
        order = np.argsort(self.sparse.indices, kind="stable")
        self.ones = np.repeat(np.arange(len(X)), self.sparse.lengths)[order]
        self.ones_begin = np.searchsorted(self.sparse.indices[order], np.arange(many + 1))

    def _encode(self, j: int, bins: FeatureBins, x: Floats) -> None:
        self.codes[:, j] = bins.codes(x)

    def divided(self, candidates: tuple[Ints, Ints]) -> Divided:
        """Divide the bins by candidates, features and cuts, ascending. O(rows * features)."""
        feature, cut = candidates
        used = np.unique(feature[feature < self.dense])
        ends, tables = np.searchsorted(feature, np.append(used, self.dense)), list[Ints]()
        first, last, begin = np.empty_like(feature), np.empty_like(feature), np.zeros(len(used) + 1, np.int64)
        for k, j in enumerate(used.tolist()):
            own, bins = slice(ends[k], ends[k + 1]), np.arange(self.bins[j])
            count = len(cut[own])
            last[own] = begin[k] + np.arange(count)
            if self.categorical[j]:
                first[own] = last[own]
                tables.append(np.full(len(bins), count))
                tables[k][cut[own]] = np.arange(count)
            else:
                first[own] = begin[k]
                tables.append(np.searchsorted(cut[own], bins))
            begin[k + 1] = begin[k] + count + 1
        sparse = int(begin[-1])
        first[ends[-1] :] = last[ends[-1] :] = sparse + 2 * (feature[ends[-1] :] - self.dense)
        table, starts = np.concatenate([np.empty(0, np.int64), *tables]), np.cumsum([0, *map(len, tables)])
        codes = np.empty((self.n, len(used)), np.min_scalar_type(int(table.max(initial=0))))
        _divide(self.codes, used, starts, table.astype(codes.dtype), codes)
        return Divided(codes, begin[:-1].astype(np.uint32), first, last, sparse, sparse + 2 * self.sparse.n_features)

    def deal(self, tree: RecordedGBDTTree, gradients: AnyArray, divided: Divided) -> DealtTree:
        """Deal the rows down one tree, and sum up their g and h, shape (rows, 2). O(features * depth * rows)."""
        n, inner = len(tree), tree.feature >= 0
        place = np.cumsum(inner) - 1
        left = np.empty((2, int(inner.sum()), len(divided.first)), np.int64)
        leaf = np.zeros(self.n, np.min_scalar_type(n))
        out = DealtTree(leaf, np.zeros(n, np.int64), np.zeros(n, np.int64), left)
        rows, spare = np.arange(self.n, dtype=np.uint32), np.empty(self.n, np.uint32)
        root = self.histogram(rows, gradients, divided) if inner[0] else None
        work: list[tuple[int, AnyArray, Ints, Ints | None]] = [(0, rows, gradients.sum(axis=0, dtype=np.int64), root)]
        while work:
            v, rows, both, sums = work.pop()
            out.G[v], out.H[v] = both
            if sums is None:
                leaf[rows] = v
                continue
            left[:, place[v]] = divided.to_the_left(sums)
            of_left, feature, cut = np.zeros(2, np.int64), int(tree.feature[v]), int(tree.cut[v])
            if feature < self.dense:
                equal = bool(self.categorical[feature])
                end = _part(self.codes, feature, cut, equal, rows, spare, gradients, of_left)
            else:
                zero = self.is_zero(feature - self.dense, rows)
                end = int(zero.sum())
                rows[:] = np.concatenate([rows[zero], rows[~zero]])
                of_left += gradients[rows[:end]].sum(axis=0, dtype=np.int64)
            children = [(int(tree.left[v]), rows[:end], of_left), (int(tree.right[v]), rows[end:], both - of_left)]
            (small, few, of_few), (large, many, of_many) = sorted(children, key=lambda child: len(child[1]))
            part = self.histogram(few, gradients, divided) if inner[small] or inner[large] else None
            work.append((small, few, of_few, part if inner[small] else None))
            work.append((large, many, of_many, sums - part if inner[large] and part is not None else None))
        return out

    def is_zero(self, index: int, rows: AnyArray) -> Bools:
        """Return in which of some rows a sparse feature is 0."""
        zero = np.ones(self.n, np.bool_)
        zero[self.ones[self.ones_begin[index] : self.ones_begin[index + 1]]] = False
        of_rows: Bools = zero[rows]
        return of_rows

    def histogram(self, rows: AnyArray, gradients: AnyArray, divided: Divided) -> Ints:
        """(G, H) of each segment, and of each value of all sparse features, shape (segments of all, 2)."""
        sums, begin = np.zeros((divided.segments, 2), np.int64), divided.sparse
        _sum_up(divided.codes, rows, gradients, divided.begin, sums)
        if self.sparse.n_features:
            ones, of_rows = self.sparse[rows], gradients[rows]
            for s, total in enumerate(of_rows.sum(axis=0, dtype=np.int64)):
                np.add.at(sums[:, s], begin + 1 + 2 * ones.indices, np.repeat(of_rows[:, s], ones.lengths))
                sums[begin::2, s] = total - sums[begin + 1 :: 2, s]
        return sums


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
