"""A fully dynamic tree as canonical arrays (preorder, node 0 = root), and the hashes of its nodes.

The arrays are saved, hashed, audited and used to predict; the hashes follow what changes in the live tree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import Column, grown
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Int32s, Ints, bits_of
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.evaluation.scoring import LEVELS
from raydt.examples.digest import SIZE, HashJobs, Words, hash_all, room_for, start
from raydt.examples.updates import NUMERIC, UNIT, Features
from raydt.trees.counted_tree import (
    COLUMNS,
    FADING,
    GIVEN,
    HIT,
    HITS,
    LARGEST_MASS,
    LARGEST_SUM,
    MOST_SAVED,
    MOST_UNITS,
    MULTIPLES,
    TO_LEFT,
    TO_RIGHT,
    UNDECIDED,
    CountedTree,
    TreeRules,
    mass_ceilings,
    mean_at,
    new_tree,
    with_room,
)
from raydt.trees.records import (
    FREE,
    LEAVES,
    NODES,
    USED,
    floor_product,
    goes_left,
    level_at,
    majority,
    number_nodes,
    preorder,
    refine,
    refined,
    total,
    weight_above,
)
from raydt.trees.state_schema import (
    EXAMPLES,
    LEAF,
    NODE_ARRAYS,
    UNIT_ARRAY,
    UPDATES,
    AnyInts,
    Array,
    add_classes,
    check_sums,
    check_trees,
    counter,
    finite,
    require,
    row_arrays,
)

#: With numeric labels there is one class, and these arrays have the sums of the labels and of their squares at each
#: node, and the ends of their range.
SUMS, RANGE = "sums", "label_range"
#: The arrays of a tree. Counters stay below the limit up to which ``floor_product`` is exact.
TREE = (
    *NODE_ARRAYS,
    Array("s", np.int64, ("nodes",), 0, EXAMPLES),
    Array("c", np.int64, ("nodes",), 0, UPDATES),
    Array("built", np.int64, ("nodes",)),
)
#: The sides of missing numbers, in a tree that has decided one.
SIDES = "missing"
SIDE_ARRAYS = (Array(SIDES, np.int8, ("nodes",), UNDECIDED, TO_RIGHT + 1),)
#: Faded counts of right predictions by each multiple of ``smoothing``, once a stream has counted one; of numbers, of
#: what was saved.
CHOICE = Array("hits", np.int64, (len(MULTIPLES),), 0, (HIT << FADING + 16) + 1)
CHOICE_OF_NUMBERS = CHOICE._replace(low=-2 * MOST_SAVED, below=2 * MOST_SAVED)
#: Those of a tree whose rebuilds follow certificates, besides.
CERTIFICATE = (
    Array("m0", np.float64, ("nodes",), 0, LARGEST_MASS),
    Array("gone", np.int64, ("nodes",), 0, EXAMPLES),
)
#: Those of a state, besides.
TOTALS = tuple(map(counter, ("seq", "warmup_left", "rebuilds", "rebuilt_rows")))


def state_arrays(numeric: bool, weighted: bool = False) -> tuple[Array, ...]:
    """Declare what the state of a tree has besides the model; with weights, an example may be in no leaf."""
    return (*TOTALS, *row_arrays(numeric), LEAF._replace(low=-1) if weighted else LEAF)


def tree_arrays(model: Mapping[str, AnyArray]) -> tuple[Array, ...]:
    """Declare the arrays of a tree, with those of the sides of missing numbers if it has them."""
    return TREE + (SIDE_ARRAYS if SIDES in model else ())


def number_arrays(weighted: bool) -> tuple[Array, ...]:
    """Declare what a tree of numeric labels has besides."""
    return Array(SUMS, np.int64, ("nodes", COLUMNS if weighted else 2), 0), finite(RANGE, 2, missing=True)


def check_number_sums(arrays: Arrays, inner: AnyInts) -> None:
    """Require sums of numeric labels that some labels have, at every inner node those of its children. O(nodes)."""
    sums, counts = arrays[SUMS], arrays["counts"][:, 0]
    if UNIT_ARRAY.name not in arrays:
        fits = (sums <= MOST_UNITS * np.stack([counts, sums[:, 0]], axis=1)).all()
        require(fits, SUMS, "states.impossible")
        check_sums(arrays, SUMS, inner)
        return
    require((counts <= LARGEST_SUM).all(), "counts", "states.too_large", below=LARGEST_SUM + 1)
    total, squares, rest = sums.T
    fits = (total <= MOST_UNITS * counts) & (squares <= total) & (rest < UNIT)
    require(fits.all(), SUMS, "states.impossible")
    left, right = (arrays[side][inner] for side in ("left", "right"))
    both = sums[left] + sums[right]
    carried = np.column_stack([both[:, 0], both[:, 1] + both[:, 2] // UNIT, both[:, 2] % UNIT])
    require(np.array_equal(sums[inner], carried), SUMS, "states.children")


def check_tree(arrays: Mapping[str, AnyArray], features: Features) -> AnyInts:
    """Require one tree whose nodes count what their children do, and return its inner nodes. O(n log n)."""
    inner, dense = check_trees(arrays), len(features.names)
    side = arrays.get(SIDES, np.zeros(len(arrays["feature"]), dtype=np.int8))
    number = np.append(features.kinds == NUMERIC, False)[np.minimum(arrays["feature"], dense)]
    require(not side[(arrays["feature"] < 0) | ~number].any(), SIDES, "states.side")
    at = arrays["threshold"][inner]
    parts_missing = (at == np.inf) & (side[inner] == TO_RIGHT)
    require((np.isfinite(at) | parts_missing).all(), "threshold", "states.threshold")
    check_sums(arrays, "counts", inner)
    return inner


def canonical_tree(tree: CountedTree, rules: TreeRules) -> tuple[Arrays, Int32s]:
    """The arrays of the model, with its certificates if it has any, and the preorder position of each node id."""
    order, position, _ = preorder(tree)
    nodes, statistics, counts = tree.nodes[order], tree.statistics[order], tree.counts[order]
    feature = nodes["feature"].copy()
    classes = max(2, int(np.flatnonzero(counts[0]).max(initial=0)) + 1)  # a class announced is not yet a class seen
    arrays: Arrays = {
        "feature": feature,
        "threshold": nodes["threshold"].copy(),
        "left": np.where(feature >= 0, position[nodes["left"]], np.int32(-1)),
        "right": np.where(feature >= 0, position[nodes["right"]], np.int32(-1)),
        "s": statistics["s"].copy(),
        "c": statistics["c"].copy(),
        "built": statistics["built"].copy(),
        "counts": counts[:, :classes].copy(),
    }
    if rules.certified:
        arrays |= {of.name: statistics[of.name].copy() for of in CERTIFICATE}
    if rules.unit > 1:
        arrays[UNIT_ARRAY.name] = np.array([rules.unit], dtype=np.int64)
    if nodes["missing"].any():
        arrays[SIDES] = nodes["missing"].copy()
    if tree.sums.shape[1]:
        arrays[SUMS] = tree.sums[order]
    if tree.reg[HITS:].any():
        arrays[CHOICE.name] = tree.reg[HITS:].copy()
    return arrays, position


def missing_left(model: Mapping[str, AnyArray], cover: AnyArray) -> Bools:
    """Return at which nodes missing numbers go left: where no side is decided, that of more examples, ``cover``."""
    inner = model["feature"] >= 0
    more = inner & (cover[model["left"]] > cover[model["right"]])
    side = model.get(SIDES, np.zeros(len(inner), dtype=np.int8))
    left: Bools = np.where(side == UNDECIDED, more, side == TO_LEFT)
    return left


def live_tree(arrays: Arrays, rules: TreeRules) -> CountedTree:
    """The live tree of canonical arrays, without the rows of its leaves."""
    n, classes = arrays["counts"].shape
    tree = with_room(new_tree(64, classes), n, classes)
    nodes, statistics = tree.nodes, tree.statistics
    for name in ("feature", "threshold", "left", "right"):
        nodes[name][:n] = arrays[name]
    nodes["missing"][:n] = arrays.get(SIDES, UNDECIDED)  # the records are fresh memory
    for name in ("s", "c", "built", *(of.name for of in CERTIFICATE if rules.certified)):
        statistics[name][:n] = arrays[name]
    tree.counts[:n] = arrays["counts"]
    statistics["n"][:n] = tree.counts[:n].sum(axis=1)
    if SUMS in arrays:
        sums = np.zeros((len(tree.nodes), arrays[SUMS].shape[1]), dtype=np.int64)
        sums[:n] = arrays[SUMS]
        tree = tree._replace(sums=sums)
    if rules.unit == 1 and SUMS in arrays:
        statistics["pairs"][:n] = mass_ceilings(statistics["n"][:n], tree.sums[:n])
    elif rules.unit == 1:  # the number of rows, which stands there with weights, follows from the leaves
        statistics["pairs"][:n] = statistics["n"][:n] ** 2 - (tree.counts[:n] ** 2).sum(axis=1)
    nodes["head"][:n] = -1
    nodes["parent"][0], nodes["depth"][0] = -1, 0
    for i in range(n):
        inner = nodes["feature"][i] >= 0
        statistics["allowed"][i] = 0  # of a certificate: it is tested with the next update
        if not (inner and rules.certified):
            statistics["allowed"][i] = floor_product(rules.epsilon, int(statistics["s"][i]))
        nodes["label"][i] = majority(tree.counts, i)
        if inner:
            for child in (nodes["left"][i], nodes["right"][i]):
                nodes["parent"][child], nodes["depth"][child] = i, nodes["depth"][i] + 1
    tree.reg[[USED, FREE, NODES, LEAVES]] = n, -1, n, int((nodes["feature"][:n] < 0).sum())
    tree.reg[HITS:] = arrays.get(CHOICE.name, 0)
    return tree


def count_rows(tree: CountedTree, rows: AnyInts) -> None:
    """Enter how many rows are below each node of a tree of masses, from those in its leaves, by id."""
    used = int(tree.reg[USED])  # the tree may have been trimmed since
    for node in reversed(range(1, used)):  # in preorder: children come behind their parents
        rows[tree.nodes["parent"][node]] += rows[node]
    tree.statistics["pairs"][:used] = rows[:used]


class LeafCounts:
    """Counts of the rows in the leaves of a restored tree, whose rows come in parts.

    ``rows``: rows in each leaf, by id.
    """

    def __init__(self, tree: CountedTree) -> None:
        self._tree, self._found = tree, np.zeros_like(tree.counts)
        self.rows: AnyInts = np.zeros(len(tree.nodes), dtype=np.int64)
        self._fit = True  # rows that count nothing, and only these, are in no leaf

    def add(self, leaf: AnyInts, y: AnyArray, mass: AnyArray | None) -> None:
        """Count some rows, or their ``mass``."""
        mass = np.ones(len(y), dtype=np.int64) if mass is None else mass.astype(np.int64)
        there = leaf >= 0
        self._fit &= np.array_equal(there, mass > 0)
        add_classes(self._found, leaf, y, np.where(there, mass, 0))
        self.rows += np.bincount(leaf[there], minlength=len(self.rows))

    def check(self) -> None:
        """ValueError unless every leaf counts its rows: kernels make room by it."""
        require(self._fit, "leaf", "states.weightless")
        leaves = self._tree.nodes["feature"] < 0
        require(np.array_equal(self._found[leaves], self._tree.counts[leaves]), "counts", "states.counts")
        require(not self._found[~leaves].any(), "leaf", "states.inner_leaf")


# Where the rows of a counted tree go, also those that lack a number.
#
# Invariant: a row that is learned decides the side of its missing numbers at every split it passes, so that it leaves
# the tree by the path on which it came.


@inner_kernel
def side_of_missing(tree: Any, node: int) -> int:
    """Side of a missing number at a split: where it is not decided, that of more examples, and right if they are as
    many.
    """
    side: int = np.int64(tree.nodes[node].missing)
    if side == UNDECIDED:
        left, right = np.int64(tree.nodes[node].left), np.int64(tree.nodes[node].right)
        side = np.int64(TO_LEFT if total(tree.counts, left) > total(tree.counts, right) else TO_RIGHT)
    return side


@inner_kernel
def passes_left(tree: Any, node: int, value: float, categorical: bool) -> bool:
    """Return True if a value, or a missing one, goes left at a split."""
    if value != value:
        missing: bool = side_of_missing(tree, node) == TO_LEFT
        return missing
    return goes_left(value, tree.nodes[node].threshold, categorical)


@kernel
def route(tree: Any, categorical: Any, X: Any, row: int, learns: bool) -> int:
    """Leaf of one row of ``X``. If it is learned, the sides of its missing numbers are decided from then on."""
    node = 0
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        value = X[row, j]
        if learns and value != value:
            tree.nodes[node].missing = side_of_missing(tree, node)
        left = passes_left(tree, node, value, categorical[j])
        node = tree.nodes[node].left if left else tree.nodes[node].right
    return node


@kernel
def smooth_rows(tree: Any, categorical: Any, X: Any, smoothing: float, shares: Any) -> None:
    """Refine the root's shares, in every row of ``shares``, down to the leaf of that row of ``X``. O(depth K) a row."""
    for row in range(len(X)):
        node = 0
        while tree.nodes[node].feature >= 0:
            j = tree.nodes[node].feature
            left = passes_left(tree, node, X[row, j], categorical[j])
            node = np.int64(tree.nodes[node].left) if left else np.int64(tree.nodes[node].right)
            refine(tree.counts, node, np.int64(tree.nodes[node].depth), smoothing, shares, row, row)


