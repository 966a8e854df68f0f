"""The tree of fully dynamic learners: nodes, the rows of each leaf, and the tests of Algorithms 1 and 2 by counts.

Invariants: node 0 is the root; the rows of a leaf form a doubly linked list through the ``MEMBER`` records of
their slots; ``counts`` of a leaf are the class counts of that list; ``allowed`` is the floor of epsilon * s, exactly.

Symbols (paper): s(v) = ``s``, c(v) = ``c``, h = ``max_depth``, k = ``min_samples_split - 1``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.memory import grown
from raydt.learners.nodes import LEAF, NODES, goes_left, majority, next_in_preorder, total

#: Registers of the tree behind those of all trees.
REBUILDS, REBUILT_ROWS, WARMUP_LEFT = 4, 5, 6


#: One node. A record is read and written as a whole cache line or two, and is one argument to a kernel.
NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("s", np.int64),
        ("c", np.int64),
        ("allowed", np.int64),
        ("built", np.int64),
        ("feature", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("parent", np.int32),
        ("depth", np.int32),
        ("head", np.int32),
        ("label", np.int32),
    ],
    align=True,
)


class Tree(NamedTuple):
    """Nodes, class counts by node, registers; ``left`` of a free node is the next free one."""

    nodes: npt.NDArray[np.void]
    counts: npt.NDArray[np.int64]
    reg: npt.NDArray[np.int64]


class Rules(NamedTuple):
    """The options as numbers: epsilon, alpha / 2, k + 1 and h."""

    epsilon: float
    half_alpha: float
    min_samples_split: int
    max_depth: int


def new_tree(capacity: int, classes: int) -> Tree:
    """An empty tree: one leaf without rows."""
    nodes = np.zeros(capacity, dtype=NODE)
    for name in ("feature", "left", "right", "parent", "head", "built"):
        nodes[name] = -1
    counts = np.zeros((capacity, classes), dtype=np.int64)
    return Tree(nodes, counts, np.array([1, -1, 1, 1, 0, 0, 0], dtype=np.int64))


def with_room(tree: Tree, nodes: int, classes: int) -> Tree:
    """The same tree with room for ``nodes`` more nodes and counts of ``classes`` classes."""
    capacity, known = tree.counts.shape
    need = int(tree.reg[NODES]) + nodes
    if need <= capacity and classes <= known:
        return tree
    if need > capacity:
        capacity = max(need, capacity + capacity // 2)
    counts = np.zeros((capacity, max(classes, known)), dtype=np.int64)
    counts[: len(tree.counts), :known] = tree.counts
    return Tree(grown(tree.nodes, capacity), counts, tree.reg)


@kernel
def floor_product(rate: float, size: int) -> int:
    """``floor(rate * size)`` of the exact product of a float64 and an integer below 2**53."""
    product = rate * size
    whole = np.floor(product)
    if whole == product:
        # The product was rounded to an integer: its error (Dekker's two-product) says from which side.
        split = 134217729.0
        a = split * rate
        a_high = a - (a - rate)
        a_low = rate - a_high
        b = split * size
        b_high = b - (b - size)
        b_low = size - b_high
        if ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low < 0.0:
            whole -= 1.0
    return int(whole)


@kernel
def stays_leaf(counts: Any, node: int, depth: int, rules: Any) -> bool:
    """Line 3 of BUILD: |S| <= k, or g(S) <= alpha / 2 (compared exactly), or depth = h."""
    n = 0
    squares = 0
    for k in range(counts.shape[1]):
        n += counts[node, k]
        squares += counts[node, k] * counts[node, k]
    if n < rules.min_samples_split or depth >= rules.max_depth:
        return True
    return n * n - squares <= floor_product(rules.half_alpha, n * n)


@kernel
def most_nodes(n: int, depth: int, rules: Any) -> int:
    """Bound on the nodes of a subtree built at ``depth`` from n rows."""
    levels = rules.max_depth - depth
    return min(2 * n, 2 << levels) if levels < 40 else 2 * n


@kernel
def start_node(tree: Any, node: int, stamp: int, rules: Any) -> None:
    """Lines 2 and 4-7 of BUILD: a fresh leaf; ``counts[node]`` is already right."""
    n = total(tree.counts, node)
    tree.nodes[node].feature = LEAF
    tree.nodes[node].left = tree.nodes[node].right = -1
    tree.nodes[node].head = -1
    tree.nodes[node].threshold = 0.0
    tree.nodes[node].s = n
    tree.nodes[node].c = 0
    tree.nodes[node].allowed = floor_product(rules.epsilon, n)
    tree.nodes[node].built = stamp
    tree.nodes[node].label = majority(tree.counts, node)


@kernel
def route(tree: Any, categorical: Any, X: Any, row: int) -> int:
    """Leaf of one row of ``X``."""
    node = 0
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        left = goes_left(X[row, j], tree.nodes[node].threshold, categorical[j])
        node = tree.nodes[node].left if left else tree.nodes[node].right
    return node


@kernel
def target_of(tree: Any, node: int) -> int:
    """Lines 7-9 of UPDATE: the root-most ancestor not larger, when built, than the next power of two of ``node``."""
    s = tree.nodes[node].s
    bound = 0
    if s > 0:
        bound = 1
        while bound < s:
            bound *= 2
    target = node
    node = tree.nodes[node].parent
    while node >= 0:
        if tree.nodes[node].s <= bound:
            target = node
        node = tree.nodes[node].parent
    return target


@inner_kernel
def climb(tree: Any, leaf: int) -> int:
    """Lines 5-9 of UPDATE: count on the path and return the node to rebuild, or -1.

    Counting goes from the leaf up: counters below the root-most exhausted node are one ahead of the paper's,
    but that node's subtree is rebuilt, which sets them to 0.
    """
    exhausted = -1
    node = leaf
    while node >= 0:
        tree.nodes[node].c += 1
        if tree.nodes[node].c > tree.nodes[node].allowed:
            exhausted = node
        node = tree.nodes[node].parent
    if exhausted < 0:
        return -1
    return target_of(tree, exhausted)


@kernel
def count_rows(tree: Any, root: int, counts: Any) -> int:
    """Class counts, in ``counts[0]``, of a node's live rows from the leaves below it; returns their sum."""
    n = 0
    counts[:] = 0
    node = np.int64(root)
    while node >= 0:
        if tree.nodes[node].feature < 0:
            for k in range(counts.shape[1]):
                counts[0, k] += tree.counts[node, k]
                n += tree.counts[node, k]
        node = next_in_preorder(tree.nodes, node, root)
    return n


@inner_kernel
def set_counts(tree: Any, node: int, counts: Any) -> None:
    """Class counts of a node from ``counts[0]``."""
    for k in range(counts.shape[1]):
        tree.counts[node, k] = counts[0, k]
