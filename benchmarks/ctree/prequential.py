"""Prequential accuracy and time of confidence trees: defaults, settings, drift, whole replays, Ray, river."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from ctree.trials import STREAMS
from harness import DATA, Request, electricity, progress, show

from pipelines import replay
from pipelines.config import Config, load_config
from pipelines.saved_runs import open_stream
from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED, WorkPlan
from raydt.sessions.session import InProcessSession

#: Rows that are not scored, rows of a batch, runs of ours.
WARMUP, BATCH, RUNS = 200, 4_096, 3
#: Settings of ``choice``: each changes one option of the defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "c 0.05": {"c": 0.05},
    "c 0.02": {"c": 0.02},
    "c 0.005": {"c": 0.005},
    "c 0.002": {"c": 0.002},
    "ties 0.01": {"tie_threshold": 0.01},
    "grace 50": {"grace_period": 50},
    "grace 200": {"grace_period": 200},
    "bins 16": {"max_bins": 16},
    "bins 256": {"max_bins": 256},
    "bins stay": {"renew_bins": 0},
    "majority": {"leaf_prediction": "majority"},
    "naive Bayes": {"leaf_prediction": "naive_bayes"},
    "drift 200": {"drift_period": 200},
    "before": {"c": 0.05, "max_bins": 256, "renew_bins": 0, "leaf_prediction": "majority"},
}


class Rows(NamedTuple):
    """Examples of one stream: float64 (n, d), class codes, names, and which columns are categories."""

    X: npt.NDArray[np.float64]
    y: npt.NDArray[np.int32]
    names: tuple[str, ...]
    categorical: tuple[bool, ...]

    def features(self) -> Features:
        """As a session takes them."""
        return Features(self.names, self.categorical)


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
    table = pq.read_table(DATA / f"{name}.parquet").slice(0, most)
    columns, categorical = [], []
    names = tuple(column for column in table.column_names if column != "y")
    for column in (*names, "y"):
        values = table[column].combine_chunks()
        category = pa.types.is_dictionary(values.type)
        if category or column == "y":
            text = np.array(values.to_pylist()).astype(str)
            values = np.unique(text, return_inverse=True)[1]
        columns.append(np.asarray(values, dtype=np.float64))
        categorical.append(category)
    X = np.ascontiguousarray(np.stack(columns[:-1], axis=1))
    return Rows(X, columns[-1].astype(np.int32), names, tuple(categorical[:-1]))


def ours(rows: Rows, options: dict[str, Any]) -> Result:
    """A session in this process."""
    learner = learners()["confidence_tree"]
    n, classes = len(rows.y), int(rows.y.max()) + 1
    found = np.empty(n, dtype=np.int32)
    began = time.process_time()
    running = InProcessSession(learner, learner.Options(**options), rows.features(), 1, NOTHING_DIVIDED)
    for begin in range(0, n, BATCH):
        ids = np.arange(begin, min(begin + BATCH, n))
        inserts = np.full(len(ids), INSERT, np.int8)
        batch = UpdateBatch(begin, inserts, ids, rows.X[ids], rows.y[ids], classes, ids, WARMUP)
        found[ids] = running.apply(batch).predictions
    us = 1e6 * (time.process_time() - began) / n
    return Result(float((found == rows.y)[WARMUP:].mean()), us)


def replayed(name: str, most: int) -> float:
    """CPU microseconds per example of a whole replay in this process: reading, tables, checkpoint and model."""
    config = {
        "source": {"kind": "parquet", "path": str(DATA / f"{name}.parquet"), "limit": most},
        "stream": {"model": "incremental", "warmup": WARMUP},
        "learner": {"kind": "confidence_tree"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    with tempfile.TemporaryDirectory() as folder:  # which is not removed within the time
        began = time.process_time()
        summary = replay(config, Path(folder) / "run").summary
        seconds = time.process_time() - began
    return 1e6 * seconds / float(summary["updates"])


def repeated(rows: Rows) -> Result:
    """The defaults, several times."""
    results = [ours(rows, {}) for _ in range(RUNS)]
    return Result(results[0].accuracy, statistics.median(result.us for result in results))


def theirs(rows: Rows, adaptive: bool) -> Result:
    """river's tree with its defaults."""
    from river.tree import HoeffdingAdaptiveTreeClassifier, HoeffdingTreeClassifier

    nominal = [name for name, category in zip(rows.names, rows.categorical, strict=True) if category] or None
    if adaptive:
        tree = HoeffdingAdaptiveTreeClassifier(nominal_attributes=nominal, seed=1)
    else:
        tree = HoeffdingTreeClassifier(nominal_attributes=nominal)
    examples = [
        (dict(zip(rows.names, x, strict=True)), y) for x, y in zip(rows.X.tolist(), rows.y.tolist(), strict=True)
    ]
    right = np.zeros(len(examples), dtype=np.bool_)
    began = time.process_time()
    for i, (x, y) in enumerate(examples):
        right[i] = tree.predict_one(x) == y
        tree.learn_one(x, y)
    return Result(float(right[WARMUP:].mean()), 1e6 * (time.process_time() - began) / len(examples))


