"""Prequential accuracy and time of confidence trees: defaults, settings, drift, whole replays, river.

Every example is predicted before it is learned; the first 200 rows, our warm-up, are not scored on either side. Rows
are in file order where order is time, else in three random orders; at most ``--rows`` of each file. CPU time of this
process unless a table says otherwise. river: ``predict_one`` and ``learn_one`` on dictionaries made beforehand.
"""

import statistics
import time
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ctree.trials import STREAMS
from harness import Request, electricity, in_turns, inserts, parquet, progress, read, replayed, session, show

from pipelines.config import load_config
from pipelines.saved_runs import open_stream
from raydt.learners.base import NOTHING_DIVIDED

#: Rows that are not scored, rows of a batch, runs of ours.
WARMUP, BATCH, RUNS = 200, 4_096, 3
#: Settings of ``choice``: each changes one option of the defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {}, "c 0.05": {"c": 0.05}, "c 0.02": {"c": 0.02}, "c 0.005": {"c": 0.005}, "c 0.002": {"c": 0.002},
    "ties 0.01": {"tie_threshold": 0.01}, "grace 50": {"grace_period": 50}, "grace 200": {"grace_period": 200},
    "bins 16": {"max_bins": 16}, "bins 256": {"max_bins": 256}, "bins stay": {"renew_bins": 0},
    "majority": {"leaf_prediction": "majority"}, "naive Bayes": {"leaf_prediction": "naive_bayes"},
    "before": {"c": 0.05, "max_bins": 256, "renew_bins": 0, "leaf_prediction": "majority"},
}  # fmt: skip
#: Settings of ``drift``: examples that are kept (0 for all).
WINDOWS = (0, 10_000, 5_000, 2_000, 1_000)


class Rows(NamedTuple):
    """Examples of one stream: float64 (n, d), class codes, names, and which columns are categories."""

    X: npt.NDArray[np.float64]
    y: npt.NDArray[np.int32]
    names: tuple[str, ...]
    categorical: tuple[bool, ...]


class Result(NamedTuple):
    """Share of right predictions, and CPU microseconds per example."""

    accuracy: float
    us: float


def orders(name: str) -> list[int | None]:
    """None for the order of the file, or the seeds of random orders."""
    return [None] if STREAMS[name] else [0, 1, 2]


def rows_of(name: str, order: int | None, most: int) -> Rows:
    """The first rows of a stream, in one order."""
    rows = _read(name, most)
    if order is None:
        return rows
    at = np.random.default_rng(order).permutation(len(rows.y))
    return rows._replace(X=np.ascontiguousarray(rows.X[at]), y=rows.y[at])


@cache
def _read(name: str, most: int) -> Rows:
    table = read(name).slice(0, most)
    columns, categorical = [], []
    names = tuple(column for column in table.column_names if column != "y")
    for column in (*names, "y"):
        values = table[column].combine_chunks()
        category = pa.types.is_dictionary(values.type)
        if category or column == "y":
            values = np.unique(np.array(values.to_pylist()).astype(str), return_inverse=True)[1]
        columns.append(np.asarray(values, dtype=np.float64))
        categorical.append(category)
    X = np.ascontiguousarray(np.stack(columns[:-1], axis=1))
    return Rows(X, columns[-1].astype(np.int32), names, tuple(categorical[:-1]))


def ours(rows: Rows, options: dict[str, Any]) -> Result:
    """A session in this process."""
    n, classes = len(rows.y), int(rows.y.max()) + 1
    found = np.empty(n, dtype=np.int32)
    began = time.process_time()
    running = session("confidence_tree", rows.categorical, NOTHING_DIVIDED, **options)
    for begin in range(0, n, BATCH):
        batch = inserts(begin, begin + BATCH, rows.X, rows.y, classes, WARMUP)
        found[begin : begin + BATCH] = running.apply(batch).predictions
    us = 1e6 * (time.process_time() - began) / n
    return Result(float((found == rows.y)[WARMUP:].mean()), us)


def theirs(rows: Rows, adaptive: bool) -> Result:
    """river's tree with its defaults."""
    from river.tree import HoeffdingAdaptiveTreeClassifier, HoeffdingTreeClassifier

    nominal = [name for name, category in zip(rows.names, rows.categorical, strict=True) if category] or None
    kind, more = (HoeffdingAdaptiveTreeClassifier, {"seed": 1}) if adaptive else (HoeffdingTreeClassifier, {})
    tree = kind(nominal_attributes=nominal, **more)
    examples = [dict(zip(rows.names, x, strict=True)) for x in rows.X.tolist()]
    right = np.zeros(len(examples), dtype=np.bool_)
    began = time.process_time()
    for i, (x, y) in enumerate(zip(examples, rows.y.tolist(), strict=True)):
        right[i] = tree.predict_one(x) == y
        tree.learn_one(x, y)
    return Result(float(right[WARMUP:].mean()), 1e6 * (time.process_time() - began) / len(examples))