# How much a stream smooths: by the multiple of ``smoothing`` that would have been right most often.
#
# Invariant: a row of a stream gets the class and the share that a model of that moment gives it.


def chosen_smoothing(smoothing: float, hits: AnyInts | None) -> float:
    """Return the multiple of ``smoothing`` of most ``hits``: on a tie the given, else the smallest.

    If none has saved anything against the mean of all examples, infinity, which predicts that.
    """
    if hits is None or smoothing == 0 or hits[GIVEN] == hits.max() >= 0:
        return smoothing
    return smoothing * MULTIPLES[int(hits.argmax())] if hits.max() >= 0 else math.inf


@inner_kernel
def predict_smoothed(
    tree: Any, categorical: Any, X: Any, row: int, smoothing: float, shares: Any, learned: int, gain: int
) -> tuple[int, int]:
    """Class of one row of ``X``, and level of class 1; if its class is ``learned`` (not -1), who was right gains.

    ``shares``, shape (multiples - 1, K), is scratch: of multiple 0 the leaf predicts. O(depth K).
    """
    n, K = np.float64(total(tree.counts, 0)), shares.shape[1]
    for m in range(len(shares)):
        for k in range(K):
            # Without a row it is one half, whatever the number of classes that are announced.
            shares[m, k] = np.float64(tree.counts[0, k]) / n if n > 0.0 else 0.5
    node = np.int64(0)
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        left = passes_left(tree, node, X[row, j], categorical[j])
        node = np.int64(tree.nodes[node].left) if left else np.int64(tree.nodes[node].right)
        for m in range(len(shares)):
            refine(tree.counts, node, np.int64(tree.nodes[node].depth), smoothing * MULTIPLES[m + 1], shares, m, m)
    hits, best = tree.reg[HITS:], GIVEN
    for m in range(len(hits)):
        if hits[m] > hits[best]:
            best = m
    label, level = np.int64(0), np.int64(0)
    for m in range(len(hits)):
        guess = np.int64(0)
        if m > 0:
            for k in range(1, K):
                if shares[m - 1, k] > shares[m - 1, guess]:
                    guess = k
        else:
            guess = majority(tree.counts, node)
        if m == best:
            label = guess
            level = np.int64(shares[m - 1, 1] * np.float64(LEVELS) + 0.5) if m > 0 else level_at(tree.counts, node)
        if learned >= 0:
            hits[m] += (gain if guess == learned else 0) - (hits[m] >> FADING)
    return label, level


