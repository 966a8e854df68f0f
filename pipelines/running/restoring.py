"""Going back to a checkpoint: learner, stream and tables together.

Invariant: after :func:`restore_newest` all three are at the same update, and the tables hold what they held there. A
checkpoint that is damaged is passed over with a warning that names it; one of another config or source is an error.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from pipelines.config import Config
from pipelines.run_folder import RunFolder
from pipelines.running.recorder import Recorder
from pipelines.saving import open_stream
from raydt.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from raydt.errors import ConfigError, InputError, ModelFileError
from raydt.saved_model import understood
from raydt.session import Session
from raydt.streams.base import Stream

log = logging.getLogger(__name__)


class Restored(NamedTuple):
    """Stream and recorder at a checkpoint, and what is known of the run until then."""

    stream: Stream
    recorder: Recorder
    history: dict[str, Any]


def restore_newest(
    config: Config, folder: RunFolder, session: Session, store: CheckpointStore, fingerprint: str
) -> Restored | None:
    """Restore the newest checkpoint that is sound; None if there is none, and then nothing has been changed.

    Raises
    ------
    ConfigError
        The checkpoint is of another model config, or of another source.
    ProcessLostError
        A process was lost meanwhile.
    """
    for number in reversed(store.numbers()):
        place = store.folder.inside(str(number))
        try:
            checkpoint = read_checkpoint(place)
            saved = understood(checkpoint.meta, checkpoint.components, place.location)
            require_same(config, fingerprint, checkpoint)
            _, stream = open_stream(config)
            recorder = Recorder(folder, config.output, stream)
            recorded = checkpoint.components["recorder"]
            recorder.restore({**recorded, "prequential": checkpoint.components["scores"]})
        except (ModelFileError, InputError, KeyError) as error:
            log.warning("checkpoint passed over: %s", error, extra={"event": "checkpoint_damaged", "at": number})
            continue
        stream.restore(checkpoint.components["stream"])
        session.restore(saved.arrays, saved.groups)
        store.continue_from(checkpoint)
        log.info("restored", extra={"event": "restored", "at": number})
        return Restored(stream, recorder, recorded)
    store.continue_from(None)
    return None


def require_same(config: Config, fingerprint: str, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint of another model config or source.

    Raises
    ------
    ConfigError
    """
    if checkpoint.meta["config_hash"] != config.model_hash():
        raise ConfigError("the checkpoint is of another model config")
    if checkpoint.meta["source_fingerprint"] != fingerprint:
        raise ConfigError("the checkpoint is of another source")
