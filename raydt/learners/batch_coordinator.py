"""The coordinating half that all learners share which admit their updates themselves: admission, ids and births.

A batch is admitted in *runs*: ids become slots, bad updates are refused before anything of them is applied, and the
learner takes the run (``_take``). A run ends before a deletion by value, which can name its example only once
everything before it is applied, and before an update that is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, field_validator

from raydt.arrays.blocks import SparseRows, as_slice
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Ints, Slots
from raydt.arrays.kernel import Repeated, kernel
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.errors import ConfigError
from raydt.evaluation.scoring import NO_LEVEL
from raydt.examples.digest import Part, RowDigest
from raydt.examples.store import ExampleStore, Weighting, admit_updates
from raydt.examples.updates import (
    BITS,
    DELETE,
    DELETE_VALUE,
    INSERT,
    MOST,
    QUERY,
    UNIT,
    UNKNOWN_VALUE,
    UPDATE,
    Admission,
    BatchResult,
    Features,
    Log,
    Refusal,
    Targets,
    UpdateBatch,
    by_label,
    joined,
    no_targets,
    nothing_admitted,
    out_of_range,
)
from raydt.exchange.messages import OWNED, Block, Exchange, Tell
from raydt.messages import message
from raydt.trees.counted_tree import REBUILDS, REBUILT_ROWS


def rows_in(state: Mapping[str, AnyArray]) -> int:
    """Return how many examples a state has, with those that wait to be deleted."""
    return int(state[OWNED][0] + state[OWNED][2]) if OWNED in state else len(state["born"])


class PredictionsWithout(NamedTuple):
    """Predictions that change when groups of examples are left out: c of them, for rows that are known.

    ``untold`` are groups of which more changes than this says.
    """

    group: Ints  #: Shape (c,): number of the group.
    row: Ints  #: Shape (c,): number of the known row.
    predicted: Targets  #: Shape (c,): class code, or number.
    shares: Floats  #: Shape (c, n_classes); (c, 0) of numbers.
    untold: Ints


class KnownPredictions(Protocol):
    """Predictions of some rows, and what they would be without some examples; the model is only read."""

    predicted: Targets  #: Shape (m,): class codes, or numbers.
    shares: Floats  #: Shape (m, n_classes); (m, 0) of numbers.

    def without(self, begins: Ints, slots: Slots) -> Iterator[PredictionsWithout]:
        """Yield the changes, some groups at a time; ``begins``, (groups + 1,), is where each begins in ``slots``."""


class Many(Protocol):
    """A group of models whose batches one call takes (``raydt.learners.tree_coordinator``)."""

    def take(self, sessions: Sequence[Any], batches: Any) -> list[BatchResult | None]:
        """Take the batches of some sessions; None of those that go the usual way: nothing of them is done then."""


class BatchCoordinator(ABC):
    """The coordinating half of a learner, without input and output: what all learners share, and the contract.

    It holds ids, labels and births of the live examples, and admits the updates of a batch. A learner gives the
    abstract methods, and overrides others where it differs.
    """

    #: Whether shards own the rows, and write them: then ``state`` has :data:`OWNED` instead of arrays by example.
    rows_are_owned: ClassVar[bool] = False
    _digested: RowDigest | None = None
    _seq = 0  #: Updates so far.
    _warmup = 0  #: How many of them are the warm-up, of a learner that counts it in updates.
    #: What examples count, of a learner that takes weights.
    _weighting: Weighting | None = None
    #: The live examples; a coordinator that has them elsewhere overrides :attr:`store`.
    _store: ExampleStore
    #: The rows, where only the shards have them.
    _rows: RowsOnShards
    #: Predictions of :meth:`model`: ``Predictor(features, model)``.
    Predictor: ClassVar[type[Any]]
    features: Features

    @property
    def store(self) -> ExampleStore:
        """The live examples: their ids, labels and births by slot."""
        return self._store

    @property
    def shared(self) -> Any:
        """Arrays of the only shard, where it is in the coordinator's process (``WorkPlan.shared_store``)."""
        return self.store

    # ---------------------------------------------------------------- what a learner gives

    @abstractmethod
    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Take the admitted updates of one part of the batch; returns the learner's log of them.

        Labels and births of the new examples are in the store; what else is to be kept of them is up to the learner.
        It fills in ``predictions`` and ``path`` of the result.
        """

    @abstractmethod
    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch. Stops before the first bad update, or passes it over if ``skip_refused``.

        Until the store admits the first update nothing of the model changes: room is made before, so that a batch for
        which there is no memory has no effect. An array's length is what says that it has room, and is changed last.
        """

    def take_row(
        self, op: int, number: int, row: Floats, code: int, worker: Any
    ) -> tuple[bool | None, Exchange[Any] | None]:
        """Insert one example (``INSERT``), or delete the oldest that equals it (``DELETE_VALUE``), without a batch.

        ``number`` is the id of a new example, ``row`` has shape (1, d), ``worker`` is that of the only shard. Returns
        True once it is done, False if no live example equals it, and None if it takes a batch: nothing has changed
        then; and what is left to run, if anything is.
        """
        return None, None

    def group(self, batch: UpdateBatch, worker: Any) -> Many | None:
        """Return what takes this batch with those of other models, by one call; None if it goes the usual way.

        ``worker`` is that of the only shard. Models with the same group may be taken together.
        """
        return None

    def alike(self) -> Any:
        """Return what gives ``digests``, ``models`` and ``states`` of this model and others, each by one call; or None.

        Each takes coordinators with the same answer, of no live example none, and gives what each has alone.
        """
        return None

    @property
    def weighs(self) -> bool:
        """True if an example counts other than 1, or will: then every update takes a batch."""
        balanced = self._weighting is not None and (self._weighting.is_open or self._weighting.factors is not None)
        return balanced or self.store.weight is not None

    def _require_warmup(self, batch: UpdateBatch, kind: str, needs: str = "") -> None:
        """Refuse a stream without a warm-up: a ConfigError, if a learner ``needs`` one or has yet to weigh the classes.

        Else what is derived from the first rows would depend on how the stream is cut, and on who does the work.
        """
        if self._weighting is not None and self._weighting.is_open:
            needs = needs or message("learners.needs_classes")
        if needs and batch.start == 0 and not batch.warmup:
            raise ConfigError(message("learners.no_warmup", kind=kind, needs=needs))

    def predict_row(self, row: Floats, worker: Any) -> int | None:
        """Return the class code that has the largest share, of equals the smallest; None if it takes a batch."""
        return None

    @property
    def knows_rows(self) -> bool:
        """True if :meth:`known_predictions` answers, after :meth:`gather_rows`."""
        return False

    def known_predictions(self, X: Floats, n_classes: int) -> KnownPredictions:
        """Return what tells the predictions of rows, shape (m, d), without examples, exactly and without a change."""
        raise NotImplementedError

    def finish(self) -> Exchange[Log | None]:
        """Complete what waits for more updates (an unfinished warm-up); the log of that, if it has one."""
        yield from ()
        return None

    @abstractmethod
    def model(self) -> Arrays:
        """Return the arrays of the predict-only model: no training rows."""

    @abstractmethod
    def digest(self, former: bool = False) -> str:
        """Return the digest of the model: ``sha256:`` and 64 hexadecimal digits.

        ``former``: in the format before the present one, of a learner that has changed it since (``Traits.digests``).
        """

    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Return ``active``, ``nodes``, ``leaves``, ``depth``, ``rebuilds``, ``rebuilt_rows`` now."""

    @abstractmethod
    def state(self, slots: Slots) -> Arrays:
        """Return everything but :meth:`rows`, births and features, in a canonical order, as copies.

        Arrays by example are in the order of ``slots`` (all that live). Copies, because they are written while the next
        batches change the originals.
        """

    @abstractmethod
    def restore(self, state: Arrays) -> None:
        """Replace everything by saved arrays, whose examples take slots 0, 1, ... in their order."""

    def gather(self) -> Exchange[None]:
        """Fetch from the shards what ``model`` and predictions need of them, if anything; lost with an update."""
        yield from ()

    def gather_state(self) -> Exchange[None]:
        """Fetch from the shards what ``state`` needs of them, if anything; lost with an update."""
        yield from ()

    def gather_rows(self) -> Exchange[None]:
        """Have the shards know what :meth:`known_predictions` looks at; the model stays as it is."""
        yield from ()

    def gather_digest(self, former: bool = False) -> Exchange[None]:
        """Fetch from the shards what ``digest`` needs of them, by default as for ``state``; lost with an update."""
        yield from self.gather_state()

    # ---------------------------------------------------------------- a warm-up that ends early

    def _shorten_warmup(self, batch: UpdateBatch) -> Exchange[Log]:
        """End the warm-up before a batch that says so; the log of that.

        To be called before anything else is done for the batch. So a batch that is refused finds a whole model, which
        is that of the shorter warm-up.
        """
        if not batch.ends_warmup or not self._is_cut_short(batch.warmup):
            return {}
        self.store.changes += 1  # an ending that is broken off leaves a part of a model
        log = yield from self._end_warmup()
        self.store.changes -= 1
        return log

    def _is_cut_short(self, updates: int) -> bool:
        """Return True if a warm-up of so many updates would be over, but the one under way is not."""
        return self._seq < self._warmup

    def _end_warmup(self) -> Exchange[Log]:
        """End the warm-up that is under way; the log of that."""
        return (yield from self.finish()) or {}

    # ---------------------------------------------------------------- admission

    def _admit(
        self,
        batch: UpdateBatch,
        part: slice,
        admitted: Admission,
        result: BatchResult,
        skip_refused: bool,
        faults: npt.NDArray[np.int8] | None = None,
    ) -> Exchange[list[Log]]:
        """Admit a part of the batch, take it, and return its logs.

        ``result.applied`` becomes ``part.stop``, or the position of the bad update at which admission stops. ``faults``
        says of each update of the batch why the learner refuses it, 0 where it does not. InputError, before anything
        has changed, if the weights add up to too much.
        """
        if part.start == 0 and self._weighting is not None and self._weighting.is_too_much(batch.weight, batch.y):
            self._weighting.require((yield from self._sum_of_weights()))
        fault = admitted.fault
        logs: list[Log] = []
        begin, end = part.start, part.stop
        refused = np.flatnonzero(faults[:end]) if faults is not None else np.empty(0, dtype=np.int64)
        while begin < end:
            limit = int(refused[refused >= begin].min(initial=end))
            stop = yield from self._admit_run(batch, slice(begin, limit), skip_refused, admitted)
            self._enter(batch, slice(begin, stop), admitted)
            logs.append((yield from self._take(batch, slice(begin, stop), admitted, result)))
            if stop == end:
                break
            if stop == limit and faults is not None:
                fault[stop] = faults[stop]
            elif not fault[stop]:
                yield from self._find_deleted(batch, stop, int(admitted.row[stop]), admitted)
            if fault[stop] and not (skip_refused or batch.tolerates(stop)):
                result.applied = stop
                return logs
            # Each update that does not stop admission is in one part, refused ones too: a learner counts updates.
            self.store.changes += 1
            self._enter(batch, slice(stop, stop + 1), admitted)
            logs.append((yield from self._take(batch, slice(stop, stop + 1), admitted, result)))
            begin = stop + 1
        result.applied = end
        return logs

    def _sum_of_weights(self) -> Exchange[int]:
        """Add up what the live examples count, in units."""
        yield from ()
        assert self._weighting is not None
        return self._weighting.sum_of(self.store)

    def _admit_run(self, batch: UpdateBatch, part: slice, skip_refused: bool, admitted: Admission) -> Exchange[int]:
        """Admit updates of a part, as :meth:`ExampleStore.admit`; returns where that stopped."""
        yield from ()
        if batch.weight is not None:
            self.store.weigh()  # makes room, before anything has changed
        if self._weighting is not None:
            self._weighting.reserve(self.store)
        return self.store.admit(batch.op[: part.stop], batch.id, part.start, skip_refused, admitted)

    def _find_deleted(self, batch: UpdateBatch, position: int, row: int, admitted: Admission) -> Exchange[None]:
        """Admit a deletion by value: of the oldest live example that equals its row."""
        value = {} if batch.sparse is None else {"sparse": batch.sparse}
        equal = yield from self.find_equal(batch.X, row, batch.y[row].item(), **value)
        if len(equal):
            admitted.old[position] = equal[0]
            self.store.discard(int(equal[0]))
        else:
            admitted.fault[position] = UNKNOWN_VALUE

    def _enter(self, batch: UpdateBatch, part: slice, admitted: Admission) -> None:
        """Record labels and births of the new examples of a part."""
        added = (admitted.new[part] >= 0).nonzero()[0] + part.start
        if len(added):
            new = as_slice(added)
            slots, rows = admitted.new[new], as_slice(admitted.row[new])
            place = as_slice(slots)
            weights = None if batch.weight is None else batch.weight[rows]
            self.store.enter(place, batch.y[rows], batch.start + added, weights)
            if self._weighting is not None:
                self._weighting.enter(self.store, place)
            if self._digested is not None:
                self._digested.note(self.store.id[slots])
        if self._digested is not None:
            old = admitted.old[part]
            self._digested.note(self.store.id[old[old >= 0]])

    @staticmethod
    def _summarise(admitted: Admission, result: BatchResult) -> None:
        """Enter the refused updates, and the numbers of inserts and deletes, into the result."""
        result.refused = [Refusal(int(i), int(admitted.fault[i])) for i in admitted.fault.nonzero()[0]]
        result.inserts = int(np.count_nonzero(admitted.new >= 0))
        result.deletes = int(np.count_nonzero(admitted.old >= 0))

    @staticmethod
    def _read(slots: Slots, rows: Ints, blocks: tuple[Block, ...], **more: AnyArray) -> Exchange[None]:
        """Have the shards put rows of the source, which they have read themselves, into slots; ``more`` is sent too."""
        if len(slots):
            yield Tell("read", {"slots": slots, "rows": rows, "blocks": blocks, **more})

    # ---------------------------------------------------------------- predictions

    def predictor(self) -> Any:
        """Return predictions of the model as it is now."""
        return self.Predictor(self.features, self.model())

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Return shares of the classes, shape (n, n_classes), after :meth:`gather`."""
        shares: Floats = self.predictor().predict_proba(X, n_classes, sparse)
        return shares

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> Targets:
        """Return class codes or, of a regression, numbers, shape (n,), after :meth:`gather`."""
        targets: Targets = self.predictor().predict(X, sparse)
        return targets

    @property
    def class_factors(self) -> Ints | None:
        """Factors of balanced classes, in units, once they are resolved."""
        return None if self._weighting is None else self._weighting.factors

    def weigh_classes(self, factors: Ints) -> None:
        """Balance classes by these factors, in units, not by those that the first examples would give."""
        assert self._weighting is not None
        self._weighting.given = factors

    # ---------------------------------------------------------------- the examples

    def find_equal(self, X: Floats, row: int, y: float, sparse: SparseRows | None = None) -> Exchange[Slots]:
        """Return the slots of the live examples equal to (X[row], sparse[row], y), the oldest first."""
        rows = RowBlock.of(X, sparse).take(np.array([row]))
        slots = self._alike(rows)
        slots = slots[self.store.y[slots] == y]
        slots = slots[(yield from self._equal(slots, rows))]
        oldest_first: Slots = slots[np.argsort(self.store.born[slots])]
        return oldest_first

    def _alike(self, row: RowBlock) -> Slots:
        """Return slots of live examples, among them all that equal a row: here all, in a tree those of its leaf."""
        return self.store.slots()

    def _equal(self, slots: Slots, row: RowBlock) -> Exchange[Any]:
        """Return which of the rows in some slots equal one row."""
        return (yield from self._rows.equal(slots, row))

    def locate(self, ids: Ints) -> Arrays:
        """Return label ``y`` of live examples, in the order of ``ids``, and where the model holds them."""
        slots = self.store.find(ids)
        return {"y": self.store.y[slots], **self._positions(slots)}

    def _positions(self, slots: Slots) -> Arrays:
        """Return the learner's own columns of a receipt, of a tree ``leaf``: its position in preorder."""
        return {}

    def in_order_of_birth(self) -> Slots:
        """Slots of the live examples in order of birth. O(n log n)."""
        return self.store.in_order_of_birth()

    def born(self, slots: Slots) -> Ints:
        """Number of the update that inserted each example."""
        return self.store.born[slots]

    def rows(self, slots: Slots) -> Arrays:
        """Return copies of what never changes of examples: ``id``, ``y`` and, unless all are 1, ``weight``."""
        rows: Arrays = {"id": self.store.id[slots], "y": self.store.y[slots]}
        weights = self.store.weights(slots)
        return rows if weights is None else rows | {"weight": weights}

    def rest(self) -> None:
        """Drop what the next update or digest makes again from the rows: of a model that may wait for long."""
        if self._digested is not None:
            self._digested.forget()

    def trim(self) -> None:
        """Rest, and give up room for more examples: of a model that has waited for long."""
        self.rest()
        self.store.trim()

    # ---------------------------------------------------------------- the digest

    def _row_columns(self, slots: Slots) -> Arrays:
        """Return what a digest has of some live rows beside their ids: what follows from nothing else."""
        return {"y": self.store.y[slots]}

    def _class_parts(self) -> list[Part]:
        """Part of the digest for the factors of balanced classes, once they are resolved; when they were is none."""
        return [] if self._weighting is None else list(self._weighting.digested().items())

    def _row_part(self) -> Part:
        """Part of the digest for all live rows. The first costs O(n log n), the next O(log n) for each row changed."""
        if self._digested is None:
            self._digested = RowDigest(self.store)
        return self._digested.part(self._row_columns, self._has_weights())

    def _has_weights(self) -> bool:
        """Return True if the digest has weights: an example whose slot is not free has another weight than 1."""
        return self.store.uneven > 0


