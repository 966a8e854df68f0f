"""Values of examples by the models of many subsets: Shapley values and Banzhaf values, and what made a prediction.

A value of a subset is the score of the model of its rows, so that it needs a learner whose model is a function of them.
One copy of the model walks from subset to subset by insertions and deletions; nothing is trained again.

Sources: Ghorbani and Zou, "Data Shapley", ICML 2019 (permutations); Mitchell, Cooper, Frank and Holmes, "Sampling
permutations for Shapley value estimation", JMLR 23 (2022) (antithetic pairs); Wang and Jia, "Data Banzhaf", AISTATS
2023 (one sample of a subset tells of all examples, section 4.2).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.attribution.leave_one_out import (
    ExampleGroups,
    ModelPredictions,
    groups_of,
    leave_one_out,
    require_estimator,
    training_rows,
)
from raydt.attribution.scores import ValidationScore
from raydt.errors import ConfigError, InputError
from raydt.estimators.arguments import require_labels
from raydt.estimators.base import Estimator, Regressor
from raydt.examples.updates import DELETE, INSERT
from raydt.messages import message
from raydt.parallel import limited_context

#: Called with the samples so far and the mean standard error.
Progress = Callable[[int, float], None]

#: Samples before the standard errors are believed.
_LEAST = 10


class DataValues(NamedTuple):
    """Values of examples or subjects: a table with a line for each."""

    ids: AnyArray  #: Shape (n,): ids of examples, or subjects.
    #: Shape (n,), in units of the score; NaN of one that was in all sampled subsets, or in none.
    values: Floats
    errors: Floats  #: Shape (n,): standard errors of the values; 0 where nothing is sampled, NaN of one sample.
    samples: int  #: Pairs of permutations, or subsets.
    score: float  #: With all examples.
    standard: str  #: What the model of a subset is.


class Influence(NamedTuple):
    """Examples by how much they move one prediction, the one that moves it most first."""

    ids: AnyArray  #: Shape (n,).
    values: Floats  #: Shape (n,): the output with all examples, less that without this one.
    output: float  #: The number that is predicted, or the share of the predicted class.
    prediction: Any  #: As of ``predict``.
    standard: str  #: What the model without an example is.


def data_values(
    model: Estimator,
    X_val: Any,
    y_val: Any,
    method: Literal["shapley", "banzhaf", "loo"] = "shapley",
    *,
    ids: Any = None,
    subjects: Any = None,
    scoring: Any = None,
    samples: int = 100,
    tolerance: float | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> DataValues:
    """Return the value of each training example for the score of a model; the model stays as it is.

    Parameters
    ----------
    model : ExactForestClassifier or ExactForestRegressor; any estimator for ``loo``
    X_val, y_val, ids, subjects, scoring
        As of :func:`leave_one_out`. Examples that are not named are in every subset.
    method : {"shapley", "banzhaf", "loo"}
        ``shapley``: the mean of what an example adds to those before it, over all orders; values add up to the score,
        less that of the model without them. ``banzhaf``: the mean over all subsets of the others, which depends less
        on a noisy score. ``loo``: what it adds to all others.
    samples : int
        At most so many pairs of a permutation and its reverse, or subsets.
    tolerance : float, optional
        Stop as soon as the mean standard error is not above it, from 10 samples on.
    random_state : int
    progress : callable, optional
        Called after each sample with the samples so far and the mean standard error.

    Raises
    ------
    ConfigError
        The model of the learner is no function of a set of rows, or there is no such method.

    Notes
    -----
    A pair of permutations takes a deletion and an insertion of each example, and after each the m rows are predicted
    again where trees have changed; a subset takes up to one training.
    """
    require_estimator(model)
    if method == "loo":
        found = leave_one_out(model, X_val, y_val, ids=ids, subjects=subjects, scoring=scoring)
        return DataValues(found.ids, found.values, np.zeros(len(found.ids)), 1, found.score, found.standard)
    if method not in ("shapley", "banzhaf"):
        raise ConfigError(message("attribution.method", method=method))
    if not isinstance(samples, Integral) or samples < 1:
        raise InputError(message("attribution.samples", samples=samples))
    if not model.session_.coordinator.knows_rows:
        raise ConfigError(message("attribution.order", estimator=type(model).__name__))
    with model._lock:
        subsets = Subsets(model, X_val, y_val, groups_of(model, ids, subjects), scoring)
    sampled = _permutations(subsets, random_state) if method == "shapley" else _subsets(subsets, random_state)

    def enough() -> tuple[int, Floats, Floats]:
        """Sample until it is enough."""
        taken, error = 0, math.inf
        while taken < samples and (tolerance is None or taken < _LEAST or not error <= tolerance):
            values, errors = next(sampled)
            taken, error = taken + 1, float(errors.mean()) if len(errors) else 0.0
            if progress is not None:
                progress(taken, error)
        return taken, values, errors

    taken, values, errors = limited_context(model._threads()).run(enough)
    return DataValues(subsets.ids, values, errors, taken, subsets.score, message("attribution.equal"))


def influence(model: Estimator, x: Any, *, ids: Any = None) -> Influence:
    """Return the training examples to which one prediction owes most: what it would be without each.

    Parameters
    ----------
    model : estimator with live examples
    x : one row, as of ``predict``: shape (1, d)
    ids : array-like, optional
        Examples to leave out; all by default.
    """
    require_estimator(model)
    with model._lock:
        known = ModelPredictions(model, *model._rows(x))
        if len(known.rows) != 1:
            raise InputError(message("attribution.one_row", rows=len(known.rows)))
        groups = groups_of(model, ids, None)
        numeric, code = isinstance(model, Regressor), known.predicted[0]
        output = float(code if numeric else known.shares[0, code])
        values = np.zeros(len(groups.ids))

        def without_each() -> None:
            for number, rows, predicted, shares in known.without(groups):
                if len(rows):
                    values[number] = output - (predicted[0] if numeric else shares[0, code])

        limited_context(model._threads()).run(without_each)
        order = np.argsort(-np.abs(values), kind="stable")
        return Influence(groups.ids[order], values[order], output, known.shown(known.predicted)[0], known.standard)


class Subsets:
    """The scores of models of subsets of some groups of examples, by one copy that walks from one to the next.

    Examples in no group are in every subset.
    """

    def __init__(self, model: Estimator, X: Any, y: Any, groups: ExampleGroups, scoring: Any) -> None:
        rows, _ = model._rows(X)
        given = model._checked(y)
        require_labels(given, len(rows))
        self.ids, self._begins = groups.ids, groups.begins
        self._X, _ = training_rows(model, groups.slots)
        store = model._store()
        self._key, self._y, self._weight = store.id[groups.slots], store.y[groups.slots], store.weights(groups.slots)
        self._model: Any = copy.deepcopy(model)
        self._has = np.ones(len(groups.ids), dtype=np.bool_)
        self._every = np.arange(len(rows))
        self._predictions = self._model.session_.live_predictions(rows, len(model._classes))
        predicted, shares = self._predictions()
        self._score = ValidationScore(model, scoring, X, given, model._looked_up(given), predicted, shares)
        self.score = self._score.value

    def score_of(self, has: Bools) -> float:
        """Return the score of the model of the groups that a subset ``has``, shape (n,)."""
        gone, new = self._rows_of(self._has & ~has), self._rows_of(has & ~self._has)
        op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [len(gone), len(new)])
        key, weight = self._key[np.concatenate([gone, new])], None if self._weight is None else self._weight[new]
        if len(op):
            batch = self._model._next_batch(op, key, self._X[new], self._y[new], None, weight=weight)
            self._model._apply(batch)
            self._has = has.copy()
        return self._score.changed(self._every, *self._predictions())

    def _rows_of(self, some: Bools) -> Ints:
        """Return the rows of some groups."""
        parts = [np.arange(self._begins[g], self._begins[g + 1]) for g in np.flatnonzero(some).tolist()]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _permutations(subsets: Subsets, seed: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield Shapley values and their standard errors after each pair of a permutation and its reverse.

    A deletion of all groups in an order tells what each adds in the reverse order; the insertion of all, in the order.
    """
    draws, n = np.random.default_rng(seed), len(subsets.ids)
    total, squares, taken = np.zeros(n), np.zeros(n), 0
    while True:
        order, has, added = draws.permutation(n), np.ones(n, dtype=np.bool_), np.zeros(n)
        for is_in in (False, True):
            before = subsets.score_of(has)
            for group in order.tolist():
                has[group] = is_in
                after = subsets.score_of(has)
                added[group] += (after - before if is_in else before - after) / 2.0
                before = after
        taken += 1
        total += added
        squares += added * added
        yield total / taken, _errors(total, squares, np.full(n, taken))


def _subsets(subsets: Subsets, seed: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield Banzhaf values and their standard errors after each subset, which tells of all groups, in it or not."""
    draws, n = np.random.default_rng(seed), len(subsets.ids)
    total, squares, taken = np.zeros((2, n)), np.zeros((2, n)), np.zeros((2, n), dtype=np.int64)
    while True:
        has = draws.random(n) < 0.5
        score = subsets.score_of(has)
        for side, of_side in enumerate((~has, has)):
            total[side] += score * of_side
            squares[side] += score * score * of_side
            taken[side] += of_side
        with np.errstate(invalid="ignore"):
            out, inside = total / taken
        yield inside - out, np.hypot(*(_errors(total[side], squares[side], taken[side]) for side in (0, 1)))


def _errors(total: Floats, squares: Floats, taken: Ints) -> Floats:
    """Return standard errors of means; NaN of fewer than two samples."""
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (squares - total * total / taken) / (taken - 1)
        errors: Floats = np.where(taken > 1, np.sqrt(np.maximum(variance, 0.0) / taken), np.nan)
    return errors
