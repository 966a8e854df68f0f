"""The live tree where shards own the rows: leaf, label and weight of each are here, by a slot that its owner has given.

Invariant: a row takes 13 bytes at rest, 12 for its leaf and its neighbours there and one for a class; nothing that is
made for a while takes more than a few bits of each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.types import Arrays, Int32s
from raydt.examples.owned_columns import OwnedColumns
from raydt.examples.targets import Targets
from raydt.examples.updates import UpdateBatch
from raydt.examples.weights import UNIT, Weights, filled
from raydt.learners.fudyadt.dynamic_tree import FuDyADTTree
from raydt.learners.fudyadt.owned_rows import TreeRows
from raydt.trees.canonical_arrays import LeafCounts, count_rows
from raydt.trees.records import link_members


class OwnedTree(FuDyADTTree):
    """The live tree; ids and births are with the owners of the rows."""

    store: OwnedColumns  # type: ignore[assignment]
    takes_rows = False

    def _new_store(self, shards: int, columns: int, cache_bytes: int | None, dtype: np.dtype[Any]) -> Any:
        return OwnedColumns(TreeRows, shards, columns, cache_bytes, dtype)

    def make_room(self, batch: UpdateBatch) -> None:
        """Make room for classes of a batch; for its rows once their owners have given slots."""
        super().make_room(batch)
        self.store.hold(self.tree.counts.shape[1])

    def make_room_for(self, slots: int) -> None:
        """Make room for so many slots, of which the owners of the rows have given the last."""
        self.store.make_room(slots)
        self._follow_store()
        self.weighting.reserve(self.store)

    # ---------------------------------------------------------------- states

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state but the rows, which come from their owners (:meth:`restore_rows`)."""
        super().restore(state)
        self._labels_sent = False

    def _restore_rows(self, state: Arrays) -> None:
        self.members, self._counted = self.members[:0], LeafCounts(self.tree)
        self.store.hold(self.tree.counts.shape[1])

    def restore_rows(self, slots: Int32s, leaf: Int32s, y: Targets, weights: Weights | None) -> None:
        """Take some rows of a restored state; :meth:`complete` comes after all."""
        self.members["leaf"][slots] = leaf
        link_members(self.tree, self.members, slots[leaf >= 0])
        self.store.label(slots, y, weights)
        self.weighting.enter(self.store, slots)
        mass = filled(self.weighting.of(weights, y), len(y)) if self.weighted else None
        self._counted.add(leaf, y if self.label_range is None else np.zeros_like(leaf), mass)

    def complete(self) -> None:
        """Make what follows from the rows of a restored state. ValueError if these are not those of the tree."""
        self._counted.check()
        if self.weighted:
            count_rows(self.tree, self._counted.rows)
        if self.label_range is not None:
            self._take_range(self.label_range)
        self._rows_to_fetch = min(self.store.used, len(self.store.X))

    def sum_of_weights(self) -> int:
        """Return what all live examples count, in units: what the root does."""
        return int(self.tree.statistics["n"][0]) * (UNIT // self.rules.unit)
