"""Plain values of a config by dotted keys: ``--set a.b=value``, null that leaves a key out, and a walk over all."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pipelines.printing import shortened
from pipelines.problems import short
from pipelines.yaml12 import DEEPEST, load_yaml
from raydt.errors import ConfigError
from raydt.messages import message


def parsed(override: str) -> tuple[str, Any]:
    """Key and value of ``dotted.key=value``."""
    try:  # in a locale of ASCII Python hands on the bytes of an argument one by one
        override = override.encode("utf-8", "surrogateescape").decode()
    except UnicodeError as error:
        raise ConfigError(message("configs.override_utf8").at(f"--set {shortened(override)}")) from error
    key, equals, text = override.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise ConfigError(message("configs.override").at(f"--set {shortened(override)}"))
    try:
        return key.strip(), load_yaml(text)
    except ConfigError as error:
        raise ConfigError(error.args[0].at(f"--set {shortened(override)}")) from error


def set_key(data: dict[str, Any], key: str, value: Any, place: str, nulls: dict[str, bool]) -> None:
    """Set a dotted key, in place; ``place`` is what an error begins with.

    ``nulls`` takes note of it: a key that is set to null, and whether it was there before. It leaves a key out that
    cannot be null.
    """
    *sections, last = key.split(".")
    if len(sections) >= DEEPEST:
        raise ConfigError(message("configs.long_key", parts=len(sections) + 1).at(place))
    section = data
    for part in sections:
        if section.get(part) is None:
            section[part] = {}
        section = section[part]
        if not isinstance(section, dict):
            raise ConfigError(message("configs.no_section", part=short(part)).at(place))
    if value is not None:
        nulls.pop(key, None)
    else:
        nulls[key] = nulls.get(key, False) or last in section
    section[last] = copy.deepcopy(value)


def remove_key(data: dict[str, Any], key: str) -> None:
    """Remove a dotted key, in place."""
    *sections, last = key.split(".")
    for part in sections:
        data = data[part]
    del data[last]


def values_of(data: Any, key: str) -> Iterator[tuple[str, Any]]:
    """All plain values with their dotted keys."""
    if isinstance(data, (dict, list)):
        for name, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from values_of(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, data
