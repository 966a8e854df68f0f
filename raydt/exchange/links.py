"""A shard behind numbered messages, and the numbered frames that shards swap among themselves; without I/O.

At each meeting of a pass (:class:`~raydt.exchange.messages.Combine`) a shard, or a process of several, sends some of
the others frames (``meetings``), to each at most one, and is at most one meeting ahead. Invariant: the frames from one
shard to another are numbered within the epoch, and taken in the order of their numbers, each once. A repeated frame has
no effect, every other one is refused, and nothing is asked for again: whoever misses a frame has lost its sender.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import struct
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from raydt.errors import ExchangeError, SequenceGapError, StaleEpochError
from raydt.exchange.meetings import Content, Rounds, neighbours, rounds
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
from raydt.parallel import run, work_seconds

#: First bytes of a frame; then epoch, number, and the lengths of description and arrays.
_MAGIC, _HEAD = b"rdt1", struct.Struct("<4sQQIQ")
#: The longest description: of some ten thousand arrays.
_MOST_DESCRIBED = 1 << 20
#: Descriptions that are kept, since most frames of a pass are like others before.
_ALIKE = 64
#: Kinds of numbers that a frame may have, as in ``numpy.dtype.kind``.
_KINDS = "biuf"
#: Arrays begin at multiples of so many bytes.
_ALIGNED = 8
#: Bytes of a challenge.
CHALLENGE = 32


class Frame(NamedTuple):
    """The arrays that one shard sends another in one swap."""

    epoch: int
    seq: int
    content: Content


def packed(frame: Frame) -> list[memoryview]:
    """Return a frame as bytes, in pieces: the arrays are not copied if they are contiguous."""
    bare = isinstance(frame.content, np.ndarray)
    named: Mapping[str, Any] = {"": frame.content} if bare else frame.content  # type: ignore[assignment]
    arrays = {name: np.asarray(array, order="C") for name, array in named.items()}
    described = _description(tuple((name, array.dtype.str, *array.shape) for name, array in arrays.items()))
    pieces: list[memoryview] = []
    for array in arrays.values():
        pieces.append(array.reshape(-1).view(np.uint8).data)
        pieces.append(memoryview(bytes(-array.nbytes % _ALIGNED)))
    head = _HEAD.pack(_MAGIC, frame.epoch, frame.seq, len(described), sum(map(len, pieces)))
    return [piece for piece in (memoryview(head + described), *pieces) if len(piece)]


@lru_cache(maxsize=_ALIKE)
def _description(arrays: tuple[Any, ...]) -> bytes:
    return json.dumps(arrays).encode()


class FrameReader:
    """Takes the bytes of frames as they come: fill :attr:`space`, then say how many bytes are new."""

    def __init__(self) -> None:
        self._begin(_HEAD.size)
        self._head: tuple[Any, ...] | None = None
        self._described: Sequence[Any] | None = None

    @property
    def space(self) -> memoryview:
        """The memory for the next bytes; never empty."""
        return self._view[self._filled :]

    def take(self, count: int) -> Frame | None:
        """Take ``count`` new bytes in :attr:`space`; the frame they complete, if any. ExchangeError for no frame."""
        self._filled += count
        while self._filled == len(self._view):
            if self._head is None:
                self._head = _HEAD.unpack(self._bytes.tobytes())
                _require(self._head[0] == _MAGIC and self._head[3] <= _MOST_DESCRIBED)
                self._begin(self._head[3])
            elif self._described is None:
                self._described = _described(self._bytes.tobytes(), self._head[4])
                self._begin(self._head[4])
            else:
                _, epoch, seq, *_ = self._head
                frame = Frame(epoch, seq, _unpacked(self._bytes, self._described))
                self._head = self._described = None
                self._begin(_HEAD.size)
                return frame
        return None

    def _begin(self, length: int) -> None:
        """Make room for so many bytes; it is the system that gives memory only to those that arrive."""
        try:
            self._bytes, self._filled = np.empty(length, dtype=np.uint8), 0
        except (MemoryError, ValueError, OverflowError) as error:
            raise ExchangeError(message("exchange.large_frame", bytes=length)) from error
        self._view = self._bytes.data


def _require(holds: bool) -> None:
    if not holds:
        raise ExchangeError(message("exchange.no_frame"))


@lru_cache(maxsize=_ALIKE)
def _described(text: bytes, length: int) -> Sequence[Any]:
    """Names, types and shapes of the arrays in ``length`` bytes."""
    found, size = [], 0
    try:
        for name, dtype, *shape in json.loads(text):
            kind = np.dtype(dtype)
            _require(isinstance(name, str) and kind.kind in _KINDS)
            _require(all(type(one) is int and 0 <= one < 1 << 48 for one in shape))
            found.append((name, kind, tuple(shape)))
            bytes_of_array = kind.itemsize * math.prod(shape)
            size += bytes_of_array + -bytes_of_array % _ALIGNED
    except (ValueError, TypeError, RecursionError) as error:
        raise ExchangeError(message("exchange.no_frame")) from error
    _require(size == length)
    return found


def _unpacked(body: npt.NDArray[np.uint8], described: Sequence[Any]) -> Content:
    """The arrays, as views of ``body``."""
    arrays, begin = {}, 0
    for name, dtype, shape in described:
        size = dtype.itemsize * math.prod(shape)
        try:
            arrays[name] = body[begin : begin + size].view(dtype).reshape(shape)
        except ValueError as error:  # more dimensions than there may be, or larger ones beside an empty one
            raise ExchangeError(message("exchange.no_frame")) from error
        begin += size + -size % _ALIGNED
    return arrays[""] if list(arrays) == [""] else arrays


class Links:
    """One shard's side of its meetings with all others, in one epoch.

    Parameters
    ----------
    index, shards : int
        Which shard this is, and of how many.
    epoch : int
    """

    def __init__(self, index: int, shards: int, epoch: int) -> None:
        self.index, self.shards, self.epoch = index, shards, epoch
        self.peers = neighbours(index, shards)  #: The shards to which this one has to be connected.
        self._sent, self._taken = dict.fromkeys(self.peers, 0), dict.fromkeys(self.peers, 0)  # numbers of last frames
        self._arrived = {peer: deque[Content]() for peer in self.peers}  # of this meeting, and of the next one
        self._rounds: Rounds | None = None  # of the meeting under way
        self._sender: int | None = None  # who has to be heard before the next round
        self._received: list[Any] | None = None

    def begin(self, parts: Sequence[Any]) -> list[tuple[int, Frame]]:
        """Begin the next meeting with a part for each shard; returns the frames to send, with their receivers."""
        self._rounds, self._sender = rounds(self.index, self.shards, parts), None
        return self.proceed()

    def receive(self, peer: int, frame: Frame) -> bool:
        """Take a frame of another shard; False if taken before. StaleEpochError or SequenceGapError for a wrong one.

        Then :meth:`proceed`.
        """
        if frame.epoch != self.epoch:
            said = {"shard": self.index, "epoch": self.epoch, "sent": frame.epoch}
            raise StaleEpochError(message("exchange.other_epoch", **said))
        if frame.seq <= self._taken[peer]:
            return False
        if frame.seq != self._taken[peer] + 1 or len(self._arrived[peer]) > 1:
            raise SequenceGapError(message("exchange.gap", shard=self.index, seen=self._taken[peer], sent=frame.seq))
        self._taken[peer] = frame.seq
        self._arrived[peer].append(frame.content)
        return True

    def proceed(self) -> list[tuple[int, Frame]]:
        """Make the rounds for which what has arrived suffices; returns the frames to send, with their receivers."""
        frames = list[tuple[int, Frame]]()
        while self._rounds is not None and (self._sender is None or self._arrived[self._sender]):
            content = None if self._sender is None else self._arrived[self._sender].popleft()
            try:
                to, mine, self._sender = self._rounds.send(content)
            except StopIteration as end:
                self._rounds, self._received = None, end.value
                break
            self._sent[to] += 1
            frames.append((to, Frame(self.epoch, self._sent[to], mine)))
        return frames

    def complete(self) -> list[Any] | None:
        """Return the parts that all shards have for this one, or their sum, once, at the end of the meeting."""
        received, self._received = self._received, None
        return received


def proof(secret: bytes, epoch: int, prover: int, verifier: int, challenges: bytes) -> bytes:
    """Return what shows shard ``verifier`` that shard ``prover`` of an epoch has the secret: an HMAC with SHA-256.

    ``challenges`` are those of both, the prover's first, so that no proof serves twice, or in the other direction.
    """
    return hmac.digest(secret, struct.pack("<QQQ", epoch, prover, verifier) + challenges, "sha256")


# Passes that all shards make together, meeting where they put something together.
#
# A shard's half of a pass is a generator of *steps*. At a meeting it yields a list of parts, one for each shard, and
# receives the parts that all shards have made for it, some of which may be added up by then if it has said how
# (``meetings``). All shards meet equally often, and each meeting is of the same kind at all: what they decide from the
# same parts, they decide alike. The coordinator has no part in it: it only has the shards begin the pass
# (:class:`~raydt.exchange.messages.Combine`).

T = TypeVar("T")

#: A shard's half of a pass: yields what it has for each shard, receives what these have for it, returns a result.
Steps = Generator[list[Any], Sequence[Any], T]

#: Bytes of the parts of all shards from which on threads put them together: to do that takes some 0.1 ms.
_HANDED_OUT = 1 << 18


def together(method: str, payload: Payload, each: Sequence[Payload] | None = None) -> Exchange[list[EndOfPass]]:
    """Have all shards make a pass, which they begin on the request ``method``; returns how it ended at each."""
    return (yield Combine(method, payload, each))


def swaps(handle: Callable[[str, Payload], Any], method: str, payload: Payload) -> Steps[EndOfPass]:
    """Make a pass by the requests that ``handle`` answers for one shard; returns how it ended."""
    parts = handle(method, payload)
    while not isinstance(parts, EndOfPass):
        parts = handle(MET, {"parts": (yield parts)})
    return parts


class Meeting:
    """A shard's place in a pass: which steps it has made. One pass is under way at a time."""

    def __init__(self) -> None:
        self._steps: Steps[Any] | None = None
        self._met = 0

    def begin(self, steps: Steps[Any]) -> Any:
        """Make the steps up to the first meeting; returns the parts for each shard, or :class:`EndOfPass`."""
        self._steps, self._met = steps, 0
        return self._step(None)

    def receive(self, parts: Sequence[Any]) -> Any:
        """Take what :data:`MET` has, and return as :meth:`begin`."""
        self._met += 1
        return self._step(parts)

    def _step(self, received: Any) -> Any:
        assert self._steps is not None
        try:
            return self._steps.send(received)
        except StopIteration as end:
            self._steps = None
            return EndOfPass(end.value, self._met)


def side_by_side(halves: Sequence[Steps[T]]) -> list[T]:
    """Make a pass of shards that are threads of this process, all a step at a time; return their results."""
    received: list[Any] = [None] * len(halves)
    few = False
    while True:
        steps = [partial(advanced, half, given) for half, given in zip(halves, received, strict=True)]
        made: list[Any] = [step() for step in steps] if few else run(steps)
        if isinstance(made[0], StopIteration):
            return [end.value for end in made]
        owned = made[0][0] is not made[0][-1]
        few = owned and sum(getattr(part, "nbytes", 0) for parts in made for part in parts) < _HANDED_OUT
        received = list(zip(*made, strict=True))


def advanced(half: Steps[T], received: Any) -> Any:
    """Make one step; returns what it yields, or at the end of the pass what ended it."""
    try:
        return half.send(received)
    except StopIteration as end:
        return end


# One shard: a learner's worker behind the numbering of messages (``messages``).


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
