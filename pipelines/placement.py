"""Where the work of a run is done, and why: one decision for ``validate``, the first line of a run, and its report.

Wherever work is done, the model is the same bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import actors.cluster
from actors.cluster import Bundle
from actors.placement import Placement, shards_with_room
from pipelines.config import Config
from pipelines.operation import Cluster
from raydt.errors import ConfigError
from raydt.examples.features import Features
from raydt.keyed.groups import GROUPS
from raydt.learners import traits_of
from raydt.learners.base import LOCAL_WORK_LIMIT, WorkPlan
from raydt.messages import Message, message
from raydt.parallel.cpus import affinity
from raydt.presentation.words import counted
from raydt.sessions.local_phase import most_cells
from raydt.streams.sliding_window import SlidingWindow

#: Shards of ``auto``: more have not been measured to be faster (docs/explanation/performance.md).
MOST_SHARDS = 16
#: Shards that a private Ray may start for each CPU of the machine.
SHARDS_PER_CPU = 4
#: Shards that a config may name whatever the features: files of runs have this former default.
FEW_SHARDS = 2


def place(config: Config, features: Features, rows: int | None, free: Sequence[Bundle] | None = None) -> Placement:
    """Decide where the work of a run is done, for ``features`` that are dealt into groups.

    ``free`` is what the nodes of a joined cluster have free: nobody joins only to ask. ConfigError for too many shards.
    """
    cluster, traits = config.cluster, traits_of(config.learner)
    if getattr(config.source, "key", None) is not None:
        return _by_key(cluster, free)
    live = config.stream.window if isinstance(config.stream, SlidingWindow) else rows
    faster = traits.divides_weights or not _is_weighted(config)
    plan = WorkPlan.within(cluster.memory_limit, faster=faster)
    most = most_cells(traits.divided, plan)
    alone = cluster.backend == "in_process" or most is None or _is_below(most, live, features)
    shards, reason = _number(cluster, features, traits.parts, free, alone=alone)
    if cluster.backend == "in_process":
        return Placement(shards, message("runs.in_process"), plan=plan, divided=(shards or 1) > 1)
    if reason and not _are_faster(cluster, shards):
        plan = WorkPlan.within(cluster.memory_limit, faster=False)
        most = most_cells(traits.divided, plan)
    named = "shards" if shards is None else counted(shards, "shard")
    if most is None and reason:
        return Placement(shards, message("runs.few_shards", shards=named, reason=reason), plan=plan)
    if most is None:
        return Placement(shards, message("runs.no_faster", learner=config.learner.kind), plan=plan)
    named += f" (auto: {reason})" if reason else ""
    if most == 0:
        return Placement(shards, message("runs.with_shards", shards=named), plan=plan, divided=True)
    dense = len(features.names)
    size = f"{-(-most // dense):,} live examples" if dense else f"{most:,} ones in live examples"
    faster = plan.faster and traits.divided == "large" and most == LOCAL_WORK_LIMIT
    if _is_below(most, live, features):
        said = message("runs.small" if faster else "runs.fits", size=size, live=live)
        return Placement(shards, said.alone(), said.remedy, plan)
    where = message("runs.shards_faster" if faster else "runs.beyond_limit", size=size, shards=named)
    return Placement(shards, where, plan=plan, divided=True)


def _by_key(cluster: Cluster, free: Sequence[Bundle] | None) -> Placement:
    """Decide where models by key work: each process has the keys of some groups, and needs no other."""
    if cluster.backend == "in_process":
        return Placement(1, message("runs.in_process"))
    if isinstance(cluster.shards, int):
        shards = min(cluster.shards, GROUPS)
    else:
        _, shard = actors.cluster.bundles(1, cluster.resources.model_dump(exclude_none=True))
        if free is not None:
            shards = shards_with_room(free, {}, shard, MOST_SHARDS) or 1
        elif actors.cluster.starts_ray(cluster.address):
            shards = max(1, int(actors.cluster.cpus_here() // shard["CPU"])) if shard["CPU"] else 1
        else:
            return Placement(None, message("keyed.by_processes", actors="actors"))
    return Placement(shards, message("keyed.by_processes", actors=counted(shards, "actor")))


def _is_weighted(config: Config) -> bool:
    """Return True if rows may have other weights than 1, by a column or by their labels."""
    of_column, of_labels = getattr(config.source, "weight", None), getattr(config.learner, "class_weight", None)
    return bool(of_column or of_labels)


def _is_below(most: int, live: int | None, features: Features) -> bool:
    """Whether live examples surely stay below so many cells; nobody knows the ones of sparse features before."""
    return live is not None and not features.sparse and live * len(features) < most


def _are_faster(cluster: Cluster, shards: int | None) -> bool:
    """Whether so many shards, None of them unknown yet, have more CPUs than the coordinator."""
    coordinator, shard = (max(1, int(one.num_cpus)) for one in (cluster.resources.coordinator, cluster.resources.shard))
    return shards is None or shards * shard > coordinator


def _number(
    cluster: Cluster, features: Features, parts: int, free: Sequence[Bundle] | None, *, alone: bool
) -> tuple[int | None, Message | None]:
    """Return how many shards, None to ask the cluster, and what limits them; ``alone``: they have no work."""
    useful = max(features.groups, parts)
    if cluster.shards != "auto":
        _require_useful(cluster, cluster.shards, features, parts)
        return cluster.shards, None
    if alone:
        return 1, None
    why = message("runs.idle_shards" if useful <= MOST_SHARDS else "runs.most_shards")
    useful = min(useful, MOST_SHARDS)
    coordinator, shard = actors.cluster.bundles(1, cluster.resources.model_dump(exclude_none=True))
    if free is not None:
        room, limit = shards_with_room(free, coordinator, shard, useful), message("runs.full_cluster")
    elif actors.cluster.starts_ray(cluster.address):  # a private Ray has one more CPU, for the coordinator
        cpus = actors.cluster.cpus_here()
        room = int(cpus // shard["CPU"]) if shard["CPU"] else useful
        limit = message("runs.full_machine", cpus=counted(cpus, "CPU"))
    else:
        return None, None
    return (useful, why) if room >= useful else (max(1, room), limit)


def _require_useful(cluster: Cluster, shards: int, features: Features, parts: int) -> None:
    """Refuse more shards than can have work, or than a private Ray on this machine can carry."""
    useful = max(features.groups, parts)
    if shards > max(useful, FEW_SHARDS):
        cause = f"{len(features)} features" if useful == len(features) else f"learner.feature_groups = {useful}"
        if useful == parts:
            cause = f"{parts} parts of the learner's work"
        raise ConfigError(message("configs.idle_shards", shards=shards, cause=cause, most=useful))
    private = cluster.backend == "ray" and (cluster.address or os.environ.get("RAY_ADDRESS") or "local") == "local"
    cpus = affinity()
    if private and shards > SHARDS_PER_CPU * cpus:
        raise ConfigError(message("configs.many_shards", shards=shards, cpus=cpus, most=SHARDS_PER_CPU * cpus))
