"""Parts of an audit on Ray: each actor has the rows in some buckets, and answers for these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from actors.cluster import Cluster, bundles
from actors.environment import use_cpus
from actors.identity import Identity, identity
from actors.liveness import Peer, Watch
from actors.progress import Progress, Pulse
from actors.starting import Wanted, end_actors, started
from raydt.arrays import kernel


class AuditPart:
    """One process with a part of an audit; operators find it as ``ray::AuditPart``."""

    def __init__(self) -> None:
        self._pulse = Pulse()
        self._part: Any = None

    def identity(self) -> Identity:
        """Which sources this process has loaded."""
        self._pulse.beat()
        return identity()

    def open(self, make: Callable[[Any], Any], item: Any, cpus: float) -> None:
        """Make the part, which reads its rows."""
        self._pulse.beat()
        use_cpus(cpus)
        kernel.load()
        with self._pulse.storage():
            self._part = make(item)

    def ask(self, method: str, arguments: Sequence[Any]) -> Any:
        """Call a method of the part."""
        self._pulse.beat()
        return getattr(self._part, method)(*arguments)

    def progress(self) -> Progress:
        """Return the progress of this actor; called while the actor works."""
        return Progress(self._pulse.seconds())


class PartsOnRay:
    """Parts in actors, as :class:`raydt.audits.parts.Parts`: ``make(item)`` of each item, a function of a module.

    Each has the ``resources`` of a shard. ConfigError if the cluster has too few; RaydtError, at any call, of a part
    that cannot be made or whose process is lost.
    """

    def __init__(
        self,
        cluster: Cluster,
        make: Callable[[Any], Any],
        items: Sequence[Any],
        resources: Mapping[str, Mapping[str, Any]],
        patience: float,
    ) -> None:
        self._cluster, self._watch = cluster, Watch(patience, cluster.answers if cluster.started else None)
        self._group: Any = None
        self._peers: list[Peer] = []
        requested = bundles(len(items), resources)[1:]
        try:
            if not cluster.started:
                self._group = cluster.reserve(requested)
            wanted = [Wanted(AuditPart, bundle, index) for index, bundle in enumerate(requested)]
            started(cluster, self._group, wanted, self._peers)
            each = zip(self._peers, items, requested, strict=True)
            self._collect([peer.handle.open.remote(make, item, bundle["CPU"]) for peer, item, bundle in each])
        except BaseException:
            self.close()
            raise

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Ask all parts at once."""
        return self._collect([peer.handle.ask.remote(method, arguments) for peer in self._peers])

    def close(self) -> None:
        """End the actors and give back what was reserved."""
        end_actors(self._cluster, self._group, self._peers)
        self._peers, self._group = [], None

    def _collect(self, replies: Sequence[Any]) -> list[Any]:
        return self._watch.collect(replies, self._peers)
