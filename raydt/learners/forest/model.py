"""The predict-only model: trees in preorder, one after the other, and numeric labels in units.

Arrays: ``tree_nodes`` (int64, nodes of each tree), ``feature`` (int32, -1 of a leaf), ``threshold``, ``left`` and
``right`` (int32, places of the children within their tree, -1 of a leaf; the left child is the next node), ``totals``
(int64, class counts, or sums of numeric labels, see :func:`stored`), ``order`` (int64, class codes
in ascending order of their labels) or, with numeric labels, ``exponent``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import Compressed, SparseRows
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.evaluation.scoring import LEVELS, Levels, levels_of
from raydt.examples.digest import Part, Words, begin_digest, digest
from raydt.examples.updates import Features, Targets
from raydt.learners.forest.labels import (
    COARSE_BITS,
    LABEL_BITS,
    PLAIN,
    SUMS,
    WEIGHTED,
    Scale,
    canonical_sums,
    floor_mean,
    label_sums,
)
from raydt.learners.forest.nodes import TreeArrays
from raydt.trees.canonical_arrays import CONTENT, WORDS, changed_nodes, hash_changed
from raydt.trees.packed_trees import PackedTrees, add_votes, packed
from raydt.trees.records import goes_left
from raydt.trees.shapley import StoredTrees, TreeSum, constant, one_category_left
from raydt.trees.state_schema import unit_of

# Votes of leaves, of a shard's trees and of a saved model: whole numbers, which add up in any order.

#: A share of a class is counted in parts of 2**-40.
SHARE_BITS = 40
_HALF_BITS = SHARE_BITS // 2
#: From so many rows (units of weights) on, shares are counted 10 bits at a time: 20 do not fit any more.
_WIDE = 1 << 43


@inner_kernel
def add_vote(totals: Any, node: int, numeric: bool, votes: Any) -> None:
    """Add the vote of a leaf; of numbers ``votes`` are the sum and how many trees it has. A leaf without rows has none.

    Of n rows, class k gets ``floor(2**40 c_k / n)``; of numbers the vote is ``floor(sum / n)`` in units.
    """
    if numeric:
        n = totals[node, 0]
        if n > 0:
            votes[0] += totals[node, 1] // n if totals.shape[1] == PLAIN else floor_mean(totals[node])
            votes[1] += 1
        return
    n = np.int64(0)
    for k in range(totals.shape[1]):
        n += totals[node, k]
    if n >= _WIDE:  # sums of weights
        for k in range(totals.shape[1]):
            share, rest = np.int64(0), totals[node, k]
            for _ in range(4):
                share, rest = (share << 10) + (rest << 10) // n, (rest << 10) % n
            votes[k] += share
    elif n > 0:
        for k in range(totals.shape[1]):
            if totals[node, k]:
                parts = totals[node, k] << _HALF_BITS  # in two steps: 2**40 c_k overflows from 2**23 rows on
                whole = parts // n
                votes[k] += (whole << _HALF_BITS) + ((parts - whole * n) << _HALF_BITS) // n


@kernel
def _vote_each(totals: Any, numeric: bool, votes: Any) -> None:
    for leaf in range(len(totals)):
        add_vote(totals, leaf, numeric, votes[leaf])


def leaf_votes(totals: Ints, numeric: bool) -> Ints:
    """The votes of leaves, shape (leaves, K) or, of numbers, (leaves, 2), as :func:`add_vote` counts them."""
    votes = np.zeros((len(totals), 2 if numeric else totals.shape[1]), dtype=np.int64)
    _vote_each(totals, numeric, votes)
    return votes


@inner_kernel
def vote(forest: Any, row: Any, examples: Any, numeric: bool, votes: Any) -> None:
    """Add the votes of all trees of a shard for a row. O(trees depth)."""
    nodes, categorical = forest.nodes, examples.categorical
    for tree in range(len(forest.roots)):
        node = np.int64(forest.roots[tree])
        j = nodes[node].feature
        while j >= 0:
            left = goes_left(row[j], nodes[node].threshold, categorical[j])
            node = np.int64(nodes[node].left) if left else np.int64(nodes[node].right)
            j = nodes[node].feature
        add_vote(forest.totals, node, numeric, votes)


#: Arrays of every model.
ARRAYS = ("tree_nodes", "feature", "threshold", "left", "right", "totals", "order", "exponent", "unit")


def without_rows(numeric: bool) -> TreeArrays:
    """Return a tree without rows: one leaf."""
    leaf = np.full(1, -1, dtype=np.int32)
    return TreeArrays(np.ones(1, dtype=np.int64), leaf, np.zeros(1), leaf, np.zeros((1, 4 if numeric else 2), np.int64))


def each_tree(arrays: TreeArrays) -> list[TreeArrays]:
    """Return the trees one by one; views."""
    _, feature, threshold, right, totals = arrays
    parts = [slice(stop - n, stop) for n, stop in zip(arrays.nodes, np.cumsum(arrays.nodes), strict=True)]
    nodes = arrays.nodes[:, None]
    return [TreeArrays(nodes[i], feature[p], threshold[p], right[p], totals[p]) for i, p in enumerate(parts)]


def stored(totals: Ints, scale: Scale, per_row: int = 1) -> Ints:
    """Totals of numeric labels as files have them: n, sum and sum of squares or, with weights, W and the sum of w y.

    Labels rounded to 20 bits are in units of so many bits, so that one word holds the sum of squares, or that of w y:
    shape (nodes, 3 or 2). Of others it has two: (nodes, 4 or 3). ``per_row``: units of one row, if all weigh 1 again.
    """
    if per_row > 1:
        totals = np.column_stack([totals[:, 0] // per_row, totals[:, WEIGHTED - 1], totals[:, SUMS : WEIGHTED - 1]])
    if totals.shape[1] != PLAIN:
        return canonical_sums(totals)[:, : SUMS if scale.bits == LABEL_BITS else 2]
    if scale.bits == LABEL_BITS:
        return totals
    return np.stack([totals[:, 0], totals[:, 1] >> (LABEL_BITS - COARSE_BITS), totals[:, 2]], axis=1)


def bits_of(model: Mapping[str, AnyArray]) -> int:
    """Bits that numeric labels are rounded to, as the columns of a model's ``totals`` say."""
    return LABEL_BITS if model["totals"].shape[1] == (PLAIN if unit_of(model) == 1 else SUMS) else COARSE_BITS


