"""The boosted model as the coordinator holds it: trees, the leaf of every row in every tree, and the ledger.

The *ledger* has, for every tree and row, the derivative that was added: q of the probability, or the residual. A
deletion subtracts exactly what was added, so stored sums equal recomputed ones bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import grown, is_one
from raydt.arrays.elementary import TOGETHER, AnyArray, Arrays, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.binning import SPARSE, Bins, code_of
from raydt.examples.updates import BITS, CATEGORICAL, UNIT
from raydt.learners.gbdt.candidates import Targets, most_candidates, tolerance
from raydt.learners.gbdt.derivatives import ONE, RESIDUAL_BITS, Loss, derive_together, gradient, residual, weighted
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.split_search import SQUARED_H, Units, gain_of
from raydt.learners.gbdt.staleness import staleness
from raydt.parallel import ranges, run
from raydt.trees.records import mass_of

# The trees as the coordinator holds them: how rows pass through them, values of leaves, preorder.
#
# All trees are of one size: node 0 is the root, and a node that is not in use is FREE. The sums G and H of every node
# are kept, since they change with a row on its path; leaf values follow from them.

#: Values of ``feature`` of a node without a split.
LEAF, FREE = -1, -2
#: The largest step of a leaf in F, before shrinkage (classification): where all second derivatives are tiny.
LARGEST_STEP = 128.0


class Rates(NamedTuple):
    """The rule by which a leaf's value follows from its sums: units of G and H, L2, factor, largest step, shrinkage."""

    g: float
    h: float
    l2: float
    factor: float
    largest: float
    shrinkage: float


class Trees(NamedTuple):
    """Arrays of shape (trees, nodes).

    ``feature`` (or LEAF or FREE), ``cut``, ``left``, ``right``, ``parent`` (-1: none), ``histogram`` (its number at the
    shards, -1 of a leaf), ``G``, ``H``, ``value`` of a leaf (shrunk), ``tried_g`` and ``tried_h``, its sums when it
    could not be split (``tried_h`` -1: it was not tried), ``above`` and ``below``, how far a leaf has been above and
    below its value (``staleness``; 0 elsewhere); and ``leaves``, shape (trees,).
    """

    feature: Int32s
    cut: Int32s
    left: npt.NDArray[np.int16]
    right: npt.NDArray[np.int16]
    parent: npt.NDArray[np.int16]
    histogram: npt.NDArray[np.int16]
    G: Ints
    H: Ints
    value: Floats
    tried_g: Ints
    tried_h: Ints
    above: npt.NDArray[np.uint16]
    below: npt.NDArray[np.uint16]
    leaves: Int32s


def new_trees(count: int, max_leaf_nodes: int) -> Trees:
    """``count`` trees of one leaf without rows."""
    filled = partial(np.full, (count, 2 * max_leaf_nodes - 1))
    trees = Trees(
        feature=filled(FREE, np.int32),
        cut=filled(0, np.int32),
        left=filled(-1, np.int16),
        right=filled(-1, np.int16),
        parent=filled(-1, np.int16),
        histogram=filled(-1, np.int16),
        G=filled(0, np.int64),
        H=filled(0, np.int64),
        value=filled(0.0),
        tried_g=filled(0, np.int64),
        tried_h=filled(-1, np.int64),
        above=filled(0, np.uint16),
        below=filled(0, np.uint16),
        leaves=np.ones(count, dtype=np.int32),
    )
    trees.feature[:, 0] = LEAF
    return trees


@inner_kernel
def value_of(G: int, H: int, rates: Any) -> float:
    """Value of a leaf (Algorithm 1, line 7), with the L2 term and shrinkage."""
    if H <= 0:
        return 0.0
    beta = (G * rates.g) / (H * rates.h + rates.l2) * rates.factor
    value: float = rates.shrinkage * min(max(beta, -rates.largest), rates.largest)
    return value


@inner_kernel
def set_values(trees: Any, t: int, rates: Any) -> None:
    """Values of all leaves of one tree from their sums."""
    for node in range(trees.feature.shape[1]):
        if trees.feature[t, node] == LEAF:
            trees.value[t, node] = value_of(trees.G[t, node], trees.H[t, node], rates)


