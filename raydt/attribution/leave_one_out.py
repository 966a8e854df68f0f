"""Leave-one-out: how the score on validation rows changes without one example, or without all of a subject.

Of a learner whose model always equals the one trained on the live examples (``ExactForestClassifier``), only the
predictions that change are computed, and each is that of training without the example, bit for bit. Of others each
example is deleted from a copy of the model: what is left is the model after :meth:`forget`, within the learner's
guarantee.

Source: leave-one-out as a value of data is Cook's distance of 1977 in other words; Ghorbani and Zou (ICML 2019) name it
beside Shapley values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from raydt.arrays.blocks import SparseRows, merged
from raydt.arrays.elementary import AnyArray, Floats, Ints, Slots
from raydt.attribution.scores import ValidationScore
from raydt.errors import ConfigError, InputError
from raydt.estimators.arguments import require_labels
from raydt.estimators.base import Estimator, Regressor
from raydt.examples.store import objects
from raydt.examples.updates import Targets
from raydt.messages import message
from raydt.parallel import limited_context

F = TypeVar("F", bound=Callable[..., Any])


class LeaveOneOut(NamedTuple):
    """Values of examples or subjects: a table with a line for each."""

    ids: AnyArray  #: Shape (n,): ids of examples, or subjects.
    values: Floats  #: Shape (n,): the score with all examples, less the score without; below 0 of one that harms.
    score: float  #: With all examples.
    standard: str  #: What the model without an example is.
    #: Shape (n, m), or (n, m, classes): predictions of the validation rows without each; None if not asked for.
    predictions: AnyArray | None = None


class ExampleGroups(NamedTuple):
    """Groups of examples that are left out together: ids or subjects, and where each begins in ``slots``."""

    ids: AnyArray
    begins: Ints
    slots: AnyArray

    @staticmethod
    def of(ids: AnyArray, parts: Sequence[AnyArray]) -> ExampleGroups:
        """Return groups with these ids, of the slots in each part."""
        begins = np.cumsum([0, *map(len, parts)])
        return ExampleGroups(ids, begins, np.concatenate([np.empty(0, np.int32), *parts]))

    def part(self, begin: int, end: int) -> ExampleGroups:
        """Return the groups from ``begin`` to before ``end``; ids stay as they are."""
        begins = self.begins[begin : end + 1]
        return ExampleGroups(self.ids[begin:end], begins - begins[0], self.slots[begins[0] : begins[-1]])

    def pairs(self) -> set[tuple[int, int]]:
        """Return the number of each group with the slot of each of its examples."""
        numbers = np.repeat(np.arange(len(self.ids)), np.diff(self.begins))
        return set(zip(numbers.tolist(), self.slots.tolist(), strict=True))


def of_estimator(call: F) -> F:
    """Have a function of an estimator with examples hold its lock, and use as many threads as it says."""

    @wraps(call)
    def locked(model: Any, *arguments: Any, **named: Any) -> Any:
        require_estimator(model)
        with model._lock:
            return limited_context(model._threads()).run(call, model, *arguments, **named)

    return locked  # type: ignore[return-value]


@of_estimator
def leave_one_out(
    model: Estimator,
    X_val: Any,
    y_val: Any,
    *,
    ids: Any = None,
    subjects: Any = None,
    scoring: Any = None,
    return_predictions: Literal[False, True, "predict", "predict_proba"] = False,
) -> LeaveOneOut:
    """Return how much each training example adds to the score of a model; the model stays as it is.

    Parameters
    ----------
    model : estimator with live examples
    X_val : as of ``predict``, m rows
    y_val : array-like, shape (m,)
    ids : array-like, shape (n,), optional
        Examples to leave out, one at a time; all live ones by default, oldest first.
    subjects : array-like, shape (n,), or "all", optional
        In place of ``ids``: all examples of a subject are left out together.
    scoring : str or callable, optional
        A scorer of scikit-learn, or a callable of (model, X, y), whose model has ``predict``, ``predict_proba`` and
        ``classes_`` only. ``accuracy`` by default, ``neg_mean_squared_error`` of numbers. Fast, since only rows whose
        predictions change are scored again: these two, ``neg_log_loss`` and ``neg_brier_score``.
    return_predictions : bool, "predict" or "predict_proba"
        Whether the result has the predictions without each example, n m of them.

    Returns
    -------
    LeaveOneOut
        ``standard`` says what a model without an example is: that of training without it, bit for bit, or that after
        ``forget``.

    Raises
    ------
    UpdateError
        An id or a subject has no live example.
    InputError
        Both ids and subjects, subjects of examples that have none, or rows that ``predict`` would refuse.
    ConfigError
        ``scoring`` is no scorer, or cannot score these labels.

    Notes
    -----
    Of ``ExactForestClassifier`` O(m trees depth) once, then, for each example, O(depth P S) in each tree that holds it
    and what changes there. Threads (``n_jobs`` of the model) divide the examples, with the same result. Other learners
    copy the model for each example.

    Two equal examples hide each other: without one of them little changes. Leave out both, by a subject.

    Examples
    --------
    >>> from raydt import ExactForestClassifier
    >>> from raydt.attribution import leave_one_out
    >>> X, y = [[float(x)] for x in range(60)], [x >= 30 for x in range(60)]
    >>> y[45] = False  # a wrong label
    >>> model = ExactForestClassifier(n_estimators=20, min_samples_split=2).fit(X, y)
    >>> X_val, y_val = [[x + 0.5] for x in range(60)], [x >= 30 for x in range(60)]
    >>> found = leave_one_out(model, X_val, y_val, scoring="neg_log_loss")
    >>> int(found.ids[found.values.argmin()])
    45
    """
    if return_predictions not in (False, True, "predict", "predict_proba"):
        raise ConfigError(message("attribution.returned", given=return_predictions))
    if return_predictions == "predict_proba" and isinstance(model, Regressor):
        raise ConfigError(message("attribution.no_classes"))
    groups = groups_of(model, ids, subjects)
    given = model._checked(y_val)
    known = ModelPredictions(model, *model._rows(X_val))
    require_labels(given, len(known.rows))
    score = ValidationScore(model, scoring, X_val, given, model._looked_up(given), known.predicted, known.shares)
    return of_groups(known, groups, score, return_predictions)


def of_groups(
    known: ModelPredictions, groups: ExampleGroups, score: ValidationScore, returned: Any = False
) -> LeaveOneOut:
    """Return the values of groups for a score of known rows."""
    values = np.zeros(len(groups.ids))
    predictions: AnyArray | None = None
    if returned:
        every = known.shares if returned == "predict_proba" else known.shown(known.predicted)
        predictions = np.repeat(every[None], len(groups.ids), axis=0)
    for number, rows, predicted, shares in known.without(groups):
        values[number] = score.value - score.changed(rows, predicted, shares)
        if predictions is not None:
            predictions[number, rows] = shares if returned == "predict_proba" else known.shown(predicted)
    return LeaveOneOut(groups.ids, values, score.value, known.standard, predictions)


def require_estimator(model: Any) -> None:
    """Refuse what is no estimator with live examples."""
    if not isinstance(model, Estimator):
        raise ConfigError(message("attribution.no_estimator", given=type(model).__name__))
    model._require_fitted()
    model._require_examples()


def standard_of(model: Estimator) -> str:
    """Say what the model without an example is."""
    return message("attribution.equal" if model.session_.coordinator.knows_rows else "attribution.forgotten")


def groups_of(model: Estimator, ids: Any, subjects: Any) -> ExampleGroups:
    """Return the examples, or all examples of each subject, that a call names; all examples if it names none."""
    if ids is not None and subjects is not None:
        raise InputError(message("attribution.ids_or_subjects"))
    store = model._store()
    if subjects is None:
        slots = store.in_order_of_birth() if ids is None else model._asked(ids, None, "error").slots
        return ExampleGroups(model._shown(store.id[slots]), np.arange(len(slots) + 1), slots)
    every = isinstance(subjects, str) and subjects == "all"
    named = list(dict.fromkeys(subjects_of(model) if every else model._asked(None, subjects, "error").subjects))
    return ExampleGroups.of(objects(named), [model._asked(None, [one], "error").slots for one in named])


def subjects_of(model: Estimator) -> Any:
    """Return the subject of each live example, oldest first."""
    if model._subjects is None:
        raise InputError(message("estimators.no_subjects"))
    store = model._store()
    return model._subjects.of(store.id[store.in_order_of_birth()])


class ModelPredictions:
    """Predictions of encoded rows, shape (m, d), by a model, with and without examples.

    The model is locked by the caller, and changed by nobody meanwhile.
    """

    def __init__(self, model: Estimator, rows: Floats, sparse: dict[str, SparseRows]) -> None:
        self._model, self.rows, self._sparse = model, rows, sparse
        self._known = None
        if model.session_.coordinator.knows_rows:
            self._known = model._known_predictions(self.rows)
            self.predicted, self.shares = self._known.predicted, self._known.shares
        else:
            self.predicted, self.shares = self._by_model()
        #: What the model without an example is.
        self.standard = standard_of(model)

    def shown(self, predicted: Targets) -> AnyArray:
        """Return predictions as ``predict`` gives them."""
        return predicted if isinstance(self._model, Regressor) else self._model.classes_[predicted]  # type: ignore[attr-defined]

    def without(self, groups: ExampleGroups) -> Iterator[tuple[int, Ints, Targets, Floats]]:
        """Yield the number of a group, rows whose predictions change without it, and their predictions and shares.

        Groups without which nothing changes may be passed over.
        """
        if self._known is None:
            yield from self._one_by_one(groups, range(len(groups.ids)))
            return
        for changes in self._known.without(groups.begins, groups.slots):
            yield from self._one_by_one(groups, changes.untold.tolist())
            told = ~np.isin(changes.group, changes.untold)
            edges = np.flatnonzero(np.diff(changes.group, prepend=-1, append=-1) != 0).tolist()
            for begin, end in pairwise(edges):
                if told[begin]:
                    some = slice(begin, end)
                    number = int(changes.group[begin])
                    yield number, changes.row[some], changes.predicted[some], changes.shares[some]

    def _one_by_one(self, groups: ExampleGroups, numbers: Sequence[int]) -> Iterator[tuple[int, Ints, Targets, Floats]]:
        every, store = np.arange(len(self.rows)), self._model._store()
        for number in numbers:
            slots = groups.slots[groups.begins[number] : groups.begins[number + 1]]
            own = self._model._shown(store.id[slots]).tolist()
            with self._model.without(own):
                predictions = self._by_model()
            yield number, every, *predictions

    def _by_model(self) -> tuple[Targets, Floats]:
        predictor, classes = self._model._predictor(), self._model._classes
        predicted = predictor.predict(self.rows, **self._sparse)
        if isinstance(self._model, Regressor):
            return predicted, np.empty((len(self.rows), 0))
        return predicted, predictor.predict_proba(self.rows, len(classes), **self._sparse)


def training_rows(model: Estimator, slots: Slots) -> tuple[Floats, dict[str, SparseRows]]:
    """Return the encoded features of examples, as ``_rows`` gives those of rows to predict."""
    parts = model.session_.rows(slots)
    X = np.ascontiguousarray(np.concatenate([parts[g]["X"] for g in sorted(parts)], axis=1))
    if not model._features().sparse:
        return X, {}
    return X, {"sparse": merged([SparseRows.of_arrays(parts[g], model._features().sparse) for g in sorted(parts)])}
