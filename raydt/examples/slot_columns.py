"""Labels, weights and, as far as a budget goes, features of examples, by slot, for kernels.

Who has ids and births, and deals the slots, is another matter: the store of one process
(:class:`~raydt.examples.store.ExampleStore`), or the shards that own the rows (``owned_columns``).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from raydt.arrays.blocks import put_rows
from raydt.arrays.memory import grown, trimmed
from raydt.arrays.types import AnyArray, Floats, Int32s
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
        self.columns, self.target_dtype = columns, target_dtype
        self.max_cached = None if cache_bytes is None else cache_bytes // (8 * max(1, columns))
        self._clear()

    def _clear(self) -> None:
        self.capacity = 0
        self.X = np.empty((0, self.columns))
        self.y: Targets = np.empty(0, dtype=self.target_dtype)
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

    def label(self, slots: Any, y: Targets, weights: Weights | None) -> None:
        """Record labels and weights (None: all are 1) of examples that were admitted."""
        self.y[slots] = y
        if weights is not None:
            self.weigh()
        if self.weight is not None:
            self.weight[slots] = UNIT if weights is None else weights

    def weigh(self) -> None:
        """Keep weights from now on, by slot; those of all examples there are, are 1."""
        if self.weight is None:
            self.weight = np.full(self.capacity, UNIT, dtype=DTYPE)

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
