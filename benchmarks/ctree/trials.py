"""Accuracy against the number of leaves, on drawn streams (Figure 2) and on real data (Figure 3), by split rule.

Source: R. De Rosa, N. Cesa-Bianchi, "Splitting with confidence in decision trees with application to stream mining",
IJCNN 2015. A *trial* is one stream: the rows of one random tree, or one order of a data set. It runs every setting of
three rules in a sweep within its process; trials may run in several processes. The *curve* of a trial goes through the
mean score so far of all logged moments, of all settings pooled, by the number of leaves then.

The paper takes 200 values of each option, c in (0, 2) and delta in (0, 1). Nearly all of c's give trees of one leaf on
its synthetic streams, so that a short grid has to look where trees grow. The width of a baseline is w / sqrt(m) with
w = sqrt(ln(1/delta) / 2), that of C-Tree (eq. 8, twice) about 10 c / sqrt(m), since sqrt(ln(m^2 h^2 t d)) is about 5
for leaves of a thousand examples. All three grids go through the same widths w at equal ratios.
"""

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from harness import DATA, ROOT, Panel, Request, Style, progress, read, show

from pipelines import sweep

Floats = npt.NDArray[np.float64]
#: Names in tables, and the rule of each.
RULES = {"C-Tree": "ctree", "H-Tree": "hoeffding", "CorrH-Tree": "corrected"}
STYLES = dict(zip(RULES, (Style("#c0392b"), Style("#1b6ca8", "--"), Style("#2d8a4e", "-.")), strict=True))
#: Least and greatest w: around trees of 50 leaves on the synthetic streams, and around the best trees on real data.
SYNTHETIC, REAL = (0.05, 0.5), (0.02, 1.0)
#: What all trees share: the paper's grace period, no ties, leaves that predict their majority; bins that stay.
COMMON = {
    "kind": "confidence_tree", "grace_period": 100, "tie_threshold": 0.0, "leaf_prediction": "majority",
    "max_bins": 256, "renew_bins": 0,
}  # fmt: skip
#: Rows that fix the bins; moments of a stream at which score and leaves are logged; places of a drawn line.
WARMUP, MOMENTS, POINTS = 1_000, 200, 60
#: Leaves of the drawn trees, at which rules are compared, and the least lower bound of the difference in points.
LEAVES, GOAL = 50, -0.2


class DataSet(NamedTuple):
    """A data set at hand; ``score`` is ``f1`` (of the smallest class) where the paper uses it for unbalanced data."""

    title: str
    files: tuple[str, ...]
    positive: Any
    score: str

    def source(self) -> dict[str, Any]:
        paths = [str(DATA / f"{file}.parquet") for file in self.files]
        return {"kind": "parquet", "path": paths, "positive": self.positive}

    def rows(self) -> int:
        return sum(pq.read_metadata(DATA / f"{file}.parquet").num_rows for file in self.files)

    def share(self) -> float:
        """Return the share of the positive or of the smallest class."""
        labels = np.concatenate([np.array(read(file)["y"].to_pylist()).astype(str) for file in self.files])
        names, counts = np.unique(labels, return_counts=True)
        found = counts.min() if self.positive == "minority" else counts[names == str(self.positive)].sum()
        return float(found / len(labels))


#: COVERTYPE of the paper is class 2 against the rest; at hand are its first 10,000 rows, and all rows of classes 3, 4.
SETS = {
    "electricity": DataSet("Electricity", ("electricity",), "UP", "accuracy"),
    "a9a": DataSet("A9A", ("a9a_train", "a9a_test"), "minority", "f1"),
    "covtype": DataSet("Covertype, first 10,000 rows", ("covtype_head10k",), 2, "accuracy"),
    "covtype-3-4": DataSet("Covertype, classes 3 and 4", ("covtype_class3_vs_4",), "minority", "f1"),
}
#: Files of the comparison of defaults, and whether the order of their rows is time.
TIMED = ("electricity", "poker_lsn", "posture", "sea_concepts", "kddcup99_10pct", "covtype_class3_vs_4")
STREAMS = dict.fromkeys(TIMED, True) | dict.fromkeys(
    ("covtype_head10k", "bananas", "image_segments", "phishing"), False
)


