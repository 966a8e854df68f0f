"""The live tree: node arrays, the rows of each leaf, and the tests of Algorithms 1 and 2 that need only counts.

Invariants: node 0 is the root; the rows of a leaf form a doubly linked list through ``Members``; ``counts`` of a
leaf are the class counts of that list; ``allowed[v] = floor(epsilon * s(v))`` in exact arithmetic.

Symbols (paper): s(v) = ``s``, c(v) = ``c``, h = ``max_depth``, k = ``min_samples_split - 1``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.kernel import kernel
from raydt.memory import grown

#: Registers of the tree.
USED, FREE, NODES, LEAVES, REBUILDS, REBUILT_ROWS, WARMUP_LEFT = range(7)
LEAF = -1


class Tree(NamedTuple):
    """Node arrays; ``left`` of a free node is the next free one."""

    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    parent: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int32]
    head: npt.NDArray[np.int32]
    label: npt.NDArray[np.int32]
    s: npt.NDArray[np.int64]
    c: npt.NDArray[np.int64]
    allowed: npt.NDArray[np.int64]
    built: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    reg: npt.NDArray[np.int64]


class Members(NamedTuple):
    """Leaf of each live slot, and its neighbours in the leaf's list (-1 at the ends)."""

    leaf: npt.NDArray[np.int32]
    next: npt.NDArray[np.int32]
    prev: npt.NDArray[np.int32]


class Rules(NamedTuple):
    """The options as numbers: epsilon, alpha / 2, k + 1 and h."""

    epsilon: float
    half_alpha: float
    min_samples_split: int
    max_depth: int


def new_tree(capacity: int, classes: int) -> Tree:
    """An empty tree: one leaf without rows."""
    return Tree(
        feature=np.full(capacity, LEAF, dtype=np.int32),
        threshold=np.zeros(capacity),
        left=np.full(capacity, -1, dtype=np.int32),
        right=np.full(capacity, -1, dtype=np.int32),
        parent=np.full(capacity, -1, dtype=np.int32),
        depth=np.zeros(capacity, dtype=np.int32),
        head=np.full(capacity, -1, dtype=np.int32),
        label=np.zeros(capacity, dtype=np.int32),
        s=np.zeros(capacity, dtype=np.int64),
        c=np.zeros(capacity, dtype=np.int64),
        allowed=np.zeros(capacity, dtype=np.int64),
        built=np.full(capacity, -1, dtype=np.int64),
        counts=np.zeros((capacity, classes), dtype=np.int64),
        reg=np.array([1, -1, 1, 1, 0, 0, 0], dtype=np.int64),
    )


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
    longer: Any = {name: grown(getattr(tree, name), capacity) for name in Tree._fields[:12]}
    return tree._replace(**longer, counts=counts)


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
def total(counts: Any, node: int) -> int:
    """Number of rows of the class counts of a node."""
    n = 0
    for k in range(counts.shape[1]):
        n += counts[node, k]
    return n


@kernel
def majority(counts: Any, node: int) -> int:
    """Class of most rows of a node; the smaller class on a tie."""
    best = 0
    for k in range(1, counts.shape[1]):
        if counts[node, k] > counts[node, best]:
            best = k
    return best


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
    tree.feature[node] = LEAF
    tree.left[node] = tree.right[node] = -1
    tree.head[node] = -1
    tree.threshold[node] = 0.0
    tree.s[node] = n
    tree.c[node] = 0
    tree.allowed[node] = floor_product(rules.epsilon, n)
    tree.built[node] = stamp
    tree.label[node] = majority(tree.counts, node)


@kernel
def new_node(tree: Any, parent: int) -> int:
    """Take a node; the caller has made room."""
    reg = tree.reg
    node: int = reg[FREE]
    if node >= 0:
        reg[FREE] = tree.left[node]
    else:
        node = reg[USED]
        reg[USED] += 1
    tree.parent[node] = parent
    tree.depth[node] = tree.depth[parent] + 1
    reg[NODES] += 1
    return node


@kernel
def split_node(tree: Any, node: int, feature: int, threshold: float) -> tuple[int, int]:
    """Make a leaf internal and return its two new children, whose counts the caller sets."""
    left = new_node(tree, node)
    right = new_node(tree, node)
    tree.feature[node] = feature
    tree.threshold[node] = threshold
    tree.left[node] = left
    tree.right[node] = right
    tree.reg[LEAVES] += 1
    return left, right


