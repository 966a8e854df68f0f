"""The plans of a run that reads a live source: each is in the run folder for good before a row of it is read.

Invariant: ``plans.jsonl`` has the plans 0, 1, 2, ... in order, one to a line; a line that was cut short was never used.
That of a chapter begins with the first plan that was made in it. A line has a hash of its values: what is damaged is
never read as another plan, which would lose rows or take them twice.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.config import PATH_KEYS, Config, config_of, last_component
from pipelines.run_folder import RunFolder, default_location
from pipelines.saved_runs import real_path
from raydt.encoding.columns import doubt
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import Features, UpdateBatch, previous_names, unknown_labels
from raydt.exchange.messages import fault
from raydt.folders.arrays import MANIFEST
from raydt.folders.checkpoint import is_checkpoint_file, is_checkpoint_folder
from raydt.keyed.stream import KeyedStream
from raydt.learners import traits_of
from raydt.learners.base import LearnerOptions
from raydt.messages import Message, message
from raydt.sources.base import FileOptions, Source, SourceIdentity, differences, file_differences, hashed, is_continued
from raydt.sources.encoder import EncodedSource
from raydt.sources.live.followed import Step
from raydt.streams.base import Stream
from raydt.streams.deletion_log import ChangelogStream

PLANS = "plans.jsonl"

#: Plans read from the file at once, of a run that is resumed.
TOGETHER = 10_000


class PlanLog:
    """Plans in the folder of a run; satisfies :class:`raydt.sources.live.followed.Plans`.

    For who only reads the run again it does not grow. The next plan of a chapter may have been made in one of those
    ``before``, newest first, when rows were read ahead.
    """

    def __init__(self, folder: RunFolder, grows: bool = True, before: Sequence[RunFolder] = ()) -> None:
        if not folder.is_local:
            raise ConfigError(message("live.remote_run").at(folder.location))
        self._path, self._near = Path(folder.root) / PLANS, dict[int, Step]()
        self._count, self._size, self._grows = 0, 0, grows
        self._first = 0  #: Number of the first plan here.
        self._before = before
        for at, line in enumerate(self._lines()):
            self._first = self._read(line).number if not at else self._first
            self._count, self._size = self._count + 1, self._size + len(line)

    def find(self, number: int) -> Step | None:
        """Return the plan of a number, if it was kept; O(1), but for those of earlier processes."""
        if number < self._first or not self._count:
            return None if self._earlier is None else self._earlier.find(number)
        if number >= self._first + self._count:
            return None
        if number not in self._near:
            self._near.clear()
            for at, line in enumerate(self._lines(), self._first):
                if number <= at < number + TOGETHER:
                    self._near[at] = self._read(line)
        return self._near[number]

    @cached_property
    def _earlier(self) -> PlanLog | None:
        """The plans of the newest chapter before that made some."""
        for at, folder in enumerate(self._before, 1):
            if folder.has(PLANS):
                return PlanLog(folder, grows=False, before=self._before[at:])
        return None

    def keep(self, step: Step) -> None:
        """Append a plan, and have the operating system write it to the disk."""
        if not self._grows:
            return
        values = {name: value for name, value in asdict(step).items() if name != "rows"}
        line = json.dumps({**values, "sha256": _hash(values)}) + "\n"
        with self._path.open("ab") as file:
            if file.tell() > self._size:
                file.truncate(self._size)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._first = self._first if self._count else step.number
        self._count, self._size = self._count + 1, self._size + len(line)
        fault("follow.planned")

    def _lines(self) -> list[bytes]:
        """The whole lines."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            return [line for line in file if line.endswith(b"\n")]

    def _read(self, line: bytes) -> Step:
        try:
            values = json.loads(line)
            if values.pop("sha256") == _hash(values):
                return Step(**values)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(message("live.damaged_plans"), file=str(self._path)) from error
        raise InputError(message("live.damaged_plans"), file=str(self._path))


def _hash(values: Mapping[str, Any]) -> str:
    return hashed(json.dumps(values, sort_keys=True))


# Differences between a run and its resume: some keys of the config may differ, and nothing of the data.
#
# Invariant: a resumed run has the model config it began with, so that its model does not depend on where it was
# cut, and tables of one kind from their first row to their last. What becomes of bad rows may change.

_MODEL = ("source", "stream", "learner")

#: Key of these that may change at any time: it decides how far a run gets, not what it learns.
POLICY = "stream.on_error"

#: Keys of operation that cannot change either, and the sentences that say why.
_FIXED = {
    "checkpoint.path": "path_change",
    "follow.chapters": "chapters_change",
    "output.predictions": "predictions_change",
    "output.metrics_every": "rows_change",
    "output.weighted_metrics": "rows_change",
}

#: Differences that are shown.
_SHOWN = 12