def expanded(model: Mapping[str, AnyArray]) -> Ints:
    """Totals of numeric labels of a file in units of 40 bits, shape (nodes, 4), or (nodes, 3) with weights."""
    totals = model["totals"]
    if bits_of(model) == LABEL_BITS:
        return totals
    if unit_of(model) > 1:
        return np.column_stack([totals, np.zeros_like(totals[:, 0])])
    return np.stack(
        [totals[:, 0], totals[:, 1] << (LABEL_BITS - COARSE_BITS), totals[:, 2], np.zeros_like(totals[:, 0])], axis=1
    )


def model_arrays(
    parts: Sequence[TreeArrays], order: Ints, scale: Scale | None, per_row: int = 1, classes: int = 2
) -> Arrays:
    """Return the arrays of the model of some trees, without the classes after the last that lives. O(nodes).

    ``order`` has the class codes in ascending order of their labels, ``scale`` is that of numeric labels; ``per_row``
    units of the trees are one of the model. Totals are of at least so many ``classes``: one may live without a weight.
    """
    nodes, feature, threshold, right, totals = joined_trees(parts)
    starts = np.cumsum(nodes) - nodes
    if scale is not None:
        totals = stored(totals, scale, per_row)
    else:
        totals //= per_row
        living = np.flatnonzero(totals[starts].any(axis=0))
        totals = totals[:, : max(classes, int(living.max(initial=0)) + 1)]
    left = np.arange(1, len(feature) + 1) - np.repeat(starts, nodes)
    arrays: Arrays = {
        "tree_nodes": nodes,
        "feature": feature,
        "threshold": threshold,
        "left": np.where(feature >= 0, left, -1).astype(np.int32),
        "right": right,
        "totals": np.ascontiguousarray(totals),
    }
    if scale is not None:
        return arrays | {"exponent": np.array([scale.exponent], dtype=np.int64)}
    return arrays | {"order": order[order < totals.shape[1]]}


