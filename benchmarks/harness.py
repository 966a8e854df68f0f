"""The harness of every benchmark: command line, machine, timing in turns, tables with a JSON line, pictures, data.

A program calls :func:`arguments` (or :func:`commands`, if it prints several tables), measures its contestants with
:func:`in_turns` within one run, and prints them with :func:`show`. The harness is never part of a timed call.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.metadata
import io
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
#: Folder of the result pages and their pictures.
PAGES = ROOT / "docs" / "development" / "results"


# -- Command line --


def arguments(doc: str | None, **options: Any) -> argparse.Namespace:
    """Parse the command line; the module's docstring is the help.

    The default of an option gives its type: False is a switch, a list takes several values, a type is an option
    without a default, and a dict has the arguments of ``add_argument``. A name that ends in ``_`` is positional.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in options.items():
        given: dict[str, Any]
        if isinstance(default, dict):
            given = default
        elif default is False:
            given = {"action": "store_true"}
        elif isinstance(default, list | tuple):
            given = {"nargs": "*", "default": default, "type": type(default[0]) if default else str}
        else:
            given = {"type": default} if isinstance(default, type) else {"type": type(default), "default": default}
        positional = name.endswith("_")
        parser.add_argument(name[:-1] if positional else f"--{name.replace('_', '-')}", **given)
    return parser.parse_args()


class Request(argparse.Namespace):
    """Options of a program with several tables: ``name``, ``data``, ``seeds``, ``plot``, ``folder`` and its own."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"data": (), "derivatives": (), "seeds": 5, "plot": False, "folder": "", **given})

    def sets(self, *default: str) -> tuple[str, ...]:
        """Return the names of the data sets: those of the command line, or the table's own."""
        return tuple(self.data) or default

    def draw(self, name: str, grid: Sequence[Sequence[Panel]], styles: dict[str, Style]) -> None:
        """Write a picture into the folder of the result page, if ``--plot`` was given."""
        if self.plot:
            path = PAGES / self.folder / f"{name}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(svg(grid, styles), encoding="utf-8")
            progress("wrote", path)


def commands(doc: str | None, modules: Mapping[str, str], *peers: str, **options: Any) -> None:
    """Run one table of a folder: ``modules`` maps the name of a table to ``module:function`` below this folder."""
    folder = next(iter(modules.values())).partition(".")[0]
    choices = {"choices": list(modules)}
    given = arguments(doc, name_=choices, seeds=5, plot=False, **options)
    print(f"`python benchmarks/{folder}/run.py {' '.join(sys.argv[1:])}`\n")
    print_machine(*peers)
    module, _, function = modules[given.name].partition(":")
    getattr(importlib.import_module(module), function)(Request(**{**vars(given), "folder": folder}))
    print(f"\nLoad average of the last 15 minutes: {os.getloadavg()[2]:.1f}, of {os.cpu_count()} cores.")


# -- Machine --


