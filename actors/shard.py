"""The shard actor: a :class:`raydt.exchange.shard.FeatureShard` in a process of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from actors.identity import Identity, identity
from actors.memory import peak_rss_bytes
from actors.progress import Pulse
from actors.writable import own
from raydt.arrays import kernel
from raydt.examples.features import Features
from raydt.exchange import faults
from raydt.exchange import shard as exchange_shard
from raydt.exchange.faults import fault
from raydt.exchange.messages import GroupSnapshot, Payload, Position
from raydt.learners.base import Learner, LearnerOptions
from raydt.sessions.warmup import compile_missing


class FeatureShard:
    """One shard: owns feature groups and answers requests about them.

    A plain class that Ray wraps; operators find it as ``ray::FeatureShard`` in ``ps``. It is built in two steps,
    so that a process with other sources is found out before it is handed objects it may not understand.
    """

    def __init__(self) -> None:
        self._pulse = Pulse()
        self._shard: exchange_shard.FeatureShard

    def identity(self) -> Identity:
        """Which sources this process has loaded."""
        self._pulse.beat()
        return identity()

    def open(
        self,
        epoch: int,
        index: int,
        learner: Learner,
        options: LearnerOptions,
        features: Features,
        groups: npt.NDArray[np.int64],
        at_once: bool,
    ) -> None:
        """Build shard ``index``, which owns ``groups``, and begin ``epoch`` (at least 1).

        ``at_once``: it has work from the first row on, and not only when the coordinator's process has too much.
        """
        self._pulse.beat()
        compile_missing(learner, options)  # as the driver has on its machine
        if at_once:
            kernel.load()
        faults.begin_epoch(epoch, index)
        self._shard = exchange_shard.FeatureShard(learner.shard(options, features, own(groups)), index)
        self._shard.begin_epoch(epoch)

    def receive(self, epoch: int, seq: int, method: str, shared: Payload, each: Payload) -> Any:
        """Deliver message ``seq``; its payload is what all shards got and what this one got."""
        self._pulse.beat()
        fault("shard.before_answer")
        reply = self._shard.receive(epoch, seq, method, own({**shared, **each}))
        fault("shard.after_answer")
        return reply

    def take_aside(self, number: Position) -> dict[int, GroupSnapshot]:
        """Return the last snapshot, of this number, once; called concurrently with the work."""
        self._pulse.beat()
        fault("shard.before_parts")
        return self._shard.take_aside(number)

    def restore(self, groups: dict[int, dict[str, Any]]) -> None:
        """Replace everything by the arrays of the owned groups."""
        self._pulse.beat()
        fault("shard.before_restore")
        self._shard.worker.restore(own(groups))

    def work(self) -> dict[str, Any]:
        """Return the columns and work of this shard, and ``peak_rss_bytes`` of this process."""
        return {**self._shard.work(), "peak_rss_bytes": peak_rss_bytes()}

    def progress(self) -> float:
        """Processor seconds of the working threads; called while the actor works."""
        return self._pulse.seconds()
