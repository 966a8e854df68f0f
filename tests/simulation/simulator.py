"""The third driver of the exchange: the real coordinator and shards, an unreliable network, machines that crash.

Everything happens in one thread in simulated time and follows from a seed. Messages and replies are delayed, lost
(and sent again under the same number) and duplicated; duplicates may arrive rounds or incarnations later. A machine
crashes before or after it handles any message. Then all machines are restored to the last saved state, those that
survived too, under the next epoch, and the batches since are applied again.

Expected: the same digest and predictions as without any of it.
"""

from __future__ import annotations

import copy
import heapq
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from raydt.errors import SequenceGapError, StaleEpochError
from raydt.exchange import Ask, FeatureShard, Tell
from raydt.snapshot import take_snapshot, whole
from raydt.updates import BatchResult, UpdateBatch

RESEND_AFTER = 50


@dataclass(frozen=True)
class Faults:
    """Probabilities per message, and when to crash.

    A machine may crash before and after each message it handles; ``crash_at`` makes it so at the n-th of these
    places in the run, ``crash`` at random, ``most_crashes`` times at the most.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    crash: float = 0.0
    most_crashes: int = 5
    crash_at: int | None = None


class Crash(Exception):
    """A machine is gone; carries its name, ``coordinator`` or the index of a shard."""


@dataclass(order=True)
class Message:
    """A request on its way to a shard, or a reply on its way back."""

    time: int
    order: int
    shard: int = field(compare=False)
    epoch: int = field(compare=False)
    seq: int = field(compare=False)
    request: Ask | None = field(compare=False, default=None)
    reply: Any = field(compare=False, default=None)


class Simulation:
    """A learner's machines and the network between them.

    Parameters
    ----------
    learner, options, features, shards, plan
        As for a session.
    seed : int
    faults : Faults
    machine : type
        The class of the shards.
    save_every : int
        Batches between two saved states.
    """

    def __init__(
        self, learner, options, features, shards, plan, *, seed=0, faults=Faults(), machine=FeatureShard, save_every=3
    ):
        self._make_coordinator = lambda: learner.coordinator(options, features, shards, plan)
        groups = features.assign(shards)
        self._make_shard = lambda index: machine(learner.shard(options, features, groups[index]), index)
        self.random, self.faults, self.save_every = random.Random(seed), faults, save_every
        self.coordinator = self._make_coordinator()
        self.shards = [self._make_shard(index) for index in range(shards)]
        self.events: Counter[str] = Counter()
        self.epoch, self.seq, self.time = 0, 0, 0
        self._network: list[Message] = []
        self._told: set[int] = set()  # shards that have not acknowledged the last Tell
        self._last: Ask | None = None
        self._next_epoch()

    # -- the run ------------------------------------------------------------------------------------------------

    def run(self, batches: Sequence[UpdateBatch]) -> tuple[str, list[BatchResult]]:
        """Apply all batches, whatever happens; the digest and the result of each batch."""
        results: list[BatchResult] = []
        saved: tuple[int, Any] = 0, None
        while True:
            try:
                while len(results) < len(batches):
                    results.append(self.drive(self.coordinator.process(batches[len(results)])))
                    if len(results) - saved[0] >= self.save_every:
                        saved = len(results), self._state()
                self.drive(self.coordinator.finish())
                self._settle()
                return self.coordinator.digest(), results
            except Crash as crash:
                self.events["crash"] += 1
                self._replace(crash.args[0])
                self._restore(saved[1])
                del results[saved[0] :]

    def drive(self, exchange: Iterator[Ask]) -> Any:
        """Drive one generator to its end."""
        replies: list[Any] | None = None
        while True:
            try:
                request = exchange.send(replies)
            except StopIteration as end:
                return end.value
            self._settle()
            self.seq += 1
            self._last, self._told = request, set(range(len(self.shards)))
            for index in range(len(self.shards)):
                self._send(index)
            # A Tell is under way while the coordinator goes on.
            replies = [] if isinstance(request, Tell) else self._settle()

    # -- the network --------------------------------------------------------------------------------------------

    def _settle(self) -> list[Any]:
        """Let time pass until every shard has answered the last request; the answers in shard order."""
        answers: dict[int, Any] = {}
        while self._told:
            message = heapq.heappop(self._network)
            self.time = max(self.time, message.time)
            if message.request is not None:
                self._deliver(message)
            elif message.reply is not None:
                self._receive(message, answers)
            elif message.shard in self._told and (message.epoch, message.seq) == (self.epoch, self.seq):
                self.events["resent"] += 1
                self._send(message.shard)
        return [answers[index] for index in sorted(answers)]

    def _send(self, shard: int) -> None:
        self._post(Message(0, 0, shard, self.epoch, self.seq, request=self._last))
        timer = Message(self.time + RESEND_AFTER, self._tick(), shard, self.epoch, self.seq)
        heapq.heappush(self._network, timer)

    def _post(self, message: Message) -> None:
        """Put a message on the network: once, twice or not at all, now or much later."""
        copies = 0 if self._chance("loss") else 1 + self._chance("duplicate")
        for _ in range(copies):
            delay = self.random.randint(1, 20) + (self.random.randint(100, 2000) if self._chance("late") else 0)
            posted = copy.copy(message)
            posted.time, posted.order = self.time + delay, self._tick()
            heapq.heappush(self._network, posted)

    def _deliver(self, message: Message) -> None:
        """A request reaches a shard, which answers or refuses it."""
        self._perhaps_crash(message.shard)
        payload = copy.deepcopy(message.request.for_shard(message.shard))
        try:
            reply = self.shards[message.shard].receive(message.epoch, message.seq, message.request.method, payload)
        except (StaleEpochError, SequenceGapError) as refusal:
            assert (message.epoch, message.seq) < (self.epoch, self.seq), "a message of this round was refused"
            self.events[type(refusal).__name__] += 1
            return
        self._perhaps_crash(message.shard)
        self._post(Message(0, 0, message.shard, message.epoch, message.seq, reply=[copy.deepcopy(reply)]))

    def _receive(self, message: Message, answers: dict[int, Any]) -> None:
        """A reply reaches the coordinator, which takes only the first one to its last request."""
        self._perhaps_crash("coordinator")
        if (message.epoch, message.seq) != (self.epoch, self.seq) or message.shard not in self._told:
            self.events["reply ignored"] += 1
            return
        self._told.remove(message.shard)
        answers[message.shard] = message.reply[0]
        self._perhaps_crash("coordinator")

    # -- the machines -------------------------------------------------------------------------------------------

    def _perhaps_crash(self, machine: int | str) -> None:
        at = self.events["handled"]
        self.events["handled"] += 1
        if at == self.faults.crash_at or (
            self.events["crash"] < self.faults.most_crashes and self.random.random() < self.faults.crash
        ):
            raise Crash(machine)

    def _replace(self, machine: int | str) -> None:
        if machine == "coordinator":
            self.coordinator = self._make_coordinator()
        else:
            self.shards[machine] = self._make_shard(machine)

    def _state(self) -> Any:
        self._settle()
        snapshot = self.drive(take_snapshot(self.coordinator))
        self._settle()
        snapshot.parts = [shard.take_aside() for shard in self.shards]
        return copy.deepcopy(whole(snapshot))

    def _restore(self, state: Any) -> None:
        """Everything as it was saved, or (None) as it was at first."""
        if state is None:
            for machine in ["coordinator", *range(len(self.shards))]:
                self._replace(machine)
        else:
            coordinator, groups = copy.deepcopy(state)
            self.coordinator.restore(coordinator)
            for shard in self.shards:
                shard.worker.restore(groups)
        self._next_epoch()

    def _next_epoch(self) -> None:
        self.epoch, self.seq, self._told = self.epoch + 1, 0, set()
        for shard in self.shards:
            shard.begin_epoch(self.epoch)

    def _chance(self, kind: str) -> bool:
        happens = self.random.random() < getattr(self.faults, kind)
        self.events[kind] += happens
        return happens

    def _tick(self) -> int:
        self.events["tick"] += 1
        return self.events["tick"]
