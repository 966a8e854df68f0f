"""Live examples by slot: ids, labels, age and (within a budget) features; the map from id to slot.

Invariant: a slot is either live (its id is in the map) or on the free list; a slot freed by a batch is handed
out again only after :meth:`ExampleStore.release`, when every shard has acknowledged that batch.

The map is open addressing over int32 slots with backward-shift deletion, keys compared in ``id``: 4 to 12
bytes a row where a dictionary of Python integers takes about 100.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.memory import grown
from raydt.arrays.types import Bools, Int32s, Ints
from raydt.examples.admission import Admission
from raydt.examples.slot_columns import SlotColumns
from raydt.examples.targets import CODES, Targets
from raydt.examples.updates import DELETE, DELETE_VALUE, DUPLICATE_ID, INSERT, QUERY, UNKNOWN_ID, UPDATE
from raydt.examples.weights import UNIT, Weights

#: Registers of the store: next unused slot, head of the free list (-1: none), live examples.
USED, FREE, LIVE = 0, 1, 2
_HASH = np.uint64(0x9E3779B97F4A7C15)


class Index(NamedTuple):
    """The map from id to slot: ``table`` of ``2**bits`` slots (-1: empty), whose keys are in ``ids`` by slot."""

    table: Int32s
    bits: int
    ids: Ints


@inner_kernel
def _home(key: int, bits: int) -> int:
    home: int = np.int64((np.uint64(key) * _HASH) >> np.uint64(64 - bits))
    return home


@kernel
def _find(index: Any, key: int) -> int:
    """Position of ``key`` in the table, or -1 - (the empty position where it belongs)."""
    table, mask = index.table, (1 << index.bits) - 1
    position = _home(key, index.bits)
    while table[position] >= 0:
        if index.ids[table[position]] == key:
            return position
        position = (position + 1) & mask
    return -1 - position


@kernel
def _remove(index: Any, position: int) -> None:
    """Empty a position, moving later entries of the run back so that no tombstone is needed."""
    table, mask = index.table, (1 << index.bits) - 1
    hole = position
    while True:
        position = (position + 1) & mask
        if table[position] < 0:
            break
        home = _home(index.ids[table[position]], index.bits)
        if ((position - home) & mask) >= ((position - hole) & mask):
            table[hole] = table[position]
            hole = position
    table[hole] = -1


@kernel
def _fill(index: Any, slots: Any) -> None:
    for slot in slots:
        index.table[-1 - _find(index, index.ids[slot])] = slot


@kernel
def _lookup(index: Any, keys: Any, out: Any) -> None:
    for i in range(len(keys)):
        position = _find(index, keys[i])
        out[i] = index.table[position] if position >= 0 else -1


@kernel
def admit_updates(op: Any, key: Any, begin: int, skip: bool, index: Any, reg: Any, admitted: Any) -> int:
    """Give slots to the updates from ``begin`` on; stop before a value deletion or, unless ``skip``, a bad update."""
    old, new = admitted.old, admitted.new
    for i in range(begin, len(op)):
        kind = op[i]
        old[i] = new[i] = -1
        if kind == QUERY:
            continue
        if kind == DELETE_VALUE:
            return i
        position = _find(index, key[i])
        if (kind == INSERT) == (position >= 0):
            admitted.fault[i] = DUPLICATE_ID if kind == INSERT else UNKNOWN_ID
            if not skip:
                return i
            continue
        if kind in (DELETE, UPDATE):
            old[i] = index.table[position]
            _remove(index, position)
            reg[LIVE] -= 1
        if kind in (INSERT, UPDATE):
            if reg[FREE] >= 0:
                slot = reg[FREE]
                reg[FREE] = index.ids[slot]
            else:
                slot = reg[USED]
                reg[USED] += 1
            index.ids[slot] = key[i]
            if kind == UPDATE:  # removal moves entries
                position = _find(index, key[i])
            index.table[-1 - position] = slot
            new[i] = slot
            reg[LIVE] += 1
    return len(op)


class ExampleStore(SlotColumns):
    """Slots of live examples, with ``id`` and ``born`` (sequence number of the insertion), and the map from id to slot.

    ``reg`` has the registers, ``table`` the map (:class:`Index`).
    """

    BY_SLOT: ClassVar[tuple[str, ...]] = ("id", "born", "y")

    def __init__(self, columns: int, cache_bytes: int | None = None, target_dtype: np.dtype[Any] = CODES) -> None:
        #: How often all examples were replaced, and how often updates may have changed some.
        self.filled = self.changes = 0
        super().__init__(columns, cache_bytes, target_dtype)

    def _clear(self) -> None:
        super()._clear()
        self.reg = np.array([0, -1, 0], dtype=np.int64)
        self.id = np.empty(0, dtype=np.int64)
        self.born = np.empty(0, dtype=np.int64)
        self._table: Int32s | None = np.full(16, -1, dtype=np.int32)
        self._listed: npt.NDArray[np.uint8] | None = None  # without a table: the live slots as bits

    @property
    def table(self) -> Int32s:
        """The map; made again, in O(n), if :meth:`trim` has given it up."""
        if self._table is None:
            self._table = self._made(self.live)
        return self._table

    def _made(self, examples: int, length: int = 16) -> Int32s:
        """Return the map, of ``length`` entries or of as many as it takes for so many examples."""
        while 3 * examples > 2 * length:
            length *= 2
        table = grown(np.empty(0, dtype=np.int32), length)
        table[:] = -1
        _fill(Index(table, length.bit_length() - 1, self.id), self.slots())
        return table

    def trim(self) -> None:
        """Give up the map, too, which takes 4 to 12 bytes for each example."""
        super().trim()
        if self._table is not None:
            live = np.zeros(self.used, dtype=np.bool_)
            live[self.slots()] = True
            self._listed, self._table = np.packbits(live), None

    @property
    def _index(self) -> Index:
        return Index(self.table, len(self.table).bit_length() - 1, self.id)

    @property
    def live(self) -> int:
        """Number of live examples."""
        return int(self.reg[LIVE])

    @property
    def used(self) -> int:
        """Slots that have had an example: those before this one."""
        return int(self.reg[USED])

    def reserve(self, extra: int) -> None:
        """Make room for ``extra`` more examples. Amortised O(1) per example; without effect if memory ends."""
        self.make_room(self.used + extra)
        if 3 * (self.live + extra) > 2 * len(self.table):
            self._table = self._made(self.live + extra, len(self.table))

    def admit(
        self,
        op: npt.NDArray[np.int8],
        key: Ints,
        begin: int,
        skip: bool,
        admission: Admission,
        call: Callable[..., int] = admit_updates,
    ) -> int:
        """Admit updates from ``begin`` on, by a ``call`` of :func:`admit_updates`, and return where it stopped."""
        if begin < len(op) and op[begin] != DELETE_VALUE:
            self.changes += 1  # before, so that a change that is broken off is counted
        return int(call(op, key, begin, skip, self._index, self.reg, admission))

    def retract(self, old: Int32s, new: Int32s) -> None:
        """Take back the last updates that were admitted, of which these slots were emptied and filled (-1: none)."""
        for emptied, filled in zip(old[::-1].tolist(), new[::-1].tolist(), strict=True):
            if filled >= 0:
                self.discard(filled)
                self.release(np.array([filled], dtype=np.int32))
            if emptied >= 0:
                _fill(self._index, np.array([emptied], dtype=np.int32))
                self.reg[LIVE] += 1

    def discard(self, slot: int) -> None:
        """Take one slot out of the map (deletion by value); free it later with :meth:`release`."""
        self.changes += 1
        _remove(self._index, _find(self._index, self.id[slot]))
        self.reg[LIVE] -= 1

    def enter(self, slots: Any, y: Targets, born: Ints, weights: Weights | None) -> None:
        """Record labels, births and weights (None: all are 1) of examples that were admitted."""
        self.born[slots] = born
        self.label(slots, y, weights)
        if self.weight is not None:
            self.uneven += np.count_nonzero(self.weight[slots] != UNIT)

    def release(self, slots: Int32s) -> None:
        """Put slots, emptied by a batch that is acknowledged everywhere, on the free list."""
        self.uneven -= self.uneven_of(slots)
        if len(slots):
            self.id[slots[:-1]] = slots[1:]
            self.id[slots[-1]] = self.reg[FREE]
            self.reg[FREE] = slots[0]

    def uneven_of(self, slots: Int32s) -> int:
        """Count the examples in some slots that have another weight than 1."""
        return 0 if self.weight is None or not self.uneven else int(np.count_nonzero(self.weight[slots] != UNIT))

    def find(self, keys: Ints) -> Int32s:
        """Slot of each id, -1 where it is not live."""
        out = np.empty(len(keys), dtype=np.int32)
        _lookup(self._index, np.ascontiguousarray(keys, dtype=np.int64), out)
        return out

    def slots(self) -> Int32s:
        """Live slots in ascending order."""
        if self._table is None:
            assert self._listed is not None
            return np.flatnonzero(np.unpackbits(self._listed, count=self.used)).astype(np.int32)
        return np.sort(self._table[self._table >= 0])

    def in_order_of_birth(self) -> Int32s:
        """Live slots, the oldest example first."""
        slots = self.slots()
        return slots[np.argsort(self.born[slots], kind="stable")]

    def fill(
        self, key: Ints, y: Targets, born: Ints, listed: Bools | None = None, weights: Weights | None = None
    ) -> None:
        """Replace everything by examples in slots 0, 1, ...; features are put separately.

        Only those ``listed`` (by default all) are live: the others have a slot that an id does not lead to.
        """
        n = len(key)
        self.filled += 1
        self._clear()
        self.reserve(n)
        self.id[:n] = key
        self.enter(slice(n), y, born, weights)
        slots = np.arange(n, dtype=np.int32) if listed is None else np.flatnonzero(listed).astype(np.int32)
        self.reg[:] = n, -1, len(slots)
        _fill(self._index, slots)
