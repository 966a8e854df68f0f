"""Parts of a run with a model for each key; see :mod:`pipelines.running.parts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.config import Config
from pipelines.keyed.recorder import KeyedRecorder
from pipelines.keyed.store import KeyedStore
from pipelines.run_folder import RunFolder
from pipelines.running.parts import OneModel
from pipelines.running.preflight import features_of
from raydt.errors import ConfigError
from raydt.folders.copies import Copies
from raydt.keyed.members import KeyedJob
from raydt.keyed.records import Records
from raydt.keyed.saved import SavedKeys
from raydt.keyed.session import KeyedSession
from raydt.keyed.source import SharedSource
from raydt.keyed.stream import KeyedStream
from raydt.learners import learners, traits_of
from raydt.messages import message


class ModelsByKey(OneModel):
    """A session, a recorder and checkpoints of models by key."""

    def session(self, config: Config, stream: Any) -> Any:
        """Return what makes sessions in this process, each at the beginning."""
        if config.cluster.backend != "in_process":
            raise ConfigError(message("keyed.ray"))

        def make(config: Config) -> KeyedSession:
            traits = traits_of(config.learner)
            job = KeyedJob(
                SharedSource(stream.source, traits.reading),
                learners()[config.learner.kind],
                config.learner,
                features_of(stream.source, config.learner),
                config.stream,
                weighted=config.output.weighted_metrics,
                every=config.output.metrics_every,
                size=config.cluster.batch_size,
            )
            own = traits.figures
            return KeyedSession(job, Records(job.every, predicting=config.output.predictions, own=own))

        return make

    def store(self, folder: RunFolder, keep: int, copies: Copies | None = None) -> KeyedStore:
        """Make the store of the checkpoints."""
        return KeyedStore(folder, keep, copies)

    def recorder(self, folder: RunFolder, config: Config, stream: Any) -> Any:
        """Make the recorder of counts, scores and tables."""
        assert isinstance(stream, KeyedStream)
        return KeyedRecorder(folder, config, stream)

    def understood(self, meta: dict[str, Any], components: Mapping[str, dict[str, Any]], place: str) -> Any:
        """Return the contents of a checkpoint; each key is checked when it is restored."""
        return SavedKeys(meta, components, place)

    def model(self, session: Any) -> Mapping[str, Mapping[str, Any]]:
        """Return the components of the model folder."""
        return dict(session.models())
