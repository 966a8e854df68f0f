"""Predictions of a saved tree some of whose leaves predict by naive Bayes.

What such a leaf needs is stored as logarithms, whole numbers of ``naive_bayes``, of the counts that are not 0: a model
predicts the same on any machine. Its shares are those of naive Bayes, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import AnyArray, Arrays, Bools, Floats, Int32s, Ints
from raydt.batches.binning import Bins, code_of
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.learners.confidence_tree.naive_bayes import UNIT, SharedLogs, pools_of
from raydt.learners.confidence_tree.normal_bayes import distance, normal_scores
from raydt.learners.confidence_tree.schema import NAIVE
from raydt.messages import message
from raydt.parallel.threads import ranges, run
from raydt.presentation.words import counted
from raydt.trees.predictor import TreePredictor
from raydt.trees.tree_sum import TreeSum

#: Arrays of a model by cell of a leaf that predicts by naive Bayes: position among these leaves, feature, group of its
#: bins (0 of a sparse feature), class, and T of what was counted; ascending.
CELLS = ("leaf", "feature", "group", "class", "log")
#: Rows that are worth the start of another thread.
_FEW_ROWS = 1 << 11


def naive_arrays(leaves: AnyArray, priors: Ints, replies: Sequence[Ints], bins: Bins, logs: SharedLogs) -> Arrays:
    """Return the arrays ``NAIVE`` of a model for its leaves that predict by naive Bayes, and the bins.

    ``leaves`` are their positions in preorder, shape (n,), ``priors`` has shape (n, K). Each reply of a shard, shape
    (5, cells), has the first four of ``CELLS``, and the number counted. ``logs`` gives T.
    """
    cells = np.concatenate([np.empty((5, 0), dtype=np.int64), *replies], axis=1)
    cells = cells[:, np.lexsort(cells[3::-1])]
    cells[4] = logs.of(cells[4])
    columns = {of.name: cells[i].astype(of.dtype) for i, of in enumerate(NAIVE[2:])}
    classes = max(2, int(np.flatnonzero(priors.any(axis=0)).max(initial=-1)) + 1)
    prior = logs.of(priors[:, :classes])
    return {"naive_leaf": leaves.astype(np.int32), "naive_prior": prior, **columns, **bins.arrays()}


@inlined_kernel
def _add(cells: Any, key: int, prior: Any, scores: Any) -> None:
    """Add T(n_jk) - T(n_k) of one group of bins, or of one sparse feature."""
    keys, logs = cells
    for k in range(len(scores)):
        at = np.searchsorted(keys, key * len(scores) + k)
        there = at < len(keys) and keys[at] == key * len(scores) + k
        scores[k] += (logs[at] if there else 0) - prior[k]


@kernel
def _score(
    rows: Any, leaf: Any, bins: Any, pools: Any, width: int, prior: Any, table: Any, ones: Any, normals: Any, out: Any
) -> None:
    """Scores of rows into ``out``, shape (n, K). ``leaf`` is the place of each among the leaves of naive Bayes.

    ``table``, shape (leaves, groups of all dense features, K), has the T of dense features, and ``ones`` the keys and T
    of sparse ones, of which there are ``width``. ``normals`` has the number of each leaf among those with normal
    features (-1: none), that of each feature among these, the score of each bin, and of these leaves, features and
    classes log, mean and variance. O((features + ones log cells) x K) a row.
    """
    (X, indptr, indices), (normal_leaf, normal, score, log, mean, variance) = rows, normals
    for i in range(len(X)):
        v = leaf[i]
        for k in range(out.shape[1]):
            out[i, k] = prior[v, k] - X.shape[1] * prior[v, k]
        for j in range(X.shape[1]):
            code = code_of(X[i, j], bins, j)
            group = pools[0][pools[1][j] + code]
            at, c = normal_leaf[v], normal[j]
            if at >= 0 and c >= 0 and code <= bins.starts[j + 1] - bins.starts[j]:
                z = np.int64(score[pools[1][j] + code])
                for k in range(out.shape[1]):
                    apart = distance(z, np.int64(mean[at, c, k]), np.int64(variance[at, c, k]))
                    out[i, k] += log[at, c, k] - apart
                continue
            for k in range(out.shape[1]):
                out[i, k] += table[v, group, k]
        for at in range(indptr[i], indptr[i + 1]):
            _add(ones, v * width + indices[at], prior[v], out[i])


def odds_of(scores: Ints, known: Bools) -> Floats:
    """What the shares of naive Bayes are proportional to, by scores of rows and which classes have examples there."""
    best = np.where(known, scores, np.iinfo(np.int64).min).max(axis=1, keepdims=True)
    odds: Floats = np.where(known, np.exp(np.where(known, scores - best, 0) / UNIT), 0.0)
    return odds


class NaivePredictor(TreePredictor):
    """Predictions of canonical arrays, with those of :func:`naive_arrays` or without."""

    def __init__(self, features: Features, model: Arrays) -> None:
        super().__init__(features, model)
        self._leaves = model.get("naive_leaf", np.empty(0, dtype=np.int32))
        if not len(self._leaves):
            return
        leaf, feature, group, label, log = (model[f"naive_cell_{name}"].astype(np.int64) for name in CELLS)
        self._bins, self._prior = Bins.from_arrays(model), np.ascontiguousarray(model["naive_prior"])
        pools, dense = pools_of(self._bins), len(features.names)
        through = (pools.of + np.repeat(pools.first[:-1], self._bins.counts())).astype(np.int64)
        self._pools = through, np.cumsum(self._bins.counts()) - self._bins.counts()
        own, classes = feature < dense, self._prior.shape[1]
        self._table = np.zeros((len(self._leaves), int(pools.first[-1]), classes), dtype=np.int64)
        self._table[leaf[own], pools.first[feature[own]] + group[own], label[own]] = log[own]
        keys = (leaf[~own] * self._sparse + feature[~own] - dense) * classes + label[~own]
        self._ones = keys, log[~own]
        self._normals = self._normal_part(model)

    def _normal_part(self, model: Arrays) -> tuple[Any, ...]:
        """What kernels need of leaves with normal features."""
        score, normal = normal_scores(self._bins)
        number = np.where(normal > 0, np.cumsum(normal, dtype=np.int64) - 1, -1)
        place = np.full(len(self._leaves), -1, dtype=np.int64)
        if "normal_leaf" not in model:
            none = np.empty((0, 0, self._prior.shape[1]), dtype=np.int64)
            return place, number, score, none, none.astype(np.int32), none.astype(np.int32)
        place[model["normal_leaf"]] = np.arange(len(model["normal_leaf"]))
        parts = (np.ascontiguousarray(model[f"normal_{name}"]) for name in ("log", "mean", "variance"))
        return place, number, score, *parts

    def _naive(self, leaves: Int32s, X: Any, sparse: SparseRows | None, take: Callable[[Ints, Ints], None]) -> None:
        """Have ``take`` receive the rows that naive Bayes predicts and their scores, (rows, K): ranges, in threads."""
        if not len(self._leaves):
            return
        place = np.full(len(self._model["feature"]), -1, dtype=np.int64)
        place[self._leaves] = np.arange(len(self._leaves))
        which = np.flatnonzero(place[leaves] >= 0)
        every = sparse or SparseRows.empty(self._sparse, len(X))

        def score(part: slice) -> None:
            some, ones = which[part], every[which[part]]
            scores = np.empty((len(some), self._prior.shape[1]), dtype=np.int64)
            rows = np.ascontiguousarray(X[some], dtype=np.float64), ones.indptr, ones.indices
            leaf = place[leaves[some]]
            of_leaves = self._prior, self._table, self._ones, self._normals
            _score(rows, leaf, self._bins, self._pools, self._sparse, *of_leaves, scores)
            scores[self._prior[leaf] == 0] = np.iinfo(np.int64).min
            take(some, scores)

        run([partial(score, part) for part in ranges(len(which), _FEW_ROWS)])

    def _missing_left(self) -> Bools:
        """None: missing numbers have the last bin, and go right."""
        return np.zeros(len(self._model["feature"]), dtype=np.bool_)

    def tree_sum(self, n_classes: int) -> TreeSum:
        """Refuse if leaves predict by naive Bayes, whose shares no split accounts for; else as of any tree."""
        if len(self._leaves):
            raise InputError(message("learners.naive_leaves", leaves=counted(len(self._leaves), "leaf")))
        return super().tree_sum(n_classes)

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> Int32s:
        """Class codes, shape (n,): the leaf's majority, or that of the highest score; the smaller on a tie."""
        leaves = self.apply(X, sparse)
        labels: Int32s = self._model["counts"].argmax(axis=1).astype(np.int32)[leaves]

        def take(rows: Ints, scores: Ints) -> None:
            labels[rows] = scores.argmax(axis=1)

        self._naive(leaves, X, sparse, take)
        return labels

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Shares of the classes, shape (n, n_classes): in the row's leaf, or those of naive Bayes."""
        leaves = self.apply(X, sparse)
        shares = self._shares(n_classes)[leaves]

        def take(rows: Ints, scores: Ints) -> None:
            odds = odds_of(scores, scores > np.iinfo(np.int64).min)
            known_classes = min(n_classes, odds.shape[1])
            shares[rows] = 0.0
            shares[rows, :known_classes] = (odds / odds.sum(axis=1, keepdims=True))[:, :known_classes]

        self._naive(leaves, X, sparse, take)
        return shares
