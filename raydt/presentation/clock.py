"""The event times of a stream as an axis: where each update lies in time, ticks at round dates, and moments in words.

Invariant: a clock only moves what is drawn over updates along the horizontal axis; no value changes. Updates of one
event time share the span up to the next time, evenly: where times are dates, a day of 500 rows is as wide as any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

import numpy as np

from raydt.arrays.types import AnyArray, Floats
from raydt.messages import message
from raydt.presentation.charts import Area, Axis, Box, Chart, Dots, Line, Mark, Panel, Shape, Tick, linear
from raydt.presentation.words import ABSENT, figure

B = TypeVar("B")

_SECOND, _HOUR, _DAY = 1.0, 3600.0, 86_400.0
#: Seconds between ticks, up to which the ticks are a month or more apart.
_STEPS = (*(k * _SECOND for k in (1, 5, 15, 30, 60, 300, 900, 1800)), *(k * _HOUR for k in (1, 3, 6, 12)))
_DAYS = (1, 2, 7, 14)
_MONTHS = (1, 2, 3, 4, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000)
_MOST_TICKS = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = 1e-6
#: Days from 1970-01-01 to the first Monday.
_MONDAY = 4


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
    span = high - low
    step = next((step for step in _STEPS if span / step <= _MOST_TICKS), None)
    days = next((days for days in _DAYS if span / _DAY / days <= _MOST_TICKS), None)
    if step is not None or days is not None:
        width, offset = (step, 0.0) if step is not None else (_DAY * (days or 1), _DAY * _MONDAY)
        for number in range(int(np.ceil((low - offset) / width)), int(np.floor((high - offset) / width)) + 1):
            at = offset + number * width
            yield at, _label(at)
        return
    months = next((months for months in _MONTHS if span / _DAY / 30.4 / months <= _MOST_TICKS), _MONTHS[-1])
    first = datetime.fromtimestamp(0, timezone.utc) + timedelta(seconds=round(low))
    number = (first.year * 12 + first.month - 1) // months * months
    while number < 9999 * 12:
        date = datetime(max(1, number // 12), number % 12 + 1, 1, tzinfo=timezone.utc)
        at = (date - _EPOCH).total_seconds()
        if at > high:
            return
        yield at, str(date.year) if date.month == 1 else date.strftime("%b")
        number += months


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

    def moved(shares: Any) -> Floats:
        return axis.at(clock.at(np.asarray(shares, dtype=np.float64) * span))

    times = clock.at(np.multiply(block.at, span)).tolist()
    names = [f"{name}, {clock.word(time)}" for name, time in zip(block.names, times, strict=True)]
    changed: Any = replace(
        block,
        panels=tuple(_panel(panel, moved) for panel in block.panels),
        ticks=axis.ticks,
        unit=in_words(low, clock.latest, clock.word),
        at=moved(block.at).tolist(),
        names=names,
        uprights=tuple(moved(block.uprights).tolist()),
    )
    return changed  # type: ignore[no-any-return]


def _panel(panel: Panel, moved: Any) -> Panel:
    def mark(one: Mark) -> Mark:
        return replace(one, shape=None if one.shape is None else _shape(one.shape, moved))

    shade = None if panel.shade is None else _box(panel.shade, moved)
    return replace(panel, marks=tuple(map(mark, panel.marks)), shade=shade)


def _shape(shape: Shape, moved: Any) -> Shape:
    match shape:
        case Box():
            return _box(shape, moved)
        case Line() | Area() | Dots():
            return replace(shape, x=moved(shape.x))


def _box(box: Box, moved: Any) -> Box:
    left = moved(box.x)
    return replace(box, x=left, width=moved(box.x + box.width) - left)
