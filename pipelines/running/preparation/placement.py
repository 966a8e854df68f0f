"""What runs where, in words: for ``validate`` and the first line of a job."""

from __future__ import annotations

from pipelines.config import Config
from pipelines.running.preparation.shards import limit_of_coordinator, most_live, stays_with_coordinator
from raydt.examples.features import Features
from raydt.learners import traits_of
from raydt.presentation.words import counted


def place_of_work(config: Config, features: Features, rows: int | None = None) -> str:
    """Where the work of a run is done, and why.

    Parameters
    ----------
    config : Config
    features : Features
    rows : int or None
        Of the source, where they are known.
    """
    cluster, kind = config.cluster, config.learner.kind
    if cluster.backend == "in_process":
        return "this process does all work"
    shards = "shards" if config.shards is None else counted(config.shards, "shard")
    if config.shards_reason:
        shards += f" (auto: {config.shards_reason})"
    traits, most = traits_of(config.learner), limit_of_coordinator(config)
    if most == 0:
        return f"on Ray: a coordinator and {shards}"
    if most is None:
        return (
            f"on Ray, the coordinator does all work: shards would not make {kind} faster, and cluster.row_cache_bytes "
            "sets no limit to its memory"
        )
    faster = traits.divided == "large" and most == cluster.local_work_limit
    wide = len(features.names)
    size = f"{-(-most // wide):,} live examples" if wide else f"{most:,} ones in live examples"
    if stays_with_coordinator(config, features, rows):
        part = "be faster" if faster else "hold the examples"
        others = "shards" if cluster.shards == "auto" else shards  # the one of auto is there because it has to be
        return (
            f"on Ray, the coordinator does all work: {others} would {part} from {size} on, and there are at most "
            f"{most_live(config, rows):,}. Set cluster.backend: in_process to avoid the start of Ray"
        )
    reason = "shards are faster" if faster else "the examples take more memory than cluster.row_cache_bytes"
    return f"on Ray, the coordinator does all work below {size}, and {shards} from there on, where {reason}"
