"""The shard actor: a :class:`raydt.exchange.shard.FeatureShard` in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from actors.channel import LOOPBACK, Address, Channel
from actors.identity import Identity, identity
from actors.memory import peak_rss_bytes
from actors.progress import Progress, Pulse
from actors.writable import own
from raydt.arrays import kernel
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.exchange import faults
from raydt.exchange import shard as exchange_shard
from raydt.exchange.faults import fault
from raydt.exchange.messages import Ended, GroupSnapshot, Payload, Position
from raydt.learners.base import Learner, LearnerOptions
from raydt.sessions.warmup import compile_missing
from raydt.sources.feature_reader import BlockReport, Opening, SourceFeatures


class FeatureShard:
    """One shard: owns feature groups and answers requests about them.

    A plain class that Ray wraps; operators find it as ``ray::FeatureShard`` in ``ps``. It is built in two steps,
    so that a process with other sources is found out before it is handed objects it may not understand.
    """

    def __init__(self) -> None:
        self._pulse = Pulse()
        self._shard: exchange_shard.FeatureShard
        self._channel: Channel | None = None
        self._source: SourceFeatures

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
        self._features, self._reads = features, learner.traits(options).reads

    def receive(self, epoch: int, seq: int, method: str, shared: Payload, each: Payload) -> Any:
        """Deliver message ``seq``; its payload is what all shards got and what this one got."""
        self._pulse.beat()
        fault("shard.before_answer")
        reply = self._shard.receive(epoch, seq, method, own({**shared, **each}))
        fault("shard.after_answer")
        return reply

    def listen(self, loopback: bool) -> Address:
        """Open a port for the other shards, on this node's own address or for processes of this machine only."""
        self._pulse.beat()
        host = LOOPBACK if loopback else ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self._channel = Channel(self._shard.index, self._shard.epoch, host)
        return self._channel.address

    def connect(self, addresses: Sequence[Address], secret: bytes) -> None:
        """Connect to all shards, which have the same secret, and close the port."""
        self._pulse.beat()
        assert self._channel is not None
        self._channel.connect(addresses, secret)

    def combine(self, epoch: int, seq: int, method: str, shared: Payload, each: Payload) -> tuple[Ended, int]:
        """Deliver message ``seq``, a pass with the other shards; how it ended, and bytes sent to them."""
        self._pulse.beat()
        fault("shard.before_answer")
        assert self._channel is not None
        steps, before = self._shard.combine(epoch, seq, method, own({**shared, **each})), self._channel.sent
        try:
            parts = next(steps)
            while True:
                parts = steps.send(self._channel.swap(parts))
                fault("shard.between_meetings")
        except StopIteration as end:
            fault("shard.after_answer")
            ended: Ended = end.value
            return ended, self._channel.sent - before

    def open_source(self, opening: Opening) -> bool:
        """Open the source, to read what this shard needs of its rows; False if it is not here."""
        self._pulse.beat()
        names = self._features.names
        if self._reads == "columns":
            names = tuple(names[column] for column in self._shard.worker.columns.tolist())
        try:
            self._source = SourceFeatures(opening, names)
        except InputError:
            return False
        self._shard.worker.reader = self._source
        return True

    def check_block(self, start: int, stop: int, unwanted: Sequence[int]) -> BlockReport:
        """Read a block of rows and report on it; called concurrently with the work."""
        self._pulse.beat()
        fault("shard.before_block")
        return self._source.check(start, stop, unwanted)

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

    def progress(self) -> Progress:
        """How far it is; called while the actor works."""
        return Progress(self._pulse.seconds(), self._channel is not None and self._channel.waits)