def refuse_changes(then: Mapping[str, Any], now: Mapping[str, Any], place: str) -> None:
    """Refuse (ConfigError) a config of another model or other tables than that at ``place``, key by key."""
    before, after = ({**dict(_flat(one, "")), "follow.chapters": _in_chapters(one)} for one in (then, now))
    found = [
        message(f"runs.{_FIXED.get(key, 'change')}", key=key, now=_shown(after, key), then=_shown(before, key))
        for key in sorted(before.keys() | after.keys())
        if (key in _FIXED or (key.partition(".")[0] in _MODEL and key != POLICY))
        and _counted(key, before.get(key)) != _counted(key, after.get(key))
    ]
    if found:
        more = [message("runs.more_changes", changes=len(found) - _SHOWN)] if len(found) > _SHOWN else []
        model = any(change.id == "runs.change" for change in found)
        raise _refusal(message("runs.other_model" if model else "runs.other_tables"), place, [*found[:_SHOWN], *more])


def _in_chapters(config: Mapping[str, Any]) -> bool:
    """Return True if a run of this config is kept in chapters."""
    return any(config.get("follow", {}).get(key) is not None for key in ("chapter_updates", "chapter_hours"))


def _refusal(said: Message, place: str, lines: Sequence[str]) -> ConfigError:
    """Return the error of a message, whose lines stand between its problem and its remedy."""
    return ConfigError(said.alone().at(place), *(f"  {line}" for line in lines), said.remedy)


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


def require_same(config: Config, data: SourceIdentity, stream: Stream, meta: Mapping[str, Any], place: str) -> None:
    """Refuse (ConfigError) a checkpoint of another model config or of other data, and name the differences."""
    if meta["config_hash"] is None or meta["source_fingerprint"] is None:
        raise ConfigError(message("runs.updated_state").at(place))
    if not config.has_made(meta):
        then = config_of(meta)
        refuse_changes(meta.get("config", {}) if then is None else then.resolved(), config.resolved(), place)
        raise ConfigError(message("runs.edited_config").at(place))
    changes = data_changes(data, stream, meta)
    if changes:
        keys = ["source.path"] if meta["source_fingerprint"] != data.fingerprint else []
        keys += [f"stream.{key}" for key in stream.inputs() if any(c.startswith(f"stream.{key}: ") for c in changes)]
        options = " ".join(f"--set {key}=..." for key in keys)
        raise _refusal(message("runs.other_data", options=options), place, changes)


def begins_with(lineage: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a lineage begins with the updates of another, whatever their files are called."""
    keys = ("offset", "digest_before", "digest_after", "deletes", "inserts")
    return [[step.get(key) for key in keys] for step in lineage[: len(first)]] == [
        [step.get(key) for key in keys] for step in first
    ]


def require_updated(meta: Mapping[str, Any], lineage: Sequence[Mapping[str, Any]], place: str) -> list[dict[str, Any]]:
    """Return the lineage of a checkpoint (empty: none); ConfigError if it lacks an update of its run."""
    known: list[dict[str, Any]] = meta.get("lineage", [])
    if not begins_with(known, lineage):
        raise ConfigError(message("runs.updated_since", update=lineage[-1]["offset"]).at(place))
    return known


def _is_continued(data: SourceIdentity, stream: Stream, meta: Mapping[str, Any]) -> bool:
    """Return True if the data are a change log that has gone on in new files."""
    then = meta.get("source")
    is_log = isinstance(stream, ChangelogStream) or (isinstance(stream, KeyedStream) and stream.source.is_changelog)
    return is_log and isinstance(then, dict) and is_continued(then, data.description)


def data_changes(data: SourceIdentity, stream: Stream, meta: Mapping[str, Any]) -> list[str]:
    """In what the data differ from those that a checkpoint was made from, in words; arguments as above."""
    found = []
    if meta["source_fingerprint"] != data.fingerprint and not _is_continued(data, stream, meta):
        then = meta.get("source")
        found = differences(then, data.description) if isinstance(then, dict) else []
        found = found or [message("runs.other_fingerprint")]
    for key, now in stream.inputs().items():
        then = meta.get(key)
        change = file_differences(then, now) if isinstance(then, dict) else None
        found += [f"stream.{key}: {change}"] if change is not None else []
    return found


def require_same_data(config: Config, meta: dict[str, Any], source: Source, stream: Stream, folder: RunFolder) -> None:
    """Refuse (InputError) a source that is no longer what the run has read."""
    changes = data_changes(source.identity(), stream, meta)
    if changes or not config.has_made(meta):
        said = message("verdicts.other_data", changes="; ".join(changes) or "the fingerprints differ")
        raise InputError(said, file=folder.location)


# Decisions and refusals before a job begins, and what its first batches are warned of.


def with_address(overrides: Sequence[str], address: str | None) -> Sequence[str]:
    """Return the overrides of a run on another Ray cluster."""
    return overrides if address is None else [*overrides, f"cluster.address={address}"]


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
    ours = {*config.source.categorical, *previous_names(config.stream.previous_labels)}
    for name in values.keys() & set(source.features.names) - ours:
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
    """Return the path of the run folder."""
    if out is None:
        out = default_location(name)
    # A job's working directory is a copy of the submitted one that Ray deletes afterwards.
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ and "://" not in str(out) and not os.path.isabs(out):
        raise ConfigError(message("runs.relative_folder", out=str(out)))
    return out
