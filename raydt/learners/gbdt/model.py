"""The model without its training rows: saved, checked and used to predict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.learners.binning import Bins
from raydt.learners.gbdt.derivatives import softmax
from raydt.learners.gbdt.ensemble import Arrays, Ensemble, one_tree, trees_of
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.trees import Trees, gains, score_rows
from raydt.learners.rows import Rows


def model_arrays(ensemble: Ensemble | None, constant: float) -> Arrays:
    """Arrays of the predict-only model.

    ``constant`` is the prediction of a model without trees; ``node_gain`` the gain of each split on the rows in it.
    """
    if ensemble is None:
        return {"only": np.array([constant], dtype=np.float64)}
    e = ensemble
    nodes = e.nodes()
    kept = {name: nodes[name] for name in ("tree_nodes", *(f"node_{n}" for n in ("feature", "cut", "left", "right")))}
    order, _ = e.preorder()
    tree, i = np.nonzero(order >= 0)
    gain = np.zeros(e.trees.feature.shape)
    gains(e.trees, e.units, gain)
    return {
        **e.bins.arrays(),
        **kept,
        "node_value": nodes["node_value"],
        "node_gain": gain[tree, order[tree, i]],
        "classes": np.array([e.classes], dtype=np.int64),
        "per": np.array([e.per], dtype=np.int64),
        "origin": np.array([e.loss.origin]),
    }


class GBDTPredictor:
    """Predictions of trees.

    Parameters
    ----------
    trees : Trees
        Of all iterations.
    bins : Bins
    classes : int
        K; 0 of a regression.
    per : int
        Trees of an iteration.
    origin : float
        F of no trees.
    """

    def __init__(self, trees: Trees, bins: Bins, classes: int, per: int, origin: float, gain: Any = None) -> None:
        self._trees, self._bins, self._classes, self._per, self._origin = trees, bins, classes, per, origin
        self._gain = gain

    @property
    def iterations(self) -> int:
        """Boosting iterations."""
        return len(self._trees.feature) // self._per

    def staged(self, X: npt.NDArray[np.float64], sparse: SparseRows | None = None) -> Iterator[npt.NDArray[np.float64]]:
        """F after each iteration, shape (n, trees of an iteration); one array that changes."""
        rows, F = Rows.of(X, sparse), np.full((len(X), self._per), self._origin)
        for m in range(self.iterations):
            self._add(m, m + 1, rows, F)
            yield F

    def scores(self, X: npt.NDArray[np.float64], sparse: SparseRows | None = None) -> npt.NDArray[np.float64]:
        """F, shape (n, trees of an iteration). O(depth) a row and tree."""
        F = np.full((len(X), self._per), self._origin)
        self._add(0, self.iterations, Rows.of(X, sparse), F)
        return F

    def _add(self, first: int, stop: int, rows: Rows, F: npt.NDArray[np.float64]) -> None:
        score_rows(self._trees, first, stop, rows, self._bins, F)

    def classes_of(self, F: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Class codes (of equal scores the smaller), or numbers, shape (n,)."""
        if self._classes == 0:
            numbers: npt.NDArray[np.float64] = F[:, 0].copy()
            return numbers
        codes: npt.NDArray[np.int32] = (F[:, 0] > 0 if self._per == 1 else F.argmax(axis=1)).astype(np.int32)
        return codes

    def shares_of(self, F: npt.NDArray[np.float64], n_classes: int) -> npt.NDArray[np.float64]:
        """Probabilities of the classes, shape (n, n_classes); 0 of classes not seen, 1 of an only class."""
        if n_classes == 1:
            return np.ones((len(F), 1))
        shares = np.zeros((len(F), n_classes))
        p = softmax(F)
        known = min(n_classes, p.shape[1])
        shares[:, :known] = p[:, :known]
        return shares

    def predict(self, X: npt.NDArray[np.float64], sparse: SparseRows | None = None) -> npt.NDArray[Any]:
        """Class codes or numbers, shape (n,)."""
        return self.classes_of(self.scores(X, sparse))

    def predict_proba(
        self, X: npt.NDArray[np.float64], n_classes: int, sparse: SparseRows | None = None
    ) -> npt.NDArray[np.float64]:
        """Probabilities of the classes, shape (n, n_classes)."""
        return self.shares_of(self.scores(X, sparse), n_classes)

    def importances(self) -> npt.NDArray[np.float64]:
        """Share of each feature in the gain of all splits, shape (d,); all 0 without splits."""
        inner = self._trees.feature >= 0
        total = np.bincount(self._trees.feature[inner], self._gain[inner], minlength=len(self._bins))
        shares: npt.NDArray[np.float64] = total / max(total.sum(), np.finfo(np.float64).tiny)
        return shares


class ConstantPredictor:
    """Predictions before there is a model: one class, or one number."""

    iterations = 0

    def __init__(self, constant: float, regression: bool) -> None:
        self._constant, self._regression = constant, regression

    def predict(self, X: npt.NDArray[np.float64], sparse: SparseRows | None = None) -> npt.NDArray[Any]:
        """The class code or number, shape (n,)."""
        return np.full(len(X), self._constant, dtype=np.float64 if self._regression else np.int32)

    def predict_proba(
        self, X: npt.NDArray[np.float64], n_classes: int, sparse: SparseRows | None = None
    ) -> npt.NDArray[np.float64]:
        """All for the one class, shape (n, n_classes)."""
        shares = np.zeros((len(X), n_classes))
        shares[:, int(self._constant)] = 1.0
        return shares


def predictor_of(ensemble: Ensemble | None, constant: float, regression: bool) -> GBDTPredictor | ConstantPredictor:
    """Predictions of the model in memory; ``constant`` is that of no model."""
    if ensemble is None:
        return ConstantPredictor(constant, regression)
    e = ensemble
    return GBDTPredictor(e.trees, e.bins, e.classes, e.per, e.loss.origin)


def constant_of(y: npt.NDArray[Any]) -> float:
    """The most frequent class (of equals the smallest, 0 of none), or the mean of numbers."""
    if y.dtype.kind == "f":
        return math.fsum(y) / max(1, len(y))
    return int(np.bincount(y, minlength=1).argmax())


def saved_predictor(model: Mapping[str, npt.NDArray[Any]], options: GBDTOptions) -> Any:
    """Predictions of :func:`model_arrays`, or of a state, which has no gains."""
    if "tree_nodes" not in model:
        constant = float(model["only"][0]) if "only" in model else constant_of(model["y"])
        return ConstantPredictor(constant, options.regression)
    arrays = dict(model)
    trees = trees_of(arrays, options.max_leaf_nodes)
    classes = int(model["classes"][0])
    per = 1 if one_tree(options, classes) else classes
    if "node_gain" not in arrays:
        return GBDTPredictor(trees, Bins.from_arrays(arrays), classes, per, float(model["origin"][0]))
    gain = np.zeros(trees.feature.shape)
    counts = arrays["tree_nodes"]
    tree = np.repeat(np.arange(len(counts)), counts)
    gain[tree, np.arange(len(tree)) - np.repeat(np.cumsum(counts) - counts, counts)] = arrays["node_gain"]
    return GBDTPredictor(trees, Bins.from_arrays(arrays), classes, per, float(model["origin"][0]), gain)
