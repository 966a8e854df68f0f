"""The root of the tree of rows where shards own whole rows: hashes of subtrees from each, put together.

A shard has a tree over its own rows. A node of depth 2 that has more than 32 rows is a node of that tree, too, with the
same hash. Where fewer rows are together, in all or below a node of depth 1, one leaf may have rows of several buckets
and of several shards: then a shard gives the records themselves, at most 32 for each of sixteen nodes.

Invariant: the root is that of one tree over all rows (``row_tree``), whatever the number of shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from raydt.arrays.blake2b import SIZE
from raydt.arrays.digest import Part
from raydt.arrays.types import AnyArray, Arrays
from raydt.examples.row_digest import Columns, RowDigest, part_of, record_of
from raydt.examples.row_owners import BUCKETS, buckets_of
from raydt.examples.row_tree import Records, RowTree
from raydt.examples.row_trie import CHILDREN, MOST
from raydt.exchange.messages import Buckets

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
