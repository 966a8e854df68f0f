"""The chart of a sweep: accuracy and time per update over the first key with numbers, a line by the others.

Positive values that span a wide range stand as logarithms. Where no key has numbers, the values of the first key are
categories: they stand at equal distances, and nothing joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from pipelines.sweeping.grid import Axis, written
from pipelines.sweeping.table import Row
from raydt.presentation import charts as plot
from raydt.presentation.charts import Chart, Mark, Panel, Series, Tick, Values, curve, linear, look, points
from raydt.presentation.words import Form, counted, figure, share

#: Lines drawn, the best ones.
LINES = 16

#: Greatest over least value from which an axis of positive numbers is logarithmic.
WIDE = 50.0

#: Room that a label below the chart needs, at the least and for each letter, as a share of the width.
_ROOM, _LETTER = 0.06, 0.012
_LETTERS = 14

_BASELINES = (("no_change", "no-change", "nochange", "6 4"), ("majority", "majority", "majority", "2 4"))


def chart_of(axes: Sequence[Axis], rows: Sequence[Row]) -> Chart | None:
    """Return the chart of a sweep; None if no setting has an accuracy, or not all settings have the same keys."""
    known = [row for row in rows if row.get("accuracy") is not None and row.get("us_per_update") is not None]
    if not known or any(axis.key not in row for axis in axes for row in known):
        return None
    axes = sorted(axes, key=lambda axis: not numeric(axis.values))
    values, places, x = _across(axes[0])
    draw = curve if numeric(values) else points
    groups = _groups(axes, values, known)
    peaks = sorted((np.nanmax(columns["accuracy"]) for _, columns in groups), reverse=True)
    drawn = [group for group in groups if np.nanmax(group[1]["accuracy"]) >= peaks[:LINES][-1]][:LINES]
    rates = linear(
        [columns[name] for _, columns in drawn for name in ("accuracy", "no_change", "majority")],
        within=(0.0, 1.0),
        form="share",
    )
    times = linear([columns["us_per_update"] for _, columns in drawn], zero=True)
    accuracy: list[Mark] = []
    speed: list[Mark] = []
    baselines: dict[tuple[str, bytes], Mark] = {}  # settings with the same predictions share theirs
    looks: tuple[tuple[list[Mark], str, plot.Axis, Form, Callable[[Values], float]], ...] = (
        (accuracy, "accuracy", rates, share, np.nanmax),
        (speed, "us_per_update", times, figure, np.nanmin),
    )
    for index, (name, columns) in enumerate(drawn):
        tone, dash = look(index)
        for marks, key, axis, form, top in looks:
            mark = draw((x, axis), places, Series(columns[key], name, tone, dash, dotted=True), form)
            marks.append(replace(mark, now=form(top(columns[key]))))
        for column, title, tone, dash in _BASELINES:
            levels = columns[column]
            if np.isnan(levels).all():  # of rows held out there is no last label
                continue
            level = curve if (same := np.nanmin(levels) == np.nanmax(levels)) else draw
            if same:  # also beside a setting that failed
                levels = np.full(len(levels), np.nanmax(levels))
            mark = level((x, rates), places, Series(levels, title, tone, dash), share)
            baselines.setdefault((title, levels.tobytes()), mark)
    more = counted(len(groups) - len(drawn), "more line")
    held_out = all(row.get("no_change") is None for row in known)
    predicted = (
        "Rows held out are predicted by a model of the others."
        if held_out
        else ("Each inserted example is predicted by the model as it was just before its insertion.")
    )
    return Chart(
        "accuracy",
        "Accuracy and time per update",
        f"{predicted} Time is processor time of the setting alone, so that settings beside each other can be compared. "
        "The numbers are the best of a line."
        + (f" {more}, whose best accuracy is lower, in the table only." if len(groups) > len(drawn) else ""),
        (Panel("accuracy", (*accuracy, *baselines.values()), rates, 17.0), Panel("µs per update", tuple(speed), times)),
        x.ticks,
        axes[0].key,
        x.at(places).tolist(),
        [f"{axes[0].key} {written(value)}" for value in values],
    )


def numeric(values: Sequence[Any]) -> bool:
    """Return True if all are numbers."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _groups(axes: Sequence[Axis], values: Sequence[Any], rows: Sequence[Row]) -> list[tuple[str, dict[str, Values]]]:
    """Return name and columns of each line: a number for each of ``values``, NaN where a setting has none."""
    by_values = {tuple(written(row[axis.key]) for axis in axes): row for row in rows}
    groups = []
    for others in product(*(map(written, axis.values) for axis in axes[1:])):
        members = [by_values.get((written(value), *others), {}) for value in values]
        if any(members):
            name = ", ".join(f"{axis.key} {value}" for axis, value in zip(axes[1:], others, strict=True))
            columns = {
                column: np.array([row.get(column) for row in members], dtype=np.float64)
                for column in ("accuracy", "us_per_update", "no_change", "majority")
            }
            groups.append((name or "learner", columns))
    return groups


def _across(axis: Axis) -> tuple[Sequence[Any], Values, plot.Axis]:
    """Return the values of a key from left to right, their places, and an axis with the labels that have room."""
    values, n = axis.values, len(axis.values)
    scaled = numeric(values)
    values = tuple(sorted(values)) if scaled else values
    places = np.array(values if scaled else range(n), dtype=np.float64)
    if scaled and values[0] > 0 and values[-1] / values[0] >= WIDE:
        places = np.log(places)
    margin = 0.02 * (places[-1] - places[0]) if scaled and n > 1 else 0.5
    x = plot.Axis(float(places[0] - margin), float(places[-1] + margin), ())
    ticks: list[Tick] = []
    for at, label in zip(x.at(places).tolist(), map(written, values), strict=True):
        label = label if len(label) <= _LETTERS else label[: _LETTERS - 1] + "…"
        if not ticks or at - ticks[-1].at >= max(_ROOM, _LETTER * len(label)):
            ticks.append(Tick(at, label))
    return values, places, replace(x, ticks=tuple(ticks))
