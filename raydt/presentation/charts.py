"""Charts as plain data: axes with their ticks, series as shares of them, and what each says in words.

Invariant: a chart holds no colour, only *tones* (names that a page gives a colour to), and no number that was not
measured. How it is drawn is up to whoever lays it out; words and numbers are text beside the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from raydt.arrays.types import AnyArray, Floats, Ints
from raydt.presentation.series import Columns
from raydt.presentation.words import ABSENT, Form, brief, count, figure, share

Values = AnyArray

#: Points of a curve over the stream, and of one whose points are windows: rows of the metrics are merged for that.
POINTS, WINDOWS = 400, 200

#: Parts of a stream over which events are summed.
STRETCHES = 120

#: Series that are told apart by colour; beyond them, by dashes.
_TONES = 8
_DASHES = ("", "7 4", "2 3", "9 3 2 3")


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a share of an axis, 0 its beginning and 1 its end."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of numbers, drawn linearly or as logarithms, and its ticks."""

    low: float
    high: float
    ticks: tuple[Tick, ...]
    log: bool = False

    def at(self, values: Any) -> Floats:
        """Return the share of the axis where each value lies; NaN stays NaN."""
        numbers = np.asarray(values, dtype=np.float64)
        place = np.log10(np.maximum(numbers, 1.0)) if self.log else numbers
        result: Floats = (place - self.low) / (self.high - self.low)
        return result


def linear(
    values: Iterable[Any],
    *,
    zero: bool = False,
    within: tuple[float, float] | None = None,
    whole: bool = False,
    form: Literal["share", "number"] = "number",
) -> Axis:
    """Return an axis that holds all ``values`` but NaN, with ticks 1, 2 or 5 times a power of ten apart."""
    arrays = [np.asarray(value, dtype=np.float64).ravel() for value in values]
    known = np.concatenate([array[np.isfinite(array)] for array in arrays] or [np.empty(0)])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    low = min(low, 0.0) if zero else low
    if high <= low:
        high, low = (high + 0.5, low - 0.5) if not zero else (low + 1.0, low)
    step = _step(high - low, whole)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    if within is not None:
        low, high = max(low, within[0]), min(high, within[1])
    digits = max(0, -math.floor(math.log10(step) + 1e-9) - (2 if form == "share" else 0))
    marks = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step
    written = [share(mark, digits) if form == "share" else brief(mark, digits) for mark in marks]
    return Axis(
        low, high, tuple(Tick(float((m - low) / (high - low)), text) for m, text in zip(marks, written, strict=True))
    )


def _step(span: float, whole: bool, about: int = 5) -> float:
    power: float = 10.0 ** math.floor(math.log10(span / about))
    step = next(times * power for times in (1, 2, 5, 10) if span / about <= times * power * (1 + 1e-9))
    return max(step, 1.0) if whole else step


def updates_axis(last: int) -> Axis:
    """Return the axis of a stream of ``last`` updates."""
    span = max(int(last), 1)
    step = int(_step(span, whole=True, about=8))
    marks = range(0, span + 1, step)
    return Axis(0.0, float(span), tuple(Tick(mark / span, brief(mark)) for mark in marks))


