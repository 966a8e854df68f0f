"""The nodes of the tree of rows (``row_tree``): where the rows of a leaf lie, and how rows come and go.

A leaf has room for its rows, and at most for four times as many. Rooms are of 4, 8, 16 or 32 places; one that is
given back is used again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.memory import grown
from raydt.arrays.types import Bools, Int32s, Ints, Slots

Ids = Ints
#: Rows of a leaf at most, children of any other node, and the bits of the key that choose one. Measured for 10**6 rows:
#: with two children and leaves of 1 KB a row costs the hashes of 14 nodes, with these of 5 in a third of the time.
MOST, CHILDREN, BITS = 32, 16, 4
#: Rows of a leaf for which there is room: so many, or twice, four or eight times as many.
_SMALLEST, _SIZES = 4, 4
#: Registers: nodes ever used, first of the free ones (-1: none), places of rows ever used, and from there on the first
#: of the free rooms of each size (-1: none).
USED, _FREE, _PLACES, _ROOMS = 0, 1, 2, 3
#: Nodes that the insertion of one row may make, since keys can share all but their last bits; and places: a leaf whose
#: 32 rows go to children makes less than 8 for each of them.
LONGEST, _LARGEST = CHILDREN * (64 // BITS), (64 // BITS + 1) * 8 * MOST
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
        first = np.int64(trie.reg[USED])
        trie.reg[USED] += CHILDREN
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
def change(trie: Any, ids: Any, slots: Any, begin: int, stack: Any) -> int:
    """Take rows into the tree or out of it, or make them stale, as long as there is room; returns how far it came."""
    for i in range(begin, len(ids)):
        if trie.reg[USED] + LONGEST > len(trie.rows) or trie.reg[_PLACES] + _LARGEST > len(trie.ids):
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
    trie.reg[USED] = trie.reg[_PLACES] = 0
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
        if trie.reg[USED] + CHILDREN > len(trie.rows):
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


def _nodes_of(keys: npt.NDArray[np.uint64]) -> int:
    """Return the number of nodes of the tree of some keys, ascending. O(n depth), in passes over arrays.

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


def trie_of(ids: Ids, slots: Slots) -> Trie:
    """Return the tree of rows with some ids in some slots. O(n log n)."""
    keys = keys_of(ids)
    order = np.argsort(keys)
    nodes = _nodes_of(keys[order])
    none: Any = dict.fromkeys(Trie._fields, np.empty(0, dtype=np.int64))
    none |= {"child": np.empty(0, dtype=np.int32), "room": np.empty(0, dtype=np.uint8)}
    none |= {"stale": np.empty(0, dtype=np.bool_), "slots": np.empty(0, dtype=np.int32)}
    none["reg"] = np.zeros(_ROOMS + _SIZES, dtype=np.int64)
    trie = _grown(Trie(**none), nodes + LONGEST, 2 * len(ids) + _SMALLEST * nodes + _LARGEST)
    filled = _fill(trie, ids[order], slots[order], np.empty((LONGEST + CHILDREN, 4), dtype=np.int64))
    assert filled, "there is room for all nodes"
    return trie


def with_room(trie: Trie) -> Trie:
    """Return the tree with room for one insertion."""
    return _grown(trie, int(trie.reg[USED]) + LONGEST, int(trie.reg[_PLACES]) + _LARGEST)


def _grown(trie: Trie, nodes: int, places: int) -> Trie:
    """Return the tree with at least so many nodes and places."""
    more: dict[str, Any] = {}
    for names, least, used in ((_OF_NODES, nodes, trie.reg[USED]), (_OF_PLACES, places, trie.reg[_PLACES])):
        have = len(getattr(trie, names[0]))
        if least > have:
            capacity = max(least, have + have // 2)
            more |= {name: grown(getattr(trie, name)[:used], capacity) for name in names}
    return trie._replace(**more)
