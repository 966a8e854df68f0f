"""Parts of a run with a model for each key; see :mod:`pipelines.running.parts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.config import Config
from pipelines.keyed.recorder import KeyedRecorder
from pipelines.run_folder import RunFolder
from pipelines.running.preflight import features_of
from raydt.folders.copies import Copies
from raydt.keyed.members import KeyedJob
from raydt.keyed.records import Records
from raydt.keyed.saved import SavedKeys
from raydt.keyed.sent import SentSource
from raydt.keyed.session import KeyedSession
from raydt.keyed.source import SharedSource
from raydt.keyed.store import KeyedStore
from raydt.keyed.stream import ROWS, KeyedStream
from raydt.learners import learners, traits_of


class ModelsByKey:
    """A session, a recorder and checkpoints of models by key."""

    unit = "row"

    def session(self, config: Config, stream: Any) -> Any:
        """Return what makes sessions in this process, each at the beginning."""

        def make(config: Config, epoch: int, cluster: Any, resources: Any) -> Any:
            traits = traits_of(config.learner)
            if cluster is not None:
                return _on_ray(config, stream, epoch, cluster, resources)
            job = job_of(config, stream)
            own = traits.figures
            return KeyedSession(job, Records(job.every, predicting=config.output.predictions, own=own))

        return make

    def reports_within(self, config: Config) -> bool:
        """Return True: keys record their figures themselves."""
        return True

    def message_size(self, config: Config) -> int:
        """Return rows for many updates of each key."""
        return config.cluster.batch_size * ROWS

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

    def complete(self, session: Any, recorder: Any) -> None:
        """Record the table of keys."""
        recorder.record_keys(session.key_rows())

    def model(self, session: Any) -> Mapping[str, Mapping[str, Any]]:
        """Return the components of the model folder."""
        return dict(session.models())


def _on_ray(config: Config, stream: KeyedStream, epoch: int, cluster: Any, resources: Any) -> Any:
    """Open a session on Ray, at the beginning."""
    source = stream.source
    from actors.keyed_session import RayKeyedSession  # which imports Ray
    from actors.keys import KeyedAssignment

    assignment = KeyedAssignment(
        epoch,
        learners()[config.learner.kind],
        config.learner,
        features_of(source, config.learner),
        SentSource.of(source),
        config.stream,
        weighted=config.output.weighted_metrics,
        every=config.output.metrics_every,
        size=config.cluster.batch_size,
        predicting=config.output.predictions,
        log=stream.log,
    )
    shards, patience = config.placement.shards or 1, config.cluster.patience_seconds
    return RayKeyedSession(cluster, assignment, source, shards=shards, resources=resources, patience=patience)


def job_of(config: Config, stream: Any) -> KeyedJob:
    """Return what the models of all keys of a run have in common."""
    return KeyedJob(
        SharedSource(stream.source, traits_of(config.learner).reading, stream.log),
        learners()[config.learner.kind],
        config.learner,
        features_of(stream.source, config.learner),
        config.stream,
        weighted=config.output.weighted_metrics,
        every=config.output.metrics_every,
        size=config.cluster.batch_size,
    )
