"""Cross-validation by deletion: the model of a fold is the live model without the examples that the fold leaves out.

Of a learner whose model always equals the one trained on the live examples, the predictions of held-out examples are
those of training on the others, bit for bit; of others they are those after ``forget``. Scores of folds, the quality of
labels, and the errors of the jackknife+ and CV+ come from the same predictions.

Source of the quality of labels: Northcutt, Jiang and Chuang, "Confident learning", JAIR 70 (2021), equations 1 and 2;
Hampel, "The influence curve", JASA 69 (1974), for the limit of numeric labels.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints, Slots
from raydt.attribution.leave_one_out import (
    ExampleGroups,
    ModelPredictions,
    groups_of,
    of_estimator,
    standard_of,
    subjects_of,
    training_rows,
)
from raydt.attribution.scores import ValidationScore, scorer_of
from raydt.errors import ConfigError, InputError
from raydt.estimators.base import Estimator, Regressor, r_squared
from raydt.examples.updates import Targets
from raydt.messages import message
from raydt.parallel import threads

#: Held-out examples that are predicted at once, each by the model without its fold; whoever knows fewer builds less.
_TOGETHER = 64

#: A numeric label is suspect if it is this many medians of the residuals away: 3 deviations of normal residuals.
_FAR = 3 * 1.4826


class Folds(NamedTuple):
    """The examples that the model of each fold lacks, and those that it predicts; often the same ones."""

    gone: ExampleGroups
    held: ExampleGroups

    def part(self, begin: int, end: int) -> Folds:
        """Return the folds from ``begin`` to before ``end``."""
        return Folds(self.gone.part(begin, end), self.held.part(begin, end))


class LabelQuality(NamedTuple):
    """Agreement of each label with a model that lacks its example: a table with a line for each, oldest first."""

    ids: AnyArray  #: Shape (n,).
    quality: Floats  #: Shape (n,), from 0 to 1: the lower, the more likely the label is wrong.
    predicted: AnyArray  #: Shape (n,): the label, or number, that the model without the example predicts.
    suspect: Bools  #: Shape (n,): True of labels that confident learning, or Hampel's limit, takes for wrong.
    shares: Floats  #: Shape (n, classes), by the model without the example, as cleanlab takes them; (n, 0) of numbers.
    standard: str  #: What a model without an example is.


@of_estimator
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
    numeric = isinstance(model, Regressor)
    scorer = (_r_squared if numeric else None) if scoring is None else scorer_of(scoring)
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


@of_estimator
def label_quality(model: Estimator, cv: Any = None, *, groups: Any = None) -> LabelQuality:
    """Return how likely the label of each live example is right, by the model without the example; nothing is trained.

    Of classes the quality is the *self-confidence*: the share that the model without the example gives to its label.
    A label is suspect if another class has a share of at least the mean self-confidence of the examples with that
    label, and the class with the greatest such share is not the label. Of numbers the quality is m / (m + r) for a
    residual of r and the median m of all residuals; a label with r > 4.45 m is suspect.

    Parameters
    ----------
    model : estimator with live examples
    cv : int, splitter of scikit-learn or iterable of (train, test), optional
        Folds to leave out in place of single examples; each live example is in one. Places count the live examples,
        oldest first.
    groups : array-like, shape (n,), or "subjects", optional
        Examples that do not vouch for each other: each group is left out as a whole, or ``cv`` keeps it together.

    Raises
    ------
    ConfigError
        ``cv`` does not put each live example into one fold.
    InputError
        ``groups`` is "subjects", but the examples have none, or there is no example.

    Notes
    -----
    The cost is that of :func:`leave_one_out` for one validation row: O(depth P S) in each tree of
    ``ExactForestClassifier`` that holds the example, and what changes there. Other learners copy the model for each.

    Examples
    --------
    >>> from raydt import ExactForestClassifier
    >>> from raydt.attribution import label_quality
    >>> X, y = [[float(x)] for x in range(60)], [x >= 30 for x in range(60)]
    >>> y[45] = False  # a wrong label
    >>> found = label_quality(ExactForestClassifier(n_estimators=20).fit(X, y))
    >>> int(found.ids[found.quality.argmin()])
    45
    """
    found = partition(model, cv, groups)
    slots = model._store().in_order_of_birth()
    order = np.argsort(found.held.slots)
    place = order[np.searchsorted(found.held.slots, slots, sorter=order)]
    predicted, shares = held_out(model, found)
    return quality_of(model, slots, predicted[place], shares[place])


def quality_of(model: Estimator, slots: Slots, predicted: Targets, shares: Floats) -> LabelQuality:
    """Return the quality of the labels of all live examples, whose predictions are those without each."""
    store = model._store()
    y = store.y[slots]
    if isinstance(model, Regressor):
        residuals = np.abs(y - predicted)
        median = float(np.median(residuals)) if len(y) else 0.0
        quality = np.where(residuals > 0.0, median / np.where(residuals > 0.0, median + residuals, 1.0), 1.0)
        suspect = residuals > _FAR * median
    else:
        quality = shares[np.arange(len(y)), y]
        number = np.bincount(y, minlength=shares.shape[1])
        least = np.bincount(y, quality, len(number)) / np.where(number, number, np.nan)  # NaN of a class without rows
        likely = np.where(shares >= least, shares, -1.0)
        suspect = (likely.max(axis=1, initial=-1.0) >= 0.0) & (likely.argmax(axis=1) != y)
        predicted = model.classes_[predicted]  # type: ignore[attr-defined]
    return LabelQuality(model._shown(store.id[slots]), quality, predicted, suspect, shares, standard_of(model))


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
    named = _group_labels(model, groups)
    try:
        splits = list(check_cv(cv, labels, classifier=not numeric).split(np.zeros(len(slots)), labels, named))
        trains, tests = ([np.arange(len(slots))[split[side]] for split in splits] for side in (0, 1))
    except (TypeError, ValueError, IndexError) as error:
        raise ConfigError(message("attribution.cv", cv=cv, rows=len(slots), reason=error)) from error
    if any(len(np.unique(train)) < len(train) for train in trains):
        raise ConfigError(message("attribution.repeated", cv=cv))
    gone = [np.setdiff1d(np.arange(len(slots)), train, assume_unique=True) for train in trains]
    return Folds(_groups(gone, slots), _groups(tests, slots))


def _group_labels(model: Estimator, groups: Any) -> Any:
    """Return the label of the group of each live example, oldest first: its subject for the word "subjects"."""
    if not isinstance(groups, str):
        return groups if groups is None else np.asarray(groups).tolist()
    if groups != "subjects":
        raise ConfigError(message("attribution.groups", groups=groups))
    return subjects_of(model)


def partition(model: Estimator, cv: Any, groups: Any = None) -> Folds:
    """Return folds of which one holds out each live example, and all that is left out; of single examples by default.

    Without ``cv`` each of the ``groups`` is a fold.
    """
    every = groups_of(model, None, None)
    if not len(every.slots):
        raise InputError(message("attribution.no_examples"))
    if cv is None and groups is None:
        return Folds(every, every)
    if cv is None:
        numbers: dict[Any, int] = {}
        fold = [numbers.setdefault(one, len(numbers)) for one in _group_labels(model, groups)]
        if len(fold) != len(every.slots):
            reason = message("attribution.group_labels", given=len(fold))
            raise ConfigError(message("attribution.cv", cv=cv, rows=len(every.slots), reason=reason))
        sizes = np.cumsum(np.bincount(fold, minlength=1))[:-1]
        each = _groups(np.split(np.argsort(fold, kind="stable"), sizes), every.slots)
        return Folds(each, each)
    found = folds(model, cv, groups)
    pairs = found.held.pairs()
    if sorted(slot for _, slot in pairs) != np.sort(every.slots).tolist() or pairs != found.gone.pairs():
        raise ConfigError(message("attribution.no_partition", cv=cv))
    return found


def _groups(parts: list[Ints], slots: AnyArray) -> ExampleGroups:
    return ExampleGroups.of(np.arange(len(parts)), [slots[part] for part in parts])


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
