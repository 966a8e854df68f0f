"""Waiting for actors for as long as they work, and no longer; Ray's errors as one sentence each.

Invariant: a wait ends. It ends with the replies, with the error of the first actor that failed, or, once an actor
has shown no progress for ``patience`` seconds, with an error that names it. The length of a call decides nothing, and
time in which the waiting process itself was stopped is not held against the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import exceptions
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from raydt.errors import ProcessLostError, RaydtError, message_of
from raydt.messages import message

# An error that our own code raised inside an actor arrives as itself, with its message and exit code. A process that
# was lost is a :class:`~raydt.errors.ProcessLostError`, after which another incarnation may do better; one that cannot
# be started is not.


def translate(error: exceptions.RayError, name: str) -> RaydtError:
    """The error to raise for a call to actor ``name`` that ended in ``error``."""
    if isinstance(error, exceptions.RayTaskError):
        cause: Any = error.cause
        if isinstance(cause, RaydtError):
            return cause
        return RaydtError(message("cluster.defect", name=name, error=type(cause).__name__, problem=message_of(cause)))
    # Before ActorDiedError, and no kind of it: the memory monitor ended the process.
    if isinstance(error, exceptions.OutOfMemoryError):
        return lost("cluster.no_memory", name=name)
    if isinstance(error, exceptions.ActorDiedError):
        if "creation task" in str(error):  # nothing else tells them apart
            return RaydtError(message("cluster.no_start", name=name, reason=_lines(error)[-1]))
        return lost("cluster.died", name=name)
    if isinstance(error, exceptions.ActorUnavailableError):
        return lost("cluster.unreachable", name=name)
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        return RaydtError(message("cluster.no_start", name=name, reason=" ".join(_lines(error))).alone())
    return lost("cluster.no_answer", name=name, error=type(error).__name__, reason=_lines(error)[0])


def lost(id: str, **parameters: Any) -> ProcessLostError:
    """Return the error of a lost process; the remedy of its message is the advice for when the job cannot recover."""
    said = message(id, **parameters)
    return ProcessLostError(said.alone(), said.remedy)


def _lines(error: Exception) -> list[str]:
    """The lines of Ray's message, at least one."""
    return [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()] or ["no reason given"]


#: Seconds between two looks at Ray itself.
RAY_SECONDS = 5.0

#: Seconds within which Ray may say itself what has happened to a shard that another one has lost.
WORD_SECONDS = 2.0

#: The concurrency groups of an actor, in addition to the one that works: its thread answers while the actor works,
#: hands over what it has set aside, or reads rows ahead, which takes as long as it takes and must keep no answer
#: waiting, or looks text ids up.
CONTROL, PARTS, READING, IDS = "control", "parts", "reading", "ids"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another process of the job: handle, name, pid on this machine, and the number among those of shards."""

    name: str
    handle: Any
    pid: int | None = None
    shard: int | None = None
    shards: int = 1

    def blame(self, error: RaydtError) -> RaydtError:
        """``error``, which a loss of this process has caused, unless it says already whose loss has."""
        if isinstance(error, ProcessLostError) and error.actor == "driver":
            error.actor, error.shard = "coordinator" if self.shard is None else "shard", self.shard
        return error

    def progress(self) -> Any:
        """Reference to the processor time of its working threads."""
        return self.handle.progress.options(concurrency_group=CONTROL).remote()


@dataclass(slots=True)
class _Sign:
    """The last sign of life of one peer."""

    question: Any
    asked: float
    silent: float = 0.0
    seconds: float = -1.0
    waits: bool = False


class Watch:
    """Collects replies; an actor is lost after ``patience`` seconds without progress.

    ``answers`` says whether Ray's own processes are there. Without its head, actors work on for a while, and then Ray
    ends the process that owns them, without a word to it.
    """

    def __init__(self, patience: float, answers: Callable[[], bool] | None = None) -> None:
        self.patience = patience
        self._interval = min(1.0, patience / 4)
        self._answers, self._look_at_ray = answers, time.monotonic() + RAY_SECONDS

    def collect(self, replies: Sequence[Any], peers: Sequence[Peer]) -> list[Any]:
        """Return one reply of each peer, in order; raise what a peer raised, or ProcessLostError."""
        signs: dict[str, _Sign] = {}
        while True:
            self._require_ray()
            try:
                values: list[Any] = ray.get(list(replies), timeout=self._interval)
                return values
            except GetTimeoutError:
                waiting = ray.wait(list(replies), num_returns=len(replies), timeout=0)[1]
                late = [peer for reply, peer in zip(replies, peers, strict=True) if reply in waiting]
                for peer in late:
                    self._look(peer, signs)
                self._require_progress(late, signs)
            except RayError as error:
                peer, first = self._failed(replies, peers, error)
                raise peer.blame(self._said(translate(first, peer.name), replies, peers)) from first

    def _require_ray(self) -> None:
        """Look now and then whether Ray is there."""
        now = time.monotonic()
        if self._answers is None or now < self._look_at_ray:
            return
        self._look_at_ray = now + RAY_SECONDS
        if not self._answers():
            raise lost("cluster.died", name="a process of the private Ray itself")

    def _look(self, peer: Peer, signs: dict[str, _Sign]) -> None:
        """Take note of the peer's progress and ask for it again."""
        now = time.monotonic()
        sign = signs.get(peer.name)
        if sign is None:
            signs[peer.name] = _Sign(peer.progress(), now)
            return
        # This process may have been stopped between two looks, and the answer is on its way.
        sign.silent += min(now - sign.asked, 2 * self._interval)
        sign.asked, waited = now, sign.waits
        if ray.wait([sign.question], timeout=0)[0]:
            try:
                seconds, sign.waits = ray.get(sign.question)
            except RayError:
                return  # the reply itself will say so
            if seconds != sign.seconds:
                sign.seconds, sign.silent = seconds, 0.0
            sign.question = peer.progress()
        else:
            sign.waits = False  # it may have been stopped
        if waited and not sign.waits:
            sign.silent = 0.0  # up to now it was somebody else's

    def _require_progress(self, peers: Sequence[Peer], signs: Mapping[str, _Sign]) -> None:
        """Find out who is lost. A shard that waits for others is not, as long as one of these does not wait."""
        silent = [peer for peer in peers if signs[peer.name].silent > self.patience]
        stuck = [peer for peer in silent if not signs[peer.name].waits]
        for peer in stuck or (silent if len(silent) == len(peers) else []):
            raise peer.blame(lost("cluster.no_progress", name=peer.name, seconds=self.patience))

    @staticmethod
    def _failed(replies: Sequence[Any], peers: Sequence[Peer], error: RayError) -> tuple[Peer, RayError]:
        """The first peer, in order, whose reply is there and is an error; and that."""
        there = ray.wait(list(replies), num_returns=len(replies), timeout=0)[0]
        for reply, peer in zip(replies, peers, strict=True):
            if reply in there:
                try:
                    ray.get(reply)
                except RayError as own:
                    return peer, own
        return peers[0], error

    @staticmethod
    def _said(error: RaydtError, replies: Sequence[Any], peers: Sequence[Peer]) -> RaydtError:
        """Return Ray's error of a shard that another one has lost, if it comes soon; else the error of that one."""
        accused = error.shard if isinstance(error, ProcessLostError) else None
        for reply, peer in zip(replies, peers, strict=True):
            if accused is not None and peer.shard == accused and ray.wait([reply], timeout=WORD_SECONDS)[0]:
                try:
                    ray.get(reply)
                except RayTaskError:
                    return error
                except RayError as own:
                    return peer.blame(translate(own, peer.name))
        return error
