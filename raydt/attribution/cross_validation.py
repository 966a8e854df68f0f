"""Cross-validation by deletion: the model of a fold is the live model without the examples that the fold leaves out.

Of a learner whose model always equals the one trained on the live examples, the predictions of held-out examples are
those of training on the others, bit for bit; of others they are those after ``forget``. The jackknife+ and CV+ take
their errors from the same predictions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.elementary import AnyArray, Floats, Ints
from raydt.attribution.leave_one_out import ExampleGroups, ModelPredictions, require_estimator, training_rows
from raydt.attribution.scores import ValidationScore, scorer_of
from raydt.errors import ConfigError, InputError
from raydt.estimators.base import Estimator, Regressor, r_squared
from raydt.examples.updates import Targets
from raydt.messages import message
from raydt.parallel import limited_context, threads

#: Held-out examples that are predicted at once, each by the model without its fold; whoever knows fewer builds less.
_TOGETHER = 64


class Folds(NamedTuple):
    """The examples that the model of each fold lacks, and those that it predicts; often the same ones."""

    gone: ExampleGroups
    held: ExampleGroups

    def part(self, begin: int, end: int) -> Folds:
        """Return the folds from ``begin`` to before ``end``."""
        return Folds(self.gone.part(begin, end), self.held.part(begin, end))


def cross_val_score_by_deletion(
    model: Estimator, cv: Any = None, *, groups: Any = None, scoring: Any = None
) -> Floats:  # fmt: skip
    """Return the score of each fold of the live examples, whose model lacks the fold; the model stays as it is.

    Of ``ExactForestClassifier`` and ``ExactForestRegressor`` equal to scikit-learn's ``cross_val_score(model, X, y,
    cv=cv, params={"ids": ids})``, bit for bit, where (X, y) are the live examples in the order of ``live_ids_``, and
    each class and category occurs in what every fold is trained on.

    Parameters
    ----------
    model : estimator with live examples
    cv : int, splitter of scikit-learn or iterable of (train, test), optional
        As of ``cross_val_score``; places count the live examples, oldest first.
    groups : array-like, shape (n,), or "subjects", optional
        What a splitter such as ``GroupKFold`` keeps together: a label for each live example, or its subject.
    scoring : str or callable, optional
        A scorer of scikit-learn, or a callable of (model, X, y) as of :func:`leave_one_out`, whose X is encoded.
        Accuracy by default, R squared of numbers.

    Returns
    -------
    ndarray of float, shape (folds,)

    Raises
    ------
    ConfigError
        scikit-learn is not installed, ``cv`` does not divide the examples, or ``scoring`` cannot score them.
    InputError
        ``groups`` is "subjects", but the examples have none.

    Notes
    -----
    The smaller the folds, the cheaper than training: of a fold of a fifth of the examples most of each tree is built
    again, of leave-one-out hardly anything. Threads divide the folds.

    Examples
    --------
    >>> from raydt import ExactForestClassifier
    >>> from raydt.attribution import cross_val_score_by_deletion
    >>> X, y = [[float(x)] for x in range(60)], [x >= 30 for x in range(60)]
    >>> model = ExactForestClassifier(n_estimators=20).fit(X, y)
    >>> len(cross_val_score_by_deletion(model, cv=20))
    20
    """
    require_estimator(model)
    with model._lock:
        return limited_context(model._threads()).run(_scores, model, cv, groups, scoring)


def _scores(model: Estimator, cv: Any, groups: Any, scoring: Any) -> Floats:
    numeric = isinstance(model, Regressor)
    if scoring is None:
        scorer: Any = _r_squared if numeric else "accuracy"
    else:
        scorer = scorer_of(scoring)
    found = folds(model, cv, groups)
    predicted, shares = held_out(model, found)
    slots, y = found.held.slots, model._store().y
    scores = np.empty(len(found.held.ids))
    for fold, (begin, end) in enumerate(pairwise(found.held.begins.tolist())):
        truth, X = y[slots[begin:end]], training_rows(model, slots[begin:end])[0]
        given = truth if numeric else model.classes_[truth]  # type: ignore[attr-defined]
        own = predicted[begin:end], shares[begin:end]
        scores[fold] = ValidationScore(model, scorer, X, given, truth, *own).value
    return scores


def _r_squared(given: Any, X: Any, y: Any) -> float:
    return r_squared(y, given.predict(X), None)


def folds(model: Estimator, cv: Any, groups: Any = None) -> Folds:
    """Return the folds that a splitter of scikit-learn makes of the live examples, oldest first."""
    try:
        from sklearn.model_selection import check_cv
    except ImportError:
        raise ConfigError(message("attribution.no_folds")) from None
    store = model._store()
    slots = store.in_order_of_birth()
    numeric, y = isinstance(model, Regressor), store.y[slots]
    labels = y if numeric else model.classes_[y]  # type: ignore[attr-defined]
    if isinstance(groups, str):
        if groups != "subjects":
            raise ConfigError(message("attribution.groups", groups=groups))
        if model._subjects is None:
            raise InputError(message("estimators.no_subjects"))
        groups = model._subjects.of(store.id[slots])
    try:
        splits = list(check_cv(cv, labels, classifier=not numeric).split(np.zeros(len(slots)), labels, groups))
        trains, tests = ([np.arange(len(slots))[split[side]] for split in splits] for side in (0, 1))
    except (TypeError, ValueError, IndexError) as error:
        raise ConfigError(message("attribution.cv", cv=cv, rows=len(slots), reason=error)) from error
    if any(len(np.unique(train)) < len(train) for train in trains):
        raise ConfigError(message("attribution.repeated", cv=cv))
    gone = [np.setdiff1d(np.arange(len(slots)), train, assume_unique=True) for train in trains]
    return Folds(_groups(gone, slots), _groups(tests, slots))


def _groups(parts: list[Ints], slots: AnyArray) -> ExampleGroups:
    begins = np.cumsum([0, *map(len, parts)])
    return ExampleGroups(np.arange(len(parts)), begins, slots[np.concatenate([np.empty(0, np.int64), *parts])])


def held_out(model: Estimator, found: Folds) -> tuple[Targets, Floats]:
    """Return predictions and shares of ``found.held.slots``, each by the model without the fold it is held out in.

    The model is locked by the caller. Some folds at a time have their examples as known rows.
    """
    begins, every = found.held.begins, len(found.held.ids)
    predicted: list[Targets] = [model._store().y[:0]]
    shares: list[Floats] = []
    begin = 0
    while begin < every:
        end = min(every, begin + threads())
        while end < every and begins[end] - begins[begin] < _TOGETHER:
            end += 1
        some = found.part(begin, end)
        slots, places = np.unique(some.held.slots, return_inverse=True)
        known = ModelPredictions(model, *training_rows(model, slots))
        own, own_shares = known.predicted[places], known.shares[places]
        for fold, rows, changed, changed_shares in known.without(some.gone):
            place = np.full(len(slots), -1)
            place[rows] = np.arange(len(rows))
            here = np.arange(some.held.begins[fold], some.held.begins[fold + 1])
            of_row = place[places[here]]
            here, of_row = here[of_row >= 0], of_row[of_row >= 0]
            own[here], own_shares[here] = changed[of_row], changed_shares[of_row]
        predicted.append(own)
        shares.append(own_shares)
        begin = end
    return np.concatenate(predicted), np.concatenate(shares) if shares else np.empty((0, 0))
