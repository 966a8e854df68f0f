"""The shape of a fully dynamic tree and its digest, kept up with the nodes that changed: O(depth) for an update.

Every update raises the counter c of all nodes on its path, and a rebuild gives new nodes with a later stamp ``built``.
So a subtree whose root has the same c and ``built`` as before is as it was, and only the others are visited. In a
warm-up, when nothing is counted yet, the tree is one leaf, which is always visited.

Invariant: after :meth:`Outline.follow` sizes and heights are those of the tree. The hash of a node is that of its
numbers and of the hashes of its children (BLAKE2b), so that the root's stands for the whole tree, whatever
the numbers of its nodes. Format: ``docs/reference/formats.md``; ``tests/oracles/digests.py`` hashes everything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blake2b import SCRATCH, SIZE, hash_bytes, start
from raydt.arrays.kernel import kernel
from raydt.arrays.memory import grown
from raydt.learners.live_tree import Tree
from raydt.learners.nodes import NODES

#: What tells hashes of leaves from those of other nodes.
LEAF, INNER = start(b"raydt-tree-leaf"), start(b"raydt-tree-node")


Wide = npt.NDArray[np.int64]


class Shape(NamedTuple):
    """By number of a node: c and ``built`` when it was last visited, nodes and levels from it down, and its hash's age.

    ``hashed`` is False where the node has changed since its hash was made.
    """

    c: Wide
    built: Wide
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
def _hash_nodes(changed: Any, nodes: Any, contents: Any, width: int, ends: Any, hashes: Any, scratch: Any) -> None:
    """Hash nodes, children before their parents.

    ``contents`` has ``width`` bytes for each: room for the hashes of its children, and what is hashed of itself, which
    ends at ``ends``.
    """
    for i in range(len(changed) - 1, -1, -1):
        begin = np.int64(i) * width
        node = nodes[changed[i]]
        if node.feature < 0:
            hash_bytes(LEAF, contents, begin + 2 * SIZE, begin + ends[i], scratch, hashes, SIZE * changed[i])
            continue
        left, right = SIZE * np.int64(node.left), SIZE * np.int64(node.right)
        for j in range(SIZE):
            contents[begin + j] = hashes[left + j]
            contents[begin + SIZE + j] = hashes[right + j]
        hash_bytes(INNER, contents, begin, begin + ends[i], scratch, hashes, SIZE * changed[i])


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
        self._hashes = np.empty(0, dtype=np.uint8)
        self._scratch = np.empty(SCRATCH, dtype=np.uint64)

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
        if len(self._hashes) < SIZE * len(tree.nodes):
            self._hashes = grown(self._hashes, SIZE * len(tree.nodes))
        scratch = np.empty((2, int(tree.reg[NODES]) + 2), dtype=np.int64)
        changed = scratch[0, : int(_list_changed(tree, self._shape.hashed, *scratch))]
        contents, ends = self._contents(tree, changed)
        flat = contents.view(np.uint8).reshape(-1)
        _hash_nodes(changed, tree.nodes, flat, contents.itemsize, ends, self._hashes, self._scratch)
        root: npt.NDArray[np.uint8] = self._hashes[:SIZE].copy()
        return root

    def _contents(self, tree: Tree, changed: Wide) -> tuple[npt.NDArray[np.void], Wide]:
        """Of some nodes, what is hashed behind the hashes of their children, and where that ends."""
        nodes, statistics, counts = tree.nodes[changed], tree.statistics[changed], tree.counts[changed]
        columns: dict[str, npt.NDArray[Any]] = {"feature": nodes["feature"], "threshold": nodes["threshold"]}
        columns |= {name: statistics[name] for name in ("s", "c", *(("m0", "gone") if self._certified else ()))}
        columns |= {"sums": tree.sums[changed], "counts": counts}
        fields = [(name, array.dtype.newbyteorder("<"), array.shape[1:]) for name, array in columns.items()]
        contents = np.empty(len(changed), dtype=[("below", np.uint8, (2 * SIZE,)), *fields])
        for name, array in columns.items():
            contents[name] = array
        unseen = (counts[:, ::-1] != 0).argmax(axis=1)
        unseen[~counts.any(axis=1)] = counts.shape[1]
        ends: Wide = contents.itemsize - counts.itemsize * unseen
        return contents, ends
