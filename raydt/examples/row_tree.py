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
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blake2b import SIZE, hash_all, room_for, start
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.memory import grown
from raydt.arrays.types import Bools, Int32s, Ints, Slots
from raydt.parallel.threads import run

Ids = Ints
#: What is hashed of each of some rows, by ids and slots.
Records = Callable[[Ids, Slots], npt.NDArray[np.void]]

#: What tells hashes of leaves from those of other nodes.
LEAF, INNER = start(b"raydt-rows-leaf"), start(b"raydt-rows-node")
#: Rows of a leaf at most, children of any other node, and the bits of the key that choose one. Measured for 10**6 rows:
#: with two children and leaves of 1 KB a row costs the hashes of 14 nodes, with these of 5 in a third of the time.
MOST, CHILDREN, BITS = 32, 16, 4
#: Rows of a leaf for which there is room: so many, or twice, four or eight times as many.
_SMALLEST, _SIZES = 4, 4
#: Registers: nodes ever used, first of the free ones (-1: none), places of rows ever used, and from there on the first
#: of the free rooms of each size (-1: none).
_USED, _FREE, _PLACES, _ROOMS = 0, 1, 2, 3
#: Nodes that the insertion of one row may make, since keys can share all but their last bits; and places: a leaf whose
#: 32 rows go to children makes less than 8 for each of them.
_LONGEST, _LARGEST = CHILDREN * (64 // BITS), (64 // BITS + 1) * 8 * MOST
#: Rows whose bytes are gathered at once.
_TOGETHER = 1 << 16
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31 = np.uint64(27), np.uint64(30), np.uint64(31)


class Trie(NamedTuple):
    """Nodes by number, node 0 the root."""

    #: Shape (nodes,): the first of sixteen children, which follow each other; -1 of a leaf; of the first of sixteen
    #: free nodes, the next such node.
    child: Int32s
    rows: Ints  #: Shape (nodes,): how many are below.
    begin: Ints  #: Shape (nodes,): the first place of the rows of a leaf.
    room: npt.NDArray[np.uint8]  #: Shape (nodes,): places that a leaf has; 0 if it has no rows.
    stale: Bools  #: Shape (nodes,).
    #: Shape (places,): of a leaf, in ascending order of their keys; of a free room, the first place of the next one.
    ids: Ints
    #: Shape (places,): where these rows are: to look up the neighbours of each changed row by id takes as long as to
    #: hash them.
    slots: Int32s
    reg: Ints  #: Shape (7,).


#: Fields by node, and by place.
_OF_NODES, _OF_PLACES = Trie._fields[:5], Trie._fields[5:7]


def keys_of(ids: Ids) -> npt.NDArray[np.uint64]:
    """Keys of ids: the finaliser of SplitMix64, a bijection of 64 bits."""
    z = ids.astype(np.uint64)
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    keys: npt.NDArray[np.uint64] = z ^ (z >> _31)
    return keys


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
        trie.rows[node] = trie.room[node] = 0
        trie.stale[node] = True
    return first


@inner_kernel
def _size_of(rows: int) -> Any:
    """Places that so many rows get, and the number of this size."""
    places, size = np.int64(_SMALLEST if rows > 0 else 0), np.int64(0)
    while places < rows:
        places, size = 2 * places, size + 1
    return places, size


@inner_kernel
def _move(trie: Any, leaf: int, kept: int, rows: int) -> None:
    """Give a leaf room for so many rows, of which it keeps the first."""
    have, had = np.int64(trie.room[leaf]), np.int64(trie.begin[leaf])
    places, size = _size_of(rows)
    begin = np.int64(0)
    if places > 0:
        begin = np.int64(trie.reg[_ROOMS + size])
        if begin >= 0:
            trie.reg[_ROOMS + size] = trie.ids[begin]
        else:
            begin = np.int64(trie.reg[_PLACES])
            trie.reg[_PLACES] += places
    for i in range(kept):
        trie.ids[begin + i], trie.slots[begin + i] = trie.ids[had + i], trie.slots[had + i]
    if have > 0:
        _, size = _size_of(have)
        trie.ids[had] = trie.reg[_ROOMS + size]
        trie.reg[_ROOMS + size] = had
    trie.begin[leaf], trie.room[leaf] = begin, places


@inner_kernel
def _append(trie: Any, leaf: int, n: int, number: int, slot: int) -> None:
    """Put a row behind the ``n`` rows that a leaf has."""
    if n == trie.room[leaf]:
        _move(trie, leaf, n, n + 1)
    at = trie.begin[leaf] + n
    trie.ids[at], trie.slots[at] = number, slot


@inner_kernel
def _divide(trie: Any, node: int, depth: int) -> None:
    """Give the rows of a full leaf to children."""
    first, begin = _new_leaves(trie), trie.begin[node]
    for i in range(begin, begin + trie.rows[node]):
        child = first + _side(_key(trie.ids[i]), depth)
        _append(trie, child, trie.rows[child], trie.ids[i], trie.slots[i])
        trie.rows[child] += 1
    _move(trie, node, 0, 0)
    trie.child[node] = first


@inner_kernel
def _merge(trie: Any, node: int, stack: Any) -> None:
    """Make a node a leaf that has the rows below it."""
    n, top = np.int64(0), _push(trie, node, stack, 0)
    trie.child[node] = -1
    _move(trie, node, 0, trie.rows[node])
    while top > 0:
        top -= 1
        below = np.int64(stack[top])
        if trie.child[below] >= 0:
            top = _push(trie, below, stack, top)
        else:
            begin = trie.begin[below]
            for i in range(begin, begin + trie.rows[below]):
                _append(trie, node, n, trie.ids[i], trie.slots[i])
                n += 1
            _move(trie, below, 0, 0)
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
def _enter(trie: Any, number: int, slot: int) -> None:
    key = _key(number)
    node, depth = _touch(trie, key, 1)
    while trie.rows[node] > MOST:
        trie.rows[node] = MOST
        _divide(trie, node, depth)
        trie.rows[node] = MOST + 1
        node = np.int64(trie.child[node]) + _side(key, depth)
        trie.rows[node] += 1
        depth += 1
    _append(trie, node, trie.rows[node] - 1, number, slot)
    begin = trie.begin[node]
    i = begin + trie.rows[node] - 1
    while i > begin and _key(trie.ids[i - 1]) > key:
        trie.ids[i], trie.slots[i] = trie.ids[i - 1], trie.slots[i - 1]
        i -= 1
    trie.ids[i], trie.slots[i] = number, slot


@inner_kernel
def _leave(trie: Any, number: int, at: int, stack: Any) -> None:
    """Take out the row that its leaf has at a place."""
    key = _key(number)
    leaf, _ = _touch(trie, key, -1)
    begin, others = trie.begin[leaf], trie.rows[leaf]
    for i in range(begin + at, begin + others):
        trie.ids[i], trie.slots[i] = trie.ids[i + 1], trie.slots[i + 1]
    if 4 * others <= trie.room[leaf]:
        _move(trie, leaf, others, others)
    node, depth = np.int64(0), np.int64(0)
    while trie.child[node] >= 0:
        if trie.rows[node] <= MOST:
            _merge(trie, node, stack)
            return
        node = np.int64(trie.child[node]) + _side(key, depth)
        depth += 1


@inner_kernel
def _place(trie: Any, number: int) -> Any:
    """Place of a row in its leaf, -1 if it is not there."""
    key, node, depth = _key(number), np.int64(0), np.int64(0)
    while trie.child[node] >= 0:
        node = np.int64(trie.child[node]) + _side(key, depth)
        depth += 1
    i, begin = trie.rows[node] - 1, trie.begin[node]
    while i >= 0 and trie.ids[begin + i] != number:
        i -= 1
    return i


@kernel
def _change(trie: Any, ids: Any, slots: Any, begin: int, stack: Any) -> int:
    """Take rows into the tree or out of it, or make them stale, as long as there is room; returns how far it came."""
    for i in range(begin, len(ids)):
        if trie.reg[_USED] + _LONGEST > len(trie.rows) or trie.reg[_PLACES] + _LARGEST > len(trie.ids):
            return i
        at = _place(trie, ids[i])
        if at >= 0 and slots[i] < 0:
            _leave(trie, ids[i], at, stack)
        elif at >= 0:
            leaf, _ = _touch(trie, _key(ids[i]), 0)
            trie.slots[trie.begin[leaf] + at] = slots[i]
        elif slots[i] >= 0:
            _enter(trie, ids[i], slots[i])
    return len(ids)


@kernel
def _fill(trie: Any, ids: Any, slots: Any, tasks: Any) -> bool:
    """Build the tree of ids in ascending order of their keys; returns whether there was room."""
    trie.reg[:] = -1
    trie.reg[_USED] = trie.reg[_PLACES] = 0
    tasks[0] = _new_leaves(trie), 0, len(ids), 0
    top = np.int64(1)
    while top > 0:
        top -= 1
        node, begin, end, depth = tasks[top]
        trie.rows[node] = end - begin
        if end - begin <= MOST:
            _move(trie, node, 0, end - begin)
            for i in range(begin, end):
                at = trie.begin[node] + i - begin
                trie.ids[at], trie.slots[at] = ids[i], slots[i]
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
def _list_stale(trie: Any, out: Any, levels: Any) -> int:
    """Stale nodes, level by level from the root. Returns the number of levels.

    Those of level i are ``out[levels[i] : levels[i + 1]]``.
    """
    level, begin, end = np.int64(0), np.int64(0), np.int64(0)
    if trie.stale[0]:
        out[0], end = 0, 1
    while begin < end:
        levels[level] = begin
        level += 1
        n = end
        for i in range(begin, end):
            first = np.int64(trie.child[out[i]])
            if first >= 0:
                for child in range(first, first + CHILDREN):
                    if trie.stale[child]:
                        out[n] = child
                        n += 1
        begin, end = end, n
    levels[level] = end
    return int(level)


@kernel
def _list_rows(trie: Any, leaves: Any, ids: Any, slots: Any) -> None:
    n = np.int64(0)
    for leaf in leaves:
        begin = trie.begin[leaf]
        for i in range(begin, begin + trie.rows[leaf]):
            ids[n], slots[n] = trie.ids[i], trie.slots[i]
            n += 1


@kernel
def _hash_leaves(leaves: Any, counts: Any, data: Any, width: int, jobs: Any, room: Any, hashes: Any) -> None:
    """Hash leaves, given the bytes of their rows one after the other, ``width`` a row."""
    end = np.int64(0)
    for i in range(len(leaves)):
        jobs.to[i], jobs.begin[i] = leaves[i], end
        end += counts[i] * width
        jobs.end[i] = end
    hash_all(LEAF, data, jobs, len(leaves), room, hashes)


@kernel
def _hash_inner(nodes: Any, levels: Any, child: Any, data: Any, jobs: Any, room: Any, hashes: Any) -> None:
    """Hash nodes that are no leaves, the deepest level first; ``data`` has the bytes of ``hashes``."""
    for level in range(len(levels) - 2, -1, -1):
        n = np.int64(0)
        for i in range(levels[level], levels[level + 1]):
            first = np.int64(child[nodes[i]])
            if first >= 0:
                jobs.to[n], jobs.begin[n], jobs.end[n] = nodes[i], SIZE * first, SIZE * (first + CHILDREN)
                n += 1
        hash_all(INNER, data, jobs, n, room, hashes)


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
    """The tree over rows with some ids, shape (n,), in slots, shape (n,)."""

    def __init__(self, ids: Ids, slots: Slots) -> None:
        keys = keys_of(ids)
        order = np.argsort(keys)
        self._hashes = np.empty((0, SIZE // 8), dtype="<u8")
        self._stack = np.empty(_LONGEST + CHILDREN, dtype=np.int64)
        self._trie = Trie(
            np.empty(0, dtype=np.int32),
            np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.uint8),
            np.empty(0, dtype=np.bool_),
            np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int32),
            np.zeros(_ROOMS + _SIZES, dtype=np.int64),
        )
        nodes = _nodes_of(keys[order])
        self._reserve(nodes, 2 * len(ids) + _SMALLEST * nodes)
        tasks = np.empty((_LONGEST + CHILDREN, 4), dtype=np.int64)
        filled = _fill(self._trie, ids[order], slots[order], tasks)
        assert filled, "there is room for all nodes"

    def __len__(self) -> int:
        return int(self._trie.rows[0])

    def change(self, ids: Ids, slots: Slots) -> None:
        """Say of rows that were inserted, deleted or changed where they are now; -1: nowhere. O(log n) a row."""
        done = 0
        while done < len(ids):
            self._reserve(int(self._trie.reg[_USED]), int(self._trie.reg[_PLACES]))
            done = int(_change(self._trie, ids, slots, done, self._stack))

    def root(self, records: Records) -> bytes:
        """The hash of all rows, 32 bytes; asks for the records of the rows in stale leaves, in threads."""
        trie, together = self._trie, _TOGETHER // MOST
        stale, levels = np.empty(int(trie.reg[_USED]), dtype=np.int32), np.empty(2 + 64 // BITS, dtype=np.int64)
        levels = levels[: 1 + int(_list_stale(trie, stale, levels))]
        stale = stale[: levels[-1]]
        leaves = stale[trie.child[stale] < 0]

        def hash_part(part: Int32s) -> None:
            count = trie.rows[part]
            ids, slots = np.empty(int(count.sum()), dtype=np.int64), np.empty(int(count.sum()), dtype=np.int32)
            _list_rows(trie, part, ids, slots)
            data = records(ids, slots)
            _hash_leaves(part, count, data.view(np.uint8), data.itemsize, *room_for(len(part)), self._hashes)

        parts = [leaves[begin : begin + together] for begin in range(0, len(leaves), together)]
        run([partial(hash_part, part) for part in parts])
        data, (jobs, room) = self._hashes.view(np.uint8).reshape(-1), room_for(len(stale))
        _hash_inner(stale, levels, trie.child, data, jobs, room, self._hashes)
        trie.stale[stale] = False  # last: a call that is broken off hashes them again
        root: bytes = self._hashes[0].tobytes()
        return root

    def rows_of(self, leaf: int) -> tuple[Ids, Slots]:
        """Return ids and slots of the rows of a leaf."""
        rows = slice(int(self._trie.begin[leaf]), int(self._trie.begin[leaf] + self._trie.rows[leaf]))
        return self._trie.ids[rows], self._trie.slots[rows]

    def _reserve(self, nodes: int, places: int) -> None:
        """Room for so many nodes and places, and for one insertion."""
        trie, used, more = self._trie, self._trie.reg, dict[str, Any]()
        if nodes + _LONGEST > len(trie.rows):
            capacity = max(nodes + _LONGEST, len(trie.rows) + len(trie.rows) // 2)
            self._hashes = grown(self._hashes[: used[_USED]], capacity)
            more |= {name: grown(getattr(trie, name)[: used[_USED]], capacity) for name in _OF_NODES}
        if places + _LARGEST > len(trie.ids):
            capacity = max(places + _LARGEST, len(trie.ids) + len(trie.ids) // 2)
            more |= {name: grown(getattr(trie, name)[: used[_PLACES]], capacity) for name in _OF_PLACES}
        self._trie = trie._replace(**more)  # last: until then all are made again
