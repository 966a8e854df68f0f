"""The coordinating half that learners share whose updates take effect one by one, each as it comes.

Slots that a batch has emptied are released at its end: until then every shard still finds the deleted rows in them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import Bools, Floats, Ints
from raydt.evaluation.ranking import NO_LEVEL
from raydt.examples.admission import Admission, nothing_admitted
from raydt.examples.targets import no_targets
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    QUERY,
    UPDATE,
    BatchResult,
    Log,
    UpdateBatch,
    joined,
)
from raydt.exchange.messages import Exchange
from raydt.learners.batch_coordinator import BatchCoordinator

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


def steps_of(batch: UpdateBatch, part: slice, admitted: Admission) -> tuple[npt.NDArray[np.void], Ints]:
    """Steps of one part (``STEP`` records), and the position in the batch of each; refused updates have none."""
    op, refused = batch.op[part], admitted.fault[part] != 0
    n = len(op) - np.count_nonzero(refused) + np.count_nonzero((op == UPDATE) & ~refused)
    steps, position = np.empty(n, dtype=STEP), np.empty(n, dtype=np.int64)
    fill_steps(batch.op, admitted, batch.start, part.start, part.stop, steps, position)
    return steps, position


@kernel
def fill_steps(op: Any, admitted: Any, start: int, begin: int, end: int, steps: Any, position: Any) -> None:
    """Fill in the steps of the updates from ``begin`` to before ``end``, and the position of each."""
    n = 0
    for i in range(begin, end):
        if admitted.fault[i]:
            continue
        kind = LOOK if op[i] == QUERY else ADD
        for half in range(2 if op[i] == UPDATE else 1):
            removes = op[i] == DELETE or op[i] == DELETE_VALUE or (op[i] == UPDATE and half == 0)
            steps[n].stamp = 2 * (start + i) + 1 - (op[i] == UPDATE and half == 0)
            steps[n].slot = admitted.old[i] if removes else admitted.new[i]
            steps[n].row = admitted.row[i]
            steps[n].prediction = -1
            steps[n].kind = REMOVE if removes else kind
            steps[n].level = NO_LEVEL
            steps[n].path = 0
            position[n] = i
            n += 1


def enter_steps(
    result: BatchResult, steps: npt.NDArray[np.void], position: Ints, of: Bools, numbers: Floats | None = None
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

    def took(self, seq: int, batches: Any, k: int) -> None:
        """Take note of batch ``k`` of some that were taken together; the next update is number ``seq``."""
        self._seq = seq
        if self._digested is not None:
            for ids in batches.changed(k):
                self._digested.note(ids)

    def take_admitted(self, batch: UpdateBatch, admitted: Admission, applied: int) -> Exchange[BatchResult]:
        """Take a batch whose first ``applied`` updates were admitted with those of others (``learners.many``)."""
        result = self._begun(batch)
        result.applied = applied
        for slots in (admitted.new, admitted.old):
            if self._digested is not None:
                self._digested.note(self.store.id[slots[slots >= 0]])
        log = yield from self._take(batch, slice(0, applied), admitted, result)
        self._end(batch, admitted, result, [log])
        return result

    @abstractmethod
    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        """Make room for a batch, before anything of it is admitted."""

    def _parts_of(self, batch: UpdateBatch) -> list[slice]:
        """Parts of a batch that are admitted and taken one after the other."""
        return [slice(0, len(batch))]

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch, in parts. Stops before the first bad update; with ``skip_refused`` passes it over."""
        shortened = yield from self._shorten_warmup(batch)
        yield from self._prepare(batch)
        result = self._begun(batch)
        admitted = nothing_admitted(batch.op)
        logs = [shortened]
        for part in self._parts_of(batch):
            logs += yield from self._admit(batch, part, admitted, result, skip_refused)
            if result.applied < part.stop:
                break
        self._end(batch, admitted, result, logs)
        return result

    def _begun(self, batch: UpdateBatch) -> BatchResult:
        """Return the result of a batch of which nothing is taken."""
        m = len(batch)
        return BatchResult(m, no_targets(m, self.store.target_dtype), path=np.zeros(m, dtype=np.int32))

    def _end(self, batch: UpdateBatch, admitted: Admission, result: BatchResult, logs: list[Log]) -> None:
        """Release the slots that a batch has emptied, and complete its result."""
        self._summarise(admitted, result)
        self.store.release(admitted.old[admitted.old >= 0])
        result.log = joined(logs)
        self._seq = batch.start + result.applied