@inner_kernel
def predict_mean(
    tree: Any, categorical: Any, X: Any, row: int, smoothing: float, means: Any, q: float, weight: float
) -> float:
    """Mean label of one row of ``X`` in units, -1 of no examples; ``weight`` (0: none) counts who is near its label q.

    ``means``, shape (multiples - 1, 1), is scratch: of multiple 0 the leaf predicts. O(depth).
    """
    root = mean_at(tree, np.int64(0))
    if root < 0.0:
        return root
    for m in range(len(means)):
        means[m, 0] = root
    node = np.int64(0)
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        left = passes_left(tree, node, X[row, j], categorical[j])
        node = np.int64(tree.nodes[node].left) if left else np.int64(tree.nodes[node].right)
        n, seen = np.float64(tree.counts[node, 0]), np.float64(tree.sums[node, 0])
        for m in range(len(means)):
            above = weight_above(np.int64(tree.nodes[node].depth), smoothing * MULTIPLES[m + 1])
            means[m, 0] = refined(seen, n, above, means[m, 0])
    hits, best, leaf = tree.reg[HITS:], GIVEN, mean_at(tree, node)
    for m in range(len(hits)):
        if hits[m] > hits[best]:
            best = m
    mean: float = leaf if best == 0 else means[best - 1, 0]
    if hits[best] < 0:
        mean = root
    if weight > 0.0:
        of_root = (q - root) * (q - root) * weight
        for m in range(len(hits)):
            error = q - (leaf if m == 0 else means[m - 1, 0])
            hits[m] += np.int64(of_root - error * error * weight) - (hits[m] >> FADING)
    return mean