# The coordinating half that learners share whose updates take effect one by one, each as it comes.
#
# Slots that a batch has emptied are released at its end: until then every shard still finds the deleted rows in them.

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

    @property
    def seq(self) -> int:
        """Number of the next update."""
        return self._seq

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


# The log of a batch: one entry for each rebuild of a subtree.

#: Where a rebuild was done (the learner's log).
RESET, COORDINATOR, SHARDS = 0, 1, 2


#: One rebuild of a batch. Entry 0 of a log only counts, in ``rows``, the entries after it.
REBUILD = np.dtype(
    [
        ("stamp", np.int64),
        ("rows", np.int64),
        ("nodes", np.int64),
        ("seconds", np.float64),
        ("depth", np.int32),
        ("place", np.int32),
    ]
)


def new_log(rebuilds: int) -> npt.NDArray[np.void]:
    """An empty log with room for so many rebuilds."""
    return np.zeros(rebuilds + 1, dtype=REBUILD)


def logged(log: npt.NDArray[np.void]) -> dict[str, AnyArray]:
    """The rebuilds of a log, by column: ``seq``, ``rows``, ``depth``, ``nodes``, ``place``, ``seconds``."""
    done = log[1 : 1 + int(log["rows"][0])]
    columns = {name: done[name].copy() for name in ("rows", "depth", "nodes", "place", "seconds")}
    return {"seq": done["stamp"] >> 1, **columns, "place": columns["place"].astype(np.int8)}


