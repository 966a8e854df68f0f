"""A model's trees in the order in which rows walk through them: blocks of rows, tree after tree, eight rows at a time.

A block of rows stays in the cache nearest to the core while all trees pass it, and a tree while a block passes. Both
sides of a split are neighbours, so that a step is an addition instead of a branch that cannot be predicted, and the
steps of eight rows overlap. A leaf is a node whose test fails for every value and whose right side is the leaf itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import SparseRows, taken
from raydt.arrays.elementary import Arrays, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.updates import Features, Targets
from raydt.parallel import ranges, run
from raydt.trees.canonical_arrays import RANGE, SIDES, SUMS, missing_left
from raydt.trees.counted_tree import LabelRange
from raydt.trees.records import refined, smoothed_shares, weight_above
from raydt.trees.shapley import StoredTrees, TreeSum, one_category_left, passes, tests_of
from raydt.trees.state_schema import unit_of

#: A test: ``low <= x <= high`` goes to ``child``, any other value, and NaN, to the node after it. Where missing numbers
#: go left, the test is ``x > threshold``, and the right side comes first.
_NODE = np.dtype([("high", np.float64), ("low", np.float64), ("feature", np.int32), ("child", np.int32)])
#: Rows whose steps overlap, and rows of a block.
_TOGETHER, _BLOCK = 8, 256
#: Nanoseconds that a row takes in a tree, about, and that a task of a thread takes at least.
_STEP_NS, _TASK_NS = 10, 300_000


class PackedTrees(NamedTuple):
    """Trees whose nodes lie level after level."""

    nodes: npt.NDArray[np.void]  #: Shape (nodes,).
    roots: Int32s  #: Shape (trees,).
    #: Shape (trees,): trees with a test of several categories or of a sparse feature, whose rows walk one by one.
    slow: Bools
    place: Ints  #: Shape (nodes,): the node's number in the :class:`TreeSum`.
    number: Ints  #: Shape (nodes,): the inverse of ``place``.
    tests: Any  #: Of the :class:`TreeSum`, for trees that are slow.


class _Room(NamedTuple):
    """Scratch: leaves of a block of rows, and nodes of those that walk together."""

    leaf: npt.NDArray[np.uint32]
    at: npt.NDArray[np.uint32]


def packed(trees: TreeSum) -> PackedTrees:
    """Return the trees of a sum, packed. O(nodes log(nodes))."""
    inner, tree = trees.feature >= 0, np.repeat(np.arange(trees.trees), np.diff(trees.starts))
    levels = [trees.starts[:-1]]
    while len(levels[-1]):
        above = levels[-1][inner[levels[-1]]]
        sides = trees.left[above], trees.right[above]
        turned = trees.missing_left[above]
        levels.append(np.stack([np.where(turned, *sides[::-1]), np.where(turned, *sides)], axis=1).ravel())
    place = np.concatenate(levels)
    place = place[np.argsort(tree[place], kind="stable")]
    number = np.empty(len(place), dtype=np.int64)
    number[place] = np.arange(len(place))
    of_sets = np.diff(trees.first_member)
    single = of_sets == 1
    only = trees.members[trees.first_member[:-1][single]]
    nodes = np.zeros(len(place), dtype=_NODE)
    nodes["high"], nodes["low"] = np.nan, -np.inf  # of a leaf
    nodes["high"][inner], nodes["feature"][inner] = trees.threshold[inner], trees.feature[inner]
    nodes["high"][single], nodes["low"][single] = only, only
    turned = trees.missing_left
    nodes["low"][turned], nodes["high"][turned] = np.nextafter(trees.threshold[turned], np.inf), np.inf
    nodes["child"] = np.where(inner, number[np.where(turned, trees.right, trees.left)], number - 1)
    slow = np.zeros(trees.trees, dtype=np.bool_)
    slow[tree[(of_sets > 1) | (trees.feature >= trees.dense)]] = True
    roots = number[trees.starts[:-1]].astype(np.int32)
    return PackedTrees(np.ascontiguousarray(nodes[place]), roots, slow, place, number, tests_of(trees))


@inner_kernel
def _walk(trees: Any, t: int, X: Any, begin: int, at: Any) -> None:
    """Have eight rows from ``begin`` on walk to their leaves in a tree of plain tests."""
    nodes = trees.nodes
    for i in range(np.uint64(_TOGETHER)):
        at[i] = trees.roots[t]
    moving = np.uint32(1)
    while moving:
        moving = np.uint32(0)
        for i in range(np.uint64(_TOGETHER)):
            node = nodes[at[i]]
            x = X[begin + i, np.uint32(node.feature)]
            after = np.uint32(node.child + np.int64(not ((x <= node.high) & (x >= node.low))))
            moving |= after ^ at[i]
            at[i] = after


@inner_kernel
def _walk_alone(trees: Any, t: int, x: Any, ones: Any, begin: int, end: int) -> int:
    """Return the leaf of one row."""
    feature, left, right = trees.tests[0], trees.tests[4], trees.tests[5]
    node = trees.place[trees.roots[t]]
    while feature[node] >= 0:
        node = left[node] if passes(trees.tests, node, x, ones, begin, end) else right[node]
    return int(trees.number[node])


@inner_kernel
def _find_leaves(trees: Any, t: int, rows: Any, begin: int, stop: int, room: Any) -> None:
    """Find the leaves of a block of rows in one tree; they are in ``room.leaf`` afterwards."""
    leaf, at, one, together = room.leaf, room.at, np.uint64(1), np.uint64(_TOGETHER)
    alone = begin if trees.slow[t] else stop - (stop - begin) % together
    for first in range(begin, alone, together):
        _walk(trees, t, rows.X, first, at)
        for i in range(together):
            leaf[first - begin + i] = at[i]
    for i in range(alone, stop):
        leaf[i - begin] = _walk_alone(trees, t, rows.X[i], rows.indices, rows.indptr[i], rows.indptr[i + one])


@kernel
def _add_values(trees: Any, rows: Any, value: Any, out: Any, room: Any) -> None:
    """Add the value of each row's leaf in tree t to output t modulo the number of outputs."""
    n, per = np.uint64(len(out)), np.uint64(out.shape[1])
    for begin in range(np.uint64(0), n, np.uint64(_BLOCK)):
        stop = min(begin + np.uint64(_BLOCK), n)
        for t in range(np.uint64(len(trees.roots))):
            k = t % per
            _find_leaves(trees, t, rows, begin, stop, room)
            for i in range(begin, stop):
                out[i, k] += value[room.leaf[i - begin]]