# Hashes of trees that follow what changed: of one fully dynamic tree, and of many trees.
#
# The hash of a node is that of its numbers and of the hashes of its children (BLAKE2b), so that the root's stands for
# the whole tree, whatever the numbers of its nodes. Invariant: a node with a hash has that of the nodes below it, and
# so has every node below it; who changes a node takes the hashes of the node and of all above it away. Format:
# ``docs/reference/formats.md``; ``tests/oracles/digests.py`` hashes everything.

#: What tells hashes of leaves from those of other nodes.
LEAF_HASH, INNER_HASH = start(b"raydt-tree-leaf"), start(b"raydt-tree-node")
#: Words of a hash, and of the hashes of two children, for which there is room before the content of a node.
WORDS = SIZE // 8
CONTENT = 2 * WORDS


@kernel
def _list_changed(nodes: Any, roots: Any, hashed: Any, out: Any, levels: Any) -> int:
    """Nodes without a hash, level by level from the roots. Returns the number of levels.

    Those of level i are ``out[levels[i] : levels[i + 1]]``.
    """
    level, begin, end = np.int64(0), np.int64(0), np.int64(0)
    for root in roots:
        if not hashed[root]:
            out[end] = root
            end += 1
    while begin < end:
        levels[level] = begin
        level += 1
        n = end
        for i in range(begin, end):
            node = nodes[out[i]]
            if node.feature >= 0:
                for child in (np.int64(node.left), np.int64(node.right)):
                    if not hashed[child]:
                        out[n] = child
                        n += 1
        begin, end = end, n
    levels[level] = end
    return int(level)


