"""Waiting for actors: for as long as they work, and no longer.

Invariant: a wait ends. It ends with the replies, with the error of the first actor that failed, or, once an actor
has shown no progress for ``patience`` seconds, with an error that names it. The length of a call decides nothing, and
time in which the waiting process itself was stopped is not held against the other.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from actors.faults import lost, translate
from raydt.errors import ConfigError, ProcessLostError, RaydtError
from raydt.messages import message

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
        """What Ray says of a shard that another one has lost, if it says so soon; else the error of that one."""
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


# Metrics of a run for Prometheus, recorded by the driver process once for each batch.
#
# Invariant: a counter never goes down, whatever a recovery does to the figures it is fed with, and counts nothing twice
# that took effect once: while repeated updates are caught up with, their counters stand still. Nothing is decided by a
# metric. Ray puts ``ray_`` before the names. A cluster serves them at each node's metrics port, a private Ray only at
# ``cluster.metrics_port``; both need ``ray[default]``.

#: Counters, by the name of what they count, and what each says of itself.
COUNTERS = {
    "updates": "Updates done, each counted once",
    "rebuilds": "Rebuilds of a part of the model, each counted once",
    "rebuilt_rows": "Rows that rebuilds went through, each counted once",
    "rounds": "Exchanges with the shards, repeated ones too",
    "restarts": "Recoveries from the loss of a process",
    "checkpoints": "Checkpoints written",
    "checkpoint_seconds": "Seconds spent on writing checkpoints, concurrently with the run",
}

#: Gauges likewise.
GAUGES = {
    "live_examples": "Examples that the model holds",
    "queue_depth": "Batches under way at the coordinator",
    "epoch": "Number of the present incarnation of the actors",
    "lag": "Versions or messages of a followed source that come after those read",
    "lag_seconds": "Seconds since a run was at the newest of the source that it follows",
}

#: What of :attr:`raydt.examples.updates.BatchResult.statistics` is counted: those that are part of the model's state,
#: and those that count traffic, which begins again with new actors.
_OF_STATE, _OF_TRAFFIC = ("rebuilds", "rebuilt_rows"), ("rounds",)

#: What serves the endpoint: part of ``ray[default]``, not of plain ``ray``.
_SERVERS = ("aiohttp", "opencensus", "opentelemetry", "prometheus_client")

#: How long the endpoint of a Ray that has just ended may keep its port.
LEAVING_SECONDS = 3.0


class Meter:
    """Takes note of what a run does; this one records nothing, for runs without Ray."""

    def begin(self, statistics: Mapping[str, int], updates: int) -> None:
        """The run resumes here; the updates up to this point were counted before. Called after :meth:`restarted`."""

    def batch(self, statistics: Mapping[str, int], updates: int, queue_depth: int) -> None:
        """A batch has been applied: statistics of the learner and updates done since the run began, both now."""

    def lag(self, behind: int, seconds: float) -> None:
        """Versions, or messages, and seconds that the run is behind the source that the run follows."""

    def restarted(self) -> None:
        """New actors resume from a checkpoint, or start from the beginning."""

    def checkpointed(self, seconds: float) -> None:
        """A checkpoint has been written, in so many seconds."""


class Telemetry(Meter):
    """Records with ``ray.util.metrics``; this process must be connected to Ray.

    A batch costs about 45 microseconds. Values reach the endpoint at Ray's interval, every ten seconds; counters stay
    there, and a gauge that is not set for two intervals is left out until the next batch. The label ``run`` is the name
    of the run folder, ``epoch`` the number of the first incarnation of the actors.
    """

    def __init__(self, run: str, epoch: int = 1) -> None:
        from ray.util.metrics import Counter, Gauge

        tags, keys = {"run": run}, ("run",)
        self._counters = {
            name: Counter(f"raydt_{name}_total", text, keys).set_default_tags(tags) for name, text in COUNTERS.items()
        }
        self._gauges = {
            name: Gauge(f"raydt_{name}", text, keys).set_default_tags(tags) for name, text in GAUGES.items()
        }
        self._seen = dict.fromkeys(("updates", *_OF_STATE, *_OF_TRAFFIC), 0)
        self._epoch = epoch

    def begin(self, statistics: Mapping[str, int], updates: int) -> None:
        """See :meth:`Meter.begin`."""
        for name, value in (("updates", updates), *((name, statistics.get(name, 0)) for name in _OF_STATE)):
            self._seen[name] = max(self._seen[name], value)
        for name in _OF_TRAFFIC:
            self._seen[name] = statistics.get(name, 0)

    def batch(self, statistics: Mapping[str, int], updates: int, queue_depth: int) -> None:
        """See :meth:`Meter.batch`."""
        self._reached("updates", updates)
        for name in _OF_STATE:
            self._reached(name, statistics.get(name, 0))
        for name in _OF_TRAFFIC:
            # After a fall its true beginning is not known, so that what came before this batch is not counted.
            self._add(name, statistics.get(name, 0) - self._seen[name])
            self._seen[name] = statistics.get(name, 0)
        self._gauges["live_examples"].set(statistics.get("active", 0))
        self._gauges["queue_depth"].set(queue_depth)
        self._gauges["epoch"].set(self._epoch)

    def lag(self, behind: int, seconds: float) -> None:
        """See :meth:`Meter.lag`."""
        self._gauges["lag"].set(behind)
        self._gauges["lag_seconds"].set(seconds)

    def restarted(self) -> None:
        """See :meth:`Meter.restarted`."""
        self._epoch += 1
        self._add("restarts", 1)

    def checkpointed(self, seconds: float) -> None:
        """See :meth:`Meter.checkpointed`."""
        self._add("checkpoints", 1)
        self._add("checkpoint_seconds", seconds)

    def _reached(self, name: str, value: int) -> None:
        """Count up to ``value``, if that is further than ever before."""
        self._add(name, value - self._seen[name])
        self._seen[name] = max(self._seen[name], value)

    def _add(self, name: str, amount: float) -> None:
        if amount > 0:  # Ray refuses to count nothing
            self._counters[name].inc(amount)


def require_endpoint(port: int) -> None:
    """Refuse (ConfigError) a metrics port that Ray could not serve, for which it would wait half a minute."""
    absent = [name for name in _SERVERS if find_spec(name) is None]
    if absent:
        raise ConfigError(message("cluster.no_endpoint", port=port, absent=", ".join(absent)))
    until = time.monotonic() + LEAVING_SECONDS
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the endpoint does
            try:
                probe.bind(("", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() >= until:
                    reason = error.strerror or str(error)
                    raise ConfigError(message("cluster.taken_port", port=port, reason=reason)) from error
            else:
                return
        time.sleep(0.1)
