"""All cores of a machine: training, predictions and updates in place with one thread and with more, and LightGBM.

Wall time, medians of turns in which all contestants come once; the first turn, which compiles and touches memory, is
not counted. Digests and predictions of ours are equal, whatever the threads, or the program ends. Only figures of free
cores say something: the load is printed. Generated rows, numbers of two classes; 255 bins, defaults otherwise.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gbdt.command import Request
from gbdt.contestants import BINS, L2, LEAVES, RATE
from kit import progress, show

from raydt import OnlineGradientBoostingClassifier
from raydt.learners.gbdt.trainer import ThreadTrainer
from raydt.parallel import cpus_here, limited

#: Rows, columns and iterations of trainings; rows and columns, iterations and sizes of D' of updates.
TRAININGS = ((1_000_000, 50, 20), (105_000, 10, 100))
UPDATED, BATCHES = (200_000, 50, 20), (20_000, 1_000)
#: Rows that are predicted.
PREDICTED = 1_000_000


def rows_of(n: int, d: int) -> tuple[Any, Any]:
    """Rows of which ten columns decide."""
    rng = np.random.default_rng(0)
    X = rng.random((n, d))
    return X, (X[:, :10].sum(axis=1) + 0.5 * rng.normal(size=n) > 5).astype(np.int32)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall seconds of a call, and its result."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


class Trees:
    """Wall seconds of the training alone, without bins and rows."""

    def __init__(self) -> None:
        self.seconds, self._train = 0.0, ThreadTrainer._train

    def __enter__(self) -> Trees:
        def train(trainer: ThreadTrainer, *given: Any) -> None:
            self.seconds += timed(lambda: self._train(trainer, *given))[0]

        ThreadTrainer._train = train  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        ThreadTrainer._train = self._train  # type: ignore[method-assign]


def ours(X: Any, y: Any, iterations: int) -> Any:
    """Our model."""
    return OnlineGradientBoostingClassifier(max_iter=iterations, max_bins=BINS, retrain="never").fit(X, y)


def lightgbm(X: Any, y: Any, iterations: int, threads: int) -> Any:
    """LightGBM's, with the same settings."""
    import lightgbm as peer

    options = {"objective": "binary", "num_leaves": LEAVES, "learning_rate": RATE, "max_bin": BINS, "lambda_l2": L2}
    options |= {"num_threads": threads, "verbose": -1, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0.0}
    return peer.train(options, peer.Dataset(X, y), iterations)


def training(n: int, d: int, iterations: int, counts: list[int], turns: int) -> list[list[str]]:
    """Lines of the table: trees alone, all of ``fit``, and predictions of ``PREDICTED`` rows."""
    X, y = rows_of(n, d)
    asked = np.tile(X, (-(-PREDICTED // n), 1))[:PREDICTED]
    names = ("trees", "fit", "fit, LightGBM", "predict", "predict, LightGBM")
    times: dict[str, dict[int, list[float]]] = {name: {k: [] for k in counts} for name in names}
    results = set()
    for turn in range(turns + 1):
        for k in counts:
            with limited(k), Trees() as alone:
                seconds, model = timed(partial(ours, X, y, iterations))
                predicting, predicted = timed(partial(model.predict_proba, asked))
            results.add((model.digest(), hashlib.sha256(predicted.tobytes()).hexdigest()))
            peers, peer = timed(partial(lightgbm, X, y, iterations, k))
            peers_predicting, _ = timed(partial(peer.predict, asked, num_threads=k))
            if turn:
                taken = (alone.seconds, seconds, peers, predicting, peers_predicting)
                for name, one in zip(names, taken, strict=True):
                    times[name][k].append(one)
    assert len(results) == 1, "the models or their predictions differ"
    return [line(f"{n:,} x {d}, {iterations} iterations: {name}", found) for name, found in times.items()]


def updates(every: int, counts: list[int], turns: int) -> list[str]:
    """The line of updates that delete half of ``every`` rows and insert as many."""
    n, d, iterations = UPDATED
    half = every // 2
    X, y = rows_of(n + (turns + 1) * half, d)
    models = {k: ours(X[:n], y[:n], iterations) for k in counts}
    times: dict[int, list[float]] = {k: [] for k in counts}
    for turn in range(turns + 1):
        gone, new = np.arange(turn * half, (turn + 1) * half), n + np.arange(turn * half, (turn + 1) * half)
        for k, model in models.items():
            with limited(k):
                step = partial(model.replace_examples, gone, X[new], y[new], new_ids=new, digests=False)
                seconds, _ = timed(step)
            if turn:
                times[k].append(seconds)
        results = {(model.digest(), model.predict_proba(X).tobytes()) for model in models.values()}
        assert len(results) == 1, "the models or their predictions differ"
    return line(f"{n:,} x {d}, {iterations} iterations: D' of {every:,}", times)


def line(name: str, times: dict[int, list[float]]) -> list[str]:
    """One line of the table: medians, how many times faster the last one is than the first, and the load."""
    medians = [statistics.median(several) for several in times.values()]
    faster, load = f"{medians[0] / medians[-1]:.2f}", f"{os.getloadavg()[0]:.1f}"
    found = [name, *(f"{seconds:.3f}" for seconds in medians), faster, load]
    progress(*found)
    return found


def run(request: Request) -> None:
    """Print the table."""
    counts = sorted({1, 2, cpus_here()})
    rows = [row for n, d, iterations in TRAININGS for row in training(n, d, iterations, counts, request.seeds)]
    rows += [updates(every, counts, request.seeds) for every in BATCHES]
    header = ["work", *(f"{k} thread{'s' * (k > 1)} s" for k in counts), "times faster", "load"]
    note = f"Wall seconds, medians of {request.seeds}; digests and predictions are equal."
    show("Threads", header, rows, note)
