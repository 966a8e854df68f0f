"""Which shard owns a row, where shards own whole rows: that follows from the row's id alone.

The first twelve bits of the key of an id (``row_tree``) choose one of 4,096 buckets; a shard owns neighbouring ones. A
node of the tree of rows at depth 3 has the rows of one bucket: a shard has all that is below the nodes of its own.

A row's *slot* says who owns it, too. Slots are dealt to the shards in runs of 64, each shard's own are numbered without
a gap (*local* slots), and a new row takes one of its owner's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import grown
from raydt.arrays.elementary import AnyArray, Bools, Int32s, Ints, Slots
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.examples.updates import filled, unless_equal
from raydt.exchange.messages import BUCKETS, Buckets, component_of
from raydt.messages import message

# The nodes of the tree of rows (``row_tree``): where the rows of a leaf lie, and how rows come and go.
#
# A leaf has room for its rows, and at most for four times as many. Rooms are of 4, 8, 16 or 32 places; one that is
# given back is used again.

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
def key_of(number: int) -> Any:
    """Key of an id, as :func:`keys_of`."""
    z = np.uint64(number)
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return np.uint64(z ^ (z >> _31))


@inner_kernel
def side_of(key: Any, depth: int) -> Any:
    """Child of a node at some depth, below which a key is."""
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
        child = first + side_of(key_of(trie.ids[i]), depth)
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
        node = np.int64(trie.child[node]) + side_of(key, depth)
        trie.stale[node] = True
        trie.rows[node] += by
        depth += 1
    return node, depth


@inner_kernel
def _enter(trie: Any, number: int, slot: int) -> None:
    key = key_of(number)
    node, depth = _touch(trie, key, 1)
    while trie.rows[node] > MOST:
        trie.rows[node] = MOST
        _divide(trie, node, depth)
        trie.rows[node] = MOST + 1
        node = np.int64(trie.child[node]) + side_of(key, depth)
        trie.rows[node] += 1
        depth += 1
    _append(trie, node, trie.rows[node] - 1, number, slot)
    begin = trie.begin[node]
    i = begin + trie.rows[node] - 1
    while i > begin and key_of(trie.ids[i - 1]) > key:
        trie.ids[i], trie.slots[i] = trie.ids[i - 1], trie.slots[i - 1]
        i -= 1
    trie.ids[i], trie.slots[i] = number, slot


@inner_kernel
def _leave(trie: Any, number: int, at: int, stack: Any) -> None:
    """Take out the row that its leaf has at a place."""
    key = key_of(number)
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
        node = np.int64(trie.child[node]) + side_of(key, depth)
        depth += 1


@inner_kernel
def _place(trie: Any, number: int) -> Any:
    """Place of a row in its leaf, -1 if it is not there."""
    key, node, depth = key_of(number), np.int64(0), np.int64(0)
    while trie.child[node] >= 0:
        node = np.int64(trie.child[node]) + side_of(key, depth)
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
            leaf, _ = _touch(trie, key_of(ids[i]), 0)
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
            while stop < end and side_of(key_of(ids[stop]), depth) == c:
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


#: Depth of the nodes of the tree of rows that have the rows of one bucket each.
DEPTH = 3
#: Neighbouring slots of one shard.
_RUN = 64
_WEIGHT = "weight"


def buckets_of(ids: Ids) -> Ints:
    """Return the bucket of each row, by id."""
    buckets: Ints = (keys_of(ids) >> np.uint64(64 - DEPTH * BITS)).astype(np.int64)
    return buckets


def are_in(ids: Ids, part: Buckets) -> Bools:
    """Return which rows are in some buckets, by id."""
    bucket = buckets_of(ids)
    found: Bools = (bucket >= part.begin) & (bucket < part.end)
    return found


def whole_nodes(part: Buckets) -> list[tuple[int, int]]:
    """Return the nodes of the tree of rows that have all rows of some buckets and no others, as few as there are.

    Of each its first bucket and its depth, in order: of buckets 15 to 33 (15, 3), (16, 2), (32, 3) and (33, 3).
    """
    found, begin = list[tuple[int, int]](), part.begin
    while begin < part.end:
        depth, width = DEPTH, 1
        while depth and begin % (width * CHILDREN) == 0 and begin + width * CHILDREN <= part.end:
            depth, width = depth - 1, width * CHILDREN
        found.append((begin, depth))
        begin += width
    return found


class RowOwners:
    """The owners of all rows: ``shards`` of them, of which at most as many as there are buckets own some."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._bounds = [BUCKETS * shard // shards for shard in range(shards + 1)]
        self._owner = np.repeat(np.arange(shards), np.diff(self._bounds))

    def buckets(self, shard: int) -> Buckets:
        """Return the buckets that a shard owns."""
        return Buckets(self._bounds[shard], self._bounds[shard + 1])

    def of_all(self) -> list[Buckets]:
        """Return the buckets of each shard."""
        return [self.buckets(shard) for shard in range(self.shards)]

    def pieces(self, shard: int, pieces: int) -> list[Buckets]:
        """Divide the buckets of a shard into so many pieces, at most one for each bucket; none if it has none."""
        own = self.buckets(shard)
        n = min(max(1, pieces), len(own))
        ends = [own.begin + len(own) * i // max(1, n) for i in range(n + 1)]
        return [Buckets(begin, end) for begin, end in pairwise(ends)]

    def of(self, ids: Ids) -> Ints:
        """Return the shard that owns each row, by id."""
        owners: Ints = self._owner[buckets_of(ids)]
        return owners

    def shard_of(self, slots: npt.NDArray[np.integer]) -> AnyArray:
        """Return the shard that owns the row in each of some slots."""
        return slots // _RUN % self.shards

    def local(self, slots: Slots) -> Slots:
        """Return the local slots of some slots."""
        return slots // (_RUN * self.shards) * _RUN + slots % _RUN

    def slots(self, local: npt.NDArray[np.integer], shard: int) -> Slots:
        """Return the slots of some local slots of a shard."""
        slots: Slots = (local // _RUN * self.shards + shard) * _RUN + local % _RUN
        return slots.astype(np.int32)

    def local_capacity(self, slots: int) -> int:
        """Return how many local slots a shard has among the first ``slots``, at most."""
        return -(-slots // (_RUN * self.shards)) * _RUN

    def first_slots(self, ids: Ids) -> Slots:
        """Return the slots of rows that take the first ones of their owners, in this order."""
        owner, slots = self.of(ids), np.empty(len(ids), dtype=np.int32)
        for shard in range(self.shards):
            own = np.flatnonzero(owner == shard)
            slots[own] = self.slots(np.arange(len(own)), shard)
        return slots


def joined_buckets(ids: Ids, parts: Mapping[Buckets, Mapping[str, AnyArray]]) -> dict[str, AnyArray]:
    """Put together arrays by row that were divided by buckets, all but ``id``. Raises as :func:`rows_of_parts`."""
    joined: dict[str, AnyArray] = {}
    for rows, arrays in rows_of_parts(ids, parts):
        if not joined:
            joined = {
                name: np.empty((len(ids), *one.shape[1:]), one.dtype) for name, one in arrays.items() if name != "id"
            }
        for name, array in joined.items():
            array[rows] = arrays[name]
    return joined


def joined_by_birth(parts: Mapping[Buckets, Mapping[str, AnyArray]]) -> dict[str, AnyArray]:
    """Put together what owners have of all rows, in the order of their births, with ``born`` and perhaps ``weight``.

    ValueError if parts do not have the same arrays, or rows of other buckets, or a birth is in two, or a bucket is in
    none or in several.
    """
    require_all_buckets(parts, 0)
    of_parts = [dict(parts[own]) for own in parts]
    names = of_parts[0].keys() - {_WEIGHT}
    for own, part in zip(parts, of_parts, strict=True):
        examples = len(part["born"])
        if part.keys() - {_WEIGHT} != names or any(len(array) != examples for array in part.values()):
            raise ValueError(message("models.uneven", columns=component_of(own), examples=examples))
        part[_WEIGHT] = filled(part.get(_WEIGHT), examples)
    born = np.concatenate([part["born"] for part in of_parts])
    order = np.argsort(born, kind="stable")
    if not (np.diff(born[order]) > 0).all():
        raise ValueError(message("models.uneven", columns="born", examples=len(born)))
    joined = {name: np.concatenate([part.pop(name) for part in of_parts])[order] for name in (*names, _WEIGHT)}
    if unless_equal(joined[_WEIGHT]) is None:
        joined.pop(_WEIGHT)
    return joined


def require_all_buckets(parts: Iterable[Buckets], examples: int) -> None:
    """Raise ValueError unless each bucket is in one of the parts."""
    if sorted(bucket for part in parts for bucket in part) != list(range(BUCKETS)):
        raise ValueError(message("models.uneven", columns=", ".join(map(component_of, parts)), examples=examples))


def rows_of_parts(
    ids: Ids, parts: Mapping[Buckets, Mapping[str, AnyArray]]
) -> Iterator[tuple[npt.NDArray[np.intp], Mapping[str, AnyArray]]]:
    """Yield which rows each part has, and its arrays; ValueError unless each bucket is there once, in full."""
    bucket, names = buckets_of(ids), None
    if parts:
        require_all_buckets(parts, len(ids))
    for own in parts:
        rows, arrays = np.flatnonzero((bucket >= own.begin) & (bucket < own.end)), parts[own]
        names = names or arrays.keys()
        even = arrays.keys() == names and all(len(array) == len(rows) for array in arrays.values())
        if not even or not np.array_equal(arrays["id"], ids[rows]):
            raise ValueError(message("models.uneven", columns=component_of(own), examples=len(rows)))
        yield rows, arrays


def parts_for(shards: Iterable[Buckets], parts: Iterable[Buckets]) -> list[Buckets]:
    """Return the parts that have rows of some shards."""
    owned = {bucket for shard in shards for bucket in shard}
    return [part for part in parts if not owned.isdisjoint(part)]