def trees_of_model(arrays: Mapping[str, AnyArray]) -> list[TreeArrays]:
    """Return the trees of a model or state; views."""
    trees = TreeArrays(*(arrays[name] for name in ("tree_nodes", "feature", "threshold", "right", "totals")))
    return each_tree(trees._replace(totals=expanded(arrays)) if "exponent" in arrays else trees)


@kernel
def _depths(starts: Any, feature: Any, right: Any, depth: Any) -> None:
    """Depth of every node, filled in from the roots down."""
    for tree in range(len(starts) - 1):
        depth[starts[tree]] = 0
        for node in range(starts[tree], starts[tree + 1]):
            if feature[node] >= 0:
                depth[node + 1] = depth[starts[tree] + right[node]] = depth[node] + 1


def depths_of(arrays: Mapping[str, AnyArray]) -> Int32s:
    """Depth of every node. O(nodes)."""
    starts = np.concatenate([[0], np.cumsum(arrays["tree_nodes"])]).astype(np.int64)
    depth = np.zeros(len(arrays["feature"]), dtype=np.int32)
    _depths(starts, arrays["feature"], arrays["right"], depth)
    return depth


def numbers_of(votes: Ints, exponent: Ints | int) -> Floats:
    """Predictions of numeric labels, shape (n,), from votes, shape (n, 2): the mean of the trees, 0 without any."""
    mean = np.zeros(len(votes))
    total, trees = votes[:, 0].astype(np.float64), votes[:, 1].astype(np.float64)
    np.divide(total, trees, out=mean, where=votes[:, 1] > 0)
    numbers: Floats = np.ldexp(mean, np.asarray(exponent - LABEL_BITS, dtype=np.int32))
    return numbers


def codes_of(votes: Ints, order: Ints) -> Int32s:
    """Classes of the most votes, shape (n,); of equals that of the smallest label, and class 0 without any.

    ``order`` has the codes of at least these classes in ascending order of their labels.
    """
    order = order[order < votes.shape[1]]
    codes: Int32s = order[votes[:, order].argmax(axis=1)].astype(np.int32)
    codes[~votes.any(axis=1)] = 0
    return codes


def shares_of(votes: Ints, n_classes: int) -> Floats:
    """Shares of the classes, shape (n, n_classes), from votes: the mean of the trees; uniform without any.

    A row's shares add up to 1, less what the votes of each tree were rounded down by: at most K 2^-40.
    """
    shares = np.zeros((len(votes), n_classes))
    known = min(n_classes, votes.shape[1])
    shares[:, :known] = votes[:, :known]
    trees = -(-votes.sum(axis=1) >> SHARE_BITS)  # that have a say: each has given 2^40, less what was rounded down
    shares /= np.ldexp(np.maximum(trees, 1).astype(np.float64), SHARE_BITS)[:, None]
    shares[trees == 0] = 1.0 / max(1, n_classes)
    return shares


#: Votes are cut to so many bits a tree for levels, which are of 13.
_LEVEL_BITS = 24


