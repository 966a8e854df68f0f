"""The rows of a sweep: settings whose learners read the same source in the same way share one reading of it.

Settings of different trials (``source.permutation``, ``source.seed``) have different sources. All are opened before
anything runs; each is read when its turn comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.config import Config
from pipelines.saved_runs import no_rows
from raydt.errors import ConfigError, InputError, message_of
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
        source, self.opened = StoredSource(self.opened), None
        if not source.n_rows:
            raise no_rows(self.configs[0])
        bad = source.first_bad()
        if bad is not None and any(config.stream.on_error == "error" for config in self.configs):
            raise bad
        return source


def trials_of(configs: Sequence[Config], values: Sequence[Mapping[str, Any]]) -> list[Trial]:
    """Group settings by source and reading, in order; ConfigError or InputError names what cannot be run."""
    trials: dict[tuple[str, Reading], Trial] = {}
    sources: dict[tuple[str, Reading], Source] = {}
    checked: set[tuple[str, Reading, str]] = set()
    for index, (config, setting) in enumerate(zip(configs, values, strict=True)):
        reading = traits_of(config.learner).reading
        if reading.regression:
            raise ConfigError(message("sweeps.numbers"))
        key = config.source.model_dump_json(), reading
        try:
            if key not in trials:
                sources[key] = open_source(config.source, reading=reading)
                trials[key] = Trial([], [], sources[key])
            if (options := (*key, config.stream.model_dump_json())) not in checked:
                checked.add(options)
                make_stream(config.stream, sources[key])
        except (ConfigError, InputError) as error:
            if isinstance(error, InputError) and not index:  # of the source itself
                raise
            raise ConfigError(message("sweeps.setting", setting=named(setting), problem=message_of(error))) from error
        trials[key].settings.append(index)
        trials[key].configs.append(config)
    return [*trials.values()]


def named(setting: Mapping[str, Any]) -> str:
    """Return a setting for messages."""
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in setting.items())