@kernel
def _add_votes(trees: Any, rows: Any, votes: Any, out: Any, room: Any) -> None:
    """Add all votes of each row's leaf in each tree."""
    n, width = np.uint64(len(out)), np.uint64(out.shape[1])
    for begin in range(np.uint64(0), n, np.uint64(_BLOCK)):
        stop = min(begin + np.uint64(_BLOCK), n)
        for t in range(np.uint64(len(trees.roots))):
            _find_leaves(trees, t, rows, begin, stop, room)
            for i in range(begin, stop):
                leaf = room.leaf[i - begin]
                for k in range(width):
                    out[i, k] += votes[leaf, k]


@kernel
def _put_leaves(trees: Any, rows: Any, place: Any, out: Any, room: Any) -> None:
    """Note the place of each row's leaf in each tree."""
    n = np.uint64(len(out))
    for begin in range(np.uint64(0), n, np.uint64(_BLOCK)):
        stop = min(begin + np.uint64(_BLOCK), n)
        for t in range(np.uint64(len(trees.roots))):
            _find_leaves(trees, t, rows, begin, stop, room)
            for i in range(begin, stop):
                out[i, t] = place[room.leaf[i - begin]]


def add_values(trees: PackedTrees, value: Floats, X: Floats, sparse: SparseRows | None, out: Any) -> None:
    """Add the values of leaves, by node of the sum, shape (nodes,), to ``out``, shape (n, K).

    Tree t adds to output t modulo K, each row tree after tree, whatever the number of threads. O(trees depth) a row.
    """
    _in_blocks(_add_values, trees, X, sparse, value[trees.place], out)


def add_votes(trees: PackedTrees, votes: Ints, X: Floats, sparse: SparseRows | None, out: Any) -> None:
    """Add the votes of leaves, by node of the sum, shape (nodes, K), to ``out``, shape (n, K). O(trees depth) a row."""
    _in_blocks(_add_votes, trees, X, sparse, votes[trees.place], out)


def leaves(trees: PackedTrees, X: Floats, sparse: SparseRows | None) -> Ints:
    """Return the leaf of each row in each tree, by node of the sum, shape (n, trees). O(trees depth) a row."""
    out = np.empty((len(X), len(trees.roots)), dtype=np.int64)
    _in_blocks(_put_leaves, trees, X, sparse, trees.place, out)
    return out


def _in_blocks(walk: Any, trees: PackedTrees, X: Any, sparse: SparseRows | None, of_leaf: Any, out: Any) -> None:
    """Run a kernel over ranges of rows, in threads."""
    rows = RowBlock.of(X, sparse)

    def work(part: slice) -> None:
        some = RowBlock(rows.X[part], rows.indptr[part.start : part.stop + 1], rows.indices)
        room = _Room(np.empty(_BLOCK, dtype=np.uint32), np.empty(_TOGETHER, dtype=np.uint32))
        walk(trees, some, of_leaf, out[part], room)

    smallest = max(_TOGETHER, _TASK_NS // (_STEP_NS * max(1, len(trees.roots))))
    run([partial(work, part) for part in ranges(len(rows.X), smallest)])


# Predictions of a tree, from its canonical arrays; its features may be dense, sparse or both.


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
    """Predictions of a tree of numeric labels: (smoothed) means of its leaves."""

    def __init__(self, features: Features, model: Arrays, smoothing: float = 0.0) -> None:
        super().__init__(features, model, smoothing)
        self.numbers = node_numbers(model, smoothing)  #: Shape (nodes,): prediction of each node.
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


@kernel
def _refine_means(left: Any, right: Any, n: Any, total: Any, smoothing: float, depth: Any, mean: Any) -> None:
    for node in range(len(left)):  # children come after their parents
        if left[node] >= 0:
            for child in (np.int64(left[node]), np.int64(right[node])):
                depth[child] = depth[node] + 1
                m = weight_above(depth[child], smoothing)
                if m > 0.0:
                    mean[child] = refined(total[child], n[child], m, mean[node])
                elif n[child] == 0.0:
                    mean[child] = mean[node]


def node_numbers(model: Arrays, smoothing: float = 0.0) -> Floats:
    """Mean label of each node, an m-estimate towards its parent's; 0 without examples.

    With ``smoothing`` of 0 its own mean or, if it is empty, that of the nearest node above it.
    """
    n, total = model["counts"][:, 0].astype(np.float64), model[SUMS][:, 0].astype(np.float64)
    mean = np.full(len(n), -1.0)
    np.divide(total, n, out=mean, where=n > 0)
    _refine_means(model["left"], model["right"], n, total, smoothing, np.zeros(len(n), dtype=np.int64), mean)
    return LabelRange.of(*model[RANGE].tolist()).numbers(mean)
