"""Measurements of the FuDyADT paper: data sets, contestants, and one row of a CSV file for each setting.

Not at hand: INSECTS v1 to v5; of Covertype only a small relative, whose F1 must not be compared with
the paper's. Poker is MOA's poker-lsn; the UCI training hands are a relative on which the slower peers run too. Every
contestant predicts each example before it sees it. River's trees and the trivial predictors cannot delete: they see all
rows, inserted only. A run that was stopped resumes from the file.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from harness import DATA, machine, progress, read, trivial_predictions

from actors.shard import identity
from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import ParquetFiles
from raydt.streams.deletion_log import RandomUpdates
from raydt.streams.windows import Incremental, SlidingWindow

Codes = npt.NDArray[np.int32]
OURS, EFDT, HAT, NO_CHANGE, MAJORITY = "raydt", "EFDT", "HAT", "no-change", "majority"
INCREMENTAL, SLIDING_WINDOW, RANDOM_UPDATES = "incremental", "sliding_window", "random_updates"
GRACE_PERIODS, FUDYADT = (100, 500, 1000), learners()["fudyadt"]
#: Rows that are not scored: none, and the windows whose first examples build the tree unscored.
WINDOWS = (0, 50, 100, 200, 500, 1000)


class DataSet(NamedTuple):
    """A data set cut to its first ``rows``; ``same`` tells whether the rows are the paper's."""

    title: str
    file: str
    positive: str | int  #: Label whose F1 is reported.
    rows: int
    paper: str  #: Name in the paper's tables.
    same: bool
    least: int = 1  #: Rows that have to be read until the positive class appears.
    binary: bool = True  #: Whether the trees know the positive class and the rest, or all classes.
    categorical: tuple[str, ...] = ()  #: Columns that are categories, besides those of the file.


#: Positive classes: the majority class, as the paper's text says (its Table 1 says UP for Electricity).
ELECTRICITY = DataSet("Electricity", "electricity", "DOWN", 45_312, "Electricity", True)
COVERTYPE = DataSet("Covertype, first 10,000", "covtype_head10k", 2, 10_000, "Forest Covertypes", False)
KDD = DataSet("KDDCUP99 10 %", "kddcup99_10pct", "smurf", 494_021, "KDDCUP99", True, 8_000)
KDD_HEAD = DataSet("KDDCUP99, first 50,000", "kddcup99_10pct", "smurf", 50_000, "KDDCUP99", False, 8_000)
NOAA = DataSet("NOAA Weather", "weather_noaa", 0, 18_159, "NOAA Weather", True)
POKER = DataSet("Poker", "poker_lsn", 0, 829_201, "Poker", True)
POKER_UCI = DataSet("Poker, UCI training hands", "poker_uci_train", 0, 25_010, "Poker", False)


def cut(data: DataSet, rows: int | None) -> DataSet:
    """Return the data set with at most ``rows`` rows, as long as the positive class is among them."""
    return data if rows is None else data._replace(rows=min(max(rows, data.least), data.rows))


class Folder:
    """The folder of the Parquet files; what it reads last stays in memory."""

    def __init__(self, path: Path = DATA) -> None:
        self.path = path
        self.labels = lru_cache(maxsize=1)(self._labels)
        self.dictionaries = lru_cache(maxsize=1)(self._dictionaries)

    def source(self, data: DataSet) -> ParquetFiles:
        positive = data.positive if data.binary else None
        given = {"positive": positive, "limit": data.rows, "categorical": list(data.categorical)}
        return ParquetFiles(path=str(self.path / f"{data.file}.parquet"), **given)

    def _labels(self, data: DataSet) -> Codes:
        column = read(data.file, self.path, columns=["y"])["y"].slice(0, data.rows)
        return (np.array(column.to_pylist()) == data.positive).astype(np.int32)

    def _dictionaries(self, data: DataSet) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = read(data.file, self.path).slice(0, data.rows).drop_columns(["y"]).to_pylist()
        return found