def machine(*packages: str) -> str:
    """Return processor, cores, and the versions of raydt and of those packages that are installed."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?")
    found = []
    for package in ("raydt", "numpy", "numba", *packages):
        try:
            found.append(f"{package}={importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {' '.join(found)}"


def print_machine(*packages: str) -> None:
    """Print the first line of a program: the machine, versions, and the load average of the last minute."""
    print(f"{machine(*packages)}, load {os.getloadavg()[0]:.1f}", flush=True)


def peak_mb() -> float:
    """Return the largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident_mib(pid: int, field: str) -> float:
    """Return one of the sizes in ``/proc/PID/status``, in MiB. Linux only."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def stored_bytes(*roots: Any) -> int:
    """Count the bytes of all NumPy arrays reachable from ``roots``; memory that arrays share counts once."""
    seen: set[int] = set()
    total, waiting = 0, list(roots)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | str | bytes | int | float | None):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            owner = thing
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            if owner is thing or id(owner) not in seen:
                seen.add(id(owner))
                total += owner.nbytes
            if thing.dtype == object:
                waiting += thing.ravel().tolist()
        elif isinstance(thing, Mapping):
            waiting += thing.values()
        elif isinstance(thing, list | tuple | set | frozenset):
            waiting += thing
        else:
            own = getattr(thing, "__dict__", {})
            waiting += own.values() if isinstance(own, dict) else ()  # a foreign function has no such dict
            slots = {name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())}
            waiting += [getattr(thing, name) for name in slots if hasattr(thing, name)]
    return total


# -- Timing --


class Timed(NamedTuple):
    """Seconds of each counted call of one contestant, and the result of its last call."""

    seconds: list[float]
    result: Any

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def in_turns(
    contestants: Mapping[Any, Callable[[], Any]],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
    uncounted: int = 1,
) -> dict[Any, Timed]:
    """Call all contestants one after the other, ``repeats`` times after ``uncounted`` rounds that compile."""
    seconds: dict[Any, list[float]] = {who: [] for who in contestants}
    results: dict[Any, Any] = {}
    for turn in range(uncounted + repeats):
        for who, call in contestants.items():
            began = clock()
            results[who] = call()
            taken = clock() - began
            if turn >= uncounted:
                seconds[who].append(taken)
    return {who: Timed(seconds[who], results[who]) for who in contestants}


def timed(call: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> tuple[float, Any]:
    """Return the seconds of one call, and its result."""
    began = clock()
    result = call()
    return clock() - began, result


def cpu_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Return the median CPU time of ``repeats`` calls after one that is not counted; garbage is collected before each.

    Use it only where the two sides are one call each and neither depends on the load of the machine.
    """
    run()
    times = []
    for _ in range(repeats):
        gc.collect()
        times.append(timed(run)[0])
    return statistics.median(times)


# -- Replays and sessions --


def trivial_predictions(y: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.int32]]:
    """Return the label before each row, and the label seen most often before it, of codes 0 and 1 (first, ties: 0)."""
    signs = 2 * y.astype(np.int64) - 1
    ahead = np.cumsum(signs) - signs > 0
    return {"no-change": np.append(0, y[:-1]).astype(np.int32), "majority": ahead.astype(np.int32)}


def replayed(
    learner: dict[str, Any], source: dict[str, Any], stream: dict[str, Any], **sections: Any
) -> tuple[dict[str, Any], float]:
    """Return the summary of a replay without a report, by default in this process, and its CPU seconds.

    The folder of the run is temporary; neither its making nor its removal is timed.
    """
    import pipelines

    config = {"source": source, "stream": stream, "learner": learner, "cluster": {"backend": "in_process"}}
    config |= {"output": {"report": False}, **sections}
    with tempfile.TemporaryDirectory() as folder:
        seconds, run = timed(lambda: pipelines.replay(config, Path(folder) / "run"))
    return run.summary, seconds


def parquet(name: str, folder: Path = DATA, **options: Any) -> dict[str, Any]:
    """Return the section ``source`` of a config that reads a file of the folder of data."""
    return {"kind": "parquet", "path": str(folder / f"{name}.parquet"), **options}


def session(kind: str, columns: int | Sequence[bool], plan: WorkPlan | None = None, **options: Any) -> InProcessSession:
    """Return a session in this process over ``columns`` numbers, or over columns of which some are categories."""
    learner, flags = learners()[kind], [False] * columns if isinstance(columns, int) else columns
    features = Features(tuple(f"x{j}" for j in range(len(flags))), tuple(flags))
    return InProcessSession(learner, learner.Options(kind=kind, **options), features, 1, plan or WorkPlan(2**62))


def inserts(begin: int, end: int, X: Any, y: Any, classes: int = 2, warmup: int = 0) -> UpdateBatch:
    """Return the batch that inserts rows ``begin`` to ``end``, whose ids are their numbers."""
    rows = np.arange(begin, min(end, len(y)))
    return UpdateBatch(begin, np.full(len(rows), INSERT, np.int8), rows, X[rows], y[rows], classes, rows, warmup)


