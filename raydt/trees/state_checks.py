"""Checks that learners share on arrays from a file, before kernels follow the indices in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.batches.binning import Bins
from raydt.examples.features import CATEGORICAL, NUMERIC, Features
from raydt.examples.targets import NUMBERS

Arrays = Mapping[str, npt.NDArray[Any]]

_BINS = {
    "kinds": np.int8,
    "values": np.float64,
    "ranks": np.int32,
    "starts": np.int64,
    "seen": np.uint8,
    "default": np.int32,
}

#: Types of the arrays of a state, by live example.
ROW_TYPES: dict[str, np.dtype[Any]] = {
    "id": np.dtype(np.int64),
    "y": np.dtype(np.int32),
    "born": np.dtype(np.int64),
    "leaf": np.dtype(np.int32),
}


def require(holds: bool | np.bool_, name: str, problem: str) -> None:
    """ValueError that names an array, unless something holds."""
    if not holds:
        raise ValueError(f"array {name!r} {problem}")


def typed(arrays: Arrays, name: str, dtype: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The array of this name, which must have this type and shape."""
    array = arrays[name]
    fits = array.dtype == dtype and array.shape == shape
    require(fits, name, f"is not {np.dtype(dtype)} of shape {shape}")
    return array


def check_bins(arrays: Arrays, kinds: npt.NDArray[np.int8], width: int = 0) -> Bins:
    """Bins of dense features of these kinds, and of some of ``width`` sparse ones. O(d + bins).

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    d, total = len(kinds), arrays["bins_values"].size
    for name, dtype in _BINS.items():
        shape = (total,) if name in ("values", "ranks") else (d + (name == "starts"),)
        typed(arrays, f"bins_{name}", dtype, shape)
    if "bins_sparse" in arrays:
        sparse = typed(arrays, "bins_sparse", np.int32, (arrays["bins_sparse"].size,))
        within = (np.diff(sparse) > 0).all() and (sparse >= 0).all() and (sparse < width).all()
        require(within, "bins_sparse", f"is not ascending below {width}")
    bins = Bins.from_arrays(dict(arrays))
    require(np.array_equal(bins.kinds[:d], kinds), "bins_kinds", "does not have the kinds of the features")
    steps = np.diff(bins.starts)
    require(bins.starts[0] == 0 and bins.starts[-1] == total and (steps >= 0).all(), "bins_starts", "does not ascend")
    feature = np.repeat(np.arange(len(bins)), steps)
    ascends = np.diff(bins.values) > 0
    require(
        (ascends | (np.diff(feature) > 0)).all() and np.isfinite(bins.values).all(), "bins_values", "does not ascend"
    )
    categorical = bins.kinds[feature] == CATEGORICAL
    in_order = np.lexsort((bins.ranks, feature))
    place = np.arange(total) - bins.starts[feature]
    require((bins.ranks[in_order] == place)[categorical].all(), "bins_ranks", "does not number the categories")
    require((bins.seen <= 1).all(), "bins_seen", "is not of 0 and 1")
    require(
        ((bins.default >= 0) & (bins.default < bins.counts())).all(), "bins_default", "names a bin that is not there"
    )
    return bins


def check_held(groups: Mapping[int, Arrays], features: Features, rows: int) -> None:
    """The rows that the shards hold, by feature group: numbers that may be NaN, categories, and sparse features.

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    require(set(groups) == set(range(features.groups)), "X", "is not that of all feature groups")
    for number, group in groups.items():
        columns = features.group_columns(number)
        X = typed(group, "X", np.float64, (rows, len(columns)))
        numeric = features.kinds[columns] == NUMERIC
        fits = ~np.isinf(X).any() and np.isfinite(X[:, ~numeric]).all()
        require(fits, "X", f"of feature group {number} has a value that is not finite")
        if features.sparse:
            sparse = SparseRows.of_arrays(group, features.sparse)
            own = (features.groups_of(sparse.indices) == number).all()
            require(len(sparse) == rows and own, "sparse_values", f"has features that are not of group {number}")


