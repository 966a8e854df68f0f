"""A model that is small enough for one process: the coordinator holds all of it until shards pay.

To ask a shard in another process takes longer than most of what it is asked. So on Ray a learner begins as a session in
the coordinator's process, and its shards take over once work is large enough to be divided, or rows need more memory
than one process may use. What moves is the state of a checkpoint, so that the results are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping

from raydt.arrays.types import AnyArray, Arrays
from raydt.examples.features import Features
from raydt.examples.updates import UpdateBatch
from raydt.learners.base import NOTHING_DIVIDED, Learner, LearnerOptions, WorkPlan
from raydt.sessions.session import InProcessSession

#: A value of a row, in bytes.
_VALUE = 8


def most_cells(divided: str, plan: WorkPlan) -> int | None:
    """Return the cells (live rows x features) from which on the shards take over; None if they never do."""
    if not plan.local_work_limit:
        return 0
    wins = {"always": 0, "large": plan.local_work_limit} if plan.faster else {}
    limits = [wins[divided]] if divided in wins else []
    limits += [] if plan.row_cache_bytes is None else [-(-plan.row_cache_bytes // _VALUE)]
    return min(limits, default=None)


class SmallModel:
    """A learner in one process, which it leaves at ``most`` cells (:func:`most_cells`)."""

    def __init__(self, learner: Learner, options: LearnerOptions, features: Features, most: int | None) -> None:
        self.session = InProcessSession(learner, options, features, 1, NOTHING_DIVIDED)
        self._features, self._most = features, most
        self._rows = self._ones = 0

    def holds(self, rows: int, ones: int) -> bool:
        """Whether a model of so many rows, with so many ones in sparse features, stays in this process."""
        return holds(self._features, self._most, rows, ones)

    def holds_with(self, batch: UpdateBatch) -> bool:
        """Whether it stays when a batch is applied. The ones of live rows are estimated from those of all rows."""
        self._rows += len(batch.X)
        self._ones += 0 if batch.sparse is None else len(batch.sparse.indices)
        rows = self.session.coordinator.store.live + len(batch.X)
        return self.holds(rows, rows * self._ones // max(1, self._rows))

    def restore(self, state: Arrays, groups: Mapping[int, Arrays]) -> None:
        """Replace everything by a saved state."""
        self.session.restore(state, groups)
        self._rows, self._ones = len(state["born"]), ones_of(groups)


def holds(features: Features, most: int | None, rows: int, ones: int) -> bool:
    """Whether one process holds so many rows, with so many ones in sparse features; ``most``: :func:`most_cells`."""
    return most is None or rows * len(features.names) + ones < most


def ones_of(groups: Mapping[int, Mapping[str, AnyArray]]) -> int:
    """Ones in the sparse features of all rows of a state."""
    return sum(len(group["sparse_values"]) for group in groups.values() if "sparse_values" in group)
