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
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from raydt.arrays.blocks import SparseRows, is_one
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.binning import Bins
from raydt.errors import InputError
from raydt.examples.updates import CATEGORICAL
from raydt.messages import message
from raydt.parallel import ranges, run

# A model as trees whose outputs are added up: the one description that exports and explanations read.
#
# A learner that is a tree, or a sum of trees, gives it (:meth:`raydt.learners.base.Learner.tree_sum`). Nothing in it
# depends on how the learner stores its trees.
#
# Invariant: outputs follow from the arrays in one order: origin, then the trees from the first to the last, each
# addition in float64; a mean is divided once, at the end. They equal the learner's own scores in every bit.

#: Feature of a node that is a leaf.
LEAF = -1
#: Threshold of a sparse feature, which is 0 or 1.
HALF = 0.5
#: Threshold of a test that all numbers pass and NaN fails: inputs are finite.
LARGEST = float(np.finfo(np.float64).max)

#: What turns outputs into predictions: shares of classes or numbers as they are, log-odds, or logarithms of shares.
Link = Literal["identity", "logistic", "softmax"]


@dataclass(frozen=True, slots=True)
class TreeSum:
    """Trees over d dense and s sparse features, one after the other, each in preorder.

    A node tests one feature. Without ``members`` its test is ``x <= threshold``, else whether ``x`` is one of them.
    A row that passes goes left. A missing number fails, but passes the tests ``x <= threshold`` of ``missing_left``.
    Sparse features follow the dense ones and are 0 or 1.
    """

    dense: int  #: ``dense``, ``sparse``: d and s.
    sparse: int
    starts: Ints  #: Shape (trees + 1,): where the nodes of each tree begin.
    feature: Ints  #: Shape (nodes,): -1 of a leaf.
    threshold: Floats  #: Shape (nodes,): finite; 0 where it is not used.
    first_member: Ints  #: Shape (nodes + 1,): where the members of each node begin.
    members: Floats  #: Ascending within a node.
    left: Ints  #: ``left``, ``right``: Shape (nodes,): numbers of the children among all nodes; -1 of a leaf.
    right: Ints
    value: Floats  #: Shape (nodes, outputs): outputs of the leaves; 0 of other nodes.
    cover: Ints | None  #: Shape (nodes,): live examples at each node. None if the model was saved without them.
    origin: Floats  #: Shape (outputs,): outputs of no trees.
    #: Whether the sum is divided by the number of trees. The origin is 0 then, and leaves are whole multiples of a
    #: power of two, so that sums are exact in any order.
    mean: bool
    link: Link  #: With ``softmax``, tree t adds to output t modulo the number of outputs only.
    #: Shape (outputs,): class of each output. The class that is predicted is that of the largest output, of equals the
    #: first; with one output and ``logistic`` it is class 1 if the output is above 0. Empty where labels are numbers.
    codes: Ints
    missing_left: Bools  #: Shape (nodes,): false where the test is no ``x <= threshold`` of a number.
    unit: int = 1  #: What an example of weight 1 counts in ``cover``.

    @property
    def examples(self) -> Ints | None:
        """Live examples at each node, shape (nodes,); weights are added up, and the sum is rounded."""
        if self.cover is None or self.unit == 1:
            return self.cover
        return np.rint(self.cover / self.unit).astype(np.int64)

    @property
    def trees(self) -> int:
        """Number of trees."""
        return len(self.starts) - 1

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return int(self.value.shape[1])

    @property
    def is_set(self) -> Bools:
        """Return which nodes test whether a value is one of some, shape (nodes,)."""
        return np.diff(self.first_member) > 0

    @property
    def asks_number(self) -> Bools:
        """Return which nodes test whether a dense number is below a threshold, shape (nodes,)."""
        return (self.feature >= 0) & (self.feature < self.dense) & ~self.is_set

    def members_of(self, node: int) -> Floats:
        """The values that pass the test of a node."""
        return self.members[self.first_member[node] : self.first_member[node + 1]]

    def with_origin_as_tree(self) -> TreeSum:
        """The same outputs from an origin of 0: what was the origin is the first trees, one for each output.

        A format that adds its origin last, or not at all, then adds in the same order.
        """
        if not self.origin.any():
            return self
        k, n = self.outputs, len(self.feature)

        def after(array: AnyArray, fill: float) -> AnyArray:
            return np.concatenate([np.full(k, fill, dtype=array.dtype), array])

        total = 0 if self.cover is None else int(self.cover[0])
        return replace(
            self,
            starts=np.concatenate([np.arange(k), self.starts + k]),
            feature=after(self.feature, LEAF),
            threshold=after(self.threshold, 0.0),
            first_member=after(self.first_member, 0),
            left=np.concatenate([np.full(k, -1), np.where(self.left < 0, -1, self.left + k)]),
            right=np.concatenate([np.full(k, -1), np.where(self.right < 0, -1, self.right + k)]),
            value=np.concatenate([np.diag(self.origin), self.value]).reshape(n + k, k),
            cover=None if self.cover is None else after(self.cover, total),
            origin=np.zeros(k),
            missing_left=after(self.missing_left, False),
        )

    def apply(self, X: Floats, sparse: SparseRows | None = None) -> Ints:
        """Leaf of each row in each tree, among all nodes; shape (n, trees). O(trees x depth) a row."""
        ones = sparse or SparseRows.empty(self.sparse, len(X))
        out = np.empty((len(X), self.trees), dtype=np.int64)
        _apply(tests_of(self), self.starts, np.ascontiguousarray(X, np.float64), ones.indptr, ones.indices, out)
        return out

    def scores(self, X: Floats, sparse: SparseRows | None = None) -> Floats:
        """Outputs of each row before the link, shape (n, outputs)."""
        total = np.repeat(self.origin[None, :], len(X), axis=0)
        for leaf in self.apply(X, sparse).T:
            total += self.value[leaf]
        return total / self.trees if self.mean else total


