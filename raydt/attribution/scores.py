"""Scores of predictions that are known, so that a score follows the few predictions that change.

A score that is a mean over rows (accuracy, log loss, Brier score, squared error) is computed again for the rows whose
prediction has changed, and equals that of all predictions to the last bit: the same numbers are added up in the same
order. Any other scorer of scikit-learn gets a stand-in for the model, whose predictions are given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from raydt.arrays.elementary import AnyArray, Floats, Ints
from raydt.errors import ConfigError
from raydt.estimators.base import Estimator, Regressor
from raydt.examples.updates import Targets
from raydt.messages import message

#: Score of each row, greater is better, from class codes or numbers, shares of the classes, and what is true.
RowScore = Callable[[Targets, Floats, Targets], Floats]

#: Shares are taken to be this far from 0 and 1 at least, as scikit-learn does.
_EPS = float(np.finfo(np.float64).eps)


def _right(predicted: Targets, shares: Floats, truth: Targets) -> Floats:
    right: Floats = (predicted == truth).astype(np.float64)
    return right


def _shares_of(shares: Floats, truth: Targets) -> Floats:
    """Return the share of the true class of each row, 0 of a label that no example has had."""
    known = truth >= 0
    of_truth: Floats = np.where(known, shares[np.arange(len(truth)), np.where(known, truth, 0).astype(np.int64)], 0.0)
    return of_truth


def _log_loss(predicted: Targets, shares: Floats, truth: Targets) -> Floats:
    logs: Floats = np.log(np.clip(_shares_of(shares, truth), _EPS, 1.0 - _EPS))
    return logs


def _brier(predicted: Targets, shares: Floats, truth: Targets) -> Floats:
    right = _shares_of(shares, truth)
    squares: Floats = (shares * shares).sum(axis=1) - 2.0 * right + 1.0
    return -squares / 2.0 if shares.shape[1] <= 2 else -squares


def _squared_error(predicted: Targets, shares: Floats, truth: Targets) -> Floats:
    return -((predicted - truth) ** 2).astype(np.float64)


#: Scores that are means over rows, by scikit-learn's names.
OF_CLASSES: dict[str, RowScore] = {"accuracy": _right, "neg_log_loss": _log_loss, "neg_brier_score": _brier}
OF_NUMBERS: dict[str, RowScore] = {"neg_mean_squared_error": _squared_error}


class _GivenPredictions:
    """Stands for a model whose predictions of some rows are given; scorers of scikit-learn take it."""

    def __init__(self, model: Estimator, predicted: AnyArray) -> None:
        self._model, self._predicted = model, predicted

    def fit(self, X: Any, y: Any) -> None:
        """Do nothing: scorers want a model that has this method."""

    def predict(self, X: Any) -> AnyArray:
        """Return the given predictions."""
        return self._predicted

    def __sklearn_tags__(self) -> Any:
        return self._model.__sklearn_tags__()

    def __sklearn_is_fitted__(self) -> bool:
        return True


class _GivenClasses(_GivenPredictions):
    """Stands for a classifier with given predictions; its classes are sorted, as scorers take the last for positive."""

    def __init__(self, model: Estimator, predicted: AnyArray, shares: Floats) -> None:
        super().__init__(model, predicted)
        labels = model.classes_  # type: ignore[attr-defined]
        order = np.argsort(labels, kind="stable")
        self.classes_, self._shares = labels[order], shares[:, order]

    def predict_proba(self, X: Any) -> Floats:
        """Return the given shares of ``classes_``."""
        return self._shares


class ValidationScore:
    """The score of a model on validation rows, as predictions of some of them change.

    ``truth`` are class codes, or numbers, shape (m,); ``predicted`` and ``shares`` are those with all examples.
    """

    def __init__(
        self, model: Estimator, scoring: Any, X: Any, y: Any, truth: Targets, predicted: Targets, shares: Floats
    ) -> None:
        numeric = isinstance(model, Regressor)
        by_row = OF_NUMBERS if numeric else OF_CLASSES
        scoring = next(iter(by_row)) if scoring is None else scoring
        self._truth, self._predicted, self._shares = truth, predicted, shares
        self._row_score = by_row.get(scoring) if isinstance(scoring, str) else None
        if self._row_score is not None:
            self._rows = self._row_score(predicted, shares, truth)
            self.value = float(self._rows.mean())  #: With all examples.
            return
        self._scoring, self._scorer, self._model, self._X, self._y = scoring, scorer_of(scoring), model, X, y
        self._labels = None if numeric else model.classes_  # type: ignore[attr-defined]
        self.value = self._of_all(predicted, shares)

    def changed(self, rows: Ints, predicted: Targets, shares: Floats) -> float:
        """Return the score where some rows have other predictions. O(m) additions, or what the scorer takes."""
        if self._row_score is not None:
            every = self._rows.copy()
            every[rows] = self._row_score(predicted, shares, self._truth[rows])
            return float(every.mean())
        all_predicted, all_shares = self._predicted.copy(), self._shares.copy()
        all_predicted[rows], all_shares[rows] = predicted, shares
        return self._of_all(all_predicted, all_shares)

    def _of_all(self, predicted: Targets, shares: Floats) -> float:
        if self._labels is None:
            given = _GivenPredictions(self._model, predicted)
        else:
            given = _GivenClasses(self._model, self._labels[predicted], shares)
        try:
            return float(self._scorer(given, self._X, self._y))
        except (TypeError, ValueError) as error:
            if callable(self._scoring):
                raise
            raise ConfigError(message("attribution.unfit", scoring=self._scoring, reason=error)) from error


def scorer_of(scoring: Any) -> Callable[..., float]:
    """Return what scores a model: a callable as it is, or scikit-learn's scorer of this name."""
    if callable(scoring):
        scorer: Callable[..., float] = scoring
        return scorer
    try:
        from sklearn.metrics import get_scorer
    except ImportError:
        raise ConfigError(message("attribution.no_sklearn", scoring=scoring)) from None
    try:
        found: Callable[..., float] = get_scorer(scoring)
    except (TypeError, ValueError) as error:
        raise ConfigError(message("attribution.scoring", scoring=scoring)) from error
    return found
