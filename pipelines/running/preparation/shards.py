"""How many shards a run has: the number of its config, or for ``auto`` what work and cluster have use for."""

from __future__ import annotations

import actors.cluster
from pipelines.config import Config
from raydt.examples.features import Features
from raydt.learners import traits_of
from raydt.learners.base import WorkPlan
from raydt.sessions.small_model import most_cells
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


def with_shards(config: Config, features: Features, rows: int | None, *, ask: bool = True) -> Config:
    """The config with a number of shards for ``auto``; asks the cluster for its free CPUs if it needs to know.

    Parameters
    ----------
    config : Config
    features : Features
    rows : int or None
        Of the source, where they are known.
    ask : bool
        Without, a cluster is not asked, and the number may stay open.

    Raises
    ------
    ConfigError
        No cluster answers at the address.
    """
    if config.shards is not None:
        return config
    cluster = config.cluster
    if cluster.backend == "in_process" or stays_with_coordinator(config, features, rows):
        return config.with_shards(1)
    if not ask and not actors.cluster.starts_ray(cluster.address):
        return config
    return config.with_shards(chosen(config, features, actors.cluster.free_cpus(cluster.address)))


def chosen(config: Config, features: Features, cpus: int) -> int:
    """How many shards have work and a place among some CPUs.

    A private Ray has a CPU for the coordinator beside those of the machine; on a cluster it takes one of the free ones.
    """
    cluster = config.cluster
    of_coordinator, of_shard = actors.cluster.bundles(1, cluster.resources.model_dump(exclude_none=True))
    room = float(cpus)
    if not actors.cluster.starts_ray(cluster.address):
        room -= of_coordinator["CPU"]
    useful = min(MOST_SHARDS, max(features.groups, traits_of(config.learner).parts))
    each = of_shard["CPU"]
    return max(1, min(useful, int(room // each) if each else useful))
