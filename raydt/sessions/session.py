"""A learner at work: one coordinator and its shards behind one small interface, whatever runs them.

The in-process session is here; the Ray session of the same interface is in ``actors``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Flag, auto
from itertools import takewhile
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from raydt.arrays.blocks import SparseRows, is_clean
from raydt.arrays.elementary import AnyArray, Arrays, Floats, Ints, Slots
from raydt.arrays.kernel_cache import compile_once
from raydt.errors import HalfAppliedError, InputError
from raydt.evaluation.classification import Prequential
from raydt.evaluation.scoring import NO_LEVEL
from raydt.examples.row_owners import joined_by_birth
from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    INSERT,
    QUERY,
    UNIT,
    UPDATE,
    BatchResult,
    Features,
    Log,
    UpdateBatch,
)
from raydt.exchange.links import InProcessDriver, NumberedShard, Traffic, together
from raydt.exchange.messages import OWNED, SET_ASIDE, Ask, Buckets, Exchange, Owned, Segment, Snapshot, living
from raydt.folders.folder import Folder
from raydt.folders.segments import whole_rows
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED, Case, Learner, LearnerOptions, WorkPlan
from raydt.learners.batch_coordinator import BatchCoordinator, KnownPredictions, Many
from raydt.learners.tree_coordinator import ManyBatches
from raydt.messages import message
from raydt.parallel import call_divided, work_seconds

# Taking a snapshot of a learner at a batch barrier, and where its next segment of rows begins.
#
# Invariant: a snapshot is taken between two batches, and within the numbered exchange, so that the arrays the shards
# set aside and those the coordinator returns belong to the same position, whichever message is lost, repeated or late.


def take_snapshot(coordinator: BatchCoordinator, segments: Sequence[Segment] = ()) -> Exchange[Snapshot]:
    """Take the coordinator's half of a snapshot after those of the shards, but for stored ``segments``."""
    yield from coordinator.gather_state()
    segments = list(takewhile(lambda segment: segment.owned == coordinator.rows_are_owned, segments))
    if coordinator.rows_are_owned:
        return (yield from _snapshot_of_owners(coordinator, segments))
    slots = coordinator.in_order_of_birth()
    born = coordinator.born(slots)
    since = next_segment(born, segments)
    stored = int(np.searchsorted(born, since))
    aside, *_ = yield Ask(SET_ASIDE, {"slots": slots, "stored": stored})
    return Snapshot(since, born, coordinator.rows(slots[stored:]), coordinator.state(slots), aside)


def _snapshot_of_owners(coordinator: BatchCoordinator, segments: Sequence[Segment]) -> Exchange[Snapshot]:
    """As :func:`take_snapshot`, where shards own rows: they agree on the order of these, and the coordinator counts."""
    counted = yield Ask("living", {"edges": _edges(segments)})
    live = np.sum(counted, axis=0).tolist()
    since = _first_of_next(live, segments)
    kept = sum(segment.first < since for segment in segments)
    yield from together("order", {"since": since})
    none = np.empty(0, dtype=np.int32)
    aside, *_ = yield Ask(SET_ASIDE, {"slots": none, "stored": 0})
    state = coordinator.state(none)
    owned = Owned([*live[:kept], sum(live[kept:])], state.pop(OWNED))
    return Snapshot(since, np.empty(0, dtype=np.int64), {}, state, aside, owned=owned)


def next_segment(born: Ints, segments: Sequence[Segment]) -> int:
    """Return the birth from which on the next segment holds all live examples; it supersedes segments from there on.

    A segment is written again together with those after it once they have as many live examples as it has, so that n
    examples lie in O(log n) segments and each is written O(log n) times; and all are, once most of what is stored is
    deleted. ``born`` of the live examples ascends, ``segments`` are in order. O(k log n).
    """
    return _first_of_next(living(born, _edges(segments)).tolist(), segments) if segments else 0


def _edges(segments: Sequence[Segment]) -> Ints:
    """Return where each segment begins and the last one ends."""
    return np.array([segment.first for segment in segments] + [segments[-1].stop if segments else 0], dtype=np.int64)


