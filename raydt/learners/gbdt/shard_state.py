"""What a shard of the GBDT has of the rows that it owns: how it gets them, writes them for a state and reads them back.

Not here: what it does with them (``shard``), and what all shards that own rows have (``raydt.batches.owning_shard``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.types import Bools, Ints, Slots
from raydt.batches.owning_shard import OwningShard
from raydt.batches.rows_on_shards import RowsOnShards
from raydt.examples.features import Features
from raydt.examples.row_owners import are_in
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.owned_rows import PendingRows
from raydt.learners.gbdt.row_shard import RowShard

#: Rows that are copied at once.
_COPIED = 1 << 16
_NO_SLOTS: Slots = np.empty(0, dtype=np.int32)


class ShardOfOwner(OwningShard[PendingRows]):
    """A shard with rows of its own, by local slot, and their leaves, ledger and drift."""

    _layout: RowsOnShards

    def __init__(self, options: GBDTOptions, features: Features, groups: Ints) -> None:
        super().__init__(features, groups)
        self._options = options
        self._own: RowShard | None = None
        self._encoded = _NO_SLOTS  # the first own rows of this model

    def _no_rows(self) -> PendingRows:
        self._layout = RowsOnShards(self._features, self._owners.shards)
        return PendingRows(self._owners, self._index, np.dtype(np.float64 if self._options.regression else np.int32))

    @property
    def own(self) -> RowShard:
        """The model of the own rows, once there is one."""
        assert self._own is not None
        return self._own

    def _in_model(self, local: Slots) -> Bools:
        """Whether the rows in some local slots are in the model, and do not wait to be inserted."""
        e = self.own.ensemble
        held = local < e.leaf.shape[1]
        held[held] = e.leaf[0, local[held]] != e.absent
        return held

    # ---------------------------------------------------------------- states

    def _of_model(self, local: Slots) -> dict[str, Any]:
        """Leaves, ledger and drift: histograms follow from these."""
        return {} if self._own is None else self._own.of_rows(local, self._in_model(local))

    def _width_of_model(self) -> int:
        if self._own is None:
            return 0
        e = self._own.ensemble
        return len(e.leaf) * (e.leaf.itemsize + e.ledger.itemsize)

    def _on_restore_rows(self, trees: Any) -> None:
        """Take trees and, by id, leaves, ledger and drift of the encoded rows from the parts of a state."""
        e, mine = self.own.ensemble, self._owners.buckets(self._index)
        own: tuple[Any, ...] = e.trees
        for array, theirs in zip(own, trees, strict=True):
            array[:] = theirs
        ids = self.rows_here.store.id[self._encoded]
        order = np.argsort(ids)
        local, ids = self._encoded[order], ids[order]
        for key in self._parts_of(mine):
            part = self._saved[key]
            rows = np.flatnonzero(are_in(part["id"], mine) & (part["leaf"][:, 0] != e.absent))
            for begin in range(0, len(rows), _COPIED):
                some = rows[begin : begin + _COPIED]
                slots = local[np.searchsorted(ids, part["id"][some])]
                e.leaf[:, slots], e.ledger[:, slots] = part["leaf"][some].T, part["ledger"][some].T
                e.drift[slots] = part["drift"][some]
        self._saved, self._encoded = {}, _NO_SLOTS
