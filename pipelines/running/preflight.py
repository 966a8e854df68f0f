"""Decisions and refusals before a job begins, and what its first batches are warned of."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.config import Config
from pipelines.outputs import real_path
from pipelines.run_folder import RunFolder, default_location
from raydt.encoding.numerals import doubt
from raydt.errors import ConfigError
from raydt.examples.features import Features
from raydt.examples.updates import UpdateBatch
from raydt.examples.weights import unknown_labels
from raydt.folders.checkpoint import is_checkpoint_file, is_checkpoint_folder
from raydt.folders.manifest import MANIFEST
from raydt.learners import traits_of
from raydt.learners.base import LearnerOptions
from raydt.messages import Message, message
from raydt.sources.base import Source
from raydt.sources.encoded_source import EncodedSource
from raydt.sources.file_options import FileOptions


def require_ray(config: Config, address: str) -> None:
    """Refuse an address for a config that runs without Ray."""
    if config.cluster.backend == "in_process":
        raise ConfigError(message("configs.needless_address", address=address))


def features_of(source: Source, options: LearnerOptions) -> Features:
    """The features of a source, dealt into the groups that the learner's options ask for."""
    return dataclasses.replace(source.features, groups=options.feature_groups)


def doubtful(config: Config, source: Source) -> list[Message]:
    """Return what the first rows make doubtful: text like numbers or times, weights of absent classes."""
    unknown = unknown_labels(traits_of(config.learner).reading.class_weight, source.classes)
    found = [message("configs.unknown_class_weight", labels=", ".join(unknown))] if unknown else []
    if not isinstance(config.source, FileOptions):
        return found
    values = source.state()["categories"]
    for name in values.keys() & set(source.features.names) - set(config.source.categorical):
        words = doubt(pa.array([value for value in values[name] if isinstance(value, str)], pa.string()))
        if words is not None:
            found.append(message("configs.number_like", column=name, doubt=words))
    return sorted(found)


def warnings_of(
    batch: UpdateBatch, early_warmup: Mapping[str, Any] | None, config: Config, source: Source
) -> Iterator[tuple[str, Message]]:
    """Yield events and what the log says of them, once a batch is applied: doubtful columns, and lost ones."""
    if not batch.start:
        yield from (("doubtful_column", problem) for problem in doubtful(config, source))
    if isinstance(source, EncodedSource):
        yield from (("lost_column", message("rows.lost", column=name)) for name in source.lost.take())
    if batch.ends_warmup and early_warmup is not None:
        yield "early_warmup", message("runs.early_warmup", **early_warmup)


def require_place_of_states(states: RunFolder, folder: RunFolder) -> None:
    """Refuse (ConfigError) a ``checkpoint.path`` that is the run folder itself, or no folder that can be written."""
    place = f"checkpoint.path = {states.location}"
    places = [real_path(each.root) if each.is_local else each.location for each in (states, folder)]
    if places[0] == places[1]:
        raise ConfigError(message("configs.run_path").at(place))
    if states.is_local and states.root != os.path.join(folder.root, "checkpoints"):
        path = Path(states.root)
        there = next(above for above in (path, *path.parents) if above.exists())
        if not there.is_dir():
            raise ConfigError(message("configs.file_path", file=str(there)).at(place))
        if not os.access(there, os.W_OK | os.X_OK):
            raise ConfigError(message("configs.closed_path", folder=str(there)).at(place))


def clear_place_of_states(states: RunFolder, *, overwrite: bool) -> None:
    """Refuse (ConfigError) other checkpoints at ``checkpoint.path``, unless ``overwrite`` removes them."""
    place = f"checkpoint.path = {states.location}"
    ours = [name for name in states.names() if is_checkpoint_folder(name)]
    if not ours:
        return
    if not overwrite:
        raise ConfigError(message("configs.used_path").at(place))
    files = [file for name in sorted(ours) for file in states.files(name)]
    strange = next((file for file in files if not is_checkpoint_file(file)), None)
    if strange is not None:
        raise ConfigError(message("configs.foreign_path", file=strange).at(place))
    for file in sorted(files, key=lambda file: not file.endswith(f"/{MANIFEST}")):  # none is left without its rows
        states.delete(file)
    for name in ours:
        states.discard(name)


def location_of(out: str | Path | None, name: str) -> str | Path:
    """Where the run folder goes."""
    if out is None:
        out = default_location(name)
    # A job's working directory is a copy of the submitted one that Ray deletes afterwards.
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ and "://" not in str(out) and not os.path.isabs(out):
        raise ConfigError(message("runs.relative_folder", out=str(out)))
    return out
