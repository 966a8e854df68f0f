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
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.blake2b import SIZE, hash_all, room_for, start
from raydt.arrays.kernel import kernel
from raydt.arrays.memory import empty, grown
from raydt.arrays.types import Int32s, Slots
from raydt.examples.row_trie import BITS, CHILDREN, LONGEST, MOST, USED, Ids, change, trie_of, with_room
from raydt.parallel.threads import run

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
