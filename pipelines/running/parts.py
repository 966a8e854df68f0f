"""What a run is made of: one model, or one for each key. The loop, its end and its resume are the same for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pipelines.config import Config
from pipelines.run_folder import RunFolder
from pipelines.running.records.recorder import Recorder
from raydt.folders.checkpoint import CheckpointStore
from raydt.folders.copies import Copies
from raydt.learners import traits_of
from raydt.sessions.saved_model import SavedModel, understood
from raydt.sessions.session import Session


class RunParts(Protocol):
    """What the loop asks for."""

    unit: str  #: What the run counts, such as in its progress and its checkpoints: an update, or a row of the source.

    def session(self, config: Config, stream: Any) -> Callable[[Config, int, Any, Any], Session] | None:
        """Return what makes the sessions of models by key; None of one model."""

    def reports_within(self, config: Config) -> bool:
        """Return True if results have statistics within a batch, which need not end where they are wanted."""

    def message_size(self, config: Config) -> int:
        """Return the most updates of a message, or rows, if these are what a run counts."""

    def store(self, folder: RunFolder, keep: int, copies: Copies | None = None) -> CheckpointStore:
        """Make the store of the checkpoints."""

    def recorder(self, folder: RunFolder, config: Config, stream: Any) -> Any:
        """Make the recorder of counts, scores and tables."""

    def understood(self, meta: dict[str, Any], components: Mapping[str, dict[str, Any]], place: str) -> Any:
        """Return the contents of a checkpoint, checked."""

    def complete(self, session: Any, recorder: Any) -> None:
        """Record what is known once the stream has ended."""

    def model(self, session: Any) -> Mapping[str, Mapping[str, Any]]:
        """Return the components of the model folder."""


class OneModel:
    """Parts of a run with one model."""

    unit = "update"

    def session(self, config: Config, stream: Any) -> None:
        """Nothing: the learner makes its sessions."""

    def reports_within(self, config: Config) -> bool:
        """Return what the learner says of itself."""
        return traits_of(config.learner).reports_within

    def message_size(self, config: Config) -> int:
        """Return the batch size of the config."""
        return config.cluster.batch_size

    def store(self, folder: RunFolder, keep: int, copies: Copies | None = None) -> CheckpointStore:
        """Make the store of the checkpoints."""
        return CheckpointStore(folder, keep, copies)

    def recorder(self, folder: RunFolder, config: Config, stream: Any) -> Recorder:
        """Make the recorder of counts, scores and tables."""
        return Recorder(folder, config.output, stream, traits_of(config.learner).figures)

    def understood(self, meta: dict[str, Any], components: Mapping[str, dict[str, Any]], place: str) -> SavedModel:
        """Return the contents of a checkpoint, checked."""
        return understood(meta, components, place)

    def complete(self, session: Any, recorder: Any) -> None:
        """Record nothing: the tables have it all."""

    def model(self, session: Any) -> Mapping[str, Mapping[str, Any]]:
        """Return the components of the model folder."""
        return {"arrays": session.model()}


def parts_of(config: Config) -> RunParts:
    """Return the parts of the runs of a config."""
    if getattr(config.source, "key", None) is None:
        return OneModel()
    from pipelines.keyed.parts import ModelsByKey

    return ModelsByKey()