@kernel
def _hash_nodes(changed: Any, levels: Any, nodes: Any, contents: Any, ends: Any, rest: Any) -> None:
    """Hash nodes: all leaves, then the others, the deepest level first."""
    data, jobs, room, hashes = rest
    width = 8 * np.int64(contents.shape[1])
    n = np.int64(0)
    for i in range(len(changed)):
        if nodes[changed[i]].feature < 0:
            jobs.to[n], jobs.begin[n], jobs.end[n] = changed[i], i * width + 8 * CONTENT, i * width + ends[i]
            n += 1
    hash_all(LEAF_HASH, data, jobs, n, room, hashes)
    for level in range(len(levels) - 2, -1, -1):
        n = np.int64(0)
        for i in range(levels[level], levels[level + 1]):
            node = nodes[changed[i]]
            if node.feature < 0:
                continue
            for j in range(WORDS):
                contents[i, j] = hashes[node.left, j]
                contents[i, WORDS + j] = hashes[node.right, j]
            jobs.to[n], jobs.begin[n], jobs.end[n] = changed[i], i * width, i * width + ends[i]
            n += 1
        hash_all(INNER_HASH, data, jobs, n, room, hashes)


class ChangedNodes(NamedTuple):
    """Nodes without a hash, level by level from the roots; those of level i are ``at[levels[i] : levels[i + 1]]``."""

    at: Ints
    levels: Ints


