"""The coordinator's store where shards own the rows, of a learner whose kernels need something of each row by slot.

Ids and births are with the owners (:mod:`~raydt.examples.owned_rows`). What is here grows with the rows, and 10^9 of
them have to fit in one process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.memory import extended
from raydt.arrays.types import AnyArray, Arrays, Ints, Slots
from raydt.examples.owned_rows import OwnedRows
from raydt.examples.owned_store import OwnedStore
from raydt.examples.slot_columns import SlotColumns
from raydt.examples.targets import CODES, Targets
from raydt.examples.weights import UNIT, Weights

#: Class codes of at most so many classes, a byte each.
_FEW_CODES, _FEW = np.dtype(np.uint8), 255


class OwnedColumns(SlotColumns, OwnedStore):
    """Labels, weights and, as far as a budget goes, features by slot; codes of few classes take a byte each."""

    #: By slot nothing: births of examples come with their deletion (:attr:`OwnedStore.births`).
    born: Ints = np.empty(0, dtype=np.int64)

    def __init__(self, rows: type[OwnedRows], shards: int, *columns: Any) -> None:
        OwnedStore.__init__(self, rows, shards)
        SlotColumns.__init__(self, *columns)

    def _clear(self) -> None:
        super()._clear()
        self._used = 0
        if self.target_dtype == CODES:
            self.y = self.y.astype(_FEW_CODES)

    def hold(self, classes: int) -> None:
        """Have labels of so many classes fit."""
        if self.y.dtype == _FEW_CODES and classes > _FEW:
            self.y = self.y.astype(CODES)

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

    def enter(self, slots: Any, y: Targets, born: Ints, weights: Weights | None) -> None:
        """Record labels and weights of examples that were admitted; their owners have the births, too."""
        self.label(slots, y, weights)

    def reserve(self, extra: int) -> None:
        """Nothing: which slots are used is known once the owners have admitted the examples."""

    def release(self, slots: Slots) -> None:
        """Have the owners release slots, too; a free one looks like a row of weight 1, which is in a leaf."""
        if self.weight is not None:
            self.weight[slots] = UNIT
        OwnedStore.release(self, slots)

    def restore(self, state: Arrays) -> None:
        """Begin again with the examples of a state, whose owners say later what there is by slot."""
        self._clear()
        OwnedStore.restore(self, state)