def _first_of_next(live: Sequence[int], segments: Sequence[Segment]) -> int:
    """As :func:`next_segment`, from the live examples of each segment and of those after all (:func:`living`)."""
    *stored, total = live
    if not segments or sum(segment.rows for segment in segments) > 2 * sum(stored):
        return 0
    first = segments[-1].stop
    for segment, alive in zip(reversed(segments), reversed(stored), strict=True):
        if alive > total:
            break
        total += alive
        first = segment.first
    return first


def whole(snapshot: Snapshot) -> tuple[Arrays, dict[int, Arrays]]:
    """The complete state of coordinator and groups, of a snapshot that was taken with nothing stored."""
    groups: dict[int, Arrays] = {}
    buckets: dict[Buckets, Arrays] = {}
    for part in snapshot.parts:
        for whose, found in part.items():
            arrays = {**found.rows, **found.state}
            if isinstance(whose, Buckets):
                buckets[whose] = arrays
            else:
                groups[whose] = arrays
    if snapshot.owned is not None:
        return {**snapshot.state, **joined_by_birth(buckets)}, groups
    return {**snapshot.state, **snapshot.rows, "born": snapshot.born}, groups


T = TypeVar("T")
D = TypeVar("D", bound=Any)


class Session(Protocol):
    """Interface of a running learner for pipelines and estimators."""

    def process(
        self, batches: Iterable[UpdateBatch], *, skip_refused: bool = False
    ) -> Iterator[tuple[UpdateBatch, BatchResult]]:
        """Apply batches in order; results come in order, with a few batches read ahead where that helps.

        Ends after a batch that was not taken in full. To stop earlier, end ``batches``, not the iteration.
        """

    @property
    def under_way(self) -> int:
        """Batches that :meth:`process` has handed on and not given back."""

    def finish(self) -> Log:
        """Complete what waits for more updates; the log of that."""

    def digest(self) -> str:
        """Digest of the model."""

    def statistics(self) -> dict[str, int]:
        """As in :attr:`BatchResult.statistics`."""

    def model(self) -> Arrays:
        """The predict-only model."""

    def state(self) -> tuple[Arrays, dict[int, Arrays]]:
        """State of the coordinator, and of every feature group by number."""

    def snapshot(self, segments: Sequence[Segment] = ()) -> Snapshot:
        """A snapshot here and now; a batch with a barrier brings its own."""

    def restore(
        self,
        state: Arrays,
        groups: Mapping[int, Arrays],
        buckets: Mapping[Buckets, Arrays] | None = None,
        folder: Folder | None = None,
    ) -> None:
        """Replace everything by a saved state.

        ``buckets`` are arrays by row that ``state`` lacks (:func:`raydt.folders.segments.whole_rows`); all may be read
        from ``folder``.
        """

    def work(self) -> list[dict[str, Any]]:
        """One entry per shard: ``shard``, ``columns``, ``requests``, ``seconds``, ``pid``."""

    def close(self) -> None:
        """Release what runs the session."""


