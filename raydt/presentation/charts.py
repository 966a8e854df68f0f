"""Charts as plain data: axes with their ticks, series as shares of them, and what each says in words.

Invariant: a chart holds no colour, only *tones* (names that a page gives a colour to), and no number that was not
measured. How it is drawn is up to whoever lays it out; words and numbers are text beside the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from raydt.arrays.elementary import AnyArray, Floats, Ints
from raydt.messages import message

# Turns the tables of a run into series short enough to draw.
#
# Invariant: merging rows of the metrics table gives what the run would have written with a larger ``metrics_every``:
# cumulative columns keep the last value, windowed ones are weighted by their predictions. Nothing is sampled away. A
# windowed score that is no mean over predictions is left out.

#: A table by columns of one length.
Columns: TypeAlias = dict[str, AnyArray]

#: How the names of windowed columns begin.
WINDOWED = "window_"

#: Windowed scores whose value over several windows is the mean of theirs, by predictions.
_MEANS = {f"{WINDOWED}{name}" for name in ("accuracy", "no_change", "majority", "mse", "mae", "mean")}


def merged(metrics: Columns, limit: int) -> Columns:
    """Return at most ``limit`` rows of the metrics table, each covering about equally many rows. O(n) per column."""
    n = len(metrics["seq"])
    if n <= limit:
        return metrics
    return _grouped(metrics, np.arange(1, limit + 1) * n // limit - 1)


def whole_windows(metrics: Columns) -> Columns:
    """Return the table with a last row of less than half an interval merged into the one before it."""
    n = len(metrics.get("seq", ()))
    if n < 3 or not any(_is_short(increments(metrics[name])) for name in ("seq", "predictions") if name in metrics):
        return metrics
    return _grouped(metrics, np.append(np.arange(n - 2), n - 1))


def _is_short(steps: Floats) -> bool:
    return bool(0 < 2 * steps[-1] < steps[-2])


def _grouped(metrics: Columns, last: AnyArray) -> Columns:
    """Return a row for each stretch of rows that ends with one of ``last``."""
    first, limit = np.concatenate([[0], last[:-1] + 1]), len(last)
    predictions = increments(metrics["predictions"])
    weight = np.add.reduceat(predictions, first)
    result: Columns = {}
    for name, column in metrics.items():
        if name in _MEANS:
            sums = np.add.reduceat(np.where(predictions > 0, np.nan_to_num(column) * predictions, 0.0), first)
            result[name] = np.divide(sums, weight, out=np.full(limit, np.nan), where=weight > 0)
        elif not name.startswith(WINDOWED):
            result[name] = column[last]
    return result


def increments(column: AnyArray) -> Floats:
    """Return the amount each row added to a cumulative column; the first row starts from 0."""
    added: Floats = np.diff(column.astype(np.float64), prepend=0.0)
    return added


def per_unit(numerator: AnyArray, denominator: AnyArray) -> Floats:
    """Return the increments of one cumulative column divided by those of another; NaN where the latter stands still."""
    up, down = increments(numerator), increments(denominator)
    rate: Floats = np.divide(up, down, out=np.full(len(up), np.nan), where=down > 0)
    return rate


def size_classes(rows: AnyArray) -> Ints:
    """Return floor(log2(rows)) of each size, and -1 for empty ones, exactly."""
    return np.frexp(rows.astype(np.float64))[1].astype(np.int64) - 1


# Numbers as people read them. Absent values are a dash; nothing is rounded to a false zero.

ABSENT = "\N{EN DASH}"

Form = Callable[[Any], str]

#: Letters of a feature's name among key figures and in tables of runs.
FEATURE_SHOWN = 24


def _known(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def count(value: Any) -> str:
    """Return an integer with thousands separators."""
    return f"{round(value):,}" if _known(value) else ABSENT


def counted(value: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    if value != 1:
        noun = f"{noun[:-1]}ves" if noun.endswith("f") else f"{noun}es" if noun.endswith("h") else f"{noun}s"
    return f"{count(value)} {noun}"


def share(value: Any, digits: int = 2) -> str:
    """Return a fraction as a percentage."""
    return f"{100 * value:.{digits}f}%" if _known(value) else ABSENT


def figure(value: Any) -> str:
    """Return three significant digits, without an exponent between 0.001 and 10 million."""
    if not _known(value):
        return ABSENT
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{round(value, 2 - math.floor(math.log10(abs(value)))):,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def brief(value: float, digits: int = 0) -> str:
    """Return a tick of an axis: thousands as k, millions as M, billions as G."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.6g}{unit}"
    return f"{value:,.{digits}f}"


