"""Training and updates in place with rows divided: Ray with 2 shards beside one thread of one process; wall time.

Synthetic rows, 50 numbers, two classes, 20 iterations. A D' deletes the oldest rows and inserts as many.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from gbdt.command import Request
from kit import progress, show

from raydt.examples.features import Features
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.parallel.threads import limited
from raydt.sessions.session import InProcessSession

ROWS, COLUMNS, PART = 1_000_000, 50, 50_000
#: Rows of the model that is updated, and D' of each kind.
UPDATED, BATCHES = 200_000, 5
OPTIONS = {"max_iter": 20, "max_bins": 255}
SHARDS_DO_ALL = WorkPlan(local_work_limit=0)


def stream(rows: int) -> Iterator[UpdateBatch]:
    """A warm-up of ``rows`` rows, in parts."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=COLUMNS)
    for begin in range(0, rows, PART):
        m = min(PART, rows - begin)
        X = rng.random((m, COLUMNS))
        y = (X @ weights + rng.normal(size=m) > weights.sum() / 2).astype(np.int32)
        op, none = np.full(m, INSERT, dtype=np.int8), np.full(m, -1, dtype=np.int64)
        yield UpdateBatch(begin, op, np.arange(begin, begin + m), X, y, 2, none, rows)


def replaced(every: int) -> Iterator[UpdateBatch]:
    """Batches D' of ``every`` updates of :data:`UPDATED` rows."""
    rng, half = np.random.default_rng(3), every // 2
    op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), half)
    for k in range(BATCHES):
        ids = np.concatenate([np.arange(k * half, (k + 1) * half), UPDATED + np.arange(k * half, (k + 1) * half)])
        X = rng.random((half, COLUMNS))
        y = (X.sum(axis=1) > COLUMNS / 2).astype(np.int32)
        yield UpdateBatch(UPDATED + k * every, op, ids, X, y, 2, np.full(every, -1, dtype=np.int64), UPDATED)


def training(session: Any) -> tuple[float, float, str]:
    """Wall seconds of the training and of everything, and the digest."""
    began, found = time.perf_counter(), 0.0
    for _, result in session.process(stream(ROWS)):
        found += float(result.log["seconds"].sum())
    return found, time.perf_counter() - began, session.digest()[7:19]


def updates(session: Any, every: int) -> tuple[float, float, str]:
    """Median wall seconds of a D' at the coordinator and with its way there, and the digest."""
    for _ in session.process(stream(UPDATED)):
        pass
    inside, whole = [], []
    for batch in replaced(every):
        began = time.perf_counter()
        ((_, result),) = session.process([batch])
        whole.append(time.perf_counter() - began)
        inside.append(float(result.log["seconds"].sum()))
    return statistics.median(inside), statistics.median(whole), session.digest()[7:19]


def compare(repeats: int) -> tuple[float, float]:
    """Median wall seconds of the training in one thread, and on Ray with 2 shards; their digests are equal."""
    alone, shared = (statistics.median(one[0] for one in several) for several in times(repeats, training).values())
    return alone, shared


def times(repeats: int, measure: Callable[[Any], tuple[float, float, str]], **more: Any) -> dict[str, list[Any]]:
    """What ``measure`` gives for sessions in one thread and on Ray, in turns."""
    from actors.cluster import bundles, connect
    from actors.session import RaySession

    learner = learners()["gbdt"]
    options = learner.Options(kind="gbdt", **OPTIONS, **more)
    features = Features(tuple(f"x{j}" for j in range(COLUMNS)), (False,) * COLUMNS)
    cluster = connect("local", bundles(2))
    found: dict[str, list[Any]] = {"one thread": [], "Ray, 2 shards": []}
    for _ in range(repeats):
        for name, several in found.items():
            if name == "one thread":
                session: Any = InProcessSession(learner, options, features, 1)
            else:
                session = RaySession(cluster, learner, options, features, shards=2, plan=SHARDS_DO_ALL)
            with limited(1):
                several.append(measure(session))
            session.close()
            progress(name, *(f"{one:.3f}" for one in several[-1][:2]), several[-1][2], f"load {os.getloadavg()[0]:.1f}")
    cluster.close()
    assert len({digest for several in found.values() for *_, digest in several}) == 1, "the models differ"
    return found


def lightgbm(rows: int) -> float:
    """Wall seconds in which LightGBM bins and trains with these options, on one thread."""
    import lightgbm as lgb

    batches = list(stream(rows))
    X, y = np.concatenate([batch.X for batch in batches]), np.concatenate([batch.y for batch in batches])
    options = {"objective": "binary", "num_leaves": 20, "lambda_l2": 1.0, "min_data_in_leaf": 1}
    options |= {"max_bin": OPTIONS["max_bins"], "num_threads": 1, "verbosity": -1}
    began = time.perf_counter()
    lgb.train(options, lgb.Dataset(X, y), OPTIONS["max_iter"])
    return time.perf_counter() - began


def row(work: str, found: dict[str, list[Any]]) -> list[str]:
    """Medians of both, and how many times as fast Ray is; without and with the way of the rows."""
    alone, shared = ([statistics.median(one[i] for one in several) for i in (0, 1)] for several in found.values())
    times = [f"{one / other:.2f}" for one, other in zip(alone, shared, strict=True)]
    return [work, f"{alone[0]:.3f}", f"{shared[0]:.3f}", times[0], f"{alone[1]:.3f}", f"{shared[1]:.3f}", times[1]]


def run(request: Request) -> None:
    """Print the table."""
    seconds = statistics.median(lightgbm(ROWS) for _ in range(request.seeds))
    rows = [row(f"training of {ROWS:,}", times(request.seeds, training))]
    for every in (20_000, 1_000):
        found = times(request.seeds, partial(updates, every=every), update_every=every, retrain="never")
        rows.append(row(f"D' of {every:,}, {UPDATED:,} rows", found))
    header = ["work", "one thread s", "Ray s", "times", "with all rows s", "Ray s", "times"]
    note = f"{COLUMNS} numbers, 20 iterations, 2 shards. LightGBM trains in {seconds:.2f} s with one thread."
    show("Training and updates with shards", header, rows, note)
