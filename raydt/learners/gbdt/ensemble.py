"""The boosted model as the coordinator holds it: trees, the leaf of every row in every tree, and the ledger.

The *ledger* has, for every tree and row, the derivative that was added: q of the probability, or the residual. A
deletion subtracts exactly what was added, so stored sums equal recomputed ones bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import AnyArray, Arrays, Bools, Floats, Int32s, Ints
from raydt.batches.binning import Bins
from raydt.examples.weights import BITS, UNIT
from raydt.learners.gbdt.candidates import most_candidates, tolerance
from raydt.learners.gbdt.derivatives import ONE, RESIDUAL_BITS, Loss, gradient, weighted
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.split_search import SQUARED_H, Units
from raydt.learners.gbdt.staleness import staleness
from raydt.learners.gbdt.targets import Targets
from raydt.learners.gbdt.trees import LARGEST_STEP, Rates, Trees, new_trees, preorder, set_all_values
from raydt.parallel.threads import ranges, run
from raydt.trees.masses import mass_of

#: A target farther from the origin than this many bits above the range of the rows trained on is refused.
ROOM_BITS = 5
#: Of a power of two: the scale of no target lies beyond it, or below its inverse.
LARGEST_EXPONENT = 900
#: Cells that are worth the start of another thread.
_FEW_CELLS = 1 << 17
#: Arrays of the trees in files, by node in preorder; children are named by their positions in it.
_NODE_ARRAYS = ("feature", "cut", "left", "right", "G", "H", "value", "tried_g", "tried_h", "above", "below")


class ModelArrays(NamedTuple):
    """Trees, leaves and ledger, as kernels take them."""

    trees: Trees
    #: Shape (trees, capacity): leaf of the row in each slot, ``absent`` of a row that is not in the model.
    leaf: AnyArray
    ledger: AnyArray  #: Shape (trees, capacity): the derivative that was added for it.
    absent: int
    loss: Loss
    rates: Rates
    bins: Bins
    drift: npt.NDArray[np.uint16]  #: Shape (capacity,): how far the scores of each row may have moved (``staleness``).


@kernel
def _sum_up(ledger: Any, y: Any, weight: Any, k: int, loss: Any, slots: Any, out: Any) -> None:
    for i in range(len(slots)):
        slot = slots[i]
        G, H = weighted(gradient(np.int64(ledger[slot]), y[slot], k, loss), mass_of(weight, slot, UNIT), loss.squared)
        out[0] += G
        out[1] += H


def start_of(trees: Trees, origin: float, squared: bool) -> float:
    """Return :attr:`Ensemble.start`. The second derivatives of a regression are weights: 0 in all without rows."""
    return 0.0 if squared and not trees.H[0, 0] else origin


def one_tree(options: GBDTOptions, classes: int) -> bool:
    """Return True if an iteration has one tree: of a regression, and of two classes unless all have their own."""
    return classes == 0 or (classes == 2 and options.objective != "multiclass")


class Ensemble:
    """Trees, leaves and ledger, for ``capacity`` slots of examples, of a model with fixed bins of all features.

    ``classes`` is K, 0 for a regression, of which ``origin`` and ``exponent`` are (``targets.scale_of``).
    """

    def __init__(
        self,
        options: GBDTOptions,
        bins: Bins,
        classes: int,
        origin: float,
        exponent: int,
        iterations: int,
        capacity: int,
    ) -> None:
        self.options, self.bins, self.classes, self.exponent = options, bins, classes, exponent
        self.iterations = iterations
        o = options
        squared = classes == 0
        alone = one_tree(o, classes)
        unit = 2.0 ** (exponent - RESIDUAL_BITS) if squared else 0.0
        self.loss = Loss(1 if alone else classes, squared, origin, unit)
        g, h = (2.0**-RESIDUAL_BITS, SQUARED_H) if squared else (1.0 / ONE, 1.0 / (ONE * ONE))
        self.units = Units(g, h, o.l2_regularization)
        factor = 1.0 if alone else (classes - 1) / classes
        largest, shrinkage = (np.inf, o.learning_rate * 2.0**exponent) if squared else (LARGEST_STEP, o.learning_rate)
        self.rates = Rates(g, h, o.l2_regularization, factor, largest, shrinkage)
        count = np.minimum(bins.cuts(), most_candidates(o.candidate_fraction, o.max_bins))
        self.stale = staleness(o.tolerance, iterations, exponent, self.loss)
        #: By slot: units by which its scores have moved, at most, since all of them were compared, without what
        #: the trees still have of its leaves (``staleness``).
        self.drift = np.zeros(capacity, dtype=np.uint16)
        self.most_drift = 0  #: Of a row that does not join the batch of the pass.
        self.candidates = int(count.sum())
        self.tolerance = tolerance(o.robustness_tolerance, o.candidate_fraction, o.max_bins, self.candidates)
        self.trees = new_trees(iterations * self.loss.trees, o.max_leaf_nodes)
        nodes = self.trees.feature.shape[1]
        #: Leaf of a row that is not in the model.
        self.absent = 255 if nodes <= 255 else 65535
        shape = len(self.trees.feature), capacity
        self.leaf = np.full(shape, self.absent, dtype=np.uint8 if nodes <= 255 else np.uint16)
        self.ledger = np.zeros(shape, dtype=np.int32 if squared else np.uint16)

    @property
    def per(self) -> int:
        """Trees of an iteration."""
        return self.loss.trees

    @property
    def start(self) -> float:
        """F of no trees of a prediction: the origin or, without rows, 0, since the origin is a mean of former rows."""
        return start_of(self.trees, self.loss.origin, self.loss.squared)

    def arrays(self) -> ModelArrays:
        """Return the arrays, for kernels."""
        return ModelArrays(
            self.trees, self.leaf, self.ledger, self.absent, self.loss, self.rates, self.bins, self.drift
        )

    def begin(self) -> dict[str, Any]:
        """Return what shards make an ensemble of their own of: parameters of this class, and the bins as arrays."""
        named = {"classes": self.classes, "origin": self.loss.origin, "exponent": self.exponent}
        return {"bins": self.bins.arrays(), **named, "iterations": self.iterations}

    def reserve(self, capacity: int) -> None:
        """Make room for ``capacity`` slots."""
        have = self.leaf.shape[1]
        if capacity > have:
            trees = len(self.leaf)
            leaf = np.full((trees, capacity), self.absent, dtype=self.leaf.dtype)
            leaf[:, :have] = self.leaf
            ledger = np.zeros((trees, capacity), dtype=self.ledger.dtype)
            ledger[:, :have] = self.ledger
            drift = np.zeros(capacity, dtype=np.uint16)
            drift[:have] = self.drift[:have]
            self.drift, self.ledger, self.leaf = drift, ledger, leaf  # the last one says how many slots there are

    def trim(self, capacity: int) -> None:
        """Give up room beyond ``capacity`` slots, which have all rows."""
        if self.leaf.shape[1] > capacity:
            self.drift, self.ledger = self.drift[:capacity].copy(), self.ledger[:, :capacity].copy()
            self.leaf = self.leaf[:, :capacity].copy()

    def shortened(self, iterations: int) -> Ensemble:
        """Return the same model with its first iterations only."""
        short = copy.copy(self)
        count = iterations * self.per
        short.iterations = iterations
        short.trees = Trees(*(array[:count].copy() for array in self.trees))
        short.leaf, short.ledger = self.leaf[:count].copy(), self.ledger[:count].copy()
        short.stale = staleness(self.options.tolerance, iterations, self.exponent, self.loss)
        return short

    def sums_of_roots(self, known: int, targets: Targets, slots: Int32s) -> Ints:
        """Return G and H of some rows, all in one leaf, in the trees of classes from ``known`` on, shape (trees, 2)."""
        trees = self._trees_from(known)
        sums = np.zeros((len(trees), 2), dtype=np.int64)
        for t, out in zip(trees.tolist(), sums, strict=True):
            _sum_up(self.ledger[t], *targets, t % self.per, self.loss, slots, out)
        return sums

    def set_roots(self, known: int, sums: Ints) -> None:
        """Take what :meth:`sums_of_roots` gives of all rows, and compute all values anew.

        They are of another factor and sign, also where no derivative will change.
        """
        self.trees.G[self._trees_from(known), 0], self.trees.H[self._trees_from(known), 0] = sums.T
        set_all_values(self.trees, self.rates)

    def _trees_from(self, known: int) -> Ints:
        return np.flatnonzero(np.arange(len(self.leaf)) % self.per >= known)

    def origins(self, rows: int) -> Floats:
        """Return F of no trees, shape (rows, K')."""
        return np.full((rows, self.per), self.loss.origin)

    def fits(self, y: AnyArray) -> Bools:
        """Return which targets a ledger entry can hold; classes always."""
        if not self.loss.squared:
            return np.ones(len(y), dtype=np.bool_)
        near: Bools = np.abs(y - self.loss.origin) <= 2.0 ** (self.exponent + ROOM_BITS)
        return near

    # ---------------------------------------------------------------- canonical arrays

    def preorder(self) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
        """Return nodes of each tree in preorder, and positions of nodes in it; -1 for none; both (trees, nodes)."""
        shape = self.trees.feature.shape
        order, position = np.empty(shape, dtype=np.int16), np.empty(shape, dtype=np.int16)
        preorder(self.trees, order, position)
        return order, position

    def nodes(self) -> Arrays:
        """Return the trees, one after the other, nodes in preorder, with numbers of features; nodes of each tree."""
        order, position = self.preorder()
        tree, i = np.nonzero(order >= 0)
        node = order[tree, i]
        arrays: Arrays = {"tree_nodes": (order >= 0).sum(axis=1).astype(np.int32)}
        inner = self.trees.feature[tree, node] >= 0
        for name in _NODE_ARRAYS:
            array = getattr(self.trees, name)[tree, node]
            if name in ("left", "right"):
                array = np.where(inner, position[tree, array], -1).astype(np.int32)
            elif name == "feature":
                array = self.bins.numbers(np.where(inner, array, -1)).astype(np.int32)
            elif name == "cut":
                array = np.where(inner, array, 0).astype(np.int32)
            elif name == "value":
                array = np.where(inner, 0.0, array)
            elif name in ("above", "below"):
                array = np.where(inner, 0, array).astype(np.uint16)
            elif name == "tried_h":
                array = np.where(inner, -1, array)
            elif name == "tried_g":
                array = np.where(inner | (self.trees.tried_h[tree, node] < 0), 0, array)
            arrays[f"node_{name}"] = array
        return divided_sums(arrays) if self.loss.squared else arrays

    def leaves_of(self, slots: Int32s) -> AnyArray:
        """Return the position in preorder of the leaf of some rows in every tree, shape (rows, trees)."""
        _, position = self.preorder()
        table = np.full((len(position), self.absent + 1), self.absent, dtype=self.leaf.dtype)
        table[:, : position.shape[1]] = position.astype(self.leaf.dtype)
        return self._by_row(slots, lambda some: np.take_along_axis(table, self.leaf[:, some], axis=1), table.dtype)

    def ledger_of(self, slots: Int32s) -> AnyArray:
        """Ledger of some rows in every tree, shape (rows, trees)."""
        return self._by_row(slots, lambda some: self.ledger[:, some], self.ledger.dtype)

    def _by_row(self, slots: Int32s, by_tree: Callable[[Any], Any], dtype: Any) -> AnyArray:
        """Transpose what is known of some slots by tree, in threads where they are many."""
        out = np.empty((len(slots), len(self.leaf)), dtype)

        def turn(part: slice) -> None:
            out[part] = by_tree(slots[part]).T

        run([partial(turn, part) for part in ranges(len(slots), _FEW_CELLS // max(1, len(self.leaf)))])
        return out

    def take(self, arrays: Arrays, leaf: AnyArray, ledger: AnyArray) -> None:
        """Replace everything by canonical arrays; rows take slots 0, 1, ..."""
        arrays = joined_sums(arrays) if self.loss.squared else arrays
        trees = trees_of(arrays, self.bins, self.options.max_leaf_nodes)
        for name, theirs in trees._asdict().items():
            getattr(self.trees, name)[:] = theirs
        self.leaf[:, : len(leaf)] = leaf.T
        self.ledger[:, : len(ledger)] = ledger.T


#: Sums of second derivatives of a regression, which are weights.
_WEIGHTS = ("node_H", "node_tried_h")


def divided_sums(arrays: Arrays) -> Arrays:
    """Divide the sums of weights into whole ones and, where there are some, the rest in units (``node_H_rest``)."""
    found = dict(arrays)
    for name in _WEIGHTS:
        sums = arrays[name]
        found[name], rest = sums >> BITS, np.where(sums < 0, 0, sums & (UNIT - 1)).astype(np.uint16)
        if rest.any():
            found[f"{name}_rest"] = rest
    return found


def joined_sums(arrays: Arrays) -> Arrays:
    """Undo :func:`divided_sums`."""
    found = dict(arrays)
    for name in _WEIGHTS:
        sums = np.asarray(arrays[name])
        found[name] = np.where(sums < 0, sums, (sums << BITS) + found.pop(f"{name}_rest", np.zeros(1, dtype=np.int64)))
    return found


def numbered(counts: AnyArray) -> tuple[Ints, Ints]:
    """Return tree and number of every node, of trees of so many nodes, one after the other."""
    tree = np.repeat(np.arange(len(counts)), counts)
    return tree, np.arange(len(tree)) - np.repeat(np.cumsum(counts) - counts, counts)


def trees_of(arrays: Arrays, bins: Bins, max_leaf_nodes: int) -> Trees:
    """Make trees of canonical arrays: nodes are numbered in preorder, and so are histograms."""
    counts = arrays["tree_nodes"]
    trees = new_trees(len(counts), max_leaf_nodes)
    tree, node = numbered(counts)
    for name in _NODE_ARRAYS:
        if f"node_{name}" in arrays:  # a model without rows has no sums
            getattr(trees, name)[tree, node] = arrays[f"node_{name}"]
    trees.feature[tree, node] = bins.places(arrays["node_feature"])
    inner = trees.feature >= 0
    t, v = np.nonzero(inner)
    for child in (trees.left, trees.right):
        trees.parent[t, child[t, v]] = v
    trees.histogram[:] = np.where(inner, np.cumsum(inner, axis=1) - 1, -1)
    trees.leaves[:] = (trees.feature == -1).sum(axis=1)
    return trees


def restored(options: GBDTOptions, state: Arrays, capacity: int) -> Ensemble:
    """Make the ensemble of a saved state, without the rows that wait to be inserted; rows take slots 0, 1, ..."""
    classes, exponent = int(state["classes"][0]), int(state["exponent"][0])
    bins, origin = Bins.from_arrays(state), float(state["origin"][0])
    per = Ensemble(options, bins, classes, origin, exponent, 0, 0).per
    iterations = len(state["tree_nodes"]) // per
    ensemble = Ensemble(options, bins, classes, origin, exponent, iterations, capacity)
    ensemble.take(state, state["leaf"], state["ledger"])
    ensemble.drift[: len(state["drift"])] = state["drift"]
    return ensemble


def known_trees(ensemble: Ensemble) -> int:
    """Return how many classes have trees of an iteration: of two classes both, though they share one."""
    return ensemble.per if ensemble.per > 1 else 2


def with_class(old: Ensemble, classes: int, slots: Int32s) -> Ensemble:
    """Make the ensemble for more classes: trees of one leaf for each new one, all rows in it at the least probability.

    From two classes on the mirrored trees of class 0 are made: the same splits, first derivatives of the other sign.
    The sums of the new trees follow (:meth:`Ensemble.set_roots`).
    """
    capacity = old.leaf.shape[1]
    new = Ensemble(old.options, old.bins, classes, 0.0, 0, old.iterations, capacity)
    known = known_trees(old)
    for m in range(old.iterations):
        for k in range(classes):
            t = m * new.per + k
            if k < known:
                source = m * old.per + (k if old.per > 1 else 0)
                for name, theirs in old.trees._asdict().items():
                    getattr(new.trees, name)[t] = theirs[source]
                new.leaf[t], new.ledger[t] = old.leaf[source], old.ledger[source]
                if old.per == 1 and k == 0:
                    new.trees.G[t] *= -1
                    new.trees.tried_g[t] *= -1
                    new.ledger[t] = (ONE - old.ledger[source].astype(np.int64)).astype(np.uint16)
            else:
                new.leaf[t, slots], new.ledger[t, slots] = 0, 1
    new.trees.above[:] = new.trees.below[:] = 0  # all entries are computed anew
    return new
