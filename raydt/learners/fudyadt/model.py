"""The tree as canonical arrays (preorder, node 0 = root): saved, hashed, audited and used to predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.example_store import ExampleStore
from raydt.features import Features
from raydt.kernel import kernel
from raydt.learners.fudyadt.live_tree import Rules, Tree, floor_product, new_tree, with_room
from raydt.learners.nodes import (
    FREE,
    LEAVES,
    MEMBER,
    NODES,
    USED,
    goes_left,
    link_members,
    majority,
    preorder,
    shares_of,
)
from raydt.memory import empty

Arrays = dict[str, "npt.NDArray[Any]"]

#: Types of the arrays of a tree, by node; ``counts`` has a column for each class.
ARRAY_TYPES: dict[str, np.dtype[Any]] = {
    "feature": np.dtype(np.int32),
    "threshold": np.dtype(np.float64),
    "left": np.dtype(np.int32),
    "right": np.dtype(np.int32),
    "s": np.dtype(np.int64),
    "c": np.dtype(np.int64),
    "built": np.dtype(np.int64),
    "counts": np.dtype(np.int64),
}
#: Types of the arrays of a state, by live example.
ROW_TYPES: dict[str, np.dtype[Any]] = {
    "id": np.dtype(np.int64),
    "y": np.dtype(np.int32),
    "born": np.dtype(np.int64),
    "leaf": np.dtype(np.int32),
}
#: Counters begin at 0 and stay below: examples have int32 slots, and ``floor_product`` is exact up to 2**53.
LIMITS = {"s": 2**31, "c": 2**53}


@kernel
def _sum_up(feature: Any, left: Any, right: Any, counts: Any) -> None:
    """Class counts of internal nodes from their children, which follow them in preorder."""
    for node in range(len(feature) - 1, -1, -1):
        if feature[node] >= 0:
            for k in range(counts.shape[1]):
                counts[node, k] = counts[left[node], k] + counts[right[node], k]


@kernel
def _predict(feature: Any, threshold: Any, left: Any, right: Any, categorical: Any, X: Any, out: Any) -> None:
    for i in range(len(X)):
        node = 0
        while feature[node] >= 0:
            j = feature[node]
            node = left[node] if goes_left(X[i, j], threshold[node], categorical[j]) else right[node]
        out[i] = node


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
        raise ValueError("array 'feature' names a column that is not there")
    inner = np.flatnonzero(feature >= 0)
    children = np.concatenate([left[inner], right[inner]])
    if not np.array_equal(np.sort(children), np.arange(1, n)) or (children <= np.tile(inner, 2)).any():
        raise ValueError("arrays 'left' and 'right' are not those of one tree in preorder")
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
        raise ValueError("array 'counts' has a node whose children have more or fewer examples than it")


def check_tree(arrays: Arrays, d: int, classes: int) -> None:
    """Require what the kernels rely on: one tree in preorder over ``d`` features. O(n log n).

    Raises
    ------
    ValueError
        Naming the array that cannot be.
    """
    inner = check_nodes(arrays, ARRAY_TYPES, d, classes)
    if not np.isfinite(arrays["threshold"][inner]).all():
        raise ValueError("array 'threshold' has a split at no finite number")
    for name, limit in LIMITS.items():
        if ((arrays[name] < 0) | (arrays[name] >= limit)).any():
            raise ValueError(f"array {name!r} has a number that is not from 0 to {limit - 1}")
    check_sums(arrays, inner)


def check_examples(arrays: Arrays, scalars: Sequence[str]) -> None:
    """Require of a state whose tree is checked that its live examples are those it counts. O(n log n).

    ``scalars`` are arrays of one number that is not negative. That an example lies in the leaf its features lead to is
    left to the audit.

    Raises
    ------
    ValueError
        Naming the array that cannot be.
    """
    rows = arrays["id"].size
    _require_types(arrays, ROW_TYPES, rows, "live example")
    for name in scalars:
        if arrays[name].dtype != np.int64 or arrays[name].shape != (1,) or not 0 <= arrays[name][0] < 2**53:
            raise ValueError(f"array {name!r} is not one number from 0 to 2**53 - 1")
    for name in ("id", "born"):
        in_order = np.sort(arrays[name])
        if (in_order[1:] == in_order[:-1]).any():
            raise ValueError(f"array {name!r} has the same number for two live examples")
    leaf, y, counts, born = (arrays[name] for name in ("leaf", "y", "counts", "born"))
    if ((born < 0) | (born >= arrays["seq"][0])).any():
        raise ValueError("array 'born' names an update that is not among the first 'seq' ones")
    nodes, classes = counts.shape
    if ((leaf < 0) | (leaf >= nodes)).any() or (arrays["feature"][leaf] >= 0).any():
        raise ValueError("array 'leaf' names a node that is no leaf")
    if ((y < 0) | (y >= classes)).any():
        raise ValueError("array 'y' names a class that is not there")
    found = np.bincount(leaf * np.int64(classes) + y, minlength=nodes * classes).reshape(nodes, classes)
    if (found != counts)[arrays["feature"] < 0].any():
        raise ValueError("array 'counts' has a leaf with more or fewer examples of a class than 'leaf' and 'y' give it")


def check_rows(arrays: Arrays, groups: Mapping[int, Arrays], features: Features) -> None:
    """Require what :func:`check_examples` does, and that each live example has its features.

    Raises
    ------
    ValueError
        Naming the array that cannot be.
    """
    check_examples(arrays, ("seq", "warmup_left", "rebuilds", "rebuilt_rows"))
    rows = arrays["id"].size
    if set(groups) != set(range(features.groups)):
        raise ValueError(f"the feature groups are {sorted(groups)}, not 0 to {features.groups - 1}")
    for number, group in groups.items():
        X, width = group["X"], len(features.group_columns(number))
        if X.dtype != np.float64 or X.shape != (rows, width) or not np.isfinite(X).all():
            problem = f"does not have {width} finite float64 for each live example"
            raise ValueError(f"array 'X' of feature group {number} {problem}")


def canonical_tree(tree: Tree) -> tuple[Arrays, npt.NDArray[np.int32]]:
    """The arrays of the model, and the preorder place of each node id."""
    order, place, _ = preorder(tree)
    counts = tree.counts[order]
    nodes = tree.nodes[order]
    feature = nodes["feature"].copy()
    left = np.where(feature >= 0, place[nodes["left"]], np.int32(-1))
    right = np.where(feature >= 0, place[nodes["right"]], np.int32(-1))
    _sum_up(feature, left, right, counts)
    classes = max(2, int(np.flatnonzero(counts[0]).max(initial=0)) + 1)  # a class announced is not yet a class seen
    arrays: Arrays = {
        "feature": feature,
        "threshold": nodes["threshold"].copy(),
        "left": left,
        "right": right,
        "s": nodes["s"].copy(),
        "c": nodes["c"].copy(),
        "built": nodes["built"].copy(),
        "counts": counts[:, :classes].copy(),
    }
    return arrays, place


def live_tree(arrays: Arrays, rules: Rules) -> Tree:
    """The live tree of canonical arrays, without the rows of its leaves."""
    n, classes = arrays["counts"].shape
    tree = with_room(new_tree(64, classes), n, classes)
    nodes = tree.nodes
    for name in ("feature", "threshold", "left", "right", "s", "c", "built"):
        nodes[name][:n] = arrays[name]
    tree.counts[:n] = arrays["counts"]
    nodes["head"][:n] = -1
    nodes["parent"][0], nodes["depth"][0] = -1, 0
    for i in range(n):
        nodes["allowed"][i] = floor_product(rules.epsilon, int(nodes["s"][i]))
        nodes["label"][i] = majority(tree.counts, i)
        if nodes["feature"][i] >= 0:
            for child in (nodes["left"][i], nodes["right"][i]):
                nodes["parent"][child], nodes["depth"][child] = i, nodes["depth"][i] + 1
    tree.reg[[USED, FREE, NODES, LEAVES]] = n, -1, n, int((nodes["feature"][:n] < 0).sum())
    return tree


def restored(store: ExampleStore, arrays: Arrays, rules: Rules) -> tuple[Tree, npt.NDArray[np.void]]:
    """The live tree and the lists of its leaves from a saved state, whose rows take slots 0, 1, ... of ``store``."""
    n = len(arrays["id"])
    store.fill(arrays["id"], arrays["y"], arrays["born"])
    tree, members = live_tree(arrays, rules), empty(store.capacity, MEMBER)
    members["leaf"][:n] = arrays["leaf"]
    link_members(tree, members, np.arange(n, dtype=np.int32))
    return tree, members


class TreePredictor:
    """Predictions of canonical arrays.

    Parameters
    ----------
    features : Features
    model : dict of str to ndarray
    """

    def __init__(self, features: Features, model: Arrays) -> None:
        self._categorical = features.kinds.astype(np.bool_)
        self._arrays = [np.ascontiguousarray(model[name]) for name in ("feature", "threshold", "left", "right")]
        self.counts = model["counts"]

    def apply(self, X: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """Preorder place of the leaf of each row, shape (n,). O(depth) a row."""
        leaves = np.empty(len(X), dtype=np.int32)
        feature, threshold, left, right = self._arrays
        rows = np.ascontiguousarray(X, dtype=np.float64)
        _predict(feature, threshold, left, right, self._categorical, rows, leaves)
        return leaves

    def predict(self, X: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """Majority class of each row's leaf (the smaller on a tie, 0 in an empty leaf), shape (n,)."""
        labels: npt.NDArray[np.int32] = self.counts.argmax(axis=1).astype(np.int32)
        return labels[self.apply(X)]

    def predict_proba(self, X: npt.NDArray[np.float64], n_classes: int) -> npt.NDArray[np.float64]:
        """Shares of the classes in each row's leaf, shape (n, n_classes); uniform in an empty leaf."""
        return shares_of(self.counts, n_classes)[self.apply(X)]
