"""The score of a training run: a model trained on the rest of the rows predicts those that are held out.

Invariant: the predictions are those of the saved model (``raydt predict``). The score is a function of source, learner
and share. It is known before the model of the run, which is trained on all rows, has seen one.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from pipelines.config import Config
from pipelines.running.incarnations import Incarnations
from pipelines.running.intake import Intake, feed
from pipelines.saved_runs import open_stream
from raydt.evaluation.ranking import LEVELS
from raydt.examples.features import Features
from raydt.examples.targets import NUMBERS
from raydt.learners import learners
from raydt.sessions.session import Session
from raydt.streams.tally import Tally, known
from raydt.streams.training import ALL_ROWS, Rest, Training, TrainingStream

#: Event in the log that has the score.
SCORED = "holdout_scored"

#: Scores that follow the stream, which a fixed model does not.
_OF_STREAMS = ("alarms", "kappa_temporal", "no_change")

#: Rows predicted at a time.
_ROWS = 1 << 14


def score_holdout(config: Config, incarnations: Incarnations) -> dict[str, Any]:
    """Return the entry ``holdout`` of a training run's summary: :func:`scored`, ``share`` and ``seconds``."""
    assert isinstance(config.stream, Training)
    found: dict[str, Any] = {"share": config.stream.holdout, "rows": 0, "trained_on": 0, "seconds": 0.0}
    found |= {"metrics": {}, "baselines": {}}
    if not config.stream.holdout:
        return found
    began, session = time.perf_counter(), incarnations.open()
    _, stream = open_stream(config)
    assert isinstance(stream, TrainingStream)
    found |= scored(config, session, stream.rest(), incarnations.features)
    return {**found, "seconds": time.perf_counter() - began}


def scored(config: Config, session: Session, rest: Rest, features: Features) -> dict[str, Any]:
    """Train on ``rest`` and return scores of the rows held out; InputError or UpdateError for a bad one."""
    weighted = config.output.weighted_metrics
    tally, intake = Tally(rest, weighted=weighted), Intake(rest, config.cluster.batch_size, ALL_ROWS)
    feed(config, session, intake, tally)
    if intake.error is not None:
        raise intake.error
    predictor = learners()[config.learner.kind].predictor(config.learner, features, session.model())
    scores, rows = tally.prequential, 0
    for part in rest.held_out(_ROWS) if tally.inserts else ():
        sparse: dict[str, Any] = {} if part.sparse is None else {"sparse": part.sparse}
        rival, levels = np.full(len(part), scores.rivals_now()[1], dtype=part.y.dtype), None
        if part.y.dtype != NUMBERS:
            shares = predictor.predict_proba(part.X, max(2, len(rest.source.classes)), **sparse)
            levels = np.floor(LEVELS * shares[:, 1] + 0.5).astype(np.uint16)
        predicted = np.asarray(predictor.predict(part.X, **sparse)).astype(part.y.dtype)
        scores.score(part.y, predicted, (rival, rival), levels, weight=part.weight if weighted else None)
        rows += len(part)
    figures = _of_a_model(known(scores.figures(len(rest.source.classes)))) if rows else {}
    rivals = _of_a_model(known(scores.baselines())) if rows else {}
    return {"rows": rows, "trained_on": tally.inserts, "metrics": figures, "baselines": rivals}


def _of_a_model(scores: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in scores.items() if name not in _OF_STREAMS and "faded" not in name}
