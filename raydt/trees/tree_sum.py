"""A model as trees whose outputs are added up: the one description that exports and explanations read.

A learner that is a tree, or a sum of trees, gives it (:meth:`raydt.learners.base.Learner.tree_sum`). Nothing in it
depends on how the learner stores its trees.

Invariant: outputs follow from the arrays in one order: origin, then the trees from the first to the last, each addition
in float64; a mean is divided once, at the end. They equal the learner's own scores in every bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.sparse import SparseRows, is_one
from raydt.arrays.types import AnyArray, Bools, Floats, Ints
from raydt.batches.binning import Bins
from raydt.errors import InputError
from raydt.examples.features import CATEGORICAL
from raydt.messages import message

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
        """Which nodes test whether a value is one of some, shape (nodes,)."""
        return np.diff(self.first_member) > 0

    @property
    def asks_number(self) -> Bools:
        """Which nodes test whether a dense number is below a threshold, shape (nodes,)."""
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
    """Whether a row passes the test of a node: ``x`` are its dense features, ``indices[begin:end]`` its ones."""
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
