"""What is required of arrays from a file before kernels follow the indices in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.binning import SPARSE, Bins
from raydt.features import CATEGORICAL, NUMERIC, Features
from raydt.learners.gbdt.ensemble import LARGEST_EXPONENT, one_tree
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.waiting import COMING, GOING
from raydt.sparse import SparseRows

Arrays = Mapping[str, npt.NDArray[Any]]

_BINS = {
    "kinds": np.int8,
    "values": np.float64,
    "ranks": np.int32,
    "starts": np.int64,
    "seen": np.uint8,
    "default": np.int32,
}
_NODES = {"feature": np.int32, "cut": np.int32, "left": np.int32, "right": np.int32, "value": np.float64}
_SUMS = {"G": np.int64, "H": np.int64, "tried_g": np.int64, "tried_h": np.int64}
_SCALARS = ("seq", "warmup", "classes", "exponent", "rebuilds", "rebuilt_rows")


def _require(holds: bool | np.bool_, name: str, problem: str) -> None:
    if not holds:
        raise ValueError(f"array {name!r} {problem}")


def _typed(arrays: Arrays, name: str, dtype: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    array = arrays[name]
    fits = array.dtype == dtype and array.shape == shape
    _require(fits, name, f"is not {np.dtype(dtype)} of shape {shape}")
    return array


def check_bins(arrays: Arrays, features: Features) -> Bins:
    """Bins of these features. O(d + bins).

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    d, total = len(features), arrays["bins_values"].size
    for name, dtype in _BINS.items():
        shape = (total,) if name in ("values", "ranks") else (d + (name == "starts"),)
        _typed(arrays, f"bins_{name}", dtype, shape)
    bins = Bins.from_arrays(dict(arrays))
    kinds = np.concatenate([features.kinds, np.full(features.sparse, SPARSE, dtype=np.int8)])
    _require(np.array_equal(bins.kinds, kinds), "bins_kinds", "does not have the kinds of the features")
    steps = np.diff(bins.starts)
    _require(bins.starts[0] == 0 and bins.starts[-1] == total and (steps >= 0).all(), "bins_starts", "does not ascend")
    _require(not steps[bins.kinds == SPARSE].any(), "bins_starts", "gives values to a sparse feature")
    feature = np.repeat(np.arange(d), steps)
    ascends = np.diff(bins.values) > 0
    _require(
        (ascends | (np.diff(feature) > 0)).all() and np.isfinite(bins.values).all(), "bins_values", "does not ascend"
    )
    categorical = bins.kinds[feature] == CATEGORICAL
    in_order = np.lexsort((bins.ranks, feature))
    place = np.arange(total) - bins.starts[feature]
    _require((bins.ranks[in_order] == place)[categorical].all(), "bins_ranks", "does not number the categories")
    _require((bins.seen <= 1).all(), "bins_seen", "is not of 0 and 1")
    _require(
        ((bins.default >= 0) & (bins.default < bins.counts())).all(), "bins_default", "names a bin that is not there"
    )
    return bins


