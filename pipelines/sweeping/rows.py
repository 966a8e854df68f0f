"""The rows of a sweep: the settings whose source is the same are run over one reading of it.

Only settings of different trials (``source.permutation``, ``source.seed``) have different sources. All are opened, and
compared with what the settings want of them, before anything runs; each is read when its turn comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.config import Config
from pipelines.saved_runs import no_rows
from raydt.errors import ConfigError, InputError, message_of
from raydt.examples.features import Features
from raydt.examples.reading import Reading
from raydt.learners import traits_of
from raydt.sources.base import Source, require
from raydt.sources.opening import open_source
from raydt.sources.stored import StoredSource
from raydt.streams.options import make_stream


@dataclass(slots=True)
class Trial:
    """Settings with the same rows."""

    settings: list[int]  #: Their places in the grid.
    configs: list[Config]
    _opened: Source | None = None

    def open(self, values: Sequence[Mapping[str, Any]]) -> None:
        """Open the source, once it is sure that every setting can begin to use it.

        Parameters
        ----------
        values : sequence of mapping
            Keys and values of the settings.

        Raises
        ------
        ConfigError
            A setting that cannot be run over these rows, named.
        InputError
            A file or column is missing or cannot be used.
        """
        reading = traits_of(self.configs[0].learner).reading
        if reading.regression:
            raise ConfigError(
                "a sweep compares accuracies, but the learner predicts numbers (learner.objective: squared_error). "
                "Replay the settings one by one, and give their folders to raydt report"
            )
        opened = open_source(self.configs[0].source, reading=reading)
        checked = set()
        for config, setting in zip(self.configs, values, strict=True):
            _require_same_rows(traits_of(config.learner).reading, reading, setting, opened.features)
            options = config.stream.model_dump_json()
            if options not in checked:
                checked.add(options)
                try:
                    make_stream(config.stream, opened)
                except ConfigError as error:
                    raise ConfigError(f"with {named(setting)}: {message_of(error)}") from error
        self._opened = opened

    def read(self) -> StoredSource:
        """All rows; what was opened is let go.

        Raises
        ------
        InputError
            The source cannot be read to its end, has no rows, or has a bad one that a setting does not pass over.
        """
        assert self._opened is not None
        opened, self._opened = self._opened, None
        source = StoredSource(opened)
        if not source.n_rows:
            raise no_rows(self.configs[0])
        bad = source.first_bad()
        if bad is not None and any(config.stream.on_error == "error" for config in self.configs):
            raise bad
        return source


#: What of a reading shows in the rows.
_SEEN_IN_ROWS = ("regression", "missing", "classes", "sparse_classes")


def trials_of(configs: Sequence[Config], values: Sequence[Mapping[str, Any]]) -> list[Trial]:
    """The settings by their rows, opened as :meth:`Trial.open` does it, in the order of the grid."""
    trials: dict[str, Trial] = {}
    for index, config in enumerate(configs):
        trial = trials.setdefault(config.source.model_dump_json(), Trial([], []))
        trial.settings.append(index)
        trial.configs.append(config)
    for trial in trials.values():
        trial.open([values[index] for index in trial.settings])
    return [*trials.values()]


def named(setting: Mapping[str, Any]) -> str:
    """A setting in messages."""
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in setting.items())


def _require_same_rows(reading: Reading, first: Reading, setting: Mapping[str, Any], features: Features) -> None:
    """Refuse a setting whose learner reads the rows of a source with these features otherwise than the first does."""
    if features.sparse and not reading.sparse:
        raise _other_rows(setting, "sparse features")
    try:
        require(reading, features)
    except InputError as error:
        raise ConfigError(f"with {named(setting)}: {message_of(error)}") from error
    # Both take the features that there are; the others that they might take do not show in what is read.
    if any(getattr(reading, name) != getattr(first, name) for name in _SEEN_IN_ROWS):
        raise _other_rows(setting, "labels or missing values")


def _other_rows(setting: Mapping[str, Any], what: str) -> ConfigError:
    return ConfigError(
        f"with {named(setting)}: this learner needs different rows from the first setting ({what}), but a sweep "
        "reads its source once. Run one sweep for each"
    )
