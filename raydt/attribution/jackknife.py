"""Prediction intervals by the jackknife+ and CV+: the spread of what models without an example, or a fold, get wrong.

Source: Barber, Candes, Ramdas and Tibshirani, "Predictive inference with the jackknife+", Annals of Statistics 49
(2021), equation 7 and theorem 1. The interval of a row x is from the floor(alpha (n + 1))-th smallest of
mu_-i(x) - R_i to the ceil((1 - alpha) (n + 1))-th smallest of mu_-i(x) + R_i, where mu_-i is the model without example
i, and R_i = |y_i - mu_-i(x_i)|. It holds the label of a new row, drawn as the examples were, with a probability of at
least 1 - 2 alpha, and of about 1 - alpha in most data; of the learner the theorem asks only that the order of the
examples does not matter. No example is held out for this.

CV+ (section 3 and theorem 4) has the model without the fold of example i for mu_-i. With K folds of one size the
probability is at least 1 - 2 alpha - min(2 (1 - 1/K) / (n/K + 1), (1 - K/n) / (K + 1)), never less than
1 - 2 alpha - sqrt(2/n). The jackknife+ is CV+ with n folds.

Rows of one person are no independent examples: where subjects are declared, persons are drawn, and the jackknife+
leaves out all rows of one (Lee, Barber and Willett, "Distribution-free inference with hierarchical data",
arXiv:2306.06342: the hierarchical jackknife+). With K persons, a row of a person with N rows counts 1 / ((K + 1) N) in
both quantiles, and 1 / (K + 1) is left for infinity: the same ends where each person has one row. The promise, at least
1 - 2 alpha, is of a row of a new person. A weight is a part of its example: it counts in the models, not in the
quantiles.
"""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from raydt.arrays.elementary import Floats, Ints
from raydt.attribution.cross_validation import held_out, partition
from raydt.attribution.leave_one_out import ExampleGroups, ModelPredictions, require_estimator
from raydt.errors import ConfigError, InputError
from raydt.estimators.arguments import Parametrised
from raydt.estimators.base import Regressor
from raydt.messages import Message, message
from raydt.sessions.receipt import Receipt

Self = TypeVar("Self", bound="JackknifePlusRegressor")

#: Numbers that one interval call holds.
_NUMBERS = 1 << 24


