"""Machines on the simulated network: each handles one event at a time, and may die or be paused between two.

A coordinator machine drives the product's generators as the Ray driver does: one message is outstanding at every
shard, a ``Tell`` is not waited for when it is sent, but before the next message is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from raydt.errors import SequenceGapError, StaleEpochError
from raydt.exchange.links import Frame, Links, Steps
from raydt.exchange.messages import Ask, Combine, EndOfPass, Exchange, Tell
from raydt.exchange.shard import NumberedShard
from raydt.learners.batch_coordinator import BatchCoordinator


class Message(NamedTuple):
    """A request on its way to a shard, or with ``method`` None a reply on its way back.

    ``combine``: the shards are to meet among themselves.
    """

    shard: int
    epoch: int
    seq: int
    method: str | None
    content: Any
    combine: bool = False


class Swap(NamedTuple):
    """A frame on its way from one shard to another, over their channel."""

    sender: int
    shard: int
    frame: Frame


#: Puts something on the network: a function of one message.
Post = Callable[[Message], None]


def copied(value: Any) -> Any:
    """The same arrays in other memory, as after a way through a network."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [copied(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


class Machine:
    """What can die (``dead``), and does nothing before ``wakes``."""

    def __init__(self, name: str, epoch: int) -> None:
        self.name, self.epoch = name, epoch
        self.dead, self.wakes = False, 0


class ShardMachine(Machine):
    """A shard, which answers or refuses whatever reaches it, and meets others on a pass that it has begun."""

    def __init__(self, index: int, epoch: int, shard: NumberedShard) -> None:
        super().__init__(f"shard {index}", epoch)
        self.shard = shard
        self._pass: Steps[EndOfPass] | None = None
        self._links = Links(index, 1, epoch)

    def begin_epoch(self, epoch: int, shards: int) -> None:
        """Go on in a later epoch with so many shards, and new channels."""
        self.shard.begin_epoch(epoch)
        self._links, self._pass = Links(self.shard.index, shards, epoch), None

    def receive(self, message: Message, refused: Callable[[str], None]) -> list[Message | Swap]:
        """What a message has it send, if it was not refused: the reply, or parts for others."""
        assert message.method is not None
        if self._pass is not None and (message.epoch, message.seq) == (self.shard.epoch, self.shard.seq + 1):
            return []  # it is at work on that
        request = message.epoch, message.seq, message.method, message.content
        try:
            if message.combine:
                return self._advance(self.shard.combine(*request), None)
            return [self._reply(message.seq, self.shard.receive(*request))]
        except (StaleEpochError, SequenceGapError) as refusal:
            refused(type(refusal).__name__)
            return []

    def swap(self, swap: Swap, refused: Callable[[str], None]) -> list[Message | Swap]:
        """What a frame of another shard has it send, if it was not refused."""
        try:
            if not self._links.receive(swap.sender, swap.frame):
                refused("frame repeated")
        except StaleEpochError:
            refused("frame refused")
        received = self._links.complete() if self._pass is not None else None
        return [] if received is None else self._advance(self._pass, received)

    def _advance(self, steps: Any, received: list[Any] | None) -> list[Message | Swap]:
        """Go on with a pass for as long as there is something to go on with."""
        sent: list[Message | Swap] = []
        try:
            while received is not None or steps is not self._pass:
                parts = steps.send(received)
                self._pass = steps
                sent += [Swap(self.shard.index, to, copied(frame)) for to, frame in self._links.begin(parts)]
                received = self._links.complete()
        except StopIteration as end:
            self._pass = None if steps is self._pass else self._pass  # a repeated message may come during a pass
            sent.append(self._reply(self.shard.seq, end.value))
        return sent

    def _reply(self, seq: int, content: Any) -> Message:
        return Message(self.shard.index, self.shard.epoch, seq, None, copied(content))


class CoordinatorMachine(Machine):
    """A coordinator and the driver of its generators; ``post`` sends, ``remind`` has ``send_again`` called later.

    Attributes
    ----------
    seq : int
        Number of the last message.
    waiting : set of int
        Shards that have not answered it.
    """

    def __init__(
        self,
        epoch: int,
        coordinator: BatchCoordinator,
        shards: int,
        post: Post,
        remind: Callable[[CoordinatorMachine, int], None],
    ) -> None:
        super().__init__("coordinator", epoch)
        self.coordinator, self.shards, self.post, self.remind = coordinator, shards, post, remind
        self.seq = 0
        self.waiting: set[int] = set()
        self._request: Ask = Tell("", {})
        self._payloads: list[Any] = []
        self._replies: dict[int, Any] = {}
        self._held: Ask | None = None  # to be sent when the Tell before it is acknowledged
        self._exchange: Exchange[Any] | None = None
        self._done: Callable[[Any], None]

    def run(self, exchange: Exchange[Any], done: Callable[[Any], None]) -> None:
        """Begin an exchange; ``done`` receives what it returns."""
        assert self._exchange is None
        self._exchange, self._done = exchange, done
        self._step(None)

    def receive(self, message: Message) -> bool:
        """Take a reply; False if it is not one to the last message, or was taken before."""
        if (message.epoch, message.seq) != (self.epoch, self.seq) or message.shard not in self.waiting:
            return False
        self.waiting.remove(message.shard)
        self._replies[message.shard] = message.content
        if not self.waiting:
            if self._held is not None:
                held, self._held = self._held, None
                self._send(held)
            elif not isinstance(self._request, Tell):
                self._step([self._replies[index] for index in range(self.shards)])
        return True

    def send_again(self) -> None:
        """Send the last message once more to the shards that have not answered."""
        for index in sorted(self.waiting):
            request, combine = self._request, isinstance(self._request, Combine)
            self.post(Message(index, self.epoch, self.seq, request.method, self._payloads[index], combine))
        self.remind(self, self.seq)

    def _step(self, replies: list[Any] | None) -> None:
        assert self._exchange is not None
        try:
            request = self._exchange.send(replies)  # type: ignore[arg-type]
        except StopIteration as end:
            self._exchange = None
            self._done(end.value)
            return
        if self.waiting:
            self._held = request
        else:
            self._send(request)

    def _send(self, request: Ask) -> None:
        self.seq += 1
        self._request, self._replies = request, {}
        self.waiting = set(range(self.shards))
        self._payloads = [copied(request.for_shard(index)) for index in range(self.shards)]
        self.send_again()
        if isinstance(request, Tell):
            self._step([])
