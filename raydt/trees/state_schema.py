"""The arrays of models and states, which a learner declares once, as data; a loader checks files by it.

A loader requires what keeps kernels within bounds and numbers finite: types, lengths, bounds, and links that lead
somewhere and end. That the numbers follow from the examples is left to audits, but for counts by which kernels index.

Lengths have names: the first array declared with a name fixes the length, all others have to have it. An array of one
number gives its name to that number, which bounds of later arrays may use. For example, of 100 updates ``seq`` is
[100], so that ``born``, declared from 0 to below "seq", holds numbers from 0 to 99.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import AnyArray
from raydt.batches.binning import Bins
from raydt.examples.store import Weighting
from raydt.examples.updates import (
    CATEGORICAL,
    LARGEST_SUM,
    LEAST,
    MOST,
    NUMERIC,
    UNIT,
    CountedOnes,
    Features,
    Weights,
    filled,
)
from raydt.messages import message

Arrays = Mapping[str, AnyArray]
AnyInts = npt.NDArray[np.signedinteger[Any]]

#: Examples have int32 slots, and numbers of updates are exact as float64.
EXAMPLES, UPDATES = 2**31, 2**53
_LARGEST = float(np.finfo(np.float64).max)


class Array(NamedTuple):
    """One array of a model, of a coordinator's state or of the state of a feature group."""

    name: str
    dtype: Any  #: A type, or a tuple of those that it may have.
    shape: tuple[str | int, ...]  #: Names of lengths, and fixed lengths.
    low: float | None = None  #: The least number allowed.
    below: float | str | None = None  #: All numbers are smaller; a name stands for a length, or for another number.
    unique: bool = False  #: Whether no number occurs twice.
    missing: bool = False  #: Whether a number may be NaN.

    @property
    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        """The types that it may have."""
        return tuple(map(np.dtype, self.dtype if isinstance(self.dtype, tuple) else (self.dtype,)))


class Schema(NamedTuple):
    """All arrays of a model or a state."""

    arrays: tuple[Array, ...]  #: Of the model, or of the coordinator's state, in the order in which they are checked.
    group: tuple[Array, ...] = ()  #: Of each feature group of a state, besides its sparse features.


def finite(name: str, *shape: str | int, missing: bool = False) -> Array:
    """Declare finite float64 numbers, some of which may be ``missing``."""
    return Array(name, np.float64, shape, -_LARGEST, np.inf, missing=missing)


def counter(name: str, low: int = 0, below: float | str = UPDATES) -> Array:
    """Declare an array of one int64 number."""
    return Array(name, np.int64, (1,), low, below)


def row_arrays(numeric: bool, classes: str = "labels") -> tuple[Array, ...]:
    """Declare the live examples, whose labels are numbers or classes below a length, after ``seq``.

    A class may be one that no node counts: all its live examples may have weight 0.
    """
    return (
        Array("id", np.int64, ("rows",), unique=True),
        finite("y", "rows") if numeric else Array("y", np.int32, ("rows",), 0, classes),
        Array("born", np.int64, ("rows",), 0, "seq", unique=True),
    )


def weight_arrays(model: Arrays, *, balanced: bool) -> tuple[Array, ...]:
    """Declare weights of examples, if a state has some, and those of ``balanced`` classes, once they are resolved."""
    own = Array("weight", np.uint32, ("rows",), LEAST, MOST + 1)
    of_classes = Array("class_weight", np.int64, ("weighed_classes",), LEAST, MOST + 1), counter("weighed")
    return ((own,) if "weight" in model else ()) + (of_classes if balanced else ())