def whole_replay(source: dict[str, Any], window: int = 0, **options: Any) -> Result:
    """A whole replay in this process: reading, tables, checkpoint and model."""
    model = {"model": "sliding_window", "window": window} if window else {"model": "incremental"}
    learner = {"kind": "confidence_tree", **options}
    summary, seconds = replayed(learner, source, {**model, "warmup": WARMUP})
    return Result(float(summary["metrics"]["accuracy"]), 1e6 * seconds / float(summary["inserts"]))


def _mean(results: list[Result]) -> Result:
    return Result(*np.mean(results, axis=0).tolist())


def defaults(request: Request) -> None:
    """Defaults of both sides on ten streams: accuracy and CPU time beside river's two Hoeffding trees."""

    def repeated(rows: Rows) -> Result:
        results = [ours(rows, {}) for _ in range(RUNS)]
        return Result(results[0].accuracy, statistics.median(result.us for result in results))

    ours(rows_of("bananas", 0, request.rows), {})  # so that no kernel is compiled below
    whole_replay(parquet("bananas", limit=request.rows))
    table, all_means = [], []
    for name in request.sets(*STREAMS):
        streams = [rows_of(name, order, request.rows) for order in orders(name)]
        whole = statistics.median(whole_replay(parquet(name, limit=request.rows)).us for _ in range(RUNS))
        sides = repeated, partial(theirs, adaptive=False), partial(theirs, adaptive=True)
        own, plain, adaptive = (_mean([side(rows) for rows in streams]) for side in sides)
        progress(name, own, whole, plain, adaptive)
        all_means.append([own.accuracy, plain.accuracy, adaptive.accuracy])
        times = [f"{own.us:.2f}", f"{whole:.2f}", f"{plain.us:.1f}"]
        times += [f"{plain.us / own.us:.1f}", f"{plain.us / whole:.1f}"]
        accuracies = [f"{100 * value:.2f}" for value in all_means[-1]]
        table.append([name, str(len(streams[0].y)), str(len(streams)), *accuracies, *times])
    table.append(["mean", "", "", *(f"{100 * value:.2f}" for value in np.mean(all_means, axis=0)), *[""] * 5])
    header = ["stream", "rows", "orders", "raydt", "river HT", "river HAT"]
    header += ["us, session", "us, replay", "us, river HT", "times, session", "times, replay"]
    show("Prequential accuracy and CPU time per example, defaults of both sides", header, table)


def choice(request: Request) -> None:
    """The settings among which the defaults were chosen."""
    names, table = request.sets(*STREAMS), []
    for setting, options in SETTINGS.items():
        streams = [[rows_of(name, order, request.rows) for order in orders(name)] for name in names]
        found = [100 * np.mean([ours(rows, options).accuracy for rows in of_name]) for of_name in streams]
        table.append([setting, *(f"{value:.2f}" for value in (*found, np.mean(found)))])
        progress(*table[-1])
    show("Prequential accuracy by setting, mean of the orders", ["setting", *names, "mean"], table)


def drift(request: Request) -> None:
    """Accuracy of the defaults over all examples, and over windows of the last ones.

    In a window each example is deleted exactly when so many later ones have come (``stream.model: sliding_window``):
    counts, naive Bayes and the tallies of who was right are then those of the window; splits stay. Random orders are
    those of ``source.permutation``. CPU time of a whole replay, per example.
    """
    names, table = request.sets(*STREAMS), []
    sources = [[parquet(name, limit=request.rows, permutation=order) for order in orders(name)] for name in names]
    whole_replay(parquet("bananas", limit=request.rows, permutation=0), WINDOWS[-1])  # compiles
    for window in WINDOWS[: request.settings]:
        found = [_mean([whole_replay(source, window) for source in of_name]) for of_name in sources]
        accuracies = [100 * one.accuracy for one in found]
        cells = [f"{value:.2f}" for value in (*accuracies, np.mean(accuracies))]
        table.append([f"{window:,}" if window else "all", *cells, f"{np.mean([one.us for one in found]):.1f}"])
        progress(*table[-1])
    show("Prequential accuracy by setting, mean of the orders", ["window", *names, "mean", "us"], table)


