"""Charts as the page draws them: SVG paths on a square of 1000 units that stretches to any width.

Invariant: a chart holds no colour, only *tones* (the CSS variables of ``page.css``), and no number that was not
measured; it is drawn without a script, in light and dark, and on paper. Words and numbers stand beside the drawing as
text, so that they never stretch with it. Not here: what is drawn (``charts``, ``rebuilds``, ``margins``, ``compare``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipelines.printing import escaped
from pipelines.words import ABSENT, Form, brief, count, share

Values = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

UNIT = 1000.0

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
        """Share of the axis where each value lies; NaN stays NaN."""
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
    """An axis that holds all ``values``, with ticks 1, 2 or 5 times a power of ten apart.

    Parameters
    ----------
    values : iterable of number or ndarray
        NaN is passed over.
    zero : bool
        Begin at 0.
    within : pair of float, optional
        Neither end of the axis goes beyond.
    whole : bool
        Ticks are whole numbers.
    form : {"share", "number"}
        How ticks are written.
    """
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
    """The axis of a stream of ``last`` updates."""
    span = max(int(last), 1)
    step = int(_step(span, whole=True, about=8))
    marks = range(0, span + 1, step)
    return Axis(0.0, float(span), tuple(Tick(mark / span, brief(mark)) for mark in marks))


def powers(most: float, least: float = 1.0) -> Axis:
    """A logarithmic axis from the last power of ten that is not above ``least`` to the first not below ``most``."""
    low = math.floor(math.log10(max(least, 1)) + 1e-9)
    high = max(low + 1, math.ceil(math.log10(max(most, 1)) - 1e-9))
    ticks = tuple(Tick((power - low) / (high - low), brief(10**power)) for power in range(low, high + 1))
    return Axis(float(low), float(high), ticks, log=True)


@dataclass(frozen=True, slots=True)
class Mark:
    """One series: its path in units, and what the legend says of it.

    ``values`` are its numbers in words, one per position of the chart's ``at``; the legend shows ``now`` until a
    reader points at a position. ``points`` are the dots on a line.
    """

    name: str
    tone: str
    kind: Literal["line", "area", "box", "dots"]
    path: str
    now: str = ""
    values: tuple[str, ...] = ()
    dash: str = ""
    points: str = ""

    def read_at(self, x: Values, places: Values) -> Mark:
        """The same mark with its values at other, ascending places: each the first at or after it, if any."""
        found = np.searchsorted(x, places - 0.5)
        return replace(self, values=tuple(self.values[i] if i < len(self.values) else ABSENT for i in found.tolist()))


@dataclass(frozen=True, slots=True)
class Panel:
    """Series over one vertical axis."""

    unit: str
    marks: tuple[Mark, ...]
    axis: Axis
    height: float = 12.0
    shade: str = ""

    @property
    def grid(self) -> str:
        """The lines at the ticks."""
        return "".join(f"M0 {_place(1 - tick.at)}H1000" for tick in self.axis.ticks)


@dataclass(frozen=True, slots=True)
class Chart:
    """Panels one above the other over one horizontal axis, with their words.

    Attributes
    ----------
    key : str
        Distinguishes the charts of one run.
    title, caption : str
        What is shown, and how it was drawn.
    label : str
        The same for those who do not see the figure, with its main values.
    panels : tuple of Panel
    ticks : tuple of Tick
        Of the horizontal axis.
    unit : str
        What it counts.
    at : sequence of float
        Positions that can be pointed at, as shares of the axis; ``names`` is what each is called.
    over_stream : bool
        The horizontal axis counts updates: pointing at one such chart points at all of them.
    uprights : str
        Path of dashed lines across all panels, at moments the caption names.
    """

    key: str
    title: str
    caption: str
    label: str
    panels: tuple[Panel, ...]
    ticks: tuple[Tick, ...]
    unit: str
    at: Sequence[float] = ()
    names: Sequence[str] = ()
    over_stream: bool = True
    wide: bool = False
    uprights: str = ""

    @property
    def readout(self) -> str:
        """What the page's script needs to answer a pointer, as JSON; empty if there is nothing to point at."""
        values = [mark.values for panel in self.panels for mark in panel.marks]
        if not any(values):
            return ""
        at = [round(float(place), 4) for place in self.at]
        names = [escaped(name) for name in self.names]
        return json.dumps({"at": at, "names": names, "values": values}, separators=(",", ":"))


