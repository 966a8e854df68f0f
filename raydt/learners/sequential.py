"""The coordinating half that learners share whose updates take effect one by one, each as it comes.

A batch of the stream is taken in parts: ids become slots, bad updates are refused before anything of them is applied,
and the learner takes the part (``_take``). A part ends before a deletion by value, which can name its example only once
everything before it is applied, and before an update at which the batch stops. Slots that a batch has emptied are
released at its end: until then every shard still finds in them what was deleted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.examples.admission import Admission, nothing_admitted
from raydt.examples.store import ExampleStore
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    QUERY,
    UNKNOWN_VALUE,
    UPDATE,
    BatchResult,
    Log,
    Refusal,
    UpdateBatch,
    joined,
)
from raydt.exchange.messages import Exchange

Slots = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]

#: Kinds of a step.
ADD, REMOVE, LOOK = 0, 1, 2

#: One step of a batch: an update is a REMOVE and an ADD, everything else one step. ``stamp`` is 2 seq + 1, or 2 seq
#: for the REMOVE of an update; ``row`` indexes the batch's ``X``. The learner fills in ``prediction`` (-1 where none is
#: made), and may use ``row`` of a step that is taken.
STEP = np.dtype(
    [("stamp", np.int64), ("slot", np.int32), ("row", np.int32), ("prediction", np.int32), ("kind", np.int32)]
)


def steps_of(batch: UpdateBatch, part: slice, admitted: Admission) -> tuple[npt.NDArray[np.void], Positions]:
    """Steps of one part (``STEP`` records), and the position in the batch of each; refused updates have none."""
    op = batch.op[part]
    times = np.where(admitted.fault[part] != 0, 0, np.where(op == UPDATE, 2, 1))
    position = np.repeat(np.arange(part.start, part.stop), times)
    op = batch.op[position]
    second = np.zeros(len(position), dtype=bool)
    second[1:] = (op[1:] == UPDATE) & (position[1:] == position[:-1])
    first_half = (op == UPDATE) & ~second
    removes = (op == DELETE) | (op == DELETE_VALUE) | first_half
    steps = np.empty(len(position), dtype=STEP)
    steps["kind"] = np.where(removes, REMOVE, np.where(op == QUERY, LOOK, ADD))
    steps["stamp"] = 2 * (batch.start + position) + 1 - first_half
    steps["slot"] = np.where(removes, admitted.old[position], admitted.new[position])
    steps["row"] = admitted.row[position]
    steps["prediction"] = -1
    return steps, position


class SequentialCoordinator(ABC):
    """Ids, labels and births of the live examples, and the path of a batch.

    Attributes
    ----------
    store : ExampleStore
        The live examples.
    """

    def __init__(self) -> None:
        self._seq = 0

    @property
    @abstractmethod
    def store(self) -> ExampleStore:
        """The live examples."""

    # ---------------------------------------------------------------- what a learner gives

    @abstractmethod
    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        """Make room for a batch, before anything of it is admitted."""

    @abstractmethod
    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Take the admitted updates of one part of the batch; returns the learner's log of them.

        Labels and births of the new examples are in the store; what else is to be kept of them is up to the learner.
        It fills in ``predictions`` and ``path`` of the result.
        """

    @abstractmethod
    def find_equal(
        self, X: npt.NDArray[np.float64], row: int, y: float, sparse: SparseRows | None = None
    ) -> Exchange[Slots]:
        """Slots of the live examples equal to (X[row], sparse[row], y), the oldest first."""

    # ---------------------------------------------------------------- one batch

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch (see the module's header).

        Stops before the first bad update; with ``skip_refused`` passes it over.
        """
        m = len(batch)
        yield from self._prepare(batch)
        result = BatchResult(m, np.full(m, -1, dtype=np.int32), path=np.zeros(m, dtype=np.int32))
        admitted = nothing_admitted(batch.op)
        old, new, fault, rows = admitted
        logs: list[Log] = []
        begin = 0
        while begin < m:
            stop = self.store.admit(batch.op, batch.id, begin, skip_refused, old, new, fault)
            by_value = stop < m and fault[stop] == 0
            logs.append((yield from self._enter(batch, slice(begin, stop), admitted, result)))
            if by_value:
                value = {} if batch.sparse is None else {"sparse": batch.sparse}
                equal = yield from self.find_equal(batch.X, int(rows[stop]), int(batch.y[rows[stop]]), **value)
                if len(equal):
                    old[stop] = equal[0]
                    self.store.discard(int(equal[0]))
                else:
                    fault[stop] = UNKNOWN_VALUE
                if len(equal) or skip_refused:  # each update that is not stopped at is in one part, refused ones too
                    logs.append((yield from self._enter(batch, slice(stop, stop + 1), admitted, result)))
            if stop < m and fault[stop] and not skip_refused:
                result.applied = stop
                break
            begin = stop + 1
        result.refused = [Refusal(int(i), int(fault[i])) for i in np.flatnonzero(fault)]
        freed = old[old >= 0]
        self.store.release(freed)
        result.inserts, result.deletes = int((new >= 0).sum()), len(freed)
        result.log = joined(logs)
        self._seq = batch.start + result.applied
        return result

    def _enter(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Note labels and births of the new examples of a part, and take it."""
        added = np.flatnonzero(admitted.new[part] >= 0) + part.start
        slots = admitted.new[added]
        self.store.y[slots] = batch.y[admitted.row[added]]
        self.store.born[slots] = batch.start + added
        return (yield from self._take(batch, part, admitted, result))

    # ---------------------------------------------------------------- the examples

    def in_order_of_birth(self) -> Slots:
        """Slots of the live examples in order of birth. O(n log n)."""
        return self.store.in_order_of_birth()

    def born(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Number of the update that inserted each example."""
        return self.store.born[slots]

    def rows(self, slots: Slots) -> dict[str, npt.NDArray[Any]]:
        """Ids and class codes."""
        return {"id": self.store.id[slots], "y": self.store.y[slots]}