def _require_types(arrays: Arrays, types: Mapping[str, np.dtype[Any]], length: int, what: str) -> None:
    for name, dtype in types.items():
        array = arrays[name]
        if array.dtype != dtype or array.ndim != 1 + (name in ("counts", "own")) or len(array) != length:
            raise ValueError(f"array {name!r} does not have a {dtype} for each {what}")


def check_nodes(
    arrays: Arrays, types: Mapping[str, np.dtype[Any]], d: int, classes: int
) -> npt.NDArray[np.signedinteger[Any]]:
    """Require one tree in preorder over ``d`` features, with arrays of these types; its inner nodes. O(n log n).

    Raises
    ------
    ValueError
        Naming the array that cannot be.
    """
    n = arrays["feature"].size
    _require_types(arrays, types, max(1, n), "node")
    feature, left, right, counts = (arrays[name] for name in ("feature", "left", "right", "counts"))
    if ((feature < -1) | (feature >= d)).any():
        raise ValueError("array 'feature' names a column that does not exist")
    inner = np.flatnonzero(feature >= 0)
    children = np.concatenate([left[inner], right[inner]])
    if not np.array_equal(np.sort(children), np.arange(1, n)) or (children <= np.tile(inner, 2)).any():
        raise ValueError("arrays 'left' and 'right' are not one tree in preorder")
    leaves = feature < 0
    if (left[leaves] != -1).any() or (right[leaves] != -1).any():
        raise ValueError("arrays 'left' and 'right' give children to a leaf")
    if not 1 <= counts.shape[1] <= max(2, classes) or (counts < 0).any():
        raise ValueError("array 'counts' does not count the classes")
    return inner


def check_sums(arrays: Arrays, inner: npt.NDArray[np.signedinteger[Any]]) -> None:
    """Require that every inner node counts what its children do."""
    counts, left, right = (arrays[name] for name in ("counts", "left", "right"))
    if (counts[inner] != counts[left[inner]] + counts[right[inner]]).any():
        raise ValueError("array 'counts' has a node whose children do not add up to it")


def check_examples(arrays: Arrays, scalars: Sequence[str], numbers: bool = False) -> None:
    """Require of a state whose tree is checked that its live examples are those it counts. O(n log n).

    ``scalars`` are arrays of one number that is not negative; ``numbers``: labels are numbers, which all count as class
    0. That an example lies in the leaf its features lead to is left to the audit.

    Raises
    ------
    ValueError
        Naming the array that cannot be.
    """
    rows = arrays["id"].size
    types = {**ROW_TYPES, "y": NUMBERS} if numbers else ROW_TYPES
    _require_types(arrays, types, rows, "live example")
    if numbers:
        require(np.isfinite(arrays["y"]).all(), "y", "has a label that is not finite")
    for name in scalars:
        if arrays[name].dtype != np.int64 or arrays[name].shape != (1,) or not 0 <= arrays[name][0] < 2**53:
            raise ValueError(f"array {name!r} is not one number from 0 to 2**53 - 1")
    for name in ("id", "born"):
        in_order = np.sort(arrays[name])
        if (in_order[1:] == in_order[:-1]).any():
            raise ValueError(f"array {name!r} has the same number for two live examples")
    leaf, y, counts, born = (arrays[name] for name in ("leaf", "y", "counts", "born"))
    y = np.zeros(rows, dtype=np.int32) if numbers else y
    if ((born < 0) | (born >= arrays["seq"][0])).any():
        raise ValueError("array 'born' names an update after 'seq'")
    nodes, classes = counts.shape
    if ((leaf < 0) | (leaf >= nodes)).any() or (arrays["feature"][leaf] >= 0).any():
        raise ValueError("array 'leaf' names a node that is not a leaf")
    if ((y < 0) | (y >= classes)).any():
        raise ValueError("array 'y' names a class that does not exist")
    found = np.bincount(leaf * np.int64(classes) + y, minlength=nodes * classes).reshape(nodes, classes)
    if (found != counts)[arrays["feature"] < 0].any():
        raise ValueError("array 'counts' has a leaf that does not match 'leaf' and 'y'")
