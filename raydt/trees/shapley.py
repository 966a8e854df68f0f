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

from collections.abc import Sequence
from functools import cache, partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Bools, Floats, Int32s, Ints
from raydt.errors import InputError
from raydt.messages import message
from raydt.parallel.threads import ranges, run
from raydt.trees.tree_sum import TreeSum, passes, tests_of


class Explanation(NamedTuple):
    """Shapley values of n rows."""

    #: Shape (n, d, outputs) or (n, d): by feature: how much it adds to each output. ``values.sum(axis=1) + base`` are
    #: the outputs.
    values: Floats
    base: Any  #: Shape (outputs,): the mean output, weighted by the examples of each tree.


class Edges(NamedTuple):
    """What leads to each node of a tree in preorder; nothing leads to the root, which has level 0."""

    level: Ints  #: Shape (nodes,): nodes above it.
    end: Ints  #: Shape (nodes,): the first node that is not below it.
    parent: Ints  #: Shape (nodes,): the node above.
    left: Bools  #: Shape (nodes,): whether the node is the left child.
    #: Shape (nodes,): level of the last node above it that was reached by the same feature; 0 if there is none.
    before: Ints
    distinct: Ints  #: Shape (nodes,): distinct features that the nodes above it ask for.
    share: Floats  #: Shape (nodes,): z of the feature that the parent asks for, from the root to here.
    reach: Floats  #: Shape (nodes,): the product of all shares of examples from the root to here.


def edges_of(trees: TreeSum, cover: Ints, tree: int) -> Edges:
    """Return the edges of tree number ``tree``; a node without examples sends half of a row either way."""
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


class Factors(NamedTuple):
    """What the points t of the rule make of each node, for the rows that go another way (0) and that go there (1)."""

    factor: Floats  #: Shape (nodes, q, 2): f of the feature by which the node is reached.
    inverse: Floats  #: Shape (nodes, q, 2): 1 / f, and 0 where f is 0; 1 for the root.
    slope: Floats  #: Shape (nodes, q, 2): the weight of the point times (o - z) / f; 0 for the root.


