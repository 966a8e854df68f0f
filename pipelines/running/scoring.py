"""The score of a training run: a model trained on the rest of the rows predicts those that are held out.

Invariant: the predictions are those of the saved model (``raydt predict``). The score is a function of source,
learner and share. It is known before the model of the run, which is trained on all rows, has seen one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.config import Config
from pipelines.running.intake import Incarnations, Intake, feed
from pipelines.running.keyed import job_of
from pipelines.saved_runs import keyed_stream, open_stream
from raydt.encoding.columns import number_of
from raydt.evaluation.holdout import HoldOutScores, levels_of
from raydt.examples.updates import NUMBERS, UNIT, Features
from raydt.keyed.members import Member, Members
from raydt.keyed.session import scores_of
from raydt.keyed.stream import ROWS, KeyedStream
from raydt.learners import learners
from raydt.parallel import work_seconds
from raydt.sessions.session import Session
from raydt.streams.base import Tally, known
from raydt.streams.windows import ALL_ROWS, HoldOut, Rest, Training, TrainingStream

#: Event in the log that has the score.
SCORED = "holdout_scored"

#: Scores that follow the stream, which a fixed model does not.
_OF_STREAMS = ("alarms", "kappa_temporal", "no_change")

#: Rows predicted at a time.
_ROWS = 1 << 14

#: Parts of the rows to train on for which a learning curve has a point, beside the whole.
PARTS = (0.125, 0.25, 0.5)


def score_holdout(config: Config, incarnations: Incarnations) -> dict[str, Any]:
    """Return the entry ``holdout`` of a training run's summary: :func:`scored`, ``share`` and ``seconds``."""
    assert isinstance(config.stream, Training)
    found: dict[str, Any] = {"share": config.stream.holdout, "rows": 0, "trained_on": 0, "seconds": 0.0}
    found |= {"metrics": {}, "baselines": {}}
    if not config.stream.holdout:
        return found
    began = work_seconds()

    def of_part(part: float) -> dict[str, Any]:
        _, stream = open_stream(config)
        if isinstance(stream, KeyedStream):
            return scored_by_key(config, stream, part)
        session = incarnations.open()
        assert isinstance(stream, TrainingStream)
        return scored(config, session, stream.rest(part), incarnations.features)

    curve = [of_part(part) for part in parts_of(config)]
    found |= of_part(1.0)
    if curve and found["rows"]:
        points = [{"trained_on": one["trained_on"], **_plain(one["metrics"])} for one in [*curve, found]]
        found["learning_curve"] = points
    return {**found, "seconds": work_seconds() - began}


def parts_of(config: Config) -> tuple[float, ...]:
    """Return the parts of the rows to train on for which a learning curve has a point, without the whole."""
    curve = isinstance(config.stream, Training) and config.stream.holdout > 0.0 and config.stream.learning_curve
    return PARTS if curve else ()


def scored(config: Config, session: Session, rest: Rest, features: Features) -> dict[str, Any]:
    """Train on ``rest`` and return scores of the rows held out; InputError or UpdateError for a bad one."""
    weighted = config.output.weighted_metrics
    tally, intake = Tally(rest, weighted=weighted), Intake(rest, config.cluster.batch_size, ALL_ROWS)
    feed(config, session, intake, tally)
    if intake.error is not None:
        raise intake.error
    learner, scores = learners()[config.learner.kind], tally.prequential
    predictor = learner.predictor(config.learner, features, session.model())
    classes, numbers = len(rest.source.classes), rest.source.target_dtype == NUMBERS
    labels = np.zeros(0) if numbers else scores.inserted / max(1, int(scores.inserted.sum()))
    found = HoldOutScores(
        (scores, Tally(rest, weighted=weighted).prequential), labels, features, UNIT if weighted else 1
    )
    found.observe(getattr(predictor, "importances", None))
    for part in rest.held_out(_ROWS) if tally.inserts else ():
        sparse: dict[str, Any] = {} if part.sparse is None else {"sparse": part.sparse}
        shares = None if numbers else predictor.predict_proba(part.X, max(2, classes), **sparse)
        predicted = np.asarray(predictor.predict(part.X, **sparse)).astype(part.y.dtype)
        found.add(part, predicted, shares, np.full(len(part), scores.rivals_now()[1], dtype=part.y.dtype))
    told: dict[str, Any] = {"by": rest.holdout.by, "rows": found.rows, "trained_on": tally.inserts}
    if not found.rows:
        return {**told, "metrics": {}, "baselines": {}}
    by_value = learner.traits(config.learner).reading.by_value
    names = {
        name: {float(number_of(value) if by_value else code): value for code, value in enumerate(values)}
        for name, values in rest.source.state().get("categories", {}).items()
    }
    return {**told, **_outcome(found, scores, classes), "segments": found.segments(names)}