def tests_of(trees: TreeSum) -> Any:
    """The tests of all nodes, as kernels take them."""
    return (
        trees.feature,
        trees.threshold,
        trees.first_member,
        trees.members,
        trees.left,
        trees.right,
        np.int64(trees.dense),
        trees.missing_left,
    )


@inner_kernel
def passes(tests: Any, node: int, x: Any, indices: Any, begin: int, end: int) -> bool:
    """Return True if a row passes the test of a node: ``x`` are its dense features, ``indices[begin:end]`` its ones."""
    feature, threshold, first, members, _, _, dense, missing_left = tests
    j = feature[node]
    if j >= dense:
        return not is_one(indices, begin, end, j - dense)
    if first[node] == first[node + 1]:
        return bool(x[j] <= threshold[node] or (missing_left[node] and x[j] != x[j]))
    found = False
    for at in range(first[node], first[node + 1]):
        found |= x[j] == members[at]
    return found


@kernel
def _apply(tests: Any, starts: Any, X: Any, indptr: Any, indices: Any, out: Any) -> None:
    feature, left, right = tests[0], tests[4], tests[5]
    for i in range(out.shape[0]):
        for t in range(out.shape[1]):
            node = starts[t]
            while feature[node] >= 0:
                went = passes(tests, node, X[i], indices, indptr[i], indptr[i + 1])
                node = left[node] if went else right[node]
            out[i, t] = node


@dataclass(frozen=True, slots=True)
class StoredTrees:
    """The tests of trees as learners store them."""

    starts: AnyArray  #: Shape (trees + 1,).
    feature: AnyArray  #: Shape (nodes,): negative of a leaf.
    #: Shape (nodes,): of a categorical feature the one category that goes left; of a sparse one it is not read.
    threshold: Floats
    left: AnyArray  #: ``left``, ``right``: Shape (nodes,): within their tree.
    right: AnyArray


def one_category_left(stored: StoredTrees, categorical: AnyArray, sparse: int, value: Floats) -> TreeSum:
    """Make trees whose categorical tests send one category to the left; a sum of shares or numbers.

    They have no cover. ``categorical`` has an entry for each of d dense features; ``value``, shape (nodes, outputs), is
    read at leaves only.
    """
    feature = np.where(stored.feature >= 0, stored.feature, LEAF).astype(np.int64)
    inner, dense = feature >= 0, len(categorical)
    single = inner & (feature < dense)
    single[single] = np.asarray(categorical, dtype=np.bool_)[feature[single]]
    threshold = np.where(feature >= dense, HALF, stored.threshold)
    threshold = np.where(inner & ~single, np.minimum(threshold, LARGEST), 0.0)
    first = np.repeat(stored.starts[:-1], np.diff(stored.starts)).astype(np.int64)
    return TreeSum(
        dense=dense,
        sparse=sparse,
        starts=np.asarray(stored.starts, dtype=np.int64),
        feature=feature,
        threshold=threshold,
        first_member=np.concatenate([[0], np.cumsum(single)]).astype(np.int64),
        members=np.ascontiguousarray(stored.threshold[single], dtype=np.float64),
        left=np.where(inner, first + stored.left, -1),
        right=np.where(inner, first + stored.right, -1),
        value=np.where(inner[:, None], 0.0, value),
        cover=None,
        origin=np.zeros(value.shape[1]),
        mean=False,
        link="identity",
        codes=np.arange(value.shape[1]),
        missing_left=np.zeros(len(feature), dtype=np.bool_),
    )


