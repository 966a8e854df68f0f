"""A whole replay beside what it could cost at least, insert-only SEA, epsilon 0.5.

1. 5,000,000 events in process beside the bare engine: the time inside ``session.apply`` for the same updates, with the
   generation of the stream left out. One thread each side, median of 5 pairs in turn.
2. 1,000,000 events on a private Ray with 2 shards beside the same config in process, median of 3 pairs in turn: in
   messages of 4,096 updates, and in those of 1,000 that the default ``output.metrics_every`` cuts. Ray has its
   coordinator, shards and driver in processes of their own; on a machine with other work, its share of the cores is
   larger than that of the one process, and the ratio too small.

A replay is everything between start-up and report (reading, updates, metrics, tables), in wall time.
Run: python benchmarks/replay_overhead.py [events of 1] [events of 2]; 0 leaves a part out.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import machine

import pipelines
from pipelines.config import load_config
from pipelines.saved_runs import open_stream
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession, compile_kernels


def settings(events: int, metrics_every: int, cluster: dict[str, Any]) -> dict[str, Any]:
    return {
        "source": {"kind": "synthetic", "generator": "sea", "n": events},
        "stream": {"model": "incremental"},
        "learner": {"kind": "fudyadt", "epsilon": 0.5, "alpha": 0.0, "beta": 0.0, "max_depth": 10},
        "cluster": cluster,
        "output": {"report": False, "metrics_every": metrics_every},
    }


def bare(events: int) -> float:
    config = load_config(settings(events, 100_000, {"backend": "in_process", "shards": 1}))
    source, stream = open_stream(config)
    session = InProcessSession(learners()["fudyadt"], config.learner, source.features, 1, WorkPlan(2**50))
    busy = 0.0
    for batch in stream.batches(config.cluster.batch_size):
        began = time.perf_counter()
        session.apply(batch)
        busy += time.perf_counter() - began
    return busy


def replay(events: int, metrics_every: int, **cluster: Any) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = pipelines.replay(settings(events, metrics_every, cluster), out=Path(folder) / "run")
    return float(result.summary["seconds"])


def beside_bare_engine(events: int) -> None:
    pairs = []
    for _ in range(5):
        pairs.append((bare(events), replay(events, 100_000, backend="in_process", shards=1)))
        print(f"bare engine {pairs[-1][0]:6.2f} s   replay {pairs[-1][1]:6.2f} s")
    each = statistics.median(whole for _, whole in pairs) / events * 1e6
    print(f"replay / bare engine: {ratio(pairs):.2f} (median of 5), {each:.2f} us/event")


def ray_beside_in_process(events: int) -> None:
    for metrics_every, size in ((25 * 4096, 4096), (1000, 1000)):
        pairs = []
        for _ in range(3):
            pairs.append([replay(events, metrics_every, backend=name, shards=2) for name in ("in_process", "ray")])
            print(f"messages of {size:,}: in process {pairs[-1][0]:6.2f} s   Ray, 2 shards {pairs[-1][1]:6.2f} s")
        print(f"Ray / in process, messages of {size:,}: {ratio(pairs):.2f} (median of 3)")


def ratio(pairs: Sequence[Sequence[float]]) -> float:
    return statistics.median(whole / base for base, whole in pairs)


print(machine("ray"))
compile_kernels(learners()["fudyadt"])
first, second = ([int(argument) for argument in sys.argv[1:]] + [5_000_000, 1_000_000][len(sys.argv) - 1 :])[:2]
if first:
    beside_bare_engine(first)
if second:
    ray_beside_in_process(second)
