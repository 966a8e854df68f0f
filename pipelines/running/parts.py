"""What a run is made of: one model, or one for each key. The loop, its end and its resume are the same for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.config import Config
from pipelines.run_folder import RunFolder
from pipelines.running.records.recorder import Recorder
from raydt.folders.checkpoint import CheckpointStore
from raydt.folders.copies import Copies
from raydt.learners import traits_of
from raydt.sessions.saved_model import SavedModel, understood
from raydt.sessions.session import Session
from raydt.streams.base import Stream


class OneModel:
    """Parts of a run with one model."""

    def session(self, config: Config, stream: Any) -> Callable[[Config], Session] | None:
        """Return what makes the sessions of models by key; None of one model."""
        return None

    def store(self, folder: RunFolder, keep: int, copies: Copies | None = None) -> CheckpointStore:
        """Make the store of the checkpoints."""
        return CheckpointStore(folder, keep, copies)

    def recorder(self, folder: RunFolder, config: Config, stream: Stream) -> Recorder:
        """Make the recorder of counts, scores and tables."""
        return Recorder(folder, config.output, stream, traits_of(config.learner).figures)

    def understood(self, meta: dict[str, Any], components: Mapping[str, dict[str, Any]], place: str) -> SavedModel:
        """Return the contents of a checkpoint, checked."""
        return understood(meta, components, place)

    def model(self, session: Any) -> Mapping[str, Mapping[str, Any]]:
        """Return the components of the model folder."""
        return {"arrays": session.model()}


def parts_of(config: Config) -> OneModel:
    """Return the parts of the runs of a config."""
    if getattr(config.source, "key", None) is None:
        return OneModel()
    from pipelines.keyed.parts import ModelsByKey

    return ModelsByKey()
