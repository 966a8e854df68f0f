"""Hashes of trees that follow what changed: of one fully dynamic tree, and of many trees.

The hash of a node is that of its numbers and of the hashes of its children (BLAKE2b), so that the root's stands for the
whole tree, whatever the numbers of its nodes. Invariant: a node with a hash has that of the nodes below it, and so has
every node below it; who changes a node takes the hashes of the node and of all above it away. Format:
``docs/reference/formats.md``; ``tests/oracles/digests.py`` hashes everything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import grown
from raydt.arrays.digest import SIZE, Words, hash_all, room_for, start
from raydt.arrays.elementary import AnyArray, Bools, Int32s, Ints
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.trees.counted_tree import CountedTree
from raydt.trees.records import NODES

#: What tells hashes of leaves from those of other nodes.
LEAF, INNER = start(b"raydt-tree-leaf"), start(b"raydt-tree-node")
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
    hash_all(LEAF, data, jobs, n, room, hashes)
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
        hash_all(INNER, data, jobs, n, room, hashes)


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
def _write(tree: Any, bits: Any, certified: bool, changed: Any, contents: Any, ends: Any) -> None:
    """Write what is hashed of each node, behind room for the hashes of its children, and where in its row that ends.

    ``bits`` has the bits of all thresholds and of all ``m0``.
    """
    for i in range(len(changed)):
        node = changed[i]
        now = tree.statistics[node]
        first = np.int64(tree.nodes[node].feature)
        if tree.nodes[node].missing:  # of dense features only, of which there are fewer than 2^30
            first = -2 * first - np.int64(tree.nodes[node].missing)
        carry = np.uint64(np.uint32(first))  # four bytes, and all that follow are eight
        at = np.int64(CONTENT)
        for word in (bits[0][node], now.s, now.c):
            carry = _append(contents, i, at, carry, word)
            at += 1
        if certified:
            for word in (bits[1][node], now.gone):
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
        bits = tree.nodes["threshold"].view(np.int64), tree.statistics["m0"].view(np.int64)
        _write(tree, bits, self._certified, changed.at, contents, ends)
        hash_changed(tree.nodes, changed, contents, ends, self._shape.hashed, self._hashes)
        root: npt.NDArray[np.uint8] = self._hashes[0].view(np.uint8).copy()
        return root
