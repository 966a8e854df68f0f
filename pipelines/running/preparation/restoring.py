"""Going back to a checkpoint: learner, stream and tables together.

Invariant: after :meth:`Restorable.restore` all three are at the same update, and the tables hold what they held there.
A checkpoint that is damaged is passed over with a warning that names it; one of another config or of other data is an
error, before anything is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.config import Config
from pipelines.run_folder import RunFolder, fitting
from pipelines.running.preparation.config_diff import refuse_changes
from pipelines.running.records.recorder import Recorder
from pipelines.updating.lineage import begins_with
from raydt.errors import ConfigError, FormatVersionError, InputError, ModelFileError, RaydtError
from raydt.folders.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from raydt.folders.manifest import read_manifest
from raydt.learners import traits_of
from raydt.sessions.saved_model import SavedModel, understood
from raydt.sessions.session import Session
from raydt.sources.identity import Identity, differences, file_differences
from raydt.streams.base import Stream

log = logging.getLogger(__name__)


class Restorable(NamedTuple):
    """A checkpoint that was read and found sound; nothing has been changed yet but the stream, which is there."""

    checkpoint: Checkpoint
    saved: SavedModel
    recorder: Recorder
    recorded: dict[str, Any]  #: State of the recorder.
    lineage: list[dict[str, Any]]  #: Updates in the life of the model.

    def restore(self, session: Session, store: CheckpointStore, abandon: Callable[[], None]) -> None:
        """Restore learner and tables.

        Parameters
        ----------
        session : Session
            Without a past.
        store : CheckpointStore
            That of the checkpoint.
        abandon : callable
            Called before the tables are changed, which is the last step: whoever had them lets go of them.

        Raises
        ------
        ProcessLostError
            A process was lost meanwhile.
        """
        session.restore(self.saved.arrays, self.saved.groups)
        # In this order: the tables are cut back when no later checkpoint is left that refers to what is cut.
        store.continue_from(self.checkpoint)
        abandon()
        self.recorder.restore(self.recorded)
        log.info("restored", extra={"event": "restored", "at": self.checkpoint.number})


def newest_restorable(
    config: Config,
    folder: RunFolder,
    store: CheckpointStore,
    stream: Stream,
    data: Identity,
    lineage: Sequence[Mapping[str, Any]] = (),
) -> Restorable | None:
    """Return the newest checkpoint that is sound, with the stream restored; None if there is none.

    Parameters
    ----------
    config : Config
    folder : RunFolder
    store : CheckpointStore
    stream : Stream
        Of the config, wherever it is.
    data : Identity
        Of its source.
    lineage : sequence of mapping
        Updates that the run is known to have, and a checkpoint must have.

    Raises
    ------
    ConfigError
        The checkpoint is of another model config, of other data, or older than an update of the run.
    FormatVersionError
        Another version of raydt has written the checkpoint.
    RaydtError
        There are checkpoints, but none can be used. Nothing is thrown away because of that.
    """
    newest: InputError | None = None
    numbers = _numbers(store)
    for number in reversed(numbers):
        place = store.folder.inside(str(number))
        recorder = Recorder(folder, config.output, stream, traits_of(config.learner).figures)
        try:
            checkpoint = read_checkpoint(place)
            saved = understood(checkpoint.meta, checkpoint.components, place.location)
            with fitting(place.location):
                require_same(config, data, stream, checkpoint.meta, place.location)
                known = require_updated(checkpoint.meta, lineage, place.location)
                stream.restore(checkpoint.components["stream"])
                recorded = {**checkpoint.components["recorder"], "prequential": checkpoint.components["scores"]}
                recorder.require(recorded)
        except FormatVersionError:
            raise
        except InputError as error:
            what = str(InputError(error.problem, file=error.file, column=error.column, row=error.row))
            then = ". Using the one before" if number != numbers[0] else ""
            log.warning("checkpoint skipped: %s%s", what, then, extra={"event": "checkpoint_damaged", "at": number})
            newest = newest or error
            continue
        return Restorable(checkpoint, saved, recorder, recorded, known)
    if newest is not None:
        raise RaydtError(
            f"none of the checkpoints can be used; the newest: {newest}. To start at the first update instead, move "
            f"{store.folder.location} away, then run raydt resume {folder.location}"
        ) from newest
    require_updated({}, lineage, store.folder.location)
    store.continue_from(None)
    log.warning("there is no complete checkpoint: starting at the first update", extra={"event": "restarted"})
    return None


def _numbers(store: CheckpointStore) -> list[int]:
    try:
        return store.numbers()
    except OSError as error:
        raise RaydtError(f"{store.folder.location}: the checkpoints cannot be read: {error}") from error


def newest_meta(config: Config, data: Identity, stream: Stream, store: CheckpointStore) -> dict[str, Any] | None:
    """``meta`` of the newest checkpoint that says what it is; None if there is none. Only manifests are read.

    Raises
    ------
    ConfigError
        The checkpoint is of another model config, or of other data.
    """
    for number in reversed(_numbers(store)):
        place = store.folder.inside(str(number))
        try:
            meta = read_manifest(place).meta
        except FormatVersionError:
            raise
        except ModelFileError:
            continue  # it is named when it is passed over for good
        require_same(config, data, stream, meta, place.location)
        return meta
    return None


def require_same(config: Config, data: Identity, stream: Stream, meta: Mapping[str, Any], place: str) -> None:
    """Refuse a checkpoint of another model config or of other data, and say in what they differ.

    Parameters
    ----------
    config : Config
    data : Identity
        Of the source.
    stream : Stream
        Of the config.
    meta : mapping
        Of the checkpoint.
    place : str
        Where it is.

    Raises
    ------
    ConfigError
    """
    if meta["config_hash"] is None or meta["source_fingerprint"] is None:
        raise ConfigError(
            f"{place}: this state was written by raydt update, not by a run. Move it out of the checkpoints, and give "
            "its folder to raydt resume with --from"
        )
    if not config.has_made(meta):
        refuse_changes(meta.get("config", {}), config.resolved(), place)
        raise ConfigError(f"{place}: the checkpoint has another model config. Restore config.yaml as the run wrote it")
    changes = data_changes(data, stream, meta)
    if changes:
        keys = ["source.path"] if meta["source_fingerprint"] != data.fingerprint else []
        keys += [f"stream.{key}" for key in stream.inputs() if any(c.startswith(f"stream.{key}: ") for c in changes)]
        elsewhere = " ".join(f"--set {key}=..." for key in keys)
        raise ConfigError(
            f"{place}: the data differ from those of the checkpoint:",
            *(f"  {line}" for line in changes),
            f"Restore the data (they may be in another folder: {elsewhere}), or start a new run",
        )


def require_updated(meta: Mapping[str, Any], lineage: Sequence[Mapping[str, Any]], place: str) -> list[dict[str, Any]]:
    """Return the lineage of a checkpoint, and refuse one that is older than an update that its run has taken in.

    Parameters
    ----------
    meta : mapping
        Of the checkpoint; empty if there is none.
    lineage : sequence of mapping
        Updates that the run is known to have.
    place : str
        Where the checkpoint is, or would be.

    Raises
    ------
    ConfigError
        Examples live in the checkpoint that an update has deleted.
    """
    known: list[dict[str, Any]] = meta.get("lineage", [])
    if not begins_with(known, lineage):
        raise ConfigError(
            f"{place}: the run was updated after update {lineage[-1]['offset']:,}, and no checkpoint has the update. "
            "Give the state that raydt update wrote: raydt resume RUN --from STATE"
        )
    return known


def data_changes(data: Identity, stream: Stream, meta: Mapping[str, Any]) -> list[str]:
    """In what the data differ from those that a checkpoint was made from, in words; arguments as above."""
    found = []
    if meta["source_fingerprint"] != data.fingerprint:
        then = meta.get("source")
        found = differences(then, data.description) if isinstance(then, dict) else []
        found = found or ["the fingerprints differ"]
    for key, now in stream.inputs().items():
        then = meta.get(key)
        change = file_differences(then, now) if isinstance(then, dict) else None
        found += [f"stream.{key}: {change}"] if change is not None else []
    return found
