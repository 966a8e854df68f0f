"""The warm-up of a sparse tree with the shards: Ray with 2 shards beside one process on one core; wall time.

Generated rows of 10 informative and 100 other sparse features; the tree is built of all of them at once.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED, WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sources.opening import open_source
from raydt.sources.options import SparseSynthetic
from raydt.streams.incremental import Incremental

LEARNER = learners()["sparse_tree"]
ROWS, INFORMATIVE, OTHERS, BATCH = 2_000_000, 10, 100, 50_000
OPTIONS = LEARNER.Options(kind="sparse_tree", max_depth=10)


def stream(rows: int) -> Any:
    """All rows as a warm-up."""
    options = SparseSynthetic(generator="sparse", n=rows, informative=INFORMATIVE, irrelevant=OTHERS)
    source = open_source(options, reading=LEARNER.traits(OPTIONS).reading)
    return Incremental(model="incremental", warmup=rows).make(source)


def warmup(session: Any, rows: int) -> tuple[float, str]:
    """Wall seconds of a warm-up, and the digest."""
    began = time.perf_counter()
    for _ in session.process(stream(rows).batches(BATCH)):
        pass
    taken, digest = time.perf_counter() - began, session.digest()
    session.close()
    return taken, digest


def compare(repeats: int, rows: int = ROWS) -> tuple[float, float]:
    """Median wall seconds in this process, and on Ray with 2 shards from the first row on; their digests are equal."""
    from actors.cluster import bundles, connect
    from actors.session import RaySession

    features, cluster = stream(rows).source.features, connect("local", bundles(2))
    here, there, digests = [], [], set()
    for _ in range(repeats):
        one = InProcessSession(LEARNER, OPTIONS, features, 1, NOTHING_DIVIDED)
        two = RaySession(cluster, LEARNER, OPTIONS, features, shards=2, plan=WorkPlan(0))
        for session, times in ((one, here), (two, there)):
            taken, digest = warmup(session, rows)
            times.append(taken)
            digests.add(digest)
    cluster.close()
    assert len(digests) == 1, "the trees differ"
    return statistics.median(here), statistics.median(there)
