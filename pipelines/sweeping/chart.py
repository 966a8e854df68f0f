"""The plot of a sweep: accuracy and time per update over the first key, one line for each value of the others.

Invariant: coordinates are those of one SVG drawing; colours are *tones*, CSS variables of the page, and nothing needs
a script. Values that are not all numbers stand at equal distances; positive ones that span a wide range, as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pipelines.report.formatting import figure, share
from pipelines.sweeping.grid import Axis, written
from pipelines.sweeping.table import Row

#: Lines drawn, the best ones: eight tones, solid and dashed.
LINES, TONES = 16, 8

WIDTH, LEFT, RIGHT, TOP, HEIGHT, GAP = 820.0, 64.0, 20.0, 26.0, 240.0, 56.0

#: Greatest over least value from which an axis of positive numbers is logarithmic.
_WIDE = 50.0

_LABEL_WIDTH = 44.0  # of a number below the axis, and of the space beside it


@dataclass(frozen=True, slots=True)
class Tick:
    """A label on an axis, at a coordinate."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A measured value and what is said of it when it is pointed at."""

    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its tone, its dashes, its path, and its values as dots."""

    name: str
    tone: str
    dash: str
    path: str
    dots: tuple[Dot, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one vertical axis, between the heights ``top`` and ``bottom`` of the drawing."""

    title: str
    top: float
    bottom: float
    ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Panels over one horizontal axis, with the words beside them."""

    height: float
    panels: tuple[Panel, ...]
    ticks: tuple[Tick, ...]
    unit: str
    legend: tuple[Line, ...]
    remark: str
    label: str


def plot_of(axes: Sequence[Axis], rows: Sequence[Row]) -> Plot | None:
    """The plot of a sweep; None if no setting has an accuracy."""
    known = [row for row in rows if row.get("accuracy") is not None and row.get("us_per_update") is not None]
    if not known:
        return None
    first, others = axes[0], axes[1:]
    x = _positions(first)
    groups, left_out = _groups(first, others, known)
    rates = _Scale([row["accuracy"] for row in known] + [row[b] for row in known for b in _BASELINES], top=TOP)
    times = _Scale([0.0, *(row["us_per_update"] for row in known)], top=rates.bottom + GAP)
    accuracy: list[Line] = []
    speed: list[Line] = []
    for k, (name, members) in enumerate(groups):
        tone, dash = f"class-{k % TONES}", "" if k < TONES else "6 4"
        for scale, column, into in ((rates, "accuracy", accuracy), (times, "us_per_update", speed)):
            places = [None if row is None else (at, scale.at(row[column])) for at, row in zip(x, members, strict=True)]
            dots = [
                Dot(*place, _said(axes, row))
                for place, row in zip(places, members, strict=True)
                if place is not None and row is not None
            ]
            into.append(Line(name, tone, dash, _path(places), tuple(dots)))
    baselines = _baselines(groups, x, rates)
    bottom = times.bottom
    panels = (
        Panel("accuracy", rates.top, rates.bottom, rates.ticks(percent=True), (*baselines, *accuracy)),
        Panel("µs per update", times.top, bottom, times.ticks(percent=False), tuple(speed)),
    )
    top = max(known, key=lambda row: row["accuracy"])
    label = f"Accuracy and time per update over {first.key}; the best accuracy is {_said(axes, top)}."
    remark = f"{left_out:,} more lines, whose best accuracy is lower, are only in the table." if left_out else ""
    legend = (*accuracy, *baselines)
    return Plot(bottom + GAP, panels, _ticks(first, x), first.key, legend, remark, label)


_BASELINES = {"no_change": ("no-change", "nochange", "7 4"), "majority": ("majority", "majority", "2 4")}


def _groups(first: Axis, others: Sequence[Axis], rows: Sequence[Row]) -> tuple[list[tuple[str, list[Row | None]]], int]:
    """Rows by the values of the other keys, each group in the order of the first; and how many were left out."""
    by_values = {tuple(written(row[axis.key]) for axis in [first, *others]): row for row in rows}
    groups = []
    for values in product(*(map(written, axis.values) for axis in others)):
        members = [by_values.get((written(value), *values)) for value in first.values]
        if any(members):
            name = ", ".join(f"{axis.key} {value}" for axis, value in zip(others, values, strict=True))
            groups.append((name or "learner", members))
    peak = {name: max(row["accuracy"] for row in members if row is not None) for name, members in groups}
    drawn = set(sorted(peak, key=lambda name: -peak[name])[:LINES])
    return [group for group in groups if group[0] in drawn], len(groups) - len(drawn)


def _baselines(groups: Sequence[tuple[str, list[Row | None]]], x: Sequence[float], scale: _Scale) -> list[Line]:
    """One dashed line for each baseline and stream: settings with the same predictions share theirs."""
    lines: dict[tuple[str, str], Line] = {}
    for _, members in groups:
        for column, (title, tone, dash) in _BASELINES.items():
            levels = {row[column] for row in members if row is not None}
            if len(levels) == 1:  # from border to border
                y = scale.at(next(iter(levels)))
                path = _path([(LEFT, y), (WIDTH - RIGHT, y)])
            else:
                path = _path(
                    [None if row is None else (at, scale.at(row[column])) for at, row in zip(x, members, strict=True)]
                )
            lines.setdefault((title, path), Line(title, tone, dash, path))
    return list(lines.values())


def _said(axes: Sequence[Axis], row: Row) -> str:
    keys = ", ".join(f"{axis.key} {written(row[axis.key])}" for axis in axes)
    return f"{keys}: {share(row['accuracy'])}, {figure(row['us_per_update'])} µs per update"


def _path(places: Sequence[tuple[float, float] | None]) -> str:
    """Straight lines between neighbours, with gaps where a value is missing."""
    parts, pen = [], "M"
    for place in places:
        if place is not None:
            parts.append(f"{pen}{place[0]:.1f} {place[1]:.1f}")
        pen = "M" if place is None else "L"
    return "".join(parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _positions(axis: Axis) -> list[float]:
    """Where the values of an axis lie between the left and the right border."""
    values, n = axis.values, len(axis.values)
    if n == 1:
        return [(LEFT + WIDTH - RIGHT) / 2]
    numbers = [float(value) for value in values] if all(map(_is_number, values)) else [float(i) for i in range(n)]
    if _is_wide(axis):
        numbers = [math.log(number) for number in numbers]
    low, high = min(numbers), max(numbers)
    inset = 14.0
    span = WIDTH - RIGHT - LEFT - 2 * inset
    return [LEFT + inset + span * (number - low) / (high - low) for number in numbers]


def _is_wide(axis: Axis) -> bool:
    values = axis.values
    return all(_is_number(value) and value > 0 for value in values) and max(values) / min(values) >= _WIDE


def _ticks(axis: Axis, x: Sequence[float]) -> tuple[Tick, ...]:
    """Labels of the values themselves, as many as have room."""
    kept: list[Tick] = []
    for at, value in sorted(zip(x, axis.values, strict=True), key=lambda pair: pair[0]):
        label = written(value)
        label = label if len(label) <= 24 else label[:23] + "…"
        room = max(_LABEL_WIDTH, 8.0 * len(label))
        if not kept or at - kept[-1].at >= room:
            kept.append(Tick(at, label))
    return tuple(kept)


class _Scale:
    """A vertical axis that holds some values, with ticks 1, 2 or 5 times a power of ten apart."""

    def __init__(self, values: Sequence[float | None], top: float) -> None:
        known = [value for value in values if value is not None]
        low, high = min(known), max(known)
        if high <= low:
            low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
        rough = (high - low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        self._step = next(times * power for times in (1, 2, 5, 10) if rough <= times * power * (1 + 1e-9))
        self._first, self._last = math.floor(low / self._step + 1e-9), math.ceil(high / self._step - 1e-9)
        self.top, self.bottom = top, top + HEIGHT

    def at(self, value: float) -> float:
        """Height of a value in the drawing."""
        return self.bottom - HEIGHT * (value / self._step - self._first) / (self._last - self._first)

    def ticks(self, *, percent: bool) -> tuple[Tick, ...]:
        """Labelled heights."""
        digits = max(0, -math.floor(math.log10(self._step) + 1e-9) - 2 * percent)
        marks = [i * self._step for i in range(self._first, self._last + 1)]
        return tuple(
            Tick(self.at(mark), f"{100 * mark:.{digits}f}%" if percent else f"{mark:,.{digits}f}") for mark in marks
        )
