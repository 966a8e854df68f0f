"""A run's model and state: written at its end, read back to predict and to audit.

The model holds what predicting needs and no training row: arrays, labels and categories. A state holds everything:
the coordinator, each feature group, and the stream with the dictionaries of its source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.config import Config, as_written, load_config
from pipelines.operation import load_yaml
from pipelines.run_folder import STATES, RunFolder
from raydt.errors import ConfigError, FormatVersionError, InputError, ModelFileError, NotWrittenError, shortage
from raydt.folders.arrays import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    Manifest,
    complete,
    newest,
    open_folder,
    read_manifest,
)
from raydt.folders.checkpoint import CheckpointStore, Copies
from raydt.folders.folder import Folder, locked
from raydt.folders.segments import with_rows
from raydt.keyed.packing import KeyedStore, SavedKeys, SavedOne, open_keys
from raydt.messages import message
from raydt.sessions.saved_model import (
    BY_KEY,
    MODEL,
    SavedModel,
    learner_of,
    model_meta,
    open_model,
    outlined,
    require_one,
    understood,
)
from raydt.sources.base import Source, SourceIdentity
from raydt.sources.divided import open_source
from raydt.sources.files.jsonl import Dialect
from raydt.sources.live.followed import FollowedSource
from raydt.streams.base import Stream
from raydt.streams.deletion_log import DeletionLog, LoggedDeletions, LogKeys
from raydt.streams.row_stream import labels_before


def open_stream(config: Config) -> tuple[Source, Stream]:
    """Open source and stream of a config; InputError if a file is missing, unusable, or has no rows."""
    source = open_source(config.source, reading=config.reading)
    if source.n_rows == 0:
        raise no_rows(config)
    if isinstance(source, FollowedSource):
        source.waits = config.stream.on_error == "wait"
    if getattr(config.source, "key", None) is not None:
        return source, keyed_stream(config, source)
    return source, config.stream.make(source)


def keyed_stream(config: Config, source: Any) -> Any:
    """Return the stream of rows of any keys; ConfigError for a stream that reads rows again, or a log of its own."""
    from raydt.keyed.stream import KeyedStream

    if config.stream.model == "batches":
        raise ConfigError(message("keyed.stream", model=config.stream.model))
    log = None
    if isinstance(config.stream, DeletionLog):
        log = LoggedDeletions(config.stream.deletion_log, ".", LogKeys.of(source))
        if log.by_subject:
            raise ConfigError(message("keyed.by_subject"))
        if source.id_kind == "row":
            raise ConfigError(message("keyed.no_ids"))
    on_error = config.stream.on_error
    return KeyedStream(source, skip_bad=on_error != "fail", strict=on_error != "skip", log=log)


def no_rows(config: Config) -> InputError:
    """The error of a source without rows."""
    path = getattr(config.source, "path", None)
    one = path if isinstance(path, str) else None
    return InputError(message("files.no_rows"), file=one)


def config_of(folder: RunFolder) -> Config:
    """Return the resolved config of a run; InputError if damaged, FormatVersionError as of :func:`require_format`."""
    manifest = require_format(folder)
    try:
        return load_config(_on_record(load_yaml(folder.read_text("config.yaml")), manifest))
    except (OSError, ValueError, TypeError) as error:
        said = message("runs.damaged_config", reason="; ".join(str(error).splitlines()[:3]))
        file = f"{folder.location}/config.yaml"
        raise shortage(error, file) or InputError(said, file=file) from error


def _on_record(written: Any, manifest: Manifest | None) -> Any:
    """Return the config that a run wrote, with the rules by which it reads rows; the newest if it has no state yet."""
    if manifest is None:
        return as_written(written, FORMAT_VERSION)
    found = as_written(written, manifest.format_version)
    recorded = as_written(manifest.meta.get("config"), manifest.format_version)
    if recorded is None or "rules" in written["source"] or "rules" not in found["source"]:
        return found
    return {**found, "source": {**found["source"], "rules": recorded["source"]["rules"]}}


def require_format(folder: RunFolder) -> Manifest | None:
    """Return the newest manifest of a run that can be read; FormatVersionError if its format cannot be."""
    states = _named_states(folder)
    checkpoints = sorted((name for name in states.names() if name.isdecimal()), key=int)
    for place in [*(states.inside(name) for name in reversed(checkpoints)), folder.inside(MODEL)]:
        if place.has(MANIFEST):
            try:
                manifest = read_manifest(place)
                learner_of({**manifest.meta, **manifest.origin}, folder.location)
            except FormatVersionError:
                raise
            except ModelFileError:
                continue
            return manifest
    return None


def _named_states(folder: RunFolder) -> RunFolder:
    """As :func:`states_of`, by a config that this version need not understand; the usual place if it is damaged."""
    path = None
    with suppress(OSError, ValueError, AttributeError):
        path = load_yaml(folder.read_text("config.yaml")).get("checkpoint", {}).get("path")
    return RunFolder(path) if isinstance(path, str) else folder.inside(STATES)


def states_of(config: Config, folder: RunFolder) -> RunFolder:
    """Return the folder of the states of a run: ``checkpoints`` in its folder, or ``checkpoint.path``."""
    return RunFolder(config.checkpoint.path) if config.checkpoint.path else folder.inside("checkpoints")


def store_of(config: Config, folder: RunFolder, copies: Copies | None = None) -> CheckpointStore:
    """Return the store of the states of a run."""
    kind = CheckpointStore if getattr(config.source, "key", None) is None else KeyedStore
    return kind(states_of(config, folder), config.checkpoint.keep, copies)


def states_of_any_format(folder: RunFolder) -> RunFolder:
    """As :func:`states_of`, of a run of any format: its config may have options that this version does not know."""
    try:
        return states_of(config_of(folder), folder)
    except FormatVersionError:
        return _named_states(folder)


def state_meta(
    config: Config, stream: Stream, at: dict[str, Any], updates: int, next_id: int, data: SourceIdentity
) -> dict[str, Any]:
    """Return ``meta`` of a run's state after ``updates``, when the stream's, with dictionaries, was ``at``."""
    columns = {name: getattr(config.source, name, None) for name in ("label", "id")}
    if (weight := getattr(config.source, "weight", None)) is not None:
        columns["weight"] = weight
    meta = run_meta(config, stream, at, updates, data.fingerprint)
    meta |= {"config": config.resolved(), "source": data.description, **stream.inputs()}
    columns["id_kind"] = stream.source.id_kind
    if stream.source.subject_kind is not None:
        columns |= {"subject": stream.source.subject_column, "subject_kind": stream.source.subject_kind}
    return {**meta, "columns": columns, "next_id": next_id}


def run_meta(config: Config, stream: Stream, at: dict[str, Any], updates: int, fingerprint: str) -> dict[str, Any]:
    """``meta`` of a model of a run; ``fingerprint`` is the source's, other arguments as of :func:`state_meta`."""
    categories, classes = at["source"].get("categories", {}), stream.source.classes[: at["n_classes"]]
    meta = model_meta(config.learner, stream.source.features, classes, categories)
    if k := config.stream.previous_labels:
        meta |= {"previous_labels": [None] * k} | labels_before(at, classes)
    if (key := getattr(config.source, "key", None)) is not None:
        meta["key"] = key
    meta |= Dialect.recorded(config.source)
    return meta | {"config_hash": config.model_hash(), "source_fingerprint": fingerprint, "offset": updates}