def binned(stored: StoredTrees, cut: AnyArray, bins: Bins, dense: int, value: Floats) -> TreeSum:
    """Trees whose tests are cuts of ``bins``, as in :func:`one_category_left`; ``stored.threshold`` is not read.

    The cut of all other categories is a test for the kept ones, with its sides exchanged.
    """
    feature = np.where(stored.feature >= 0, stored.feature, 0).astype(np.int64)
    begin, end = bins.starts[feature], bins.starts[feature + 1]
    places = np.minimum(begin + cut, np.maximum(end - 1, 0))
    boundary = bins.values[places] if len(bins.values) else np.zeros(len(cut))
    threshold = np.where(begin + cut < end, boundary, LARGEST)
    categorical = bins.kinds[:dense] == CATEGORICAL
    plain = one_category_left(
        replace(stored, threshold=threshold), np.zeros(dense, dtype=np.bool_), len(bins) - dense, value
    )
    lengths = np.zeros(len(feature), dtype=np.int64)
    members: list[Floats] = []
    left, right = plain.left.copy(), plain.right.copy()
    for node in np.flatnonzero(plain.feature >= 0).tolist():
        j = int(feature[node])
        if j >= dense or not categorical[j]:
            continue
        kept, ranks = bins.values[begin[node] : end[node]], bins.ranks[begin[node] : end[node]]
        others = int(cut[node]) == len(kept)
        if others:
            left[node], right[node] = right[node], left[node]
        chosen = kept if others else kept[ranks == cut[node]]
        members.append(chosen)
        lengths[node] = len(chosen)
    return replace(
        plain,
        threshold=np.where(lengths > 0, 0.0, plain.threshold),
        first_member=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        members=np.concatenate([np.empty(0), *members]),
        left=left,
        right=right,
    )


def constant(dense: int, sparse: int, value: Sequence[float] | Floats, cover: int | None, codes: Ints) -> TreeSum:
    """A model of one leaf."""
    none = np.zeros(1, dtype=np.int64)
    stored = StoredTrees(np.array([0, 1]), none - 1, np.zeros(1), none - 1, none - 1)
    trees = one_category_left(stored, np.zeros(dense, np.bool_), sparse, np.array([value], dtype=np.float64))
    return replace(trees, cover=None if cover is None else np.array([cover]), codes=codes)


@runtime_checkable
class HasTreeSum(Protocol):
    """A predictor whose model is a tree, or a sum of trees."""

    def tree_sum(self, n_classes: int) -> TreeSum:
        """The model as trees, of ``n_classes`` classes, or of numbers (0)."""


def tree_sum_of(predictor: Any, n_classes: int) -> TreeSum:
    """Return the trees of a predictor, as :meth:`~raydt.learners.base.Learner.predictor` makes it.

    InputError if its model is not a sum of trees.
    """
    if not isinstance(predictor, HasTreeSum):
        raise InputError(message("learners.no_trees"))
    return predictor.tree_sum(n_classes)


class Explanation(NamedTuple):
    """Shapley values of n rows."""

    #: Shape (n, d, outputs) or (n, d): by feature: how much it adds to each output. ``values.sum(axis=1) + base`` are
    #: the outputs.
    values: Floats
    base: Any  #: Shape (outputs,): the mean output, weighted by the examples of each tree.


class Edges(NamedTuple):
    """The condition that leads to each node of a tree in preorder; nothing leads to the root, which has level 0."""

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
    """The factors of each node at the points t of the rule, for rows that go elsewhere (0) and there (1)."""

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
    """The parts of a tree that all rows need; its nodes begin at ``begin``."""

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
    """Return True if the outputs of every leaf add up to the same number, but for rounding."""
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
    """Find the rows of the block that go to a node, and the product of its factors. O(q x rows)."""
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
