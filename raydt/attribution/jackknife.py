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
"""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from raydt.arrays.elementary import Floats
from raydt.attribution.cross_validation import Folds, held_out, partition
from raydt.attribution.leave_one_out import ExampleGroups, ModelPredictions, require_estimator
from raydt.errors import ConfigError, InputError
from raydt.estimators.arguments import Parametrised
from raydt.estimators.base import Estimator, Regressor
from raydt.messages import Message, message
from raydt.sessions.receipt import Receipt

Self = TypeVar("Self", bound="JackknifePlusRegressor")

#: Numbers that one interval call holds.
_NUMBERS = 1 << 24


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
        integer cuts the order into so many blocks. By default each example is a fold: the jackknife+.

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

    def fit(self: Self, X: Any, y: Any, *, ids: Any = None, subjects: Any = None) -> Self:
        """Fit a copy of the estimator; arguments and errors are those of its ``fit``."""
        if not isinstance(self.estimator, Regressor):
            raise ConfigError(message("attribution.no_regressor", given=type(self.estimator).__name__))
        estimator: Any = type(self.estimator)(**self.estimator.get_params(deep=False))
        self.estimator_ = estimator.fit(X, y, ids=ids, subjects=subjects)
        return self

    def partial_fit(self: Self, X: Any, y: Any, *, ids: Any = None, subjects: Any = None) -> Self:
        """Insert examples, which count in the intervals from then on; the first call is ``fit``."""
        if not hasattr(self, "estimator_"):
            return self.fit(X, y, ids=ids, subjects=subjects)
        self.estimator_.partial_fit(X, y, ids=ids, subjects=subjects)
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
        if not (isinstance(alpha, Real) and 0.0 < alpha < 1.0):
            raise InputError(message("attribution.alpha", alpha=alpha))
        model = self._fitted()
        with model._lock:
            rows, sparse = model._rows(X)
            found, errors = self._errors(model)
            n = len(errors)
            ends, each = np.empty((len(rows), 2)), max(1, _NUMBERS // n)
            for begin in range(0, len(rows), each):
                some = slice(begin, begin + each)
                part = {name: one[np.arange(len(rows))[some]] for name, one in sparse.items()}
                without = _without_each(ModelPredictions(model, rows[some], part), found.gone)
                if len(without) < n:
                    without = np.repeat(without, np.diff(found.held.begins), axis=0)
                ends[some] = interval(without, errors, alpha)
            return ends

    @property
    def guarantee_(self) -> Message:
        """The promise of the intervals: the theorem of the jackknife+, that of CV+, or none."""
        if not self._fitted().session_.coordinator.knows_rows:
            return message("attribution.heuristic")
        return message("attribution.jackknife_plus" if self.cv is None else "attribution.cv_plus")

    def _errors(self, model: Estimator) -> tuple[Folds, Floats]:
        """Return the folds, and how far each held-out example is from its prediction, shape (n,); kept until a change.

        The errors are in the order of ``held.slots``.
        """
        kept = model._known.get("errors")
        if kept is None or kept[0] is not self.cv:
            found = partition(model, self.cv)
            errors = np.abs(model._store().y[found.held.slots] - held_out(model, found)[0])
            model._known["errors"] = kept = self.cv, found, errors
        return kept[1:]

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


def interval(without: Floats, errors: Floats, alpha: float) -> Floats:
    """Return the ends for m rows, shape (m, 2), from predictions without each of n examples, (n, m), and errors, (n,).

    O(n m).
    """
    n, share = len(errors), Fraction(repr(float(alpha)))
    low, high = math.floor(share * (n + 1)), math.ceil((1 - share) * (n + 1))
    ends = np.empty((without.shape[1], 2))
    ends[:, 0], ends[:, 1] = -np.inf, np.inf
    if low >= 1:
        ends[:, 0] = np.partition(without - errors[:, None], low - 1, axis=0)[low - 1]
    if high <= n:
        ends[:, 1] = np.partition(without + errors[:, None], high - 1, axis=0)[high - 1]
    return ends


def _without_each(known: ModelPredictions, groups: ExampleGroups) -> Floats:
    """Return the predictions of m known rows without each of some groups, shape (groups, m)."""
    every: Floats = np.repeat(known.predicted[None], len(groups.ids), axis=0)
    for number, rows, predicted, _ in known.without(groups):
        every[number, rows] = predicted
    return every