def last_state(states: RunFolder) -> RunFolder:
    """Return the folder of the complete state with the largest update number; InputError if there is none."""
    if numbers := complete(states):
        return states.inside(str(numbers[-1]))
    raise InputError(message("runs.no_states"), file=states.location)


class StatePlace(NamedTuple):
    """The place of a state."""

    folder: RunFolder
    run: RunFolder | None = None  #: That was given, or in whose ``checkpoints/`` it lies.
    config: Config | None = None  #: That of the run.


def find_state(location: str | Path) -> StatePlace:
    """Return the place of a run's last state, or of a saved one; ModelFileError if there is none."""
    given = RunFolder(location)
    folder = given if given.has(MANIFEST) or given.has("config.yaml") else newest(given)
    folder = _newest_with(folder, lambda chapter: bool(complete(chapter.inside(STATES))))
    if not folder.has(MANIFEST) and folder.has("config.yaml"):
        folder.require_saved()
        config = config_of(folder)
        return StatePlace(last_state(states_of(config, folder)), folder, config)
    if not folder.has(MANIFEST):
        raise ModelFileError(message("runs.no_state"), file=folder.location)
    above, _, inside = folder.location.rpartition("/checkpoints/")
    run = RunFolder(above) if above and "/" not in inside else None
    if run is None or not run.has("config.yaml"):
        return StatePlace(folder)
    return StatePlace(folder, run, config_of(run))