class Engine(Generic[D]):
    """A coordinator and the ``driver`` of its exchange with the shards, wherever these are."""

    def __init__(self, coordinator: BatchCoordinator, driver: D) -> None:
        self.coordinator, self.driver = coordinator, driver
        self.traffic: Traffic = driver.traffic  #: What statistics show.
        #: False while a change is under way, and from then on if it was broken off.
        self.whole = True
        self._restored = False  # shards complete what is not saved with the next batch

    def _change(self, exchange: Exchange[T], begun: bool) -> T:
        """Run what changes the model. If it is broken off, nothing has changed unless it had ``begun``.

        That is so from the first update on that is admitted, and as soon as shards complete what was restored.
        """
        self.require_whole()
        changes = self.coordinator.store.changes
        try:
            self.whole = False
            result: T = self.driver.run(exchange)
            self._restored, self.whole = False, True
            return result
        except BaseException:
            self.whole = not (begun or self._restored) and self.coordinator.store.changes == changes
            raise

    def require_whole(self) -> None:
        """Refuse (HalfAppliedError) to go on with a part of a change."""
        if not self.whole:
            raise HalfAppliedError(message("models.interrupted"))

    def take(self, batch: UpdateBatch, *, skip_refused: bool = False) -> BatchResult:
        """Apply one batch, without the statistics, which may take longer than one update."""
        return self._change(self.coordinator.process(batch, skip_refused=skip_refused), begun=False)

    def apply(
        self, batch: UpdateBatch, *, skip_refused: bool = False, segments: Sequence[Segment] | None = None
    ) -> BatchResult:
        """Apply one batch; a snapshot follows if its barrier wants one, or the ``segments`` stored before are given."""
        began = work_seconds()
        digest = self.digest() if batch.digest else None
        warming = bool(batch.every) and batch.stop <= batch.warmup
        before = self.coordinator.statistics() if warming else {}
        result = self._change(self.coordinator.process(batch, skip_refused=skip_refused), begun=False)
        result.digest = digest
        if before and not result.within:  # until the warm-up ends, only the number of examples changes
            first = batch.start + batch.every - batch.start % batch.every
            counts = {name: count for name, count in before.items() if name != "active"}
            result.within = [dict(counts) for _ in range(first, batch.start + result.applied, batch.every)]
        result.seconds = work_seconds() - began
        if result.applied == len(batch):
            segments = segments if batch.barrier is None else batch.barrier.segments()
            result.snapshot = None if segments is None else self.snapshot(segments)
        result.statistics = self.statistics()
        return result

    def finish(self) -> Log:
        """Complete what waits for more updates; the log of that."""
        return self._change(self.coordinator.finish(), begun=True) or {}

    def digest(self, former: bool = False) -> str:
        """Digest of the model; ``former``: in the format before the present one (``Traits.digests``)."""
        self.require_whole()
        asked = (former,) if former else ()  # a learner of one format need not know of another
        self.driver.run(self.coordinator.gather_digest(*asked))
        return self.coordinator.digest(*asked)

    def statistics(self) -> dict[str, int]:
        """Statistics of the coordinator and of the traffic."""
        self.require_whole()
        traffic = self.traffic
        return {**self.coordinator.statistics(), "rounds": traffic.rounds, "bytes_exchanged": traffic.bytes}

    def model(self) -> Arrays:
        """The predict-only model."""
        self.require_whole()
        self.driver.run(self.coordinator.gather())
        return self.coordinator.model()

    def known_predictions(self, X: Floats, n_classes: int) -> KnownPredictions:
        """Return what tells the predictions of rows, shape (m, d), without examples; the model stays as it is."""
        self.require_whole()
        self.driver.run(self.coordinator.gather_rows())
        return self.coordinator.known_predictions(X, n_classes)

    def snapshot(self, segments: Sequence[Segment] = ()) -> Snapshot:
        """A snapshot here and now, without the ``parts`` that shards have set aside."""
        self.require_whole()
        snapshot: Snapshot = self.driver.run(take_snapshot(self.coordinator, segments))
        return snapshot


