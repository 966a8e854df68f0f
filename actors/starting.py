"""Starting and ending the actors of a session: each has the resources it reserves, and the sources of the driver."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util.placement_group import remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.cluster import Bundle, Cluster
from actors.liveness import CONTROL, IDS, PARTS, READING, Peer, Watch
from actors.processes import end_if_stopped
from actors.shard import identity, require_same
from raydt.errors import ExchangeError
from raydt.messages import message

#: Seconds an actor may take to start: on a cluster, where its node may still have to, and on this machine.
START_SECONDS, LOCAL_START_SECONDS = 300.0, 60.0


@dataclass(frozen=True)
class Wanted:
    """An actor to be started: the coordinator, or process ``shard`` with so many ``shards``."""

    actor: type
    bundle: Bundle
    shard: int | None = None
    shards: int = 1

    @property
    def name(self) -> str:
        """The name of the actor in messages."""
        return "the coordinator" if self.shard is None else f"shard {self.shard}"


class Actors:
    """The actors of a session or a job, which this process creates and owns; at least one reserves no fewer than a CPU.

    ConfigError if the cluster has too few resources; RaydtError if an actor cannot be started.
    """

    def __init__(self, cluster: Cluster, patience: float) -> None:
        self._cluster, self._watch = cluster, Watch(patience, cluster.answers if cluster.started else None)
        self._group: Any = None
        self._peers: list[Peer] = []
        self._under_way: deque[Any] = deque()

    @property
    def under_way(self) -> int:
        """Batches that were sent, and whose results were not taken."""
        return len(self._under_way)

    @contextlib.contextmanager
    def _starting(self, requested: list[Bundle]) -> Iterator[None]:
        """Context in which actors start in these bundles; after an error all are ended."""
        try:
            if not self._cluster.started:
                self._group = self._cluster.reserve(requested)
            yield
        except BaseException:
            self.close()
            raise

    def _start(self, wanted: Sequence[Wanted]) -> None:
        """Create actors, each in the bundle of its place, and make sure that they have loaded what this process has."""
        cluster, peers = self._cluster, self._peers
        for index, one in enumerate(wanted):
            bundle = one.bundle
            options: dict[str, Any] = {
                "num_cpus": bundle["CPU"],
                "memory": bundle.get("memory"),
                "resources": {name: bundle[name] for name in bundle.keys() - {"CPU", "memory"}},
                "max_restarts": 0,
                "max_task_retries": 0,
                "concurrency_groups": {CONTROL: 1, PARTS: 1, READING: 1, IDS: 1},
                **cluster.actor_environment(),
            }
            if self._group is not None:
                placed = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index)
                options["scheduling_strategy"] = placed
            handle: Any = ray.remote(**options)(one.actor).remote()
            numbered = {} if one.shard is None else {"shard": one.shard, "shards": one.shards}
            peers.append(Peer(one.name, handle, **numbered))
        asked = [peer.handle.identity.remote() for peer in peers]
        starting = Watch(LOCAL_START_SECONDS if cluster.started else START_SECONDS)
        for index, theirs in enumerate(starting.collect(asked, peers)):
            peer = peers[index]
            require_same(identity(), theirs, peer.name)
            name = f"{peer.name} (pid {theirs.pid} on {theirs.host})"
            peers[index] = replace(peer, name=name, pid=theirs.pid if cluster.started else None)

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        """Ask all actors at once; the answers in their order."""
        self._require_idle()
        return self._watch.collect([getattr(p.handle, method).remote(*arguments) for p in self._peers], self._peers)

    def _require_idle(self) -> None:
        if not self._peers:
            raise ExchangeError(message("cluster.closed"))
        if self._under_way:
            raise ExchangeError(message("cluster.busy", batches=self.under_way))

    def close(self) -> None:
        """End the actors and give back what was reserved, also if they are stopped, or Ray is gone."""
        for peer in self._peers:
            with contextlib.suppress(Exception):  # whatever ended the session may have ended Ray
                ray.kill(peer.handle)
            if peer.pid is not None:
                end_if_stopped(peer.pid)
        if self._group is not None and self._cluster.answers():  # a head that is gone would be waited for
            with contextlib.suppress(Exception):
                remove_placement_group(self._group)
        self._peers, self._group = [], None
        self._under_way.clear()