def look(index: int) -> tuple[str, str]:
    """Tone and dashes of a series by its number."""
    return f"class-{index % _TONES}", _DASHES[index // _TONES % len(_DASHES)]


def curve(
    axes: tuple[Axis, Axis],
    x: Values,
    y: Values,
    name: str,
    tone: str,
    form: Form,
    *,
    dash: str = "",
    step: bool = False,
    dotted: bool = False,
) -> Mark:
    """A line through the points (x, y), with gaps where y is NaN; stairs if ``step``, a dot on each if ``dotted``.

    A point without neighbours is always a dot.
    """
    px, py = axes[0].at(x), 1.0 - axes[1].at(y)
    known = np.isfinite(py)
    parts: list[str] = []
    points: list[str] = []
    for i in np.flatnonzero(known).tolist():
        across, down = _place(px[i]), _place(py[i])
        begins = i == 0 or not known[i - 1]
        if dotted or (begins and not known[i + 1 : i + 2].any()):
            points.append(f"M{across} {down}h0")
        parts.append(f"M{across} {down}" if begins else f"H{across}V{down}" if step else f"L{across} {down}")
    written = tuple(form(value) for value in np.asarray(y).tolist())
    last = next((text for text in reversed(written) if text != ABSENT), ABSENT)
    return Mark(name, tone, "line", "".join(parts), last, written, dash, "".join(points))


def band(axes: tuple[Axis, Axis], x: Values, low: Values, high: Values, name: str, tone: str, form: Form) -> Mark:
    """The area between two lines; its values are their distances."""
    px = axes[0].at(x)
    top, bottom = 1.0 - axes[1].at(high), 1.0 - axes[1].at(low)
    there = [f"{_place(a)} {_place(b)}" for a, b in zip(px, top, strict=True)]
    back = [f"{_place(a)} {_place(b)}" for a, b in zip(px[::-1], bottom[::-1], strict=True)]
    written = tuple(form(value) for value in (np.asarray(high) - np.asarray(low)).tolist())
    return Mark(name, tone, "area", "M" + "L".join(there + back) + "Z" if there else "", written[-1], written)


def boxes(x: Any, y: Any, width: Any, height: Any) -> str:
    """Rectangles by their left, lower edges and sizes, all as shares of the plot; empty ones are left out."""
    columns = np.broadcast_arrays(*(np.asarray(column, dtype=np.float64) for column in (x, y, width, height)))
    rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
    return "".join(
        f"M{_place(a)} {_place(1 - b - h)}h{_place(w)}v{_place(h)}h{_place(-w)}z"
        for a, b, w, h in rows
        if w > 0 and h > 0
    )


def uprights(x: Floats) -> str:
    """Lines from top to bottom at shares of the plot; those that fall on one another are drawn once."""
    return "".join(f"M{place} 0V1000" for place in dict.fromkeys(_place(part) for part in x.tolist()))


def dots(x: Floats, y: Floats) -> str:
    """Dots at shares of the plot; those that fall on one another are drawn once."""
    places = {(round(250 * a), round(100 * b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)}
    return "".join(f"M{4 * a} {_place(1 - b / 100)}h0" for a, b in sorted(places))


def stacked_bars(
    names: Sequence[str], parts: Sequence[tuple[str, str, Values]], unit: str, form: Form = count, height: float = 13.0
) -> Panel:
    """Bars of one height per name, one part above the other: (name, tone, heights) each."""
    total = np.sum([heights for _, _, heights in parts], axis=0)
    axis = linear([total], zero=True, whole=form is count)
    floor = np.zeros(len(names))
    marks = []
    for name, tone, heights in parts:
        rise = axis.at(heights)
        path = boxes((np.arange(len(names)) + 0.08) / len(names), floor, 0.84 / len(names), rise)
        floor = floor + rise
        marks.append(Mark(name, tone, "box", path, form(np.sum(heights)), tuple(form(h) for h in heights.tolist())))
    return Panel(unit, tuple(marks), axis, height)


def named_ticks(names: Sequence[str], most: int = 12) -> tuple[Tick, ...]:
    """Labels below bars; some are left out where there are many."""
    every = -(-len(names) // most) if names else 1
    return tuple(Tick((i + 0.5) / len(names), name) for i, name in enumerate(names) if i % every == 0)


def centres(n: int) -> list[float]:
    """Positions of n bars."""
    return [(i + 0.5) / n for i in range(n)]


def _place(part: float) -> str:
    """A share as units of the drawing, to a tenth."""
    return f"{UNIT * part:.1f}".removesuffix(".0")
