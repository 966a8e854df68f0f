"""Path-dependent Shapley values of a sum of trees: how much each feature moves a row's output from the mean.

The value of a set of features is the output when only these are known: at a node that asks for another feature, the
mean of both sides, weighted by the examples that the tree counts there. The values of a row and the mean add up to its
output; those of several trees add up.

Invariant: each leaf is a product over the distinct features of its path, so that the values of a tree are a sum over
its leaves. For a leaf with features j, let z_j be the product of the shares of examples that the nodes of j send its
way, and o_j be 1 if the row goes that way at all of them, else 0. With f_j(t) = z_j (1 - t) + o_j t, and G the product
of all f_j, the leaf moves feature j by its output times the integral of G (o_j - z_j) / f_j from 0 to 1: the weights of
sets by size are integrals of t^k (1 - t)^(u - 1 - k). The integrand is a polynomial of degree u - 1 at most, so that
the Gauss-Legendre rule with ceil(u / 2) points q is exact but for rounding. At each point a node changes one factor of
G, and the leaves below it are added up before they are integrated.

Source: S. Lundberg et al., From local explanations to global understanding with explainable AI for trees, Nature
Machine Intelligence 2020 (the values); P. Yu et al., Linear TreeShap, NeurIPS 2022 (one pass over the tree, and sums
from below; it interpolates where this file integrates). O(nodes x q x outputs) a row.
"""

from __future__ import annotations

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


class Edges(NamedTuple):
    """What leads to each node of a tree in preorder; nothing leads to the root, which has level 0.

    Attributes
    ----------
    level : ndarray of int64, shape (nodes,)
        Nodes above it.
    end : ndarray of int64, shape (nodes,)
        The first node that is not below it.
    parent : ndarray of int64, shape (nodes,)
        The node above.
    left : ndarray of bool, shape (nodes,)
        Whether the node is the left child.
    before : ndarray of int64, shape (nodes,)
        Level of the last node above it that was reached by the same feature; 0 if there is none.
    distinct : ndarray of int64, shape (nodes,)
        Distinct features that the nodes above it ask for.
    share : ndarray of float64, shape (nodes,)
        z of the feature that the parent asks for, from the root to here.
    reach : ndarray of float64, shape (nodes,)
        The product of all shares of examples from the root to here.
    """

    level: Ints
    end: Ints
    parent: Ints
    left: npt.NDArray[np.bool_]
    before: Ints
    distinct: Ints
    share: Floats
    reach: Floats


def edges_of(trees: TreeSum, cover: Ints, tree: int) -> Edges:
    """The edges of one tree.

    Parameters
    ----------
    trees : TreeSum
    cover : ndarray of int64, shape (nodes,)
        Examples at each node; a node without any has as much on either side.
    tree : int
        Its number.
    """
    begin, stop = int(trees.starts[tree]), int(trees.starts[tree + 1])
    n = stop - begin
    edges = Edges(
        level=np.zeros(n, dtype=np.int64),
        end=np.arange(1, n + 1),
        parent=np.zeros(n, dtype=np.int64),
        left=np.zeros(n, dtype=np.bool_),
        before=np.zeros(n, dtype=np.int64),
        distinct=np.zeros(n, dtype=np.int64),
        share=np.ones(n),
        reach=np.ones(n),
    )
    _fill(edges, tests_of(trees), cover, begin)
    return edges


@kernel
def _fill(edges: Any, tests: Any, cover: Any, begin: int) -> None:
    feature, left, right = tests[0], tests[4], tests[5]
    for node in range(len(edges.level)):
        if feature[begin + node] < 0:
            continue
        j, a, b = feature[begin + node], cover[left[begin + node]], cover[right[begin + node]]
        last, z = node, 1.0
        while edges.level[last] > 0 and feature[begin + edges.parent[last]] != j:
            last = edges.parent[last]
        before = edges.level[last]
        if before > 0:
            z = edges.share[last]
        for is_left in (True, False):
            child = (left if is_left else right)[begin + node] - begin
            edges.level[child], edges.parent[child] = edges.level[node] + 1, node
            edges.left[child], edges.before[child] = is_left, before
            edges.distinct[child] = edges.distinct[node] + (1 if before == 0 else 0)
            part = (a if is_left else b) / (a + b) if a + b > 0 else 0.5
            edges.share[child], edges.reach[child] = z * part, edges.reach[node] * part
    for node in range(len(edges.level) - 1, 0, -1):
        above = edges.parent[node]
        edges.end[above] = max(edges.end[above], edges.end[node])


