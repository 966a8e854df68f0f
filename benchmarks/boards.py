"""All learners, river's and MOA's classifiers, and LightGBM trained anew, on all real streams, with one setting each.

    python benchmarks/boards.py run [--rows 5000] [--streams NAME ...] [--learners NAME ...] [--cpu-minutes 5]
    python benchmarks/boards.py table [--rows 5000]

Each example is predicted just before it is learned; the first 500 rows, the warm-up of ours, are not scored on any
side. Each cell is a process of its own, after a pass over the first 1,000 rows that compiles and imports; for MOA,
whose virtual machine compiles as it goes, over all rows. Times are the processor's, of all threads: a whole replay for
ours (the file is read, tables and model are written), reading an ARFF file for MOA, ``predict_one`` and ``learn_one``
on dictionaries made beforehand for river, ``fit`` and ``predict`` on codes made beforehand for LightGBM, in one thread,
which costs it least on so few rows. Memory is what the process takes on top of what it had after the first pass. A
missing number is null for ours and LightGBM, ``?`` for MOA, and left out for river. MOA needs ``pip install capymoa``
and Java 17.

``run`` appends one line for each stream and learner to ``benchmarks/results/boards.csv`` and leaves out the lines that
are there: it can be stopped at any time.
"""

import argparse
import csv
import itertools
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from harness import DATA, arguments, parquet, print_machine, progress, read, replayed, resident_mib, show
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
    "majority": lambda _: dummy.PriorClassifier(),
    "HT": _tree,
    "HAT": lambda nominal: tree.HoeffdingAdaptiveTreeClassifier(nominal_attributes=nominal, seed=1),
    "EFDT": lambda nominal: tree.ExtremelyFastDecisionTreeClassifier(nominal_attributes=nominal),
    "ARF": lambda nominal: forest.ARFClassifier(n_models=10, nominal_attributes=nominal, seed=1),
    "LB": lambda nominal: ensemble.LeveragingBaggingClassifier(_tree(nominal), n_models=10, seed=1),
    "SRP": lambda nominal: ensemble.SRPClassifier(_tree(nominal, grace_period=50, delta=0.01), n_models=10, seed=1),
}


#: MOA's by their class in CapyMOA, with its defaults; ensembles have ten trees, as river's, but for boosted ones (100).
MOA: dict[str, tuple[str, dict[str, int]]] = {
    "MOA HT": ("HoeffdingTree", {}),
    "MOA EFDT": ("EFDT", {}),
    "MOA HAT": ("HoeffdingAdaptiveTree", {}),
    "MOA PLASTIC": ("PLASTIC", {}),
    "MOA ARF": ("AdaptiveRandomForestClassifier", {"ensemble_size": 10}),
    "MOA LB": ("LeveragingBagging", {"ensemble_size": 10}),
    "MOA SRP": ("StreamingRandomPatches", {"ensemble_size": 10}),
    "MOA SGBT": ("StreamingGradientBoostedTrees", {}),
}
#: LightGBM with its defaults, trained anew before each ``STEP`` rows, on so many rows before them.
LIGHTGBM = {"LightGBM anew, last 1,000": WINDOW, "LightGBM anew, all rows": 2**62}
STEP = 100
LEARNERS = (*OURS, *RIVER, *MOA, *LIGHTGBM)


class Line(NamedTuple):
    stream: str
    learner: str
    asked: int
    rows: int
    accuracy: float | None
    kappa: float | None
    us: float
    mib: float
    trouble: str = ""


class Scored(NamedTuple):
    """Rows of a stream that a contestant saw, its accuracy and kappa after the warm-up, and its processor seconds."""

    rows: int
    accuracy: float
    kappa: float
    seconds: float


def of_ours(stream: str, learner: str, limit: int) -> Scored:
    sections = {"cluster": {"backend": "in_process", "shards": 1}, "checkpoint": {"every_seconds": None}}
    sections |= {"output": {"report": False, "predictions": False}}
    kind, window = OURS[learner]
    summary, seconds = replayed({"kind": kind}, parquet(stream, label="y", limit=limit), window, **sections)
    scores = summary["metrics"]
    return Scored(summary["inserts"], scores["accuracy"], scores["kappa"], seconds)


def _scored(truth: list[Any], found: list[Any], seconds: float) -> Scored:
    accuracy, kappa = metrics.Accuracy(), metrics.CohenKappa()
    for y, predicted in itertools.islice(zip(truth, found, strict=True), WARMUP, None):
        accuracy.update(y, predicted)
        kappa.update(y, predicted)
    return Scored(len(truth), accuracy.get(), kappa.get(), seconds)


def of_river(stream: str, learner: str, limit: int) -> Scored:
    examples, nominal = _examples(stream, limit)
    model, found = RIVER[learner](nominal or None), []
    began = time.process_time()
    for x, y in examples:
        found.append(model.predict_one(x))
        model.learn_one(x, y)
    return _scored([y for _, y in examples], found, time.process_time() - began)


def of_moa(stream: str, learner: str, limit: int) -> Scored:
    import capymoa.classifier
    from capymoa.evaluation import prequential_evaluation
    from capymoa.stream import ARFFStream

    kind, options = MOA[learner]
    with tempfile.TemporaryDirectory() as folder:
        _write_arff(stream, limit, path := Path(folder) / "rows.arff")
        began = time.process_time()
        data = ARFFStream(path)
        model = getattr(capymoa.classifier, kind)(schema=data.get_schema(), **options)
        done = prequential_evaluation(data, model, store_predictions=True, store_y=True)
        seconds = time.process_time() - began
    return _scored([int(y) for y in done.ground_truth_y()], done.predictions(), seconds)