class InProcessSession(Engine[InProcessDriver]):
    """Coordinator and shards in this process. Several, or with a row cache in the plan, have stores of their own."""

    def __init__(
        self, learner: Learner, options: Any, features: Features, shards: int = 1, plan: WorkPlan | None = None
    ) -> None:
        plan = plan or WorkPlan()
        if plan.row_cache_bytes is not None or shards > 1:
            plan = dataclasses.replace(plan, shared_store=False)
        coordinator: BatchCoordinator = learner.coordinator(options, features, shards, plan)
        store = coordinator.shared if plan.shared_store else None
        self.shards = [
            NumberedShard(learner.shard(options, features, groups, store), index)
            for index, groups in enumerate(features.assign(shards))
        ]
        super().__init__(coordinator, InProcessDriver(self.shards))

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that a copy has."""
        self.require_whole()
        return self.__dict__

    def rows(self, slots: Slots) -> dict[int, dict[str, Any]]:
        """Features of some examples, by group."""
        return {group: rows for shard in self.shards for group, rows in shard.worker.rows(slots).items()}

    def take_row(self, op: int, number: int, row: AnyArray, code: int) -> bool | None:
        """Apply one update as :meth:`BatchCoordinator.take_row` does; None if it needs a batch: nothing is applied."""
        self.require_whole()
        if self._restored or len(self.shards) != 1 or self.coordinator.weighs:
            return None
        changes = self.coordinator.store.changes
        try:
            self.whole = False
            taken, rest = self.coordinator.take_row(op, number, row, code, self.shards[0].worker)
            if rest is not None:
                self.driver.run(rest)
            self.whole = True
            return taken
        except BaseException:
            self.whole = self.coordinator.store.changes == changes
            raise

    def group(self, batch: UpdateBatch) -> Many | None:
        """Return the call that takes this batch with those of other sessions (``keyed.members``); None if none does."""
        self.require_whole()
        if self._restored or len(self.shards) != 1 or batch.barrier is not None or batch.every or not len(batch):
            return None
        if batch.tolerated is not None:
            return None
        return self.coordinator.group(batch, self.shards[0].worker)

    def predict_row(self, row: AnyArray) -> int | None:
        """Return the predicted class code of one row, as :meth:`BatchCoordinator.predict_row`."""
        return self.coordinator.predict_row(row, self.shards[0].worker) if len(self.shards) == 1 else None

    def process(
        self, batches: Iterable[UpdateBatch], *, skip_refused: bool = False
    ) -> Iterator[tuple[UpdateBatch, BatchResult]]:
        """Apply batches in order."""
        for batch in batches:
            result = self.apply(batch, skip_refused=skip_refused)
            yield batch, result
            if result.applied < len(batch):
                return

    @property
    def under_way(self) -> int:
        """None: a batch is applied when it is asked for."""
        return 0

    def rest(self) -> None:
        """Drop what the next update or digest makes again from the rows."""
        self.coordinator.rest()

    def trim(self) -> None:
        """Rest, and give up room for more rows and nodes; the next update takes up to some milliseconds longer."""
        self.coordinator.trim()
        for shard in self.shards:
            shard.trim()

    def state(self) -> tuple[Arrays, dict[int, Arrays]]:
        """State of the coordinator, and of every feature group by number."""
        return whole(self.snapshot())

    def snapshot(self, segments: Sequence[Segment] = ()) -> Snapshot:
        """A snapshot here and now."""
        snapshot = super().snapshot(segments)
        snapshot.parts = [shard.take_aside(snapshot.aside) for shard in self.shards]
        return snapshot

    def restore(
        self,
        state: Arrays,
        groups: Mapping[int, Arrays],
        buckets: Mapping[Buckets, Arrays] | None = None,
        folder: Folder | None = None,
    ) -> None:
        """Replace everything by a saved state."""
        self.whole = False
        state, groups = whole_rows(state, groups, buckets or {})
        self.coordinator.restore(state)
        for shard in self.shards:
            shard.worker.restore(groups)
        self._restored, self.whole = True, True

    def work(self) -> list[dict[str, Any]]:
        """Work counters of each shard."""
        return [shard.work() for shard in self.shards]

    def close(self) -> None:
        """Nothing to release."""


# A model that is small enough for one process: the coordinator holds all of it until shards pay.
#
# To ask a shard in another process takes longer than most of what it is asked. So on Ray a learner begins as a session
# in the coordinator's process, and its shards take over once work is large enough to be divided, or rows need more
# memory than one process may use. What moves is the state of a checkpoint, so that the results are the same bit for
# bit.

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
        """Return True if a model of so many rows, with so many ones in sparse features, stays in this process."""
        return holds(self._features, self._most, rows, ones)

    def holds_with(self, batch: UpdateBatch) -> bool:
        """Return True if it stays when a batch is applied. Ones of live rows are estimated from those of all rows."""
        self._rows += len(batch.X)
        self._ones += 0 if batch.sparse is None else len(batch.sparse.indices)
        rows = self.session.coordinator.store.live + len(batch.X)
        return self.holds(rows, rows * self._ones // max(1, self._rows))

    def restore(self, state: Arrays, groups: Mapping[int, Arrays]) -> None:
        """Replace everything by a saved state."""
        self.session.restore(state, groups)
        self._rows, self._ones = len(state["born"]), ones_of(groups)


def holds(features: Features, most: int | None, rows: int, ones: int) -> bool:
    """Return True if one process holds so many rows and ones in sparse features; ``most``: :func:`most_cells`."""
    return most is None or rows * len(features.names) + ones < most


def ones_of(groups: Mapping[int, Mapping[str, AnyArray]]) -> int:
    """Ones in the sparse features of all rows of a state."""
    return sum(len(group["sparse_values"]) for group in groups.values() if "sparse_values" in group)


# Where copies of a deleted example may remain, after a deletion and after a purge: what receipts list.
#
# What the model itself keeps is each learner's own (``Traits.stays``); ``update`` puts the paths that it knows in
# front. ``docs/explanation/erasure.md`` has the same list as a table, and ``raydt doctor`` finds what lies on this
# machine.

#: After any deletion.
IN_MEMORY = "freed memory of the processes that held them (overwritten when it is used again), swap space, core dumps"

#: Of an estimator.
OF_AN_ESTIMATOR = (
    "the arrays, data frames and files they came from",
    "folders written earlier by save(..., with_examples=True), and copies made of this object",
    "models saved and predictions made while they were in",
    "the lists of categories and classes in this object: a name that only deleted rows had is still there",
)

#: Of requests that a run has read from its source.
OF_A_RUN = (
    "the source itself: its earlier versions, messages and files",
    "checkpoints of the run, until newer ones replace them (checkpoint.max_age), and models and states made from them",
    "predictions, quarantined rows and the log of the run",
)

#: Of a state, after the paths of what it was made from.
OF_ANY_STATE = (
    "models, states and predictions made from any of these",
    "backups and snapshots of these places, and disk blocks of files deleted from them",
)

_OF_A_PURGED_FOLDER = (
    "thresholds of splits, sides of missing numbers and bins in the model, which were chosen while the deleted "
    "examples were in",
    "backups, snapshots and object versions of the folder; disk blocks of files that were deleted or replaced",
    "files in the folder that raydt did not write, and other names (hard links) of those that it did",
    "memory of processes that are still running, swap space, core dumps, and logs of Ray",
)

#: Out of reach of the purge of a run.
OF_A_PURGED_RUN = (
    "the source of the run, its deletion log, and files of ids given to update",
    "states, models, predictions and reports that were written elsewhere, and receipts that were printed",
    *_OF_A_PURGED_FOLDER,
)

#: Out of reach of the purge of a state.
OF_A_PURGED_STATE = (
    "the run or the data that the state was made from, earlier states, and files of ids given to update",
    "models, predictions and reports that were made from it, and receipts that were printed",
    *_OF_A_PURGED_FOLDER,
)


# Compile the kernels of a learner in advance, so that processes started later load them from the cache.

#: Rows of the stream of a case, and indices that its sparse features are drawn from.
_ROWS, _WIDTH = 60, 5
#: Rows of the stream of a case with many of them, and rows that are predicted at once.
_MANY_ROWS, _MANY_PREDICTED = 300, 1_000


class Use(Flag):
    """Work that a process does with models, for which kernels are compiled."""

    ALONE = auto()  #: It does all work of a model itself.
    SHARDS = auto()  #: It gives rows to shards with stores of their own.
    THREADS = auto()  #: It divides work among threads.
    KEYS = auto()  #: It takes batches of many models together.
    ROWS = auto()  #: It predicts and learns single rows, as estimators do.


#: What runs need: of one model, of one whose rows shards have, of models by key.
ONE_MODEL = Use.ALONE | Use.THREADS
DIVIDED, BY_KEY = ONE_MODEL | Use.SHARDS, ONE_MODEL | Use.KEYS
EVERY_USE = DIVIDED | BY_KEY | Use.ROWS


def compile_kernels(learner: Learner, options: LearnerOptions | None = None, uses: Use = EVERY_USE) -> None:
    """Run the learner's cases once in this process, without options all of them: then their kernels are loaded."""
    for number, use in _concerning(learner, options, uses, None, False):
        _run(learner.kind, number, use)


