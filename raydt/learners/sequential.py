"""The coordinating half that learners share whose updates take effect one by one, each as it comes.

Slots that a batch has emptied are released at its end: until then every shard still finds the deleted rows in them.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt

from raydt.evaluation.ranking import NO_LEVEL
from raydt.examples.admission import Admission, nothing_admitted
from raydt.examples.targets import no_targets
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    QUERY,
    UPDATE,
    BatchResult,
    UpdateBatch,
    joined,
)
from raydt.exchange.messages import Exchange
from raydt.learners.batch_coordinator import BatchCoordinator

Slots = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]

#: Kinds of a step.
ADD, REMOVE, LOOK = 0, 1, 2

#: One step of a batch: an update is a REMOVE and an ADD, everything else one step. ``stamp`` is 2 seq + 1, or 2 seq
#: for the REMOVE of an update; ``row`` indexes the batch's ``X``. The learner fills in ``prediction`` (-1 where none is
#: made), the ``level`` of that of class 1 if it gives scores, and ``path``, the nodes whose counts the step changed.
STEP = np.dtype(
    [
        *(("stamp", np.int64), ("slot", np.int32), ("row", np.int32)),
        *(("prediction", np.int32), ("kind", np.int32), ("level", np.int32), ("path", np.int32)),
    ]
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
    steps["prediction"], steps["path"] = -1, 0
    steps["level"] = NO_LEVEL
    return steps, position


def enter_steps(
    result: BatchResult,
    steps: npt.NDArray[np.void],
    position: Positions,
    of: npt.NDArray[np.bool_],
    numbers: npt.NDArray[np.float64] | None = None,
) -> None:
    """Enter the paths of steps, and the predictions ``of`` some: numeric labels, or codes with their levels."""
    predicted = steps["prediction"] if numbers is None else numbers
    result.predictions[position[of]] = predicted[of]
    if numbers is None:
        result.give_levels(position[of], steps["level"][of])
    result.path += np.bincount(position, steps["path"], minlength=len(result.path)).astype(np.int32)


class SequentialCoordinator(BatchCoordinator):
    """The path of a batch whose updates take effect one by one."""

    def __init__(self) -> None:
        self._seq = 0

    @abstractmethod
    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        """Make room for a batch, before anything of it is admitted."""

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch, in parts. Stops before the first bad update; with ``skip_refused`` passes it over."""
        m = len(batch)
        yield from self._prepare(batch)
        result = BatchResult(m, no_targets(m, self.store.y.dtype), path=np.zeros(m, dtype=np.int32))
        admitted = nothing_admitted(batch.op)
        logs = yield from self._admit(batch, slice(0, m), admitted, result, skip_refused)
        self._summarise(admitted, result)
        self.store.release(admitted.old[admitted.old >= 0])
        result.log = joined(logs)
        self._seq = batch.start + result.applied
        return result
