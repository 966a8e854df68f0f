"""Metrics of a run for Prometheus, recorded by the driver process once for each batch.

Invariant: a counter never goes down, whatever a recovery does to the figures it is fed with, and counts nothing twice
that took effect once: while repeated updates are caught up with, their counters stand still. Nothing is decided by a
metric. Ray puts ``ray_`` before the names. A cluster serves them at each node's metrics port, a private Ray only at
``cluster.metrics_port``; both need ``ray[default]``. A run in this process serves them there itself.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from raydt.errors import ConfigError
from raydt.messages import message

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
    """Takes note of what a run does; this one records nothing."""

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
        self._start(epoch)

    def _start(self, epoch: int) -> None:
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
        self._set("live_examples", statistics.get("active", 0))
        self._set("queue_depth", queue_depth)
        self._set("epoch", self._epoch)

    def lag(self, behind: int, seconds: float) -> None:
        """See :meth:`Meter.lag`."""
        self._set("lag", behind)
        self._set("lag_seconds", seconds)

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

    def _set(self, name: str, value: float) -> None:
        self._gauges[name].set(value)


class OwnTelemetry(Telemetry):
    """Keeps the values in this process, for a run without Ray; a gauge that was never set has no value."""

    def __init__(self, run: str) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.registry, self._run = CollectorRegistry(), run
        of: Any = {"labelnames": ("run",), "registry": self.registry}
        self._counters: Any = {
            name: Counter(f"raydt_{name}", text, **of).labels(run) for name, text in COUNTERS.items()
        }
        self._gauges: Any = {name: Gauge(f"raydt_{name}", text, **of) for name, text in GAUGES.items()}
        self._start(1)

    def _set(self, name: str, value: float) -> None:
        self._gauges[name].labels(self._run).set(value)


@contextmanager
def metrics_served(port: int | None, run: str) -> Iterator[Meter]:
    """Serve the metrics of a run in this process at ``/metrics`` inside the block; ConfigError for a taken port."""
    if port is None:
        yield Meter()
        return
    from prometheus_client import start_http_server

    meter = OwnTelemetry(run)
    try:
        server, thread = start_http_server(port, registry=meter.registry)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(message("cluster.taken_port", port=port, reason=reason)) from error
    try:
        yield meter
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


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
