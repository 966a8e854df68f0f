"""Checks of arrays from a file before the kernels of the sparse tree follow the indices in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.examples.features import Features
from raydt.finders.buckets import buckets_of
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.learners.sparse_tree.shard import STATE
from raydt.trees.canonical_arrays import Arrays, check_rows, check_tree

#: Types of the arrays of a group's structures.
_TYPES = dict(zip(STATE, (np.int32, np.int32, np.int32, np.int32, np.int16), strict=True))


def check_model(arrays: Arrays, options: SparseTreeOptions, features: Features, classes: int) -> None:
    """Require of arrays that they are one tree of two classes over these features, no deeper than the options allow.

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    check_tree(arrays, len(features), 2)
    if arrays["counts"].shape[1] != 2:
        raise ValueError("array 'counts' does not count two classes")
    feature, dense = arrays["feature"], len(features.names)
    if (arrays["threshold"][feature >= dense] != 0.5).any():
        raise ValueError("array 'threshold' has a sparse split that is not at 0.5")
    if options.max_depth is not None and _depths(arrays).max() > options.max_depth:
        raise ValueError(f"arrays 'left' and 'right' are those of a tree deeper than max_depth {options.max_depth}")


def check_state(
    arrays: Arrays, groups: Mapping[int, Arrays], options: SparseTreeOptions, features: Features, classes: int
) -> None:
    """Require of a state what ``check_model`` and ``check_rows`` do, and that its structures are those of its rows.

    O(ones x depth x log). That a feature lies within its bucket is left to the audit: one that does not is moved with
    the next update.

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    check_model(arrays, options, features, classes)
    check_rows(arrays, groups, features)
    built = int(arrays["warmup_left"][0]) == 0
    leaf, buckets = arrays["leaf"], len(buckets_of(options.finder, options.finder_alpha).s)
    path = Paths(arrays, 2**31 if options.max_depth is None else options.max_depth)
    for number, group in groups.items():
        sparse = SparseRows.of_arrays(group, features.sparse)
        if len(sparse) != len(leaf) or (features.groups_of(sparse.indices) != number).any():
            raise ValueError(f"array 'sparse_values' of feature group {number} is not of this group and these examples")
        for name, dtype in _TYPES.items():
            if group[name].dtype != dtype or group[name].shape != group["node"].shape or group[name].ndim != 1:
                raise ValueError(
                    f"array {name!r} of feature group {number} is not {np.dtype(dtype)} by node and feature"
                )
        expected = path.counters(leaf, arrays["y"], sparse, built)
        for name, counted in zip(STATE, expected, strict=False):
            if not np.array_equal(group[name], counted):
                raise ValueError(f"array {name!r} of feature group {number} is not that of the examples")
        if ((group["bucket"] < 0) | (group["bucket"] >= buckets)).any():
            raise ValueError(f"array 'bucket' of feature group {number} names a bucket that does not exist")


class Paths:
    """The nodes above every leaf of a tree in preorder, for counting again.

    Parameters
    ----------
    arrays : mapping of str to ndarray
    max_depth : int
        Nodes at this depth have no structure.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]], max_depth: int) -> None:
        feature, left, right = (arrays[name] for name in ("feature", "left", "right"))
        inner = np.flatnonzero(feature >= 0)
        self.parent = np.full(len(feature), -1, dtype=np.int64)
        self.parent[left[inner]] = self.parent[right[inner]] = inner
        self._kept = _depths(arrays) < max_depth

    def counters(
        self, leaf: npt.NDArray[Any], y: npt.NDArray[Any], sparse: SparseRows, built: bool
    ) -> tuple[npt.NDArray[np.int64], ...]:
        """``node``, ``feature``, ``n1`` and ``c11`` of every feature at every node, ascending by node and feature.

        Parameters
        ----------
        leaf, y : ndarray, shape (n,)
        sparse : SparseRows, n rows
        built : bool
            Otherwise the tree is still to be built, and nothing is counted.
        """
        width = max(1, sparse.n_features)
        at, label = np.repeat(leaf, sparse.lengths).astype(np.int64), np.repeat(y, sparse.lengths)
        index = sparse.indices.astype(np.int64)
        node = feature = n1 = c11 = np.empty(0, dtype=np.int64)
        keys, ones = [node], [node]
        while built and len(at):
            kept = self._kept[at]
            keys.append(at[kept] * width + index[kept])
            ones.append(label[kept])
            at = self.parent[at]
            on = at >= 0
            at, label, index = at[on], label[on], index[on]
        key, place = np.unique(np.concatenate(keys), return_inverse=True)
        node, feature = np.divmod(key, width)
        n1 = np.bincount(place, minlength=len(key))
        c11 = np.bincount(place, np.concatenate(ones), minlength=len(key)).astype(np.int64)
        return node, feature, n1, c11


def _depths(arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Depth of every node of a tree in preorder."""
    depth = np.zeros(len(arrays["feature"]), dtype=np.int64)
    for v in np.flatnonzero(arrays["feature"] >= 0).tolist():
        depth[arrays["left"][v]] = depth[arrays["right"][v]] = depth[v] + 1
    return depth