# -- Tables --


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; every column but the first is aligned to the right."""
    align = ["---", *["---:"] * (len(header) - 1)]
    return ["| " + " | ".join(cells) + " |" for cells in (header, align, *rows)]


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> None:
    """Print one table, and the same as a line of JSON with the load average of the last minute."""
    print(f"\n### {title}\n", *([note, ""] if note else []), *table(header, rows), sep="\n")
    line = {"table": title, "header": header, "rows": rows, "load": round(os.getloadavg()[0], 1)}
    print(f"\n{json.dumps(line, ensure_ascii=False)}", flush=True)


def progress(*words: object) -> None:
    """Print a line on stderr."""
    print(*words, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Section:
    """The generated part of one section of a page, and its pictures by file name."""

    name: str
    text: str
    pictures: dict[str, str] = field(default_factory=dict)


def replace(document: str, section: Section) -> str:
    """Return a page with the text between the section's two markers replaced. ValueError without such markers."""
    begin, end = f"<!-- {section.name}: generated -->", f"<!-- {section.name}: end -->"
    head, found, rest = document.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"the document has no markers {begin} and {end}")
    return f"{head}{begin}\n{section.text}\n{end}{tail}"


# -- Pictures --


@dataclass(frozen=True, slots=True)
class Style:
    """Colour and dash pattern of a line."""

    colour: str
    dash: str = "-"


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes: lines and horizontal levels by the name of their style."""

    title: str
    lines: dict[str, list[tuple[float, float]]]
    levels: dict[str, float] = field(default_factory=dict)
    log: bool = False
    x: str = "epsilon"
    log_x: bool = False

    def near(self) -> dict[str, float]:
        """Return the levels near enough to the lines to leave these readable."""
        values = [y for line in self.lines.values() for _, y in line]
        reach = max(max(values) - min(values), 1e-3)
        return {k: y for k, y in self.levels.items() if min(values) - reach <= y <= max(values) + reach}


def svg(grid: Sequence[Sequence[Panel]], styles: dict[str, Style]) -> str:
    """Draw the panels row by row, with one legend of the styles in use; equal figures give equal bytes."""
    import matplotlib  # here, since measuring and the tables do not need it
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * max(map(len, grid)), 2.6 * len(grid) + 0.7), layout="constrained")
    axes = figure.subplots(len(grid), max(map(len, grid)), squeeze=False)
    handles = {}
    for row, panels in zip(axes, grid, strict=True):
        for axis, panel in zip(row, panels, strict=True):
            for name, line in panel.lines.items():
                style = styles[name]
                (handles[name],) = axis.plot(*zip(*line, strict=True), color=style.colour, linestyle=style.dash, lw=1.4)
            for name, level in panel.near().items():
                handles[name] = axis.axhline(level, color=styles[name].colour, linestyle=styles[name].dash, lw=1)
            axis.set_title(panel.title, fontsize=9, loc="left")
            axis.set_xlabel(panel.x, fontsize=8)
            axis.set_xscale("log" if panel.log_x else "linear")
            axis.set_yscale("log" if panel.log else "linear")
            axis.grid(color="#ddd", lw=0.6)
            axis.minorticks_off()  # a third of the file
            for letter, logarithmic in (("y", panel.log), ("x", panel.log_x)):
                if not logarithmic:
                    axis.locator_params(axis=letter, nbins=5)
            axis.tick_params(labelsize=7)
    used = [name for name in styles if name in handles]
    legend = {"loc": "outside lower center", "ncols": 4, "fontsize": 7, "frameon": False}
    figure.legend([handles[name] for name in used], used, **legend)
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "raydt"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


# -- Data sets --


def read(name: str, folder: Path = DATA, **options: Any) -> Any:
    """Return a Parquet file of the folder of data as a table; exit with a message if the file is missing."""
    import pyarrow.parquet as pq

    path = folder / f"{name}.parquet"
    if not path.exists():
        sys.exit(f"{path} is missing: the benchmarks read the data sets of {folder}/CATALOG.md")
    return pq.read_table(path, **options)


def electricity(folder: Path = DATA) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Return Electricity in file order: X float64 (45312, 8), y int32, 1 = DOWN."""
    found = read("electricity", folder)
    names = [name for name in found.column_names if name != "y"]
    X = np.column_stack([found[name].to_numpy() for name in names]).astype(np.float64)
    return X, (np.array(found["y"].to_pylist()) == "DOWN").astype(np.int32)