@kernel
def set_all_values(trees: Any, rates: Any) -> None:
    """Values of all leaves of all trees."""
    for t in range(len(trees.feature)):
        set_values(trees, t, rates)


@inner_kernel
def _goes_left(rows: Any, i: int, j: int, cut: int, bins: Any) -> bool:
    """Return True if row ``i`` is on the left of a cut of feature ``j``."""
    kind = bins.kinds[j]
    if kind == SPARSE:
        return not is_one(rows.indices, rows.indptr[i], rows.indptr[i + 1], bins.sparse[j - rows.X.shape[1]])
    a, b = bins.starts[j], bins.starts[j + 1]
    x = rows.X[i, j]
    if kind == CATEGORICAL:
        return bool(code_of(x, bins, j) == cut)
    if a + cut == b:
        return not np.isnan(x)
    return bool(x <= bins.values[a + cut])  # NaN goes right


@inner_kernel
def leaf_of(trees: Any, t: int, rows: Any, i: int, bins: Any) -> int:
    """Return the leaf of row ``i`` in one tree. O(depth)."""
    node = 0
    while trees.feature[t, node] >= 0:
        left = _goes_left(rows, i, trees.feature[t, node], trees.cut[t, node], bins)
        node = trees.left[t, node] if left else trees.right[t, node]
    return int(node)


@kernel
def gains(trees: Any, units: Any, out: Any) -> None:
    """Return the gain of every split, 0 elsewhere; shape (trees, nodes)."""
    for t in range(len(trees.feature)):
        for node in range(trees.feature.shape[1]):
            if trees.feature[t, node] >= 0:
                left = trees.left[t, node]
                if 0 < trees.H[t, left] < trees.H[t, node]:
                    out[t, node] = gain_of(
                        trees.G[t, left], trees.H[t, left], trees.G[t, node], trees.H[t, node], units
                    )


@kernel
def score_rows(trees: Any, first: int, stop: int, rows: Any, bins: Any, F: Any) -> None:
    """Add the leaf values of rows in iterations ``first`` up to before ``stop`` to F, shape (rows, K')."""
    per = F.shape[1]
    for i in range(len(F)):
        for m in range(first, stop):
            for k in range(per):
                t = m * per + k
                F[i, k] += trees.value[t, leaf_of(trees, t, rows, i, bins)]


@inner_kernel
def next_in_preorder(trees: Any, t: int, node: int) -> int:
    """Return the node after one in preorder, -1 after the last."""
    if trees.feature[t, node] >= 0:
        return int(trees.left[t, node])
    up = np.int64(trees.parent[t, node])
    while up >= 0 and trees.right[t, up] == node:
        node, up = up, np.int64(trees.parent[t, up])
    return int(trees.right[t, up]) if up >= 0 else -1


@kernel
def preorder(trees: Any, order: Any, position: Any) -> None:
    """List the nodes of every tree in preorder (-1 after the last), and the position of each in it (-1: free)."""
    for t in range(len(trees.feature)):
        position[t] = -1
        order[t] = -1
        n = 0
        node = np.int64(0)
        while node >= 0:
            order[t, n] = node
            position[t, node] = n
            n += 1
            node = next_in_preorder(trees, t, node)


@kernel
def _deepest(trees: Any, depth: Any) -> int:
    """Depth of the deepest node of all trees; ``depth`` is scratch by node."""
    deepest = 0
    for t in range(len(trees.feature)):
        depth[0] = 0
        node = next_in_preorder(trees, t, np.int64(0))
        while node >= 0:
            depth[node] = depth[trees.parent[t, node]] + 1
            deepest = max(deepest, depth[node])
            node = next_in_preorder(trees, t, node)
    return deepest


def extent(trees: Trees) -> tuple[int, int, int]:
    """Return nodes and leaves of all trees, and the depth of the deepest."""
    count, width = trees.feature.shape
    leaves = int(trees.leaves.sum())
    return 2 * leaves - count, leaves, int(_deepest(trees, np.empty(width, dtype=np.int64)))