def _mean(results: list[Result]) -> Result:
    return Result(*np.mean(results, axis=0).tolist())


def defaults(request: Request) -> None:
    """Defaults of both sides on ten streams: prequential accuracy and CPU time beside river's two Hoeffding trees.

    Rows in file order where order is time, else in three random orders; at most ``--rows`` of each file. ``defaults``
    compares, ``choice`` prints the settings among which the defaults were chosen. Every example is predicted before it
    is learned; the first 200 rows, our warm-up, are not scored on either side. river: ``predict_one`` and ``learn_one``
    on dictionaries made beforehand. CPU time of this process; of ours the median of three runs.
    """
    ours(rows_of("bananas", 0, request.rows), {})  # so that no kernel is compiled below
    replayed("bananas", request.rows)
    table, all_means = [], []
    for name in request.sets(*STREAMS):
        streams = [rows_of(name, order, request.rows) for order in orders(name)]
        whole = statistics.median(replayed(name, request.rows) for _ in range(RUNS))
        own, plain, adaptive = (
            _mean([how(rows) for rows in streams])
            for how in (repeated, partial(theirs, adaptive=False), partial(theirs, adaptive=True))
        )
        progress(name, own, whole, plain, adaptive)
        all_means.append((own.accuracy, plain.accuracy, adaptive.accuracy))
        accuracies = [f"{100 * value:.2f}" for value in all_means[-1]]
        times = [
            f"{own.us:.2f}",
            f"{whole:.2f}",
            f"{plain.us:.1f}",
            f"{plain.us / own.us:.1f}",
            f"{plain.us / whole:.1f}",
        ]
        table.append([name, str(len(streams[0].y)), str(len(streams)), *accuracies, *times])
    means = [f"{100 * value:.2f}" for value in np.mean(all_means, axis=0)]
    table.append(["mean", "", "", *means, "", "", "", "", ""])
    header = ["stream", "rows", "orders", "raydt", "river HT", "river HAT"]
    header += ["us, session", "us, replay", "us, river HT", "times, session", "times, replay"]
    show("Prequential accuracy and CPU time per example, defaults of both sides", header, table)


def choice(request: Request) -> None:
    """Print the table of settings: accuracy, and nodes of the tree."""
    names = request.sets(*STREAMS)
    table = []
    for setting, options in SETTINGS.items():
        found = [
            np.mean([ours(rows_of(name, order, request.rows), options).accuracy for order in orders(name)])
            for name in names
        ]
        table.append([setting, *(f"{100 * value:.2f}" for value in found), f"{100 * np.mean(found):.2f}"])
        progress(*table[-1])
    show("Prequential accuracy by setting, mean of the orders", ["setting", *names, "mean"], table)


#: Name, examples that are kept (None for all), and options.
DRIFT_SETTINGS: tuple[tuple[str, int | None, dict[str, Any]], ...] = (
    ("defaults", None, {}),
    ("drift_period 200", None, {"drift_period": 200}),
    ("drift_period 500", None, {"drift_period": 500}),
    ("window 10,000", 10_000, {}),
    ("window 5,000", 5_000, {}),
    ("window 2,000", 2_000, {}),
    ("window 1,000", 1_000, {}),
)


def source_of(name: str, order: int | None, most: int) -> dict[str, Any]:
    """Section ``source`` of a config: the first rows of a file, in one order."""
    return {"kind": "parquet", "path": str(DATA / f"{name}.parquet"), "limit": most, "permutation": order}