def changed_nodes(nodes: AnyArray, roots: AnyArray, hashed: Bools, depth: int) -> ChangedNodes:
    """List what has to be hashed of trees with some ``roots``, none of them deeper than ``depth``. O(nodes listed).

    ``nodes`` are records with ``feature``, ``left`` and ``right``; the feature of a leaf is negative.
    """
    out, levels = np.empty(len(nodes), dtype=np.int64), np.empty(depth + 2, dtype=np.int64)
    levels = levels[: 1 + int(_list_changed(nodes, roots, hashed, out, levels))]
    return ChangedNodes(out[: levels[-1]], levels)


def hash_changed(
    nodes: AnyArray, changed: ChangedNodes, contents: Words, ends: Ints, hashed: Bools, hashes: Words
) -> None:
    """Hash the nodes that were listed: ``hashes``, shape (nodes, 4), and ``hashed`` take them. O(bytes).

    ``contents`` has a row for each, which has room for the hashes of its children, then the content, and ends at so
    many bytes.
    """
    rest = contents.view(np.uint8).reshape(-1), *room_for(len(changed.at)), hashes
    _hash_nodes(changed.at, changed.levels, nodes, contents, ends, rest)
    hashed[changed.at] = True  # last: a call that is broken off hashes them again


# The shape of a fully dynamic tree and its digest, kept up with the nodes that changed: O(depth) for an update.
#
# Every update raises the counter c of all nodes on its path, and a rebuild gives new nodes with a later stamp
# ``built``. So a subtree whose root has the same c and ``built`` as before is as it was, and only the others are
# visited. In a warm-up, when nothing is counted yet, the tree is one leaf, which is always visited.
#
# Invariant: after :meth:`Outline.follow` sizes and heights are those of the tree.

_32 = np.uint64(32)
#: A fully dynamic tree begins at node 0.
_ROOT = np.zeros(1, dtype=np.int32)


class Shape(NamedTuple):
    """By number of a node: c and ``built`` when it was last visited, nodes and levels from it down, and its hash's age.

    ``hashed`` is False where the node has changed since its hash was made.
    """

    c: Ints
    built: Ints
    size: Int32s
    height: Int32s
    hashed: Bools


@kernel
def _follow(tree: Any, shape: Any, stack: Any) -> None:
    """Visit the nodes that have changed, and make sizes and heights anew from the bottom up."""
    nodes, statistics = tree.nodes, tree.statistics
    top = np.int64(1)
    stack[0] = 0
    while top > 0:
        node = np.int64(stack[top - 1])
        if node < 0:  # its children were visited
            top -= 1
            node = -1 - node
            left, right = np.int64(nodes[node].left), np.int64(nodes[node].right)
            shape.size[node] = 1 + shape.size[left] + shape.size[right]
            shape.height[node] = 1 + max(shape.height[left], shape.height[right])
            continue
        now = statistics[node]
        if shape.c[node] == now.c and shape.built[node] == now.built and now.built >= 0:
            top -= 1
            continue
        shape.c[node], shape.built[node], shape.hashed[node] = now.c, now.built, False
        if nodes[node].feature < 0:
            shape.size[node], shape.height[node] = 1, 0
            top -= 1
            continue
        stack[top - 1] = -1 - node
        stack[top], stack[top + 1] = nodes[node].right, nodes[node].left
        top += 2


@inner_kernel
def _append(contents: Any, i: int, at: int, carry: Any, word: Any) -> Any:
    """Put a word behind one that begins with half a word, ``carry``; returns its other half, which is carried on."""
    word = np.uint64(word)
    contents[i, at] = carry | word << _32
    return word >> _32


@kernel
def _write(tree: Any, certified: bool, changed: Any, contents: Any, ends: Any) -> None:
    """Write what is hashed of each node, behind room for the hashes of its children, and where in its row that ends."""
    for i in range(len(changed)):
        node = changed[i]
        now = tree.statistics[node]
        first = np.int64(tree.nodes[node].feature)
        if tree.nodes[node].missing:  # of dense features only, of which there are fewer than 2^30
            first = -2 * first - np.int64(tree.nodes[node].missing)
        carry = np.uint64(np.uint32(first))  # four bytes, and all that follow are eight
        at = np.int64(CONTENT)
        for word in (bits_of(tree.nodes[node].threshold), now.s, now.c):
            carry = _append(contents, i, at, carry, word)
            at += 1
        if certified:
            for word in (bits_of(now.m0), now.gone):
                carry = _append(contents, i, at, carry, word)
                at += 1
        for k in range(tree.sums.shape[1]):
            carry = _append(contents, i, at, carry, tree.sums[node, k])
            at += 1
        classes = tree.counts.shape[1]
        while classes > 0 and tree.counts[node, classes - 1] == 0:
            classes -= 1
        for k in range(classes):
            carry = _append(contents, i, at, carry, tree.counts[node, k])
            at += 1
        contents[i, at] = carry
        ends[i] = 8 * at + 4