@kernel
def record(tree: Any, log: Any, node: int, stamp: int, rows: int, nodes: int, place: int, seconds: float) -> None:
    """Note one rebuild."""
    at = log[0].rows + 1
    log[0].rows = at
    log[at].stamp = stamp
    log[at].rows = rows
    log[at].nodes = nodes
    log[at].seconds = seconds
    log[at].depth = tree.nodes[node].depth
    log[at].place = place
    tree.reg[REBUILDS] += 1
    tree.reg[REBUILT_ROWS] += rows


# Updates of one example each, without a batch: what learners share whose updates take effect one by one.
#
# A batch of one update costs many small arrays, which take longer than the update. Here the buffers are used again, and
# the work itself is done by the kernels of a batch: so that no bit depends on which way an update came.


class RowUpdates:
    """Buffers of one update, and its admission."""

    def __init__(self, columns: int) -> None:
        self.rows = RowBlock.of(np.empty((1, columns)))
        self._op, self._id = np.full(1, INSERT, dtype=np.int8), np.empty(1, dtype=np.int64)
        self._admitted, self._admit = nothing_admitted(self._op), Repeated(admit_updates)

    def take(self, row: Floats) -> RowBlock:
        """Return a row, shape (1, d), as kernels take it; valid until the next one."""
        self.rows.X[:] = row
        return self.rows

    def insert(self, store: ExampleStore, digested: RowDigest | None, number: int, code: int, seq: int) -> int:
        """Admit an example with an id that no live one has; returns its slot. The store has room."""
        self._id[0] = number
        store.admit(self._op, self._id, 0, False, self._admitted, self._admit)
        slot = int(self._admitted.new[0])
        store.y[slot], store.born[slot] = code, seq
        if digested is not None:
            digested.note(self._id)
        return slot

    def delete(self, store: ExampleStore, digested: RowDigest | None, slot: int) -> None:
        """Take a live example out of the store; :meth:`release` comes after the learner has let go of it."""
        if digested is not None:
            digested.note(store.id[slot : slot + 1])
        store.discard(slot)

    def release(self, store: ExampleStore, slot: int) -> None:
        """Let the slot of a deleted example be used again."""
        self._admitted.old[0] = slot
        store.release(self._admitted.old)