#: What routes through one tree need, and the class counts of its nodes.
NODE_ARRAYS = (
    Array("feature", np.int32, ("nodes",), -1, "features"),
    Array("threshold", np.float64, ("nodes",)),
    Array("left", np.int32, ("nodes",), -1, "nodes"),
    Array("right", np.int32, ("nodes",), -1, "nodes"),
    Array("counts", np.int64, ("nodes", "counted"), 0, EXAMPLES),
)
#: The leaf of each example.
LEAF = Array("leaf", np.int32, ("rows",), 0, "nodes")
#: The dense features of a group's rows.
HELD = finite("X", "rows", "columns")
HELD_OR_MISSING = finite("X", "rows", "columns", missing=True)
#: Bins of the dense features.
BINS = (
    Array("bins_kinds", np.int8, ("dense",), 0, 2),
    finite("bins_values", "boundaries"),
    Array("bins_ranks", np.int32, ("boundaries",), 0),
    Array("bins_starts", np.int64, ("starts",), 0),
    Array("bins_seen", np.uint8, ("dense",), 0, 2),
    Array("bins_default", np.int32, ("dense",), 0),
)
#: And indices of the sparse features that can be split on.
SPARSE_BINS = Array("bins_sparse", np.int32, ("cut_sparse",), 0, "sparse")


#: In a model or state whose counts are sums of weights: what a row of weight 1 counts.
UNIT_ARRAY = Array("unit", np.int64, (1,), UNIT, UNIT + 1)


#: Bounds of numbers of examples, now and of all, where they are sums of weights.
_BOUNDS_OF_WEIGHTS: dict[float | str | None, float] = {EXAMPLES: LARGEST_SUM + 1, UPDATES: 2**62}


def of_weights(arrays: Iterable[Array]) -> tuple[Array, ...]:
    """Declare arrays whose numbers of examples are sums of weights: larger ones, of 64 bits unless they are empty."""
    wide = ("bins", "n1", "c11")
    return tuple(
        of._replace(
            below=_BOUNDS_OF_WEIGHTS.get(of.below, of.below),
            dtype=(np.int64, of.dtype) if of.name in wide else of.dtype,
        )
        for of in arrays
    )


def weighed(arrays: Iterable[Array]) -> tuple[Array, ...]:
    """Declare arrays whose numbers of examples are sums of weights, and their unit."""
    return (*of_weights(arrays), UNIT_ARRAY)


def unit_of(model: Arrays) -> int:
    """Return what a row of weight 1 counts in the counts of a model."""
    return int(model[UNIT_ARRAY.name][0]) if UNIT_ARRAY.name in model else 1


def weights_of_state(state: Arrays) -> Weights:
    """Return what the examples of a state count, in units: their weights times those of their classes."""
    weighting = Weighting("class_weight" in state)
    weighting.restore(state)
    return filled(weighting.of(state.get("weight"), state["y"]), len(state["y"]))


def require(holds: bool | np.bool_, array: str, problem: str, **parameters: Any) -> None:
    """Raise ValueError with the message ``problem`` about an array, unless ``holds``."""
    if not holds:
        raise ValueError(message(problem, array=array, **parameters))


def check_weights(model: Arrays, balanced: bool | None) -> None:
    """Require masses where there are weights, and those of classes if these are ``balanced`` (None: not known)."""
    masses = UNIT_ARRAY.name in model or not {"weight", "class_weight"} & model.keys()
    require(masses, UNIT_ARRAY.name, "states.missing")
    require(balanced in (None, "class_weight" in model), "class_weight", "states.missing")


def check_arrays(arrays: Arrays, declared: Iterable[Array], lengths: dict[str, int]) -> None:
    """Require type, shape and bounds of each declared array, and take their ``lengths``. O(entries)."""
    for of in declared:
        array, dtypes = arrays[of.name], of.dtypes
        fits = array.dtype in dtypes and array.ndim == len(of.shape)
        if fits:
            pairs = zip(of.shape, array.shape, strict=True)
            known = [lengths.setdefault(n, have) if isinstance(n, str) else n for n, have in pairs]
            fits = array.shape == tuple(known)
        if not fits:
            types, shape = " or ".join(map(str, dtypes)), ", ".join(map(str, of.shape))
            require(False, of.name, "states.form", types=types, shape=shape)
        below = lengths[of.below] if isinstance(of.below, str) else of.below
        if array.size and of.low is not None:
            least = np.fmin.reduce(array, axis=None, initial=np.inf) if of.missing else array.min()
            require(least >= of.low, of.name, "states.too_small", low=of.low)
        if array.size and below is not None:
            greatest = np.fmax.reduce(array, axis=None, initial=-np.inf) if of.missing else array.max()
            require(greatest < below, of.name, "states.too_large", below=of.below)
        if of.unique:
            require(all_differ(array), of.name, "states.repeated")
        if of.shape == (1,) and array.dtype.kind == "i":
            lengths[of.name] = int(array[0])


