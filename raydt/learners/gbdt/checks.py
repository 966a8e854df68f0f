"""Checks of arrays from a file before kernels follow the indices in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.batches.binning import Bins
from raydt.examples.features import Features
from raydt.learners.gbdt.ensemble import LARGEST_EXPONENT, one_tree
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.pending_updates import TO_DELETE, TO_INSERT
from raydt.learners.gbdt.retraining import RECORD
from raydt.trees.state_checks import check_bins, check_held, require, typed

Arrays = Mapping[str, npt.NDArray[Any]]

_NODES = {"feature": np.int32, "cut": np.int32, "left": np.int32, "right": np.int32, "value": np.float64}
_SUMS = {"G": np.int64, "H": np.int64, "tried_g": np.int64, "tried_h": np.int64}
_SUMS |= {"above": np.uint16, "below": np.uint16}
_SCALARS = ("seq", "warmup", "classes", "exponent", "rebuilds", "rebuilt_rows", *RECORD)


def check_trees(arrays: Arrays, bins: Bins, max_leaf_nodes: int, types: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Trees in preorder over the cuts of ``bins``, not too large; which nodes are leaves. O(nodes log nodes).

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    counts = arrays["tree_nodes"]
    n = arrays["node_feature"].size
    require(counts.dtype == np.int32 and counts.ndim == 1 and (counts > 0).all(), "tree_nodes", "is not of counts")
    require(counts.sum() == n, "tree_nodes", "does not count the nodes")
    require((counts < 2 * max_leaf_nodes).all(), "tree_nodes", "has a tree of more leaves than 'max_leaf_nodes'")
    for name, dtype in types.items():
        typed(arrays, f"node_{name}", dtype, (n,))
    feature, cut, left, right = (arrays[f"node_{name}"] for name in ("feature", "cut", "left", "right"))
    inner = feature >= 0
    place = bins.places(feature[inner])
    is_there = (feature >= -1).all() and (place < len(bins)).all()
    require(is_there, "node_feature", "names a feature that is not there, or has no cut")
    require(((cut[inner] >= 0) & (cut[inner] < bins.cuts()[place])).all(), "node_cut", "names a cut that is not there")
    require(not cut[~inner].any(), "node_cut", "has a cut at a leaf")
    first = np.repeat(np.cumsum(counts) - counts, counts)
    node = np.arange(n)
    size = np.repeat(counts, counts)
    children = np.concatenate([(first + left)[inner], (first + right)[inner]])
    within = ((left > 0) & (left < size) & (right > 0) & (right < size))[inner].all()
    is_tree = within and np.array_equal(np.sort(children), node[node != first])
    is_tree = is_tree and bool((children > np.tile(node[inner], 2)).all())
    require(is_tree, "node_left", "and 'node_right' are not those of trees in preorder")
    require(np.isfinite(arrays["node_value"]).all(), "node_value", "has a value that is not finite")
    return ~inner


def check_model(arrays: Arrays, options: GBDTOptions, features: Features, classes: int) -> None:
    """A predict-only model: see :func:`raydt.trees.state_checks.check_bins` and :func:`check_trees`."""
    if "tree_nodes" not in arrays:
        only = typed(arrays, "only", np.float64, (1,))
        require((np.isfinite(only).all() and 0 <= only[0] < max(1, classes)) or classes == 0, "only", "is no class")
        return
    bins = check_bins(arrays, features.kinds, features.sparse)
    check_trees(arrays, bins, options.max_leaf_nodes, {**_NODES, "gain": np.float64})
    if "node_count" in arrays:  # an earlier version did not save it
        count = typed(arrays, "node_count", np.int64, arrays["node_feature"].shape)
        require(((count >= 0) & (count < 2**31)).all(), "node_count", "has a number that is not that of examples")
    per = _check_classes(arrays, options, classes)
    require(typed(arrays, "per", np.int64, (1,))[0] == per, "per", "is not the number of trees of an iteration")


def _check_classes(arrays: Arrays, options: GBDTOptions, classes: int) -> int:
    """K of the model is one that its labels allow (a model of two classes may have seen one label); K'."""
    K = int(typed(arrays, "classes", np.int64, (1,))[0])
    require(K == 0 if classes == 0 else 2 <= K <= max(2, classes), "classes", "is not the number of classes")
    require(np.isfinite(typed(arrays, "origin", np.float64, (1,))[0]), "origin", "is not finite")
    per = 1 if one_tree(options, K) else K
    require(len(arrays["tree_nodes"]) % per == 0, "tree_nodes", "has an iteration that is not complete")
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
        typed(arrays, name, np.int64, (1,))
    require(abs(int(arrays["exponent"][0])) <= LARGEST_EXPONENT, "exponent", "is beyond that of any target")
    typed(arrays, "id", np.int64, (rows,))
    y, born = arrays["y"], typed(arrays, "born", np.int64, (rows,))
    pending = typed(arrays, "pending", np.int8, (rows,))
    require(((pending >= 0) & (pending <= TO_DELETE)).all(), "pending", "has a number that is not 0, 1 or 2")
    for name, values in (("id", arrays["id"][pending != TO_DELETE]), ("born", born)):
        require(len(np.unique(values)) == len(values), name, "has the same number for two examples")
    require(
        ((born >= 0) & (born < arrays["seq"][0])).all(), "born", "names an update that is not among the first 'seq'"
    )
    if classes == 0:
        require(np.isfinite(typed(arrays, "y", np.float64, (rows,))).all(), "y", "has a target that is not finite")
    else:
        require(((y >= 0) & (y < classes)).all() and y.dtype == np.int32, "y", "names a class that is not there")
    if "tree_nodes" in arrays:
        bins = check_bins(arrays, features.kinds, features.sparse)
        leaves = check_trees(arrays, bins, options.max_leaf_nodes, {**_NODES, **_SUMS})
        _check_classes(arrays, options, classes)
        typed(arrays, "drift", np.uint16, (rows,))
        _check_rows(arrays, leaves, rows, classes)
    else:
        require((pending == TO_INSERT).all(), "pending", "has a row in a model that is not there")
    check_held(groups, features, rows)


def _check_rows(arrays: Arrays, leaves: npt.NDArray[np.bool_], rows: int, classes: int) -> None:
    """Leaf and ledger of every row in every tree."""
    counts, leaf = arrays["tree_nodes"], arrays["leaf"]
    trees = len(counts)
    require(leaf.shape == (rows, trees) and leaf.dtype in (np.uint8, np.uint16), "leaf", "is not by row and tree")
    typed(arrays, "ledger", np.int32 if classes == 0 else np.uint16, (rows, trees))
    in_model = arrays["pending"] != TO_INSERT
    held = leaf[in_model].astype(np.int64)
    absent = np.iinfo(leaf.dtype).max
    require((leaf[~in_model] == absent).all(), "leaf", "names a node of a row that waits to be inserted")
    require((held < counts).all(), "leaf", "names a node that is not there")
    first = np.cumsum(counts) - counts
    require(leaves[first + np.minimum(held, counts - 1)].all(), "leaf", "names a node that is not a leaf")
    require((arrays["node_H"] >= 0).all(), "node_H", "is negative")