def compile_missing(
    learner: Learner,
    options: LearnerOptions | None,
    uses: Use,
    features: Features | None = None,
    weighted: bool = False,
) -> None:
    """As :func:`compile_kernels`, but pass over what is in the cache: those kernels load when they are needed.

    With ``features``, those of rows of other kinds are passed over, too: of rows with sparse features if there are
    none, of rows with weights unless they are ``weighted``.
    """
    for number, use in _concerning(learner, options, uses, features, weighted):
        run = functools.partial(_run, learner.kind, number, use)
        compile_once(f"{learner.kind}-{number}-{use.name}", type(learner).__module__, run)


def _concerning(
    learner: Learner, options: LearnerOptions | None, uses: Use, features: Features | None, weighted: bool
) -> list[tuple[int, Use]]:
    """Return the numbers of the cases whose kernels are needed, of all cases without options, each with its uses."""
    cases = [(n, case) for n, case in enumerate(_cases(learner)) if options is None or learner.concerns(case, options)]
    if features is not None:
        weighted = weighted or bool(getattr(options, "class_weight", None))
        cases = [(n, case) for n, case in cases if weighted or not case.weighted]
        alike = [(n, case) for n, case in cases if case.sparse == (features.sparse > 0)]
        cases = alike or cases  # not every learner has a case of each kind
    return [(number, use) for number, _ in cases for use in Use if use in uses]


