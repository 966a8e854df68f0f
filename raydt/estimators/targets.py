"""The two kinds of estimator: the type of ``y``, the predictions, and the tags for scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow.compute as pc

from raydt.arrays.blocks import taken
from raydt.arrays.types import AnyArray, Floats, Int32s
from raydt.errors import ConfigError, InputError
from raydt.estimators.arguments import distinct_labels, labels_of, numbers_of, text_column
from raydt.estimators.base import Estimator
from raydt.examples.targets import Targets
from raydt.examples.weights import unknown_labels
from raydt.learners import traits_of
from raydt.messages import message

C = TypeVar("C", bound="Classifier")
R = TypeVar("R", bound="Regressor")


def _codes_of(given: AnyArray, classes: AnyArray) -> Int32s:
    """Return the place of each label among some classes, -1 of a label that is none of them."""
    texts = text_column(given) if given.dtype.kind == "O" else None
    known_texts = None if texts is None else text_column(classes.tolist())
    if known_texts is not None:
        return np.array(pc.index_in(texts, known_texts).fill_null(-1), dtype=np.int32)
    if given.dtype.kind != classes.dtype.kind or given.dtype.kind not in "biU" or not len(classes):
        known = {label: code for code, label in enumerate(classes.tolist())}
        return np.array([known.get(label, -1) for label in given.tolist()], dtype=np.int32)
    order = np.argsort(classes, kind="stable")
    places = order[np.minimum(np.searchsorted(classes, given, sorter=order), len(classes) - 1)]
    codes: Int32s = np.where(classes[places] == given, places, -1).astype(np.int32)
    return codes


def accuracy(y: Any, predicted: AnyArray, sample_weight: Any) -> float:
    """Return the share of rows, or of ``sample_weight``, that is predicted right."""
    weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    return float(np.average(predicted == np.asarray(y), weights=weights))


def r_squared(y: Any, predicted: Floats, sample_weight: Any) -> float:
    """Return R squared of predictions; NaN if all of ``y`` is equal."""
    truth = numbers_of(y)
    counts = 1.0 if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    mean = np.average(truth, weights=None if sample_weight is None else counts)
    variation = float((counts * (truth - mean) ** 2).sum())
    squared = float((counts * (truth - predicted) ** 2).sum())
    return 1.0 - squared / variation if variation > 0.0 else float("nan")


def with_unseen(classes: AnyArray, given: AnyArray, declared: bool) -> tuple[AnyArray, Int32s]:
    """Return classes with, after them, sorted, the labels that are none of them; and the place of each label.

    ``InputError`` for such a label if all classes were ``declared``, and for one of another kind.
    """
    known = classes.tolist()
    first = given[:1].tolist()
    if known and first and isinstance(first[0], str) != isinstance(known[0], str):
        raise InputError(message("estimators.mixed_classes", label=first[0], classes=known))
    codes = _codes_of(given, classes)
    unseen = distinct_labels(given[codes < 0])
    if not len(unseen):
        return classes, codes
    new = unseen.tolist()
    if declared:
        raise InputError(message("estimators.new_class", label=new[0], classes=known))
    grown = np.concatenate([classes, np.array(new)])
    if grown.tolist() != [*known, *new]:
        raise InputError(message("estimators.common_type", label=new[0], classes=known))
    return grown, _codes_of(given, grown)


class Classifier(Estimator):
    """Labels are classes: integers, booleans or strings."""

    classes_: AnyArray  #: Labels in the order of the columns of ``predict_proba``.

    def partial_fit(
        self: C,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        ids: Any = None,
        subjects: Any = None,
    ) -> C:
        """Insert examples; all of them or, if an error is raised, none.

        Parameters
        ----------
        classes : array-like, optional
            All labels that will come, on the first call. Without it, unseen labels are added as they come.
        sample_weight, ids, subjects : array-like, optional
            As of ``fit``.
        """
        return self._more(X, y, classes, self._beside(ids, subjects, sample_weight))

    def predict(self, X: Any) -> AnyArray:
        """Labels, shape (n,)."""
        rows, sparse = self._rows(X)
        predictor, classes = self._predicting()
        return taken(classes, predictor.predict(rows, **sparse))

    def predict_proba(self, X: Any) -> Floats:
        """Shares of the classes, shape (n, len(classes_))."""
        rows, sparse = self._rows(X)
        predictor, classes = self._predicting()
        shares: Floats = predictor.predict_proba(rows, len(classes), **sparse)
        return shares

    def _predicting(self) -> tuple[Any, AnyArray]:
        """Return the predictor and the labels of its codes: another thread may add a class meanwhile."""
        with self._lock:
            return self._predictor(), self.classes_

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of rows, or of ``sample_weight``, that is predicted right."""
        return accuracy(y, self.predict(X), sample_weight)

    @property
    def _classes(self) -> list[Any]:
        classes: list[Any] = self.classes_.tolist()
        return classes

    def _take_classes(self, classes: list[Any]) -> None:
        self.classes_ = np.array(classes)

    def _require_classes(self, y: Any) -> None:
        if class_weight := traits_of(self._options()).reading.class_weight:
            classes = distinct_labels(labels_of(y)).tolist()
            if unknown := unknown_labels(class_weight, classes):
                raise ConfigError(message("estimators.unknown_class_weight", labels=unknown, classes=classes))

    def _learn_targets(self, y: Any, classes: Any) -> None:
        labels = labels_of(y if classes is None else classes)
        self.classes_ = distinct_labels(labels)
        if len(self.classes_) > self._most_classes():
            self._require_few([], labels, "y" if classes is None else "classes")

    def _most_classes(self) -> int:
        return self._traits.reading.most_classes(sparse=self._features().sparse > 0)

    def _require_few(self, known: Sequence[Any], given: AnyArray, argument: str) -> None:
        """Refuse more classes, known ones and those given, than the learner takes with its options."""
        most = self._most_classes()
        seen = dict.fromkeys(known)
        if len({*seen, *distinct_labels(given).tolist()}) <= most:
            return
        for row, label in enumerate(given.tolist()):
            if label in seen:
                continue
            if len(seen) == most:
                kind, sparse = type(self).__name__, self._features().sparse > 0
                features = "with sparse features and these parameters" if sparse else "with these parameters"
                parameters = {"estimator": kind, "features": features, "argument": argument, "label": label}
                said = message("estimators.many_classes", most=most, **parameters)
                if most == 2:
                    first, second = seen
                    more = "" if sparse else self._traits.reading.with_classes
                    parameters |= {"first": first, "second": second, "instead": more and f", or use {more}"}
                    said = message("estimators.third_class", **parameters)
                raise InputError(said, row=row if argument == "y" else None)
            seen[label] = None

    def _checked(self, y: Any) -> AnyArray:
        return labels_of(y)

    def _looked_up(self, given: AnyArray) -> Targets:
        return _codes_of(given, self.classes_)

    def _encoded(self, given: AnyArray) -> Targets:
        """Codes of labels; unseen ones become classes, unless all classes were declared."""
        classes, codes = with_unseen(self.classes_, given, self._declared)
        if len(classes) > len(self.classes_):
            self._require_few(self._classes, given, "y")
            self.classes_ = classes
        return codes

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(allow_nan=self._traits.reading.missing),
        )


