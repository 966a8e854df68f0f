"""A whole replay of insert-only SEA, epsilon 0.5, in process beside the bare engine.

The engine is the time inside ``session.apply`` for the same updates, with the generation of the stream left out. A
replay is everything between start-up and report (reading, updates, metrics, tables). Wall time, one thread each side,
median of 5 pairs in turn. ``ray_pays.py`` compares a long stream in process and on Ray.

Run: python benchmarks/replay_overhead.py [--events 5000000]
"""

import statistics
import time

from harness import arguments, print_machine, replayed, show

from pipelines.config import load_config
from pipelines.saved_runs import open_stream
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession, compile_kernels

LEARNER = {"kind": "fudyadt", "epsilon": 0.5, "alpha": 0.0, "beta": 0.0, "max_depth": 10}
CLUSTER = {"backend": "in_process", "shards": 1}


def bare(events: int) -> float:
    """Return the seconds of the engine alone."""
    source = {"kind": "synthetic", "generator": "sea", "n": events}
    sections = {"source": source, "stream": {"model": "incremental"}, "learner": LEARNER, "cluster": CLUSTER}
    config = load_config(sections)
    opened, stream = open_stream(config)
    session = InProcessSession(learners()["fudyadt"], config.learner, opened.features, 1, WorkPlan(2**50))
    busy = 0.0
    for batch in stream.batches(config.cluster.batch_size):
        began = time.perf_counter()
        session.apply(batch)
        busy += time.perf_counter() - began
    return busy


def whole(events: int) -> float:
    """Return the seconds of the stream, as the summary of a replay reports them."""
    source, output = {"kind": "synthetic", "generator": "sea", "n": events}, {"report": False, "metrics_every": 100_000}
    return float(replayed(LEARNER, source, {"model": "incremental"}, cluster=CLUSTER, output=output)[0]["seconds"])


if __name__ == "__main__":
    n = arguments(__doc__, events=5_000_000).events
    print_machine()
    compile_kernels(learners()["fudyadt"])
    pairs = [(bare(n), whole(n)) for _ in range(5)]
    lines = [[f"{engine:.2f}", f"{replay:.2f}", f"{replay / engine:.2f}"] for engine, replay in pairs]
    ratio, us = (statistics.median(v) for v in ([b / a for a, b in pairs], [1e6 * b / n for _, b in pairs]))
    show(f"{n:,} events: {us:.2f} us an event", ["bare engine s", "replay s", f"median {ratio:.2f}"], lines)
