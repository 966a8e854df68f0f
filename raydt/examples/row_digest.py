"""The digest of the live rows of a store: made when somebody first asks, then kept up with what changes.

The ids of changed rows are noted, and the next digest costs O(log n) for each; the tree is dropped when more have
changed than a new one would cost. Invariant: the digest is a function of the live rows and of the columns given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty, grown
from raydt.arrays.digest import SIZE, Part, hash_all, room_for, start
from raydt.arrays.elementary import AnyArray, Arrays, Int32s, Slots
from raydt.arrays.kernel import kernel
from raydt.examples.row_owners import (
    BITS,
    BUCKETS,
    CHILDREN,
    LONGEST,
    MOST,
    USED,
    Ids,
    buckets_of,
    change,
    keys_of,
    trie_of,
    with_room,
)
from raydt.examples.store import ExampleStore
from raydt.examples.updates import filled
from raydt.exchange.messages import Buckets
from raydt.parallel import run

# A Merkle tree over rows by id, whose root follows what changes: O(log n) hashes for a row.
#
# The *key* of a row is a fixed bijection of its id. All rows lie below the root; a node of more than 32 rows has
# sixteen children, and the next four bits of the key say in which of them a row lies. So the shape depends on the set
# of ids only: not on slots, on the order in which rows came, or on rows that were there before. A leaf has its rows in
# ascending order of their keys.
#
# Invariant: a node that is not ``stale`` has the hash of the rows below it. Hashes are BLAKE2b of 32 bytes, so that two
# different sets of rows with the same root are a collision of BLAKE2b: as hard as 2**128 evaluations. The key spreads
# the rows and carries no security; ids that were chosen for it make a path of at most 16 nodes.
#
# Format: ``docs/reference/formats.md``. ``tests/oracles/digests.py`` hashes everything, in plain loops.

#: What is hashed of each of some rows, by ids and slots.
Records = Callable[[Ids, Slots], npt.NDArray[np.void]]

#: What tells hashes of leaves from those of other nodes.
OF_LEAVES = b"raydt-rows-leaf"
LEAF, INNER = start(OF_LEAVES), start(b"raydt-rows-node")
#: Rows whose bytes are gathered at once.
_TOGETHER = 1 << 16


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


class RowTree:
    """The tree over rows with some ids, shape (n,), in slots, shape (n,)."""

    def __init__(self, ids: Ids, slots: Slots) -> None:
        self._trie = trie_of(ids, slots)
        self._hashes = empty((len(self._trie.rows), SIZE // 8), "<u8")
        self._stack = np.empty(LONGEST + CHILDREN, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._trie.rows[0])

    def change(self, ids: Ids, slots: Slots) -> None:
        """Say of rows that were inserted, deleted or changed where they are now; -1: nowhere. O(log n) a row."""
        done = 0
        while done < len(ids):
            trie = with_room(self._trie)
            if len(trie.rows) > len(self._hashes):
                self._hashes = grown(self._hashes[: trie.reg[USED]], len(trie.rows))
            self._trie = trie  # last: until then both are made again
            done = int(change(self._trie, ids, slots, done, self._stack))

    def root(self, records: Records) -> bytes:
        """The hash of all rows, 32 bytes; asks for the records of the rows in stale leaves, in threads."""
        trie, together = self._trie, _TOGETHER // MOST
        stale, levels = np.empty(int(trie.reg[USED]), dtype=np.int32), np.empty(2 + 64 // BITS, dtype=np.int64)
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


#: What a digest has of some rows beside their ids, by name.
Columns = Callable[[Slots], Mapping[str, npt.NDArray[np.generic]]]

#: A tree of so few rows, or of fewer than eight times the changes, is made anew.
_FEW = 64


class RowDigest:
    """Digest of the rows of one store."""

    Tree: ClassVar[type[RowTree]] = RowTree

    def __init__(self, store: ExampleStore) -> None:
        self._store, self._filled, self._weighted = store, store.filled, False
        self._tree: Any = None  # a ``Tree``, once somebody has asked
        self._changed: list[Ids] = []
        self._changes = 0

    def note(self, ids: Ids) -> None:
        """Note that rows were inserted, deleted or changed. O(1) before a digest, then O(ids)."""
        if self._tree is None or not len(ids):
            return
        self._changes += len(ids)
        if 8 * self._changes > max(len(self._tree), _FEW):
            self.forget()
        else:
            self._changed.append(ids.copy())

    def forget(self) -> None:
        """All rows may have changed."""
        self._tree, self._changed, self._changes = None, [], 0

    def part(self, columns: Columns, weighted: bool) -> Part:
        """Part of a digest: columns with types (of weights, unless all are 1) as its name, and the root of the rows."""
        store = self._store
        records = self._records(columns, weighted)
        if self._tree is None and store.live <= MOST:
            return _part_of_leaf(store, records)
        none = records(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32))
        return part_of(none.dtype, self._followed().root(records))

    def _records(self, columns: Columns, weighted: bool) -> Records:
        """Return what gives the records of rows, with weights if it is ``weighted``; others are made all anew."""
        store = self._store
        if (self._filled, self._weighted) != (store.filled, weighted):
            self.forget()
            self._filled, self._weighted = store.filled, weighted
        return partial(record_of, partial(with_weights, columns, store) if weighted else columns)

    def _followed(self) -> Any:
        """Return the tree of the rows as they are."""
        store = self._store
        if self._tree is None:
            slots = store.slots()
            self._tree = self.Tree(store.id[slots], slots)
        elif self._changed:
            ids = np.concatenate(self._changed)
            self._tree.change(ids, store.find(ids))
        self._changed, self._changes = [], 0
        return self._tree


def _part_of_leaf(store: ExampleStore, records: Records) -> Part:
    """Return the part of so few rows that their tree is one leaf: to make the tree takes longer than to hash it."""
    slots = store.slots()
    slots = slots[np.argsort(keys_of(store.id[slots]))]
    rows = records(store.id[slots], slots)
    return part_of(rows.dtype, hashlib.blake2b(rows.tobytes(), digest_size=SIZE, person=OF_LEAVES).digest())


def with_weights(columns: Columns, store: ExampleStore, slots: Slots) -> Mapping[str, npt.NDArray[np.generic]]:
    """Return the columns of some rows, and their weights."""
    return {**columns(slots), "weight": filled(store.weights(slots), len(slots))}


def record_of(columns: Columns, ids: Ids, slots: Slots) -> npt.NDArray[np.void]:
    """Return the records of some rows: their ids, and then the columns."""
    given = {"id": ids, **{name: np.asarray(column) for name, column in columns(slots).items()}}
    fields = [(name, column.dtype.newbyteorder("<"), column.shape[1:]) for name, column in given.items()]
    rows = np.empty(len(slots), dtype=fields)
    for name, column in given.items():
        rows[name] = column
    return rows


def part_of(record: np.dtype[np.void], root: bytes) -> Part:
    """Return the part of a digest: names and types of the columns, with their widths if they have one; and the root."""
    kinds = ((name, *(record[name].subdtype or (record[name], ()))) for name in record.names or ())
    named = ",".join(f"{name}{kind.str}{f'({shape[0]})' if shape else ''}" for name, kind, shape in kinds)
    return f"rows {named}", np.frombuffer(root, dtype=np.uint8)


# The root of the tree of rows where shards own whole rows: hashes of subtrees from each, put together.
#
# A shard has a tree over its own rows. A node of depth 2 that has more than 32 rows is a node of that tree, too, with
# the same hash. Where fewer rows are together, in all or below a node of depth 1, one leaf may have rows of several
# buckets and of several shards: then a shard gives the records themselves, at most 32 for each of sixteen nodes.
#
# Invariant: the root is that of one tree over all rows (``row_tree``), whatever the number of shards.

#: Rows, hash, and whether there are records instead, of every bucket of a shard; and these records.
Hashes = Mapping[str, AnyArray]


class BucketTree(RowTree):
    """The tree over the rows of one shard."""

    def hashes(self, buckets: Buckets, records: Records) -> dict[str, AnyArray]:
        """Return ``rows``, ``hash`` and ``given`` of each own bucket, and ``records`` of the given ones by key."""
        self.root(records)
        trie, n = self._trie, len(buckets)
        rows, given = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
        hashes, ids, slots = np.zeros((n, SIZE), dtype=np.uint8), [trie.ids[:0]], [trie.slots[:0]]
        leaves = set()
        for i, bucket in enumerate(buckets):
            node = 0
            for side in divmod(bucket, CHILDREN):
                if trie.child[node] < 0:
                    break
                node = int(trie.child[node]) + side
            else:
                rows[i], hashes[i] = trie.rows[node], self._hashes[node].view(np.uint8)
                continue
            given[i] = True
            if node not in leaves:
                leaves.add(node)
                own_ids, own_slots = self.rows_of(node)
                ids.append(own_ids)
                slots.append(own_slots)
        few = np.concatenate(ids)
        rows[given] = np.bincount(buckets_of(few) - buckets.begin, minlength=n)[given]
        told = records(few, np.concatenate(slots))
        return {"rows": rows, "hash": hashes, "given": given, "records": told.view(np.uint8).reshape(-1)}


class BucketDigest(RowDigest):
    """Hashes of the rows of a shard: made once, then kept up with what changes."""

    Tree = BucketTree

    def hashes(self, buckets: Buckets, columns: Columns, weighted: bool) -> dict[str, AnyArray]:
        """As :meth:`BucketTree.hashes`; records have ``columns`` and, if ``weighted``, weights."""
        records = self._records(columns, weighted)
        hashes: dict[str, AnyArray] = self._followed().hashes(buckets, records)
        return hashes


def joined_part(parts: Sequence[Mapping[str, Any]]) -> tuple[Arrays, Part]:
    """Return the columns of rows that wait to be deleted, by id, and the part of all rows, from what shards gave.

    Of each, :meth:`BucketDigest.hashes` and the columns of its rows that are ``leaving``; if these are none, too.
    """
    given = [one["leaving"] for one in parts]
    leaving = {name: np.concatenate([columns[name] for columns in given]) for name in given[0]}
    order = np.argsort(leaving["id"])
    leaving = {name: column[order] for name, column in leaving.items()}
    none: AnyArray = np.empty(0, dtype=np.int64)
    record = record_of(lambda slots: {name: leaving[name][slots] for name in leaving if name != "id"}, none, none).dtype
    return leaving, part_of(record, joined_root(parts, record.itemsize))


def joined_root(parts: Sequence[Hashes], width: int) -> bytes:
    """Return the root of all rows, from what the shards gave, in shard order; a record has ``width`` bytes."""
    rows, hashes, given = (np.concatenate([part[name] for part in parts]) for name in ("rows", "hash", "given"))
    assert len(rows) == BUCKETS
    told = np.concatenate([part["records"] for part in parts]).tobytes()
    ends = np.cumsum(np.where(given, rows, 0)) * width
    records = [told[end - width * n if own else end : end] for end, n, own in zip(ends, rows, given, strict=True)]
    below = [_leaf(records[b]) if given[b] else hashes[b].tobytes() for b in range(BUCKETS)]
    if rows.sum() <= MOST:
        return _leaf(b"".join(records))
    nodes = []
    for first in range(0, BUCKETS, CHILDREN):
        own = slice(first, first + CHILDREN)
        nodes.append(_leaf(b"".join(records[own])) if rows[own].sum() <= MOST else _inner(b"".join(below[own])))
    return _inner(b"".join(nodes))


def _leaf(records: bytes) -> bytes:
    return hashlib.blake2b(records, digest_size=SIZE, person=b"raydt-rows-leaf").digest()


def _inner(hashes: bytes) -> bytes:
    return hashlib.blake2b(hashes, digest_size=SIZE, person=b"raydt-rows-node").digest()