def all_differ(array: AnyArray) -> bool:
    """Return True if no number occurs twice. NumPy's ``unique`` hashes, which takes ten times as long."""
    values = array if (array[1:] > array[:-1]).all() else np.sort(array)
    return bool((values[1:] != values[:-1]).all())


def check_held(groups: Mapping[int, Arrays], features: Features, declared: Iterable[Array], rows: int) -> None:
    """Require what is declared of every feature group, and the features of ``rows`` rows."""
    require(set(groups) == set(range(features.groups)), "X", "states.groups")
    for number, group in groups.items():
        check_group(number, group, features, declared, rows)


def check_group(number: int, group: Arrays, features: Features, declared: Iterable[Array], rows: int) -> None:
    """As :func:`check_held`, of one feature group."""
    columns = features.group_columns(number)
    check_arrays(group, declared, {"rows": rows, "columns": len(columns), "sparse": features.sparse})
    categories = group["X"][:, features.kinds[columns] != NUMERIC]
    require(np.isfinite(categories).all(), "X", "states.category", group=number)
    if features.sparse:
        sparse = SparseRows.of_arrays(group, features.sparse)
        own = (features.groups_of(sparse.indices) == number).all()
        require(len(sparse) == rows and own, "sparse_values", "states.group_rows", group=number)


def check_trees(arrays: Arrays, nodes: AnyArray | None = None, prefix: str = "") -> AnyInts:
    """Require trees in preorder of so many ``nodes`` (None: one tree), and return inner nodes. O(nodes log nodes)."""
    feature, left, right = (arrays[prefix + name] for name in ("feature", "left", "right"))
    n = len(feature)
    nodes = np.array([n]) if nodes is None else nodes.astype(np.int64)
    whole = (nodes > 0).all() and (nodes <= n).all() and nodes.sum() == n
    require(whole, f"{prefix}feature", "states.preorder")
    first = np.cumsum(nodes) - nodes
    inner, leaves = np.flatnonzero(feature >= 0), feature < 0
    tree = np.searchsorted(first, inner, side="right") - 1
    children = np.concatenate([left[inner], right[inner]])
    inside = (children < np.tile(nodes[tree], 2)).all() and (left[inner] == inner - first[tree] + 1).all()
    children = children + np.tile(first[tree], 2)
    is_tree = np.array_equal(np.sort(children), np.delete(np.arange(n), first))
    is_tree = is_tree and (children > np.tile(inner, 2)).all() and bool(inside)
    require(is_tree, f"{prefix}left", "states.preorder")
    require((left[leaves] == -1).all() and (right[leaves] == -1).all(), f"{prefix}left", "states.preorder")
    return inner


def check_classes(arrays: Arrays, name: str, labels: int) -> None:
    """Require counts by class, two classes at least, none of which is counted without one of the ``labels``."""
    counts = arrays[name]
    require(2 <= counts.shape[1] <= max(2, labels), name, "states.columns", columns=counts.shape[1])
    require(not counts[:, labels:].any(), name, "states.unlabelled")


def check_sums(arrays: Arrays, name: str, inner: AnyInts) -> None:
    """Require that every inner node of one tree counts what its children do: kernels make room by it."""
    counts, left, right = (arrays[part] for part in (name, "left", "right"))
    sums = counts[left[inner]] + counts[right[inner]]
    require(np.array_equal(counts[inner], sums), name, "states.children")


def add_classes(counts: AnyArray, node: AnyArray, y: AnyArray, mass: AnyArray) -> None:
    """Add the mass of examples to the counts of their nodes by class; ValueError for a class without a column."""
    some = mass > 0
    require((y[some] < counts.shape[1]).all(), "y", "states.too_large", below="counted")
    np.add.at(counts, (node[some], y[some]), mass[some])


