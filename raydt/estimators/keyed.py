"""Models by key as scikit-learn style estimators: a classifier and a regressor for each store, zone or customer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from raydt.arrays.types import AnyArray, Floats
from raydt.errors import InputError
from raydt.estimators.arguments import distinct_labels, labels_of, numbers_of
from raydt.estimators.keyed_base import Keyed
from raydt.estimators.named import Beside
from raydt.estimators.targets import Classifier, Regressor, accuracy, r_squared, with_unseen
from raydt.messages import message

C = TypeVar("C", bound="KeyedClassifier")
R = TypeVar("R", bound="KeyedRegressor")


@dataclass(repr=False, eq=False)
class KeyedClassifier(Keyed):
    """A classifier for each value of a key, which is, bit for bit, the one of the rows of its key alone.

    Parameters
    ----------
    estimator : Classifier
        One of raydt's classifiers, not fitted; each key gets a copy.
    key : str, optional
        Column of frames whose values, text or integers, say which model a row belongs to. Without it, calls take
        ``keys``.
    unknown : {"error", "prior"}, default "error"
        What ``predict`` does about rows of keys without a model: refuse them, all in one error, or answer with the
        shares of the classes among the live rows of all keys. ``has_model`` counts them.

    Notes
    -----
    A key whose rows are all deleted keeps its model without rows. Classes, categories, warm-up and dictionaries belong
    to the key. A call takes O(keys of its rows) calls of inner estimators.

    Examples
    --------
    >>> from raydt import FullyDynamicTreeClassifier, KeyedClassifier
    >>> X = [[0.0], [1.0], [0.0], [1.0]]
    >>> model = KeyedClassifier(FullyDynamicTreeClassifier()).partial_fit(X, [0, 1, 1, 1], keys=["a", "a", "b", "b"])
    >>> receipt = model.forget([0])
    >>> model.predict([[0.0], [0.0]], keys=["a", "b"]).tolist(), sorted(model.models_), receipt.active
    ([1, 1], ['a', 'b'], 3)
    """

    estimator: Any
    key: str | None = None
    unknown: Literal["error", "prior"] = field(default="error", kw_only=True)

    classes_: AnyArray = field(init=False)  #: Labels of all keys, in the order of the columns of ``predict_proba``.
    _declared: bool = field(init=False)
    _inner, _example = Classifier, "FullyDynamicTreeClassifier"

    def partial_fit(
        self: C,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        keys: Any = None,
        ids: Any = None,
        subjects: Any = None,
    ) -> C:
        """Insert examples into the models of their keys; all of them or, if an error is raised, none.

        Parameters
        ----------
        classes : array-like, optional
            All labels that will come, on the first call; also those of keys that are new later have them.
        sample_weight, keys, ids, subjects : array-like, optional
            As of ``fit``.
        """
        return self._more(X, y, classes, Beside(ids, subjects, sample_weight), keys)

    def predict(self, X: Any, *, keys: Any = None) -> AnyArray:
        """Labels, shape (n,), each of the model of its row's key."""
        rows, unknown = self._asked(X, keys)
        out = np.empty(rows.n, dtype=self.classes_.dtype)
        for places, labels in self._answers(rows, lambda model, part: model.predict(part)):
            out[places] = labels
        if len(unknown):
            out[unknown] = self.classes_[np.argmax(self._prior_of_all().shares(self.classes_))]
        return out

    def predict_proba(self, X: Any, *, keys: Any = None) -> Floats:
        """Shares of the classes, shape (n, len(classes_)); 0 for classes that a key has not."""
        rows, unknown = self._asked(X, keys)
        out = np.zeros((rows.n, len(self.classes_)))
        columns = {label: column for column, label in enumerate(self.classes_.tolist())}

        def shares_of(model: Any, part: Any) -> tuple[list[Any], Floats]:
            shares = model.predict_proba(part)
            return model.classes_.tolist(), shares

        for places, (classes, shares) in self._answers(rows, shares_of):
            out[places[:, None], np.array([columns[label] for label in classes])] = shares
        if len(unknown):
            out[unknown] = self._prior_of_all().shares(self.classes_)
        return out

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, keys: Any = None) -> float:
        """Accuracy over the rows of all keys: the share of rows, or of ``sample_weight``, that is predicted right."""
        return accuracy(y, self.predict(X, keys=keys), sample_weight)

    def _checked(self, y: Any, n: int) -> AnyArray:
        return _as_many(labels_of(y), n)

    def _learn_targets(self, given: AnyArray, classes: Any) -> None:
        known = self.__dict__.get("classes_")
        if known is None:
            self._declared = classes is not None
            known = np.empty(0, dtype=given.dtype) if classes is None else distinct_labels(labels_of(classes))
        self.classes_ = with_unseen(known, given, self._declared)[0]

    def _declared_classes(self) -> Any:
        return self.classes_ if self._declared else None


@dataclass(repr=False, eq=False)
class KeyedRegressor(Keyed):
    """A regressor for each value of a key, which is, bit for bit, the one of the rows of its key alone.

    Parameters, attributes (but ``classes_``) and methods as of :class:`KeyedClassifier`. For keys without a model,
    ``unknown="prior"`` answers with the mean of the live rows of all keys.

    Examples
    --------
    >>> from raydt import FullyDynamicTreeRegressor, KeyedRegressor
    >>> X = [[0.0], [1.0], [0.0], [1.0]]
    >>> model = KeyedRegressor(FullyDynamicTreeRegressor(), unknown="prior")
    >>> model = model.fit(X, [1.0, 1.0, 5.0, 5.0], keys=[7, 7, 8, 8])
    >>> model.predict([[0.0], [0.0], [0.0]], keys=[7, 8, 9]).tolist()
    [1.0, 5.0, 3.0]
    """

    estimator: Any
    key: str | None = None
    unknown: Literal["error", "prior"] = field(default="error", kw_only=True)

    _inner, _example = Regressor, "FullyDynamicTreeRegressor"

    def partial_fit(
        self: R,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        keys: Any = None,
        ids: Any = None,
        subjects: Any = None,
    ) -> R:
        """Insert examples into the models of their keys; all of them or, if an error is raised, none."""
        return self._more(X, y, None, Beside(ids, subjects, sample_weight), keys)

    def predict(self, X: Any, *, keys: Any = None) -> Floats:
        """Numbers, shape (n,), each of the model of its row's key."""
        rows, unknown = self._asked(X, keys)
        out = np.empty(rows.n)
        for places, numbers in self._answers(rows, lambda model, part: model.predict(part)):
            out[places] = numbers
        if len(unknown):
            out[unknown] = self._prior_of_all().mean
        return out

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, keys: Any = None) -> float:
        """R squared over the rows of all keys, which may count by ``sample_weight``."""
        return r_squared(y, self.predict(X, keys=keys), sample_weight)

    def _checked(self, y: Any, n: int) -> AnyArray:
        return _as_many(numbers_of(y), n)


def _as_many(given: AnyArray, n: int) -> AnyArray:
    if len(given) != n:
        raise InputError(message("estimators.other_labels", rows=n, labels=len(given)))
    return given