#: A target farther from the origin than this many bits above the range of the rows trained on is refused.
ROOM_BITS = 5
#: Of a power of two: the scale of no target lies beyond it, or below its inverse.
LARGEST_EXPONENT = 900
#: Trees whose ledger entries of a row are hashed together: a block of BLAKE2b, or two of a regression.
LEDGER_PART_BITS = 6
#: Cells that are worth the start of another thread.
_FEW_CELLS = 1 << 17
#: Entries of a ledger from which on the first training leaves it unwritten; and slots that are written at once.
LARGE_LEDGER, _WRITTEN = 1 << 25, 1 << 13
#: Arrays of the trees in files, by node in preorder; children are named by their positions in it. Of those that only
#: inner nodes (True) or leaves (False) have, what the others have in files.
_NODE_ARRAYS: Mapping[str, tuple[bool, float] | None] = {
    "feature": (True, -1), "cut": (True, 0), "left": (True, -1), "right": (True, -1), "G": None, "H": None,
    "value": (False, 0), "tried_g": (False, 0), "tried_h": (False, -1), "above": (False, 0), "below": (False, 0),
}  # fmt: skip


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
    #: Shape (capacity, parts): whether ledger entries of a row have changed since they were hashed, some trees a part.
    changed: Bools


@kernel
def _sum_up(ledger: Any, y: Any, weight: Any, k: int, loss: Any, slots: Any, out: Any) -> None:
    for i in range(len(slots)):
        slot = slots[i]
        G, H = weighted(gradient(np.int64(ledger[slot]), y[slot], k, loss), mass_of(weight, slot, UNIT), loss.squared)
        out[0] += G
        out[1] += H


@kernel
def _write_ledger(model: Any, y: Any, begin: int, F: Any, entry: Any, p: Any) -> None:
    """Write the ledger entries of rows just trained on, in slots from ``begin`` on.

    ``F`` and ``entry``, shape (K', slots), are F of no trees and scratch, ``p`` as in ``probabilities_together``.
    """
    loss, per = model.loss, len(F)
    for t in range(len(model.leaf)):
        k, leaf, ledger, value = t % per, model.leaf[t], model.ledger[t], model.trees.value[t]
        if k == 0 and not loss.squared:
            derive_together(F, 0, F.shape[1], p, entry)
        for i in range(F.shape[1]):
            node = np.int64(leaf[begin + i])
            if node != model.absent:
                ledger[begin + i] = residual(y[begin + i], F[0, i], loss.unit) if loss.squared else entry[k, i]
                F[k, i] += value[node]


def start_of(trees: Trees, origin: float, squared: bool) -> float:
    """Return :attr:`Ensemble.start`. The second derivatives of a regression are weights: 0 in all without rows."""
    return 0.0 if squared and not trees.H[0, 0] else origin


def _parts_of(trees: int) -> int:
    """Return in how many parts the ledger entries of a row are hashed."""
    return (trees - 1 >> LEDGER_PART_BITS) + 1


