"""The rows of a sweep: settings whose learners read the same source in the same way share one reading of it.

Settings of different trials (``source.permutation``, ``source.seed``) have different sources. All are opened before
anything runs; each is read when its turn comes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.config import Config
from pipelines.saved_runs import keyed_stream, no_rows
from raydt.errors import ConfigError, InputError
from raydt.examples.reading import Reading
from raydt.learners import traits_of
from raydt.messages import message
from raydt.sources.base import Source
from raydt.sources.opening import open_source
from raydt.sources.stored import StoredSource
from raydt.streams.options import make_stream


@dataclass(slots=True)
class Trial:
    """Settings with the same rows."""

    settings: list[int]  #: places in the grid
    configs: list[Config]
    opened: Source | None

    def read(self) -> StoredSource:
        """Return all rows, and let go of what was opened.

        ``InputError`` if the source cannot be read to its end, has no rows, or has a bad one that a setting does not
        pass over.
        """
        assert self.opened is not None
        source, self.opened = _stored(self.configs[0], self.opened), None
        if not source.n_rows:
            raise no_rows(self.configs[0])
        bad = source.first_bad()
        if bad is not None and any(config.stream.on_error == "error" for config in self.configs):
            raise bad
        return source


def by_key(config: Config) -> bool:
    """Return True if a config has a model for each key."""
    return getattr(config.source, "key", None) is not None


def _stored(config: Config, source: Any) -> StoredSource:
    """Read all rows of a source."""
    if not by_key(config):
        return StoredSource(source)
    from raydt.keyed.stored import StoredKeys

    return StoredKeys(source)


def _require_stream(config: Config, source: Any) -> None:
    """Refuse (ConfigError, InputError) a stream that does not fit the source, and have it read what streams need."""
    if by_key(config):
        from pipelines.keyed.parts import job_of

        job_of(config, keyed_stream(config, source))
    else:
        make_stream(config.stream, source)


def trials_of(configs: Mapping[int, Config], refuse: Callable[[int, ConfigError | InputError], None]) -> list[Trial]:
    """Group settings by source and reading, in order; ``refuse`` gets the error of each setting that cannot be run."""
    trials: dict[tuple[str, Reading], Trial] = {}
    sources: dict[tuple[str, Reading], Source] = {}
    checked: set[tuple[str, Reading, str]] = set()
    for index, config in configs.items():
        reading = traits_of(config.learner).reading
        if reading.regression:
            refuse(index, ConfigError(message("sweeps.numbers")))
            continue
        key = config.source.model_dump_json(), reading
        try:
            if key not in sources:
                sources[key] = open_source(config.source, reading=reading)
            own = config.learner.model_dump_json() if by_key(config) else ""  # a job by key is of a learner, too
            if (options := (*key, config.stream.model_dump_json() + own)) not in checked:
                _require_stream(config, sources[key])
                checked.add(options)
        except (ConfigError, InputError) as error:
            refuse(index, error)
            continue
        trials.setdefault(key, Trial([], [], sources[key])).settings.append(index)
        trials[key].configs.append(config)
    return [*trials.values()]


def read_first(
    configs: Mapping[int, Config], values: Sequence[Mapping[str, Any]], refused: dict[int, ConfigError | InputError]
) -> tuple[list[Trial], StoredSource]:
    """Return the trials that can be run, and the rows of the first; the settings of others are ``refused``.

    Raise the error of the first setting if none can be run: a ConfigError names it.
    """
    trials = trials_of(configs, refused.__setitem__)
    while trials:
        try:
            return trials, trials[0].read()
        except InputError as error:
            refused |= dict.fromkeys(trials.pop(0).settings, error)
    first = refused[min(refused)]
    if isinstance(first, ConfigError):
        first = ConfigError(*(problem.at(f"with {named(values[min(refused)])}") for problem in first.args))
    raise first


def named(setting: Mapping[str, Any]) -> str:
    """Return a setting for messages."""
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in setting.items())


def sets_of(first: Config, other: Config, keys: Iterable[str]) -> dict[str, Any]:
    """Return by dotted key what makes the config ``first``, with all its options, the ``other`` one of a sweep.

    These are the ``keys`` of the grid and, as another learner has other defaults, the options that differ.
    """
    found = {key: _value_of(other, key) for key in keys}
    before, after = first.resolved(), other.resolved()
    for section in ("learner", "stream"):
        defaults = type(getattr(other, section)).model_fields
        for name, value in after[section].items():
            if value != before[section].get(name, defaults[name].default):
                found[f"{section}.{name}"] = value
    return found


def _value_of(config: Config, key: str) -> Any:
    """Return the value of a dotted key; its default, where the setting's group does not have the key."""
    found: Any = config.resolved()
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