def of_lightgbm(stream: str, learner: str, limit: int) -> Scored:
    import lightgbm

    codes, y, nominal = _codes(stream, limit)
    found: list[Any] = []
    began = time.process_time()
    for start in range(0, len(y), STEP):
        before, now = slice(max(0, start - LIGHTGBM[learner]), start), slice(start, start + STEP)
        if len(np.unique(y[before])) < 2:
            found += [y[start - 1] if start else 0] * len(y[now])
            continue
        model = lightgbm.LGBMClassifier(verbose=-1, n_jobs=1).fit(codes[before], y[before], categorical_feature=nominal)
        found += model.predict(codes[now]).tolist()
    return _scored(y.tolist(), found, time.process_time() - began)


def _plain(stream: str, limit: int) -> tuple[pa.Table, pa.Array, list[str]]:
    """Dense rows without their labels, the labels as text, and the names of the features that are categories."""
    rows = read(stream).slice(0, limit)
    nominal = [field.name for field in rows.schema if field.name != "y" and pa.types.is_dictionary(field.type)]
    for name in ("y", *nominal):
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(pa.string()))
    return rows.drop_columns("y"), rows["y"], nominal


def _codes(stream: str, limit: int) -> tuple[Any, Any, list[int]]:
    rows, labels, nominal = _plain(stream, limit)
    columns = []
    for name in rows.column_names:
        coded = rows[name].combine_chunks().dictionary_encode().indices if name in nominal else rows[name]
        columns.append(coded.cast(pa.float64()).to_numpy(zero_copy_only=False))
    y = np.unique(labels.to_pylist(), return_inverse=True)[1]
    return np.column_stack(columns), y, [rows.column_names.index(name) for name in nominal]


def _write_arff(stream: str, limit: int, path: Path) -> None:
    rows, labels, nominal = _plain(stream, limit)
    table = rows.append_column("y", labels)
    with path.open("w", encoding="utf-8") as file:
        file.write("@relation rows\n")
        cells = []
        for number, name in enumerate(table.column_names):
            values = table[name].to_pylist()
            if name in (*nominal, "y"):  # a category is named by its number: names need quotes in ARFF
                code = {value: f"v{k}" for k, value in enumerate(sorted({x for x in values if x is not None}))}
                file.write(f"@attribute a{number} {{{','.join(code.values())}}}\n")
                cells.append([code.get(x, "?") for x in values])
            else:
                file.write(f"@attribute a{number} numeric\n")
                cells.append(["?" if x is None or x != x else repr(float(x)) for x in values])
        file.write("@data\n")
        file.writelines(",".join(row) + "\n" for row in zip(*cells, strict=True))


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
        dense = () if stream in SPARSE else (*MOA, *LIGHTGBM)
        for learner in (*here, *RIVER, *dense):
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
            costs = float(row["us"]), float(row["mib"])
            line = Line(row["stream"], row["learner"], *counts, *scores, *costs, row["trouble"])
            lines[line.stream, line.learner, line.asked] = line
    return lines


def append(line: Line) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    began = RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([line] if began else [Line._fields, line])


def run(asked: argparse.Namespace) -> None:
    print_machine("river", "capymoa", "lightgbm", "scikit-learn")
    there, seconds = stored(), int(60 * asked.cpu_minutes)
    for stream, learner in cells(asked):
        if (stream, learner, asked.rows) in there:
            continue
        command = [sys.executable, __file__, "cell", "--rows", str(asked.rows)]
        limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))  # noqa: E731
        done = subprocess.run([*command, "--streams", stream, "--learners", learner], preexec_fn=limit, check=False)
        if done.returncode:
            late = done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
            trouble = f"stopped after {seconds} s of processor time" if late else f"ended with code {done.returncode}"
            append(Line(stream, learner, asked.rows, 0, None, None, float("nan"), float("nan"), trouble))


def cell(asked: argparse.Namespace) -> None:
    """Measure one learner on one stream, in a process that ends after it."""
    (stream,), (learner,) = asked.streams, asked.learners
    sides = ((OURS, of_ours), (RIVER, of_river), (MOA, of_moa), (LIGHTGBM, of_lightgbm))
    measure = next(measured for names, measured in sides if learner in names)
    try:
        if learner in OURS:
            compile_kernels(learners()[OURS[learner][0]])
        measure(stream, learner, asked.rows if learner in MOA else 2 * WARMUP)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins here
        had = resident_mib(os.getpid(), "VmRSS")
        rows, accuracy, kappa, seconds = measure(stream, learner, asked.rows)
        mib = resident_mib(os.getpid(), "VmHWM") - had
        line = Line(stream, learner, asked.rows, rows, accuracy, kappa, 1e6 * seconds / rows, mib)
    except Exception as error:  # a learner that cannot take a stream is a line of the table, too
        trouble = f"{type(error).__name__}: {error}"
        line = Line(stream, learner, asked.rows, 0, None, None, float("nan"), float("nan"), trouble)
    append(line)
    progress(line)


def tables(asked: argparse.Namespace) -> None:
    lines = {key: line for key, line in stored().items() if key[2] == asked.rows and key[0] in asked.streams}
    shown = [name for name in LEARNERS if name in asked.learners and any(key[1] == name for key in lines)]
    values: dict[str, Callable[[Line], Any]] = {
        "Accuracy, %": lambda line: 100 * line.accuracy,
        "Kappa, %": lambda line: 100 * line.kappa,
        "CPU us per row": lambda line: line.us,
        "MiB": lambda line: line.mib,
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
    lists = {"streams": [*TIMED, *UNTIMED, *SPARSE], "learners": list(LEARNERS)}
    programs = {"run": run, "table": tables, "cell": cell}
    given = arguments(__doc__, what_={"choices": tuple(programs)}, rows=5000, cpu_minutes=5.0, **lists)
    programs[given.what](given)
