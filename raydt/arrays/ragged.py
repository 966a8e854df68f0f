"""Rows of different lengths by slot, in one array that is compacted when half of it is waste."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.memory import grown
from raydt.arrays.types import AnyArray, Int32s, Ints


@kernel
def _move(begin: Any, end: Any, values: Any, into: Any) -> int:
    """Copy all rows to the front of ``into``; where the last one ends."""
    used = 0
    for slot in range(len(begin)):
        start = used
        for at in range(begin[slot], end[slot]):
            into[used] = values[at]
            used += 1
        begin[slot], end[slot] = start, used
    return used


@kernel
def gather(begin: Any, end: Any, values: Any, slots: Any, into: Any) -> None:
    """Copy the rows of ``slots`` one after the other."""
    used = 0
    for slot in slots:
        for at in range(begin[slot], end[slot]):
            into[used] = values[at]
            used += 1


class RaggedRows(NamedTuple):
    """View of a :class:`RaggedStore` for kernels: the row of a slot is ``values[begin[slot]:end[slot]]``."""

    begin: Ints
    end: Ints
    values: AnyArray


class RaggedStore:
    """Rows of integers by slot. Putting a row takes amortised O(its length); a slot that was never put is empty.

    Arrays are as in :class:`RaggedRows`.
    """

    def __init__(self, dtype: npt.DTypeLike = np.uint32) -> None:
        self.begin = np.zeros(0, dtype=np.int64)
        self.end = np.zeros(0, dtype=np.int64)
        self.values = np.empty(0, dtype=dtype)
        self._used = self._live = 0

    def put(self, slots: Int32s, lengths: Ints, values: AnyArray) -> None:
        """Replace the rows of different ``slots``: ``values`` has them one after the other."""
        if not len(slots):
            return
        need = int(slots.max()) + 1
        if need > len(self.begin):
            have, room = len(self.begin), max(need, len(self.begin) * 3 // 2)
            self.begin, self.end = grown(self.begin, room), grown(self.end, room)
            self.begin[have:] = self.end[have:] = 0
        self._live += len(values) - int((self.end[slots] - self.begin[slots]).sum())
        self.end[slots] = self.begin[slots]
        if self._used + len(values) > len(self.values):
            wasteful = self._used > 2 * self._live  # else there is need of more room
            room = max(self._live, len(self.values) if wasteful else self._live * 3 // 2)
            into = np.empty(room, dtype=self.values.dtype)
            self._used = int(_move(self.begin, self.end, self.values, into))
            self.values = into
        self.end[slots] = self._used + np.cumsum(lengths)
        self.begin[slots] = self.end[slots] - lengths
        self.values[self._used : self._used + len(values)] = values
        self._used += len(values)

    def take(self, slots: Int32s) -> tuple[Ints, AnyArray]:
        """Lengths of the rows of some slots, and their values one after the other."""
        lengths = self.end[slots] - self.begin[slots]
        values = np.empty(int(lengths.sum()), dtype=self.values.dtype)
        gather(self.begin, self.end, self.values, slots, values)
        return lengths, values

    @property
    def rows(self) -> RaggedRows:
        """The arrays, for kernels; valid until the next :meth:`put`."""
        return RaggedRows(self.begin, self.end, self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.begin.nbytes + self.end.nbytes + self.values.nbytes
