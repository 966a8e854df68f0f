"""A learner at work: one coordinator and its shards behind one small interface, whatever runs them.

The in-process session is here; the Ray session of the same interface is in ``actors``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from raydt.arrays.types import AnyArray, Arrays
from raydt.errors import HalfAppliedError
from raydt.examples.features import Features
from raydt.examples.updates import BatchResult, Log, UpdateBatch
from raydt.exchange.driver import InProcessDriver
from raydt.exchange.messages import Buckets, Exchange
from raydt.exchange.shard import FeatureShard
from raydt.exchange.snapshot import Segment, Snapshot
from raydt.folders.folder import Folder
from raydt.folders.rows import whole_rows
from raydt.learners.base import Learner, WorkPlan
from raydt.learners.batch_coordinator import BatchCoordinator, Many
from raydt.messages import message
from raydt.sessions.snapshots import take_snapshot, whole

T = TypeVar("T")


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

        ``buckets`` are arrays by row that ``state`` lacks (:func:`raydt.folders.rows.whole_rows`); all may be read from
        ``folder``.
        """

    def work(self) -> list[dict[str, Any]]:
        """One entry per shard: ``shard``, ``columns``, ``requests``, ``seconds``, ``pid``."""

    def close(self) -> None:
        """Release what runs the session."""


def fill_within(result: BatchResult, batch: UpdateBatch, before: Mapping[str, int]) -> None:
    """Enter the statistics within a batch of the warm-up: until it ends, only the number of examples changes."""
    first = batch.start + batch.every - batch.start % batch.every
    wanted = range(first, batch.start + result.applied, batch.every)
    result.within = [{name: count for name, count in before.items() if name != "active"} for _ in wanted]


def is_warming(batch: UpdateBatch) -> bool:
    """Return True if statistics are wanted within a batch of the warm-up."""
    return bool(batch.every) and batch.stop <= batch.warmup


class InProcessSession:
    """Coordinator and shards in this process; with a row cache in the plan shards have stores of their own."""

    def __init__(
        self, learner: Learner, options: Any, features: Features, shards: int = 1, plan: WorkPlan | None = None
    ) -> None:
        plan = plan or WorkPlan()
        if plan.row_cache_bytes is not None:
            plan = WorkPlan(plan.local_work_limit, plan.row_cache_bytes, shared_store=False)
        self.coordinator: BatchCoordinator = learner.coordinator(options, features, shards, plan)
        store = self.coordinator.store if plan.shared_store else None
        self.shards = [
            FeatureShard(learner.shard(options, features, groups, store), index)
            for index, groups in enumerate(features.assign(shards))
        ]
        self.driver = InProcessDriver(self.shards)
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
            result = self.driver.run(exchange)
            self._restored, self.whole = False, True
            return result
        except BaseException:
            self.whole = not (begun or self._restored) and self.coordinator.store.changes == changes
            raise

    def require_whole(self) -> None:
        """Refuse (HalfAppliedError) to go on with a part of a change."""
        if not self.whole:
            raise HalfAppliedError(message("models.interrupted"))

    def __getstate__(self) -> dict[str, Any]:
        """What is copied."""
        self.require_whole()
        return self.__dict__

    def take(self, batch: UpdateBatch, *, skip_refused: bool = False) -> BatchResult:
        """Apply one batch, without the statistics, which may take longer than one update."""
        return self._change(self.coordinator.process(batch, skip_refused=skip_refused), begun=False)

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
        """What takes this batch with those of other sessions (``keyed.members``); None if :meth:`apply` has to."""
        self.require_whole()
        if self._restored or len(self.shards) != 1 or batch.barrier is not None or batch.every or not len(batch):
            return None
        if batch.tolerated is not None:
            return None
        return self.coordinator.group(batch, self.shards[0].worker)

    def predict_row(self, row: AnyArray) -> int | None:
        """Return the predicted class code of one row, as :meth:`BatchCoordinator.predict_row`."""
        return self.coordinator.predict_row(row, self.shards[0].worker) if len(self.shards) == 1 else None

    def apply(self, batch: UpdateBatch, *, skip_refused: bool = False) -> BatchResult:
        """Apply one batch."""
        began = time.perf_counter()
        digest = self.digest() if batch.digest else None
        before = self.coordinator.statistics() if is_warming(batch) else {}
        result = self.take(batch, skip_refused=skip_refused)
        result.digest = digest
        if before and not result.within:
            fill_within(result, batch, before)
        result.seconds = time.perf_counter() - began
        wanted = batch.barrier is not None and result.applied == len(batch)
        segments = batch.barrier.segments() if batch.barrier is not None and wanted else None
        if segments is not None:
            result.snapshot = self.snapshot(segments)
        result.statistics = self.statistics()
        return result

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

    def finish(self) -> Log:
        """Complete what waits for more updates; the log of that."""
        return self._change(self.coordinator.finish(), begun=True) or {}

    def digest(self) -> str:
        """Digest of the model."""
        self.require_whole()
        self.driver.run(self.coordinator.gather_digest())
        return self.coordinator.digest()

    def rest(self) -> None:
        """Drop what the next update or digest makes again from the rows."""
        self.coordinator.rest()

    def trim(self) -> None:
        """Rest, and give up room for more rows and nodes; the next update takes up to some milliseconds longer."""
        self.coordinator.trim()
        for shard in self.shards:
            shard.trim()

    def statistics(self) -> dict[str, int]:
        """Statistics of the coordinator and of the traffic."""
        self.require_whole()
        traffic = self.driver.traffic
        return {**self.coordinator.statistics(), "rounds": traffic.rounds, "bytes_exchanged": traffic.bytes}

    def model(self) -> Arrays:
        """The predict-only model."""
        self.require_whole()
        self.driver.run(self.coordinator.gather())
        return self.coordinator.model()

    def state(self) -> tuple[Arrays, dict[int, Arrays]]:
        """State of the coordinator, and of every feature group by number."""
        return whole(self.snapshot())

    def snapshot(self, segments: Sequence[Segment] = ()) -> Snapshot:
        """A snapshot here and now."""
        self.require_whole()
        snapshot = self.driver.run(take_snapshot(self.coordinator, segments))
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