def _newest_with(folder: RunFolder, has: Callable[[RunFolder], bool]) -> RunFolder:
    """Return the newest chapter that has something, of a run that is kept in chapters, else the folder itself."""
    chapters = folder.chapters()
    return next((chapter for chapter in reversed(chapters) if has(chapter)), folder.newest())


def open_members(place: RunFolder, run: RunFolder | None = None) -> SavedKeys:
    """Return the members of a state; ModelFileError if it is missing, damaged, or has no training rows.

    The arrays of a state of a ``run``, which messages name then, are not checked: its audit does.
    """
    meta, components = open_folder(place.root, filesystem=place.filesystem, mapped=run is not None)
    if meta["kind"] != "state":
        raise ModelFileError(message("runs.model_only"), file=place.location)
    if BY_KEY in meta:
        return SavedKeys(meta, components, place.root)
    check, less = (understood, 0) if run is None else (outlined, 3)  # an audit has the rows of the source, too
    rows = with_rows(meta, components, place.root, less=less)
    return SavedOne(check(meta, rows, place.root), (run or place).location)


def members_of(meta: dict[str, Any], components: Mapping[str, dict[str, Any]], place: str) -> SavedKeys:
    """Return the members of a state with its rows put together; ModelFileError if it is damaged."""
    if BY_KEY in meta:
        return SavedKeys(meta, components, place)
    return SavedOne(understood(meta, components, place), place)


def require_erasable(members: SavedKeys) -> SavedKeys:
    """Return members whose rows say nothing of other rows; ConfigError if labels of the rows before are features."""
    if members.meta.get("previous_labels"):
        raise ConfigError(message("updates.previous").at(members.place))
    return members


def load_members(location: str | Path) -> SavedKeys:
    """Read the models of the members of a run, a model or a state; InputError if there is none."""
    folder = folder_of_model(location)
    keys = open_keys(folder.root, filesystem=folder.filesystem)
    if keys is not None:
        return keys
    return SavedOne(open_model(folder.root, filesystem=folder.filesystem), folder.location)


def load_model(location: str | Path, key: str | None = None) -> SavedModel:
    """Return the model of :func:`load_members`, of models by key that of ``key``; InputError if there is none."""
    members = load_members(location)
    if key is None:
        require_one(members.meta, members.place)
    return members.saved(None if key is None else members.find(key))


def folder_of_model(location: str | Path) -> RunFolder:
    """Return the folder of :func:`load_model`."""
    folder = newest(RunFolder(location))
    folder = _newest_with(folder, lambda chapter: chapter.has(f"{MODEL}/{MANIFEST}"))
    if not folder.has(MANIFEST):
        folder.require_saved()
    inside = "model" if not folder.has(MANIFEST) and folder.has(f"model/{MANIFEST}") else ""
    if not inside and not folder.has(MANIFEST):
        raise ModelFileError(message("models.no_model"), file=folder.location)
    return folder.inside(inside) if inside else folder


# Where a command may write: never over what it reads, and never into a run, a model or a state that is there.
#
# Invariant: local paths are compared as the operating system sees them, symbolic links followed and hard links by their
# inode; URIs by their text.

#: Bytes of a manifest within which its format is named.
_BEGINNING = 100

_MAGIC = re.compile(r"[*?\[]")


class Input(NamedTuple):
    """A file, folder, pattern or URI that a command reads, and how its user names it."""

    name: str
    path: str


def inputs_of(config: Config, given: Config | Mapping[str, Any] | str | Path) -> list[Input]:
    """Return the paths a run of ``config`` reads; ``given`` is where the config came from."""
    source, log = getattr(config.source, "path", []), getattr(config.stream, "deletion_log", None)
    found = [Input("source.path", path) for path in ([source] if isinstance(source, str) else source)]
    found += [Input("stream.deletion_log", log)] if log is not None else []
    return found + ([Input("CONFIG", str(given))] if isinstance(given, str | Path) else [])


