"""The chart of performance against number of leaves: a line for each method, its settings pooled, mean of trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pipelines.sweeping.chart import LINES, WIDE, numeric
from pipelines.sweeping.grid import TRIALS, Axis
from pipelines.sweeping.leaves import Floats, averaged, performance_at, sizes_between
from pipelines.sweeping.table import Row, worded
from raydt.presentation import charts as plot
from raydt.presentation.charts import Chart, Panel, Tick, curve, linear, look
from raydt.presentation.words import brief, counted, share

#: Numbers of leaves at which a line has a point, at most.
POINTS = 60


def leaves_chart(axes: Sequence[Axis], rows: Sequence[Row], curves: pa.Table, positive: bool) -> Chart | None:
    """The chart; None if no tree has ever grown.

    Parameters
    ----------
    axes, rows, curves
        As :func:`pipelines.sweeping.table.table_of` and :func:`pipelines.sweeping.table.curves_of` have them.
    positive : bool
        Whether a class is the positive one by the config: F1 is then drawn, too.
    """
    curves = curves.filter(pa.compute.is_valid(curves["leaves"]))
    setting, leaves = curves["setting"].to_numpy(), curves["leaves"].to_numpy()
    if not len(leaves) or leaves.max() < 2:
        return None
    places = sizes_between(max(1, int(leaves.min())), int(leaves.max()), POINTS)
    tellers = _tellers(axes)
    trials = _trials(axes, tellers, rows)
    scores = {"accuracy": "accuracy", "f1": "F1"} if positive else {"accuracy": "accuracy"}
    found: dict[str, dict[str, Floats]] = {}
    for name, numbers in trials.items():
        lines: dict[str, list[Floats]] = {score: [] for score in scores}
        for own in numbers:
            moments = np.concatenate([np.arange(*np.searchsorted(setting, (n, n + 1))) for n in own])
            for score, parts in lines.items():
                values = curves[score].to_numpy()[moments]
                parts.append(performance_at(leaves[moments], values, places))
        found[name] = {score: averaged(parts) for score, parts in lines.items()}
    first = next(iter(scores))
    known = {name: lines for name, lines in found.items() if np.isfinite(lines[first]).any()}
    if not known:
        return None
    best = sorted(known, key=lambda name: -float(np.nanmax(known[name][first])))
    drawn = [name for name in known if name in best[:LINES]]
    x = _across(places)
    panels = []
    for score, title in scores.items():
        y = linear([known[name][score] for name in drawn], within=(0.0, 1.0), form="share")
        marks = [
            curve((x, y), places, known[name][score], name, *look(index)[:1], share, dash=look(index)[1])
            for index, name in enumerate(drawn)
        ]
        panels.append(Panel(title, tuple(marks), y, 17.0))
    together = any(len(own) > 1 for numbers in trials.values() for own in numbers)
    most = max(map(len, trials.values()))
    ends = "; ".join(f"{name}: at most {share(np.nanmax(known[name][first]))}" for name in drawn)
    return Chart(
        "leaves",
        "Performance against number of leaves",
        "The score so far at each logged moment of the stream, by the number of leaves that the tree had then"
        + (", the settings of a line taken together" if together else "")
        + (f"; mean of {most:,} trials, where at least half had such a tree" if most > 1 else "")
        + "."
        + (f" {counted(len(known) - len(drawn), 'more line')} not drawn." if len(known) > len(drawn) else ""),
        f"Score so far against number of leaves, from {places[0]:,} to {places[-1]:,}. {ends}.",
        tuple(panels),
        x.ticks,
        "leaves",
        x.at(places).tolist(),
        [f"{place:,} leaves" if place > 1 else "1 leaf" for place in places],
    )


def _tellers(axes: Sequence[Axis]) -> list[str]:
    """The keys that tell lines apart: those with names as values, or all, if there is none (but those of trials).

    Null is no name: beside numbers it is what leaves the key out.
    """
    own = [axis for axis in axes if axis.key not in TRIALS]
    named = [axis.key for axis in own if not numeric([value for value in axis.values if value is not None])]
    return named or [axis.key for axis in own]


def _trials(axes: Sequence[Axis], tellers: Sequence[str], rows: Sequence[Row]) -> dict[str, list[list[int]]]:
    """By name of a line, the numbers of the settings of each of its trials."""
    draws = [axis.key for axis in axes if axis.key in TRIALS]
    found: dict[str, dict[tuple[str, ...], list[int]]] = {}
    for row in sorted(rows, key=lambda row: row["setting"]):
        if not row.get("error"):
            name = ", ".join(f"{key} {worded(row, key)}" for key in tellers if key in row) or "learner"
            trial = tuple(worded(row, key) for key in draws)
            found.setdefault(name, {}).setdefault(trial, []).append(row["setting"])
    return {name: [*trials.values()] for name, trials in found.items()}


def _across(places: np.ndarray) -> plot.Axis:
    """The axis of leaves, with logarithms if it is long."""
    least, most = int(places[0]), int(places[-1])
    if most / least < WIDE:
        return linear([least, most], whole=True)
    low, high = math.log10(least), math.log10(most)
    ticks = (Tick((math.log10(n) - low) / (high - low), brief(n)) for n in _round_numbers(most) if n >= least)
    return plot.Axis(low, high, tuple(ticks), log=True)


def _round_numbers(most: int) -> Iterator[int]:
    power = 1
    while power <= most:
        yield from (n for n in (power, 2 * power, 5 * power) if n <= most)
        power *= 10
