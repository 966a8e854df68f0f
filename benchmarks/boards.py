"""All learners and river's classifiers on all real streams, each with one setting that was fixed beforehand.

    python benchmarks/boards.py run [--rows 5000] [--streams NAME ...] [--learners NAME ...] [--cpu-minutes 5]
    python benchmarks/boards.py table [--rows 5000]

Each example is predicted just before it is learned; the first 500 rows, the warm-up of ours, are not scored on any
side. Processor time of this process: a whole replay for ours (the file is read, tables and model are written),
``predict_one`` and ``learn_one`` on dictionaries made beforehand for river. ``run`` appends one line for each stream
and learner to ``benchmarks/results/boards.csv`` and leaves out the lines that are there: it can be stopped at any time.
"""

import argparse
import csv
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from harness import DATA, arguments, parquet, print_machine, progress, read, replayed, show
from river import dummy, ensemble, forest, metrics, tree

from raydt.learners import learners
from raydt.sessions.session import compile_kernels

RESULTS = Path(__file__).parent / "results" / "boards.csv"
WARMUP, WINDOW = 500, 1_000
#: Streams whose order is time, those whose order is that of a file, and those with sparse features.
TIMED = ("electricity", "poker_lsn", "posture", "kddcup99_10pct", "covtype_class3_vs_4", "sea_concepts", "weather_noaa")
UNTIMED = ("covtype_head10k", "givemesomecredit", "bananas", "image_segments", "phishing", "letter", "pendigits_train")
SPARSE = ("spamassassin",)
#: Ours have their defaults, and hold what the default stream holds, the last 1,000 rows (the window of the FuDyADT
#: paper), or all rows; or what the default stream holds, with the label of the row before as a feature.
STREAMS: dict[str, dict[str, Any]] = {
    "": {"model": "adaptive_window"},
    ", last 1,000": {"model": "sliding_window", "window": WINDOW},
    ", all rows": {"model": "incremental"},
    ", previous label": {"model": "adaptive_window", "previous_labels": 1},
}
TAKE_DENSE = ("fudyadt", "confidence_tree", "forest", "gbdt")
TAKE_SPARSE = ("gbdt", "confidence_tree", "sparse_tree")
OURS = {
    kind + name: (kind, {**stream, "warmup": WARMUP})
    for kind in (*TAKE_DENSE, "sparse_tree")
    for name, stream in STREAMS.items()
    if kind != "sparse_tree" or stream["model"] != "adaptive_window"
}


def _tree(nominal: list[str] | None, **options: Any) -> Any:
    return tree.HoeffdingTreeClassifier(nominal_attributes=nominal, **options)


#: River's have their defaults; ensembles have ten trees, and SRP the tree of its own default.
RIVER: dict[str, Callable[[list[str] | None], Any]] = {
    "no-change": lambda _: dummy.NoChangeClassifier(),
    "HT": _tree,
    "HAT": lambda nominal: tree.HoeffdingAdaptiveTreeClassifier(nominal_attributes=nominal, seed=1),
    "EFDT": lambda nominal: tree.ExtremelyFastDecisionTreeClassifier(nominal_attributes=nominal),
    "ARF": lambda nominal: forest.ARFClassifier(n_models=10, nominal_attributes=nominal, seed=1),
    "LB": lambda nominal: ensemble.LeveragingBaggingClassifier(_tree(nominal), n_models=10, seed=1),
    "SRP": lambda nominal: ensemble.SRPClassifier(_tree(nominal, grace_period=50, delta=0.01), n_models=10, seed=1),
}


class Line(NamedTuple):
    stream: str
    learner: str
    asked: int
    rows: int
    accuracy: float | None
    kappa: float | None
    us: float
    trouble: str = ""


def ours(stream: str, learner: str, limit: int) -> Line:
    sections = {"cluster": {"backend": "in_process", "shards": 1}, "checkpoint": {"every_seconds": None}}
    sections |= {"output": {"report": False, "predictions": False}}
    source = parquet(stream, label="y", limit=limit)
    kind, window = OURS[learner]
    summary, seconds = replayed({"kind": kind}, source, window, **sections)
    n, scores = summary["inserts"], summary["metrics"]
    return Line(stream, learner, limit, n, scores["accuracy"], scores["kappa"], 1e6 * seconds / n)


def theirs(stream: str, learner: str, limit: int, cpu_seconds: float) -> Line:
    """The same of a classifier of river's; it is stopped when it has taken ``cpu_seconds``."""
    examples, nominal = _examples(stream, limit)
    model = RIVER[learner](nominal or None)
    accuracy, kappa = metrics.Accuracy(), metrics.CohenKappa()
    predictions = []
    began = time.process_time()
    for done, (x, y) in enumerate(examples, 1):
        predictions.append(model.predict_one(x))
        model.learn_one(x, y)
        if (taken := time.process_time() - began) > cpu_seconds:
            trouble = f"stopped after {done:,} rows: {cpu_seconds:.0f} s"
            return Line(stream, learner, limit, len(examples), None, None, 1e6 * taken / done, trouble)
    for (_, y), found in itertools.islice(zip(examples, predictions, strict=True), WARMUP, None):
        accuracy.update(y, found)
        kappa.update(y, found)
    return Line(stream, learner, limit, len(examples), accuracy.get(), kappa.get(), 1e6 * taken / len(examples))


