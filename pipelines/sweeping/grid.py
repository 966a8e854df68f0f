"""Differences between the settings of a sweep: ``--grid`` as axes, their product, and groups of such products.

A group has keys of its own, so that methods with different options are compared in one sweep.

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

#: The entry of ``--grid`` after which another group begins.
OR = "or"

#: The most settings of one sweep.
LIMIT = 10_000

_FORM = "not of the form a.b=START:STOP:STEP or a.b=v1,v2,v3. Write for example --grid learner.epsilon=0:2:0.1"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")

Group = Sequence[str] | Mapping[str, str | Sequence[Any]]
Grid = Group | Sequence[Group]


@dataclass(frozen=True, slots=True)
class Axis:
    """A dotted key and the values it takes, in order."""

    key: str
    values: tuple[Any, ...]


def read_grids(grid: Grid) -> list[list[Axis]]:
    """The axes of each group of a grid.

    Parameters
    ----------
    grid : sequence of str, mapping, or sequence of these
        One group as of :func:`read_grid`, or several; among texts, ``or`` begins another group.

    Raises
    ------
    ConfigError
        As :func:`read_grid`, of any group; a setting that two groups have; or too many settings.
    """
    several = not isinstance(grid, str | Mapping) and not all(isinstance(entry, str) for entry in grid)
    found = [read_grid(part) for group in (grid if several else [grid]) for part in _divided(group)]
    _require_few(sum(math.prod(len(axis.values) for axis in axes) for axes in found))
    seen = set()
    for setting in settings_of(found):
        if (same := json.dumps(setting, sort_keys=True, default=str)) in seen:
            named = ", ".join(f"{key}={written(value)}" for key, value in setting.items())
            raise ConfigError(f"two groups of the grid have the setting {named}. Leave it out of one")
        seen.add(same)
    return found


def _divided(group: Any) -> list[Any]:
    """A sequence of texts at each ``or``."""
    if isinstance(group, str | Mapping):
        return [group]
    parts: list[list[str]] = [[]]
    for entry in group:
        if entry.strip() == OR:
            parts.append([])
        else:
            parts[-1].append(entry)
    return [*parts]


def read_grid(grid: Group) -> list[Axis]:
    """The axes of one group.

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
    _require_few(math.prod(len(axis.values) for axis in axes))
    return axes


def _require_few(total: int) -> None:
    if total > LIMIT:
        raise ConfigError(f"the grid has {total:,} settings, but at most {LIMIT:,} are possible. Use a coarser grid")


def settings_of(groups: Sequence[Sequence[Axis]]) -> list[dict[str, Any]]:
    """Group by group every combination of values by key; the last axis of a group changes fastest."""
    return [
        dict(zip([axis.key for axis in axes], values, strict=True))
        for axes in groups
        for values in product(*(axis.values for axis in axes))
    ]


def merged(groups: Sequence[Sequence[Axis]]) -> list[Axis]:
    """The keys of all groups, each with all its values, in order of first appearance."""
    values: dict[str, dict[str, Any]] = {}
    for axis in (axis for axes in groups for axis in axes):
        known = values.setdefault(axis.key, {})
        for value in axis.values:
            known.setdefault(_same(value), value)
    return [Axis(key, tuple(known.values())) for key, known in values.items()]


def _same(value: Any) -> str:
    """Common form of values that mean the same: 1 and 1.0."""
    return str(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else written(value)


def written(value: Any) -> str:
    """A value as a config would have it."""
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