def _cases(learner: Learner) -> list[Case]:
    """Return the learner's cases, each with few rows and then with many if it has options for those."""
    cases = learner.cases()
    return [each for case in cases for each in ([dataclasses.replace(case, many={}), case] if case.many else [case])]


@functools.cache
def _run(kind: str, number: int, use: Use) -> None:
    """Run a case for a use; with shards, as the plan of the case has them."""
    learner = learners()[kind]
    case = _cases(learner)[number]
    if use is Use.ALONE:
        _drive(learner, case, 1, WorkPlan())
    elif use is Use.SHARDS:
        _drive(learner, case, 2, case.plan)
    elif use is Use.THREADS:
        call_divided(functools.partial(_drive, learner, case, 1, WorkPlan()))
    elif use is Use.KEYS:
        _drive_together(learner, case)
    else:
        _drive_rows(learner, case)


def _begun(learner: Learner, case: Case, shards: int, plan: WorkPlan) -> tuple[InProcessSession, UpdateBatch]:
    """Return a session that has taken the stream of a case, and the stream."""
    features, batch = small_stream(case)
    options = learner.Options.model_validate({**case.options, **case.many, "kind": learner.kind})
    session = InProcessSession(learner, options, features, shards, plan)
    session.apply(batch)
    return session, batch


def _drive(learner: Learner, case: Case, shards: int, plan: WorkPlan) -> None:
    session, batch = _begun(learner, case, shards, plan)
    session.digest()
    session.restore(*session.state())
    session.digest()  # of trees that nothing has made again yet
    session.finish()
    session.model()
    _predict(session, case, batch)
    if plan.shared_store:  # else shards may have the ids
        session.coordinator.store.find(batch.id)
    if case.classes > 2:
        with contextlib.suppress(InputError):  # of a learner that takes no more classes
            session.apply(_one_more(batch, batch.n_classes))
            session.finish()


def _predict(session: InProcessSession, case: Case, batch: UpdateBatch) -> None:
    rows = np.arange(len(batch.X))
    for asked in (rows, np.resize(rows, _MANY_PREDICTED)):
        sparse: dict[str, Any] = {} if batch.sparse is None else {"sparse": batch.sparse[asked]}
        session.coordinator.predict(batch.X[asked], **sparse)
        if case.classes:
            session.coordinator.predict_proba(batch.X[asked], case.classes, **sparse)


def _drive_together(learner: Learner, case: Case) -> None:
    """Take a batch as those of many keys are, if the learner takes them together."""
    session, batch = _begun(learner, case, 1, NOTHING_DIVIDED)
    more = _one_more(batch, 0)
    group = session.group(more)
    if group is not None:
        group.take([session], ManyBatches([more], False))
    alike = session.coordinator.alike()
    if alike is not None:
        for ask in (alike.digests, alike.models, alike.states):
            ask([session.coordinator])
    edges, labels = np.arange(3), np.zeros(2, dtype=np.int32)
    Prequential.update_all(
        [Prequential(), Prequential()], edges, labels, labels, np.full(2, NO_LEVEL), [True] * 2, edges
    )


