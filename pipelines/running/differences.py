"""Differences between a run and its resume: some keys of the config may differ, and nothing of the data.

Invariant: a resumed run has the model config it began with, so that its model does not depend on where it was
cut, and tables of one kind from their first row to their last. What becomes of bad rows may change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.config import PATH_KEYS, Config, config_of, last_component
from pipelines.run_folder import RunFolder
from pipelines.updating.lineage import begins_with
from raydt.errors import ConfigError, InputError
from raydt.keyed.stream import KeyedStream
from raydt.messages import Message, message
from raydt.sources.base import Source
from raydt.sources.identity import Identity, differences, file_differences, is_continued
from raydt.streams.base import Stream
from raydt.streams.changelog import ChangelogStream

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


def require_same(config: Config, data: Identity, stream: Stream, meta: Mapping[str, Any], place: str) -> None:
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


def require_updated(meta: Mapping[str, Any], lineage: Sequence[Mapping[str, Any]], place: str) -> list[dict[str, Any]]:
    """Return the lineage of a checkpoint (empty: none); ConfigError if it lacks an update of its run."""
    known: list[dict[str, Any]] = meta.get("lineage", [])
    if not begins_with(known, lineage):
        raise ConfigError(message("runs.updated_since", update=lineage[-1]["offset"]).at(place))
    return known


def _is_continued(data: Identity, stream: Stream, meta: Mapping[str, Any]) -> bool:
    """Return True if the data are a change log that has gone on in new files."""
    then = meta.get("source")
    is_log = isinstance(stream, ChangelogStream) or (isinstance(stream, KeyedStream) and stream.source.is_changelog)
    return is_log and isinstance(then, dict) and is_continued(then, data.description)


def data_changes(data: Identity, stream: Stream, meta: Mapping[str, Any]) -> list[str]:
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
