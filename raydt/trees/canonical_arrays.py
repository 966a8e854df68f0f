"""A fully dynamic tree as canonical arrays (preorder, node 0 = root): saved, hashed, audited, used to predict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raydt.arrays.elementary import AnyArray, Arrays, Bools, Int32s
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.examples.updates import NUMERIC, UNIT, Features
from raydt.trees.counted_tree import (
    COLUMNS,
    LARGEST_MASS,
    LARGEST_SUM,
    MOST_UNITS,
    TO_LEFT,
    TO_RIGHT,
    UNDECIDED,
    CountedTree,
    TreeRules,
    mass_ceilings,
    new_tree,
    with_room,
)
from raydt.trees.records import FREE, LEAVES, NODES, USED, floor_product, goes_left, majority, preorder, refine, total
from raydt.trees.state_schema import (
    EXAMPLES,
    LEAF,
    NODE_ARRAYS,
    UNIT_ARRAY,
    UPDATES,
    AnyInts,
    Array,
    add_classes,
    check_sums,
    check_trees,
    counter,
    finite,
    require,
    row_arrays,
)

#: With numeric labels there is one class, and these arrays have the sums of the labels and of their squares at each
#: node, and the ends of their range.
SUMS, RANGE = "sums", "label_range"
#: The arrays of a tree. Counters stay below the limit up to which ``floor_product`` is exact.
TREE = (
    *NODE_ARRAYS,
    Array("s", np.int64, ("nodes",), 0, EXAMPLES),
    Array("c", np.int64, ("nodes",), 0, UPDATES),
    Array("built", np.int64, ("nodes",)),
)
#: The sides of missing numbers, in a tree that has decided one.
SIDES = "missing"
SIDE_ARRAYS = (Array(SIDES, np.int8, ("nodes",), UNDECIDED, TO_RIGHT + 1),)
#: Those of a tree whose rebuilds follow certificates, besides.
CERTIFICATE = (
    Array("m0", np.float64, ("nodes",), 0, LARGEST_MASS),
    Array("gone", np.int64, ("nodes",), 0, EXAMPLES),
)
#: Those of a state, besides.
TOTALS = tuple(map(counter, ("seq", "warmup_left", "rebuilds", "rebuilt_rows")))


def state_arrays(numeric: bool, weighted: bool = False) -> tuple[Array, ...]:
    """Declare what the state of a tree has besides the model; with weights, an example may be in no leaf."""
    return (*TOTALS, *row_arrays(numeric), LEAF._replace(low=-1) if weighted else LEAF)


def tree_arrays(model: Mapping[str, AnyArray]) -> tuple[Array, ...]:
    """Declare the arrays of a tree, with those of the sides of missing numbers if it has them."""
    return TREE + (SIDE_ARRAYS if SIDES in model else ())


def number_arrays(weighted: bool) -> tuple[Array, ...]:
    """Declare what a tree of numeric labels has besides."""
    return Array(SUMS, np.int64, ("nodes", COLUMNS if weighted else 2), 0), finite(RANGE, 2, missing=True)


def check_number_sums(arrays: Arrays, inner: AnyInts) -> None:
    """Require sums of numeric labels that some labels have, at every inner node those of its children. O(nodes)."""
    sums, counts = arrays[SUMS], arrays["counts"][:, 0]
    if UNIT_ARRAY.name not in arrays:
        fits = (sums <= MOST_UNITS * np.stack([counts, sums[:, 0]], axis=1)).all()
        require(fits, SUMS, "states.impossible")
        check_sums(arrays, SUMS, inner)
        return
    require((counts <= LARGEST_SUM).all(), "counts", "states.too_large", below=LARGEST_SUM + 1)
    total, squares, rest = sums.T
    fits = (total <= MOST_UNITS * counts) & (squares <= total) & (rest < UNIT)
    require(fits.all(), SUMS, "states.impossible")
    left, right = (arrays[side][inner] for side in ("left", "right"))
    both = sums[left] + sums[right]
    carried = np.column_stack([both[:, 0], both[:, 1] + both[:, 2] // UNIT, both[:, 2] % UNIT])
    require(np.array_equal(sums[inner], carried), SUMS, "states.children")


def check_tree(arrays: Mapping[str, AnyArray], features: Features) -> AnyInts:
    """Require one tree whose nodes count what their children do, and return its inner nodes. O(n log n)."""
    inner, dense = check_trees(arrays), len(features.names)
    side = arrays.get(SIDES, np.zeros(len(arrays["feature"]), dtype=np.int8))
    number = np.append(features.kinds == NUMERIC, False)[np.minimum(arrays["feature"], dense)]
    require(not side[(arrays["feature"] < 0) | ~number].any(), SIDES, "states.side")
    at = arrays["threshold"][inner]
    parts_missing = (at == np.inf) & (side[inner] == TO_RIGHT)
    require((np.isfinite(at) | parts_missing).all(), "threshold", "states.threshold")
    check_sums(arrays, "counts", inner)
    return inner


def canonical_tree(tree: CountedTree, rules: TreeRules) -> tuple[Arrays, Int32s]:
    """The arrays of the model, with its certificates if it has any, and the preorder position of each node id."""
    order, position, _ = preorder(tree)
    nodes, statistics, counts = tree.nodes[order], tree.statistics[order], tree.counts[order]
    feature = nodes["feature"].copy()
    classes = max(2, int(np.flatnonzero(counts[0]).max(initial=0)) + 1)  # a class announced is not yet a class seen
    arrays: Arrays = {
        "feature": feature,
        "threshold": nodes["threshold"].copy(),
        "left": np.where(feature >= 0, position[nodes["left"]], np.int32(-1)),
        "right": np.where(feature >= 0, position[nodes["right"]], np.int32(-1)),
        "s": statistics["s"].copy(),
        "c": statistics["c"].copy(),
        "built": statistics["built"].copy(),
        "counts": counts[:, :classes].copy(),
    }
    if rules.certified:
        arrays |= {of.name: statistics[of.name].copy() for of in CERTIFICATE}
    if rules.unit > 1:
        arrays[UNIT_ARRAY.name] = np.array([rules.unit], dtype=np.int64)
    if nodes["missing"].any():
        arrays[SIDES] = nodes["missing"].copy()
    if tree.sums.shape[1]:
        arrays[SUMS] = tree.sums[order]
    return arrays, position


def missing_left(model: Mapping[str, AnyArray], cover: AnyArray) -> Bools:
    """Return at which nodes missing numbers go left: where no side is decided, that of more examples, ``cover``."""
    inner = model["feature"] >= 0
    more = inner & (cover[model["left"]] > cover[model["right"]])
    side = model.get(SIDES, np.zeros(len(inner), dtype=np.int8))
    left: Bools = np.where(side == UNDECIDED, more, side == TO_LEFT)
    return left


def live_tree(arrays: Arrays, rules: TreeRules) -> CountedTree:
    """The live tree of canonical arrays, without the rows of its leaves."""
    n, classes = arrays["counts"].shape
    tree = with_room(new_tree(64, classes), n, classes)
    nodes, statistics = tree.nodes, tree.statistics
    for name in ("feature", "threshold", "left", "right"):
        nodes[name][:n] = arrays[name]
    nodes["missing"][:n] = arrays.get(SIDES, UNDECIDED)  # the records are fresh memory
    for name in ("s", "c", "built", *(of.name for of in CERTIFICATE if rules.certified)):
        statistics[name][:n] = arrays[name]
    tree.counts[:n] = arrays["counts"]
    statistics["n"][:n] = tree.counts[:n].sum(axis=1)
    if SUMS in arrays:
        sums = np.zeros((len(tree.nodes), arrays[SUMS].shape[1]), dtype=np.int64)
        sums[:n] = arrays[SUMS]
        tree = tree._replace(sums=sums)
    if rules.unit == 1 and SUMS in arrays:
        statistics["pairs"][:n] = mass_ceilings(statistics["n"][:n], tree.sums[:n])
    elif rules.unit == 1:  # the number of rows, which stands there with weights, follows from the leaves
        statistics["pairs"][:n] = statistics["n"][:n] ** 2 - (tree.counts[:n] ** 2).sum(axis=1)
    nodes["head"][:n] = -1
    nodes["parent"][0], nodes["depth"][0] = -1, 0
    for i in range(n):
        inner = nodes["feature"][i] >= 0
        statistics["allowed"][i] = 0  # of a certificate: it is tested with the next update
        if not (inner and rules.certified):
            statistics["allowed"][i] = floor_product(rules.epsilon, int(statistics["s"][i]))
        nodes["label"][i] = majority(tree.counts, i)
        if inner:
            for child in (nodes["left"][i], nodes["right"][i]):
                nodes["parent"][child], nodes["depth"][child] = i, nodes["depth"][i] + 1
    tree.reg[[USED, FREE, NODES, LEAVES]] = n, -1, n, int((nodes["feature"][:n] < 0).sum())
    return tree


def count_rows(tree: CountedTree, rows: AnyInts) -> None:
    """Enter how many rows are below each node of a tree of masses, from those in its leaves, by id."""
    used = int(tree.reg[USED])  # the tree may have been trimmed since
    for node in reversed(range(1, used)):  # in preorder: children come behind their parents
        rows[tree.nodes["parent"][node]] += rows[node]
    tree.statistics["pairs"][:used] = rows[:used]


class LeafCounts:
    """Counts of the rows in the leaves of a restored tree, whose rows come in parts.

    ``rows``: rows in each leaf, by id.
    """

    def __init__(self, tree: CountedTree) -> None:
        self._tree, self._found = tree, np.zeros_like(tree.counts)
        self.rows: AnyInts = np.zeros(len(tree.nodes), dtype=np.int64)
        self._fit = True  # rows that count nothing, and only these, are in no leaf

    def add(self, leaf: AnyInts, y: AnyArray, mass: AnyArray | None) -> None:
        """Count some rows, or their ``mass``."""
        mass = np.ones(len(y), dtype=np.int64) if mass is None else mass.astype(np.int64)
        there = leaf >= 0
        self._fit &= np.array_equal(there, mass > 0)
        add_classes(self._found, leaf, y, np.where(there, mass, 0))
        self.rows += np.bincount(leaf[there], minlength=len(self.rows))

    def check(self) -> None:
        """ValueError unless every leaf counts its rows: kernels make room by it."""
        require(self._fit, "leaf", "states.weightless")
        leaves = self._tree.nodes["feature"] < 0
        require(np.array_equal(self._found[leaves], self._tree.counts[leaves]), "counts", "states.counts")
        require(not self._found[~leaves].any(), "leaf", "states.inner_leaf")


# Where the rows of a counted tree go, also those that lack a number.
#
# Invariant: a row that is learned decides the side of its missing numbers at every split it passes, so that it leaves
# the tree by the path on which it came.


@inner_kernel
def side_of_missing(tree: Any, node: int) -> int:
    """Side of a missing number at a split: where it is not decided, that of more examples, and right if they are as
    many.
    """
    side: int = np.int64(tree.nodes[node].missing)
    if side == UNDECIDED:
        left, right = np.int64(tree.nodes[node].left), np.int64(tree.nodes[node].right)
        side = np.int64(TO_LEFT if total(tree.counts, left) > total(tree.counts, right) else TO_RIGHT)
    return side


@inner_kernel
def passes_left(tree: Any, node: int, value: float, categorical: bool) -> bool:
    """Return True if a value, or a missing one, goes left at a split."""
    if value != value:
        missing: bool = side_of_missing(tree, node) == TO_LEFT
        return missing
    return goes_left(value, tree.nodes[node].threshold, categorical)


@kernel
def route(tree: Any, categorical: Any, X: Any, row: int, learns: bool) -> int:
    """Leaf of one row of ``X``. If it is learned, the sides of its missing numbers are decided from then on."""
    node = 0
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        value = X[row, j]
        if learns and value != value:
            tree.nodes[node].missing = side_of_missing(tree, node)
        left = passes_left(tree, node, value, categorical[j])
        node = tree.nodes[node].left if left else tree.nodes[node].right
    return node


@kernel
def smooth_rows(tree: Any, categorical: Any, X: Any, smoothing: float, shares: Any) -> None:
    """Refine the root's shares, in every row of ``shares``, down to the leaf of that row of ``X``. O(depth K) a row."""
    for row in range(len(X)):
        node = 0
        while tree.nodes[node].feature >= 0:
            j = tree.nodes[node].feature
            left = passes_left(tree, node, X[row, j], categorical[j])
            node = np.int64(tree.nodes[node].left) if left else np.int64(tree.nodes[node].right)
            refine(tree.counts, node, np.int64(tree.nodes[node].depth), smoothing, shares, row, row)
