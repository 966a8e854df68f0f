"""Predictions of a tree, from its canonical arrays; its features may be dense, sparse or both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from raydt.arrays.blocks import taken
from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Arrays, Bools, Floats, Int32s, Ints
from raydt.examples.features import Features
from raydt.examples.targets import Targets
from raydt.trees.canonical_arrays import RANGE, SIDES, SUMS, missing_left
from raydt.trees.packed_trees import PackedTrees, leaves, packed
from raydt.trees.records import smoothed_shares
from raydt.trees.regression_sums import LabelRange
from raydt.trees.state_schema import unit_of
from raydt.trees.tree_sum import StoredTrees, TreeSum, one_category_left


class TreePredictor:
    """Predictions of canonical arrays; ``smoothing`` is that of :func:`raydt.trees.records.refine`, 0 for none."""

    def __init__(self, features: Features, model: Arrays, smoothing: float = 0.0) -> None:
        self._categorical, self._sparse = features.kinds.astype(np.bool_), features.sparse
        self._model = {
            name: np.ascontiguousarray(model[name]) for name in ("feature", "threshold", "left", "right", "counts")
        }
        if SIDES in model:
            self._model[SIDES] = model[SIDES]
        self._smoothing, self._unit = smoothing, unit_of(model)
        self._packed: PackedTrees | None = None  # once it is needed
        self._cover = model["live"] if "live" in model else self._model["counts"].sum(axis=1)

    def apply(self, X: Floats, sparse: SparseRows | None = None) -> Int32s:
        """Position in preorder of the leaf of each row, shape (n,). O(depth log ones) a row."""
        return self._reached(X, sparse).astype(np.int32)

    def _reached(self, X: Floats, sparse: SparseRows | None) -> Ints:
        if self._packed is None:
            outputs = np.empty((len(self._model["feature"]), 0))
            self._packed = packed(self._as_sum(outputs, np.arange(0)))
        return leaves(self._packed, X, sparse)[:, 0]

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> Targets:
        """Class of the largest share in each row's leaf (the smaller on a tie), shape (n,).

        Without smoothing, it is the leaf's majority, and class 0 in an empty leaf.
        """
        counts = self._model["counts"]
        weights = self._shares(counts.shape[1]) if self._smoothing else counts
        labels: Int32s = weights.argmax(axis=1).astype(np.int32)
        return taken(labels, self._reached(X, sparse))

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Shares of the classes in each row's leaf, shape (n, n_classes); uniform in an empty leaf if not smoothed."""
        return taken(self._shares(n_classes), self._reached(X, sparse))

    def tree_sum(self, n_classes: int) -> TreeSum:
        """The tree, whose leaves predict the shares of :meth:`predict_proba`."""
        return self._as_sum(self._shares(n_classes), np.arange(n_classes))

    def importances(self) -> Floats:
        """Share of each feature in the Gini impurity that all splits take away, shape (d,); all 0 without any."""
        counts = self._model["counts"].astype(np.float64)
        n = counts.sum(axis=1)
        return self._gained(np.divide((counts * counts).sum(axis=1), n, out=np.zeros(len(n)), where=n > 0))

    def _gained(self, kept: Floats) -> Floats:
        """Shares of the features in what is ``kept`` at the sides and not at their node, summed in preorder."""
        feature, left, right = (self._model[name] for name in ("feature", "left", "right"))
        inner = np.flatnonzero(feature >= 0)
        gain = np.maximum(kept[left[inner]] + kept[right[inner]] - kept[inner], 0.0)
        d = len(self._categorical) + self._sparse
        total: Floats = np.bincount(feature[inner], gain, minlength=d).astype(np.float64)
        return total / max(float(total.sum()), float(np.finfo(np.float64).tiny))

    def _as_sum(self, outputs: Floats, codes: Ints) -> TreeSum:
        feature, threshold, left, right = (self._model[name] for name in ("feature", "threshold", "left", "right"))
        stored = StoredTrees(np.array([0, len(feature)]), feature, threshold, left, right)
        trees = one_category_left(stored, self._categorical, self._sparse, outputs)
        sides = self._missing_left() & trees.asks_number
        return replace(trees, cover=self._cover, codes=codes, missing_left=sides, unit=self._unit)

    def _missing_left(self) -> Bools:
        """Nodes at which missing numbers go left, if they ask for a number; shape (nodes,)."""
        return missing_left(self._model, self._cover)

    def _shares(self, n_classes: int) -> Floats:
        return smoothed_shares(self._model, n_classes, self._smoothing)


class NumberPredictor(TreePredictor):
    """Predictions of a tree of numeric labels: the mean of a leaf or, if it is empty, of the nearest node above it."""

    def __init__(self, features: Features, model: Arrays) -> None:
        super().__init__(features, model)
        self.numbers = node_numbers(model)  #: Shape (nodes,): prediction of each node.
        self._sums = model[SUMS]

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> Targets:
        """Numbers, shape (n,)."""
        return taken(self.numbers, self._reached(X, sparse))

    def tree_sum(self, n_classes: int = 0) -> TreeSum:
        """The tree, whose leaves predict numbers."""
        return self._as_sum(self.numbers[:, None], np.empty(0, dtype=np.int64))

    def importances(self) -> Floats:
        """Share of each feature in the variance that all splits take away, shape (d,); all 0 without any."""
        n, total = self._model["counts"][:, 0].astype(np.float64), self._sums[:, 0].astype(np.float64)
        return self._gained(np.divide(total * total, n, out=np.zeros(len(n)), where=n > 0))


def node_numbers(model: Arrays) -> Floats:
    """Mean label of each node or, if it is empty, of the nearest node above it; 0 without any."""
    n, left, right = model["counts"][:, 0], model["left"], model["right"]
    mean = np.full(len(n), -1.0)
    np.divide(model[SUMS][:, 0].astype(np.float64), n.astype(np.float64), out=mean, where=n > 0)
    for node in np.flatnonzero(left >= 0).tolist():  # children come after their parents
        for child in (left[node], right[node]):
            if not n[child]:
                mean[child] = mean[node]
    return LabelRange.of(*model[RANGE].tolist()).numbers(mean)
