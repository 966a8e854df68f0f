"""Labels, weights and, as far as a budget goes, features of examples, by slot, for kernels.

Who has ids and births, and deals the slots, is another matter: the store of one process
(:class:`~raydt.examples.store.ExampleStore`), or the shards that own the rows (:class:`OwnedColumns`).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from raydt.arrays.blocks import put_rows
from raydt.arrays.memory import extended, grown, trimmed
from raydt.arrays.types import AnyArray, Floats, Int32s, Ints, Slots
from raydt.examples.owned_store import OwnedStore
from raydt.examples.targets import CODES, Targets
from raydt.examples.weights import DTYPE, UNIT, Weights, unless_equal


class SlotColumns:
    """Arrays by slot, growing as needed; those of slots that no example has had are 0.

    ``y`` has an entry for each slot, and so has ``weight``, once an example has had another weight than 1; ``uneven``
    examples have one, of all whose slots are not free. ``X`` has the features, as far as the budget of ``cache_bytes``
    goes: rows in slots beyond it are not kept; None keeps all.
    """

    #: The arrays that have an entry for each slot.
    BY_SLOT: ClassVar[tuple[str, ...]] = ("y",)

    def __init__(self, columns: int, cache_bytes: int | None = None, target_dtype: np.dtype[Any] = CODES) -> None:
        self.columns, self._target_dtype = columns, target_dtype
        self.max_cached = None if cache_bytes is None else cache_bytes // (8 * max(1, columns))
        self._clear()

    def _clear(self) -> None:
        self.capacity = 0
        self.X = np.empty((0, self.columns))
        self.y: Targets = np.empty(0, dtype=self._target_dtype)
        self.weight: Weights | None = None
        self.uneven = 0

    @property
    def used(self) -> int:
        """Slots that have had an example: those before this one."""
        raise NotImplementedError

    def grown(self, array: AnyArray, capacity: int) -> AnyArray:
        """Return an array that has an entry for each slot with room for more; without effect if memory ends."""
        return grown(array, capacity)

    def make_room(self, slots: int) -> None:
        """Make room for so many slots. Amortised O(1) per slot; without effect if memory ends."""
        if slots <= self.capacity:
            return
        capacity = max(slots, self.capacity + self.capacity // 2, 64)
        cached = capacity if self.max_cached is None else min(capacity, self.max_cached)
        for name in self.BY_SLOT:
            setattr(self, name, self.grown(getattr(self, name), capacity))
        self.X = grown(self.X, cached)
        if self.weight is not None:
            self.weight = self.grown(self.weight, capacity)
        self.capacity = capacity  # last: until then the arrays are made again

    def trim(self) -> None:
        """Give up the room beyond the slots that were ever used. O(slots)."""
        used = self.used
        if used < self.capacity:
            columns = {name: trimmed(getattr(self, name), used) for name in ("X", *self.BY_SLOT)}
            if self.weight is not None:
                columns["weight"] = trimmed(self.weight, used)
            self.__dict__.update(columns, capacity=used)  # at once: all have as many slots, wherever a signal arrives

    def enter(self, slots: Any, y: Targets, born: Ints, weights: Weights | None) -> None:
        """Record labels and weights (None: all are 1) of examples that were admitted."""
        self.y[slots] = y
        if weights is not None:
            self.weigh()
        if self.weight is not None:
            self.weight[slots] = UNIT if weights is None else weights
            self.uneven += np.count_nonzero(self.weight[slots] != UNIT)

    def weigh(self) -> None:
        """Keep weights from now on, by slot; those of all examples there are, are 1."""
        if self.weight is None:
            self.weight = np.full(self.capacity, UNIT, dtype=DTYPE)

    def release(self, slots: Slots) -> None:
        """Take note that slots, emptied by a batch that is acknowledged everywhere, are free."""
        if self.uneven and self.weight is not None:
            self.uneven -= np.count_nonzero(self.weight[slots] != UNIT)

    def put(self, slots: Int32s, X: Floats) -> None:
        """Keep the features of rows whose slots lie within the budget."""
        cached = slots < len(self.X)
        if cached.all():
            put_rows(self.X, slots, X)
        else:
            self.X[slots[cached]] = X[cached]

    def weights(self, slots: Any) -> Weights | None:
        """Weights of the examples in some slots, copied; None if all are 1."""
        return None if self.weight is None or not self.uneven else unless_equal(np.array(self.weight[slots]))


class OwnedColumns(SlotColumns, OwnedStore):
    """The coordinator's store where shards own the rows: ids and births are with them."""

    #: By slot nothing: births of examples come with their deletion (:attr:`OwnedStore.births`).
    born: Ints = np.empty(0, dtype=np.int64)

    def __init__(self, shards: int, columns: int, cache_bytes: int | None, target_dtype: np.dtype[Any]) -> None:
        OwnedStore.__init__(self, shards)
        SlotColumns.__init__(self, columns, cache_bytes, target_dtype)

    def _clear(self) -> None:
        super()._clear()
        self._used = 0

    @property
    def used(self) -> int:
        """Slots that have had an example, and free ones between: those before this one."""
        return self._used

    def grown(self, array: AnyArray, capacity: int) -> AnyArray:
        """As of all stores, but the former array is used up: an update that is broken off is admitted already."""
        return extended(array, capacity)

    def make_room(self, slots: int) -> None:
        """Make room for so many slots, of which the last may be used."""
        had = 0 if self.weight is None else len(self.weight)
        super().make_room(slots)
        if self.weight is not None:
            self.weight[had:] = UNIT  # a slot without a row looks like one of weight 1, which is in a leaf
        self._used = max(self._used, slots)

    def reserve(self, extra: int) -> None:
        """Nothing: which slots are used is known once the owners have admitted the examples."""

    def release(self, slots: Slots) -> None:
        """Have the owners release slots, too; a free one looks like a row of weight 1, which is in a leaf."""
        SlotColumns.release(self, slots)
        if self.weight is not None:
            self.weight[slots] = UNIT
        OwnedStore.release(self, slots)

    def fill(self, live: int) -> None:
        """Begin again with so many examples, whose owners say later what there is by slot."""
        self._clear()
        self.changes += 1
        self.take([[live, 0, 0]])
