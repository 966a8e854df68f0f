"""The job by key of a run, from the config of the run."""

from __future__ import annotations

from typing import Any

from pipelines.config import Config
from pipelines.running.preflight import features_of
from raydt.keyed.members import KeyedJob
from raydt.keyed.source import SharedSource
from raydt.learners import learners, traits_of


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
