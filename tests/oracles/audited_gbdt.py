"""The audit of a GBDT without kernels: rows dealt down the trees and compared with NumPy, array after array.

A weight is there for every row, every range of a ledger entry is computed, and all rows of a tree are looked at, so
that nothing is left out that need not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import Bools, Floats, Ints
from raydt.audits.bins import FeatureBins, PartsHere, effective, times
from raydt.audits.recorded_tree import AuditReport
from raydt.examples.updates import Features, History
from raydt.learners.gbdt.audit import AuditedRows, AuditedTrees, TreeOfRows, TreesOfRows, audit_parts
from raydt.learners.gbdt.derivatives import LARGEST_RESIDUAL, ONE, quantised
from raydt.learners.gbdt.recompute import DealtTree, RecordedGBDTTree, only

#: Rows whose sums are exact in float64, if each adds less than 2**31; and what is exact.
EXACT_ROWS, EXACT = 2**22, 2**53


def exact_rows(g: Ints, h: Ints) -> int:
    """Return how many rows add up exactly in float64."""
    largest = max(int(np.abs(one).max(initial=1)) for one in (g, h))
    return max(1, min(EXACT_ROWS, EXACT // largest))


class SlowRawRows:
    """Binned rows, dealt down one tree after the other."""

    def __init__(self, X: Floats, sparse: SparseRows | None, bins: Sequence[FeatureBins]) -> None:
        self.codes = [b.codes(X[:, j]) for j, b in enumerate(bins)]
        self.sparse = SparseRows.empty(0, len(X)) if sparse is None else sparse
        many = self.sparse.n_features
        self.categorical = np.array([b.categorical for b in bins] + [False] * many, np.bool_)
        self.offsets = np.cumsum([0, *(b.bins for b in bins), *([2] * many)], dtype=np.int64)
        self.n = len(X)

    def deal(self, tree: RecordedGBDTTree, g: Ints, h: Ints, candidates: tuple[Ints, Ints]) -> DealtTree:
        """Deal the rows down one tree, and sum up their g and h at every node from nothing."""
        n, inner = len(tree), tree.feature >= 0
        place = np.cumsum(inner) - 1
        left = np.empty((2, int(inner.sum()), len(candidates[0])), np.int64)
        out = DealtTree(np.zeros(self.n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64), left)
        work: list[tuple[int, Ints]] = [(0, np.arange(self.n))]
        while work:
            v, rows = work.pop()
            out.G[v], out.H[v] = g[rows].sum(), h[rows].sum()
            if not inner[v]:
                out.leaf[rows] = v
                continue
            left[:, place[v]] = self.to_the_left(self.histogram(rows, g, h), candidates)
            goes_left = self.is_left(int(tree.feature[v]), int(tree.cut[v]), rows)
            work += [(int(tree.left[v]), rows[goes_left]), (int(tree.right[v]), rows[~goes_left])]
        return out

    def to_the_left(self, sums: Ints, candidates: tuple[Ints, Ints]) -> Ints:
        """Return (G, H) to the left of each candidate from those of each bin."""
        feature, cut = candidates
        column = self.offsets[feature] + cut
        before = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum(sums, axis=1)], axis=1)
        up_to = before[:, column + 1] - before[:, self.offsets[feature]]
        left: Ints = np.where(self.categorical[feature], sums[:, column], up_to)
        return left

    def is_left(self, feature: int, cut: int, rows: Ints) -> Bools:
        """Return which of some rows are on the left of a cut."""
        if feature < len(self.codes):
            codes = self.codes[feature][rows]
            left: Bools = codes == cut if self.categorical[feature] else codes <= cut
            return left
        index = feature - len(self.codes)
        return np.array([index not in self.sparse.row(row) for row in rows.tolist()], np.bool_)

    def histogram(self, rows: Ints, g: Ints, h: Ints) -> Ints:
        """(G, H) of each bin of all features, shape (2, bins of all)."""
        sums = np.zeros((2, self.offsets[-1]), np.int64)
        together = exact_rows(g, h)
        for some in range(0, len(rows), together):
            part = rows[some : some + together]
            weights = g[part].astype(np.float64), h[part].astype(np.float64)
            for j, of_feature in enumerate(self.codes):
                begin, end = int(self.offsets[j]), int(self.offsets[j + 1])
                for s in (0, 1):
                    sums[s, begin:end] += np.bincount(of_feature[part], weights[s], end - begin).astype(np.int64)
            if self.sparse.n_features:
                sparse, begin = self.sparse[part], int(self.offsets[len(self.codes)])
                for s in (0, 1):
                    each = np.repeat(weights[s], sparse.lengths)
                    ones = np.bincount(sparse.indices, each, self.sparse.n_features).astype(np.int64)
                    sums[s, begin::2] += int(weights[s].sum()) - ones
                    sums[s, begin + 1 :: 2] += ones
        return sums


class SlowAuditedRows(AuditedRows):
    """Rows of a state, tree after tree."""

    def begin(self, bins: list[FeatureBins], with_cut: Ints, factors: Ints | None) -> None:
        """Begin with the trees."""
        history, rows = self.history, self.source[self.held]
        self._trees = AuditedTrees(self.options, self.state, bins, with_cut)
        self._y, self._id = history.y[rows], self.state["id"][self.held]
        self._counts = effective(np.array(self._weight[rows]), self._y, factors)
        ones = None if history.sparse is None else only(history.sparse[rows], with_cut)
        self._slow = SlowRawRows(history.X[rows], ones, bins)
        self._F = np.full((len(rows), self._trees.width), self._trees.loss.origin)

    def trees(self, iterations: range) -> TreesOfRows:
        """Deal the rows down the trees of the next iterations."""
        found, stale, too_stale, width = list[TreeOfRows](), 0.0, 0, self._trees.width
        scale = self._trees.unit if self.options.regression else 1.0 / ONE
        for m in iterations:
            fresh = quantised(self._F, self._y, self._trees.loss)
            low, high = self._range_of(self._F, fresh)
            for k in range(width):
                t = m * width + k
                tree, leaf = self._one(t, k)
                entry = self.state["ledger"][self.held, t].astype(np.int64)
                found.append(tree)
                stale = max(stale, float(np.abs(entry - fresh[k]).max(initial=0)) * scale)
                too_stale += int(((entry < low[k]) | (entry > high[k])).sum())
                self._F[:, k] += self.state["node_value"][self._trees.nodes(t)][leaf]
        return TreesOfRows(found, stale, too_stale)

    def _one(self, t: int, k: int) -> tuple[TreeOfRows, Ints]:
        """Deal the rows down one tree."""
        trees, options = self._trees, self.options
        entry = self.state["ledger"][self.held, t].astype(np.int64)
        g = entry if options.regression else ONE * (self._y == (1 if trees.binary else k)) - entry
        h = self._counts if options.regression else times(np.abs(g) * (ONE - np.abs(g)), self._counts)
        dealt = self._slow.deal(trees.tree[t], times(g, self._counts), h, trees.candidates.of(t // trees.width))
        low, high = (-LARGEST_RESIDUAL, LARGEST_RESIDUAL) if options.regression else (1, ONE - 1)
        wrong = {"leaf": self.state["leaf"][self.held, t] != dealt.leaf, "ledger": (entry < low) | (entry > high)}
        if t < trees.width:
            start = np.full((len(self._y), trees.width), trees.loss.origin)
            wrong["ledger of an empty model"] = entry != quantised(start, self._y, trees.loss)[t]
        named = {name: self._named(rows) for name, rows in wrong.items()}
        return TreeOfRows(dealt._replace(leaf=dealt.leaf[:0]), named), dealt.leaf


def slow_audit(options: Any, features: Features, state: Any, history: History) -> AuditReport:
    """As the audit of the learner."""
    return audit_parts(options, features, state, PartsHere([SlowAuditedRows(options, features, state, history)]))
