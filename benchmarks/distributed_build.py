"""One global BUILD of 1,000,000 x 50 with resident rows: Ray with 2 shards beside the in-process engine.

Wall time of the update that triggers the rebuild of the whole tree, median of 5; max_depth 10.
Run: python benchmarks/distributed_build.py [rows] [features]
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from measure import machine

from actors.cluster import bundles, connect
from actors.session import RaySession
from raydt.examples.features import Features
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED
from raydt.sessions.session import InProcessSession

ROWS, COLUMNS = 1_000_000, 50
LEARNER = learners()["fudyadt"]
OPTIONS = LEARNER.Options(kind="fudyadt", epsilon=0.5, alpha=0.0, beta=0.0, max_depth=10)


def stream(rows: int, d: int, size: int = 50_000) -> Iterator[UpdateBatch]:
    """A warm-up of ``rows`` rows, in parts."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=d)
    for begin in range(0, rows, size):
        m = min(size, rows - begin)
        X = rng.random((m, d))
        y = (X @ weights + rng.normal(size=m) > weights.sum() / 2).astype(np.int32)
        op = np.full(m, INSERT, dtype=np.int8)
        yield UpdateBatch(begin, op, np.arange(begin, begin + m), X, y, 2, np.full(m, -1), rows)


def rebuild_times(session: Any, rows: int, d: int, repeats: int) -> list[float]:
    """The root holds ``rows`` and takes rows / 2 updates: delete and insert to just below, then time the trigger."""
    for _ in session.process(stream(rows, d)):
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


def compare(rows: int, d: int, repeats: int = 5) -> tuple[float, float]:
    """Median wall seconds of a BUILD in this process, and on Ray with 2 shards; their digests are equal."""
    features = Features(tuple(f"x{j}" for j in range(d)), (False,) * d)
    alone = InProcessSession(LEARNER, OPTIONS, features, 1, NOTHING_DIVIDED)
    shared = RaySession(connect("local", bundles(2)), LEARNER, OPTIONS, features, shards=2)
    medians, digests = [], set()
    for session in (alone, shared):
        medians.append(statistics.median(rebuild_times(session, rows, d, repeats)))
        digests.add(session.digest())
        session.close()
    assert len(digests) == 1, "the trees differ"
    return medians[0], medians[1]


if __name__ == "__main__":
    rows, d = (int(given) for given in sys.argv[1:3]) if len(sys.argv) > 2 else (ROWS, COLUMNS)
    print(machine("ray"))
    alone, shared = compare(rows, d)
    print(f"BUILD of {rows:,} x {d}: in process {alone:.2f} s, Ray with 2 shards {shared:.2f} s: {alone / shared:.2f}")
