"""Values of examples by the models of many subsets: Shapley values and Banzhaf values, and what made a prediction.

A value of a subset is the score of the model of its rows, so that it needs a learner whose model is a function of them.
One copy of the model becomes that of each subset in turn.

*Shapley values.* The value of a group of examples is the mean, over the sizes 0 to n - 1 of a subset of the others and
over the subsets of a size, of what the group adds to the score. Sizes are *strata*: 0, 1, 2-3, 4-7, ..., doubling
(Castro et al. 2009 and 2017, Maleki et al. 2013: stratified by size, with more samples where contributions spread). A
sample of a stratum draws a size k and an order of the groups, and cuts the order into blocks of k + 1 groups. Each
group is added to the k others of its block, a random subset of them. So one model for each block tells the
contributions of all its groups, where a learner tells the predictions without each group, exactly, for the price of
its paths.

Why this design: a contribution to k others spreads about as 1 / k, so that strata of doubling sizes deserve about as
many samples each (the allocation of Wu et al. 2023, VRDS), where a permutation has as many of each size; and all
models of a sample together have as many rows as the table, in every stratum, where samplers that train a subset for
each contribution train k rows n times. Truncated walks (Ghorbani and Zou 2019) save the large sizes, whose sum they
take for 0; antithetic pairs (Mitchell et al. 2022) make permutations better, but not the order of the variance.

An estimate is unbiased for any number of samples: how many a stratum gets follows from the variance of a pilot that
is not counted. Strata are independent, and so are samples of a stratum, which give the standard errors. ``tests/
property/test_data_values.py`` has the exact values of all subsets, and the mean over all orders of four rows.

*Banzhaf values.* One sample of a subset tells of all examples (Wang and Jia, section 4.2).

Sources: Castro, Gomez and Tejada, "Polynomial calculation of the Shapley value based on sampling", Computers &
Operations Research 36 (2009), and with Molina, "Improving polynomial estimation of the Shapley value by stratified
random sampling with optimum allocation", 82 (2017); Maleki, Tran-Thanh, Hines, Rahwan and Rogers, arXiv:1306.4265;
Wu, Jia, Lin, Huang and Chang, "Variance reduced Shapley value estimation for trustworthy data valuation", Computers &
Operations Research 159 (2023); Ghorbani and Zou, "Data Shapley", ICML 2019; Mitchell, Cooper, Frank and Holmes,
"Sampling permutations for Shapley value estimation", JMLR 23 (2022); Wang and Jia, "Data Banzhaf", AISTATS 2023.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from itertools import count, islice, pairwise
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.attribution.leave_one_out import (
    ExampleGroups,
    ModelPredictions,
    groups_of,
    leave_one_out,
    of_estimator,
    of_groups,
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

#: Contributions of a stratum from which its share of the samples follows, and the least share of a stratum, squared.
_PILOT, _LEAST_SHARE = 256, 1e-3


class DataValues(NamedTuple):
    """Values of examples or subjects: a table with a line for each."""

    ids: AnyArray  #: Shape (n,): ids of examples, or subjects.
    #: Shape (n,), in units of the score; NaN of one that was in all sampled subsets, or in none.
    values: Floats
    errors: Floats  #: Shape (n,): standard errors of the values; 0 where nothing is sampled, NaN of one sample.
    samples: int  #: Contributions of each example in each stratum of sizes, on average; or subsets.
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
        ``shapley``: the mean of what an example adds to those before it, over all orders; in the mean over samples,
        values add up to the score, less that of the model without them. ``banzhaf``: the mean over all subsets of the
        others, which depends less on a noisy score. ``loo``: what it adds to all others.
    samples : int
        At most so many subsets or, of Shapley values, contributions of each example in each stratum of sizes; errors
        take two.
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
    A sample of Shapley values takes about log2(n) trainings and leaves each of n examples out as often, as
    :func:`leave_one_out` does; the values have the same bits with any number of threads. A subset takes up to one
    training.
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
    sampled = _by_strata(subsets, random_state) if method == "shapley" else _subsets(subsets, random_state)

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


@of_estimator
def influence(model: Estimator, x: Any, *, ids: Any = None) -> Influence:
    """Return the training examples to which one prediction owes most: what it would be without each.

    Parameters
    ----------
    model : estimator with live examples
    x : one row, as of ``predict``: shape (1, d)
    ids : array-like, optional
        Examples to leave out; all by default.
    """
    known = ModelPredictions(model, *model._rows(x))
    if len(known.rows) != 1:
        raise InputError(message("attribution.one_row", rows=len(known.rows)))
    groups = groups_of(model, ids, None)
    numeric, code = isinstance(model, Regressor), known.predicted[0]
    output = float(code if numeric else known.shares[0, code])
    values = np.zeros(len(groups.ids))
    for number, rows, predicted, shares in known.without(groups):
        if len(rows):
            values[number] = output - (predicted[0] if numeric else shares[0, code])
    order = np.argsort(-np.abs(values), kind="stable")
    return Influence(groups.ids[order], values[order], output, known.shown(known.predicted)[0], known.standard)


class Subsets:
    """The scores of models of subsets of some groups of examples, by one copy of the model, which becomes each.

    Examples in no group are in every subset.
    """

    def __init__(self, model: Estimator, X: Any, y: Any, groups: ExampleGroups, scoring: Any) -> None:
        self._rows, _ = model._rows(X)
        given = model._checked(y)
        require_labels(given, len(self._rows))
        self.ids, self._begins = groups.ids, groups.begins
        self._X, _ = training_rows(model, groups.slots)
        store = model._store()
        self._key, self._y, self._weight = store.id[groups.slots], store.y[groups.slots], store.weights(groups.slots)
        self._scored = scoring, X, given, model._looked_up(given)
        self._model: Any = copy.deepcopy(model)
        self._has = np.ones(len(groups.ids), dtype=np.bool_)
        self.score = self.score_of(self._has)

    def score_of(self, has: Bools) -> float:
        """Return the score of the model of the groups that a subset ``has``, shape (n,)."""
        return self._model_of(has)[1].value

    def added(self, order: Ints, size: int, most: int) -> Floats:
        """Return what each of the first ``most`` groups of an order adds to ``size`` others, shape (most,).

        The others are those of its block, of ``size + 1`` groups; what lacks in the last one is taken from the first.
        """
        added = np.empty(most)
        for begin in range(0, most, size + 1):
            has = np.zeros(len(order), dtype=np.bool_)
            has[np.take(order, np.arange(begin, begin + size + 1), mode="wrap")] = True
            known, score = self._model_of(has)
            own = [np.arange(*self._begins[[g, g + 1]]) for g in order[begin : min(begin + size + 1, most)].tolist()]
            groups = ExampleGroups.of(np.arange(len(own)), own)
            groups = groups._replace(slots=self._model._store().find(self._key[groups.slots]))
            added[begin : begin + len(own)] = of_groups(known, groups, score).values
        return added

    def _model_of(self, has: Bools) -> tuple[ModelPredictions, ValidationScore]:
        """Make the model that of a subset; its predictions of the validation rows, and their score."""
        gone, new = self._rows_of(self._has & ~has), self._rows_of(has & ~self._has)
        op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [len(gone), len(new)])
        key, weight = self._key[np.concatenate([gone, new])], None if self._weight is None else self._weight[new]
        if len(op):
            batch = self._model._next_batch(op, key, self._X[new], self._y[new], None, weight=weight)
            self._model._apply(batch)
            self._has = has.copy()
        known = ModelPredictions(self._model, self._rows, {})
        return known, ValidationScore(self._model, *self._scored, known.predicted, known.shares)

    def _rows_of(self, some: Bools) -> Ints:
        """Return the rows of some groups."""
        return np.flatnonzero(np.repeat(some, np.diff(self._begins)))


def strata_of(n: int) -> list[range]:
    """Return the sizes 0 to n - 1 in strata that double: 0, 1, 2-3, 4-7, ..."""
    edges = [0, *(1 << i for i in range((n - 1).bit_length())), n] if n else []
    return [range(*edge) for edge in pairwise(edges)]


class _Strata:
    """Strata of sizes of n groups, and samples of them: a sample has a contribution of each group."""

    def __init__(self, subsets: Subsets, seed: int) -> None:
        self._subsets, self._seed, self._n = subsets, seed, len(subsets.ids)
        self._sizes = strata_of(self._n)
        #: Shares of the strata among all sizes, shape (strata, 1).
        self.weight = np.array([[len(sizes) / self._n] for sizes in self._sizes]).reshape(-1, 1)
        #: Whether a stratum has one subset only for each group: the empty one, or all others.
        self.known = np.array([sizes in (range(1), range(self._n - 1, self._n)) for sizes in self._sizes], np.bool_)

    def sample(self, stratum: int, number: int, most: int | None = None) -> tuple[Ints, Floats]:
        """Return groups, ``most`` of them or all, and what each adds; a function of seed, stratum and number."""
        draws, sizes = np.random.default_rng([self._seed, stratum, number]), self._sizes[stratum]
        size, order = int(draws.integers(sizes.start, sizes.stop)), draws.permutation(self._n)
        most = self._n if most is None else min(most, self._n)
        return order[:most], self._subsets.added(order, size, most)

    def turns(self) -> Iterator[int]:
        """Yield the stratum of each sample: each once, then, but for those that are known, again, and by its share.

        Shares are those of Neyman: the weight times the deviation of the contributions, in a pilot of its own.
        """
        yield from range(len(self.known))
        open_ = np.flatnonzero(~self.known)
        yield from open_.tolist()
        pilots = [self.sample(stratum, 0, _PILOT)[1].var() for stratum in open_.tolist()]
        share = self.weight[open_, 0] ** 2 * np.array(pilots)
        share += max(float(share.sum()), 1.0 / self._n**2) * _LEAST_SHARE
        taken = np.full(len(open_), 2)
        while len(open_):
            turn = int((share / (taken * (taken + 1))).argmax())  # which lowers the variance most
            taken[turn] += 1
            yield int(open_[turn])


def _by_strata(subsets: Subsets, seed: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield Shapley values and their standard errors after each sample of as many strata as are not known."""
    strata = _Strata(subsets, seed)
    shape = len(strata.known), len(subsets.ids)
    total, squares, turns = np.zeros(shape), np.zeros(shape), strata.turns()
    taken = np.zeros((shape[0], 1), dtype=np.int64)
    for number in count():
        for stratum in islice(turns, shape[0] - int(strata.known.sum()) * bool(number)):
            taken[stratum] += 1
            groups, added = strata.sample(stratum, int(taken[stratum, 0]))
            total[stratum, groups] += added
            squares[stratum, groups] += added * added
        errors = np.where(strata.known[:, None], 0.0, _errors(total, squares, np.broadcast_to(taken, shape)))
        yield (strata.weight * total / taken).sum(axis=0), np.sqrt(((strata.weight * errors) ** 2).sum(axis=0))


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