def threshold(value: float) -> str:
    """Return the number a split compares with: four significant digits, more where whole numbers need them."""
    if 1e4 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def duration(seconds: Any) -> str:
    """Return seconds in the unit that suits them."""
    if not _known(seconds):
        return ABSENT
    if seconds < 1e-3:
        return f"{figure(1e6 * seconds)} µs" if seconds else "0 s"
    if seconds < 1:
        return f"{figure(1e3 * seconds)} ms"
    if seconds < 99.95:
        return f"{figure(seconds)} s"
    minutes = round(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {round(seconds) % 60} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(value: Any) -> str:
    """Return bytes in powers of ten."""
    if not _known(value):
        return ABSENT
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{figure(value / scale)} {unit}"
    return f"{value:.0f} B"


def moment(value: Any) -> str:
    """Return an ISO time stamp to the second, with its offset from UTC."""
    try:
        when = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return ABSENT if value is None else str(value)
    zone = "" if when.tzinfo is None else " UTC" if not when.utcoffset() else when.strftime(" %z")
    return when.strftime("%Y-%m-%d %H:%M:%S") + zone


def clipped(text: str, most: int) -> str:
    """Return a text of at most so many letters, the end of a longer one left out."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def names(values: list[str], shown: int = 8) -> str:
    """Return the first names of a list, and how many more there are."""
    if len(values) <= shown + 1:
        return ", ".join(values)
    return ", ".join(values[:shown]) + f" and {len(values) - shown:,} more"


def number(mapping: Any, key: str) -> float | None:
    """Return a finite number of a mapping that may be absent."""
    value = mapping.get(key) if isinstance(mapping, Mapping) else None
    return float(value) if value is not None and _known(value) else None


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
    """A range of numbers and its ticks."""

    low: float
    high: float
    ticks: tuple[Tick, ...]

    def at(self, values: Any) -> Floats:
        """Return the share of the axis where each value lies; NaN stays NaN."""
        result: Floats = (np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low)
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


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line through points on axes; NaN is a gap. ``step``: stairs."""

    x: Floats
    y: Floats
    step: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """Rectangles by their left, lower edges and sizes; empty ones are not drawn."""

    x: Floats
    y: Floats
    width: Floats
    height: Floats


Shape: TypeAlias = Line | Box


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
    #: Places on the page of shares of the axis: over event time, updates lie closer together here than there.
    across: Callable[[Any], AnyArray] = np.asarray

    @property
    def label(self) -> str:
        """Describe the chart for screen readers: its title, and what its legends say."""
        marks = [f"{mark.name} {mark.now}".strip() for panel in self.panels for mark in panel.marks]
        return f"Chart: {self.title}. {', '.join(marks)}. Horizontal axis: {self.unit}."


def look(index: int) -> tuple[str, str]:
    """Return tone and dashes of a series by its number."""
    return f"class-{index % _TONES}", _DASHES[index // _TONES % len(_DASHES)]


class Series(NamedTuple):
    """Numbers with a name and a look: gaps where they are NaN, stairs if ``step``."""

    values: Values
    name: str
    tone: str
    dash: str = ""
    step: bool = False


def curve(axes: tuple[Axis, Axis], x: Values, series: Series, form: Form) -> Mark:
    """Return a line through a series at ``x``; ``form`` writes its numbers."""
    values, name, tone, dash, step = series
    written = tuple(form(value) for value in np.asarray(values).tolist())
    return Mark(name, tone, Line(axes[0].at(x), axes[1].at(values), step), _last(written), written, dash)


def _last(written: Sequence[str]) -> str:
    return next((text for text in reversed(written) if text != ABSENT), ABSENT)


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

    def bars(self, kinds: Mapping[str, tuple[str, Values]], unit: str, weights: Values | None = None) -> Panel:
        """Return the events of each part, or the sums of their weights, by kind: ``kinds`` has tone and members."""
        ones = np.ones(len(self.of)) if weights is None else weights
        layers = [(name, tone, self.total(np.where(here, ones, 0.0))) for name, (tone, here) in kinds.items()]
        return stacked_bars([""] * self.n, layers, unit, height=9.0)

    def chart(self, key: str, title: str, caption: str, panels: Sequence[Panel], *, wide: bool = True) -> Chart:
        """Return a chart with a position at each part."""
        last = int(self.edges[-1])
        names = [f"updates {count(np.ceil(low))} to {count(np.ceil(high) - 1)}" for low, high in pairwise(self.edges)]
        ticks, at = updates_axis(last).ticks, centres(self.n)
        return Chart(key, title, caption, tuple(panels), ticks, "updates", at, names, last, wide)


# The event times of a stream as an axis: where each update lies in time, ticks at round dates, and moments in words.
#
# Invariant: a clock only moves what is drawn over updates along the horizontal axis; no value changes. Updates of one
# event time share the span up to the next time, evenly: where times are dates, a day of 500 rows is as wide as any
# other.

B = TypeVar("B")

_DAY = 86_400
#: Units of ticks: seconds, and multiples that are round.
_STEPS = {
    "s": (1, (1, 5, 15, 30)),
    "m": (60, (1, 5, 15, 30)),
    "h": (3600, (1, 3, 6, 12)),
    "D": (_DAY, (1, 2, 7, 14)),
    "M": (30.4 * _DAY, (1, 2, 3, 4, 6)),
    "Y": (365 * _DAY, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
}
#: Numbers of the first Monday and of the year 0, from which days and years are counted.
_FROM = {"D": 4, "Y": -1970}
_MOST_TICKS = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """Event times over the updates of one stream: ``times[i]`` is reached at ``updates[i]``, both ascending strictly.

    Times are seconds since 1970 if they are ``moments``, else numbers of the user's unit.
    """

    updates: Floats
    times: Floats
    moments: bool
    latest: float  #: The latest time of a row; ``times`` may end one span later.

    @classmethod
    def of(cls, seq: AnyArray, times: AnyArray, moments: bool, first: float | None) -> Clock | None:
        """Return the clock of a table whose row i ends at ``seq[i]`` and ``times[i]``; None if times are no clock."""
        known = np.asarray(times, dtype=np.float64)
        if not len(known) or not np.isfinite(known).all():
            return None
        updates = np.asarray(seq, dtype=np.float64)
        if first is not None:
            known, updates = np.append(min(first, known[0]), known), np.append(0.0, updates)
        new = np.append(True, np.diff(known) > 0)
        last, latest = updates[-1], float(known[-1] * _MICROSECOND if moments else known[-1])
        updates, known = updates[new], known[new]
        if len(known) < 2:
            return None
        if updates[-1] < last:  # rows at the latest time share a span, too: that of the time before
            updates, known = np.append(updates, last), np.append(known, 2 * known[-1] - known[-2])
        known = known * _MICROSECOND if moments else known
        clock = cls(updates, known, moments, latest)
        return clock if not moments or (_date(known[0]) and _date(known[-1])) else None

    def at(self, updates: Any) -> Floats:
        """Return the times of updates, interpolated."""
        result: Floats = np.interp(np.asarray(updates, dtype=np.float64), self.updates, self.times)
        return result

    @property
    def ends(self) -> tuple[float, float]:
        """Return the first and the last time."""
        return float(self.times[0]), float(self.times[-1])

    def word(self, time: float) -> str:
        """Return a time in words."""
        return moment_of(time) if self.moments else figure(time)


def moment_of(seconds: float) -> str:
    """Return a moment to the minute, and a midnight as its date."""
    date = _date(seconds)
    if date is None:
        return figure(seconds)
    return date.strftime("%Y-%m-%d") if seconds % _DAY == 0 else date.strftime("%Y-%m-%d %H:%M")


def time_in_words(time: float, moments: bool) -> str:
    """Return a time of a table, a moment in microseconds."""
    if not np.isfinite(time):
        return ABSENT
    return moment_of(time * _MICROSECOND) if moments else figure(time)


def _date(seconds: float) -> datetime | None:
    try:
        return _EPOCH + timedelta(seconds=round(seconds))
    except OverflowError:
        return None


def time_axis(low: float, high: float, moments: bool) -> Axis:
    """Return the axis from one time to another, with ticks at round times."""
    if not moments:
        marks = linear([[low, high]])
        ticks: Iterator[tuple[float, str]] = (
            (marks.low + tick.at * (marks.high - marks.low), tick.label) for tick in marks.ticks
        )
    else:
        ticks = iter(_dates(low, high))
    span = high - low
    return Axis(low, high, tuple(Tick((at - low) / span, label) for at, label in ticks if low <= at <= high))


def _dates(low: float, high: float) -> Iterator[tuple[float, str]]:
    """Yield round moments between two, and their labels: a time of day, a day, a month, or a year where it begins."""
    steps = [(unit, each, seconds * each) for unit, (seconds, several) in _STEPS.items() for each in several]
    found = next((step for step in steps if (high - low) / step[2] <= _MOST_TICKS), steps[-1])
    unit: Any = found[0]
    each = found[1]
    first, last = (int(np.datetime64(int(end), "s").astype(f"M8[{unit}]").astype(np.int64)) for end in (low, high))
    for number in range(first, last + 1):
        if (number - _FROM.get(unit, 0)) % each == 0:
            at = float(np.datetime64(number, unit).astype("M8[s]").astype(np.int64))
            date = _date(at) or _EPOCH
            yield at, _label(at) if unit not in "MY" else str(date.year) if date.month == 1 else date.strftime("%b")


def _label(seconds: float) -> str:
    date = _date(seconds) or _EPOCH
    if seconds % _DAY == 0:
        return f"{date.day} {date.strftime('%b')}"
    return date.strftime("%H:%M" if seconds % 60 == 0 else "%H:%M:%S")


def in_words(low: float, high: float, word: Any) -> str:
    """Return the name of an axis of time."""
    return str(message("reports.time_axis", first=word(low), last=word(high)))


def timed(block: B, clock: Clock | None) -> B:
    """Return a chart over updates as one over time; other blocks, and all without a clock, as they are."""
    if clock is None or not isinstance(block, Chart) or not block.span:
        return block
    low, high = clock.ends
    axis, span = time_axis(low, high, clock.moments), float(block.span)

    def across(shares: Any) -> Floats:
        return axis.at(clock.at(np.asarray(shares, dtype=np.float64) * span))

    times = clock.at(np.multiply(block.at, span)).tolist()
    names = [f"{name}, {clock.word(time)}" for name, time in zip(block.names, times, strict=True)]
    unit = in_words(low, clock.latest, clock.word)
    changed: Any = replace(block, ticks=axis.ticks, unit=unit, names=names, across=across)
    return changed  # type: ignore[no-any-return]
