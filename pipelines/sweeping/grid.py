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

#: Sections whose keys may differ between settings.
SECTIONS = ("learner", "stream")

#: Keys of the source that may: they draw or order its rows again, and each value is one trial of a setting.
TRIALS = ("source.permutation", "source.seed")

#: The most settings of one sweep.
LIMIT = 10_000

_FORM = "not of the form a.b=START:STOP:STEP or a.b=v1,v2,v3. Write for example --grid learner.epsilon=0:2:0.1"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")

Grid = Sequence[str] | Mapping[str, str | Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Axis:
    """A dotted key and the values it takes, in order."""

    key: str
    values: tuple[Any, ...]


def read_grid(grid: Grid) -> list[Axis]:
    """Read the axes of a grid.

    Parameters
    ----------
    grid : sequence of str, or mapping
        ``a.b=START:STOP:STEP`` or ``a.b=v1,v2,v3`` each, the values in YAML; in a mapping by key, either the part
        after the equals sign or a sequence of values.

    Raises
    ------
    ConfigError
        An entry that cannot be read, a key twice or of another section, no values, or too many settings.
    """
    if isinstance(grid, str):
        raise ConfigError("grid: a list of texts or a mapping is needed. Put the text into a list")
    axes = [_axis(key, values) for key, values in grid.items()] if isinstance(grid, Mapping) else [*map(_parse, grid)]
    if not axes:
        raise ConfigError("a sweep needs at least one --grid, such as --grid learner.epsilon=0:2:0.1")
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"--grid {shortened(key)}: the key appears twice. Put all its values into one --grid")
    if (total := math.prod(len(axis.values) for axis in axes)) > LIMIT:
        raise ConfigError(f"the grid has {total:,} settings, but at most {LIMIT:,} are possible. Use a coarser grid")
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
        raise ConfigError(f"--grid {shortened(entry)}: {_FORM}")
    return _axis(key.strip(), text)


def _axis(key: str, values: str | Sequence[Any]) -> Axis:
    place = f"--grid {shortened(f'{key}={values if isinstance(values, str) else written(list(values))}')}"
    section, *rest = key.split(".")
    if not all([section, *rest]):
        raise ConfigError(f"{place}: {_FORM}")
    if (section not in SECTIONS or not rest) and key not in TRIALS:
        raise ConfigError(
            f"{place}: only keys of learner and stream, {' and '.join(TRIALS)} can differ between settings: all "
            "have the same rows, and nothing else changes the model. Use --set for keys that are the same in all "
            "settings"
        )
    found = _values(place, values.strip()) if isinstance(values, str) else list(values)
    if not found:
        raise ConfigError(f"{place}: no values. Write at least one")
    seen = set()
    for value in found:
        if _same(value) in seen:
            raise ConfigError(f"{place}: the value {written(value)} appears twice. Remove one")
        seen.add(_same(value))
    return Axis(key, tuple(found))


def _values(place: str, text: str) -> list[Any]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) > 1 and "," not in text and any(map(_NUMBER.fullmatch, parts)):
        if len(parts) != 3 or not all(map(_NUMBER.fullmatch, parts)):
            raise ConfigError(f"{place}: a range is START:STOP:STEP, three numbers, such as 0:2:0.1")
        return _range(place, *parts)
    try:
        values: list[Any] = load_yaml(f"[{text}]")
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    return values


def _range(place: str, first: str, last: str, by: str) -> list[Any]:
    start, stop, step = map(Decimal, (first, last, by))
    if not step:
        raise ConfigError(f"{place}: the step is 0. Give the distance between two values")
    steps = (stop - start) / step
    if steps < 0:
        way = "up" if stop > start else "down"
        raise ConfigError(f"{place}: a step of {by} never leads from {first} {way} to {last}. Change its sign")
    if steps >= LIMIT:
        raise ConfigError(f"{place}: more than {LIMIT:,} values. Take a larger step")
    number = int if re.fullmatch(r"[+-]?\d+", first) and re.fullmatch(r"[+-]?\d+", by) else float
    return [number(start + step * i) for i in range(int((stop - start) // step) + 1)]
