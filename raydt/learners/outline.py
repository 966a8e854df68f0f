"""The shape of a fully dynamic tree and its digest, kept up with the nodes that changed: O(depth) for an update.

Every update raises the counter c of all nodes on its path, and a rebuild gives new nodes with a later stamp ``built``.
So a subtree whose root has the same c and ``built`` as before is as it was, and only the others are visited. In a
warm-up, when nothing is counted yet, the tree is one leaf, which is always visited.

Invariant: after :meth:`Outline.follow` sizes and heights are those of the tree. The hash of a node is that of its
numbers and of the hashes of its children (BLAKE2b of 32 bytes), so that the root's stands for the whole tree, whatever
the numbers of its nodes. Format: ``docs/reference/formats.md``; ``tests/oracles/digests.py`` hashes everything.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.memory import grown
from raydt.learners.live_tree import Tree
from raydt.learners.nodes import NODES, USED

#: Bytes of a hash, and what tells hashes of leaves from those of other nodes.
SIZE, LEAF, INNER = 32, b"raydt-tree-leaf", b"raydt-tree-node"


class Shape(NamedTuple):
    """By number of a node: c and ``built`` when it was last visited, nodes and levels from it down, and its hash's age.

    ``hashed`` is False where the node has changed since its hash was made.
    """

    c: npt.NDArray[np.int64]
    built: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    height: npt.NDArray[np.int32]
    hashed: npt.NDArray[np.bool_]


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


@kernel
def _list_changed(tree: Any, hashed: Any, out: Any, stack: Any) -> int:
    """Nodes without a hash, parents before their children, which count as hashed then. Returns how many there are."""
    n, top = np.int64(0), np.int64(1)
    stack[0] = 0
    while top > 0:
        top -= 1
        node = np.int64(stack[top])
        if hashed[node]:
            continue
        hashed[node] = True
        out[n] = node
        n += 1
        if tree.nodes[node].feature >= 0:
            stack[top], stack[top + 1] = tree.nodes[node].right, tree.nodes[node].left
            top += 2
    return int(n)


@kernel
def _place(nodes: Any, size: Any, leaves: Any, out: Any) -> None:
    """Position of some nodes in preorder. O(depth) each."""
    for i in range(len(leaves)):
        node = np.int64(leaves[i])
        place = np.int64(0)
        up = np.int64(nodes[node].parent)
        while up >= 0:
            place += 1
            if nodes[up].right == node:
                place += size[nodes[up].left]
            node, up = up, np.int64(nodes[up].parent)
        out[i] = place


class Outline:
    """What is known of a tree from its last visit; of another tree a new one is made.

    Parameters
    ----------
    certified : bool
        Whether the digest has the certificates.
    """

    def __init__(self, certified: bool) -> None:
        self._certified = certified
        wide, narrow = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        self._shape = Shape(wide, wide, narrow, narrow, np.empty(0, dtype=np.bool_))
        self._hashes = bytearray()

    def follow(self, tree: Tree) -> None:
        """Take over what has changed. O(nodes changed)."""
        have = len(self._shape.c)
        if len(tree.nodes) > have:
            self._shape = Shape(*(grown(array, len(tree.nodes)) for array in self._shape))
            self._shape.built[have:] = -1
        _follow(tree, self._shape, np.empty(2 * int(tree.reg[NODES]) + 2, dtype=np.int64))

    @property
    def depth(self) -> int:
        """Depth of the deepest node."""
        return int(self._shape.height[0])

    def places(self, tree: Tree, nodes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Positions of some nodes in preorder, shape (nodes,). O(depth) each."""
        out = np.empty(len(nodes), dtype=np.int32)
        _place(tree.nodes, self._shape.size, nodes, out)
        return out

    def root(self, tree: Tree) -> npt.NDArray[np.uint8]:
        """Hash of the tree, 32 bytes. O(nodes changed)."""
        used = int(tree.reg[USED])
        self._hashes += bytes(max(0, SIZE * used - len(self._hashes)))
        hashes = memoryview(self._hashes)
        scratch = np.empty((2, int(tree.reg[NODES]) + 2), dtype=np.int64)
        changed = scratch[0, : int(_list_changed(tree, self._shape.hashed, *scratch))]
        if not len(changed):
            return np.frombuffer(bytes(hashes[:SIZE]), dtype=np.uint8)
        nodes, statistics, counts = tree.nodes[changed], tree.statistics[changed], tree.counts[changed]
        names = ("m0", "gone") if self._certified else ()
        columns = [nodes["feature"], nodes["threshold"], statistics["s"], statistics["c"]]
        columns += [statistics[name] for name in names]
        columns += [tree.sums[changed, i] for i in range(tree.sums.shape[1])]
        fields = [np.ascontiguousarray(column, column.dtype.newbyteorder("<")) for column in columns]
        numbers = np.concatenate([column.view(np.uint8).reshape(len(changed), -1) for column in fields], axis=1)
        counts = np.ascontiguousarray(counts, "<i8")
        known = 8 * (counts.shape[1] - (counts[:, ::-1] != 0).argmax(axis=1)) * counts.any(axis=1)
        inner = nodes["feature"] >= 0
        left, right = SIZE * np.where(inner, nodes["left"], -1), SIZE * np.where(inner, nodes["right"], -1)
        width, wide = numbers.shape[1], 8 * counts.shape[1]
        content, classes = numbers.tobytes(), counts.tobytes()
        rows = zip(*((array.tolist()) for array in (SIZE * changed, left, right, known)), strict=True)
        for i, (node, a, b, seen) in reversed(list(enumerate(rows))):
            own = content[width * i : width * (i + 1)] + classes[wide * i : wide * i + seen]
            if a < 0:
                digest = hashlib.blake2b(own, digest_size=SIZE, person=LEAF)
            else:
                own = hashes[a : a + SIZE].tobytes() + hashes[b : b + SIZE].tobytes() + own
                digest = hashlib.blake2b(own, digest_size=SIZE, person=INNER)
            hashes[node : node + SIZE] = digest.digest()
        return np.frombuffer(bytes(hashes[:SIZE]), dtype=np.uint8)