class Regressor(Estimator):
    """Labels are numbers."""

    def partial_fit(self: R, X: Any, y: Any, sample_weight: Any = None, *, ids: Any = None, subjects: Any = None) -> R:
        """Insert examples; all of them or, if an error is raised, none. All else is as of ``fit``."""
        return self._more(X, y, None, self._beside(ids, subjects, sample_weight))

    def predict(self, X: Any) -> Floats:
        """Numbers, shape (n,)."""
        rows, sparse = self._rows(X)
        numbers: Floats = self._predictor().predict(rows, **sparse)
        return numbers

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R squared: 1 is perfect, 0 what the mean of ``y`` would get; NaN if all of ``y`` is equal.

        Rows count by ``sample_weight``, if it is given.
        """
        return r_squared(y, self.predict(X), sample_weight)

    @property
    def _classes(self) -> list[Any]:
        return []

    def _take_classes(self, classes: list[Any]) -> None:
        """There are none."""

    def _require_classes(self, y: Any) -> None:
        """There are none."""

    def _learn_targets(self, y: Any, classes: Any) -> None:
        """Nothing is known before the rows are."""

    def _checked(self, y: Any) -> AnyArray:
        return numbers_of(y)

    def _looked_up(self, given: AnyArray) -> Targets:
        return given

    def _encoded(self, given: AnyArray) -> Targets:
        return given

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(allow_nan=self._traits.reading.missing),
        )