def check_trees(arrays: Arrays, bins: Bins, max_leaf_nodes: int, types: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Trees in preorder over the cuts of ``bins``, not too large; which nodes are leaves. O(nodes log nodes).

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    counts = arrays["tree_nodes"]
    n = arrays["node_feature"].size
    _require(counts.dtype == np.int32 and counts.ndim == 1 and (counts > 0).all(), "tree_nodes", "is not of counts")
    _require(counts.sum() == n, "tree_nodes", "does not count the nodes")
    _require((counts < 2 * max_leaf_nodes).all(), "tree_nodes", "has a tree of more leaves than 'max_leaf_nodes'")
    for name, dtype in types.items():
        _typed(arrays, f"node_{name}", dtype, (n,))
    feature, cut, left, right = (arrays[f"node_{name}"] for name in ("feature", "cut", "left", "right"))
    inner = feature >= 0
    _require(((feature >= -1) & (feature < len(bins))).all(), "node_feature", "names a feature that is not there")
    _require(((cut >= 0) & (cut < bins.cuts()[feature]))[inner].all(), "node_cut", "names a cut that is not there")
    first = np.repeat(np.cumsum(counts) - counts, counts)
    at = np.arange(n)
    size = np.repeat(counts, counts)
    children = np.concatenate([(first + left)[inner], (first + right)[inner]])
    within = ((left > 0) & (left < size) & (right > 0) & (right < size))[inner].all()
    is_tree = within and np.array_equal(np.sort(children), at[at != first])
    is_tree = is_tree and bool((children > np.tile(at[inner], 2)).all())
    _require(is_tree, "node_left", "and 'node_right' are not those of trees in preorder")
    _require(np.isfinite(arrays["node_value"]).all(), "node_value", "has a value that is not finite")
    return ~inner


def check_model(arrays: Arrays, options: GBDTOptions, features: Features, classes: int) -> None:
    """A predict-only model: see :func:`check_bins` and :func:`check_trees`."""
    if "tree_nodes" not in arrays:
        only = _typed(arrays, "only", np.float64, (1,))
        _require((np.isfinite(only).all() and 0 <= only[0] < max(1, classes)) or classes == 0, "only", "is no class")
        return
    bins = check_bins(arrays, features)
    check_trees(arrays, bins, options.max_leaf_nodes, {**_NODES, "gain": np.float64})
    per = _check_classes(arrays, options, classes)
    _require(_typed(arrays, "per", np.int64, (1,))[0] == per, "per", "is not the number of trees of an iteration")


def _check_classes(arrays: Arrays, options: GBDTOptions, classes: int) -> int:
    """K of the model is one that its labels allow (a model of two classes may have seen one label); K'."""
    K = int(_typed(arrays, "classes", np.int64, (1,))[0])
    _require(K == 0 if classes == 0 else 2 <= K <= max(2, classes), "classes", "is not the number of classes")
    _require(np.isfinite(_typed(arrays, "origin", np.float64, (1,))[0]), "origin", "is not finite")
    per = 1 if one_tree(options, K) else K
    _require(len(arrays["tree_nodes"]) % per == 0, "tree_nodes", "has an iteration that is not complete")
    return per


def check_state(
    arrays: Arrays, groups: Mapping[int, Arrays], options: GBDTOptions, features: Features, classes: int
) -> None:
    """A state: its trees, and rows each with features, leaves and ledger. O(rows x (trees + features)).

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    rows = arrays["id"].size
    for name in _SCALARS:
        _typed(arrays, name, np.int64, (1,))
    _require(abs(int(arrays["exponent"][0])) <= LARGEST_EXPONENT, "exponent", "is beyond that of any target")
    _typed(arrays, "id", np.int64, (rows,))
    y, born = arrays["y"], _typed(arrays, "born", np.int64, (rows,))
    pending = _typed(arrays, "pending", np.int8, (rows,))
    _require(((pending >= 0) & (pending <= GOING)).all(), "pending", "has a number that is not 0, 1 or 2")
    for name, values in (("id", arrays["id"][pending != GOING]), ("born", born)):
        _require(len(np.unique(values)) == len(values), name, "has the same number for two examples")
    _require(
        ((born >= 0) & (born < arrays["seq"][0])).all(), "born", "names an update that is not among the first 'seq'"
    )
    if classes == 0:
        _require(np.isfinite(_typed(arrays, "y", np.float64, (rows,))).all(), "y", "has a target that is not finite")
    else:
        _require(((y >= 0) & (y < classes)).all() and y.dtype == np.int32, "y", "names a class that is not there")
    if "tree_nodes" in arrays:
        leaves = check_trees(arrays, check_bins(arrays, features), options.max_leaf_nodes, {**_NODES, **_SUMS})
        _check_classes(arrays, options, classes)
        _check_rows(arrays, leaves, rows, classes)
    else:
        _require((pending == COMING).all(), "pending", "has a row in a model that is not there")
    _require(set(groups) == set(range(features.groups)), "X", "is not that of all feature groups")
    for number, group in groups.items():
        columns = features.group_columns(number)
        X = _typed(group, "X", np.float64, (rows, len(columns)))
        numeric = features.kinds[columns] == NUMERIC
        fits = ~np.isinf(X).any() and np.isfinite(X[:, ~numeric]).all()
        _require(fits, "X", f"of feature group {number} has a value that is not finite")
        if features.sparse:
            sparse = SparseRows.of_arrays(group, features.sparse)
            own = (features.groups_of(sparse.indices) == number).all()
            _require(len(sparse) == rows and own, "sparse_values", f"has features that are not of group {number}")


def _check_rows(arrays: Arrays, leaves: npt.NDArray[np.bool_], rows: int, classes: int) -> None:
    """Leaf and ledger of every row in every tree."""
    counts, leaf = arrays["tree_nodes"], arrays["leaf"]
    trees = len(counts)
    _require(leaf.shape == (rows, trees) and leaf.dtype in (np.uint8, np.uint16), "leaf", "is not by row and tree")
    _typed(arrays, "ledger", np.int32 if classes == 0 else np.uint16, (rows, trees))
    in_model = arrays["pending"] != COMING
    held = leaf[in_model].astype(np.int64)
    nowhere = np.iinfo(leaf.dtype).max
    _require((leaf[~in_model] == nowhere).all(), "leaf", "names a node of a row that waits to be inserted")
    _require((held < counts).all(), "leaf", "names a node that is not there")
    first = np.cumsum(counts) - counts
    _require(leaves[first + np.minimum(held, counts - 1)].all(), "leaf", "names a node that is no leaf")
    _require((arrays["node_H"] >= 0).all(), "node_H", "is negative")
