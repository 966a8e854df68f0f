"""Estimators of learners that take weights: the methods that have ``sample_weight``.

Others refuse it, and do not have it among their arguments, by which scikit-learn tells one from the other.
"""

from __future__ import annotations

from typing import Any, TypeVar

from raydt.errors import ConfigError
from raydt.estimators.arguments import distinct_labels, labels_of
from raydt.estimators.base import Estimator
from raydt.estimators.targets import Classifier, Regressor
from raydt.examples.weights import unknown_labels
from raydt.messages import message
from raydt.sessions.receipt import Receipt

Self = TypeVar("Self", bound="Weighted")
C = TypeVar("C", bound="WeightedClassifier")
R = TypeVar("R", bound="WeightedRegressor")


class Weighted(Estimator):
    """Base of both kinds."""

    def fit(self: Self, X: Any, y: Any, sample_weight: Any = None, *, ids: Any = None) -> Self:  # type: ignore[override]
        """Forget everything and build the model at once from (X, y); after an error the old model is still there.

        Parameters
        ----------
        X : array-like, data frame or Arrow table, shape (n, d)
        y : array-like, shape (n,)
        sample_weight : array-like of float, shape (n,), optional
            How many rows each row counts for: 0, or from 2**-16 to 65,535, rounded to 2**-16; 1 by default.
        ids : array-like of int, shape (n,), optional
            Stable ids; running integers by default, returned in ``row_ids_``.

        Raises
        ------
        ConfigError
            A parameter has a value that is not allowed.
        InputError
            NaN, infinite or missing values, ids that are no integers or given twice, lengths that differ.
        """
        class_weight = self._learner.traits(self._options()).reading.class_weight
        if class_weight:
            classes = distinct_labels(labels_of(y)).tolist()
            if unknown := unknown_labels(class_weight, classes):
                raise ConfigError(message("estimators.unknown_class_weight", labels=unknown, classes=classes))
        return super().fit(X, y, ids=ids, sample_weight=sample_weight)

    def replace_examples(  # type: ignore[override]
        self, ids: Any, X: Any, y: Any, *, new_ids: Any = None, digests: bool = True, sample_weight: Any = None
    ) -> Receipt:
        """Delete examples by id and insert others, in one batch: one step of a sliding window.

        All of it or, if an error is raised, nothing. Learners that collect updates apply both together, which costs
        less than :meth:`forget` and ``partial_fit``.

        Parameters
        ----------
        ids : array-like of int, shape (m,)
            The examples to delete; none are allowed.
        X : array-like, data frame or Arrow table, shape (n, d)
            At least one row; to delete only, call :meth:`forget`.
        y : array-like, shape (n,)
        new_ids : array-like of int, shape (n,), optional
            Ids of the new examples, also those of deleted ones; running integers by default, returned in ``row_ids_``.
        digests : bool
            As in :meth:`forget`.
        sample_weight : array-like of float, shape (n,), optional
            Weights of the new examples, as in :meth:`fit`.

        Raises
        ------
        UpdateError
            An id to delete is not live, a new one is, or one is given twice.
        InputError
            Values that ``partial_fit`` would refuse, or lengths that differ.
        """
        return super().replace_examples(ids, X, y, new_ids=new_ids, digests=digests, sample_weight=sample_weight)


class WeightedClassifier(Weighted, Classifier):
    """Labels are classes."""

    def partial_fit(  # type: ignore[override]
        self: C, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, ids: Any = None
    ) -> C:
        """Insert examples; all of them or, if an error is raised, none.

        Parameters
        ----------
        classes : array-like, optional
            All labels that will come, on the first call. Without it, unseen labels are added as they come.
        sample_weight : array-like of float, shape (n,), optional
            As in :meth:`fit`.
        """
        return super().partial_fit(X, y, classes, ids=ids, sample_weight=sample_weight)


class WeightedRegressor(Weighted, Regressor):
    """Labels are numbers."""

    def partial_fit(self: R, X: Any, y: Any, sample_weight: Any = None, *, ids: Any = None) -> R:  # type: ignore[override]
        """Insert examples; all of them or, if an error is raised, none. ``sample_weight`` is as in :meth:`fit`."""
        return super().partial_fit(X, y, ids=ids, sample_weight=sample_weight)
