"""Path-dependent Shapley values of a sum of trees: how much each feature moves a row's output from the mean.

The value of a set of features is the output when only these are known: at a node that asks for another feature, the
mean of both sides, weighted by the examples that the tree counts there. The values of a row and the mean add up to its
output; those of several trees add up.

Invariant: each leaf is a product over the distinct features of its path, so that the values of a tree are a sum over
its leaves. For a leaf with features j, let z_j be the product of the shares of examples that the nodes of j send its
way, and o_j be 1 if the row goes that way at all of them, else 0. The sums over sets by size are the coefficients of
the product of the (z_j + o_j t); one feature is taken out by a division of polynomials, which is stable as z_j <= 1.

Source: S. Lundberg et al., From local explanations to global understanding with explainable AI for trees, Nature
Machine Intelligence 2020, algorithm 2, whose loop over the tree is a loop over leaves here. O(leaves x depth^2) a row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.sparse import SparseRows
from raydt.errors import InputError
from raydt.learners.tree_sum import TreeSum, passes, tests_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Explanation(NamedTuple):
    """Shapley values of n rows.

    Attributes
    ----------
    values : ndarray of float64, shape (n, d, outputs) or (n, d)
        By feature: how much it adds to each output. ``values.sum(axis=1) + base`` are the outputs.
    base : ndarray of float64, shape (outputs,), or float
        The mean output, weighted by the examples of each tree.
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


def paths_of(trees: TreeSum, cover: Ints, tree: int) -> Paths:
    """The leaves of one tree.

    Parameters
    ----------
    trees : TreeSum
    cover : ndarray of int64, shape (nodes,)
        Examples at each node; a node without any has as much on either side.
    tree : int
        Its number.
    """
    begin, stop = int(trees.starts[tree]), int(trees.starts[tree + 1])
    feature, left, right, count = (
        array[begin:stop].tolist() for array in (trees.feature, trees.left - begin, trees.right - begin, cover)
    )
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
            a, b = count[left[at]], count[right[at]]
            part = (a / (a + b), b / (a + b)) if a + b else (0.5, 0.5)
            for child, is_left, z in ((right[at], False, part[1]), (left[at], True, part[0])):
                waiting.append((child, [*above, (at, is_left, z)]))
            continue
        distinct: dict[int, float] = {}
        places: dict[int, int] = {}
        for inner, is_left, z in above:
            j = feature[inner]
            distinct[j] = distinct.get(j, 1.0) * z
            node.append(inner)
            slot.append(places.setdefault(j, len(places)))
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


def explain(trees: TreeSum, X: Floats, sparse: SparseRows | None = None) -> Explanation:
    """Shapley values of the outputs of a sum of trees before its link.

    Parameters
    ----------
    trees : TreeSum
    X, sparse
        The rows, n of them.

    Returns
    -------
    Explanation
        ``values`` has shape (n, d + s, outputs), and ``base`` shape (outputs,).

    Raises
    ------
    InputError
        The model was saved without the numbers of examples at its nodes.
    """
    if trees.cover is None:
        raise InputError(
            "an earlier version saved this model without the numbers of examples at its nodes",
            remedy="Save it again from its examples, or explain a state",
        )
    ones = sparse or SparseRows.empty(trees.sparse, len(X))
    rows = np.ascontiguousarray(X, dtype=np.float64), ones.indptr, ones.indices
    values = np.zeros((len(X), trees.dense + trees.sparse, trees.outputs))
    tests, base = tests_of(trees), np.zeros(trees.outputs)
    for tree in range(trees.trees):
        paths, begin = paths_of(trees, trees.cover, tree), int(trees.starts[tree])
        longest = int(np.diff(paths.slots).max(initial=0))
        at_leaf = np.ascontiguousarray(trees.value[paths.leaf + begin])
        room = Room(
            goes=np.zeros(int(trees.starts[tree + 1]) - begin, dtype=np.bool_),
            follows=np.zeros(longest + 1),
            whole=np.zeros(longest + 1),
            rest=np.zeros(longest + 1),
            weight=_weights(longest),
        )
        _explain(paths, tests, begin, at_leaf, rows, room, values)
        ends = zip(paths.slots[:-1], paths.slots[1:], strict=True)
        base += np.array([math.prod(paths.share[i:j].tolist()) for i, j in ends]) @ at_leaf
    if trees.mean:
        values /= trees.trees
        base /= trees.trees
    return Explanation(values, base + trees.origin)


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
def _explain(paths: Any, tests: Any, begin: int, outputs: Any, rows: Any, room: Any, values: Any) -> None:
    """Add the values of one tree, whose nodes begin at ``begin``."""
    X, indptr, indices = rows
    follows, whole, rest = room.follows, room.whole, room.rest
    for i in range(len(X)):
        for node in range(len(room.goes)):
            if tests[0][begin + node] >= 0:
                room.goes[node] = passes(tests, begin + node, X[i], indices, indptr[i], indptr[i + 1])
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
