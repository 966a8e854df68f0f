"""One shard: a learner's worker behind the numbering of messages (``messages``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from raydt.arrays.kernel_cache import work_seconds
from raydt.errors import ExchangeError, SequenceGapError, StaleEpochError
from raydt.exchange.links import Steps, swaps
from raydt.exchange.messages import (
    MET,
    SET_ASIDE,
    Ask,
    Combine,
    EndOfPass,
    Exchange,
    GroupSnapshot,
    Parts,
    Payload,
    Position,
    ShardWorker,
    TrimmedWorker,
)
from raydt.messages import message
from raydt.parallel import run


class NumberedShard:
    """One shard: a learner's worker behind the numbering of messages.

    Parameters
    ----------
    worker : ShardWorker
    index : int
        Place among the shards, for messages only.
    """

    def __init__(self, worker: ShardWorker, index: int = 0) -> None:
        self.worker, self.index = worker, index
        self.epoch, self.seq = 0, 0
        self._reply: Any = None
        self._aside: tuple[Position, Parts] = (0, 0), {}
        self.answered, self.seconds = 0, 0.0

    def receive(self, epoch: int, seq: int, method: str, payload: Payload) -> Any:
        """Deliver message ``seq`` of ``epoch`` and return its reply.

        Raises
        ------
        StaleEpochError
            The message belongs to an incarnation other than this shard's.
        SequenceGapError
            The message is neither the next one nor a repetition of the last.
        """
        if self._is_repeated(epoch, seq):
            return self._reply
        handle = self._set_aside if method == SET_ASIDE else self.worker.handle
        return self._answered(seq, self._timed(handle, method, payload))

    def combine(self, epoch: int, seq: int, method: str, payload: Payload) -> Steps[EndOfPass]:
        """Deliver message ``seq``, a pass: yields and receives what shards swap. Errors as of :meth:`receive`."""
        if not self._is_repeated(epoch, seq):
            self._answered(seq, (yield from swaps(partial(self._timed, self.worker.handle), method, payload)))
        ended: EndOfPass = self._reply
        return ended

    def _is_repeated(self, epoch: int, seq: int) -> bool:
        """Return whether a message was answered before; raises if it is not the next one either."""
        if epoch != self.epoch:
            raise StaleEpochError(message("exchange.other_epoch", shard=self.index, epoch=self.epoch, sent=epoch))
        if seq not in (self.seq, self.seq + 1):
            raise SequenceGapError(message("exchange.gap", shard=self.index, seen=self.seq, sent=seq))
        return seq == self.seq

    def _timed(self, handle: Callable[[str, Payload], Any], method: str, payload: Payload) -> Any:
        began = work_seconds()
        answer = handle(method, payload)
        self.seconds += work_seconds() - began
        return answer

    def _answered(self, seq: int, reply: Any) -> Any:
        self._reply, self.seq = reply, seq
        self.answered += 1
        return reply

    def _set_aside(self, method: str, payload: Payload) -> Position:
        """Copy what a snapshot needs of this position, and answer with its number; what was aside before is dropped."""
        number = self.epoch, self.seq + 1
        self._aside = number, {}  # before the copies are made
        slots, stored = payload["slots"], payload["stored"]
        rows: Mapping[Any, Any] = self.worker.rows(slots[stored:])
        state: Mapping[Any, Any] = self.worker.state(slots)
        groups = dict.fromkeys([*rows, *state])
        self._aside = number, {group: GroupSnapshot(rows.get(group, {}), state.get(group, {})) for group in groups}
        return number

    def take_aside(self, number: Position) -> Parts:
        """Return the snapshot set aside by message ``number``, once.

        Raises
        ------
        ExchangeError
            It is gone: it was taken, or a later snapshot has taken its place. No snapshot mixes two positions.
        """
        at, aside = self._aside
        if at != number:
            raise ExchangeError(message("exchange.other_snapshot", shard=self.index, found=at, wanted=number))
        self._aside = (0, 0), {}
        return aside

    def trim(self) -> None:
        """Drop what the next message makes again, and the last reply: in one process it has arrived."""
        self._reply = None
        if isinstance(self.worker, TrimmedWorker):
            self.worker.trim()

    def work(self) -> dict[str, Any]:
        """Return the columns and work of this shard: ``shard``, ``columns``, ``requests``, ``seconds``, ``pid``."""
        return {
            "shard": self.index,
            "columns": self.worker.columns.tolist(),
            "requests": self.answered,
            "seconds": self.seconds,
            "pid": os.getpid(),
        }

    def begin_epoch(self, epoch: int) -> None:
        """Restart numbering under a later epoch; requests of earlier epochs are refused from now on."""
        if epoch <= self.epoch:
            raise StaleEpochError(message("exchange.old_epoch", shard=self.index, epoch=self.epoch, begun=epoch))
        self.epoch, self.seq, self._reply = epoch, 0, None


# The in-process driver: delivers messages to shards by direct calls, to all at once in as many threads as may be.

T = TypeVar("T")


class Traffic:
    """Counts of a driver: rounds with the shards and payload bytes both ways."""

    def __init__(self) -> None:
        self.rounds = 0
        self.bytes = 0

    def count(self, *values: Any) -> None:
        """Add the array bytes found in ``values``."""
        for value in values:
            if isinstance(value, np.ndarray):  # most are, and to ask for a Mapping takes longer than a small update
                self.bytes += value.nbytes
            elif isinstance(value, (list, tuple)):
                self.count(*value)
            elif isinstance(value, Mapping):
                self.count(*value.values())
            else:
                self.bytes += int(getattr(value, "nbytes", 0))


class InProcessDriver:
    """Runs a coordinator's generators against shards in the same process, by direct calls."""

    def __init__(self, shards: Sequence[NumberedShard]) -> None:
        self.shards = list(shards)
        self.traffic = Traffic()

    def run(self, exchange: Exchange[T]) -> T:
        """Drive ``exchange`` to its end and return its result."""
        try:
            request = next(exchange)
            while True:
                request = exchange.send(self._met(request))
        except StopIteration as end:
            result: T = end.value
            return result

    def _met(self, request: Ask) -> list[Any]:
        """Deliver a request; those on a pass meet by further requests, until it ends."""
        replies = self._ask(request)
        while isinstance(request, Combine) and not isinstance(replies[0], EndOfPass):
            replies = self._ask(Ask(MET, {}, [{"parts": parts} for parts in zip(*replies, strict=True)]))
        return replies

    def _ask(self, request: Ask) -> list[Any]:
        """Deliver a request to all shards; returns the replies in shard order."""
        payloads = [request.for_shard(index) for index in range(len(self.shards))]
        replies = run(
            [
                partial(shard.receive, shard.epoch, shard.seq + 1, request.method, payload)
                for shard, payload in zip(self.shards, payloads, strict=True)
            ]
        )
        self.traffic.count(payloads, replies)
        self.traffic.rounds += 1
        return replies
