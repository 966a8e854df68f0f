"""One setting of a sweep: its own stream over the stored rows, its own engine, scored as a replay is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipelines.config import Config
from pipelines.running.holdout import scored
from pipelines.running.intake import Intake, feed
from pipelines.running.preflight import features_of
from pipelines.sweeping.rows import by_key
from pipelines.sweeping.table import COUNTS, SCORES, WORK
from raydt.errors import message_of
from raydt.evaluation import warmup as warm_up_evaluation
from raydt.examples.updates import BatchResult, UpdateBatch
from raydt.learners import description_of, learners, traits_of
from raydt.learners.base import NOTHING_DIVIDED, LearnerOptions
from raydt.sessions.session import InProcessSession
from raydt.sessions.warmup import BY_KEY, ONE_MODEL, Use, compile_kernels, compile_missing
from raydt.sources.stored import StoredSource
from raydt.streams.options import make_stream
from raydt.streams.random_updates import warmup as warm_up_streams
from raydt.streams.tally import Tally
from raydt.streams.training import Training, TrainingStream

#: Of the moments that are logged along the stream, at the multiples of ``output.metrics_every``.
CURVE = ("updates", "leaves", "accuracy", "f1")

_REBUILT = ("rebuilds", "rebuilt_rows")


def cached(config: Config) -> None:
    """Compile the kernels of streams and a learner that are not in the cache."""
    warm_up_streams()
    warm_up_evaluation()
    compile_missing(learners()[config.learner.kind], config.learner, BY_KEY if by_key(config) else ONE_MODEL)


def loaded(config: Config) -> None:
    """Compile kernels as :func:`cached` does, and load them, once in this process."""
    cached(config)
    uses = Use.ALONE | Use.KEYS if by_key(config) else Use.ALONE
    compile_kernels(learners()[config.learner.kind], config.learner, uses)


def loaded_all(everything: None, several: Sequence[Config]) -> None:
    """Load the kernels of several settings, as a piece of work for a process of Ray; ``everything`` is not used."""
    for config in several:
        loaded(config)


def run_setting(
    source: StoredSource, config: Config, arm: Callable[[Callable[[], None]], None] | None = None
) -> dict[str, Any] | None:
    """Run one setting over the rows of its source; ``arm`` is handed a function that ends it early.

    Returns columns of the sweep's table, and ``curve``, those of its curves; after an error only ``updates``, ``error``
    and ``exit_code``. None if the setting was ended early.
    """
    loaded(config)
    if by_key(config):
        return _run_keys(source, config, arm)
    updates = 0
    moments: list[tuple[int, int | None, float, float]] = []
    try:
        stream = make_stream(config.stream, source)
        features = features_of(source, config.learner)

        def opened() -> InProcessSession:
            return InProcessSession(learners()[config.learner.kind], config.learner, features, 1, NOTHING_DIVIDED)

        holdout: dict[str, Any] = {}
        if isinstance(stream, TrainingStream) and isinstance(config.stream, Training) and config.stream.holdout:
            holdout = scored(config, opened(), stream.rest(), features)
            stream = make_stream(config.stream, source)
        session = opened()
        tally = Tally(stream, weighted=config.output.weighted_metrics)
        intake = Intake(stream, config.cluster.batch_size, config.output.metrics_every)
        if arm is not None:
            arm(intake.stop)

        def note(batch: UpdateBatch, result: BatchResult) -> None:
            if tally.updates % config.output.metrics_every == 0:
                scores = tally.prequential.scores()
                moments.append((tally.updates, tally.statistics.get("leaves"), scores["accuracy"], scores["f1"]))

        began = time.thread_time()
        try:
            feed(config, session, intake, tally, note)
        finally:
            updates = tally.updates
        cpu_seconds = time.thread_time() - began
        if intake.error is not None:
            raise intake.error
        if intake.stopped:
            return None
        metrics = {**tally.metrics(), **holdout.get("metrics", {})}
        baselines = {**tally.baselines(), **holdout.get("baselines", {})}
        statistics = session.statistics()
        description = description_of(config.learner)

        def name(feature: int) -> str:
            return features.name(feature, source.tokens.to_pylist())

        return {
            **{name: getattr(tally, name) for name in COUNTS},
            **({"predictions": holdout["rows"]} if holdout else {}),
            **{name: metrics[name] for name in (*SCORES, "alarms")},
            **baselines,
            "seconds": tally.seconds,
            **_cost(cpu_seconds, updates),
            **_work(config.learner, statistics),
            **description.sweep_values(description.outcome(statistics, name)),
            "promised": learners()[config.learner.kind].promise(config.learner).promised,
            "digest": session.digest(),
            "curve": dict(zip(CURVE, zip(*moments, strict=True), strict=True)) if moments else {},
        }
    except Exception as error:  # one setting's defect must not end the others
        return {"updates": updates, "error": message_of(error), "exit_code": getattr(error, "exit_code", 1)}


def _run_keys(
    source: StoredSource, config: Config, arm: Callable[[Callable[[], None]], None] | None
) -> dict[str, Any] | None:
    """Run one setting with a model for each key, as :func:`run_setting`: without a curve, which each key has."""
    from pipelines.keyed.setting import KeyedSetting
    from raydt.keyed.stored import StoredKeys

    assert isinstance(source, StoredKeys)
    setting = None
    try:
        setting = KeyedSetting(source, config)
        columns = setting.run(arm)
        if columns is None:
            return None
        return {
            **columns,
            **_cost(columns["cpu_seconds"], columns["updates"]),
            **_work(config.learner, setting.session.statistics()),
            "promised": learners()[config.learner.kind].promise(config.learner).promised,
            "digest": setting.session.digest(),
            "curve": {},
        }
    except Exception as error:  # one setting's defect must not end the others
        updates = 0 if setting is None else setting.updates
        return {"updates": updates, "error": message_of(error), "exit_code": getattr(error, "exit_code", 1)}


def _cost(cpu_seconds: float, updates: int) -> dict[str, float | None]:
    """Return the columns of processor time: settings share the cores, so wall time tells how busy the machine was."""
    return {"cpu_seconds": cpu_seconds, "us_per_update": 1e6 * cpu_seconds / updates if updates else None}


def _work(options: LearnerOptions, statistics: Mapping[str, int]) -> dict[str, int | None]:
    """Return the columns of a tree; None for the rebuilds of a learner that never rebuilds, whose count is always 0."""
    found = {name: statistics.get(name) for name in WORK}
    return found if traits_of(options).rebuilds else {**found, **dict.fromkeys(_REBUILT)}