class Outcome(NamedTuple):
    """Predictions of the inserted rows, in order (True: positive); updates; CPU seconds (0: not measured)."""

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
    options = FUDYADT.Options(kind="fudyadt", epsilon=epsilon, alpha=0, beta=0, max_depth=max_depth, smoothing=0)
    predictions: list[Codes] = []

    def run() -> None:
        session = InProcessSession(FUDYADT, options, features, 1, WorkPlan(2**62))
        predictions[:] = [result.predictions[batch.op == INSERT] for batch, result in session.process(batches)]

    seconds = cpu_seconds(run)
    codes = np.concatenate([batch.y for batch in batches])  # by the order of the first rows, unless binary
    positive = codes[np.argmax(folder.labels(data))]
    found = (np.concatenate(predictions) == positive).astype(np.int32)
    return Outcome(found, sum(map(len, batches)), seconds)


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
    return Outcome(trivial_predictions(y)[name], len(y), 0.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured. ``window``: size of a sliding window, and how many first rows are not scored."""

    data: str
    rows: int
    stream: str
    window: int
    learner: str
    epsilon: float | None = None
    max_depth: int | None = None
    grace_period: int | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came out; everything as fractions, ``f1_rest`` with the other class as positive.

    ``load`` is the machine's load average over the last minute of the measurement; ``sources`` the hash of raydt's
    (None: not noted).
    """

    scored: int
    accuracy: float
    f1: float
    f1_rest: float
    positive_share: float
    updates: int
    cpu_seconds: float
    load: float
    machine: str
    sources: str | None

    @property
    def us(self) -> float:
        """Microseconds of CPU time per update."""
        return self.cpu_seconds / self.updates * 1e6


#: Columns of the file.
FIELDS = [f.name for kind in (Setting, Measurement) for f in dataclasses.fields(kind)]


class MissingError(Exception):
    """A setting was asked for that has not been measured."""


class Bench:
    """Answer settings from ``measurements.csv`` in a folder, and measure what is not there.

    Without a folder of the data nothing is measured, and MissingError is raised instead.
    """

    def __init__(self, out: Path, folder: Folder | None = None) -> None:
        self.path, self._folder = out / "measurements.csv", folder
        self._known: dict[Setting, Measurement] = {}
        fields: list[str] = []
        if self.path.exists():
            with self.path.open(newline="") as file:
                reader = csv.DictReader(file)
                fields = list(reader.fieldnames or ())
                self._known = {_parse(Setting, row): _parse(Measurement, row) for row in reader}
        if folder is not None:
            out.mkdir(parents=True, exist_ok=True)
            if fields != FIELDS:  # none yet, or those of an earlier version
                self._begin_file()
            self._machine = machine("river")

    def conditions(self) -> list[str]:
        """The machines and versions behind the measurements, raydt's sources, and how busy they were."""
        machines = list(dict.fromkeys(m.machine for m in self._known.values()))
        noted = Counter(m.sources or "not noted" for s, m in self._known.items() if s.learner == OURS)
        if len(noted) == 1:
            machines.append(f"raydt's sources: {next(iter(noted))}.")
        elif noted:
            parts = ", ".join(f"{sources} ({count} measurements)" for sources, count in noted.items())
            machines.append(f"Measured with several versions of raydt's sources: {parts}.")
        load = statistics.median(m.load for m in self._known.values())
        return [*machines, f"Median load average: {load:.1f}. Above the number of cores, times come out too long."]

    def ours(
        self, data: DataSet, epsilon: float, max_depth: int = 10, stream: str = INCREMENTAL, window: int = 0
    ) -> Measurement:
        return self._answer(data, Setting(data.title, data.rows, stream, window, OURS, float(epsilon), max_depth))

    def peer(self, data: DataSet, name: str, grace_period: int, window: int = 0) -> Measurement:
        """EFDT or HAT, insert-only, scored from row ``window`` on."""
        setting = Setting(data.title, data.rows, INCREMENTAL, window, name, grace_period=grace_period)
        return self._answer(data, setting)

    def best_peer(self, data: DataSet, name: str, window: int = 0) -> tuple[int, Measurement]:
        """The grace period of best F1 on all rows, and its measurement scored from row ``window`` on."""
        best = max(GRACE_PERIODS, key=lambda grace: self.peer(data, name, grace).f1)
        return best, self.peer(data, name, best, window)

    def trivial(self, data: DataSet, name: str, window: int = 0) -> Measurement:
        """No-change or majority, scored from row ``window`` on."""
        return self._answer(data, Setting(data.title, data.rows, INCREMENTAL, window, name))

    def _answer(self, data: DataSet, setting: Setting) -> Measurement:
        if setting not in self._known:
            if self._folder is None:
                raise MissingError(str(setting))
            self._measure(data, setting, self._folder)
            found = self._known[setting]
            progress(f"{setting}: F1 {100 * found.f1:.2f}, {found.us:.2f} us/update")
        return self._known[setting]

    def _measure(self, data: DataSet, setting: Setting, folder: Folder) -> None:
        labels = folder.labels(data)
        if setting.epsilon is not None and setting.max_depth is not None:
            how = setting.stream, setting.window, setting.epsilon, setting.max_depth
            self._keep(setting, labels, ours(folder, data, *how))
            return
        if setting.grace_period is not None:
            outcome = peer(folder, data, setting.learner, setting.grace_period)
        else:
            outcome = trivial(folder, data, setting.learner)
        for window in WINDOWS:  # one run, which is slow for a peer, serves all
            if window < data.rows:
                self._keep(dataclasses.replace(setting, window=window), labels, outcome)

    def _keep(self, setting: Setting, y: Codes, outcome: Outcome) -> None:
        truth, predicted = y[setting.window :], outcome.predictions[setting.window :]
        scores = float(np.mean(truth == predicted)), *(_f1(truth == k, predicted == k) for k in (1, 0))
        conditions = round(os.getloadavg()[0], 1), self._machine, identity().sources[:16]
        cost = outcome.updates, outcome.seconds
        result = Measurement(len(truth), *scores, float(np.mean(truth)), *cost, *conditions)
        self._known[setting] = result
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, FIELDS).writerow(_row(setting, result))

    def _begin_file(self) -> None:
        """Write the header and what is known."""
        whole = self.path.with_suffix(".new")
        with whole.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(_row(*known) for known in self._known.items())
        whole.replace(self.path)


def _row(setting: Setting, result: Measurement) -> dict[str, object]:
    return {**dataclasses.asdict(setting), **dataclasses.asdict(result)}


def _f1(truth: npt.NDArray[np.bool_], predicted: npt.NDArray[np.bool_]) -> float:
    """F1 of a class; 0 where it was never predicted rightly."""
    return 2.0 * int((truth & predicted).sum()) / max(1, int(truth.sum()) + int(predicted.sum()))


def _parse(kind: Any, row: dict[str, str]) -> Any:
    """Return a record from its row; empty text, or a column that an earlier version did not write, is None."""
    convert, values = {"str": str, "int": int, "float": float}, {}
    for field in dataclasses.fields(kind):
        text = row.get(field.name)
        values[field.name] = convert[str(field.type).split(" ")[0]](text) if text else None
    return kind(**values)