def drift_replayed(source: dict[str, Any], window: int | None, learner: dict[str, Any]) -> tuple[float, float]:
    """Accuracy and CPU microseconds per example of a whole replay in this process."""
    model = {"model": "incremental"} if window is None else {"model": "sliding_window", "window": window}
    config = {
        "source": source,
        "stream": {**model, "warmup": WARMUP},
        "learner": {"kind": "confidence_tree", **learner},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        summary = replay(config, Path(folder) / "run").summary
    us = 1e6 * (time.process_time() - began) / float(summary["inserts"])
    return 100 * float(summary["metrics"]["accuracy"]), us


def drift(request: Request) -> None:
    """Drift: prequential accuracy with ``drift_period``, and of the defaults over windows of the last examples.

    In a window each example is deleted exactly when so many later ones have come (``stream.model: sliding_window``):
    counts, naive Bayes and the tallies of who was right are then those of the window; splits stay. Streams, rows and
    orders as in ``prequential``, but random orders are those of ``source.permutation``. CPU time of a whole replay, per
    example.
    """
    names = request.sets(*STREAMS)
    table = []
    sources = [[source_of(name, order, request.rows) for order in orders(name)] for name in names]
    drift_replayed(
        source_of("bananas", 0, request.rows), None, {"drift_period": 200}
    )  # so that no kernel is compiled below
    for setting, window, options in DRIFT_SETTINGS[: request.settings]:
        found = np.array(
            [np.mean([drift_replayed(source, window, options) for source in of_name], axis=0) for of_name in sources]
        )
        cells = [f"{accuracy:.2f}" for accuracy in (*found[:, 0], found[:, 0].mean())]
        table.append([setting, *cells, f"{found[:, 1].mean():.1f}"])
        progress(*table[-1])
    show("Prequential accuracy by setting, mean of the orders", ["setting", *names, "mean", "us"], table)


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


def whole_replayed(config: Config) -> tuple[float, int]:
    """CPU seconds of the whole replay, and its examples."""
    with tempfile.TemporaryDirectory() as folder:  # which is not removed within the time
        began = time.process_time()
        summary = replay(config, Path(folder) / "run").summary
        seconds = time.process_time() - began
    return seconds, int(summary["updates"])


def whole(request: Request) -> None:
    """What a whole replay costs beside its engine, by the length of the stream: CPU time per example, defaults.

    Engine: a session in this process that applies the same updates, read beforehand, in batches of 4,096. Replay: the
    file is read, metrics are written every 1,000 updates, then checkpoint, digest and model; in this process, without a
    report. In turns, median of the rounds after one that is not counted.
    """
    table = []
    for name in request.sets(*FILES):
        config, engines, wholes, n = config_of(name), [], [], 0
        for _ in range(ROUNDS + 1):
            engines.append(engine(config))
            seconds, n = whole_replayed(config)
            wholes.append(seconds)
        own, whole = (1e6 * statistics.median(times[1:]) / n for times in (engines, wholes))
        table.append([name, f"{n:,}", f"{own:.2f}", f"{whole:.2f}", f"{whole / own:.2f}"])
        progress(*table[-1])
    show("CPU time per example, us", ["stream", "rows", "engine", "whole replay", "times the engine"], table)


#: Two classes, and ten; of each file so many rows at most.
SHARDS_FILES, MOST = ("electricity", "poker_lsn"), 200_000
KINDS = ("majority", "adaptive")
SHARDS_ROUNDS = 5


def shards_replayed(name: str, kind: str) -> dict[str, Any]:
    """Summary of a replay."""
    config = {
        "source": {"kind": "parquet", "path": str(DATA / f"{name}.parquet"), "limit": MOST},
        "stream": {"model": "incremental", "warmup": WARMUP},
        "learner": {"kind": "confidence_tree", "leaf_prediction": kind},
        "cluster": {"backend": "ray", "shards": 2, "memory_limit": 0},
        "output": {"report": False},
    }
    with tempfile.TemporaryDirectory() as folder:
        summary: dict[str, Any] = replay(config, Path(folder) / "run").summary
    return summary


def shards(request: Request) -> None:
    """What naive Bayes at the leaves costs on Ray, where the shards do all work: beside leaves that predict their
    majority.

    Two shards on this machine (``memory_limit: 0``), defaults otherwise. Wall time of the stream, as the run reports
    it, and bytes exchanged with the shards. In turns, median of the rounds after one that is not counted.
    """
    table = []
    for name in request.sets(*SHARDS_FILES):
        runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        for _ in range(SHARDS_ROUNDS + 1):
            for kind, summaries in runs.items():
                summaries.append(shards_replayed(name, kind))
        for kind, summaries in runs.items():
            last, times = summaries[-1], [summary["seconds"] for summary in summaries[1:]]
            n = int(last["updates"])
            us = [f"{1e6 * seconds / n:.1f}" for seconds in (statistics.median(times), min(times), max(times))]
            sent = f"{last['bytes_exchanged'] / n:.0f}"
            table.append([name, f"{n:,}", kind, *us, sent, str(last["rounds"]), f"{last['metrics']['accuracy']:.3f}"])
            progress(*table[-1])
    header = ["stream", "rows", "leaves predict", "us", "least", "most", "bytes", "rounds", "accuracy"]
    show("Wall time and bytes per example on Ray with two shards", header, table)


GRACE, DELTA, TIE = 100, 1e-7, 0.05
RIVER_BATCH = 4_096
RIVER_WARMUP = 1_000
OPTIONS: dict[str, Any] = {
    "kind": "confidence_tree", "rule": "hoeffding", "grace_period": GRACE, "delta": DELTA, "tie_threshold": TIE,
    "leaf_prediction": "majority", "max_bins": 256, "renew_bins": 0,
}  # fmt: skip
#: Goals: times as fast, and points of accuracy that may be lost.
FASTER, LOST = 20.0, 0.5

Codes = npt.NDArray[np.int32]


def session(X: npt.NDArray[np.float64], y: Codes) -> Codes:
    """Predictions of our tree; those of the warm-up are -1."""
    learner = learners()["confidence_tree"]
    features = Features(tuple(map(str, range(X.shape[1]))), (False,) * X.shape[1])
    running = InProcessSession(learner, learner.Options(**OPTIONS), features, 1, WorkPlan(2**62))
    found = np.empty(len(y), dtype=np.int32)
    for begin in range(0, len(y), RIVER_BATCH):
        rows = np.arange(begin, min(begin + RIVER_BATCH, len(y)))
        warm = max(0, min(RIVER_WARMUP - begin, len(rows)))
        batch = UpdateBatch(begin, np.full(len(rows), INSERT, np.int8), rows, X[rows], y[rows], 2, rows, warm)
        found[rows] = running.apply(batch).predictions
    return found


def river_replayed() -> float:
    """Accuracy of a replay in this process."""
    config = {
        "source": {"kind": "parquet", "path": str(DATA / "electricity.parquet")},
        "stream": {"model": "incremental", "warmup": RIVER_WARMUP},
        "learner": OPTIONS,
        "cluster": {"backend": "in_process", "batch_size": RIVER_BATCH},
        "checkpoint": {"every_seconds": None},
        "output": {"report": False, "metrics_every": RIVER_BATCH},
    }
    with tempfile.TemporaryDirectory() as folder:
        return float(replay(config, Path(folder) / "run").summary["metrics"]["accuracy"])


def river_theirs(rows: list[dict[int, float]], labels: list[int]) -> Codes:
    """Predictions of river's tree."""
    from river.tree import HoeffdingTreeClassifier

    tree = HoeffdingTreeClassifier(
        grace_period=GRACE, delta=DELTA, tau=TIE, split_criterion="gini", leaf_prediction="mc"
    )
    found = np.zeros(len(labels), dtype=np.int32)
    for i, (x, label) in enumerate(zip(rows, labels, strict=True)):
        found[i] = tree.predict_one(x) or 0
        tree.learn_one(x, label)
    return found


def river(request: Request) -> None:
    """Time and accuracy beside river's HoeffdingTreeClassifier: the same rule, grace period, delta and tie threshold.

    Electricity in file order, every example predicted before it is learned. Ours twice: the session in this process
    with batches of 4,096, and the whole replay in process (the file is read, tables, state and model are written).
    river: ``predict_one`` and ``learn_one`` on dictionaries made beforehand. CPU time, all in turns in one run, median
    of the rounds after one that is not counted.
    """
    X, y = electricity()
    n, rows = len(y), [dict(enumerate(x)) for x in X.tolist()]
    labels = y.tolist()
    contestants: dict[str, Callable[[], Any]] = {
        "session": lambda: session(X, y),
        "replay": river_replayed,
        "river": lambda: river_theirs(rows, labels),
    }
    times: dict[str, list[float]] = {who: [] for who in contestants}
    found: dict[str, Any] = {}
    for turn in range(request.seeds + 1):
        for who, measured in contestants.items():
            began = time.process_time()
            found[who] = measured()
            seconds = time.process_time() - began
            if turn:
                times[who].append(seconds)
            progress(who, turn, f"{seconds:.2f} s")
    scored = slice(RIVER_WARMUP, None)  # what all have predicted
    quality = {who: float((found[who] == y)[scored].mean()) for who in ("session", "river")}
    quality["replay"] = found["replay"]
    taken = {who: statistics.median(values) for who, values in times.items()}
    names = {
        "session": f"raydt, session, batches of {RIVER_BATCH:,}",
        "replay": "raydt, replay in process",
        "river": "river",
    }
    table = []
    for who, name in names.items():
        factor, lost = taken["river"] / taken[who], 100 * (quality["river"] - quality[who])
        verdict = "" if who == "river" else "met" if factor >= FASTER and lost <= LOST else "**missed**"
        cells = [f"{1e6 * taken[who] / n:.2f}", f"{100 * quality[who]:.2f}", f"{factor:.1f}", verdict]
        table.append([name, *cells])
    note = (
        f"{n:,} rows in file order; rule hoeffding, Gini, grace period {GRACE}, delta {DELTA:g}, tie threshold "
        f"{TIE:g}; leaves predict their majority. Accuracy of the rows after the first {RIVER_WARMUP:,}. CPU time of "
        f"one core, median of {request.seeds}. Goal: {FASTER:.0f} times as fast, at most {LOST} points less accurate."
    )
    show("Electricity, prequential", ["", "us per example", "accuracy", "times as fast as river", "goal"], table, note)
