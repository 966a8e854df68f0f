"""The coordinator actor: runs a learner's generators against the shard actors.

Invariant: a batch is applied only at the position the model is at. What the driver has sent ahead of a batch that
was not taken in full, or that failed, comes back untouched.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from actors.boundary import own
from actors.identity import Identity, identity
from actors.memory import peak_rss_bytes
from actors.progress import Pulse
from actors.rounds import RayDriver
from actors.watch import Peer, Watch
from raydt.examples.features import Features
from raydt.examples.updates import BatchResult, Log, UpdateBatch
from raydt.exchange import faults
from raydt.exchange.faults import fault
from raydt.exchange.snapshot import Segment, Snapshot
from raydt.learners.base import Learner, LearnerCoordinator, LearnerOptions, WorkPlan
from raydt.sessions.session import Arrays
from raydt.sessions.snapshots import take_snapshot

_NOWHERE = -1


class Coordinator:
    """A learner's coordinator in a process of its own.

    A plain class that Ray wraps; operators find it as ``ray::Coordinator`` in ``ps``.
    """

    def __init__(self) -> None:
        self._pulse = Pulse()
        self._coordinator: LearnerCoordinator
        self._driver: RayDriver
        self._position: int | None = None  # sequence number of the next update; None = whatever comes first

    def identity(self) -> Identity:
        """Which sources this process has loaded."""
        self._pulse.beat()
        return identity()

    def open(
        self,
        epoch: int,
        learner: Learner,
        options: LearnerOptions,
        features: Features,
        plan: WorkPlan,
        shards: Sequence[Peer],
        patience: float,
    ) -> None:
        """Build the coordinator of ``shards``, which have begun ``epoch``."""
        self._pulse.beat()
        faults.begin_epoch(epoch)
        self._coordinator = learner.coordinator(options, features, len(shards), replace(plan, shared_store=False))
        self._driver = RayDriver(shards, epoch, Watch(patience))

    def apply(
        self, batch: UpdateBatch, skip_refused: bool, segments: Sequence[Segment] | None = None
    ) -> BatchResult | None:
        """Apply one batch; None, and no effect, if it does not begin at the model's position.

        With ``segments``, a batch that was applied in full is followed by a snapshot, without its ``parts``.
        """
        self._pulse.beat()
        if self._position is not None and batch.start != self._position:
            return None
        fault("coordinator.before_batch")
        self._position = _NOWHERE  # until the batch has ended well
        began = time.perf_counter()
        result = self._driver.run(self._coordinator.process(own(batch), skip_refused=skip_refused))
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
        self._driver.acknowledge()
        return log or {}

    def digest(self) -> str:
        """Digest of the model."""
        self._pulse.beat()
        return self._coordinator.digest()

    def statistics(self) -> dict[str, int]:
        """Statistics of the coordinator and of the traffic, and ``peak_rss_bytes`` of this process."""
        traffic = self._driver.traffic
        return {
            **self._coordinator.statistics(),
            "rounds": traffic.rounds,
            "bytes_exchanged": traffic.bytes,
            "peak_rss_bytes": peak_rss_bytes(),
        }

    def model(self) -> Arrays:
        """The predict-only model."""
        self._pulse.beat()
        return self._coordinator.model()

    def snapshot(self, segments: Sequence[Segment]) -> Snapshot:
        """A snapshot here and now, without its ``parts``: those the shards have set aside."""
        self._pulse.beat()
        return self._snapshot(segments)

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state; the next batch may begin anywhere."""
        self._pulse.beat()
        fault("coordinator.before_restore")
        self._driver.acknowledge()
        self._coordinator.restore(own(state))
        self._position = None

    def progress(self) -> float:
        """Processor seconds of the working threads; called while the actor works."""
        return self._pulse.seconds()

    def _snapshot(self, segments: Sequence[Segment]) -> Snapshot:
        snapshot = self._driver.run(take_snapshot(self._coordinator, segments))
        fault("coordinator.before_snapshot")
        return snapshot
