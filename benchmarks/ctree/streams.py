"""Streams of the benchmarks, as configs, and what a sweep over the grids gives on one of them.

A trial is one stream: the rows of one random tree, or one order of a data set. Trials are independent, and so may run
in several processes; a trial is a sweep within its process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ctree.rules import COMMON, REAL, RULES, SYNTHETIC, grids
from kit import progress
from measure import DATA

from pipelines import sweep

Floats = npt.NDArray[np.float64]

#: Rows that fix the bins, in a random tree's streams and in data sets.
WARMUP = 1_000
#: Moments of a stream at which score and leaves are logged.
MOMENTS = 200


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set at hand.

    Attributes
    ----------
    title : str
    files : tuple of str
        Names without suffix.
    positive : label
        As ``source.positive`` has it.
    score : str
        ``accuracy``, or ``f1`` (of the smallest class) where the paper uses it for unbalanced data.
    """

    title: str
    files: tuple[str, ...]
    positive: Any
    score: str

    def source(self) -> dict[str, Any]:
        """Section ``source`` of a config."""
        paths = [str(DATA / f"{file}.parquet") for file in self.files]
        return {"kind": "parquet", "path": paths, "positive": self.positive}


#: COVERTYPE of the paper is class 2 against the rest; at hand are its first 10,000 rows, and all rows of classes 3, 4.
SETS = {
    "electricity": DataSet("Electricity", ("electricity",), "UP", "accuracy"),
    "a9a": DataSet("A9A", ("a9a_train", "a9a_test"), "minority", "f1"),
    "covtype": DataSet("Covertype, first 10,000 rows", ("covtype_head10k",), 2, "accuracy"),
    "covtype-3-4": DataSet("Covertype, classes 3 and 4", ("covtype_class3_vs_4",), "minority", "f1"),
}


#: Files of the comparison of defaults, and whether the order of their rows is time.
STREAMS = {
    "electricity": True,
    "poker_lsn": True,
    "posture": True,
    "sea_concepts": True,
    "kddcup99_10pct": True,
    "covtype_class3_vs_4": True,
    "covtype_head10k": False,
    "bananas": False,
    "image_segments": False,
    "phishing": False,
}


def random_tree(examples: int) -> dict[str, Any]:
    """Section ``source`` of the paper's synthetic streams: 50 leaves, 5 attributes, label probability 0.7."""
    return {"kind": "synthetic", "generator": "randcbt", "n": examples}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a trial: its curve, and where it ended.

    Attributes
    ----------
    rule : str
        Its name in tables.
    value : float
        c or delta.
    leaves : ndarray of int64, shape (moments,)
    score : ndarray of float64, shape (moments,)
        So far, at each moment.
    us : float
        CPU microseconds per example.
    """

    rule: str
    value: float
    leaves: npt.NDArray[np.int64]
    score: Floats
    us: float


def trial(source: dict[str, Any], settings: int, rows: int, score: str = "accuracy") -> list[Setting]:
    """Every setting of the grids over one stream of so many rows, one after another in this process."""
    every = max(1, rows // MOMENTS)
    between = SYNTHETIC if source["kind"] == "synthetic" else REAL
    config = {
        "source": source,
        "stream": {"model": "incremental", "warmup": min(WARMUP, rows // 10)},
        "learner": COMMON,
        "cluster": {"backend": "in_process"},
        "output": {"metrics_every": every},
    }
    names, found = {rule: name for name, rule in RULES.items()}, []
    for grid in grids(settings, between):
        with tempfile.TemporaryDirectory() as folder:
            done = sweep(config, grid, Path(folder) / "sweep")
        setting, leaves, scores = (done.curves[name].to_numpy() for name in ("setting", "leaves", score))
        for row in done.table.to_pylist():
            if row["error"]:
                raise RuntimeError(row["error"])
            own = slice(*np.searchsorted(setting, (row["setting"], row["setting"] + 1)))
            value = row["learner.c"] if "learner.c" in row else row["learner.delta"]
            found.append(Setting(names[row["learner.rule"]], value, leaves[own], scores[own], row["us_per_update"]))
    return found


def trials(
    make: Callable[..., list[Setting]], arguments: Sequence[tuple[Any, ...]], jobs: int
) -> Iterator[list[Setting]]:
    """``make`` of each of the arguments, in their order, in so many processes."""
    if jobs == 1:
        for number, given in enumerate(arguments):
            yield make(*given)
            progress("trial", number + 1, "of", len(arguments))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for number, found in enumerate(pool.map(make, *zip(*arguments, strict=True))):
            yield found
            progress("trial", number + 1, "of", len(arguments))