def factors_of(edges: Edges) -> Factors:
    """The factors of one tree. O(nodes x q)."""
    point, weight = _rule(max(1, (int(edges.distinct.max()) + 1) // 2))
    t, z, o = (point[:, None] + 1.0) / 2.0, edges.share[:, None, None], np.array([0.0, 1.0])
    factor = z * (1.0 - t) + o * t
    factor[0] = 1.0
    inverse = np.divide(1.0, factor, out=np.zeros_like(factor), where=factor > 0)
    slope = weight[:, None] / 2.0 * (o - z) * inverse
    slope[0] = 0.0
    return Factors(factor, inverse, slope)


@cache
def _rule(points: int) -> tuple[Floats, Floats]:
    """Points and weights of Gauss and Legendre: to find them takes longer than all else about a small tree."""
    point, weight = np.polynomial.legendre.leggauss(points)
    return point, weight


class Room(NamedTuple):
    """Scratch for a block of rows on the way to a node, one entry for each level."""

    node: Ints  #: Shape (levels,): the nodes on the way.
    goes: Floats  #: Shape (levels, rows): 1 for rows that go left there, else 0.
    follows: Floats  #: Shape (levels, rows): o of the feature by which each node was reached.
    product: Floats  #: Shape (levels, q, rows): g.
    #: Shape (levels, outputs, q, rows): g times the output, added up over the leaves at and below the node that have
    #: been passed.
    below: Floats
    total: Floats  #: Shape (rows,).


#: Rows that go through a tree together: enough for the vector units, and few enough for a near cache.
BLOCK = 32


def room_of(edges: Edges, factors: Factors, outputs: int) -> Room:
    """Room for the rows of one tree."""
    levels, points = int(edges.level.max()) + 1, factors.factor.shape[1]
    return Room(
        node=np.zeros(levels, dtype=np.int64),
        goes=np.zeros((levels, BLOCK)),
        follows=np.ones((levels, BLOCK)),
        product=np.ones((levels, points, BLOCK)),
        below=np.zeros((levels, outputs, points, BLOCK)),
        total=np.zeros(BLOCK),
    )


class _Rows(NamedTuple):
    """Rows to explain, with their sparse features."""

    X: Floats
    indptr: Ints
    indices: Int32s


class _Prepared(NamedTuple):
    """What all rows need of a tree, whose nodes begin at ``begin``."""

    begin: int
    edges: Edges
    factors: Factors
    output: Floats  #: Shape (nodes, used outputs).
    used: Ints  #: Outputs that the tree adds to.
    mean: Floats  #: Shape (outputs,).


#: Nodes of the trees that are prepared at once, at most, but for one tree.
_PREPARED = 1 << 15
#: Nodes whose preparation is worth the start of another thread.
_FEW_NODES = 1 << 13
#: Nanoseconds that a row takes at a node and a point of the rule, about, and that a task of a thread takes at least.
_STEP_NS, _TASK_NS = 1, 300_000


def explain(trees: TreeSum, X: Floats, sparse: SparseRows | None = None) -> Explanation:
    """Return the Shapley values of the outputs of a sum of trees before its link, for n rows.

    ``values`` has shape (n, d + s, outputs), ``base`` shape (outputs,). InputError if the model was saved without the
    numbers of examples at its nodes.
    """
    if trees.cover is None:
        raise InputError(message("learners.no_cover"))
    ones = sparse or SparseRows.empty(trees.sparse, len(X))
    values = np.zeros((len(X), trees.dense + trees.sparse, trees.outputs))
    rows, base = _Rows(np.ascontiguousarray(X, dtype=np.float64), ones.indptr, ones.indices), np.zeros(trees.outputs)
    # Shares of classes add up to 1 at every leaf, so that the values of the last one follow from the others.
    computed = trees.outputs - 1 if _constant_sums(trees) else trees.outputs
    begin = 0
    while begin < trees.trees:
        end = max(begin + 1, int(np.searchsorted(trees.starts, trees.starts[begin] + _PREPARED, side="right")) - 1)
        several = ranges(end - begin, -(-_FEW_NODES * (end - begin) // int(trees.starts[end] - trees.starts[begin])), 4)
        some = [range(begin + part.start, begin + part.stop) for part in several]
        prepared = list(chain.from_iterable(run([partial(_all_prepared, trees, part, computed) for part in some])))
        for tree in prepared:
            base += tree.mean
        work = sum(tree.factors.factor.size // 2 for tree in prepared)
        blocks = ranges(-(-len(X) // BLOCK), _TASK_NS // (_STEP_NS * BLOCK * max(1, work)), 4)
        parts = [slice(part.start * BLOCK, min(part.stop * BLOCK, len(X))) for part in blocks]
        run([partial(_add_values, prepared, tests_of(trees), rows, part, values[part]) for part in parts])
        begin = end
    if computed < trees.outputs:
        values[:, :, computed] = -values[:, :, :computed].sum(axis=2)
    if trees.mean:
        values /= trees.trees
        base /= trees.trees
    return Explanation(values, base + trees.origin)


def _all_prepared(trees: TreeSum, some: range, computed: int) -> list[_Prepared]:
    """Return what all rows need of some trees."""
    assert trees.cover is not None
    return [_prepared(trees, trees.cover, tree, computed) for tree in some]


def _prepared(trees: TreeSum, cover: Ints, tree: int, computed: int) -> _Prepared:
    """Return what all rows need of one tree."""
    begin, stop = int(trees.starts[tree]), int(trees.starts[tree + 1])
    edges, value = edges_of(trees, cover, tree), trees.value[begin:stop]
    used = np.flatnonzero(value[:, :computed].any(axis=0))  # each tree of several classes adds to one output
    return _Prepared(begin, edges, factors_of(edges), np.ascontiguousarray(value[:, used]), used, edges.reach @ value)


def _add_values(prepared: Sequence[_Prepared], tests: Any, rows: _Rows, part: slice, values: Floats) -> None:
    """Add the values of some trees, one after the other, for a range of rows."""
    some = rows.X[part], rows.indptr[part.start : part.stop + 1], rows.indices
    for tree in prepared:
        room = room_of(tree.edges, tree.factors, len(tree.used))
        _explain(tree.edges, tree.factors, tests, tree.begin, (tree.output, tree.used), some, room, values)


def _constant_sums(trees: TreeSum) -> bool:
    """Whether the outputs of every leaf add up to the same number, but for rounding."""
    sums = trees.value[trees.feature < 0].sum(axis=1)
    return trees.outputs > 1 and bool(np.ptp(sums) <= 8 * np.finfo(np.float64).eps * np.abs(sums).max())


@kernel
def _explain(edges: Any, factors: Any, tests: Any, begin: int, outputs: Any, rows: Any, room: Any, values: Any) -> None:
    """Add the values of one tree, whose nodes begin at ``begin``."""
    X, indptr, indices = rows
    feature, (output, used), nodes = tests[0], outputs, len(edges.level)
    for first in range(0, len(X), BLOCK):
        count = min(BLOCK, len(X) - first)
        node, top = 0, 0
        while True:
            level = edges.level[node] if node < nodes else 0
            while top >= max(level, 1):  # nodes of which all leaves have been passed
                j = feature[begin + edges.parent[room.node[top]]]
                for v in range(len(used)):
                    _close(edges, factors, room, top, v)
                    for r in range(count):
                        values[first + r, j, used[v]] += room.total[r]
                top -= 1
            if node == nodes:
                break
            top, room.node[level] = level, node
            if level > 0:
                _enter(edges, factors, room, level)
            if feature[begin + node] >= 0:
                goes = room.goes[level]
                for r in range(count):
                    i = first + r
                    goes[r] = 1.0 if passes(tests, begin + node, X[i], indices, indptr[i], indptr[i + 1]) else 0.0
                room.below[level] = 0.0
            else:
                for v in range(len(used)):
                    for m in range(room.product.shape[1]):
                        product, below, value = room.product[level, m], room.below[level, v, m], output[node, v]
                        for r in range(BLOCK):
                            below[r] = product[r] * value
            node += 1


@inner_kernel
def _enter(edges: Any, factors: Any, room: Any, level: int) -> None:
    """Which rows of the block go to a node, and the product of its factors. O(q x rows)."""
    node = room.node[level]
    before = edges.before[node]
    last = room.node[before]
    o, was, goes = room.follows[level], room.follows[before], room.goes[level - 1]
    left = 1.0 if edges.left[node] else 0.0
    for r in range(BLOCK):
        o[r] = was[r] if goes[r] == left else 0.0
    for m in range(room.product.shape[1]):
        there, above = room.product[level, m], room.product[level - 1, m]
        f, step = factors.factor[node, m, 0], factors.factor[node, m, 1] - factors.factor[node, m, 0]
        away, along = factors.inverse[last, m, 0], factors.inverse[last, m, 1]  # chosen: their difference may be large
        for r in range(BLOCK):
            there[r] = above[r] * (f + o[r] * step) * (along if was[r] == 1.0 else away)


@inner_kernel
def _close(edges: Any, factors: Any, room: Any, level: int, v: int) -> None:
    """Integrate what the leaves below a node add, and hand it on to the node above. O(q x rows)."""
    node = room.node[level]
    before = edges.before[node]
    last = room.node[before]
    o, was, total = room.follows[level], room.follows[before], room.total
    total[:] = 0.0
    for m in range(room.product.shape[1]):
        below, above = room.below[level, v, m], room.below[level - 1, v, m]
        f, step = factors.slope[node, m, 0], factors.slope[node, m, 1] - factors.slope[node, m, 0]
        g, back = factors.slope[last, m, 0], factors.slope[last, m, 1] - factors.slope[last, m, 0]
        for r in range(BLOCK):
            total[r] += below[r] * ((f + o[r] * step) - (g + was[r] * back))
            above[r] += below[r]