@kernel
def _place(nodes: Any, size: Any, leaves: Any, out: Any) -> None:
    """Position of some nodes in preorder. O(depth) each."""
    for i in range(len(leaves)):
        node = np.int64(leaves[i])
        if node < 0:  # of an example that is in no leaf
            out[i] = node
            continue
        place = np.int64(0)
        up = np.int64(nodes[node].parent)
        while up >= 0:
            place += 1
            if nodes[up].right == node:
                place += size[nodes[up].left]
            node, up = up, np.int64(nodes[up].parent)
        out[i] = place


class Outline:
    """Sizes, heights and hashes of the nodes of one tree, ``certified`` or not, as of its last visit."""

    def __init__(self, certified: bool) -> None:
        self._certified = certified
        wide, narrow = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        self._shape = Shape(wide, wide, narrow, narrow, np.empty(0, dtype=np.bool_))
        self._hashes: Words = np.empty((0, WORDS), dtype="<u8")

    def follow(self, tree: CountedTree) -> None:
        """Take over what has changed. O(nodes changed)."""
        have = len(self._shape.c)
        if len(tree.nodes) > have:
            shape = Shape(*(grown(array, len(tree.nodes)) for array in self._shape))
            shape.built[have:] = -1
            self._shape = shape
        _follow(tree, self._shape, np.empty(2 * int(tree.reg[NODES]) + 2, dtype=np.int64))

    @property
    def depth(self) -> int:
        """Depth of the deepest node."""
        return int(self._shape.height[0])

    def places(self, tree: CountedTree, nodes: Int32s) -> Int32s:
        """Positions of some nodes in preorder, shape (nodes,). O(depth) each."""
        out = np.empty(len(nodes), dtype=np.int32)
        _place(tree.nodes, self._shape.size, nodes, out)
        return out

    def root(self, tree: CountedTree) -> npt.NDArray[np.uint8]:
        """Hash of the tree, 32 bytes. O(nodes changed)."""
        if len(self._hashes) < len(tree.nodes):
            self._hashes = grown(self._hashes, len(tree.nodes))
        changed = changed_nodes(tree.nodes, _ROOT, self._shape.hashed, self.depth)
        most = CONTENT + 6 + tree.sums.shape[1] + tree.counts.shape[1]
        contents, ends = np.empty((len(changed.at), most), dtype="<u8"), np.empty(len(changed.at), dtype=np.int64)
        _write(tree, self._certified, changed.at, contents, ends)
        hash_changed(tree.nodes, changed, contents, ends, self._shape.hashed, self._hashes)
        root: npt.NDArray[np.uint8] = self._hashes[0].view(np.uint8).copy()
        return root


# The same of very many trees, for kernels: everything anew, in room that all use in turn.


class TreeWork(NamedTuple):
    """Room for the hashes of one tree."""

    hashed: Bools  #: By node; all False.
    changed: Ints
    levels: Ints
    contents: Words
    bytes: npt.NDArray[np.uint8]  #: Those of ``contents``.
    ends: Ints
    jobs: HashJobs
    room: Words
    hashes: Words  #: By node; the root is the first.


def tree_work(nodes: int, room: int, classes: int) -> TreeWork:
    """Return room for trees of so many nodes, which have room for others, and classes."""
    contents, (jobs, work) = np.empty((nodes, CONTENT + 6 + classes), dtype="<u8"), room_for(nodes)
    return TreeWork(
        hashed=np.zeros(room, dtype=np.bool_),
        changed=np.empty(nodes, dtype=np.int64),
        levels=np.empty(nodes + 2, dtype=np.int64),
        contents=contents,
        bytes=contents.view(np.uint8).reshape(-1),
        ends=np.empty(nodes, dtype=np.int64),
        jobs=jobs,
        room=work,
        hashes=np.empty((room, WORDS), dtype="<u8"),
    )


