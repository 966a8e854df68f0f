"""Which keys of a config may change when a run is resumed.

Invariant: a resumed run has the model config it began with, so that its model does not depend on where it was
cut, and tables of one kind from their first row to their last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.config import PATH_KEYS, last_component
from raydt.errors import ConfigError

_MODEL = ("source", "stream", "learner")

#: Keys of operation that cannot change either, and why.
_FIXED = {
    "checkpoint.path": "the checkpoints of the run are there",
    "output.predictions": "the table would begin or end in the middle of the run",
    "output.metrics_every": "the rows of the table would not be of one kind",
    "output.fading_factor": "the faded scores of the table would not be of one kind",
    "output.alarm_delta": "the alarms would not be of one kind",
}

#: Differences that are shown.
_SHOWN = 12


def refuse_changes(then: Mapping[str, Any], now: Mapping[str, Any], place: str) -> None:
    """Refuse a resolved config that would give another model, or tables of two kinds.

    Parameters
    ----------
    then, now : mapping
        Resolved configs: that of the run, and that to resume with.
    place : str
        Where the first one is.

    Raises
    ------
    ConfigError
        Names every key with both values.
    """
    before, after = dict(_flat(then, "")), dict(_flat(now, ""))
    found = [
        f"{key} = {_shown(after, key)} here, {_shown(before, key)} in the run{_because(key)}"
        for key in sorted(before.keys() | after.keys())
        if (key in _FIXED or key.partition(".")[0] in _MODEL)
        and _counted(key, before.get(key)) != _counted(key, after.get(key))
    ]
    if found:
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        model = any(line.partition(".")[0] in _MODEL for line in found)
        kept = "model config" if model else "kind of tables or checkpoint path"
        raise ConfigError(
            f"{place}: cannot resume with a different {kept}:",
            *(f"  {line}" for line in (*found[:_SHOWN], *more)),
            "only cluster, checkpoint (except its path), erasure, output.report, output.quote_values and the folders "
            "of the data may change. For any other change, start a new run with raydt replay",
        )


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _counted(key: str, value: Any) -> Any:
    """Part of a value that decides the model: of a path to data its last component."""
    if tuple(key.split(".")) not in PATH_KEYS or key in _FIXED:
        return value
    if isinstance(value, list):
        return [last_component(path) for path in value]
    return last_component(value) if isinstance(value, str) else value


def _shown(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key], ensure_ascii=False) if key in values else "nothing"


def _because(key: str) -> str:
    return f" ({_FIXED[key]})" if key in _FIXED else ""
