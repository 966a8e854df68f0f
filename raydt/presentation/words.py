"""Numbers as people read them. Absent values are a dash; nothing is rounded to a false zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from numbers import Real
from typing import Any

ABSENT = "\N{EN DASH}"

Form = Callable[[Any], str]

#: Letters of a feature's name among key figures and in tables of runs.
FEATURE_SHOWN = 24


def _known(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


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
