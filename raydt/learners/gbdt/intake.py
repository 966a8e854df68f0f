"""How updates come in: ids become slots, shards get the new rows, and both wait for the end of their batch D'."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.admission import Admission
from raydt.example_store import ExampleStore
from raydt.exchange import Ask, Exchange, Tell
from raydt.features import Features
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.rows import Rows
from raydt.learners.gbdt.waiting import Waiting
from raydt.sparse import SparseRows, merged
from raydt.updates import DELETE_VALUE, INSERT, TARGET_TOO_FAR, UNKNOWN_VALUE, UPDATE, UpdateBatch

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
        self._features = features
        self._groups = features.assign(shards)
        self._columns = [features.columns_of(groups) for groups in self._groups]
        self.store = ExampleStore(0, None, dtype)
        self.waiting = Waiting()

    def owned(self) -> npt.NDArray[np.int64]:
        """Numbers of the features of all shards, one shard after the other. O(features)."""
        dense = len(self._features.names)
        sparse = [dense + self._features.sparse_of(groups) for groups in self._groups]
        return np.concatenate([part for parts in zip(self._columns, sparse, strict=True) for part in parts])

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
        if len(slots):
            yield Tell("rows", {"slots": slots}, [self._part(new, shard) for shard in range(len(self._groups))])

    def _part(self, rows: Rows, shard: int) -> dict[str, Any]:
        """What one shard owns of some rows."""
        sparse = rows.sparse(self._features.sparse)
        if self._features.sparse:
            sparse = sparse.of_groups(self._groups[shard], self._features.groups)
        return {"X": rows.X[:, self._columns[shard]], "indptr": sparse.indptr, "indices": sparse.indices}

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
        parts = [self._part(row, shard) for shard in range(len(self._groups))]
        replies = yield Ask("equal", {"slots": slots}, parts)
        equal: Slots = slots[np.logical_and.reduce(replies)]
        return equal

    def features_of(self, slots: Slots) -> Exchange[Rows]:
        """Features of some rows, from the shards."""
        if not len(slots):
            return Rows.none(self._features)
        X = np.empty((len(slots), len(self._features.names)))
        replies = yield Ask("gather", {"slots": slots})
        for columns, reply in zip(self._columns, replies, strict=True):
            X[:, columns] = reply["X"]
        n = self._features.sparse
        sparse = merged([SparseRows(reply["indptr"], reply["indices"], n) for reply in replies]) if n else None
        return Rows.of(X, sparse)