def _examples(stream: str, limit: int) -> tuple[list[tuple[dict[Any, Any], str]], list[str]]:
    """Rows as dictionaries with their labels, and the features that are categories; missing numbers are left out."""
    rows = read(stream).slice(0, limit)
    labels = [str(label) for label in rows["y"].to_pylist()]
    if stream in SPARSE:
        return [(dict.fromkeys(row, 1), y) for row, y in zip(rows["indices"].to_pylist(), labels, strict=True)], []
    rows = rows.drop_columns("y")
    nominal = [field.name for field in rows.schema if pa.types.is_dictionary(field.type)]
    found = [{name: x for name, x in row.items() if x is not None and x == x} for row in rows.to_pylist()]
    return list(zip(found, labels, strict=True)), nominal


def cells(asked: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Streams and learners that can be brought together, as far as they are asked for."""
    for stream in (*TIMED, *UNTIMED, *SPARSE):
        takes = TAKE_SPARSE if stream in SPARSE else TAKE_DENSE
        here = [name for name, (kind, window) in OURS.items() if kind in takes]
        followed = [name for name, (_, window) in OURS.items() if window["model"] == "adaptive_window"]
        here = [name for name in here if stream not in SPARSE or name not in followed]  # scouts read columns
        for learner in (*here, *RIVER):
            if stream in asked.streams and learner in asked.learners and (DATA / f"{stream}.parquet").exists():
                yield stream, learner


def stored() -> dict[tuple[str, str, int], Line]:
    if not RESULTS.exists():
        return {}
    lines = {}
    with RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            scores = (float(row[name]) if row[name] else None for name in ("accuracy", "kappa"))
            counts = int(row["asked"]), int(row["rows"])
            line = Line(row["stream"], row["learner"], *counts, *scores, float(row["us"]), row["trouble"])
            lines[line.stream, line.learner, line.asked] = line
    return lines


def append(line: Line) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    began = RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([line] if began else [Line._fields, line])


def run(asked: argparse.Namespace) -> None:
    print_machine("river")
    compiled, there = set(), stored()
    for stream, learner in cells(asked):
        if (stream, learner, asked.rows) in there:
            continue
        try:
            if learner not in OURS:
                line = theirs(stream, learner, asked.rows, 60 * asked.cpu_minutes)
            else:
                if learner not in compiled:
                    compile_kernels(learners()[OURS[learner][0]])
                    ours(stream, learner, 2 * WARMUP)  # imports
                    compiled.add(learner)
                line = ours(stream, learner, asked.rows)
        except Exception as error:  # a learner that cannot take a stream is a line of the table, too
            line = Line(stream, learner, asked.rows, 0, None, None, float("nan"), f"{type(error).__name__}: {error}")
        append(line)
        progress(line)


def tables(asked: argparse.Namespace) -> None:
    lines = {key: line for key, line in stored().items() if key[2] == asked.rows and key[0] in asked.streams}
    shown = [name for name in (*OURS, *RIVER) if name in asked.learners and any(key[1] == name for key in lines)]
    values: dict[str, Callable[[Line], Any]] = {
        "Accuracy, %": lambda line: 100 * line.accuracy,
        "Kappa, %": lambda line: 100 * line.kappa,
        "CPU us per row": lambda line: line.us,
    }
    for title, value in values.items():
        body = []
        for stream in dict.fromkeys(stream for stream, name in cells(asked) if name in shown):
            found = [lines.get((stream, name, asked.rows)) for name in shown]
            body.append([stream, *("" if x is None else "-" if x.trouble else f"{value(x):,.1f}" for x in found)])
        show(title, ["stream", *shown], [*body, _means(lines, shown, value)])
    print("", *(f"- {one.stream}, {one.learner}: {one.trouble}" for one in lines.values() if one.trouble), sep="\n")


def _means(lines: dict[tuple[str, str, int], Line], shown: list[str], value: Callable[[Line], Any]) -> list[str]:
    """The last row: means of the dense streams that every learner has done to the end."""
    names = [name for name in shown if name not in OURS or OURS[name][0] in TAKE_DENSE]
    scored = {(line.stream, line.learner): line for line in lines.values() if not line.trouble}
    done = [stream for stream in (*TIMED, *UNTIMED) if all((stream, name) in scored for name in names)]
    means = {name: np.mean([value(scored[stream, name]) for stream in done]) for name in names if done}
    return [f"mean of {len(done)}", *(f"{means[name]:,.1f}" if name in means else "" for name in shown)]


if __name__ == "__main__":
    lists = {"streams": [*TIMED, *UNTIMED, *SPARSE], "learners": [*OURS, *RIVER]}
    given = arguments(__doc__, what_={"choices": ("run", "table")}, rows=5000, cpu_minutes=5.0, **lists)
    (run if given.what == "run" else tables)(given)