def _drive_rows(learner: Learner, case: Case) -> None:
    """Call a model that was neither saved nor restored as estimators do: predictions, single rows, digests again."""
    session, batch = _begun(learner, case, 1, NOTHING_DIVIDED)
    is_clean(batch.X.reshape(-1).view(np.int64))  # of all that is given to an estimator
    session.finish()
    session.digest()
    _predict(session, case, batch)
    session.apply(dataclasses.replace(_one_more(batch, 0), answers=False))
    session.digest()
    session.coordinator.locate(batch.id[-1:])
    if session.coordinator.knows_rows:
        known = session.known_predictions(batch.X, case.classes)
        list(known.without(np.array([0, 1]), session.coordinator.store.slots()[:1]))
    if case.classes:
        row = batch.X[:1]
        session.predict_row(row)
        for op in (INSERT, DELETE_VALUE):
            session.take_row(op, int(batch.id.max()) + 2, row, 0)


def _one_more(batch: UpdateBatch, label: int) -> UpdateBatch:
    """Return the insertion that follows a batch, of a label: also of the first class that nothing was known of."""
    return UpdateBatch(
        len(batch.op),
        np.array([INSERT], dtype=np.int8),
        batch.id.max(keepdims=True) + 1,
        np.ascontiguousarray(batch.X[:1]),
        np.array([label], dtype=batch.y.dtype),
        max(batch.n_classes, label + 1) if batch.n_classes else 0,
        np.array([-1]),
        batch.warmup,
        sparse=None if batch.sparse is None else batch.sparse[np.arange(1)],
        weight=None if batch.weight is None else batch.weight[:1],
    )


def small_stream(case: Case) -> tuple[Features, UpdateBatch]:
    """Draw the features of a case, and one batch: inserts, then deletions, updates, queries and deletions by value."""
    draw = np.random.default_rng(0)
    rows = _MANY_ROWS if case.many else _ROWS
    half = rows // 2
    op = np.repeat(
        np.array([INSERT, DELETE, UPDATE, QUERY, DELETE_VALUE, INSERT], dtype=np.int8), [rows, half, 6, 2, 1, 6]
    )
    ids = np.concatenate([np.arange(rows), np.arange(half), np.arange(half, half + 6), [0] * 3, rows + np.arange(6)])
    n = int(CARRIES_ROW[op].sum())
    label = np.arange(n) % max(case.classes, 3)
    X = np.stack([label + draw.integers(0, 2, n), draw.random(n), np.arange(n) % 3], axis=1)
    if case.missing:
        X[::7, 0] = np.nan
    last = int(CARRIES_ROW[op[: op.tolist().index(DELETE_VALUE)]].sum())  # the row that the deletion by value names
    X[last], label[last] = X[rows - 1], label[rows - 1]
    sparse = None
    if case.sparse:
        drifts = np.arange(n) // 10  # the feature that tells the classes apart changes, so that splits are beaten
        drifts[last] = drifts[rows - 1]
        indices = (label + drifts).astype(np.int32) % _WIDTH
        sparse = SparseRows.of_lengths(np.ones(n, dtype=np.int64), indices, _WIDTH)
    features = Features(("a", "b", "c"), (False, False, True), 3, sparse=_WIDTH * case.sparse)
    if not case.dense:
        X, features = X[:, :0], Features((), (), 3, sparse=_WIDTH)
    weight = (UNIT // 2 * (1 + np.arange(n) % 3)).astype(np.uint32) if case.weighted else None
    y = label.astype(np.float64) if not case.classes else (label % case.classes).astype(np.int32)
    warmup = rows if case.many else min(case.warmup, rows)
    return features, UpdateBatch(
        *(0, op, ids, np.ascontiguousarray(X), y, case.classes, np.full(len(op), -1), warmup),
        sparse=sparse,
        weight=weight,
    )
