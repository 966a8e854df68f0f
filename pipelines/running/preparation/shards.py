"""How many shards a run has: the number of its config, or for ``auto`` as many as have work and room."""

from __future__ import annotations

from collections.abc import Sequence

import actors.cluster
from actors.cluster import Bundle
from actors.placement import shards_with_room
from pipelines.config import Config
from raydt.examples.features import Features
from raydt.learners import traits_of
from raydt.learners.base import WorkPlan
from raydt.presentation.words import counted, size
from raydt.sessions.local_phase import most_cells
from raydt.streams import SlidingWindow

#: Shards of ``auto``: by the model of docs/explanation/performance.md, more make every first model slower.
MOST_SHARDS = 16


def limit_of_coordinator(config: Config) -> int | None:
    """Cells (live rows x features) from which on shards do the work; None if they never do."""
    cluster = config.cluster
    return most_cells(traits_of(config.learner).divided, WorkPlan(cluster.local_work_limit, cluster.row_cache_bytes))


def most_live(config: Config, rows: int | None) -> int | None:
    """Most live examples at any time, None if unknown; ``rows`` are those of the source."""
    return config.stream.window if isinstance(config.stream, SlidingWindow) else rows


def stays_with_coordinator(config: Config, features: Features, rows: int | None) -> bool:
    """Whether it is sure that the coordinator does all work. Nobody knows how many sparse features rows will have."""
    most, live = limit_of_coordinator(config), most_live(config, rows)
    if most is None:
        return True
    return live is not None and not features.sparse and live * len(features) < most


def with_shards(config: Config, features: Features, rows: int | None) -> Config:
    """The config with a number of shards for ``auto``; without, if the cluster has to be asked what is free.

    Then :func:`with_shards_on` chooses once the job has joined it. Nobody joins it just to ask: Ray deletes the working
    directory of a submitted job when its process leaves for the first time.

    Parameters
    ----------
    config : Config
    features : Features
    rows : int or None
        Of the source, where they are known.
    """
    if config.shards is not None:
        return config
    cluster = config.cluster
    if cluster.backend == "in_process" or stays_with_coordinator(config, features, rows):
        return config.with_shards(1)
    if actors.cluster.starts_ray(cluster.address):
        return config.with_shards(*_chosen_here(config, features))
    return config


def with_shards_on(config: Config, features: Features, free: Sequence[Bundle]) -> Config:
    """The config with a number of shards for ``auto``; ``free`` is what each node of the cluster has."""
    coordinator, shard = _bundles(config)
    useful, reason = _useful(config, features)
    room = shards_with_room(free, coordinator, shard, useful)
    if room == useful:
        return config.with_shards(useful, reason)
    there = _free_in_words(free, coordinator, shard)
    if not room:
        return config.with_shards(1, f"not even one has room beside the coordinator, so raydt waits; {there}")
    return config.with_shards(room, f"more have no room beside the coordinator; {there}")


def _chosen_here(config: Config, features: Features) -> tuple[int, str]:
    """How many shards have work and CPUs of this machine, and why. A private Ray has one more for the coordinator."""
    cpus = actors.cluster.cpus_here()
    useful, reason = _useful(config, features)
    each = _bundles(config)[1]["CPU"]
    room = int(cpus // each) if each else useful
    if room >= useful:
        return useful, reason
    takes = "" if each == 1 else f", and a shard takes {each:g}"
    return max(1, room), f"this machine has {counted(cpus, 'CPU')}{takes}"


def _useful(config: Config, features: Features) -> tuple[int, str]:
    """How many shards can have work, or as many as pay, and which of the two it is."""
    parts = max(features.groups, traits_of(config.learner).parts)
    if parts > MOST_SHARDS:
        return MOST_SHARDS, "more would make the first model slower"
    return parts, "more would have no work"


def _bundles(config: Config) -> tuple[Bundle, Bundle]:
    """What the coordinator and a shard take."""
    coordinator, shard = actors.cluster.bundles(1, config.cluster.resources.model_dump(exclude_none=True))
    return coordinator, shard


def _free_in_words(free: Sequence[Bundle], coordinator: Bundle, shard: Bundle) -> str:
    """What is free of the resources that actors take, and what a shard takes if it is not just a CPU."""
    needs = coordinator, shard
    names = [name for name in {**shard, **coordinator} if any(bundle.get(name) for bundle in needs)]
    nodes = [node for node in free if any(node.get(name) for name in names)]
    if not nodes:
        return "no CPU is free"
    there = _in_words({name: sum(node.get(name, 0) for node in nodes) for name in names})
    has = f"{counted(len(nodes), 'node')} {'has' if len(nodes) == 1 else 'have'} {there} free"
    return has if shard == {"CPU": 1} else f"a shard takes {_in_words(shard)}, and {has}"


def _in_words(bundle: Bundle) -> str:
    parts = []
    for name, amount in bundle.items():
        if name == "memory":
            parts.append(f"{size(amount)} of memory")
        else:
            parts.append(f"{amount:g} {name}" + ("s" if name == "CPU" and amount != 1 else ""))
    return ", ".join(parts)