def scored_by_key(config: Config, stream: Any, part: float = 1.0) -> dict[str, Any]:
    """Train a model of each key on its rows that are not held out, or on a part of these; return pooled scores.

    ``of_keys`` has the scores of each key that has rows held out, and the constant is that of the key. Rows of a key
    without a row to train on have no prediction (``without_model``). All work is done in this process.
    """
    assert isinstance(config.stream, Training)
    job, size = job_of(config, stream), config.cluster.batch_size * ROWS
    held, source, members = HoldOut(config.stream, open_stream(config)[0]), stream.source, Members(job)
    for batch in stream.batches(size):
        members.learn(job.shared.split(batch.rows[_good(batch.rows) & held.rest(batch.rows, part)]))
    members.finish()
    weighted, numbers = config.output.weighted_metrics, source.target_dtype == NUMBERS
    classes, predictors, counts, lacking = list(source.classes), dict[Any, Any](), Counter[Any](), 0
    code_of = {label: code for code, label in enumerate(classes)}
    scores = Tally(stream, weighted=weighted).prequential
    constant = Tally(stream, weighted=weighted).prequential
    found = HoldOutScores((scores, constant), np.zeros(0), job.features, UNIT if weighted else 1)
    for batch in keyed_stream(config, source).batches(size):
        for key, rows, _ in job.shared.split(batch.rows[_good(batch.rows) & held.of(batch.rows)]):
            member = members.by_key.get(key) if key is not None else None
            if member is None or not member.tally.inserts:
                lacking += len(rows)
                continue
            truth = rows.y.copy()  # by the codes of all keys
            member.source.give(rows)
            for own in member.source.rows(member.source.count_rows() - len(rows)):
                good = _good(own)
                if key not in predictors:
                    predictors[key] = job.learner.predictor(job.options, job.features, member.session.model())
                counts[key] += int(good.sum())
                own, scorer = own[good], (found, member, predictors[key])
                _add_of_key(*scorer, own, truth[good], None if numbers else code_of, own.weight if weighted else None)
    told = {"by": held.by, "rows": found.rows, "trained_on": sum(one.tally.inserts for one in members.by_key.values())}
    if not found.rows:
        return {**told, "metrics": {}, "baselines": {}, "without_model": lacking}
    scored = [one for one in members.by_key.values() if counts[one.key]]
    return {
        **told,
        **_outcome(found, scores, len(classes)),
        "segments": [],
        "without_model": lacking,
        "of_keys": [
            {"key": one.key, "predictions": counts[one.key], **known(row)}
            for one, row in zip(scored, scores_of(scored), strict=True)
        ],
    }


def _good(rows: Any) -> Any:
    """Return which rows are not bad, shape (n,)."""
    good = np.ones(len(rows), dtype=np.bool_)
    good[list(rows.bad)] = False
    return good


def _add_of_key(
    found: HoldOutScores,
    member: Member,
    predictor: Any,
    own: Any,
    truth: Any,
    code_of: Mapping[Any, int] | None,
    weight: Any,
) -> None:
    """Score rows of a key, coded as its model codes them; ``truth`` and ``code_of`` have the codes of all keys."""
    evaluation, sparse = member.tally.prequential, {} if own.sparse is None else {"sparse": own.sparse}
    predicted = np.asarray(predictor.predict(own.X, **sparse)).astype(own.y.dtype)
    rival = np.full(len(own), evaluation.rivals_now()[1], dtype=own.y.dtype)
    if code_of is None:
        evaluation.score(own.y, predicted, (rival, rival), weight=weight)
        found.add(own, predicted, None, rival)
        return
    codes = np.array([code_of[label] for label in member.source.classes], dtype=own.y.dtype)
    shares = np.zeros((len(own), max(2, len(code_of))))
    of_key = predictor.predict_proba(own.X, max(2, len(codes)), **sparse)
    evaluation.score(own.y, predicted, (rival, rival), levels_of(of_key), weight=weight)
    shares[:, codes] = of_key[:, : len(codes)]
    prior = np.zeros(shares.shape[1])
    inserted = evaluation.inserted[: len(codes)]
    prior[codes[: len(inserted)]] = inserted / max(1, int(inserted.sum()))
    found.add(replace(own, y=truth), codes[predicted], shares, codes[rival], prior)


def _outcome(found: HoldOutScores, scores: Any, classes: int) -> dict[str, Any]:
    """Return the scores of model and constant, and the curves."""
    model, constant = found.scores()
    return {
        "metrics": _of_a_model(known({**model, **scores.figures(classes)})),
        "baselines": _of_a_model(known(scores.baselines())),
        "constant": _of_a_model(known(constant)),
        "difference": found.difference(),
        **found.curves(),
    }


def _of_a_model(scores: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in scores.items() if name not in _OF_STREAMS and "faded" not in name}


def _plain(scores: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in scores.items() if name != "confusion"}
