"""Starting and ending the actors of a session: each has the resources it reserves, and the sources of the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util.placement_group import remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.cluster import Bundle, Cluster
from actors.liveness import CONTROL, IDS, PARTS, READING, Peer, Watch
from actors.processes import end_if_stopped
from actors.shard import identity, require_same

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


def started(cluster: Cluster, group: Any, wanted: Sequence[Wanted], peers: list[Peer]) -> None:
    """Create actors, in the bundles of a placement group if there is one, and add each to ``peers`` as soon as it is.

    RaydtError if one cannot be started, or has loaded other sources than this process.
    """
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
        if group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
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


def end_actors(cluster: Cluster, group: Any, peers: Sequence[Peer]) -> None:
    """End actors and give back the placement group, if there is one, also if they are stopped, or Ray is gone."""
    for peer in peers:
        with contextlib.suppress(Exception):  # whatever ended the session may have ended Ray
            ray.kill(peer.handle)
        if peer.pid is not None:
            end_if_stopped(peer.pid)
    if group is not None and cluster.answers():  # a head that is gone would be waited for
        with contextlib.suppress(Exception):
            remove_placement_group(group)