def trees_each(options: GBDTOptions, classes: int) -> int:
    """Return the trees of an iteration: one of a regression, and of two classes unless all have their own."""
    return 1 if classes == 0 or (classes == 2 and options.objective != "multiclass") else classes


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
        unit = 2.0 ** (exponent - RESIDUAL_BITS) if squared else 0.0
        self.loss = Loss(trees_each(o, classes), squared, origin, unit)
        g, h = (2.0**-RESIDUAL_BITS, SQUARED_H) if squared else (1.0 / ONE, 1.0 / (ONE * ONE))
        self.units = Units(g, h, o.l2_regularization)
        factor = 1.0 if self.per == 1 else (classes - 1) / classes
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
        self._ledger: AnyArray = np.zeros(shape, dtype=np.int32 if squared else np.uint16)
        self._unwritten: AnyArray | None = None  # labels, while the ledger of a training is to be written
        self.changed = np.zeros((capacity, _parts_of(shape[0])), dtype=np.bool_)

    @property
    def per(self) -> int:
        """Trees of an iteration."""
        return self.loss.trees

    @property
    def start(self) -> float:
        """F of no trees of a prediction: the origin or, without rows, 0, since the origin is a mean of former rows."""
        return start_of(self.trees, self.loss.origin, self.loss.squared)

    def leave_ledger(self, y: AnyArray) -> None:
        """Leave the ledger unwritten until it is read, if it is large: a model that no update follows needs none.

        Called before the first training, with the labels by slot. What the training would write follows from leaves and
        values. O(rows x trees) when it is read.
        """
        if self.leaf.size >= LARGE_LEDGER:
            self._unwritten = y if self.loss.squared else y[:0]

    @property
    def ledger(self) -> AnyArray:
        """Ledger entries, shape (trees, capacity)."""
        self.write_ledger()
        return self._ledger

    def write_ledger(self) -> None:
        """Write what :meth:`leave_ledger` has left. O(rows x trees), or O(1) if there is nothing."""
        y, per = self._unwritten, self.per
        if y is None:
            return
        model = self.arrays(trains=True)._replace(ledger=self._ledger)

        def write(part: slice) -> None:
            for begin in range(part.start, part.stop, _WRITTEN):
                F = self.origins(min(_WRITTEN, part.stop - begin)).T.copy()
                _write_ledger(model, y, begin, F, np.empty(F.shape, dtype=np.int32), np.empty((per + 2, TOGETHER)))

        run([partial(write, part) for part in ranges(self.leaf.shape[1], _WRITTEN)])
        self._unwritten = None  # no sooner: what is broken off is written again

    def arrays(self, trains: bool = False) -> ModelArrays:
        """Return the arrays, for kernels; ``trains``: without a ledger that is to stay unwritten."""
        ledger = self.ledger if self._unwritten is None or not trains else self._ledger[:, :0]
        return ModelArrays(
            *(self.trees, self.leaf, ledger, self.absent, self.loss, self.rates, self.bins),
            *(self.drift, self.changed),
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
            ledger = np.zeros((trees, capacity), dtype=self._ledger.dtype)
            ledger[:, :have] = self.ledger
            drift = np.zeros(capacity, dtype=np.uint16)
            drift[:have] = self.drift[:have]
            self.changed = grown(self.changed, capacity)
            self.drift, self._ledger, self.leaf = drift, ledger, leaf  # the last one says how many slots there are

    def trim(self, capacity: int) -> None:
        """Give up room beyond ``capacity`` slots, which have all rows."""
        if self.leaf.shape[1] > capacity:
            self.drift, self._ledger = self.drift[:capacity].copy(), self.ledger[:, :capacity].copy()
            self.leaf, self.changed = self.leaf[:, :capacity].copy(), self.changed[:capacity].copy()

    def shortened(self, iterations: int) -> Ensemble:
        """Return the same model with its first iterations only."""
        short = copy.copy(self)
        count = iterations * self.per
        short.iterations = iterations
        short.trees = Trees(*(array[:count].copy() for array in self.trees))
        short.leaf, short._ledger = self.leaf[:count].copy(), self.ledger[:count].copy()
        short.changed = self.changed[:, : _parts_of(count)].copy()
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
        for name, limited in _NODE_ARRAYS.items():
            array = getattr(self.trees, name)[tree, node]
            if name in ("left", "right"):
                array = position[tree, array].astype(np.int32)
            if limited is not None:
                array[inner != limited[0]] = limited[1]
            arrays[f"node_{name}"] = array
        arrays["node_feature"] = self.bins.numbers(arrays["node_feature"]).astype(np.int32)
        arrays["node_tried_g"][arrays["node_tried_h"] < 0] = 0
        return divided_sums(arrays) if self.loss.squared else arrays

    def leaves_of(self, slots: Int32s) -> AnyArray:
        """Return the position in preorder of the leaf of some rows in every tree, shape (rows, trees)."""
        _, position = self.preorder()
        table = np.full((len(position), self.absent + 1), self.absent, dtype=self.leaf.dtype)
        table[:, : position.shape[1]] = position.astype(self.leaf.dtype)
        out = np.empty((len(slots), len(self.leaf)), table.dtype)

        def turn(part: slice) -> None:
            out[part] = np.take_along_axis(table, self.leaf[:, slots[part]], axis=1).T

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
    iterations = len(state["tree_nodes"]) // trees_each(options, classes)
    bins, origin = Bins.from_arrays(state), float(state["origin"][0])
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
