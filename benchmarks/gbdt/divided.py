"""Updates in place with 2 shards beside one process: processor time of coordinator and slower shard, and the rounds.

The shards are called one after another in this process, so that no message takes time. Rows and options are those of
``distributed``; a D' deletes the oldest rows and inserts as many.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from gbdt.command import Request
from gbdt.distributed import COLUMNS, OPTIONS, stream
from kit import progress, show

from raydt.examples.features import Features
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.exchange.shard import FeatureShard
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession

ROWS, BATCHES = 200_000, 5


def replaced(every: int) -> Iterator[UpdateBatch]:
    """Batches D' of ``every`` updates."""
    rng, half = np.random.default_rng(3), every // 2
    op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), half)
    for k in range(BATCHES):
        ids = np.concatenate([np.arange(k * half, (k + 1) * half), ROWS + np.arange(k * half, (k + 1) * half)])
        X = rng.random((every, COLUMNS))
        y = (X.sum(axis=1) > COLUMNS / 2).astype(np.int32)
        yield UpdateBatch(ROWS + k * every, op, ids, X, y, 2, np.full(every, -1, dtype=np.int64), ROWS)


def measured(every: int, shards: int, shared: bool) -> tuple[list[float], float, int, str]:
    """Processor seconds of each shard and of all, rounds, and the digest."""
    learner = learners()["gbdt"]
    options = learner.Options(kind="gbdt", update_every=every, retrain="never", **OPTIONS)
    features = Features(tuple(f"x{j}" for j in range(COLUMNS)), (False,) * COLUMNS)
    session = InProcessSession(learner, options, features, shards, WorkPlan(shared_store=shared))
    for _ in session.process(stream(ROWS)):
        pass
    of_shard, receive = [0.0] * shards, FeatureShard.receive

    def timed(shard: FeatureShard, *message: Any) -> Any:
        began = time.thread_time()
        reply = receive(shard, *message)
        of_shard[shard.index] += time.thread_time() - began
        return reply

    before = session.statistics()["rounds"]
    FeatureShard.receive = timed  # type: ignore[method-assign]
    try:
        began = time.thread_time()
        for _ in session.process(replaced(every)):
            pass
        taken = time.thread_time() - began
    finally:
        FeatureShard.receive = receive  # type: ignore[method-assign]
    return of_shard, taken, session.statistics()["rounds"] - before, session.digest()


def run(request: Request) -> None:
    """Print the table."""
    rows = []
    for every in (20, 1_000, 20_000):
        _, alone, _, digest = measured(every, 1, True)
        of_shard, together, rounds, same = measured(every, 2, False)
        assert digest == same, "the models differ"
        coordinator = together - sum(of_shard)
        share = (coordinator + max(of_shard)) / alone
        cells = [f"{seconds:.2f}" for seconds in (alone, coordinator, max(of_shard), share)]
        rows.append([f"{every:,}", *cells, f"{rounds:,}"])
        progress(*rows[-1])
    header = ["updates in a D'", "one process s", "coordinator s", "slower shard s", "both / one process", "rounds"]
    note = f"{ROWS:,} rows of {COLUMNS} numbers, 20 iterations, {BATCHES} D', retrain: never."
    show("Updates in place with shards", header, rows, note)