def powers(most: float, least: float = 1.0) -> Axis:
    """Return a logarithmic axis from the last power of ten up to ``least`` to the first from ``most`` on."""
    low = math.floor(math.log10(max(least, 1)) + 1e-9)
    high = max(low + 1, math.ceil(math.log10(max(most, 1)) - 1e-9))
    ticks = tuple(Tick((power - low) / (high - low), brief(10**power)) for power in range(low, high + 1))
    return Axis(float(low), float(high), ticks, log=True)


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line through points on axes; NaN is a gap. ``step``: stairs; ``dotted``: a dot on each point."""

    x: Floats
    y: Floats
    step: bool = False
    dotted: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Area:
    """The area between two lines."""

    x: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """Rectangles by their left, lower edges and sizes; empty ones are not drawn."""

    x: Floats
    y: Floats
    width: Floats
    height: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Dots:
    """Dots; those that fall on one another are drawn once."""

    x: Floats
    y: Floats


Shape: TypeAlias = Line | Area | Box | Dots


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """One series: its shape, if it has one, ``values`` in words by position, and ``now`` until one is chosen."""

    name: str
    tone: str
    shape: Shape | None
    now: str = ""
    values: tuple[str, ...] = ()
    dash: str = ""

    def read_at(self, x: Values, places: Values) -> Mark:
        """Return the mark with its values at other, ascending places: each the first at or after it, if any."""
        found = np.searchsorted(x, places - 0.5)
        return replace(self, values=tuple(self.values[i] if i < len(self.values) else ABSENT for i in found.tolist()))


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Series over one vertical axis; ``height`` is in lines of text, ``shade`` marks stretches across all of it."""

    unit: str
    marks: tuple[Mark, ...]
    axis: Axis
    height: float = 12.0
    shade: Box | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """Panels one above the other over one horizontal axis, with their words."""

    key: str  #: tells the charts of one run apart
    title: str
    caption: str
    panels: tuple[Panel, ...]
    ticks: tuple[Tick, ...]  #: of the horizontal axis
    unit: str  #: of the horizontal axis
    at: Sequence[float] = ()  #: positions to point at, as shares of the axis
    names: Sequence[str] = ()  #: name of each position
    span: int = 0  #: updates of the axis, 0 if it counts something else; all charts over the stream are read together
    wide: bool = False  #: needs a whole row of the page
    uprights: tuple[float, ...] = ()  #: shares of the axis with a dashed line across all panels

    @property
    def label(self) -> str:
        """Describe the chart for screen readers: its title, and what its legends say."""
        marks = [f"{mark.name} {mark.now}".strip() for panel in self.panels for mark in panel.marks]
        return f"Chart: {self.title}. {', '.join(marks)}. Horizontal axis: {self.unit}."


