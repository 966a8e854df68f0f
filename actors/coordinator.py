"""The coordinator actor: runs a learner's generators, by itself while the model is small, then with the shards.

Invariant: a batch is applied only at the position the model is at. What the driver has sent ahead of a batch that
was not taken in full, or that failed, comes back untouched.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from actors.driver import RayDriver
from actors.environment import use_cpus
from actors.identity import Identity, identity
from actors.liveness import Peer, Watch
from actors.memory import peak_rss_bytes
from actors.progress import Progress, Pulse
from actors.shard import Assignment, groups_of
from actors.writable import own
from raydt.arrays import kernel
from raydt.arrays.types import Arrays
from raydt.examples.updates import BatchResult, Log, UpdateBatch
from raydt.exchange import faults
from raydt.exchange.driver import InProcessDriver
from raydt.exchange.faults import fault
from raydt.exchange.snapshot import Segment, Snapshot
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import BatchCoordinator
from raydt.sessions.local_phase import SmallModel, holds, most_cells
from raydt.sessions.session import fill_within, is_warming
from raydt.sessions.snapshots import take_snapshot
from raydt.sessions.warmup import DIVIDED, ONE_MODEL, compile_missing

_NOWHERE = -1


class Coordinator:
    """A learner's coordinator in a process of its own, which operators find as ``ray::Coordinator``."""

    def __init__(self) -> None:
        self._pulse = Pulse()
        self._coordinator: BatchCoordinator
        self._driver: RayDriver | InProcessDriver
        self._small: SmallModel | None
        self._position: int | None = None  # sequence number of the next update; None = whatever comes first

    def identity(self) -> Identity:
        """Which sources this process has loaded."""
        self._pulse.beat()
        return identity()

    def open(
        self,
        assignment: Assignment,
        plan: WorkPlan,
        shards: Sequence[Peer],
        patience: float,
        cpus: float,
    ) -> None:
        """Build the coordinator of the processes ``shards``, whose shards have begun the epoch."""
        self._pulse.beat()
        epoch, learner, options, features = assignment
        use_cpus(cpus)
        self._most = most_cells(learner.traits(options).divided, plan)
        compile_missing(learner, options, DIVIDED if self._most == 0 else ONE_MODEL)  # as the driver has on its machine
        kernel.load()
        faults.begin_epoch(epoch)
        self._learner, self._options, self._features, self._shards = learner, options, features, list(shards)
        self._plan, self._watch = replace(plan, shared_store=False), Watch(patience)
        self._ray = RayDriver(shards, epoch, self._watch)
        self._begin(self._new())

    def apply(
        self, batches: Sequence[tuple[UpdateBatch, Sequence[Segment] | None]], skip_refused: bool
    ) -> list[BatchResult | None]:
        """Apply batches, each with the segments stored before its snapshot; None after one not taken in full."""
        return [self._apply(batch, skip_refused, segments) for batch, segments in batches]

    def _apply(
        self, batch: UpdateBatch, skip_refused: bool, segments: Sequence[Segment] | None = None
    ) -> BatchResult | None:
        """Apply one batch, with ``segments`` followed by a snapshot; None, without effect, at another position."""
        self._pulse.beat()
        if self._position is not None and batch.start != self._position:
            return None
        fault("coordinator.before_batch")
        self._position = _NOWHERE  # until the batch has ended well
        began = time.perf_counter()
        if self._small is not None and (batch.blocks or not self._small.holds_with(batch)):
            self._divide(self._small)
        digest = self.digest() if batch.digest else None
        before = self._coordinator.statistics() if is_warming(batch) else {}
        result = self._driver.run(self._coordinator.process(own(batch), skip_refused=skip_refused))
        result.digest = digest
        if before and not result.within:
            fill_within(result, batch, before)
        result.seconds = time.perf_counter() - began
        if segments is not None and result.applied == len(batch):
            result.snapshot = self._snapshot(segments)
        result.statistics = self.statistics()
        self._position = batch.start + result.applied
        fault("coordinator.after_batch")
        return result

    def finish(self) -> Log:
        """Complete what waits for more updates; the log of that."""
        self._pulse.beat()
        fault("coordinator.before_finish")
        log = self._driver.run(self._coordinator.finish())
        self._ray.acknowledge()
        return log or {}

    def digest(self) -> str:
        """Digest of the model."""
        self._pulse.beat()
        self._driver.run(self._coordinator.gather_digest())
        return self._coordinator.digest()

    def statistics(self) -> dict[str, int]:
        """Statistics of the coordinator and of the traffic, and ``peak_rss_bytes`` of this process."""
        traffic = self._ray.traffic
        return {
            **self._coordinator.statistics(),
            "rounds": traffic.rounds,
            "bytes_exchanged": traffic.bytes,
            "peak_rss_bytes": peak_rss_bytes(),
        }

    def model(self) -> Arrays:
        """The predict-only model."""
        self._pulse.beat()
        self._driver.run(self._coordinator.gather())
        return self._coordinator.model()

    def snapshot(self, segments: Sequence[Segment]) -> Snapshot:
        """A snapshot here and now, without the ``parts`` that shards have set aside."""
        self._pulse.beat()
        return self._snapshot(segments)

    def holds(self, rows: int, ones: int) -> bool:
        """Whether a model of so many rows is restored here, with its groups, and not at the shards."""
        self._pulse.beat()
        return holds(self._features, self._most, rows, ones)

    def restore(self, state: Arrays, groups: dict[int, Arrays] | None) -> None:
        """Replace everything by a saved state; the next batch may begin anywhere. Without groups, shards have them."""
        self._pulse.beat()
        fault("coordinator.before_restore")
        self._ray.acknowledge()
        if groups is None:
            self._begin(None)
            self._coordinator.restore(own(state))
        else:
            small = SmallModel(self._learner, self._options, self._features, self._most)
            small.restore(own(state), own(groups))
            self._begin(small)
        self._position = None

    def progress(self) -> Progress:
        """Return the progress of this actor; called while the actor works."""
        return Progress(self._pulse.seconds())

    def _new(self) -> SmallModel | None:
        """An empty model, if this process may hold one."""
        return None if self._most == 0 else SmallModel(self._learner, self._options, self._features, self._most)

    def _begin(self, small: SmallModel | None) -> None:
        """Go on with a model that this process holds, or with the shards."""
        self._small = small
        if small is not None:
            self._coordinator, self._driver = small.session.coordinator, small.session.driver
        else:
            compile_missing(self._learner, self._options, DIVIDED)
            shards = sum(process.shards for process in self._shards)
            self._coordinator = self._learner.coordinator(self._options, self._features, shards, self._plan)
            self._driver = self._ray

    def _divide(self, small: SmallModel) -> None:
        """Give the rows of a model to the shards."""
        state, groups = small.session.state()
        self._begin(None)
        self._coordinator.restore(state)
        restored = [
            shard.handle.restore.remote({group: groups[group] for group in np.concatenate(owned).tolist()})
            for shard, owned in zip(self._shards, groups_of(self._features, self._shards), strict=True)
        ]
        self._watch.collect(restored, self._shards)

    def _snapshot(self, segments: Sequence[Segment]) -> Snapshot:
        if self._small is not None:
            snapshot = self._small.session.snapshot(segments)
        else:
            snapshot = self._driver.run(take_snapshot(self._coordinator, segments))
        fault("coordinator.before_snapshot")
        return snapshot
