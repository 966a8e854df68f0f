"""One measurement per setting, kept as one row of a CSV file, so that a broken run goes on where it stopped."""

from __future__ import annotations

import csv
import dataclasses
import os
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
from measure import machine
from paper.contestants import EFDT, GRACE_PERIODS, HAT, INCREMENTAL, OURS, Codes, Outcome, ours, peer, trivial
from paper.datasets import DataSet, Folder

from actors.shard import identity

#: Rows that are not scored: none, and the windows whose first examples build the tree unscored.
WINDOWS = (0, 50, 100, 200, 500, 1000)


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
    """Answers settings from a file of measurements, and measures what is not there.

    Parameters
    ----------
    out : Path
        Folder of ``measurements.csv``.
    folder : Folder, optional
        Of the data; without it nothing is measured and an error is raised instead.
    """

    def __init__(self, out: Path, folder: Folder | None = None) -> None:
        self.path, self._folder = out / "measurements.csv", folder
        self._known: dict[Setting, Measurement] = {}
        fields: list[str] = []
        if self.path.exists():
            with self.path.open(newline="") as file:
                reader = csv.DictReader(file)
                fields = list(reader.fieldnames or ())
                for row in reader:
                    self._known[_parse(Setting, row)] = _parse(Measurement, row)
        if folder is not None:
            out.mkdir(parents=True, exist_ok=True)
            if fields != FIELDS:  # none yet, or those of an earlier version
                self._begin_file()
            self._machine = machine(*(["river"] if find_spec("river") else []))

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
        """FuDyADT on a stream over ``data``."""
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
            print(_line(setting, self._known[setting]), file=sys.stderr, flush=True)
        return self._known[setting]

    def _measure(self, data: DataSet, setting: Setting, folder: Folder) -> None:
        if setting.learner == OURS:
            assert setting.epsilon is not None
            assert setting.max_depth is not None
            outcome = ours(folder, data, setting.stream, setting.window, setting.epsilon, setting.max_depth)
            self._keep(setting, folder.labels(data), outcome)
            return
        if setting.learner in (EFDT, HAT):
            assert setting.grace_period is not None
            outcome = peer(folder, data, setting.learner, setting.grace_period)
        else:
            outcome = trivial(folder, data, setting.learner)
        for window in WINDOWS:  # one run, which is slow for a peer, serves all
            if window < data.rows:
                self._keep(dataclasses.replace(setting, window=window), folder.labels(data), outcome)

    def _keep(self, setting: Setting, y: Codes, outcome: Outcome) -> None:
        truth, predicted = y[setting.window :], outcome.predictions[setting.window :]
        result = Measurement(
            scored=len(truth),
            accuracy=float(np.mean(truth == predicted)),
            f1=_f1(truth == 1, predicted == 1),
            f1_rest=_f1(truth == 0, predicted == 0),
            positive_share=float(np.mean(truth)),
            updates=outcome.updates,
            cpu_seconds=outcome.seconds,
            load=round(os.getloadavg()[0], 1),
            machine=self._machine,
            sources=identity().sources[:16],
        )
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


def _line(setting: Setting, result: Measurement) -> str:
    parameters = [f"{k} {v}" for k, v in dataclasses.asdict(setting).items() if v is not None and k != "rows"]
    return f"{', '.join(parameters)}: F1 {100 * result.f1:.2f}, {result.us:.2f} us/update"


def _parse(kind: type, row: dict[str, str]):  # type: ignore[no-untyped-def]
    """A record from its row; empty text, or a column that an earlier version did not write, is None."""
    convert = {"str": str, "int": int, "float": float}
    values = {
        f.name: convert[str(f.type).split(" ")[0]](row[f.name]) if row.get(f.name) else None
        for f in dataclasses.fields(kind)
    }
    return kind(**values)
