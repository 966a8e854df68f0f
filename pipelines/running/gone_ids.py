"""Hashes of the ids that are deleted now, of a run that may go on for months.

Invariant: memory does not grow with the deletions. The hashes lie in a temporary file that only this process has.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from raydt.arrays.types import Ints

#: Bits of the filter of ids, by the powers of 2: 16 MB.
_BITS = 27
#: Hashes that are kept in memory, at most.
_RECENT = 1 << 16
#: Spreads neighbouring ids over the filter (2^64 divided by the golden ratio).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class GoneIds:
    """A set of hashes of ids, with a filter of the ids themselves.

    ``hashes`` are those that were deleted before, of ids that nobody knows.
    """

    def __init__(self, hashes: Iterable[str] = ()) -> None:
        self._recent = set(hashes)
        self._all_known = not self._recent
        self._filter = np.zeros(1 << (_BITS - 3), dtype=np.uint8)
        self._file = sqlite3.connect("", check_same_thread=False)  # a file without a name, which ends with it
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("CREATE TABLE gone (hash TEXT PRIMARY KEY) WITHOUT ROWID")
        self._stored = False
        self._store()

    def may_have(self, ids: Sequence[Hashable]) -> Ints:
        """Return the positions of those of some ids that may be deleted: all that are, and few others. O(ids)."""
        if not self._all_known:
            return np.arange(len(ids))
        bits = self._bits(ids)
        return np.flatnonzero(self._filter[bits >> 3] & (1 << (bits & 7)))

    def note(self, ids: Sequence[Hashable]) -> None:
        """Let the filter know ids whose hashes are added, before or after."""
        bits = self._bits(ids)
        np.bitwise_or.at(self._filter, bits >> 3, (1 << (bits & 7)).astype(np.uint8))

    def add(self, *hashes: str) -> None:
        """Add some hashes."""
        self._recent.update(hashes)
        if len(self._recent) > _RECENT:
            self._store()

    def remove(self, hash: str) -> bool:
        """Remove a hash; returns whether it was there."""
        there = hash in self._recent
        self._recent.discard(hash)
        if self._stored:
            there |= self._file.execute("DELETE FROM gone WHERE hash = ?", (hash,)).rowcount > 0
        return there

    def _store(self) -> None:
        if self._recent:
            # In their order, neighbours lie on the same page: half the time.
            rows = ((hash,) for hash in sorted(self._recent))
            self._file.executemany("INSERT OR IGNORE INTO gone VALUES (?)", rows)
            self._recent, self._stored = set(), True

    @staticmethod
    def _bits(ids: Sequence[Hashable]) -> Ints:
        hashes = np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids)).astype(np.uint64)
        bits: Ints = ((hashes * _SPREAD) >> np.uint64(64 - _BITS)).astype(np.int64)
        return bits
