"""One global BUILD of 1,000,000 x 50 with resident rows: Ray with 2 shards beside the in-process engine.

Wall time of the update that triggers the rebuild of the whole tree, median of 5; max_depth 10.
Run: python benchmarks/distributed_build.py [rows] [features]
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
from measure import machine

from actors.cluster import bundles, connect
from actors.session import RaySession
from raydt.examples.features import Features
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
d = int(sys.argv[2]) if len(sys.argv) > 2 else 50
LEARNER = learners()["fudyadt"]
OPTIONS = LEARNER.Options(kind="fudyadt", epsilon=0.5, alpha=0.0, beta=0.0, max_depth=10)
FEATURES = Features(tuple(f"x{j}" for j in range(d)), (False,) * d)
print(machine("ray"), f"rows {rows} features {d}")


def stream(size: int = 50_000):
    """Warm-up of ``rows`` rows, in parts."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=d)
    for begin in range(0, rows, size):
        m = min(size, rows - begin)
        X = rng.random((m, d))
        y = (X @ weights + rng.normal(size=m) > weights.sum() / 2).astype(np.int32)
        op = np.full(m, INSERT, dtype=np.int8)
        yield UpdateBatch(begin, op, np.arange(begin, begin + m), X, y, 2, np.full(m, -1), rows)


def rebuild_times(session, repeats: int = 5) -> list[float]:
    """The root holds ``rows`` and takes rows / 2 updates: delete and insert to just below, then time the trigger."""
    for _ in session.process(stream()):
        pass
    rng = np.random.default_rng(2)
    seq, times = rows, []
    next_id, oldest = rows, 0
    for _ in range(repeats + 1):
        while True:  # updates come in pairs that keep the size; find the batch with the rebuild of the root
            m = 20_000
            op = np.tile(np.array([DELETE, INSERT], dtype=np.int8), m // 2)
            ids = np.empty(m, dtype=np.int64)
            ids[0::2] = np.arange(oldest, oldest + m // 2)
            ids[1::2] = np.arange(next_id, next_id + m // 2)
            X, y = rng.random((m // 2, d)), rng.integers(0, 2, m // 2).astype(np.int32)
            batch = UpdateBatch(seq, op, ids, X, y, 2, np.full(m, -1), rows)
            ((_, result),) = session.process([batch])
            seq, next_id, oldest = seq + m, next_id + m // 2, oldest + m // 2
            large = result.log["rows"] >= rows * 0.9
            if large.any():
                times.append(float(result.log["seconds"][large].max()))
                break
    return times[1:]


def run(name: str, session) -> float:
    began = time.perf_counter()
    times = rebuild_times(session)
    everything = time.perf_counter() - began
    print(f"{name:34s} BUILD {statistics.median(times):6.2f} s  {[round(t, 2) for t in times]}")
    print(f"{'':34s} digest {session.digest()[7:19]}, the whole run {everything:.0f} s")
    session.close()
    return statistics.median(times)


alone = run("in process, one core", InProcessSession(LEARNER, OPTIONS, FEATURES, 1, WorkPlan(2**62)))
cluster = connect("local", bundles(2))
ours = RaySession(cluster, LEARNER, OPTIONS, FEATURES, shards=2, plan=WorkPlan(shared_store=False), owns_cluster=True)
shared = run("Ray, 2 shards", ours)
print(f"in process / Ray: {alone / shared:.2f}")