@inner_kernel
def hash_tree(tree: Any, certified: bool, work: Any) -> None:
    """Hash a tree of classes, as :meth:`Outline.root` does. O(nodes)."""
    levels = np.int64(_list_changed(tree.nodes, _ROOT, work.hashed, work.changed, work.levels))
    changed = work.changed[: work.levels[levels]]
    _write(tree, certified, changed, work.contents, work.ends)
    rest = work.bytes, work.jobs, work.room, work.hashes
    _hash_nodes(changed, work.levels[: levels + 1], tree.nodes, work.contents, work.ends, rest)


class NodeColumns(NamedTuple):
    """The arrays of :func:`canonical_tree` by node, of several trees one after another."""

    feature: Int32s
    threshold: Any
    left: Int32s
    right: Int32s
    s: Ints
    c: Ints
    built: Ints
    counts: Ints
    m0: Any
    gone: Ints
    missing: npt.NDArray[np.int8]

    @classmethod
    def of(cls, nodes: int, classes: int) -> NodeColumns:
        """Return room for so many nodes."""
        narrow, wide = np.empty((3, nodes), dtype=np.int32), np.empty((4, nodes), dtype=np.int64)
        real, counts = np.empty((2, nodes)), np.empty((nodes, classes), dtype=np.int64)
        return cls(
            *(narrow[0], real[0], narrow[1], narrow[2], wide[0], wide[1], wide[2], counts, real[1], wide[3]),
            np.empty(nodes, dtype=np.int8),
        )


@inner_kernel
def copy_nodes(tree: Any, order: Any, position: Any, at: int, columns: Any) -> None:
    """Copy the nodes of a tree in preorder to some place; ``position`` of each node is known then. O(nodes K)."""
    number_nodes(tree.nodes, order, position)
    for i in range(tree.reg[NODES]):
        node, to = order[i], at + i
        one, now = tree.nodes[node], tree.statistics[node]
        columns.feature[to], columns.threshold[to], columns.missing[to] = one.feature, one.threshold, one.missing
        columns.left[to] = columns.right[to] = -1
        if one.feature >= 0:
            columns.left[to], columns.right[to] = position[one.left], position[one.right]
        columns.s[to], columns.c[to], columns.built[to] = now.s, now.c, now.built
        columns.m0[to], columns.gone[to] = now.m0, now.gone
        for k in range(tree.counts.shape[1]):
            columns.counts[to, k] = tree.counts[node, k]


def canonical_columns(columns: NodeColumns, edges: Ints, registers: Ints, rules: TreeRules) -> dict[str, Column]:
    """Return the arrays of :func:`canonical_tree` of trees of classes without weights."""
    begins, (N, K), every = edges[:-1], columns.counts.shape, np.arange(len(registers))
    nodes = np.diff(edges)
    seen = columns.counts[begins] > 0
    classes = np.maximum(2, np.where(seen.any(axis=1), K - seen[:, ::-1].argmax(axis=1), 0))
    counts = columns.counts.reshape(-1)
    if (classes < K).any():
        counts = counts[(np.arange(K) < np.repeat(classes, nodes)[:, None]).reshape(-1)]
    sided = np.flatnonzero(np.logical_or.reduceat(columns.missing != UNDECIDED, begins))
    chosen = np.flatnonzero(registers[:, HITS:].any(axis=1))
    own = np.zeros(N, dtype=np.bool_)
    for k in sided.tolist():
        own[edges[k] : edges[k + 1]] = True
    found = {name: Column(getattr(columns, name), nodes[:, None], every) for name in NodeColumns._fields}
    found["counts"] = Column(counts, np.column_stack([nodes, classes]), every)
    found[SIDES] = Column(columns.missing[own], nodes[sided, None], sided)
    hits = registers[chosen, HITS:]
    found[CHOICE.name] = Column(hits.reshape(-1), np.full((len(hits), 1), hits.shape[1]), chosen)
    left_out = {of.name for of in CERTIFICATE if not rules.certified}
    return {name: column for name, column in found.items() if name not in left_out and len(column.places)}
