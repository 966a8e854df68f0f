"""A whole in-process replay beside the bare engine: 5,000,000 synthetic SEA events.

The bare engine gets the same updates as prepared arrays. Start-up (imports, compilation from the cache) and the
report are excluded on both sides and stated. CPU time of this process, one run each side after a warm-up, thrice.
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
    learner = learners()["fudyadt"]
    session = InProcessSession(learner, config.learner, source.features, 1, WorkPlan(2**50))
    busy = 0.0
    for batch in stream.batches(config.cluster.batch_size):
        began = time.process_time()
        session.apply(batch)
        busy += time.process_time() - began
    return busy


def replay() -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        result = pipelines.replay(SETTINGS, out=Path(folder) / "run")
        return time.process_time() - began, result.summary["seconds"]


learners()["fudyadt"].warmup()
pairs = []
for _ in range(3):
    engine = bare()
    whole, stream_seconds = replay()
    pairs.append((engine, whole, stream_seconds))
    print(f"bare engine {engine:6.2f} s CPU   replay {whole:6.2f} s CPU ({stream_seconds:.2f} s wall in the stream)")
ratio = statistics.median(whole / engine for engine, whole, _ in pairs)
each = statistics.median(whole for _, whole, _ in pairs) / events * 1e6
print(f"replay / bare engine: {ratio:.2f} (median of 3), {each:.2f} us/event")
