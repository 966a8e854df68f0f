"""Large cumulative changes: 5 % -> 100 % -> 5 % in batches (Figure 3), chronological tenths (Table 7).

Beside the updated model at every size: ours retrained on the same rows, LightGBM on the same rows, and the first model
left as it is (doing nothing). Of the tenths each seed draws other test rows and other split candidates; and a second
LightGBM, of one bin less, shows how far two models of the same quality are apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from gbdt.command import DEFAULT, Request, draw
from gbdt.contestants import BINS, add, delete, fitted, lightgbm, mean_and_error, options_of, quality
from gbdt.data import SERIES, SPLIT_SEED, Split, load
from kit import progress, show
from paper.chart import Panel, Style

MODELS = ("updated", "retrained", "LightGBM", "first model")
STYLES = dict(
    zip(MODELS, (Style("#ee6677"), Style("#4477aa"), Style("#228833", "--"), Style("#777777", ":")), strict=True)
)
#: LightGBM with one bin less.
CONTROL = "LightGBM, 254 bins"
#: Of 5 %.
BATCHES = 20
#: Table 7 of the paper: mean squared error in thousandths (GlobalTemperatures) at 10 %, 50 %, 100 %, 50 %, 10 %.
PAPER = "GlobalTemperatures 4.19, 1.96, 1.79, 2.08, 3.61; WebTraffic 4.10, 2.91, 2.90, 3.12, 4.43"


def steps(parts: list[Any], grow_first: bool) -> Iterator[tuple[str, Any, Any]]:
    """Operation, its rows, and all rows after it; the last part added is the first removed."""
    for up in (grow_first, not grow_first):
        for i in range(1, len(parts)) if up else range(len(parts) - 1, 0, -1):
            live = np.sort(np.concatenate(parts[: i + 1] if up else parts[:i]))
            yield ("add" if up else "delete"), parts[i], live


def walk(
    split: Split,
    parts: list[Any],
    grow_first: bool,
    compared: Collection[int] | None = None,
    control: bool = False,
    **options: Any,
) -> list[tuple[float, dict[str, float]]]:
    """Share of the rows and quality of every model, at the start and after each step.

    Parameters
    ----------
    compared : collection of int, optional
        Steps at which models are retrained for comparison; all by default.
    control : bool
        Whether to train ``CONTROL`` too.
    """
    retrained: dict[int, dict[str, float]] = {}  # by how many rows are live: these are the same ones on the way back
    start = np.sort(parts[0] if grow_first else np.concatenate(parts))
    model = fitted(split, start, **options)
    first = quality(model, split)
    found = [(len(start) / len(split), {"updated": first, "first model": first})]
    for number, (operation, rows, live) in enumerate(steps(parts, grow_first), 1):
        if operation == "add":
            add(model, split, rows)
        else:
            delete(model, rows)
        scores = {"updated": quality(model, split), "first model": first}
        if compared is None or number in compared:
            if len(live) not in retrained:
                models = {"retrained": fitted(split, live, **options), "LightGBM": lightgbm(split, live)}
                if control:
                    models[CONTROL] = lightgbm(split, live, max_bin=BINS - 1)
                retrained[len(live)] = {name: quality(one, split) for name, one in models.items()}
            scores |= retrained[len(live)]
        found.append((len(live) / len(split), scores))
    return found


def run(request: Request) -> None:
    """Print the tables, draw Figure 3."""
    (_batches if request.name == "batches" else _tenths)(request)


def _batches(request: Request) -> None:
    rows, grid = [], []
    turn, end = BATCHES - 1, 2 * (BATCHES - 1)
    for name in request.sets("pendigits"):
        split = load(name)
        panels = []
        for grow_first in (True, False):
            title = "5 % -> 100 % -> 5 %" if grow_first else "100 % -> 5 % -> 100 %"
            for mode in request.modes("bounded", "retrained", "never"):
                walks = []
                for seed in range(request.seeds):
                    parts = np.array_split(np.random.default_rng(seed).permutation(len(split)), BATCHES)
                    every = request.plot and not seed
                    walks.append(walk(split, parts, grow_first, None if every else (turn, end), **options_of(mode)))
                for step in (turn, end):
                    scores = [[w[step][1][model] for w in walks] for model in MODELS]
                    gap = [w[step][1]["updated"] - w[step][1]["retrained"] for w in walks]
                    cells = [mean_and_error(values, 100.0) for values in (*scores, gap)]
                    rows.append([split.title, title, mode, f"{100 * walks[0][step][0]:.0f} %", *cells])
                    progress(*rows[-1])
                if request.plot and mode == "bounded":
                    panels.append(_panel(f"{split.title}, {title}: accuracy", walks[0]))
        grid.append(panels)
    header = ["data", "path", "derivatives", "at", *MODELS, "updated - retrained"]
    note = f"Accuracy in per cent, {request.seeds} orders of the rows; retrain: never, only updates."
    show("Batch addition and removal", header, rows, note)
    draw(request, "figure-3", grid, STYLES)


def _panel(title: str, found: list[tuple[float, dict[str, float]]]) -> Panel:
    lines = {m: [(float(i), s[m]) for i, (_, s) in enumerate(found) if m in s] for m in MODELS}
    return Panel(title, lines, x="step")


def _tenths(request: Request) -> None:
    gaps = {"updated - LightGBM": "updated", "retrained - LightGBM": "retrained", f"{CONTROL} - LightGBM": CONTROL}
    for name in request.sets(*SERIES):
        splits = [SERIES[name](SPLIT_SEED + seed) for seed in range(request.seeds)]
        scale = 1e3 if splits[0].regression else 100.0
        for mode in request.modes(DEFAULT):
            walks = []
            for seed, split in enumerate(splits):
                parts = np.array_split(np.arange(len(split)), 10)
                walks.append(walk(split, parts, True, None, True, random_state=seed, **options_of(mode)))
                progress(split.title, mode, f"seed {seed}")
            apart = {
                title: scale * np.array([[s[model] - s["LightGBM"] for _, s in found[1:]] for found in walks])
                for title, model in gaps.items()
            }
            rows = []
            for step, (share, scores) in enumerate(walks[0]):
                what = "train" if not step else "add" if step < 10 else "delete"
                cells = [
                    f"{scale * np.mean([found[step][1][model] for found in walks]):.2f}" if model in scores else ""
                    for model in MODELS
                ]
                cells += [mean_and_error(values[:, step - 1]) if step else "" for values in apart.values()]
                rows.append([f"{what} 10 %", f"{100 * share:.0f} %", *cells])
            summary = "; ".join(f"{title}: {_spread(values)}" for title, values in apart.items())
            unit = "Mean squared error in thousandths" if splits[0].regression else "Accuracy in per cent"
            bins = "latest training" if mode == DEFAULT else "first tenth"
            note = f"{unit}, mean of {request.seeds} seeds with its standard error; the bins are those of the {bins}. "
            note += f"{summary}."
            note += f" Paper, at 10, 50, 100, 50, 10 %: {PAPER}." if splits[0].regression else ""
            show(f"Chronological tenths, {splits[0].title}, {mode}", ["step", "rows", *MODELS, *gaps], rows, note)


def _spread(gaps: npt.NDArray[np.float64]) -> str:
    """Mean of gaps by seed and step, and how far they reach."""
    steps = gaps.mean(axis=0)
    text = f"{mean_and_error(gaps.mean(axis=1))}, steps from {steps.min():+.2f} to {steps.max():+.2f}"
    return f"{text}, those of single seeds from {gaps.min():+.2f} to {gaps.max():+.2f}"