class Room(NamedTuple):
    """Scratch: the points t of the rule; where a row goes; and the way to a node, one entry for each level.

    Attributes
    ----------
    point, weight : ndarray of float64, shape (q,)
    goes : ndarray of bool, shape (nodes,)
        Whether the row goes left.
    node : ndarray of int64, shape (levels,)
        The nodes on the way.
    follows : ndarray of float64, shape (levels,)
        o of the feature by which each node was reached.
    factor, product, slope : ndarray of float64, shape (levels, q)
        f of that feature, G, and the weight times (o - z) / f.
    below : ndarray of float64, shape (levels, outputs, q)
        G times the output, added up over the leaves at and below the node that have been passed.
    """

    point: Floats
    weight: Floats
    goes: npt.NDArray[np.bool_]
    node: Ints
    follows: Floats
    factor: Floats
    product: Floats
    slope: Floats
    below: Floats


def room_of(edges: Edges, outputs: int) -> Room:
    """Room for the rows of one tree."""
    levels, most = int(edges.level.max()) + 1, int(edges.distinct.max())
    point, weight = np.polynomial.legendre.leggauss(max(1, (most + 1) // 2))
    shape = levels, len(point)
    return Room(
        point=(point + 1.0) / 2.0,
        weight=weight / 2.0,
        goes=np.zeros(len(edges.level), dtype=np.bool_),
        node=np.zeros(levels, dtype=np.int64),
        follows=np.ones(levels),
        factor=np.ones(shape),
        product=np.ones(shape),
        slope=np.zeros(shape),
        below=np.zeros((levels, outputs, len(point))),
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
        begin, stop = int(trees.starts[tree]), int(trees.starts[tree + 1])
        edges = edges_of(trees, trees.cover, tree)
        used = np.flatnonzero(trees.value[begin:stop].any(axis=0))  # each tree of several classes adds to one output
        output = np.ascontiguousarray(trees.value[begin:stop, used])
        room = room_of(edges, len(used))
        base[used] += edges.reach @ output
        _explain(edges, tests, begin, (output, used), rows, room, values)
    if trees.mean:
        values /= trees.trees
        base /= trees.trees
    return Explanation(values, base + trees.origin)


@kernel
def _explain(edges: Any, tests: Any, begin: int, outputs: Any, rows: Any, room: Any, values: Any) -> None:
    """Add the values of one tree, whose nodes begin at ``begin``."""
    X, indptr, indices = rows
    feature, (output, used), q = tests[0], outputs, len(room.point)
    for i in range(len(X)):
        node, top = 0, -1
        while True:
            level = edges.level[node] if node < len(edges.level) else 0
            while top >= max(level, 1):  # nodes of which all leaves have been passed
                end, before = room.node[top], edges.before[room.node[top]]
                j = feature[begin + edges.parent[end]]
                for v in range(len(used)):
                    total = 0.0
                    for m in range(q):
                        total += room.below[top, v, m] * (room.slope[top, m] - room.slope[before, m])
                        room.below[top - 1, v, m] += room.below[top, v, m]
                    values[i, j, used[v]] += total
                top -= 1
            if node == len(edges.level):
                break
            top, before, z, o = level, edges.before[node], edges.share[node], 1.0
            if level > 0:
                above = edges.parent[node]
                o = room.follows[before] if room.goes[above] == edges.left[node] else 0.0
                if o == 0.0 and z == 0.0:  # no example and not this row: G is 0 at all leaves below
                    top, node = level - 1, edges.end[node]
                    continue
                for m in range(q):
                    factor = z * (1.0 - room.point[m]) + o * room.point[m]
                    room.factor[level, m] = factor
                    room.slope[level, m] = room.weight[m] * (o - z) / factor
                    room.product[level, m] = room.product[level - 1, m] * (factor / room.factor[before, m])
            room.node[level], room.follows[level] = node, o
            is_leaf = feature[begin + node] < 0
            if not is_leaf:
                room.goes[node] = passes(tests, begin + node, X[i], indices, indptr[i], indptr[i + 1])
            for v in range(len(used)):
                for m in range(q):
                    room.below[level, v, m] = room.product[level, m] * output[node, v] if is_leaf else 0.0
            node += 1
