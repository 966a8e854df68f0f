"""The canonical batch of updates, and what a coordinator answers to it.

An update is numbered by its place in the stream (``seq``, from 0). The numbering, and so every result, is
independent of how the stream is cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray, Bools, Floats, Int32s, Ints
from raydt.errors import InputError
from raydt.examples.targets import Targets
from raydt.exchange.blocks import Block
from raydt.messages import message

if TYPE_CHECKING:
    from raydt.arrays.sparse import SparseRows
    from raydt.examples.weights import Weights
    from raydt.exchange.snapshot import Barrier, Snapshot

#: Operation codes of :attr:`UpdateBatch.op`.
INSERT, DELETE, QUERY, DELETE_VALUE, UPDATE = 0, 1, 2, 3, 4

#: A learner's own record of what it did, see :attr:`BatchResult.log`.
Log = dict[str, AnyArray]

#: Which operations carry a row of features, indexed by operation code.
CARRIES_ROW = np.array([True, False, True, True, True])
#: Which operations name an example, indexed by operation code; a query may.
WITH_ID = np.array([True, True, False, False, True])

#: Names of the operation codes, in their order.
OP_NAMES = ("insert", "delete", "query", "delete_value", "update")

#: Why an update was refused (:attr:`Refusal.reason`): the problem and the remedy.
UNKNOWN_ID, DUPLICATE_ID, UNKNOWN_VALUE, TARGET_TOO_FAR = 1, 2, 3, 4
REFUSALS = {
    reason: (said.alone(), said.remedy)
    for reason, said in (
        (UNKNOWN_ID, message("examples.unknown_id")),
        (DUPLICATE_ID, message("examples.live_id")),
        (UNKNOWN_VALUE, message("examples.unknown_value")),
        (TARGET_TOO_FAR, message("examples.far_target")),
    )
}


def running_ids(next_id: int, n: int, file: str | None = None) -> Ints:
    """Return the next ids for ``n`` rows without ids of their own; InputError, about ``file``, beyond 64 bits."""
    if next_id + n > np.iinfo(np.int64).max:
        raise InputError(message("examples.no_numbers"), file=file)
    return np.arange(next_id, next_id + n, dtype=np.int64)


def refuse_numbered(ranges: Sequence[Sequence[int]], ids: Ints, file: str | None = None) -> None:
    """Refuse to delete by running ids the rows of data frames whose index has a name: the index may be meant.

    ``ranges`` has the first of such ids and the one after the last; an id in one of them is an InputError.
    """
    for first, stop in ranges:
        bad = np.flatnonzero((ids >= first) & (ids < stop))
        if len(bad):
            raise InputError(message("examples.numbered", id=int(ids[bad[0]])), file=file, row=int(bad[0]))


@dataclass(frozen=True, slots=True)
class UpdateBatch:
    """Consecutive updates of one stream."""

    start: int  #: Sequence number of the first update.
    op: npt.NDArray[np.int8]  #: Shape (m,): operation codes.
    id: Ints  #: Shape (m,): stable id of the example; ignored for QUERY and DELETE_VALUE.
    #: Shape (r, d): the d dense features of each update that carries any, in order. Finite, but NaN where a number is
    #: missing and the learner takes that; -0.0 is stored as 0.0. A categorical feature holds its integer code, -1 if
    #: missing.
    X: Floats
    #: Shape (r,): class code of each row of ``X``; -1 where a query has none. Of a regression float64, the targets; NaN
    #: where a query has none.
    y: Targets
    n_classes: int  #: Classes known once the last row of this batch has been read; 0 of a regression.
    #: Shape (m,): row of the source each update came from, for messages; -1 where there is none, -2 - r for a deletion
    #: ordered by row r of a deletion log. ``Stream.where`` reads it.
    row: Ints
    #: How many leading updates of the *stream* are warm-up inserts, as far as is known: less than the batches before
    #: said where the first that is no insert begins this one.
    warmup: int = 0
    barrier: Barrier | None = None  #: A snapshot is wanted once this batch is applied in full.
    sparse: SparseRows | None = None  #: The sparse features of each row of ``X``; None where there are none.
    #: Shape (n_classes,): class codes in ascending order of their labels (:func:`raydt.examples.targets.in_order`):
    #: codes are given in order of appearance, which is history. None: the codes ascend as the labels do.
    class_order: Ints | None = None
    #: The statistics are wanted at each multiple of this within the batch, too (:attr:`BatchResult.within`); 0 if not.
    #: Only learners that say so in their traits give them.
    every: int = 0
    #: Whether predictions before the updates are wanted. Without them a learner may take all updates at once.
    answers: bool = True
    #: Text ids, None of an update without one. For whoever takes the result; a learner has ``id``.
    names: list[str | None] | None = None
    digest: bool = False  #: The digest of the model before this batch is wanted (:attr:`BatchResult.digest`).
    #: Shape (r,): event times of the rows of ``X``, ``raydt.encoding.times.NO_TIME`` of one without; None of a source
    #: without times. For whoever takes the result; no learner knows the time.
    time: Ints | None = None
    #: Shape (r,): weight of each row of ``X`` (``raydt.examples.weights``); None where all are 1.
    weight: Weights | None = None
    #: Without features, because the shards have read those of these rows, which are all of the warm-up: the blocks of
    #: the source in which the rows lie.
    blocks: tuple[Block, ...] = ()
    #: Shape (m,): deletions that it is no fault to refuse because their example is not live; None where there are none.
    tolerated: Bools | None = None

    def __len__(self) -> int:
        return len(self.op)

    def name(self, position: int) -> Any:
        """The id of an update as the user knows it."""
        return int(self.id[position]) if self.names is None else self.names[position]

    def faults(self, refused: Sequence[Refusal]) -> list[Refusal]:
        """Return the refusals that are faults of the updates."""
        quiet = self.tolerated
        return [*refused] if quiet is None else [one for one in refused if not quiet[one.position]]

    def tolerates(self, position: int) -> bool:
        """Return True if it is no fault to refuse an update."""
        return self.tolerated is not None and bool(self.tolerated[position])

    @property
    def ends_warmup(self) -> bool:
        """True if the warm-up, if there is one, is over just before this batch."""
        return 0 < self.start == self.warmup

    def early_warmup(self, planned: int) -> dict[str, Any] | None:
        """Return how a warm-up that was to have ``planned`` updates ended just before this batch; None if it did not.

        That is its ``updates``, the planned ones (``warmup``), and the name of the operation that ended it (``op``).
        """
        if not self.ends_warmup or self.warmup >= planned:
            return None
        return {"updates": self.warmup, "warmup": planned, "op": OP_NAMES[self.op[0]]}

    @property
    def lacks_features(self) -> bool:
        """True if the shards have read the features of the rows that updates carry."""
        return len(self.X) > 0 and not self.X.shape[1] and self.sparse is None

    @property
    def stop(self) -> int:
        """Sequence number after the last update."""
        return self.start + len(self.op)


def cut_at(batch: UpdateBatch, places: Sequence[int]) -> Iterator[UpdateBatch]:
    """Yield a batch in pieces that begin at ascending places within it, which share its arrays; whole without places.

    A barrier stays with the last piece.
    """
    if not places:
        yield batch
        return
    rows_before = np.concatenate(([0], np.cumsum(CARRIES_ROW[batch.op])))
    edges = [0, *places, len(batch)]
    for begin, end in pairwise(edges):
        rows = slice(rows_before[begin], rows_before[end])
        yield replace(
            batch,
            start=batch.start + begin,
            op=batch.op[begin:end],
            id=batch.id[begin:end],
            X=batch.X[rows],
            sparse=None if batch.sparse is None else batch.sparse[rows],
            y=batch.y[rows],
            time=None if batch.time is None else batch.time[rows],
            weight=None if batch.weight is None else batch.weight[rows],
            row=batch.row[begin:end],
            names=None if batch.names is None else batch.names[begin:end],
            tolerated=None if batch.tolerated is None else batch.tolerated[begin:end],
            barrier=batch.barrier if end == len(batch) else None,
            digest=batch.digest and begin == 0,
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """One update that was refused and had no effect: its position in the batch and the reason code."""

    position: int
    reason: int


def joined(logs: Sequence[Log]) -> Log:
    """Logs of one learner, one after another."""
    full = [log for log in logs if log]
    return {name: np.concatenate([log[name] for log in full]) for name in full[0]} if full else {}


@dataclass(slots=True)
class BatchResult:
    """Reply of a coordinator to one batch."""

    #: Updates taken from the front of the batch, refused ones included; less than the batch's length only if the policy
    #: is to stop at a bad update.
    applied: int
    #: Shape (m,): for inserts and queries the class predicted just before the update took effect; for an UPDATE that
    #: between its deletion and its insertion. A learner that changes its model every so many updates predicts by its
    #: last model. -1 for deletions, for warm-up inserts and for refused updates. Of a regression float64, the number
    #: predicted; NaN for the same.
    predictions: Targets
    refused: list[Refusal] = field(default_factory=list)  #: In order of position.
    inserts: int = 0  #: ``inserts``, ``deletes``: How many took effect.
    deletes: int = 0
    #: The learner's own record of the batch (of a tree one entry per rebuild), all arrays of one length; ``seq`` (of
    #: the update that caused it) among them, and ``rows``, ``nodes`` and ``depth`` if it is of rebuilds.
    log: Log = field(default_factory=dict)
    #: Shape (m,): nodes whose class counts each update changed: those from the root to the leaf of its example, as the
    #: model was just then; the two of an UPDATE are added up. 0 for queries and refused updates.
    path: Int32s = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    #: The coordinator's statistics after the batch: ``active``, ``nodes``, ``leaves``, ``depth``, ``rebuilds``,
    #: ``rebuilt_rows``, ``rounds``, ``bytes_exchanged``.
    statistics: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0  #: Wall time the coordinator spent on the batch. Never read by a decision.
    digest: str | None = None  #: Of the model before a batch that wants it.
    snapshot: Snapshot | None = None  #: Of the model after a batch with a barrier, if it was applied in full.
    #: Shape (m,): of a learner that gives scores: that of class 1 for each prediction, as a level
    #: (:mod:`raydt.evaluation.ranking`).
    levels: npt.NDArray[np.uint16] | None = None
    #: Of a batch with ``every``: what the statistics of the model (all but ``active`` and the traffic) were when so
    #: many updates of the stream had been applied, for each multiple of ``every`` inside the part that was applied.
    within: list[dict[str, int]] = field(default_factory=list)

    def give_levels(self, position: Ints, levels: AnyArray) -> None:
        """Enter the scores of the predictions at these positions; those of the others are not known."""
        if self.levels is None:
            self.levels = np.full(len(self.predictions), np.iinfo(np.uint16).max, dtype=np.uint16)
        self.levels[position] = levels
