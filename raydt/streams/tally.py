"""Counts and scores of one stream, as its batches are answered.

Invariant: they depend on the stream and the model only, never on how the stream was cut into batches. Nothing is
written here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from raydt.arrays.types import Bools
from raydt.encoding.times import NO_TIME
from raydt.errors import UpdateError
from raydt.evaluation.classification import Prequential
from raydt.evaluation.delayed import Asked, Delayed
from raydt.evaluation.regression import PrequentialErrors
from raydt.examples.targets import NUMBERS, Targets, classes_in, no_targets, there
from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    INSERT,
    QUERY,
    UPDATE,
    BatchResult,
    Log,
    Refusal,
    UpdateBatch,
)
from raydt.learners.description import Description
from raydt.streams.base import Skipped, Stream
from raydt.streams.refused import update_error

Mask = Bools

_INSERTS = np.zeros(len(CARRIES_ROW), dtype=bool)
_INSERTS[[INSERT, UPDATE]] = True
_DELETES = np.zeros(len(CARRIES_ROW), dtype=bool)
_DELETES[[DELETE, DELETE_VALUE, UPDATE]] = True

_COUNTS = ("updates", "inserts", "deletes", "predictions", "refused", "skipped", "replaced", "queries", "next_id")

#: Statistics of a session, which begin at 0 with each; the others are of the model, and go on with it.
_TRAFFIC = ("rounds", "bytes_exchanged")


class Tally:
    """Counts and scores of one stream, which names classes and examples, and the places of updates.

    ``replaced`` are updates of examples, each of which counts as one of ``inserts`` and one of ``deletes``; ``queries``
    rows that were only predicted. ``n_classes``: classes that the updates so far have shown; what was only read ahead
    does not count. ``next_id``: largest id (or code of an id that is text) ever inserted + 1, whatever was deleted
    since. ``statistics``: of the learner after the last batch, ``rounds`` and ``bytes_exchanged`` over all sessions
    that led there. ``seconds``: processing time that led there; what was done and lost since is not in it.
    ``first_time``, ``time``: the first and the latest event time, None before any, and of a source without times.
    ``weighted``: scores count each prediction by the weight of its row. ``early_warmup``: how the warm-up ended, if it
    ended early (:meth:`~raydt.examples.updates.UpdateBatch.early_warmup`).
    """

    def __init__(self, stream: Stream, *, weighted: bool = False) -> None:
        self._stream, self._source, self._weighted = stream, stream.source, weighted
        self.prequential: Any = (
            PrequentialErrors()
            if self._source.target_dtype == NUMBERS
            else Prequential(self._source.positive is not None, weighted=weighted)
        )
        self._delayed = Delayed(self.prequential) if stream.delayed else None
        self.updates = self.inserts = self.deletes = self.predictions = self.refused = self.skipped = 0
        self.replaced = self.queries = self.next_id = 0
        self.n_classes = self._source.known_classes
        self.early_warmup: dict[str, Any] | None = None
        self.first_time: int | None = None
        self.time: int | None = None
        self.statistics: dict[str, int] = {}
        self._earlier: dict[str, int] = {}
        self.seconds = 0.0

    @property
    def applied(self) -> int:
        """Updates so far."""
        return self.updates

    @property
    def active(self) -> int:
        """Live examples: inserted and not deleted."""
        return self.inserts - self.deletes

    def record(self, batch: UpdateBatch, result: BatchResult, seconds: float) -> None:
        """Take an answered batch, or its front, into account, after so many ``seconds`` of processing."""
        n = result.applied
        self.early_warmup = self.early_warmup or batch.early_warmup(self._stream.planned_warmup)
        op, prediction, truth = batch.op[:n], result.predictions[:n], truths(batch, n)
        self.n_classes = max(self.n_classes, classes_in(truth), classes_in(prediction))
        inserted, deleted, queried = _INSERTS[op], _DELETES[op], op == QUERY
        if result.refused:
            positions = [refusal.position for refusal in result.refused if refusal.position < n]
            inserted[positions] = deleted[positions] = queried[positions] = False
            self.refused += sum(refusal.position < n for refusal in batch.faults(result.refused))
        self.next_id = max(self.next_id, int(batch.id[:n][inserted].max(initial=-1)) + 1)
        self._score(batch, result, truth, inserted, queried)
        self._clock(batch, n)
        self.updates = batch.start + n
        self.inserts += int(np.count_nonzero(inserted))
        self.deletes += int(np.count_nonzero(deleted))
        self.replaced += int(np.count_nonzero(inserted & deleted))
        self.queries += int(np.count_nonzero(queried))
        self.predictions += int(np.count_nonzero(there(prediction)))
        self.statistics, self.seconds = self.totals(result.statistics), seconds

    def _clock(self, batch: UpdateBatch, n: int) -> None:
        """Note the latest event time of the first ``n`` updates."""
        if batch.time is not None:
            times = batch.time[: int(np.count_nonzero(CARRIES_ROW[batch.op[:n]]))]
            times = times[times != NO_TIME]
            if len(times):
                self.first_time = int(times[0]) if self.first_time is None else self.first_time
                self.time = max(int(times.max()), int(times[0]) if self.time is None else self.time)

    def _score(self, batch: UpdateBatch, result: BatchResult, truth: Targets, inserted: Mask, queried: Mask) -> None:
        rows = inserted if self._delayed is None else inserted | queried
        at = np.flatnonzero(rows)
        prediction, seq = result.predictions[at], at + batch.start
        levels = None if result.levels is None else result.levels[at]
        weight = None
        if self._weighted and batch.weight is not None:
            row = np.cumsum(CARRIES_ROW[batch.op]) - 1
            weight = batch.weight[row[at]]
        if self._delayed is None:
            self.prequential.update(truth[at], prediction, levels, seq, weight)
        else:
            self._delayed.update(Asked(batch.id[at], queried[at], truth[at], prediction, levels, seq, weight))

    def totals(self, statistics: Mapping[str, int]) -> dict[str, int]:
        """Statistics of the present session, with the traffic of those before it added."""
        return {name: count + self._earlier.get(name, 0) for name, count in statistics.items()}

    def state(self) -> dict[str, Any]:
        """All that is counted, as plain JSON values and NumPy arrays of its own."""
        return self._state(self.prequential.state())

    def narrow_state(self) -> dict[str, Any]:
        """Return the same with scores in little room (:meth:`raydt.evaluation.scoring.Evaluation.narrow_state`)."""
        return self._state(self.prequential.narrow_state())

    def _state(self, scores: dict[str, Any]) -> dict[str, Any]:
        return {
            **{name: int(getattr(self, name)) for name in (*_COUNTS, "n_classes")},
            "seconds": float(self.seconds),
            "first_time": self.first_time,
            "time": self.time,
            "statistics": {name: int(count) for name, count in self.statistics.items()},
            "prequential": scores,
            **({} if self._delayed is None else self._delayed.state()),
            **({} if self.early_warmup is None else {"early_warmup": self.early_warmup}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, in a session that has just been opened."""
        for name in (*_COUNTS, "n_classes"):
            setattr(self, name, int(state[name]))
        self.seconds, self.statistics = float(state["seconds"]), dict(state["statistics"])
        self.first_time, self.time = state.get("first_time"), state.get("time")  # an earlier version kept none
        self._earlier = {name: self.statistics.get(name, 0) for name in _TRAFFIC}
        self.early_warmup = state.get("early_warmup")
        self.prequential.restore(state["prequential"])
        if self._delayed is not None:
            self._delayed.restore(state, self._source.target_dtype)

    def record_log(self, log: Log) -> None:
        """Take the learner's own record of what it did into account."""

    def record_skipped(self, skipped: list[Skipped]) -> None:
        """Note rows that never became updates."""
        self.skipped += len(skipped)

    def update_error(self, batch: UpdateBatch, refusal: Refusal) -> UpdateError:
        """The error of a refused update: its place, its id and the remedy."""
        return update_error(self._stream, batch, refusal.position, refusal.reason)

    def outcome(self, description: Description, name: Callable[[int], str]) -> dict[str, Any]:
        """Return what the learner says of its model, with the names of features."""
        return description.outcome(self.statistics, name)

    @property
    def classes(self) -> list[str]:
        """Labels that the updates so far have shown, in the order of their codes."""
        return [str(label) for label in self._source.classes[: self.n_classes]]

    def metrics(self) -> dict[str, Any]:
        """The ``metrics`` mapping of the summary; shares as fractions, None where undefined."""
        return known(self.prequential.figures(self.n_classes))

    def times_read(self) -> dict[str, Any] | None:
        """Return column, first and latest of event times, of points in microseconds since 1970; None without."""
        if self._stream.times is None or self.time is None:
            return None
        name, kind = self._stream.times
        return {"column": name, "kind": kind, "first": self.first_time, "latest": self.time}

    def baselines(self) -> dict[str, Any]:
        """The score of the trivial predictors on the same predictions."""
        return known(self.prequential.baselines())


def truths(batch: UpdateBatch, n: int) -> Targets:
    """Targets of the first ``n`` updates; none where one carries no row."""
    carries = CARRIES_ROW[batch.op[:n]]
    truth = no_targets(n, batch.y.dtype)
    truth[carries] = batch.y[: np.count_nonzero(carries)]
    return truth


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, with None for numbers that are undefined or beyond float64, which JSON cannot hold."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }
