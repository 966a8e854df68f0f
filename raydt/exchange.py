"""How a coordinator and its shards talk: requests as values, machines without I/O.

A coordinator's algorithm is a generator. It yields :class:`Ask` (a request to every shard; the generator
receives the replies in shard order) or :class:`Tell` (no reply) and reads from top to bottom like the paper.
A driver delivers them: in process (here), on Ray (``actors``), or a simulator (``tests/simulation``).

Invariant: every delivered request carries ``(epoch, seq)``. A shard answers the number it answered last from
its saved reply, takes the next number, and refuses everything else; one request is outstanding at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from raydt.errors import ExchangeError, SequenceGapError, StaleEpochError

Payload = Mapping[str, Any]
#: Epoch and number of a message.
Position = tuple[int, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request every shard answers with one packed array.

    ``payload`` goes to all shards; ``each``, if given, adds one more mapping per shard, in shard order.
    """

    method: str
    payload: Payload
    each: Sequence[Payload] | None = None

    def for_shard(self, index: int) -> dict[str, Any]:
        """The complete payload of one shard."""
        return {**self.payload, **(self.each[index] if self.each is not None else {})}


@dataclass(frozen=True, slots=True)
class Tell(Ask):
    """A request without a reply. It is acknowledged before the next request is sent."""


#: A coordinator's algorithm: yields requests, receives the replies of all shards, returns a result.
Exchange = Generator[Ask, list[Any], T]


#: The request that every shard answers itself, for a snapshot (``raydt.snapshot``).
SET_ASIDE = "set_aside"


class GroupSnapshot(NamedTuple):
    """One feature group in a snapshot: what never changes, of some of its examples; and all else, in full."""

    rows: dict[str, npt.NDArray[Any]]
    state: dict[str, npt.NDArray[Any]]


class ShardWorker(Protocol):
    """What a learner does on one shard."""

    columns: npt.NDArray[np.int64]

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request."""

    def rows(self, slots: npt.NDArray[np.int32]) -> dict[int, dict[str, Any]]:
        """Arrays of each owned feature group that never change, one entry for each example in ``slots``; copies."""

    def state(self, slots: npt.NDArray[np.int32]) -> dict[int, dict[str, Any]]:
        """All other arrays of each owned feature group; arrays by example in the order of ``slots``, all that live.

        Copies: they are written while the next batches change the originals.
        """

    def restore(self, state: dict[int, dict[str, Any]]) -> None:
        """Replace everything by the arrays of the owned groups (both kinds, of all examples, in slots 0, 1, ...)."""


class FeatureShard:
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
        self._aside: tuple[Position, dict[int, GroupSnapshot]] = (0, 0), {}
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
        if epoch != self.epoch:
            raise StaleEpochError(f"shard {self.index} is at epoch {self.epoch}, the message is of epoch {epoch}")
        if seq == self.seq:
            return self._reply
        if seq != self.seq + 1:
            raise SequenceGapError(f"shard {self.index} has seen message {self.seq}, got {seq}")
        began = time.perf_counter()
        handle = self._set_aside if method == SET_ASIDE else self.worker.handle
        self._reply = handle(method, payload)
        self.seq = seq
        self.answered += 1
        self.seconds += time.perf_counter() - began
        return self._reply

    def _set_aside(self, method: str, payload: Payload) -> Position:
        """Copy what a snapshot needs of this position, and answer with its number; what was aside before is dropped."""
        number = self.epoch, self.seq + 1
        self._aside = number, {}  # before the copies are made
        slots, stored = payload["slots"], payload["stored"]
        rows, state = self.worker.rows(slots[stored:]), self.worker.state(slots)
        groups = sorted(rows.keys() | state.keys())
        self._aside = number, {group: GroupSnapshot(rows.get(group, {}), state.get(group, {})) for group in groups}
        return number

    def take_aside(self, number: Position) -> dict[int, GroupSnapshot]:
        """What message ``number`` has set aside, once.

        Raises
        ------
        ExchangeError
            It is gone: it was taken, or a later snapshot has taken its place. No snapshot mixes two positions.
        """
        at, aside = self._aside
        if at != number:
            raise ExchangeError(f"shard {self.index} has set aside snapshot {at}, not {number}")
        self._aside = (0, 0), {}
        return aside

    def work(self) -> dict[str, Any]:
        """What this shard owns and has done: ``shard``, ``columns``, ``requests``, ``seconds``, ``pid``."""
        return {
            "shard": self.index,
            "columns": self.worker.columns.tolist(),
            "requests": self.answered,
            "seconds": self.seconds,
            "pid": os.getpid(),
        }

    def begin_epoch(self, epoch: int) -> None:
        """Start numbering anew under a later epoch; requests of earlier ones are refused from now on."""
        if epoch <= self.epoch:
            raise StaleEpochError(f"shard {self.index} is at epoch {self.epoch}, cannot begin epoch {epoch}")
        self.epoch, self.seq, self._reply = epoch, 0, None


class Traffic:
    """Counts of a driver: rounds with the shards and payload bytes both ways."""

    def __init__(self) -> None:
        self.rounds = 0
        self.bytes = 0

    def count(self, *values: Any) -> None:
        """Add the array bytes found in ``values``."""
        for value in values:
            if isinstance(value, Mapping):
                self.count(*value.values())
            elif isinstance(value, list | tuple):
                self.count(*value)
            else:
                self.bytes += int(getattr(value, "nbytes", 0))


class InProcessDriver:
    """Runs a coordinator's generators against shards in the same process, by direct calls."""

    def __init__(self, shards: Sequence[FeatureShard]) -> None:
        self.shards = list(shards)
        self.traffic = Traffic()
        self._seq = [shard.seq for shard in self.shards]

    def run(self, exchange: Exchange[T]) -> T:
        """Drive ``exchange`` to its end and return its result."""
        replies: list[Any] = []
        try:
            request = next(exchange)
            while True:
                replies = []
                for index, shard in enumerate(self.shards):
                    payload = request.for_shard(index)
                    self._seq[index] += 1
                    reply = shard.receive(shard.epoch, self._seq[index], request.method, payload)
                    self.traffic.count(payload, reply)
                    replies.append(reply)
                self.traffic.rounds += 1
                request = exchange.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result