# The option ``class_weight`` of learners that take weights.


def _is_number(weight: Any) -> bool:
    """Return True if float64 has room for a weight, which may be a number of NumPy, too."""
    if isinstance(weight, bool) or not isinstance(weight, int | float | np.integer | np.floating):
        return False
    return bool(abs(weight) <= MOST)


class ClassWeight(BaseModel):
    """Weights of classes."""

    class_weight: Literal["balanced"] | dict[Any, float] | None = Field(
        None,
        description="weights of classes, which multiply those of examples: balanced: n / (K n_c), so that all classes "
        "weigh the same, found once from the warm-up or first training; or a weight for each label, 1 where none is "
        "given; null: 1",
    )

    @field_validator("class_weight", mode="before")
    @classmethod
    def _positive(cls, given: Any) -> Any:
        """Take labels as text, since keys of files are; refuse what is no weight."""
        if given is None or (isinstance(given, str) and given == "balanced"):
            return given
        if not isinstance(given, dict) or not given:
            raise ValueError(message("settings.class_weight"))
        for label, weight in given.items():
            if not _is_number(weight) or out_of_range(np.array([weight], dtype=np.float64)).any():
                shown = {"what": f"the weight of class {label}", "value": weight}
                raise ValueError(message("settings.weight_range", least=1 / UNIT, most=MOST >> BITS, **shown))
        weights = by_label(given)
        if len(dict(weights)) < len(weights):
            raise ValueError(message("settings.repeated_class"))
        return dict(weights)

    @property
    def weights_by_label(self) -> tuple[tuple[str, float], ...]:
        """Weights of classes that are given by label."""
        return by_label(self.class_weight) if isinstance(self.class_weight, dict) else ()
