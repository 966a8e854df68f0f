"""Training on rows that the shards hold: Ray with 2 shards beside one process and LightGBM; wall time of the training.

Synthetic rows, 50 numbers, two classes, 20 iterations.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from gbdt.command import Request
from kit import progress, show

from raydt.examples.features import Features
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession

ROWS, COLUMNS, PART = 1_000_000, 50, 50_000
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


def training(session: Any, rows: int) -> tuple[float, float, str]:
    """Wall seconds of the training and of everything, and the digest."""
    began, found = time.perf_counter(), 0.0
    for _, result in session.process(stream(rows)):
        found += float(result.log["seconds"].sum())
    answer = found, time.perf_counter() - began, session.digest()[7:19]
    session.close()
    return answer


def compare(repeats: int) -> tuple[float, float]:
    """Median wall seconds of the training in this process, and on Ray with 2 shards; their digests are equal."""
    found = times(repeats)
    assert len({digest for several in found.values() for _, _, digest in several}) == 1, "the models differ"
    alone, shared = (statistics.median(one[0] for one in several) for several in found.values())
    return alone, shared


def times(repeats: int) -> dict[str, list[tuple[float, float, str]]]:
    """What :func:`training` gives, in turns."""
    from actors.cluster import bundles, connect
    from actors.session import RaySession

    learner = learners()["gbdt"]
    options = learner.Options(kind="gbdt", **OPTIONS)
    features = Features(tuple(f"x{j}" for j in range(COLUMNS)), (False,) * COLUMNS)
    cluster = connect("local", bundles(2))
    found: dict[str, list[tuple[float, float, str]]] = {"in process, one core": [], "Ray, 2 shards": []}
    for _ in range(repeats):
        found["in process, one core"].append(training(InProcessSession(learner, options, features, 1), ROWS))
        found["Ray, 2 shards"].append(
            training(RaySession(cluster, learner, options, features, shards=2, plan=SHARDS_DO_ALL), ROWS)
        )
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


def run(request: Request) -> None:
    """Print the table."""
    found, rows = times(request.seeds), []
    seconds = statistics.median(lightgbm(ROWS) for _ in range(request.seeds))
    rows.append(["LightGBM, one thread", f"{seconds:.2f}", "", ""])
    progress(*rows[-1])
    for name, several in found.items():
        cells = [f"{statistics.median(one[i] for one in several):.2f}" for i in (0, 1)]
        rows.append([name, *cells, several[0][2]])
        progress(*rows[-1])
    alone, shared = (statistics.median(one[0] for one in several) for several in found.values())
    header = ["where", "training, wall s", "with reading and binning of all rows, wall s", "digest"]
    note = f"{ROWS:,} rows of {COLUMNS} numbers, 20 iterations; in process / Ray: {alone / shared:.2f}."
    show("Training with shards", header, rows, note)
