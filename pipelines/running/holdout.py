"""The score of a training run: a model trained on the rest of the rows predicts those that are held out.

Invariant: the score is a function of source, learner and share. It is known before the model of the run sees a row, and
the model of the run, which is trained on all rows, does not depend on it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from pipelines.config import Config
from pipelines.running.incarnations import Incarnations
from pipelines.running.intake import Intake, feed
from pipelines.running.records.tally import Mask, Tally
from pipelines.saved_runs import open_stream
from raydt.examples.targets import Targets, there
from raydt.examples.updates import BatchResult, UpdateBatch
from raydt.streams.training import ALL_ROWS, Training, TrainingStream

#: Event in the log that has the score.
SCORED = "holdout_scored"

#: Scores that follow the stream, which a fixed model does not.
_OF_STREAMS = ("alarms", "kappa_temporal", "no_change")


class _HoldoutTally(Tally):
    """Learns the labels of insertions, and scores queries beside the trivial predictor of these labels."""

    def _score(self, batch: UpdateBatch, result: BatchResult, truth: Targets, inserted: Mask, queried: Mask) -> None:
        self.prequential.rivals(truth[inserted])
        at = np.flatnonzero(queried & there(result.predictions[: len(truth)]))
        rivals = np.full(len(at), self.prequential.rivals_now()[1], dtype=truth.dtype)
        levels = None if result.levels is None else result.levels[at]
        self.prequential.score(truth[at], result.predictions[at], (rivals, rivals), levels)


def score_holdout(config: Config, incarnations: Incarnations) -> dict[str, Any]:
    """Return the entry ``holdout`` of a training run's summary, in a session of its own.

    ``share`` of the config, ``rows`` held out, rows the model was ``trained_on``, ``seconds``, ``metrics`` and
    ``baselines`` (those of a summary that need no stream). Empty scores if nothing is held out. InputError for a bad
    row, UpdateError for a refused one; ProcessLostError if a process was lost.
    """
    assert isinstance(config.stream, Training)
    found: dict[str, Any] = {"share": config.stream.holdout, "rows": 0, "trained_on": 0, "seconds": 0.0}
    if not config.stream.holdout:
        return {**found, "metrics": {}, "baselines": {}}
    began, session = time.perf_counter(), incarnations.open()
    _, stream = open_stream(config)
    assert isinstance(stream, TrainingStream)
    tally = _HoldoutTally(stream)
    rest = stream.rest()
    for part in (lambda: rest, rest.held_out):  # the model is built where the first stream ends
        intake = Intake(part(), config.cluster.batch_size, ALL_ROWS)
        feed(config, session, intake, tally)
        if intake.error is not None:
            raise intake.error
    return {
        **found,
        "rows": tally.queries,
        "trained_on": tally.inserts,
        "seconds": time.perf_counter() - began,
        "metrics": _of_a_model(tally.metrics()) if tally.queries else {},
        "baselines": _of_a_model(tally.baselines()) if tally.queries else {},
    }


def _of_a_model(scores: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in scores.items() if name not in _OF_STREAMS and "faded" not in name}