def levels_of_votes(votes: Ints) -> Levels:
    """The share of class 1 of each row as a level; without any votes one half."""
    ones = votes[:, 1] if votes.shape[1] > 1 else np.zeros(len(votes), dtype=np.int64)
    trees = -(-votes.sum(axis=1) >> SHARE_BITS)
    return levels_of(ones >> (SHARE_BITS - _LEVEL_BITS), trees << _LEVEL_BITS, of_nothing=LEVELS // 2)


class ForestPredictor:
    """Predictions of the arrays of a model or a state."""

    def __init__(self, features: Features, model: Mapping[str, AnyArray]) -> None:
        self._categorical = features.kinds.astype(np.bool_)
        names = ("feature", "threshold", "right", "totals")
        self._nodes = [np.ascontiguousarray(model[name]) for name in names]
        if "exponent" in model:
            self._nodes[-1] = np.ascontiguousarray(expanded(model))
        self._starts = (np.cumsum(model["tree_nodes"]) - model["tree_nodes"]).astype(np.int64)
        self._d, self._unit = len(features), unit_of(model)
        self._order = model.get("order", np.empty(0, dtype=np.int64))
        self._exponent = int(model["exponent"][0]) if "exponent" in model else None
        self._packed: tuple[PackedTrees, Ints] | None = None  # and votes, once they are needed

    def votes(self, X: Floats) -> Ints:
        """Votes of all trees, shape (n, K), or (n, 2) of numbers. O(trees depth) a row."""
        if self._packed is None:
            totals, every = self._nodes[-1], np.ones(len(self._starts), dtype=np.bool_)
            trees = packed(self._sum_of(every, np.empty((len(totals), 0))))
            self._packed = trees, leaf_votes(totals, self._exponent is not None)
        trees, votes = self._packed
        out = np.zeros((len(X), votes.shape[1]), dtype=np.int64)
        add_votes(trees, votes, X, None, out)
        return out

    def _sum_of(self, which: Any, value: Floats) -> TreeSum:
        """Some of the trees, and the values of their leaves."""
        feature, threshold, right, _ = self._nodes
        sizes = np.diff(np.append(self._starts, len(feature)))
        kept, starts = np.repeat(which, sizes), np.concatenate([[0], np.cumsum(sizes[which])])
        left = np.arange(starts[-1]) - np.repeat(starts[:-1], np.diff(starts)) + 1
        stored = StoredTrees(starts, feature[kept], threshold[kept], left, right[kept])
        return one_category_left(stored, self._categorical, 0, value)

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> Targets:
        """Class codes, or numbers, shape (n,)."""
        votes = self.votes(X)
        return codes_of(votes, self._order) if self._exponent is None else numbers_of(votes, self._exponent)

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Shares of the classes, shape (n, n_classes): the mean of those in each row's leaves; uniform without any."""
        return shares_of(self.votes(X), n_classes)

    def tree_sum(self, n_classes: int) -> TreeSum:
        """Return the mean of the trees with examples; classes ascend by label, which decides equal votes."""
        totals, numeric = self._nodes[-1], self._exponent is not None
        speak = totals[self._starts, 0] > 0 if numeric else totals[self._starts].any(axis=1)
        if not speak.any():
            silent = np.zeros(1) if numeric else np.full(n_classes, 1.0 / max(1, n_classes))
            return constant(self._d, 0, silent, 0, np.arange(n_classes))
        totals = totals[np.repeat(speak, np.diff(np.append(self._starts, len(totals))))]
        n = totals[:, 0] if numeric else totals.sum(axis=1)
        if self._exponent is not None:
            codes = np.empty(0, dtype=np.int64)
            value = np.ldexp(leaf_votes(totals, True)[:, :1].astype(np.float64), self._exponent - LABEL_BITS)
        else:
            known = self._order[self._order < n_classes]
            codes = np.concatenate([known, np.setdiff1d(np.arange(n_classes), known)])
            votes = np.zeros((len(n), max(n_classes, totals.shape[1])), dtype=np.int64)
            votes[:, : totals.shape[1]] = leaf_votes(totals, numeric)
            value = np.ldexp(votes[:, codes].astype(np.float64), -SHARE_BITS)
        return replace(self._sum_of(speak, value), cover=n, codes=codes, mean=True, unit=self._unit)

    def importances(self) -> Floats:
        """Share of each feature in what all splits take from the impurity, shape (d,); all 0 without a split."""
        feature, _, right, totals = self._nodes
        inner = np.flatnonzero(feature >= 0)
        tree = np.searchsorted(self._starts, inner, side="right") - 1
        kept = _kept if self._exponent is None else _square
        on_left, on_right = kept(totals[inner + 1]), kept(totals[self._starts[tree] + right[inner]])
        gain = on_left + on_right - kept(totals[inner])
        out: AnyArray = np.bincount(feature[inner], np.maximum(gain, 0.0), minlength=self._d)
        shares: Floats = out / max(out.sum(), np.finfo(np.float64).tiny)
        return shares


def _kept(totals: Ints) -> Floats:
    """The sum of the squares of class counts over n; 0 without rows, which exact trees never have below a split."""
    counts = totals.astype(np.float64)
    n = counts.sum(axis=1)
    kept: Floats = np.divide((counts * counts).sum(axis=1), n, out=np.zeros(len(n)), where=n > 0)
    return kept


def _square(totals: Ints) -> Floats:
    """Of numeric labels, the square of the sum over n."""
    sums = label_sums(totals)
    square: Floats = sums * sums / totals[:, 0].astype(np.float64)
    return square


def predictions_of(votes: Ints, n_classes: int, order: Ints, scale: Scale | None) -> tuple[Targets, Floats]:
    """Return class codes and shares, shape (m, n_classes), or of a ``scale`` numbers and shape (m, 0)."""
    if scale is not None:
        return numbers_of(votes, scale.exponent), np.empty((len(votes), 0))
    return codes_of(votes, order), shares_of(votes, n_classes)


def merged_votes(parts: Sequence[Ints]) -> Ints:
    """Votes of all shards, added up; a shard may know fewer classes."""
    width = max(part.shape[1] for part in parts)
    out = np.zeros((len(parts[0]), width), dtype=np.int64)
    for part in parts:
        out[:, : part.shape[1]] += part
    return out


# The digest of a forest: a hash of each tree, of all its nodes, or of those that have changed where trees are built.
#
# Invariant: the digest is a function of the trees, of labels by id, and of nothing else, whatever was hashed before.
# Format: ``docs/reference/formats.md``.


class Counted(NamedTuple):
    """The numbers of ``totals`` that a digest has, over ``per_row``.

    They are those of the classes that live examples have, by their ``codes`` in ascending order of the labels; or of
    numeric labels, by their ``scale``.
    """

    codes: Ints
    scale: Scale | None
    per_row: int

    @property
    def key(self) -> tuple[bytes, Scale | None, int]:
        """The numbers by which totals are hashed: the same for equal totals."""
        return self.codes.tobytes(), self.scale, self.per_row

    def of(self, totals: Ints) -> Ints:
        """Return the numbers of some nodes, shape (nodes, numbers)."""
        if self.scale is not None:
            return stored(totals, self.scale, self.per_row)
        counts = np.zeros((len(totals), len(self.codes)), dtype=np.int64)
        known = self.codes < totals.shape[1]  # a tree that no row has reached yet may know fewer classes
        counts[:, known] = totals[:, self.codes[known]] // self.per_row
        return counts

    def digest(self, roots: AnyArray, more: Iterable[Part], format: str) -> str:
        """Return the digest, in a format, of the hashes of all trees and of ``more``."""
        exponent: list[Part] = []
        if self.scale is not None:
            exponent.append(("exponent", np.array([self.scale.exponent], dtype=np.int64)))
        return digest([("trees", roots), *exponent, *more], begin_digest((), format))


def hashed_roots(
    nodes: npt.NDArray[np.void], roots: Ints | Int32s, totals: Ints, counted: Counted, hashed: Bools, hashes: Words,
    deepest: int = 256
) -> npt.NDArray[np.uint8]:  # fmt: skip
    """Return the hash of each tree, shape (trees, 32). O(nodes that are not ``hashed``).

    Of a node, the feature (-1 of a leaf), the threshold and the numbers that are ``counted`` are hashed, eight bytes
    each, behind the hashes of its children.
    """
    changed = changed_nodes(nodes, roots, hashed, deepest)
    at, numbers = changed.at, counted.of(totals[changed.at])
    contents = np.empty((len(at), CONTENT + 2 + numbers.shape[1]), dtype="<u8")
    contents[:, CONTENT] = np.maximum(nodes["feature"][at], -1).astype(np.int64).view(np.uint64)
    contents[:, CONTENT + 1] = nodes["threshold"][at].view(np.uint64)
    contents[:, CONTENT + 2 :] = numbers.view(np.uint64)
    hash_changed(nodes, changed, contents, np.full(len(at), 8 * contents.shape[1]), hashed, hashes)
    found: npt.NDArray[np.uint8] = hashes[roots].view(np.uint8)
    return found


def joined_trees(trees: Sequence[TreeArrays]) -> TreeArrays:
    """Return trees one after the other, as :func:`each_tree` takes them apart; some may know fewer classes."""
    width = max(tree.totals.shape[1] for tree in trees)
    totals = [np.pad(tree.totals, [(0, 0), (0, width - tree.totals.shape[1])]) for tree in trees]
    parts = [np.concatenate([tree[i] for tree in trees]) for i in range(4)]
    return TreeArrays._make([*parts, np.concatenate(totals)])


#: A node of a tree in canonical form, as it is hashed.
_NODE = np.dtype([("feature", np.int32), ("left", np.int32), ("right", np.int32), ("threshold", np.float64)])


def roots_of(trees: TreeArrays, counted: Counted) -> npt.NDArray[np.uint8]:
    """Return the hash of each tree in canonical form, shape (trees, 32). O(nodes)."""
    starts = np.cumsum(trees.nodes) - trees.nodes
    nodes = np.empty(len(trees.feature), dtype=_NODE)
    nodes["feature"], nodes["threshold"], nodes["left"] = trees.feature, trees.threshold, np.arange(1, len(nodes) + 1)
    nodes["right"] = trees.right + np.repeat(starts, trees.nodes)
    hashed, hashes = np.zeros(len(nodes), dtype=np.bool_), np.empty((len(nodes), WORDS), dtype="<u8")
    return hashed_roots(nodes, starts, trees.totals, counted, hashed, hashes)


def former_roots_of(trees: TreeArrays, counted: Counted) -> npt.NDArray[np.uint8]:
    """Return what ``raydt-digest-2`` has of each tree: the SHA-256 of its arrays, shape (trees, 32). O(nodes)."""
    hashes = np.empty((len(trees.nodes), 32), dtype=np.uint8)
    for number, tree in enumerate(each_tree(trees)):
        arrays: dict[str, AnyArray] = {"feature": tree.feature, "threshold": tree.threshold, "right": tree.right}
        text = digest([*arrays.items(), ("totals", counted.of(tree.totals))])
        hashes[number] = np.frombuffer(bytes.fromhex(text.partition(":")[2]), dtype=np.uint8)
    return hashes


# The arrays of a forest that may not be used for long: compressed, and without what follows from the others.
#
# The order of the nodes says which are whose children, and an inner node has the totals of both. Totals that were
# shifted or divided may not add up: such a model is kept whole.

#: What follows from the others, and the name of what is kept of totals.
_FOLLOW, _AT_LEAVES = ("left", "right", "totals"), "at_leaves"


@kernel
def _follow(sizes: Any, feature: Any, left: Any, right: Any, totals: Any, waiting: Any) -> None:
    """Fill in children and totals of inner nodes, from the last node of each tree to the first. O(nodes)."""
    node = len(feature)
    for tree in range(len(sizes) - 1, -1, -1):
        start, top = node - sizes[tree], 0
        while node > start:
            node -= 1
            if feature[node] >= 0:
                top -= 2
                a, b = np.int64(waiting[top + 1]), np.int64(waiting[top])
                left[node], right[node] = a - start, b - start
                for k in range(totals.shape[1]):
                    totals[node, k] = totals[a, k] + totals[b, k]
            waiting[top] = node
            top += 1


class Folded:
    """Arrays of a model; :func:`unfolded` returns them bit for bit. O(bytes) each way."""

    def __init__(self, model: Mapping[str, AnyArray]) -> None:
        self._names = tuple(model)
        rest = {name: array for name, array in model.items() if name not in _FOLLOW}
        self._kept = Compressed({**rest, _AT_LEAVES: model["totals"][model["feature"] < 0]})
        if any(not np.array_equal(array, model[name]) for name, array in self.arrays().items()):
            self._kept = Compressed(model)

    def arrays(self) -> Arrays:
        """Return all arrays by name, in the order in which they were given."""
        whole = dict(self._kept)
        if _AT_LEAVES in whole:
            feature, at_leaves = whole["feature"], whole.pop(_AT_LEAVES)
            left, right, waiting = (np.full(len(feature), -1, dtype=np.int32) for _ in range(3))
            totals = np.zeros((len(feature), at_leaves.shape[1]), dtype=at_leaves.dtype)
            totals[feature < 0] = at_leaves
            _follow(whole["tree_nodes"], feature, left, right, totals, waiting)
            whole.update(zip(_FOLLOW, (left, right, totals), strict=True))
        return {name: whole[name] for name in self._names}


def unfolded(model: Folded | Arrays) -> Arrays:
    """Return the arrays of a model that may be folded, in a mapping of its own."""
    return model.arrays() if isinstance(model, Folded) else dict(model)