def look(index: int) -> tuple[str, str]:
    """Return tone and dashes of a series by its number."""
    return f"class-{index % _TONES}", _DASHES[index // _TONES % len(_DASHES)]


class Series(NamedTuple):
    """Numbers with a name and a look: gaps where they are NaN, stairs if ``step``, a dot on each if ``dotted``."""

    values: Values
    name: str
    tone: str
    dash: str = ""
    step: bool = False
    dotted: bool = False


def curve(axes: tuple[Axis, Axis], x: Values, series: Series, form: Form) -> Mark:
    """Return a line through a series at ``x``; ``form`` writes its numbers."""
    values, name, tone, dash, step, dotted = series
    written = tuple(form(value) for value in np.asarray(values).tolist())
    return Mark(name, tone, Line(axes[0].at(x), axes[1].at(values), step, dotted), _last(written), written, dash)


def points(axes: tuple[Axis, Axis], x: Values, series: Series, form: Form) -> Mark:
    """Return a dot at each number of a series at ``x``."""
    return replace(curve(axes, x, series, form), shape=Dots(axes[0].at(x), axes[1].at(series.values)))


def _last(written: Sequence[str]) -> str:
    return next((text for text in reversed(written) if text != ABSENT), ABSENT)


def band(axes: tuple[Axis, Axis], x: Values, low: Values, high: Values, name: str, tone: str, form: Form) -> Mark:
    """Return the area between two lines; its values are their distances."""
    written = tuple(form(value) for value in (np.asarray(high) - np.asarray(low)).tolist())
    return Mark(name, tone, Area(axes[0].at(x), axes[1].at(low), axes[1].at(high)), _last(written), written)


def boxes(x: Any, y: Any, width: Any, height: Any) -> Box:
    """Return rectangles by left and lower edges and sizes: numbers or arrays, as shares of the plot."""
    columns = np.broadcast_arrays(*(np.asarray(column, dtype=np.float64) for column in (x, y, width, height)))
    return Box(*(np.atleast_1d(column) for column in columns))


def stacked_bars(
    names: Sequence[str], parts: Sequence[tuple[str, str, Values]], unit: str, form: Form = count, height: float = 13.0
) -> Panel:
    """Return bars of one height per name, one part above the other: (name, tone, heights) each."""
    total = np.sum([heights for _, _, heights in parts], axis=0)
    axis = linear([total], zero=True, whole=form is count)
    floor = np.zeros(len(names))
    marks = []
    for name, tone, heights in parts:
        rise = axis.at(heights)
        box = boxes((np.arange(len(names)) + 0.08) / len(names), floor, 0.84 / len(names), rise)
        floor = floor + rise
        marks.append(Mark(name, tone, box, form(np.sum(heights)), tuple(form(h) for h in heights.tolist())))
    return Panel(unit, tuple(marks), axis, height)


def bar_chart(key: str, title: str, caption: str, bars: Mapping[str, str], panel: Panel, unit: str) -> Chart:
    """Return a chart of bars; ``bars`` has the name below each bar, if there is room, and its full name."""
    most = 12 if any(len(name) > 2 for name in bars) else 20
    every = -(-len(bars) // most) if bars else 1
    ticks = tuple(Tick((i + 0.5) / len(bars), name) for i, name in enumerate(bars) if i % every == 0)
    return Chart(key, title, caption, (panel,), ticks, unit, centres(len(bars)), [*bars.values()])


def centres(n: int) -> list[float]:
    """Return the positions of n bars."""
    return [(i + 0.5) / n for i in range(n)]


# ---------------------------------------------------------------- over the stream


def has_curve(metrics: Columns, column: str) -> bool:
    """Return True if a column has at least two values to draw a curve through."""
    return int(np.isfinite(metrics.get(column, np.empty(0))).sum()) > 1


def over_stream(
    key: str,
    title: str,
    caption: str,
    table: Columns,
    panels: tuple[Panel, ...],
    metrics: Columns | None = None,
    *,
    wide: bool = True,
) -> Chart:
    """Return a chart over updates at the rows of ``table``; ``metrics``, which it was merged from, for the caption."""
    axis = updates_axis(last_of(table))
    names = [f"update {count(seq)}" for seq in table["seq"].tolist()]
    at = axis.at(table["seq"]).tolist()
    caption = f"{caption} {detail(metrics, table)}".strip() if metrics is not None else caption
    return Chart(key, title, caption, panels, axis.ticks, "updates", at, names, last_of(table), wide)


def line_panel(
    table: Columns,
    lines: Sequence[Series],
    unit: str,
    height: float,
    form: Form = figure,
    axis: Axis | None = None,
    shade: Box | None = None,
) -> Panel:
    """Return a panel of series over the updates; by default its axis begins at 0."""
    y = axis or linear([series.values for series in lines], zero=True, whole=form is count)
    axes = updates_axis(last_of(table)), y
    return Panel(unit, tuple(curve(axes, table["seq"], series, form) for series in lines), y, height, shade)


def last_of(table: Columns) -> int:
    """Return the number of updates at the last row."""
    return int(table["seq"][-1])


def detail(metrics: Columns, drawn: Columns) -> str:
    """Return how many updates one point stands for, and whether rows of the metrics table were merged for it."""
    rows, points = len(metrics["seq"]), len(drawn["seq"])
    step = round(float(f"{last_of(metrics) / points:.2g}"))
    each = "one point per update" if step <= 1 else f"one point per about {count(step)} updates"
    if points < rows:
        return f"Drawn from {count(rows)} rows merged into {count(points)}: {each}."
    return f"{each[0].upper()}{each[1:]}."


@dataclass(frozen=True, slots=True)
class Stretches:
    """At most ``STRETCHES`` equal parts of a stream, and the part of each event.

    With 100 updates in 4 parts the edges are 0, 25, 50, 75, 100, and the event of update 30 is in part 1.
    """

    edges: Floats
    of: Ints  #: part of each event

    @classmethod
    def by(cls, events: Columns, updates: int) -> Stretches:
        """Divide a stream of ``updates``, or more if an event came later."""
        last = max(updates, int(events["seq"].max()) + 1, 1)
        n = min(STRETCHES, last)
        return cls(np.linspace(0.0, last, n + 1), events["seq"].astype(np.int64) * n // last)

    @property
    def n(self) -> int:
        """Return the number of parts."""
        return len(self.edges) - 1

    def total(self, weights: Values | None = None) -> Floats:
        """Return the sum over the events of each part; their number without weights."""
        sums: Floats = np.bincount(self.of, weights, minlength=self.n).astype(np.float64)
        return sums

    def chart(self, key: str, title: str, caption: str, panels: Sequence[Panel], *, wide: bool = True) -> Chart:
        """Return a chart with a position at each part."""
        last = int(self.edges[-1])
        names = [f"updates {count(np.ceil(low))} to {count(np.ceil(high) - 1)}" for low, high in pairwise(self.edges)]
        ticks, at = updates_axis(last).ticks, centres(self.n)
        return Chart(key, title, caption, tuple(panels), ticks, "updates", at, names, last, wide)
