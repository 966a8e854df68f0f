"""A whole in-process replay beside the bare engine: 5,000,000 synthetic SEA events, insert-only, epsilon 0.5.

The bare engine is the time inside ``session.apply`` for the same updates, with the generation of the stream left
out; the replay is everything between start-up and report (reading, updates, metrics, tables). Wall time, one
thread each side, median of 5 pairs in turn.
Run: python benchmarks/replay_overhead.py [events]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from measure import machine

import pipelines
from pipelines.config import load_config
from pipelines.saving import open_stream
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.session import InProcessSession

events = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
print(machine())
SETTINGS = {
    "source": {"kind": "synthetic", "generator": "sea", "n": events},
    "stream": {"model": "incremental"},
    "learner": {"kind": "fudyadt", "epsilon": 0.5, "alpha": 0.0, "beta": 0.0, "max_depth": 10},
    "cluster": {"backend": "in_process", "shards": 1, "local_work_limit": 2**50},
    "output": {"report": False, "metrics_every": 100_000},
}


def bare() -> float:
    config = load_config(SETTINGS)
    source, stream = open_stream(config)
    session = InProcessSession(learners()["fudyadt"], config.learner, source.features, 1, WorkPlan(2**50))
    busy = 0.0
    for batch in stream.batches(config.cluster.batch_size):
        began = time.perf_counter()
        session.apply(batch)
        busy += time.perf_counter() - began
    return busy


def replay() -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        summary = pipelines.replay(SETTINGS, out=Path(folder) / "run").summary
        return summary["seconds"], summary["startup_seconds"]


learners()["fudyadt"].warmup()
pairs = []
for _ in range(5):
    engine = bare()
    stream_seconds, startup = replay()
    pairs.append((engine, stream_seconds))
    print(f"bare engine {engine:6.2f} s   replay {stream_seconds:6.2f} s   (start-up {startup:.2f} s left out)")
ratio = statistics.median(whole / engine for engine, whole in pairs)
each = statistics.median(whole for _, whole in pairs) / events * 1e6
print(f"replay / bare engine: {ratio:.2f} (median of 5), {each:.2f} us/event")
