"""The coordinating half that all learners share which admit their updates themselves: admission, ids and births.

A batch is admitted in *runs*: ids become slots, bad updates are refused before anything of them is applied, and the
learner takes the run (``_take``). A run ends before a deletion by value, which can name its example only once
everything before it is applied, and before an update that is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import as_slice
from raydt.arrays.digest import Part
from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import AnyArray, Arrays, Floats, Ints, Slots
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.errors import ConfigError
from raydt.examples.admission import Admission
from raydt.examples.features import Features
from raydt.examples.row_digest import RowDigest
from raydt.examples.store import ExampleStore
from raydt.examples.targets import Targets
from raydt.examples.updates import UNKNOWN_VALUE, BatchResult, Log, Refusal, UpdateBatch
from raydt.examples.weighting import Weighting
from raydt.exchange.blocks import Block
from raydt.exchange.messages import Exchange, Tell
from raydt.exchange.snapshot import OWNED
from raydt.messages import message


def rows_in(state: Mapping[str, AnyArray]) -> int:
    """Return how many examples a state has, with those that wait to be deleted."""
    return int(state[OWNED][0] + state[OWNED][2]) if OWNED in state else len(state["born"])


class Many(Protocol):
    """A group of models whose batches one call takes (``raydt.learners.many``)."""

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

    @property
    def weighs(self) -> bool:
        """Whether an example counts other than 1, or will: then every update takes a batch."""
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

    def finish(self) -> Exchange[Log | None]:
        """Complete what waits for more updates (an unfinished warm-up); the log of that, if it has one."""
        yield from ()
        return None

    @abstractmethod
    def model(self) -> Arrays:
        """Return the arrays of the predict-only model: no training rows."""

    @abstractmethod
    def digest(self) -> str:
        """Return ``sha256:`` of the canonical bytes of the model."""

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

    def gather_digest(self) -> Exchange[None]:
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
            logs.append((yield from self._enter(batch, slice(begin, stop), admitted, result)))
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
            logs.append((yield from self._enter(batch, slice(stop, stop + 1), admitted, result)))
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

    def _enter(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Record labels and births of the new examples of a part, and take it."""
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
        return (yield from self._take(batch, part, admitted, result))

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
        """What a digest has of some live rows beside their ids: what follows from nothing else."""
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