@kernel
def link(tree: Any, members: Any, leaf: int, slot: int) -> None:
    """Put a slot at the head of a leaf's list."""
    head = tree.head[leaf]
    members.leaf[slot] = leaf
    members.next[slot] = head
    members.prev[slot] = -1
    if head >= 0:
        members.prev[head] = slot
    tree.head[leaf] = slot


@kernel
def unlink(tree: Any, members: Any, slot: int) -> int:
    """Take a slot out of its leaf's list and return the leaf."""
    leaf: int = members.leaf[slot]
    before = members.prev[slot]
    after = members.next[slot]
    if before >= 0:
        members.next[before] = after
    else:
        tree.head[leaf] = after
    if after >= 0:
        members.prev[after] = before
    return leaf


@kernel
def goes_left(value: float, threshold: float, categorical: bool) -> bool:
    """The routing rule: ``value == threshold`` for a category, ``value <= threshold`` for a number."""
    return value == threshold if categorical else value <= threshold


@kernel
def route(tree: Any, categorical: Any, X: Any, row: int) -> int:
    """Leaf of one row of ``X``."""
    node = 0
    while tree.feature[node] >= 0:
        j = tree.feature[node]
        node = tree.left[node] if goes_left(X[row, j], tree.threshold[node], categorical[j]) else tree.right[node]
    return node


@kernel
def climb(tree: Any, leaf: int) -> int:
    """Lines 5-9 of UPDATE: count on the path and return the node to rebuild, or -1.

    Counting goes from the leaf up: counters below the root-most exhausted node are one ahead of the paper's,
    but that node's subtree is rebuilt, which sets them to 0.
    """
    exhausted = -1
    node = leaf
    while node >= 0:
        tree.c[node] += 1
        if tree.c[node] > tree.allowed[node]:
            exhausted = node
        node = tree.parent[node]
    if exhausted < 0:
        return -1
    s = tree.s[exhausted]
    bound = 0
    if s > 0:
        bound = 1
        while bound < s:
            bound *= 2
    target = exhausted
    node = tree.parent[exhausted]
    while node >= 0:
        if tree.s[node] <= bound:
            target = node
        node = tree.parent[node]
    return target


@kernel
def count_rows(tree: Any, node: int, counts: Any) -> int:
    """Class counts, in ``counts[0]``, of a node's live rows from the leaves below it; returns their sum."""
    n = 0
    counts[:] = 0
    at = node
    while True:
        if tree.feature[at] >= 0:
            at = tree.left[at]
            continue
        for k in range(counts.shape[1]):
            counts[0, k] += tree.counts[at, k]
            n += tree.counts[at, k]
        while at != node and tree.right[tree.parent[at]] == at:
            at = tree.parent[at]
        if at == node:
            return n
        at = tree.right[tree.parent[at]]


@kernel
def set_counts(tree: Any, node: int, counts: Any) -> None:
    """Class counts of a node from ``counts[0]``."""
    for k in range(counts.shape[1]):
        tree.counts[node, k] = counts[0, k]


@kernel
def take_rows(tree: Any, members: Any, node: int, slots: Any) -> int:
    """List the slots below a node and free its descendants; the node itself becomes a leaf without a list."""
    n = 0
    reg = tree.reg
    at = node
    while True:
        if tree.feature[at] >= 0:
            at = tree.left[at]
            continue
        slot = tree.head[at]
        while slot >= 0:
            slots[n] = slot
            n += 1
            slot = members.next[slot]
        while at != node and tree.right[tree.parent[at]] == at:
            parent = tree.parent[at]
            sibling = tree.left[parent]
            tree.left[sibling] = reg[FREE]
            tree.left[at] = sibling
            reg[FREE] = at
            reg[NODES] -= 2
            reg[LEAVES] -= 1
            at = parent
        if at == node:
            break
        at = tree.right[tree.parent[at]]
    tree.feature[node] = LEAF
    tree.head[node] = -1
    return n


@kernel
def list_rows(tree: Any, members: Any, leaf: int, slots: Any) -> None:
    """Slots of one leaf, in the order of its list, into an array of their number."""
    slot = tree.head[leaf]
    for i in range(len(slots)):
        slots[i] = slot
        slot = members.next[slot]
