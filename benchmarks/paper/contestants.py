"""Who takes part: this project's FuDyADT, river's EFDT and HAT, and the two trivial predictors.

Every contestant predicts each example before it sees it. River's trees and the trivial predictors cannot delete:
they see all rows, inserted only.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from paper.datasets import DataSet, Folder

from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.streams.deletion_log import RandomUpdates
from raydt.streams.windows import Incremental, SlidingWindow

Codes = npt.NDArray[np.int32]

OURS, EFDT, HAT, NO_CHANGE, MAJORITY = "raydt", "EFDT", "HAT", "no-change", "majority"
INCREMENTAL, SLIDING_WINDOW, RANDOM_UPDATES = "incremental", "sliding_window", "random_updates"
GRACE_PERIODS = (100, 500, 1000)
FUDYADT = learners()["fudyadt"]


class Outcome(NamedTuple):
    """Predictions for every inserted row in order (-1: none was made), and what they cost.

    ``seconds`` is CPU time of the whole stream, predictions included; 0 where it was not measured.
    """

    predictions: Codes
    updates: int
    seconds: float


def cpu_seconds(run: Callable[[], object], budget: float = 2.0) -> float:
    """Median CPU time of at most five runs, as many as fit in ``budget`` seconds, but at least one."""
    times: list[float] = []
    while len(times) < 5 and (not times or sum(times) + times[0] <= budget):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return statistics.median(times)


@lru_cache(maxsize=1)
def _stream(folder: Folder, data: DataSet, model: str, window: int) -> tuple[Features, list[UpdateBatch]]:
    """All updates of a stream, read into memory so that reading is not timed."""
    options = {
        INCREMENTAL: lambda: Incremental(warmup=window),
        SLIDING_WINDOW: lambda: SlidingWindow(window=window, warmup=window),
        RANDOM_UPDATES: lambda: RandomUpdates(insert_probability=0.5, warmup=window, seed=7),
    }[model]()
    source = open_source(folder.source(data))
    return source.features, list(options.make(source).batches(4096))


def ours(folder: Folder, data: DataSet, model: str, window: int, epsilon: float, max_depth: int) -> Outcome:
    """FuDyADT with alpha = beta = 0 and k = 1; the first ``window`` rows build the tree at once, unscored."""
    features, batches = _stream(folder, data, model, window)
    options = FUDYADT.Options(kind="fudyadt", epsilon=epsilon, alpha=0, beta=0, max_depth=max_depth)
    predictions: list[Codes] = []

    def run() -> None:
        session = InProcessSession(FUDYADT, options, features, 1, WorkPlan(2**62))
        predictions[:] = [result.predictions[batch.op == INSERT] for batch, result in session.process(batches)]

    seconds = cpu_seconds(run)
    return Outcome(np.concatenate(predictions), sum(map(len, batches)), seconds)


def peer(folder: Folder, data: DataSet, name: str, grace_period: int) -> Outcome:
    """A tree of river with its defaults but the grace period, insert-only, one run."""
    from river import tree

    if name == EFDT:
        model = tree.ExtremelyFastDecisionTreeClassifier(grace_period=grace_period)
    else:
        model = tree.HoeffdingAdaptiveTreeClassifier(grace_period=grace_period, seed=7)
    rows, labels = folder.dictionaries(data), folder.labels(data).tolist()
    predictions = np.zeros(len(rows), dtype=np.int32)
    began = time.process_time()
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        predictions[i] = model.predict_one(row) or 0
        model.learn_one(row, label)
    return Outcome(predictions, len(rows), time.process_time() - began)


def trivial(folder: Folder, data: DataSet, name: str) -> Outcome:
    """The label inserted just before, or the label inserted most often so far (ties: negative); first: negative."""
    y = folder.labels(data)
    if name == NO_CHANGE:
        predictions = np.concatenate([[0], y[:-1]])
    else:
        positives_ahead = np.cumsum(2 * y - 1) - (2 * y - 1)
        predictions = positives_ahead > 0
    return Outcome(predictions.astype(np.int32), len(y), 0.0)