def check_leaves(arrays: Arrays, y: AnyArray, weight: AnyArray | None = None) -> None:
    """Require that every leaf counts its examples, or weighs them: kernels make room by it. O(examples)."""
    leaf, counts, leaves = arrays["leaf"], arrays["counts"], arrays["feature"] < 0
    there = leaf >= 0
    require(leaves[leaf[there]].all(), "leaf", "states.inner_leaf")
    require(weight is None or np.array_equal(there, weight > 0), "leaf", "states.weightless")
    found = np.zeros_like(counts)
    add_classes(found, leaf, y, np.ones(len(y), dtype=np.int64) if weight is None else weight.astype(np.int64))
    require(np.array_equal(found[leaves], counts[leaves]), "counts", "states.counts")


def check_bins(arrays: Arrays, kinds: npt.NDArray[np.int8]) -> Bins:
    """Require bins of dense features of these kinds, and return them. O(bins log bins)."""
    bins, total = Bins.from_arrays(dict(arrays)), arrays["bins_values"].size
    require(np.array_equal(bins.kinds[: len(kinds)], kinds), "bins_kinds", "states.kinds")
    starts = arrays["bins_starts"]
    ascends = len(starts) == len(kinds) + 1 and starts[0] == 0 and starts[-1] == total and (np.diff(starts) >= 0).all()
    require(ascends, "bins_starts", "states.order")
    require((np.diff(bins.sparse) > 0).all(), "bins_sparse", "states.order")
    feature = np.repeat(np.arange(len(kinds)), np.diff(starts))
    ascends = (np.diff(bins.values) > 0) | (np.diff(feature) > 0)
    require(ascends.all(), "bins_values", "states.order")
    categorical = kinds[feature] == CATEGORICAL
    place = np.arange(total) - starts[feature]
    in_order = np.lexsort((bins.ranks, feature))
    require((bins.ranks[in_order] == place)[categorical].all(), "bins_ranks", "states.ranks")
    require((bins.default < bins.counts()).all(), "bins_default", "states.unknown", what="bin")
    return bins


def parents_of(arrays: Arrays) -> AnyInts:
    """Return the node above each node of one tree, -1 for the root."""
    inner = np.flatnonzero(arrays["feature"] >= 0)
    parent = np.full(len(arrays["feature"]), -1, dtype=np.int64)
    parent[arrays["left"][inner]] = parent[arrays["right"][inner]] = inner
    return parent


def depths_of(arrays: Arrays) -> AnyInts:
    """Return the depth of each node of one tree in preorder. O(nodes)."""
    depth = np.zeros(len(arrays["feature"]), dtype=np.int64)
    for node, above in enumerate(parents_of(arrays)[1:].tolist(), 1):
        depth[node] = depth[above] + 1
    return depth


def routes(arrays: Arrays) -> tuple[AnyInts, AnyInts]:
    """Return all pairs of an example and a node on its route, its leaf included. O(examples x depth)."""
    parent = parents_of(arrays)
    row, node = np.arange(len(arrays["leaf"])), arrays["leaf"].astype(np.int64)
    rows, nodes = [row[:0]], [node[:0]]
    while len(row):
        rows.append(row)
        nodes.append(node)
        above = parent[node]
        row, node = row[above >= 0], above[above >= 0]
    return np.concatenate(rows), np.concatenate(nodes)


def check_counters(
    group: Arrays, names: tuple[str, ...], place: AnyInts, y: AnyArray, ones: SparseRows, mass: AnyInts | None = None
) -> None:
    """Require the counters of sparse features: with others, deletions would lead the structures out of bounds.

    ``names`` are arrays by place and feature, ascending: the place (left out if all rows are counted at one), the
    feature, rows in which it is 1, and those of class 1. ``place``, ``y``, ``ones`` and ``mass`` are of n rows: where
    each is counted, its class, its features, and as how much it counts, by default 1.
    """
    counted = CountedOnes.of(ones, place, y, np.ones(len(y), dtype=np.int64) if mass is None else mass)
    of_masses = mass is not None and len(group["n1"]) and mass.max(initial=0) > 1
    require(not of_masses or group["n1"].dtype == np.int64, "n1", "states.counts")  # shards know masses by their type
    for name, column in counted.named(names):
        require(np.array_equal(group[name], column), name, "states.counts")