def whole(request: Request) -> None:
    """CPU time of a whole replay beside its engine, by the length of the stream, with the defaults.

    Engine: a session in this process that applies the same updates, read beforehand, in batches of 4,096. Replay: the
    file is read, metrics are written every 1,000 updates, then checkpoint, digest and model. In turns, median of three
    rounds after one that is not counted.
    """
    table = []
    for name in request.sets("electricity", "sea_concepts", "posture", "poker_lsn"):
        stream = {"model": "incremental", "warmup": WARMUP}
        config = load_config({"source": parquet(name), "stream": stream, "learner": {"kind": "confidence_tree"}})

        def engine(config: Any = config) -> float:
            source, updates = open_stream(config)
            batches, features = list(updates.batches(BATCH)), source.features
            began = time.process_time()
            running = session("confidence_tree", features.categorical, NOTHING_DIVIDED)
            for batch in batches:
                running.apply(batch)
            return time.process_time() - began

        engines, wholes, n = [], [], 0
        for _ in range(RUNS + 1):
            engines.append(engine())
            summary, seconds = replayed({"kind": "confidence_tree"}, parquet(name), stream)
            wholes.append(seconds)
            n = int(summary["updates"])
        own, all_of_it = (1e6 * statistics.median(times[1:]) / n for times in (engines, wholes))
        table.append([name, f"{n:,}", f"{own:.2f}", f"{all_of_it:.2f}", f"{all_of_it / own:.2f}"])
        progress(*table[-1])
    show("CPU time per example, us", ["stream", "rows", "engine", "whole replay", "times the engine"], table)


def river(request: Request) -> None:
    """Time and accuracy beside river's HoeffdingTreeClassifier: the same rule, grace period, delta and tie threshold.

    Electricity in file order. Ours twice: the session in this process with batches of 4,096, and the whole replay in
    process (the file is read, tables, state and model are written). In turns, median of the rounds after one that is
    not counted.
    """
    from river.tree import HoeffdingTreeClassifier

    warmup, grace, delta, tie = 1_000, 100, 1e-7, 0.05
    options = {"rule": "hoeffding", "grace_period": grace, "delta": delta, "tie_threshold": tie}
    options |= {"leaf_prediction": "majority", "max_bins": 256, "renew_bins": 0}
    (X, y), faster, lost_points = electricity(), 20.0, 0.5
    n, rows, labels = len(y), [dict(enumerate(x)) for x in X.tolist()], y.tolist()

    def in_session() -> float:
        running, found = session("confidence_tree", X.shape[1], **options), np.empty(n, dtype=np.int32)
        for begin in range(0, n, BATCH):
            batch = inserts(begin, begin + BATCH, X, y, 2, max(0, min(warmup - begin, BATCH)))
            found[begin : begin + BATCH] = running.apply(batch).predictions
        return float((found == y)[warmup:].mean())

    def in_replay() -> float:
        cluster, output = {"backend": "in_process", "batch_size": BATCH}, {"report": False, "metrics_every": BATCH}
        more = {"cluster": cluster, "checkpoint": {"every_seconds": None}, "output": output}
        stream, learner = {"model": "incremental", "warmup": warmup}, {"kind": "confidence_tree", **options}
        return float(replayed(learner, parquet("electricity"), stream, **more)[0]["metrics"]["accuracy"])

    def in_river() -> float:
        how = {"split_criterion": "gini", "leaf_prediction": "mc"}
        tree = HoeffdingTreeClassifier(grace_period=grace, delta=delta, tau=tie, **how)
        found = np.zeros(n, dtype=np.int32)
        for i, (x, label) in enumerate(zip(rows, labels, strict=True)):
            found[i] = tree.predict_one(x) or 0
            tree.learn_one(x, label)
        return float((found == y)[warmup:].mean())

    names = f"raydt, session, batches of {BATCH:,}", "raydt, replay in process", "river"
    taken, table = in_turns(dict(zip(names, (in_session, in_replay, in_river), strict=True)), request.seeds), []
    for name, (_, accuracy) in taken.items():
        factor = taken["river"].median / taken[name].median
        lost = 100 * (taken["river"].result - accuracy)
        verdict = "" if name == "river" else "met" if factor >= faster and lost <= lost_points else "**missed**"
        table.append([name, f"{1e6 * taken[name].median / n:.2f}", f"{100 * accuracy:.2f}", f"{factor:.1f}", verdict])
    note = (
        f"{n:,} rows in file order; rule hoeffding, Gini, grace period {grace}, delta {delta:g}, tie threshold "
        f"{tie:g}; leaves predict their majority. Accuracy of the rows after the first {warmup:,}. CPU time of "
        f"one core, median of {request.seeds}. Goal: {faster:.0f} times as fast, at most {lost_points} points less."
    )
    show("Electricity, prequential", ["", "us per example", "accuracy", "times as fast as river", "goal"], table, note)
