"""What a whole replay costs beside its engine, by the length of the stream: CPU time per example, defaults.

Engine: a session in this process that applies the same updates, read beforehand, in batches of 4,096. Replay: the file
is read, metrics are written every 1,000 updates, then checkpoint, digest and model; in this process, without a report.
In turns, median of the rounds after one that is not counted.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from ctree.command import Request
from ctree.prequential import BATCH, WARMUP
from kit import progress, show
from measure import DATA

from pipelines import replay
from pipelines.config import Config, load_config
from pipelines.saved_runs import open_stream
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED
from raydt.sessions.session import InProcessSession

#: Whole files, the shortest first.
FILES = ("electricity", "sea_concepts", "posture", "poker_lsn")
ROUNDS = 3


def config_of(name: str) -> Config:
    """The defaults over a whole file."""
    return load_config(
        {
            "source": {"kind": "parquet", "path": str(DATA / f"{name}.parquet")},
            "stream": {"model": "incremental", "warmup": WARMUP},
            "learner": {"kind": "confidence_tree"},
            "cluster": {"backend": "in_process"},
            "output": {"report": False},
        }
    )


def engine(config: Config) -> float:
    """CPU seconds of the session alone."""
    source, updates = open_stream(config)
    batches = list(updates.batches(BATCH))
    began = time.process_time()
    session = InProcessSession(learners()[config.learner.kind], config.learner, source.features, 1, NOTHING_DIVIDED)
    for batch in batches:
        session.apply(batch)
    return time.process_time() - began


def replayed(config: Config) -> tuple[float, int]:
    """CPU seconds of the whole replay, and its examples."""
    with tempfile.TemporaryDirectory() as folder:  # which is not removed within the time
        began = time.process_time()
        summary = replay(config, Path(folder) / "run").summary
        seconds = time.process_time() - began
    return seconds, int(summary["updates"])


def run(request: Request) -> None:
    """Print the table."""
    table = []
    for name in request.sets(*FILES):
        config, engines, wholes, n = config_of(name), [], [], 0
        for _ in range(ROUNDS + 1):
            engines.append(engine(config))
            seconds, n = replayed(config)
            wholes.append(seconds)
        own, whole = (1e6 * statistics.median(times[1:]) / n for times in (engines, wholes))
        table.append([name, f"{n:,}", f"{own:.2f}", f"{whole:.2f}", f"{whole / own:.2f}"])
        progress(*table[-1])
    show("CPU time per example, us", ["stream", "rows", "engine", "whole replay", "times the engine"], table)
