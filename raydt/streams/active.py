"""The examples a stream holds active, in the order of their insertion: pushed at the end, taken from either end."""

from __future__ import annotations

import numpy as np

from raydt.arrays.types import Ints


class ActiveList:
    """Entries of int64, oldest first, in one array; push, and take from either end, of k entries are amortised O(k)."""

    def __init__(self, entries: Ints) -> None:
        self._data = entries.astype(np.int64)
        self._head, self._tail = 0, len(entries)

    def __len__(self) -> int:
        return self._tail - self._head

    def push(self, entries: Ints) -> None:
        """Append entries."""
        if self._tail + len(entries) > len(self._data):
            live = self.view()
            self._data = np.empty((2 * (len(live) + len(entries)), *live.shape[1:]), dtype=np.int64)
            self._data[: len(live)] = live
            self._head, self._tail = 0, len(live)
        self._data[self._tail : self._tail + len(entries)] = entries
        self._tail += len(entries)

    def take_first(self, k: int) -> Ints:
        """Remove the first ``k`` entries: a view that the next push may overwrite."""
        self._head += k
        return self._data[self._head - k : self._head]

    def take_last(self, k: int) -> Ints:
        """Remove the last ``k`` entries: a view, in their order, that the next push overwrites."""
        self._tail -= k
        return self._data[self._tail : self._tail + k]

    def view(self) -> Ints:
        """All entries, writable in place until the next push."""
        entries: Ints = self._data[self._head : self._tail]
        return entries

    def array(self) -> Ints:
        """A copy of all entries."""
        entries: Ints = self.view().copy()
        return entries
