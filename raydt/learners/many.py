"""Batches of many models of one kind, taken by one compiled call: what the learners that do so share.

The batches lie one after another in flat arrays, and so does what comes out: the result of each is a slice. A batch is
either taken as a whole, with the results that :meth:`BatchCoordinator.process` would give, or not touched at all, where
something is due that needs more than counting; it goes the usual way then. What decides that is learnt before the first
update is admitted, in O(batch).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel
from raydt.arrays.types import Floats, Int32s, Ints
from raydt.evaluation.ranking import NO_LEVEL
from raydt.examples.admission import Admission
from raydt.examples.store import FREE, LIVE, USED, admit_updates
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, UPDATE, BatchResult, Log, Refusal, UpdateBatch
from raydt.learners.sequential import STEP, fill_steps
from raydt.trees.records import next_in_preorder

#: Columns of ``Taken.numbers``: updates that were taken (-1 of a batch that was not), insertions, deletions, steps,
#: refused updates; and what the learner notes of the model, from ``NOTES`` on.
APPLIED, INSERTS, DELETES, STEPS, REFUSED, NOTES = range(6)
#: How many numbers a learner may note.
MOST_NOTES = 8


class Batches(NamedTuple):
    """Batches of many models; each array has those of one model after those of another."""

    op: npt.NDArray[np.int8]
    id: Ints
    X: Floats
    y: Int32s
    start: Ints  #: Shape (models,): number of the first update of each.
    begin: Ints  #: Shape (models + 1,): where the updates of each begin.
    rows: Ints  #: Shape (models + 1,): where the rows of each begin.
    skip: bool  #: Whether bad updates are passed over.
    room: int  #: Steps that there is room for, times the number of updates.


class Taken(NamedTuple):
    """What becomes of the updates, by update; their steps begin at ``room`` times where they do."""

    old: Int32s
    new: Int32s
    fault: npt.NDArray[np.int8]
    row: Int32s
    prediction: Int32s
    level: npt.NDArray[np.uint16]
    path: Int32s
    steps: npt.NDArray[np.void]
    position: Ints
    numbers: Ints  #: Shape (models, numbers): see :data:`APPLIED`.


@inner_kernel
def admit_batch(batches: Any, out: Any, k: int, index: Any, reg: Any, y: Any, born: Any) -> bool:
    """Admit the batch of one model, enter its new examples, and list its steps; False if it goes the usual way.

    That is where it deletes by value, or where the store has no room for its insertions.
    """
    begin, end = batches.begin[k], batches.begin[k + 1]
    inserts, row = 0, -1
    for i in range(begin, end):
        kind = batches.op[i]
        if kind == DELETE_VALUE:
            return False
        if kind in (INSERT, UPDATE):
            inserts += 1
        if kind != DELETE:
            row += 1
        out.row[i] = row
    if reg[USED] + inserts > len(index.ids) or 3 * (reg[LIVE] + inserts) > 2 * len(index.table):
        return False
    admitted = Admission(out.old[begin:end], out.new[begin:end], out.fault[begin:end], out.row[begin:end])
    stop = admit_updates(batches.op[begin:end], batches.id[begin:end], 0, batches.skip, index, reg, admitted)
    steps = inserts = deletes = refused = 0
    for i in range(end - begin):
        refused += admitted.fault[i] != 0
        slot = admitted.new[i]
        if slot >= 0:
            inserts += 1
            y[slot] = batches.y[batches.rows[k] + admitted.row[i]]
            born[slot] = batches.start[k] + i
        deletes += admitted.old[i] >= 0
        if i < stop and admitted.fault[i] == 0:
            steps += 2 if batches.op[begin + i] == UPDATE else 1
    numbers = out.numbers[k]
    numbers[APPLIED], numbers[INSERTS], numbers[DELETES] = stop, inserts, deletes
    numbers[STEPS], numbers[REFUSED] = steps, refused
    first = batches.room * begin
    rest = out.steps[first : first + steps], out.position[first : first + steps]
    fill_steps(batches.op[begin:end], admitted, batches.start[k], 0, stop, *rest)
    return True


@inner_kernel
def end_batch(batches: Any, out: Any, k: int, index: Any, reg: Any) -> None:
    """Release the slots that the batch of one model has emptied, and enter what its steps have found."""
    begin, end = batches.begin[k], batches.begin[k + 1]
    for i in range(end - 1, begin - 1, -1):
        slot = out.old[i]
        if slot >= 0:
            index.ids[slot] = reg[FREE]
            reg[FREE] = slot
    first = batches.room * begin
    for s in range(first, first + out.numbers[k, STEPS]):
        step, at = out.steps[s], begin + out.position[s]
        out.path[at] += step.path
        if step.prediction >= 0:
            out.prediction[at], out.level[at] = step.prediction, step.level


@inner_kernel
def deepest(nodes: Any) -> int:
    """Depth of the deepest node of a tree. O(nodes)."""
    depth: int = np.int64(0)
    node = np.int64(0)
    while node >= 0:
        depth = max(depth, np.int64(nodes[node].depth))
        node = next_in_preorder(nodes, node, np.int64(0))
    return depth


class ManyBatches:
    """Batches of many models, and their results once they are taken."""

    def __init__(self, batches: Sequence[UpdateBatch], skip_refused: bool) -> None:
        self.batches = batches
        lengths = [len(batch.op) for batch in batches]
        begin, rows = (np.zeros(len(batches) + 1, dtype=np.int64) for _ in range(2))
        np.cumsum(lengths, out=begin[1:])
        np.cumsum([len(batch.X) for batch in batches], out=rows[1:])
        op = np.concatenate([batch.op for batch in batches])
        room = 2 if (op == UPDATE).any() else 1
        self.given = Batches(
            op,
            np.concatenate([batch.id for batch in batches]),
            np.concatenate([batch.X for batch in batches]),
            np.concatenate([batch.y for batch in batches]).astype(np.int32, copy=False),
            np.array([batch.start for batch in batches], dtype=np.int64),
            begin,
            rows,
            skip_refused,
            room,
        )
        m = len(op)
        old, new, row, prediction = (np.full(m, -1, dtype=np.int32) for _ in range(4))
        numbers = np.zeros((len(batches), NOTES + MOST_NOTES), dtype=np.int64)
        numbers[:, APPLIED] = -1
        self.taken = Taken(
            *(old, new, np.zeros(m, dtype=np.int8), row, prediction),
            np.full(m, NO_LEVEL, dtype=np.uint16),
            np.zeros(m, dtype=np.int32),
            np.empty(room * m, dtype=STEP),
            np.empty(room * m, dtype=np.int64),
            numbers,
        )
        self.longest = room * max(lengths)  #: Steps of the longest batch, at most.

    def changed(self, k: int) -> tuple[Ints, Ints]:
        """Ids that the batch of a model has inserted, and those that it has deleted."""
        part = slice(*self.given.begin[k : k + 2].tolist())
        ids = self.given.id[part]
        return ids[self.taken.new[part] >= 0], ids[self.taken.old[part] >= 0]

    def withdraw(self, k: int) -> tuple[Admission, int]:
        """Withdraw the batch of a model that was admitted, but is taken the usual way: it has no result here.

        Returns what was admitted, and how many updates are to be applied.
        """
        taken, part = self.taken, slice(*self.given.begin[k : k + 2].tolist())
        applied, taken.numbers[k, APPLIED] = int(taken.numbers[k, APPLIED]), -1
        return Admission(taken.old[part], taken.new[part], taken.fault[part], taken.row[part]), applied

    def results(self, notes: Sequence[str], logs: Sequence[Log]) -> list[BatchResult | None]:
        """Results of the batches, without the traffic and the time; None of those that were not taken.

        ``notes`` are names of the statistics that the learner has noted.
        """
        taken, begin = self.taken, self.given.begin.tolist()
        results: list[BatchResult | None] = []
        for k, (numbers, log) in enumerate(zip(taken.numbers.tolist(), logs, strict=True)):
            applied, inserts, deletes, _, refused = numbers[:NOTES]
            if applied < 0:
                results.append(None)
                continue
            part = slice(begin[k], begin[k + 1])
            bad: list[Refusal] = []
            if refused:
                fault = taken.fault[part]
                bad = [Refusal(i, int(fault[i])) for i in fault.nonzero()[0].tolist()]
            results.append(
                BatchResult(
                    *(applied, taken.prediction[part], bad, inserts, deletes, log, taken.path[part]),
                    dict(zip(notes, numbers[NOTES:], strict=False)),
                    levels=taken.level[part],
                )
            )
        return results
