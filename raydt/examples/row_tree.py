"""A Merkle tree over rows by id, whose root follows what changes: O(log n) hashes for a row.

The *key* of a row is a fixed bijection of its id. All rows lie below the root; a node of more than 32 rows has sixteen
children, and the next four bits of the key say in which of them a row lies. So the shape depends on the set of ids
only: not on slots, on the order in which rows came, or on rows that were there before. A leaf has its rows in ascending
order of their keys.

Invariant: a node that is not ``stale`` has the hash of the rows below it. Hashes are BLAKE2b of 32 bytes, so that two
different sets of rows with the same root are a collision of BLAKE2b: as hard as 2**128 evaluations. The key spreads the
rows and carries no security; ids that were chosen for it make a path of at most 16 nodes.

Format: ``docs/reference/formats.md``. ``tests/oracles/digests.py`` hashes everything, in plain loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blake2b import SCRATCH, SIZE, hash_bytes, start
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.memory import grown

Ids = npt.NDArray[np.int64]
#: Bytes of each of some rows, uint8, shape (rows, width), by ids.
Records = Callable[[Ids], npt.NDArray[np.uint8]]

#: What tells hashes of leaves from those of other nodes.
LEAF, INNER = start(b"raydt-rows-leaf"), start(b"raydt-rows-node")
#: Rows of a leaf at most, children of any other node, and the bits of the key that choose one. Measured for 10**6 rows:
#: with two children and leaves of 1 KB a row costs the hashes of 14 nodes, with these of 5 in a third of the time.
MOST, CHILDREN, BITS = 32, 16, 4
#: Registers: nodes ever used, first of the free ones (-1: none).
_USED, _FREE = 0, 1
#: Nodes that the insertion of one row may make: keys can share all but their last bits.
_LONGEST = CHILDREN * (64 // BITS)
#: Rows whose bytes are gathered at once.
_TOGETHER = 1 << 16
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31 = np.uint64(27), np.uint64(30), np.uint64(31)


class Trie(NamedTuple):
    """Nodes by number, node 0 the root.

    Attributes
    ----------
    child : ndarray of int32, shape (nodes,)
        The first of sixteen children, which follow each other; -1 of a leaf; of the first of sixteen free nodes, the
        next such node.
    rows : ndarray of int64, shape (nodes,)
        How many are below.
    ids : ndarray of int64, shape (nodes, 32)
        Of a leaf, in ascending order of their keys.
    stale : ndarray of bool, shape (nodes,)
    reg : ndarray of int64, shape (2,)
    """

    child: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    stale: npt.NDArray[np.bool_]
    reg: npt.NDArray[np.int64]


def keys_of(ids: Ids) -> npt.NDArray[np.uint64]:
    """Keys of ids: the finaliser of SplitMix64, a bijection of 64 bits."""
    z = ids.astype(np.uint64)
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    keys: npt.NDArray[np.uint64] = z ^ (z >> _31)
    return keys


def ids_of_keys(keys: npt.NDArray[np.uint64]) -> Ids:
    """The inverse of :func:`keys_of`: to sort keys and look back is faster than to sort ids by their keys."""
    z = keys ^ (keys >> _31) ^ (keys >> np.uint64(62))
    z *= np.uint64(pow(int(_MIX_2), -1, 2**64))
    z ^= (z >> _27) ^ (z >> np.uint64(54))
    z *= np.uint64(pow(int(_MIX_1), -1, 2**64))
    z ^= (z >> _30) ^ (z >> np.uint64(60))
    ids: Ids = z.astype(np.int64)
    return ids


@inner_kernel
def _key(number: int) -> Any:
    z = np.uint64(number)
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return np.uint64(z ^ (z >> _31))


@inner_kernel
def _side(key: Any, depth: int) -> Any:
    return np.int64((np.uint64(key) >> np.uint64(64 - BITS - BITS * depth)) & np.uint64(CHILDREN - 1))


@inner_kernel
def _new_leaves(trie: Any) -> Any:
    """Sixteen empty leaves; returns the first."""
    first = np.int64(trie.reg[_FREE])
    if first >= 0:
        trie.reg[_FREE] = trie.child[first]
    else:
        first = np.int64(trie.reg[_USED])
        trie.reg[_USED] += CHILDREN
    for node in range(first, first + CHILDREN):
        trie.child[node] = -1
        trie.rows[node] = 0
        trie.stale[node] = True
    return first


@inner_kernel
def _divide(trie: Any, node: int, depth: int) -> None:
    """Give the rows of a full leaf to children."""
    first = _new_leaves(trie)
    for i in range(trie.rows[node]):
        child = first + _side(_key(trie.ids[node, i]), depth)
        trie.ids[child, trie.rows[child]] = trie.ids[node, i]
        trie.rows[child] += 1
    trie.child[node] = first


@inner_kernel
def _merge(trie: Any, node: int, stack: Any) -> None:
    """Make a node a leaf that has the rows below it."""
    n, top = np.int64(0), _push(trie, node, stack, 0)
    trie.child[node] = -1
    while top > 0:
        top -= 1
        below = np.int64(stack[top])
        if trie.child[below] >= 0:
            top = _push(trie, below, stack, top)
        else:
            for i in range(trie.rows[below]):
                trie.ids[node, n] = trie.ids[below, i]
                n += 1
        if below % CHILDREN == CHILDREN - 1:  # the last of its sixteen to be visited
            trie.child[below - CHILDREN + 1] = trie.reg[_FREE]
            trie.reg[_FREE] = below - CHILDREN + 1


@inner_kernel
def _push(trie: Any, node: int, stack: Any, top: int) -> Any:
    """Put the children of a node on a stack, the first on top; returns its new height."""
    first = np.int64(trie.child[node])
    for c in range(CHILDREN):
        stack[top + c] = first + CHILDREN - 1 - c
    return np.int64(top + CHILDREN)


@inner_kernel
def _touch(trie: Any, key: Any, by: int) -> Any:
    """Make the path of a key stale and change its counts; returns its leaf and the depth of that."""
    node, depth = np.int64(0), np.int64(0)
    trie.stale[0] = True
    trie.rows[0] += by
    while trie.child[node] >= 0:
        node = np.int64(trie.child[node]) + _side(key, depth)
        trie.stale[node] = True
        trie.rows[node] += by
        depth += 1
    return node, depth


@inner_kernel
def _enter(trie: Any, number: int) -> None:
    key = _key(number)
    node, depth = _touch(trie, key, 1)
    while trie.rows[node] > MOST:
        trie.rows[node] = MOST
        _divide(trie, node, depth)
        trie.rows[node] = MOST + 1
        node = np.int64(trie.child[node]) + _side(key, depth)
        trie.rows[node] += 1
        depth += 1
    i = trie.rows[node] - 1
    while i > 0 and _key(trie.ids[node, i - 1]) > key:
        trie.ids[node, i] = trie.ids[node, i - 1]
        i -= 1
    trie.ids[node, i] = number


@inner_kernel
def _leave(trie: Any, number: int, stack: Any) -> None:
    key = _key(number)
    leaf, _ = _touch(trie, key, -1)
    n, i = trie.rows[leaf], np.int64(0)
    while trie.ids[leaf, i] != number:
        i += 1
    while i < n:  # n counts the others
        trie.ids[leaf, i] = trie.ids[leaf, i + 1]
        i += 1
    node, depth = np.int64(0), np.int64(0)
    while trie.child[node] >= 0:
        if trie.rows[node] <= MOST:
            _merge(trie, node, stack)
            return
        node = np.int64(trie.child[node]) + _side(key, depth)
        depth += 1


@inner_kernel
def _holds(trie: Any, number: int) -> Any:
    key, node, depth = _key(number), np.int64(0), np.int64(0)
    while trie.child[node] >= 0:
        node = np.int64(trie.child[node]) + _side(key, depth)
        depth += 1
    i = trie.rows[node] - 1
    while i >= 0 and trie.ids[node, i] != number:
        i -= 1
    return i >= 0


@kernel
def _change(trie: Any, ids: Any, live: Any, begin: int, stack: Any) -> int:
    """Take rows into the tree or out of it, or make them stale, as long as there is room; returns how far it came."""
    for i in range(begin, len(ids)):
        if trie.reg[_USED] + _LONGEST > len(trie.rows):
            return i
        held = _holds(trie, ids[i])
        if live[i] and not held:
            _enter(trie, ids[i])
        elif held and not live[i]:
            _leave(trie, ids[i], stack)
        elif held:
            _touch(trie, _key(ids[i]), 0)
    return len(ids)


@kernel
def _fill(trie: Any, ids: Any, tasks: Any) -> bool:
    """Build the tree of ids in ascending order of their keys; returns whether there was room."""
    trie.reg[_USED], trie.reg[_FREE] = 0, -1
    tasks[0] = _new_leaves(trie), 0, len(ids), 0
    top = np.int64(1)
    while top > 0:
        top -= 1
        node, begin, end, depth = tasks[top]
        trie.rows[node] = end - begin
        if end - begin <= MOST:
            for i in range(begin, end):
                trie.ids[node, i - begin] = ids[i]
            continue
        if trie.reg[_USED] + CHILDREN > len(trie.rows):
            return False
        first = _new_leaves(trie)
        trie.child[node] = first
        for c in range(CHILDREN):
            stop = begin
            while stop < end and _side(_key(ids[stop]), depth) == c:
                stop += 1
            tasks[top] = first + c, begin, stop, depth + 1
            top += 1
            begin = stop
    return True


@kernel
def _list_stale(trie: Any, out: Any, stack: Any) -> Any:
    """Stale nodes, parents before their children; they are no longer stale. Returns how many there are."""
    n, top = np.int64(0), np.int64(1)
    stack[0] = 0
    while top > 0:
        top -= 1
        node = np.int64(stack[top])
        if not trie.stale[node]:
            continue
        trie.stale[node] = False
        out[n] = node
        n += 1
        if trie.child[node] >= 0:
            top = _push(trie, node, stack, top)
    return n


@kernel
def _hash_leaves(leaves: Any, counts: Any, data: Any, width: int, hashes: Any, scratch: Any) -> None:
    """Hash leaves, given the bytes of their rows one after the other, ``width`` a row."""
    begin = np.int64(0)
    for i in range(len(leaves)):
        end = begin + np.int64(counts[i]) * width
        hash_bytes(LEAF, data, begin, end, scratch, hashes, SIZE * np.int64(leaves[i]))
        begin = end


@kernel
def _hash_inner(nodes: Any, child: Any, hashes: Any, scratch: Any) -> None:
    """Hash nodes that are no leaves, the last first."""
    for i in range(len(nodes) - 1, -1, -1):
        node = np.int64(nodes[i])
        first = SIZE * np.int64(child[node])
        hash_bytes(INNER, hashes, first, first + CHILDREN * SIZE, scratch, hashes, SIZE * node)


def _nodes_of(keys: npt.NDArray[np.uint64]) -> int:
    """How many nodes the tree of some keys uses, ascending. O(n depth), in passes over arrays.

    A prefix of a key is a node with children if more than 32 keys begin with it. From 100,000 to 200,000 rows nodes
    become ten times as many: to fill a tree until it is too small, again and again, took most of a first digest.
    """
    inner, first = int(len(keys) > MOST), keys[:-MOST]
    differ = first ^ keys[MOST:]  # by how much each key and the 32nd after it do
    for bits in range(BITS, 64, BITS):
        full = first[differ < np.uint64(1) << np.uint64(64 - bits)] >> np.uint64(64 - bits)
        if not len(full):
            break
        inner += 1 + int(np.count_nonzero(full[1:] != full[:-1]))
    return CHILDREN * (inner + 1)


class RowTree:
    """The tree over some rows.

    Parameters
    ----------
    ids : ndarray of int64, shape (n,)
    """

    def __init__(self, ids: Ids) -> None:
        keys = np.sort(keys_of(ids))
        self._hashes = np.empty(0, dtype=np.uint8)
        self._scratch = np.empty(SCRATCH, dtype=np.uint64)
        self._stack = np.empty(_LONGEST + CHILDREN, dtype=np.int64)
        self._trie = Trie(
            np.empty(0, dtype=np.int32),
            np.empty(0, dtype=np.int64),
            np.empty((0, MOST), dtype=np.int64),
            np.empty(0, dtype=np.bool_),
            np.array([0, -1], dtype=np.int64),
        )
        self._reserve(_nodes_of(keys) + _LONGEST + 1)
        filled = _fill(self._trie, ids_of_keys(keys), np.empty((_LONGEST + CHILDREN, 4), dtype=np.int64))
        assert filled, "there is room for all nodes"

    def __len__(self) -> int:
        return int(self._trie.rows[0])

    def change(self, ids: Ids, live: npt.NDArray[np.bool_]) -> None:
        """Say of rows that were inserted, deleted or changed whether they are there now. O(log n) a row."""
        done = 0
        while done < len(ids):
            self._reserve(int(self._trie.reg[_USED]) + _LONGEST + 1)
            done = int(_change(self._trie, ids, live, done, self._stack))

    def root(self, records: Records) -> bytes:
        """The hash of all rows, 32 bytes; asks for the records of the rows in stale leaves."""
        trie, together = self._trie, _TOGETHER // MOST
        stale = np.empty(int(trie.reg[_USED]), dtype=np.int32)
        stale = stale[: int(_list_stale(trie, stale, self._stack))]
        inner = trie.child[stale] >= 0
        leaves = stale[~inner]
        for begin in range(0, len(leaves), together):
            part = leaves[begin : begin + together]
            count = trie.rows[part]
            data = np.ascontiguousarray(records(trie.ids[part][np.arange(MOST) < count[:, None]]))
            _hash_leaves(part, count, data.reshape(-1), data.shape[1], self._hashes, self._scratch)
        _hash_inner(stale[inner], trie.child, self._hashes, self._scratch)
        return bytes(self._hashes[:SIZE])

    def _reserve(self, nodes: int) -> None:
        """Room for so many nodes."""
        have = len(self._trie.rows)
        if nodes <= have:
            return
        capacity = max(nodes, have + have // 2)
        child, count, ids, stale, reg = self._trie
        self._trie = Trie(
            grown(child, capacity), grown(count, capacity), grown(ids, capacity), grown(stale, capacity), reg
        )
        self._hashes = grown(self._hashes, SIZE * capacity)
