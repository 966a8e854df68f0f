"""Trees of node records whose leaves list their examples: what the learners that grow such trees share.

A tree is a named tuple with ``nodes`` (records with at least ``parent``, ``left``, ``right``, ``depth``, ``feature``,
``threshold`` and ``head``; ``left`` of a free node is the next free one), ``counts`` (classes by node) and ``reg``.

Invariants: node 0 is the root; the examples of a leaf form a doubly linked list through the ``MEMBER`` records of their
slots.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.memory import empty

#: Registers of a tree: nodes ever used, head of the free ones (-1: none), nodes, leaves.
USED, FREE, NODES, LEAVES = range(4)
#: Feature of a node that is a leaf.
LEAF = -1
#: Leaf of a live slot, and its neighbours in the leaf's list (-1 at the ends).
MEMBER = np.dtype([("leaf", np.int32), ("next", np.int32), ("prev", np.int32)])


class NodeTree(Protocol):
    """What is asked of a tree here."""

    @property
    def nodes(self) -> npt.NDArray[np.void]:
        """Records by node id."""

    @property
    def reg(self) -> npt.NDArray[np.int64]:
        """Registers."""


@inner_kernel
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


@inner_kernel
def new_node(tree: Any, parent: int) -> int:
    """Take a node; the caller has made room."""
    reg = tree.reg
    node: int = reg[FREE]
    if node >= 0:
        reg[FREE] = tree.nodes[node].left
    else:
        node = reg[USED]
        reg[USED] += 1
    tree.nodes[node].parent = parent
    tree.nodes[node].depth = tree.nodes[parent].depth + 1
    reg[NODES] += 1
    return node


@inner_kernel
def split_node(tree: Any, node: int, feature: int, threshold: float) -> tuple[int, int]:
    """Make a leaf internal and return its two new children, whose counts the caller sets."""
    left = new_node(tree, node)
    right = new_node(tree, node)
    tree.nodes[node].feature = feature
    tree.nodes[node].threshold = threshold
    tree.nodes[node].left = left
    tree.nodes[node].right = right
    tree.reg[LEAVES] += 1
    return left, right


@inner_kernel
def link(tree: Any, members: Any, leaf: int, slot: int) -> None:
    """Put a slot at the head of a leaf's list."""
    head = tree.nodes[leaf].head
    members[slot].leaf = leaf
    members[slot].next = head
    members[slot].prev = -1
    if head >= 0:
        members[head].prev = slot
    tree.nodes[leaf].head = slot


@inner_kernel
def unlink(tree: Any, members: Any, slot: int) -> int:
    """Take a slot out of its leaf's list and return the leaf."""
    leaf: int = np.int64(members[slot].leaf)
    before = members[slot].prev
    after = members[slot].next
    if before >= 0:
        members[before].next = after
    else:
        tree.nodes[leaf].head = after
    if after >= 0:
        members[after].prev = before
    return leaf


@inner_kernel
def goes_left(value: float, threshold: float, categorical: bool) -> bool:
    """The routing rule: ``value == threshold`` for a category, ``value <= threshold`` for a number."""
    return value == threshold if categorical else value <= threshold


@kernel
def list_rows(tree: Any, members: Any, leaf: int, slots: Any) -> None:
    """Slots of one leaf, in the order of its list, into an array of their number."""
    slot = tree.nodes[leaf].head
    for i in range(len(slots)):
        slots[i] = slot
        slot = members[slot].next


@kernel
def link_members(tree: Any, members: Any, slots: Any) -> None:
    """Put slots into the lists of the leaves that ``members.leaf`` names."""
    for slot in slots:
        link(tree, members, np.int64(members[slot].leaf), slot)


def listed(tree: NodeTree, leaf: npt.NDArray[np.int32], capacity: int) -> npt.NDArray[np.void]:
    """``MEMBER`` records for so many slots, of which 0, 1, ... lie in the leaves given; the tree gets their lists."""
    members = empty(capacity, MEMBER)
    members["leaf"][: len(leaf)] = leaf
    link_members(tree, members, np.arange(len(leaf), dtype=np.int32))
    return members


@kernel
def _preorder(tree: Any, order: Any, place: Any) -> int:
    """Node ids in preorder, and the place of each; returns the largest depth."""
    n = 0
    deepest: int = 0
    node: int = 0
    while True:
        order[n] = node
        place[node] = n
        n += 1
        deepest = max(deepest, tree.nodes[node].depth)
        if tree.nodes[node].feature >= 0:
            node = tree.nodes[node].left
            continue
        while node != 0 and tree.nodes[tree.nodes[node].parent].right == node:
            node = tree.nodes[node].parent
        if node == 0:
            return int(deepest)
        node = tree.nodes[tree.nodes[node].parent].right


def preorder(tree: NodeTree) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], int]:
    """Node ids in preorder, the place of each (-1: not in the tree, as the last entry), and the largest depth."""
    order = np.empty(int(tree.reg[NODES]), dtype=np.int32)
    place = np.full(len(tree.nodes) + 1, -1, dtype=np.int32)
    deepest = int(_preorder(tree, order, place[:-1]))
    return order, place, deepest


def shares_of(counts: npt.NDArray[np.int64], n_classes: int) -> npt.NDArray[np.float64]:
    """Shares of ``n_classes`` classes by their counts, shape (n, any number of classes); uniform where all are 0."""
    shares = np.zeros((len(counts), n_classes))
    known = min(n_classes, counts.shape[1])
    shares[:, :known] = counts[:, :known]
    shares[shares.sum(axis=1) == 0] = 1.0
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


@inner_kernel
def threshold_between(a: float, b: float) -> float:
    """Midpoint of neighbouring distinct values a < b; a where rounding would reach b."""
    t = 0.5 * a + 0.5 * b
    return t if a <= t < b else a
