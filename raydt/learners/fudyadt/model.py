"""The tree as canonical arrays (preorder, node 0 = root): saved, hashed, audited and used to predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.features import Features
from raydt.kernel import kernel
from raydt.learners.fudyadt.live_tree import (
    FREE,
    LEAVES,
    NODES,
    USED,
    Rules,
    Tree,
    floor_product,
    goes_left,
    link,
    majority,
    new_tree,
    with_room,
)

Arrays = dict[str, "npt.NDArray[Any]"]


@kernel
def _preorder(tree: Any, order: Any, place: Any) -> int:
    """Node ids in preorder, and the place of each; returns the largest depth."""
    n = 0
    deepest: int = 0
    node: int = 0
    while True:
        order[n] = node
        place[node] = n
        n += 1
        deepest = max(deepest, tree.nodes[node].depth)
        if tree.nodes[node].feature >= 0:
            node = tree.nodes[node].left
            continue
        while node != 0 and tree.nodes[tree.nodes[node].parent].right == node:
            node = tree.nodes[node].parent
        if node == 0:
            return int(deepest)
        node = tree.nodes[tree.nodes[node].parent].right


@kernel
def _sum_up(feature: Any, left: Any, right: Any, counts: Any) -> None:
    """Class counts of internal nodes from their children, which follow them in preorder."""
    for node in range(len(feature) - 1, -1, -1):
        if feature[node] >= 0:
            for k in range(counts.shape[1]):
                counts[node, k] = counts[left[node], k] + counts[right[node], k]


@kernel
def link_members(tree: Any, members: Any, slots: Any) -> None:
    """Put slots into the lists of the leaves that ``members.leaf`` names."""
    for slot in slots:
        link(tree, members, np.int64(members[slot].leaf), slot)


@kernel
def _predict(feature: Any, threshold: Any, left: Any, right: Any, categorical: Any, X: Any, out: Any) -> None:
    for i in range(len(X)):
        node = 0
        while feature[node] >= 0:
            j = feature[node]
            node = left[node] if goes_left(X[i, j], threshold[node], categorical[j]) else right[node]
        out[i] = node


def preorder(tree: Tree) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], int]:
    """Node ids in preorder, the place of each (-1: not in the tree, as the last entry), and the largest depth."""
    order = np.empty(int(tree.reg[NODES]), dtype=np.int32)
    place = np.full(len(tree.nodes) + 1, -1, dtype=np.int32)
    deepest = int(_preorder(tree, order, place[:-1]))
    return order, place, deepest


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


def shares_of(counts: npt.NDArray[np.int64], n_classes: int) -> npt.NDArray[np.float64]:
    """Shares of ``n_classes`` classes by their counts, shape (n, any number of classes); uniform where all are 0."""
    shares = np.zeros((len(counts), n_classes))
    known = min(n_classes, counts.shape[1])
    shares[:, :known] = counts[:, :known]
    shares[shares.sum(axis=1) == 0] = 1.0
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


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
