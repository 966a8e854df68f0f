"""The rows that a shard of FuDyADT owns.

The leaf of a row is with the coordinator, who walks the tree. It passes through here on its way to a state and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from raydt.arrays.types import AnyArray, Arrays, Int32s, Slots
from raydt.examples.owned_rows import OwnedRows
from raydt.examples.row_owners import RowOwners

_NO_LEAVES: Int32s = np.empty(0, dtype=np.int32)


class TreeRows(OwnedRows):
    """An owner's examples, whose updates take effect at once."""

    TELLS_BIRTHS = True
    COLUMNS: ClassVar[tuple[str, ...]] = (*OwnedRows.COLUMNS, "leaf")
    ANSWERS: ClassVar[frozenset[str]] = OwnedRows.ANSWERS | {"leaves", "take_leaves"}

    def __init__(self, owners: RowOwners, index: int, target_dtype: np.dtype[Any]) -> None:
        super().__init__(owners, index, target_dtype)
        #: By local slot, as positions in preorder: of a state that was restored, or that is about to be set aside.
        self.leaf = _NO_LEAVES

    def live_ones(self, local: Slots) -> Slots:
        """Return those of some local slots that have a live row."""
        local = local[local < self.store.used]
        live: Slots = local[self.store.find(self.store.id[local]) == local]
        return live

    # ---------------------------------------------------------------- states

    def fill(self, rows: Mapping[str, AnyArray]) -> None:
        """As of all owners; the leaves wait for the coordinator."""
        super().fill(rows)
        self.leaf = rows.get("leaf", _NO_LEAVES)

    def leaves(self, begin: int, stop: int) -> Arrays:
        """Return leaf, label and weight of the rows in local slots from ``begin`` to before ``stop``, of a state."""
        part = slice(begin, min(stop, self.store.used))
        told: Arrays = {"leaf": self.leaf[part].copy(), "y": self.store.y[part].copy()}
        if self.store.uneven:
            told["weight"] = self.weights(np.arange(begin, part.stop, dtype=np.int32))
        if stop >= self.store.used:
            self.leaf = _NO_LEAVES
        return told

    def take_leaves(self, begin: int, leaf: Int32s) -> None:
        """Take leaves by local slot from ``begin`` on, for the state that is set aside next."""
        if begin == 0:
            self.leaf = np.full(self.store.used, -1, dtype=np.int32)
        part = leaf[: max(0, len(self.leaf) - begin)]  # an owner may have fewer slots than others
        self.leaf[begin : begin + len(part)] = part

    def changing(self, local: Slots) -> Arrays:
        """Return births and leaves."""
        return {**super().changing(local), "leaf": self.leaf[local]}

    def forget_leaves(self) -> None:
        """A state is set aside."""
        self.leaf = _NO_LEAVES
