"""Path-dependent Shapley values of one tree: how much each feature moves a row's output from the mean of the tree.

The value of a set of features is the output when only these are known: at a node that asks for another feature, the
mean of both sides, weighted by the examples that the tree counts there. The values of a row and the mean add up to its
output.

Invariant: each leaf is a product over the distinct features of its path, so that the values of a tree are a sum over
its leaves. For a leaf with features j, let z_j be the product of the shares of examples that the nodes of j send its
way, and o_j be 1 if the row goes that way at all of them, else 0. The sums over sets by size are the coefficients of
the product of the (z_j + o_j t); one feature is taken out by a division of polynomials, which is stable as z_j <= 1.

Source: S. Lundberg et al., From local explanations to global understanding with explainable AI for trees, Nature
Machine Intelligence 2020, algorithm 2, whose loop over the tree is a loop over leaves here. O(leaves x depth^2) a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.sparse import SparseRows, is_one
from raydt.learners.nodes import goes_left

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Explanation(NamedTuple):
    """Shapley values of n rows.

    Attributes
    ----------
    values : ndarray of float64, shape (n, d, outputs) or (n, d)
        By feature: how much it adds to each output. ``values.sum(axis=1) + base`` are the outputs.
    base : ndarray of float64, shape (outputs,), or float
        The mean output, weighted by the examples of the tree.
    """

    values: Floats
    base: Any


class Paths(NamedTuple):
    """The leaves of a tree in preorder, each with the nodes above it and the distinct features these ask for.

    Attributes
    ----------
    leaf : ndarray of int64, shape (leaves,)
        Node of each leaf.
    starts, slots : ndarray of int64, shape (leaves + 1,)
        Where the nodes of each leaf begin, and its features.
    node, slot : ndarray of int64
        Nodes above a leaf, and which of the leaf's features each asks for.
    left : ndarray of bool
        Whether the leaf lies to the left of the node.
    feature : ndarray of int64
        The features of a leaf.
    share : ndarray of float64
        z of each of them.
    """

    leaf: Ints
    starts: Ints
    slots: Ints
    node: Ints
    slot: Ints
    left: npt.NDArray[np.bool_]
    feature: Ints
    share: Floats


def paths_of(tree: Mapping[str, npt.NDArray[Any]], cover: Ints) -> Paths:
    """The leaves of a tree.

    Parameters
    ----------
    tree : mapping of str to ndarray
        ``feature``, ``left`` and ``right`` by node, in preorder.
    cover : ndarray of int64, shape (nodes,)
        Examples at each node; a node without any has as much on either side.
    """
    feature, left, right = (tree[name].tolist() for name in ("feature", "left", "right"))
    leaf: list[int] = []
    starts, slots = [0], [0]
    node: list[int] = []
    slot: list[int] = []
    to_left: list[bool] = []
    features: list[int] = []
    shares: list[float] = []
    waiting: list[tuple[int, list[tuple[int, bool, float]]]] = [(0, [])]
    while waiting:
        at, above = waiting.pop()
        if feature[at] >= 0:
            sizes = cover[[left[at], right[at]]].astype(np.float64)
            part = sizes / sizes.sum() if sizes.sum() else np.array([0.5, 0.5])
            for child, is_left, z in ((right[at], False, part[1]), (left[at], True, part[0])):
                waiting.append((child, [*above, (at, is_left, float(z))]))
            continue
        distinct: dict[int, float] = {}
        for inner, is_left, z in above:
            place = [*distinct].index(feature[inner]) if feature[inner] in distinct else len(distinct)
            distinct[feature[inner]] = distinct.get(feature[inner], 1.0) * z
            node.append(inner)
            slot.append(place)
            to_left.append(is_left)
        features += distinct
        shares += distinct.values()
        leaf.append(at)
        starts.append(len(node))
        slots.append(len(features))
    return Paths(
        leaf=np.array(leaf, dtype=np.int64),
        starts=np.array(starts, dtype=np.int64),
        slots=np.array(slots, dtype=np.int64),
        node=np.array(node, dtype=np.int64),
        slot=np.array(slot, dtype=np.int64),
        left=np.array(to_left, dtype=np.bool_),
        feature=np.array(features, dtype=np.int64),
        share=np.array(shares, dtype=np.float64),
    )


def explain(
    tree: Mapping[str, npt.NDArray[Any]],
    cover: Ints,
    outputs: Floats,
    categorical: npt.NDArray[np.bool_],
    X: Floats,
    sparse: SparseRows,
) -> Explanation:
    """Shapley values of the outputs of a tree.

    Parameters
    ----------
    tree : mapping of str to ndarray
        ``feature``, ``threshold``, ``left`` and ``right`` by node, in preorder.
    cover : ndarray of int64, shape (nodes,)
        Examples at each node.
    outputs : ndarray of float64, shape (nodes, outputs)
        Of each leaf; what other nodes have is not read.
    categorical : ndarray of bool, shape (dense features,)
    X, sparse
        The rows, n of them.

    Returns
    -------
    Explanation
        ``values`` has shape (n, dense features + width of the sparse ones, outputs).
    """
    paths = paths_of(tree, cover)
    longest = int(np.diff(paths.slots).max(initial=0))
    values = np.zeros((len(X), len(categorical) + sparse.n_features, outputs.shape[1]))
    at_leaf = np.ascontiguousarray(outputs[paths.leaf], dtype=np.float64)
    room = Room(
        goes=np.zeros(len(tree["feature"]), dtype=np.bool_),
        follows=np.zeros(longest + 1),
        whole=np.zeros(longest + 1),
        rest=np.zeros(longest + 1),
        weight=_weights(longest),
    )
    splits = np.ascontiguousarray(tree["feature"]), np.ascontiguousarray(tree["threshold"])
    rows = np.ascontiguousarray(X, dtype=np.float64), sparse.indptr, sparse.indices
    _explain(paths, *splits, at_leaf, categorical, *rows, room, values)
    products = [math.prod(paths.share[i:j].tolist()) for i, j in zip(paths.slots[:-1], paths.slots[1:], strict=True)]
    return Explanation(values, np.array(products) @ at_leaf)


class Room(NamedTuple):
    """Scratch: by node whether the row goes left; by feature of a leaf o; coefficients; and weights by set size."""

    goes: npt.NDArray[np.bool_]
    follows: Floats
    whole: Floats
    rest: Floats
    weight: Floats


def _weights(longest: int) -> Floats:
    """k! (u - 1 - k)! / u! for sets of k of u - 1 features, by u and k."""
    weight = np.zeros((longest + 1, longest + 1))
    for u in range(1, longest + 1):
        for k in range(u):
            weight[u, k] = 1.0 / (u * math.comb(u - 1, k))
    return weight


@kernel
def _explain(
    paths: Any,
    feature: Any,
    threshold: Any,
    outputs: Any,
    categorical: Any,
    X: Any,
    indptr: Any,
    indices: Any,
    room: Any,
    values: Any,
) -> None:
    dense = len(categorical)
    follows, whole, rest = room.follows, room.whole, room.rest
    for i in range(len(X)):
        for node in range(len(feature)):
            j = feature[node]
            if j >= dense:
                room.goes[node] = not is_one(indices, indptr[i], indptr[i + 1], j - dense)
            elif j >= 0:
                room.goes[node] = goes_left(X[i, j], threshold[node], categorical[j])
        for leaf in range(len(paths.leaf)):
            first, u = paths.slots[leaf], paths.slots[leaf + 1] - paths.slots[leaf]
            follows[:u] = 1.0
            for step in range(paths.starts[leaf], paths.starts[leaf + 1]):
                if room.goes[paths.node[step]] != paths.left[step]:
                    follows[paths.slot[step]] = 0.0
            whole[0] = 1.0
            for k in range(u):
                z, o = paths.share[first + k], follows[k]
                whole[k + 1] = whole[k] * o
                for m in range(k, 0, -1):
                    whole[m] = whole[m] * z + whole[m - 1] * o
                whole[0] *= z
            for k in range(u):
                z, o = paths.share[first + k], follows[k]
                if o == z:
                    continue
                total = 0.0
                if o == 0.0:
                    for m in range(u):
                        total += whole[m] / z * room.weight[u, m]
                else:
                    rest[u - 1] = whole[u]
                    for m in range(u - 1, 0, -1):
                        rest[m - 1] = whole[m] - z * rest[m]
                    for m in range(u):
                        total += rest[m] * room.weight[u, m]
                for v in range(outputs.shape[1]):
                    values[i, paths.feature[first + k], v] += total * (o - z) * outputs[leaf, v]