class Intervals:
    """Distances of live labels from the predictions of a regressor without their examples, until the model changes.

    Each is predicted by the model without it, without its subject, or without its fold, once. The model is locked by
    the caller; ``cv`` is that of :class:`JackknifePlusRegressor`.
    """

    def __init__(self, model: Any, cv: Any = None) -> None:
        by_subject = _by_subject(model, cv)
        self._folds = found = partition(model, cv, "subjects" if by_subject else None)
        self._errors: Floats = np.abs(model._store().y[found.held.slots] - held_out(model, found)[0])
        rows = np.diff(found.held.begins)
        #: Rows of the subject of each example, in the order of ``held.slots``; None: each counts alike.
        self._sizes = np.repeat(rows, rows) if by_subject else None

    def of(self, model: Any, rows: Floats, sparse: dict[str, Any], alpha: float) -> Floats:
        """Return lower and upper ends for encoded rows, shape (m, 2)."""
        n, held = len(self._errors), self._folds.held
        ends, each = np.empty((len(rows), 2)), max(1, _NUMBERS // n)
        for begin in range(0, len(rows), each):
            some = slice(begin, begin + each)
            part = {name: one[np.arange(len(rows))[some]] for name, one in sparse.items()}
            without = _without_each(ModelPredictions(model, rows[some], part), self._folds.gone)
            if len(without) < n:
                without = np.repeat(without, np.diff(held.begins), axis=0)
            ends[some] = interval(without, self._errors, alpha, self._sizes)
        return ends


def _by_subject(model: Any, cv: Any) -> bool:
    return cv is None and model._subjects is not None


def guarantee_of(model: Any, cv: Any = None) -> Message:
    """Return the promise of the intervals: the theorem of the jackknife+, that of CV+, or none."""
    if not model.session_.coordinator.knows_rows:
        return message("attribution.heuristic")
    if _by_subject(model, cv):
        return message("attribution.jackknife_plus_subjects")
    return message("attribution.jackknife_plus" if cv is None else "attribution.cv_plus")


def require_alpha(alpha: float) -> None:
    """Refuse what is no share between 0 and 1."""
    if not (isinstance(alpha, Real) and 0.0 < alpha < 1.0):
        raise InputError(message("attribution.alpha", alpha=alpha))


class JackknifePlusRegressor(Parametrised):
    """Prediction intervals with a guarantee for finite samples, which follow insertions and deletions.

    Parameters
    ----------
    estimator : regressor of raydt
        A copy of it is fitted. With ``ExactForestRegressor`` the theorem holds, and no model is trained again: the
        interval after a deletion is that of a model that never had the examples. Others depend on the order of their
        examples, so that the intervals are a heuristic, and copy the model for each example or fold.
    cv : int, splitter of scikit-learn or iterable of (train, test), optional
        Folds of the live examples, oldest first, for CV+: each example is in one fold, and no fold is trained. An
        integer cuts the order into so many blocks. By default each example is a fold: the jackknife+. Where ``fit`` is
        given subjects, each subject is one: the intervals are those of rows of a new subject.

    Notes
    -----
    ``estimator_`` is the fitted model. The first ``predict_interval`` after a change predicts every example by the
    model without it, or without its fold; each call takes every fold out of the trees once more, for its rows.

    Examples
    --------
    >>> from raydt import ExactForestRegressor
    >>> from raydt.attribution import JackknifePlusRegressor
    >>> X, y = [[float(x)] for x in range(200)], [x + (-1) ** x for x in range(200)]
    >>> model = JackknifePlusRegressor(ExactForestRegressor(n_estimators=20)).fit(X, y)
    >>> low, high = model.predict_interval([[100.0]], alpha=0.1)[0]
    >>> bool(low < 100 < high)
    True
    """

    estimator_: Any

    def __init__(self, estimator: Any, cv: Any = None) -> None:
        self.estimator, self.cv = estimator, cv

    def fit(
        self: Self, X: Any, y: Any, *, sample_weight: Any = None, ids: Any = None, subjects: Any = None
    ) -> Self:  # fmt: skip
        """Fit a copy of the estimator; arguments and errors are those of its ``fit``."""
        if not isinstance(self.estimator, Regressor):
            raise ConfigError(message("attribution.no_regressor", given=type(self.estimator).__name__))
        estimator: Any = type(self.estimator)(**self.estimator.get_params(deep=False))
        self.estimator_ = estimator.fit(X, y, sample_weight=sample_weight, ids=ids, subjects=subjects)
        return self

    def partial_fit(
        self: Self, X: Any, y: Any, *, sample_weight: Any = None, ids: Any = None, subjects: Any = None
    ) -> Self:  # fmt: skip
        """Insert examples, which count in the intervals from then on; the first call is ``fit``."""
        beside = {"sample_weight": sample_weight, "ids": ids, "subjects": subjects}
        if not hasattr(self, "estimator_"):
            return self.fit(X, y, **beside)
        self.estimator_.partial_fit(X, y, **beside)
        return self

    def forget(self, ids: Any = None, *, subjects: Any = None, **rest: Any) -> Receipt:
        """Delete examples, as ``forget`` of the estimator does, from the model and from the intervals."""
        receipt: Receipt = self._fitted().forget(ids, subjects=subjects, **rest)
        return receipt

    def predict(self, X: Any) -> Floats:
        """Predictions of the model with all examples, shape (m,)."""
        numbers: Floats = self._fitted().predict(X)
        return numbers

    def score(self, X: Any, y: Any) -> float:
        """R squared of the predictions."""
        return float(self._fitted().score(X, y))

    def predict_interval(self, X: Any, alpha: float = 0.1) -> Floats:
        """Lower and upper ends of the intervals, shape (m, 2); infinite if there are too few examples for alpha.

        Parameters
        ----------
        X : as of ``predict``, m rows
        alpha : float from 0 to 1, both excluded
            The share of labels that may lie outside: at most 2 alpha by the theorem, about alpha in most data.

        Raises
        ------
        InputError
            ``alpha`` is not between 0 and 1, or the model has no example.
        ConfigError
            ``cv`` does not divide the live examples into folds.
        """
        require_alpha(alpha)
        model = self._fitted()
        with model._lock:
            kept = model._known.get("intervals")
            if kept is None or kept[0] is not self.cv:
                model._known["intervals"] = kept = self.cv, Intervals(model, self.cv)
            ends: Floats = kept[1].of(model, *model._rows(X), alpha)
            return ends

    @property
    def guarantee_(self) -> Message:
        """The promise of the intervals: the theorem of the jackknife+, that of CV+, or none."""
        return guarantee_of(self._fitted(), self.cv)

    def _fitted(self) -> Any:
        if not hasattr(self, "estimator_"):
            raise ValueError(message("estimators.not_fitted", estimator=type(self).__name__))
        require_estimator(self.estimator_)
        return self.estimator_

    def _threads(self) -> int | None:
        return self.estimator._threads() if isinstance(self.estimator, Parametrised) else None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Any:
        return self.estimator.__sklearn_tags__()


def interval(without: Floats, errors: Floats, alpha: float, sizes: Ints | None = None) -> Floats:
    """Return the ends for m rows, shape (m, 2), from predictions without each of n examples, (n, m), and errors, (n,).

    ``sizes``, shape (n,), are the rows of the person of each example: weights are whole numbers, the least that give
    all persons the same sum, so that no quantile is off by a rounding. Upper ends are the least number below or at
    which at least (1 - alpha) (persons + 1) persons lie, lower ends the same of the opposite numbers. O(n m), with
    sizes O(n log(n) m).

    Two persons with one and two rows, numbers 5, and 1 and 3, alpha = .4: weights 2, 1, 1 of 2 a person, and at least
    .6 (2 + 1) 2 = 3.6, so 4 of 4: the upper end is 5. With alpha = .5 it takes 3 of 4, and 5 still.
    """
    each = 1 if sizes is None else math.lcm(*np.unique(sizes).tolist())
    parts = np.ones(len(errors), dtype=np.int64) if sizes is None else each // sizes.astype(object)
    whole = int(parts.sum())
    parts = parts.astype(np.int64) if whole < 1 << 62 else parts
    least = math.ceil((1 - Fraction(repr(float(alpha)))) * (whole + each))
    ends = np.full((without.shape[1], 2), np.inf)
    for side, sign in enumerate((-1.0, 1.0)):
        far = sign * without + errors[:, None]
        if least <= whole and each == 1:
            ends[:, side] = np.partition(far, least - 1, axis=0)[least - 1]
        elif least <= whole:
            order = far.argsort(axis=0, kind="stable")
            place = (parts[order].cumsum(axis=0) < least).sum(axis=0)
            ends[:, side] = far[order[place, np.arange(len(place))], np.arange(len(place))]
        ends[:, side] *= sign
    return ends


def _without_each(known: ModelPredictions, groups: ExampleGroups) -> Floats:
    """Return the predictions of m known rows without each of some groups, shape (groups, m)."""
    every: Floats = np.repeat(known.predicted[None], len(groups.ids), axis=0)
    for number, rows, predicted, _ in known.without(groups):
        every[number, rows] = predicted
    return every
