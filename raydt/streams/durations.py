"""Lengths of time as options: text with units for timestamps, whole numbers for integer times.

Invariant: equal lengths have one spelling, so that a config's hash does not depend on how it was written.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictInt

from raydt.encoding.times import LARGEST_TIME
from raydt.messages import message

#: Microseconds of each unit, in the order in which a length is spelled.
UNITS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}

_NAMES = {**UNITS, "min": UNITS["m"]}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|min|s|m|h|d)(?![a-z])", re.ASCII)


def microseconds(text: str) -> int:
    """Return the microseconds of a text such as ``90s``, ``1h30m`` or ``0.5 d``; ValueError if it is none."""
    total, place = Fraction(0), 0
    while (part := _PART.match(text, place)) is not None:
        total += Fraction(part[1]) * _NAMES[part[2]]
        place = part.end()
    if not place or text[place:].strip():
        raise ValueError(message("streams.time_or_number"))
    if total.denominator > 1:
        raise ValueError(message("streams.whole_microseconds"))
    if total > LARGEST_TIME:
        raise ValueError(message("streams.longest_time"))
    return int(total)


def spelled(length: int) -> str:
    """The one spelling of a number of microseconds: ``5400000000`` is ``1h30m``."""
    parts = []
    for unit, size in UNITS.items():
        count, length = divmod(length, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _one_spelling(value: Any) -> Any:
    if not isinstance(value, str):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(message("streams.time_or_number"))
        return value
    length = microseconds(value)
    return spelled(length) if length else 0  # nothing is nothing in every unit


#: An option: text in its one spelling, or a whole number.
Duration = Annotated[Annotated[StrictInt, Field(ge=0, le=LARGEST_TIME)] | str, BeforeValidator(_one_spelling)]


def _age(value: Any) -> Any:
    if not isinstance(value, str) or not microseconds(value):
        raise ValueError(message("streams.length_of_time"))
    return spelled(microseconds(value))


#: An option in hours of a clock: text in its one spelling, longer than nothing.
Age = Annotated[str, BeforeValidator(_age)]
