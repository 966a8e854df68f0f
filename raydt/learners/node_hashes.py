"""Hashes of the nodes of a tree, kept in one block of memory: a node's content lies behind room for its children's.

The hash of a node is BLAKE2b of 32 bytes of its children's hashes and its content, of a leaf of its content alone.
Each hash that is made is put into the hash's place and into the content of its parent, so that nothing is copied.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

#: Bytes of a hash, and what tells hashes of leaves from those of other nodes.
SIZE, LEAF, INNER = 32, b"raydt-tree-leaf", b"raydt-tree-node"


def hash_nodes(
    hashes: npt.NDArray[np.uint8],
    nodes: npt.NDArray[np.int64],
    children: npt.NDArray[np.int64],
    content: npt.NDArray[np.uint8],
    lengths: npt.NDArray[np.int64],
) -> None:
    """Hash nodes again, given parents before their children; hashes of other children are as they were.

    Parameters
    ----------
    hashes : ndarray of uint8, shape (all nodes, 32)
        Changed in place.
    nodes : ndarray of int64, shape (m,)
    children : ndarray of int64, shape (m, 2)
        -1 of a leaf.
    content : ndarray of uint8, shape (m, width)
    lengths : ndarray of int64, shape (m,)
        Bytes of the content of each node that count.
    """
    m, width = content.shape
    inner = children[:, 0] >= 0
    block = np.empty((m, 2 * SIZE + width), dtype=np.uint8)
    block[:, 2 * SIZE :] = content
    block[inner, : 2 * SIZE] = hashes[children[inner]].reshape(-1, 2 * SIZE)
    # Where the hash of each node goes: behind its parent, which is hashed again, too (but of the root).
    above = np.full(m, -1, dtype=np.int64)
    rows, order = np.flatnonzero(inner), np.argsort(nodes)
    for side in (0, 1):
        found = np.searchsorted(nodes, children[rows, side], sorter=order)
        child = order[np.minimum(found, m - 1)]
        again = nodes[child] == children[rows, side]
        above[child[again]] = rows[again] * block.shape[1] + side * SIZE
    starts = np.arange(m) * block.shape[1]
    begins = np.where(inner, starts, starts + 2 * SIZE)
    data = block.reshape(-1).data
    ends = starts + 2 * SIZE + lengths
    work = zip(begins.tolist(), ends.tolist(), above.tolist(), inner.tolist(), strict=True)
    blake2b = hashlib.blake2b
    made = []
    for begin, end, up, is_inner in reversed(list(work)):
        digest = blake2b(data[begin:end], digest_size=SIZE, person=INNER if is_inner else LEAF).digest()
        made.append(digest)
        if up >= 0:
            data[up : up + SIZE] = digest
    hashes[nodes[::-1]] = np.frombuffer(b"".join(made), dtype=np.uint8).reshape(-1, SIZE)
