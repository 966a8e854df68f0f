"""How updates come in: ids become slots, shards get the new rows, and both wait for the end of their batch D'."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.examples.admission import Admission
from raydt.examples.features import Features
from raydt.examples.store import ExampleStore
from raydt.examples.updates import DELETE_VALUE, INSERT, TARGET_TOO_FAR, UNKNOWN_VALUE, UPDATE, UpdateBatch
from raydt.exchange.messages import Exchange
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.waiting import Waiting
from raydt.learners.rows import Rows, RowsOnShards

Slots = npt.NDArray[np.int32]


class Intake:
    """Ids and labels of the live examples, what waits, and who has the features.

    Parameters
    ----------
    features : Features
    shards : int
    dtype : dtype
        Of the labels.
    """

    def __init__(self, features: Features, shards: int, dtype: np.dtype[Any]) -> None:
        self._rows = RowsOnShards(features, shards)
        self.store = ExampleStore(0, None, dtype)
        self.waiting = Waiting()

    def owned(self) -> npt.NDArray[np.int64]:
        """Numbers of the features of all shards, one shard after the other. O(features)."""
        return self._rows.owned()

    def admit(
        self, batch: UpdateBatch, begin: int, end: int, skip: bool, admitted: Admission, ensemble: Ensemble | None
    ) -> Exchange[int]:
        """Admit updates up to ``end``; returns the position of the first bad one, if it is not passed over.

        ``ensemble`` says which targets it can hold; without one there is no need of the rows themselves yet.
        """
        old, new, fault, row = admitted
        op = batch.op[:end]
        far = np.zeros(end, dtype=np.bool_)
        carries = (op == INSERT) | (op == UPDATE)
        if ensemble is not None and len(batch.y):
            far[carries] = ~ensemble.fits(batch.y)[row[:end][carries]]
        while begin < end:
            special = np.flatnonzero(far[begin:])
            limit = begin + int(special[0]) if len(special) else end
            stop = self.store.admit(op[:limit], batch.id, begin, skip, old, new, fault)
            yield from self._enter(batch, slice(begin, stop), admitted, ensemble is not None)
            if stop == end:
                break
            if stop == limit:
                fault[stop] = TARGET_TOO_FAR
            elif op[stop] == DELETE_VALUE and not fault[stop]:
                yield from self._delete_equal(batch, stop, admitted)
            if fault[stop] and not skip:
                return stop
            begin = stop + 1
        return end

    def _enter(self, batch: UpdateBatch, part: slice, admitted: Admission, keep: bool) -> Exchange[None]:
        """Let the admitted updates of a part wait, and tell the shards the new rows."""
        added = np.flatnonzero(admitted.new[part] >= 0) + part.start
        slots, rows = admitted.new[added], admitted.row[added]
        new = Rows.of(batch.X[rows], None if batch.sparse is None else batch.sparse[rows])
        self.store.y[slots] = batch.y[rows]
        self.store.born[slots] = batch.start + added
        old = admitted.old[part]
        self.waiting.add(slots, new if keep else None, old[old >= 0])
        yield from self._rows.put(slots, new)

    def _delete_equal(self, batch: UpdateBatch, at: int, admitted: Admission) -> Exchange[None]:
        """Delete the oldest live example that equals a row."""
        row = int(admitted.row[at])
        rows = Rows.of(batch.X, batch.sparse).take(np.array([row]))
        equal = yield from self.find_equal(rows, batch.y[row])
        if not len(equal):
            admitted.fault[at] = UNKNOWN_VALUE
            return
        admitted.old[at] = equal[0]
        self.store.discard(int(equal[0]))
        self.waiting.add(equal[:0], None, equal[:1])

    def find_equal(self, row: Rows, y: float) -> Exchange[Slots]:
        """Slots of the live examples equal to one row and label, the oldest first. O(live examples x features)."""
        slots = self.store.in_order_of_birth()
        slots = slots[self.store.y[slots] == y]
        equal: Slots = slots[(yield from self._rows.equal(slots, row))]
        return equal

    def features_of(self, slots: Slots) -> Exchange[Rows]:
        """Features of some rows, from the shards."""
        return self._rows.take(slots)