class Setting(NamedTuple):
    """One setting of a trial: rule, c or delta, leaves and score so far by moment, CPU microseconds per example."""

    rule: str
    value: float
    leaves: npt.NDArray[np.int64]
    score: Floats
    us: float


class Difference(NamedTuple):
    """A paired difference: its mean, the lower end of its one-sided 95 % interval (Student's t), and its trials."""

    mean: float
    lower: float
    trials: int


def grids(settings: int, between: tuple[float, float]) -> list[dict[str, list[Any]]]:
    """List the grid of each sweep: together all rules, each with ``settings`` values between two widths."""
    widths = np.geomspace(*between, settings).tolist()
    deltas = [float(f"{math.exp(-2.0 * w * w):.6g}") for w in widths]
    return [
        {"learner.rule": ["ctree"], "learner.c": [float(f"{0.1 * w:.4g}") for w in widths]},
        {"learner.rule": ["hoeffding", "corrected"], "learner.delta": deltas},
    ]


def trial(source: dict[str, Any], settings: int, rows: int, score: str = "accuracy") -> list[Setting]:
    """Every setting of the grids over one stream, one after another in this process."""
    config = {
        "source": source, "stream": {"model": "incremental", "warmup": min(WARMUP, rows // 10)}, "learner": COMMON,
        "cluster": {"backend": "in_process"}, "output": {"metrics_every": max(1, rows // MOMENTS)},
    }  # fmt: skip
    names, found = {rule: name for name, rule in RULES.items()}, []
    for grid in grids(settings, SYNTHETIC if source["kind"] == "synthetic" else REAL):
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


def drawn_tree(seed: int, examples: int, settings: int) -> list[Setting]:
    """All settings on a stream drawn from a random tree of 50 leaves, 5 attributes, label probability 0.7.

    The trial is kept in a file of ``benchmarks/results``, so that a run of several nights resumes where it stopped.
    """
    path = ROOT / "benchmarks" / "results" / f"figure-2-{examples}-{settings}" / f"{seed}.npz"
    if not path.exists():
        source = {"kind": "synthetic", "generator": "randcbt", "n": examples, "seed": seed}
        columns = zip(*trial(source, settings, examples), strict=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}.npz")
        np.savez_compressed(new, **dict(zip(Setting._fields, map(np.array, columns), strict=True)))  # type: ignore[arg-type]
        new.replace(path)
    with np.load(path) as kept:
        return [Setting(*row) for row in zip(*(kept[name] for name in Setting._fields), strict=True)]


def order(name: str, permutation: int, settings: int) -> list[Setting]:
    """All settings on a data set in one order."""
    data = SETS[name]
    return trial({**data.source(), "permutation": permutation}, settings, data.rows(), data.score)


def trials(make: Callable[..., list[Setting]], arguments: Sequence[Any], jobs: int) -> Iterator[list[Setting]]:
    """``make`` of each of the arguments, in their order, in ``jobs`` processes."""
    if jobs == 1:
        found = map(make, *zip(*arguments, strict=True))
        yield from _told(found, len(arguments))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from _told(pool.map(make, *zip(*arguments, strict=True)), len(arguments))


def _told(found: Iterator[list[Setting]], count: int) -> Iterator[list[Setting]]:
    for number, one in enumerate(found):
        yield one
        progress("trial", number + 1, "of", count)


def performance_at(leaves: npt.NDArray[np.integer], score: Floats, places: npt.NDArray[np.integer]) -> Floats:
    """The curve of a trial at numbers of leaves, between neighbours by straight lines; NaN beyond its trees."""
    known = np.isfinite(score)
    if not known.any():
        return np.full(len(places), np.nan)
    sizes, which, moments = np.unique(leaves[known], return_inverse=True, return_counts=True)
    means = np.bincount(which, weights=score[known]) / moments
    return np.asarray(np.interp(places, sizes, means, left=np.nan, right=np.nan), dtype=np.float64)


def averaged(curves: Sequence[Floats]) -> Floats:
    """The mean of the curves of several trials, NaN where fewer than half of them have a value."""
    stacked = np.array(curves)
    known = np.isfinite(stacked)
    there = known.sum(axis=0)
    mean = np.where(known, stacked, 0.0).sum(axis=0) / np.maximum(there, 1)
    return np.where((there > 0) & (2 * there >= len(stacked)), mean, np.nan)


def along(settings: Sequence[Setting], rule: str, places: npt.NDArray[np.integer]) -> Floats:
    """Figure 2: the mean score so far of all moments of all settings of a rule, by number of leaves."""
    own = [setting for setting in settings if setting.rule == rule]
    return performance_at(*(np.concatenate([getattr(s, name) for s in own]) for name in ("leaves", "score")), places)


def at_end(settings: Sequence[Setting], rule: str, places: npt.NDArray[np.integer]) -> Floats:
    """The score at the end of the stream by number of leaves there, between settings by straight lines."""
    own = [setting for setting in settings if setting.rule == rule]
    return performance_at(np.array([s.leaves[-1] for s in own]), np.array([s.score[-1] for s in own]), places)


READINGS = {"along the stream": along, "at the end": at_end}


def difference(ours: Floats, theirs: Floats) -> Difference:
    """Compare two scores in the same trials; a trial in which one of them has none is left out."""
    from scipy.stats import t

    paired = (ours - theirs)[np.isfinite(ours) & np.isfinite(theirs)]
    n = len(paired)
    if n < 2:
        return Difference(float(paired.mean()) if n else math.nan, -math.inf, n)
    mean = float(paired.mean())
    return Difference(mean, mean - float(t.ppf(0.95, n - 1)) * float(paired.std(ddof=1)) / math.sqrt(n), n)


def lines(found: Sequence[Sequence[Setting]]) -> dict[str, list[tuple[float, float]]]:
    """For each rule its line in per cent: the mean of the trials, where at least half have such trees."""
    most = max(int(setting.leaves.max()) for settings in found for setting in settings)
    places = (
        np.unique(np.round(np.geomspace(1, most, POINTS)).astype(np.int64)) if most > POINTS else np.arange(1, most + 1)
    )
    drawn = {rule: averaged([along(settings, rule, places) for settings in found]) for rule in RULES}
    return {
        rule: [(float(x), 100 * float(y)) for x, y in zip(places, line, strict=True) if math.isfinite(y)]
        for rule, line in drawn.items()
    }


def best(found: Sequence[Sequence[Setting]], rule: str) -> tuple[float, Floats, Floats]:
    """The value of a rule whose mean score at the end is best; its scores and leaves there, by trial."""
    own = [[setting for setting in settings if setting.rule == rule] for settings in found]
    scores = np.array([[setting.score[-1] for setting in settings] for settings in own])
    leaves = np.array([[setting.leaves[-1] for setting in settings] for settings in own], dtype=np.float64)
    place = int(scores.mean(axis=0).argmax())
    return own[0][place].value, scores[:, place], leaves[:, place]


def figure2(request: Request) -> None:
    """Figure 2: accuracy against number of leaves on streams drawn from random trees of 50 leaves.

    Two readings of "accuracy at 50 leaves". *Along the stream* is the figure's: the accuracy so far at every logged
    moment of every setting, by the leaves of that moment; a setting that stays long at 50 leaves counts most. *At the
    end* is that of the whole stream, by the leaves after it: between the settings that end just below and above 50.
    """
    arguments = [(seed, request.examples, request.settings) for seed in range(request.trees)]
    found, rows = [*trials(drawn_tree, arguments, request.jobs)], []
    for reading, of in READINGS.items():
        values = {rule: np.array([of(settings, rule, np.array([LEAVES]))[0] for settings in found]) for rule in RULES}
        for rule, theirs in values.items():
            reached = np.isfinite(theirs)
            mean = f"{100 * theirs[reached].mean():.2f}" if reached.any() else ""
            cells = [f"{rule}, {reading}", mean, f"{reached.sum()} of {len(found)}"]
            if rule != "C-Tree":
                over = difference(values["C-Tree"], theirs)
                verdict = "met" if 100 * over.lower >= GOAL else "**missed**"
                cells += [f"{100 * over.mean:+.2f}", f"{100 * over.lower:+.2f}", str(over.trials), verdict]
            rows.append(cells + [""] * (7 - len(cells)))
    note = (
        f"{request.trees} random trees of {LEAVES} leaves, {request.examples:,} examples each, the first {WARMUP:,} at "
        f"most for the bins; {request.settings} settings of each rule; Gini (CorrH-Tree: error), grace period 100, no "
        "ties. Accuracy in per cent; C-Tree minus the baseline in points, over the trees in which both have trees of "
        f"{LEAVES} leaves, and the lower end of the one-sided 95 % interval (Student's t). Goal: at least {GOAL}."
    )
    header = [f"at {LEAVES} leaves", "accuracy", "trees", "C-Tree minus it", "lower bound", "pairs", "goal"]
    show(f"At {LEAVES} leaves", header, rows, note)
    note = "Accuracy in per cent, mean of the trees, where at least half have such a tree."
    sizes, table = np.array([1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000]), []
    for rule in RULES:
        for reading, of in READINGS.items():
            line = averaged([of(settings, rule, sizes) for settings in found])
            table.append([f"{rule}, {reading}", *(f"{100 * v:.2f}" if np.isfinite(v) else "" for v in line)])
    show("By number of leaves", ["leaves", *(f"{size:,}" for size in sizes)], table, note)
    panel = Panel("accuracy so far, per cent", lines(found), x="leaves", log_x=True)
    request.draw("figure-2", [[panel]], STYLES)


def figure3(request: Request) -> None:
    """Figure 3: performance against number of leaves on real data, each in several random orders."""
    panels = []
    for name in request.sets(*SETS):
        data = SETS[name]
        arguments = [(name, permutation, request.settings) for permutation in range(request.seeds)]
        found, rows = [*trials(order, arguments, request.jobs)], []
        score = "accuracy" if data.score == "accuracy" else "F-measure of the smallest class"
        tuned = {rule: best(found, rule) for rule in RULES}
        for rule, (value, scores, leaves) in tuned.items():
            key = "c" if rule == "C-Tree" else "delta"
            cells = [f"{rule}, {key} {value:g}", f"{100 * scores.mean():.2f}", f"{100 * scores.std(ddof=1):.2f}"]
            cells.append(f"{leaves.mean():.1f}")
            if rule != "C-Tree":
                over = difference(tuned["C-Tree"][1], scores)
                cells += [f"{100 * over.mean:+.2f}", f"{100 * over.lower:+.2f}"]
            rows.append(cells + [""] * (6 - len(cells)))
        share = data.share()
        best_trivial = max(share, 1 - share) if data.score == "accuracy" else 0.0
        rows.append(["majority", f"{100 * best_trivial:.2f}", "", "1.0", "", ""])
        if data.score == "f1":
            rows.append(["always the smallest class", f"{200 * share / (1 + share):.2f}", "", "1.0", "", ""])
        large = f"{score[0].upper()}{score[1:]}"
        note = (
            f"{data.rows():,} rows in {request.seeds} random orders; of {request.settings} settings of each rule the "
            f"one whose mean is best. {large} at the end, in per cent; C-Tree minus the baseline "
            "in points, paired by order, and the lower end of its one-sided 95 % interval."
        )
        header = ["", score, "deviation", "leaves", "C-Tree minus it", "lower bound"]
        show(f"{data.title}, each rule tuned", header, rows, note)
        title = f"{data.title}: {'accuracy' if data.score == 'accuracy' else 'F'} so far"
        panels.append(Panel(title, lines(found), x="leaves", log_x=True))
    request.draw("figure-3", [panels[place : place + 2] for place in range(0, len(panels), 2)], STYLES)