def require_apart(option: str, out: str | Path, inputs: Iterable[Input], *, within: Path | None = None) -> None:
    """Refuse (ConfigError) an output over an input, or in a run (but ``within``), a model or a state."""
    target = real_path(out)
    for name, path in inputs:
        pattern = _MAGIC.search(path) if not os.path.exists(path) else None
        read = real_path(path if pattern is None else path[: pattern.start()].rpartition("/")[0] or "/")
        problem = None
        same = target == read or (os.path.exists(target) and os.path.exists(read) and os.path.samefile(target, read))
        if same and pattern is None:
            problem = message("outputs.same", option=option, out=out, name=name)
        elif _lies_in(read, target) and ("://" in target or _is_ours(Path(target))):  # which may be removed as a whole
            problem = message("outputs.around_input", option=option, out=out, name=name, path=path)
        elif _lies_in(target, read) and not os.path.isfile(read) and (pattern is None or "**" in path):
            # folders are searched through
            problem = message("outputs.within_input", option=option, out=out, name=name, path=path)
        if problem is not None:
            raise ConfigError(problem)
    if "://" not in target:
        owner = next((above for above in Path(target).parents if above != within and _is_ours(above)), None)
        if owner is not None:
            raise ConfigError(message("outputs.within_run", option=option, out=out, owner=owner))


def require_run_apart(out: RunFolder, config: Config, inputs: Iterable[Input]) -> None:
    """Refuse (ConfigError) a folder of a new run, or of its checkpoints, that is not apart from its inputs."""
    inputs = list(inputs)
    require_apart("--out", out.location, inputs)
    if config.checkpoint.path is not None:
        own = Path(os.path.realpath(out.root)) if out.is_local else None
        require_apart("checkpoint.path =", config.checkpoint.path, inputs, within=own)


@contextmanager
def writing_alone(target: Path, what: str, *, new: Iterable[Path] = ()) -> Iterator[None]:
    """Be the only writer of a file of ``what`` (else ConfigError); InputError if it, or one of ``new``, exists."""
    try:
        with locked(Folder(target.parent), target.name):
            for file in new:
                if file.exists():
                    raise InputError(message("outputs.exists"), file=str(file))
            yield
    except NotWrittenError as error:
        cause = getattr(error.__cause__, "strerror", None) or error.problem
        said = message("outputs.not_written", what=what, reason=cause)
        raise InputError(said, file=str(target), remedy=error.remedy) from error


def new_file(out: str | Path, kind: str, ends: Sequence[str], *, overwrite: bool, beside: Sequence[str] = ()) -> Path:
    """Return the path of a local file to write, whose name ends in one of ``ends``.

    InputError for another place or name, or if the file, or one with an end of ``beside`` more, exists and is not to be
    overwritten.
    """
    if "://" in str(out):
        raise InputError(message("outputs.not_local"), file=str(out))
    target = Path(out).expanduser().resolve()
    if target.suffix.lower() not in ends:
        raise InputError(message("outputs.other_name", kind=kind, ends=" or ".join(ends)), file=str(target))
    if target.is_dir():
        raise InputError(message("outputs.is_folder", kind=kind), file=str(target))
    for file in (target, *(target.with_name(target.name + end) for end in beside)):
        if file.exists() and not overwrite:
            raise InputError(message("outputs.exists"), file=str(file))
    return target


@contextmanager
def written(target: str | Path, what: str) -> Iterator[None]:
    """Turn an error of the system in the block into an InputError that ``what`` cannot be written to a file."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(message("outputs.not_written", what=what, reason=reason), file=str(target)) from error


def real_path(path: str | Path) -> str:
    """Return the path behind all links; a URI of another file system as it is."""
    text = str(path).removeprefix("file://")
    if "://" in text or "\0" in text:  # a name with NUL is refused where it is opened
        return text.rstrip("/")
    return os.path.realpath(os.path.expanduser(text))


def _lies_in(inner: str, outer: str) -> bool:
    return inner.startswith(f"{outer.rstrip('/')}/") and inner != outer


def _is_ours(folder: Path) -> bool:
    """Return True if a folder is a run or a sweep, or holds a model or a state."""
    with suppress(OSError):
        if RunFolder(folder).run_status() is not None:
            return True
        with (folder / MANIFEST).open("rb") as file:
            return FORMAT.encode() in file.read(_BEGINNING)
    return False
