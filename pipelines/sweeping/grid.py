"""Differences between the settings of a sweep: ``--grid`` as axes, and their product.

Invariant: the values of a range are exact decimals: 0:2:0.1 holds 0.3, not 0.30000000000000004.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

from pipelines.printing import shortened
from pipelines.yaml12 import load_yaml
from raydt.errors import ConfigError
from raydt.messages import message

#: Sections whose keys may differ between settings.
SECTIONS = ("learner", "stream")

#: Keys of the source that may: they draw or order its rows again, and each value is one trial of a setting.
TRIALS = ("source.permutation", "source.seed")

#: The most settings of one sweep.
LIMIT = 10_000

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")

Grid = Sequence[str] | Mapping[str, str | Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Axis:
    """A dotted key and the values it takes, in order."""

    key: str
    values: tuple[Any, ...]


def read_grid(grid: Grid) -> list[Axis]:
    """Read the axes of a grid, ``a.b=START:STOP:STEP`` or ``a.b=v1,v2,v3``, or a mapping of such values."""
    if isinstance(grid, str):
        raise ConfigError(message("sweeps.text"))
    axes = [_axis(key, values) for key, values in grid.items()] if isinstance(grid, Mapping) else [*map(_parse, grid)]
    if not axes:
        raise ConfigError(message("sweeps.no_grid"))
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(message("sweeps.repeated_key", key=shortened(key)))
    if (total := math.prod(len(axis.values) for axis in axes)) > LIMIT:
        raise ConfigError(message("sweeps.many_settings", settings=total, most=LIMIT))
    return axes


def settings_of(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """List every combination of values by key; the last axis changes fastest."""
    keys = [axis.key for axis in axes]
    return [dict(zip(keys, values, strict=True)) for values in product(*(axis.values for axis in axes))]


def _same(value: Any) -> str:
    """Return the common form of values that mean the same: 1 and 1.0."""
    return str(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else written(value)


def written(value: Any) -> str:
    """Return a value as a config would have it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parse(entry: str) -> Axis:
    key, equals, text = entry.partition("=")
    if not equals:
        raise ConfigError(message("sweeps.form", entry=shortened(entry)))
    return _axis(key.strip(), text)


def _axis(key: str, values: str | Sequence[Any]) -> Axis:
    entry = shortened(f"{key}={values if isinstance(values, str) else written(list(values))}")
    section, *rest = key.split(".")
    if not all([section, *rest]):
        raise ConfigError(message("sweeps.form", entry=entry))
    if (section not in SECTIONS or not rest) and key not in TRIALS:
        raise ConfigError(message("sweeps.key", entry=entry, others=" and ".join(TRIALS)))
    found = _values(entry, values.strip()) if isinstance(values, str) else list(values)
    if not found:
        raise ConfigError(message("sweeps.no_value", entry=entry))
    seen = set()
    for value in found:
        if _same(value) in seen:
            raise ConfigError(message("sweeps.repeated_value", entry=entry, value=written(value)))
        seen.add(_same(value))
    return Axis(key, tuple(found))


def _values(entry: str, text: str) -> list[Any]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) > 1 and "," not in text and any(map(_NUMBER.fullmatch, parts)):
        if len(parts) != 3 or not all(map(_NUMBER.fullmatch, parts)):
            raise ConfigError(message("sweeps.range", entry=entry))
        return _range(entry, *parts)
    try:
        values: list[Any] = load_yaml(f"[{text}]")
    except ConfigError as error:
        raise ConfigError(message("sweeps.yaml", entry=entry, problem=str(error))) from error
    return values


def _range(entry: str, first: str, last: str, by: str) -> list[Any]:
    start, stop, step = map(Decimal, (first, last, by))
    if not step:
        raise ConfigError(message("sweeps.no_step", entry=entry))
    steps = (stop - start) / step
    if steps < 0:
        way = "up" if stop > start else "down"
        raise ConfigError(message("sweeps.step_sign", entry=entry, step=by, first=first, way=way, last=last))
    if steps >= LIMIT:
        raise ConfigError(message("sweeps.many_values", entry=entry, most=LIMIT))
    number = int if re.fullmatch(r"[+-]?\d+", first) and re.fullmatch(r"[+-]?\d+", by) else float
    return [number(start + step * i) for i in range(int((stop - start) // step) + 1)]
