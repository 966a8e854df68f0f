"""The exact forest as scikit-learn style estimators: a classifier and a regressor."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from raydt.estimators.arguments import documented
from raydt.estimators.base import Classifier, Estimator, Regressor
from raydt.estimators.fitted import SumOfTrees
from raydt.estimators.river import RiverClassifier
from raydt.sessions.session import InProcessSession


@dataclass(kw_only=True, repr=False, eq=False)
class _ExactForest(SumOfTrees, Estimator):
    """Parameters and attributes that both estimators have."""

    kind = "forest"
    _several = True

    n_estimators: int = 40
    sample_share: float = 0.5
    max_features: int | Literal["auto", "sqrt", "all"] = "auto"
    thresholds: int = 5
    max_depth: int = 20
    min_samples_split: int = 10
    rebuild: Literal["auto", "eager", "lazy"] = "auto"
    random_state: int = 0
    categorical_features: Sequence[str | int] | None = None
    feature_groups: int = 16
    n_jobs: int | None = None

    def _open_session(self) -> None:
        super()._open_session()
        coordinator: Any = self.session_.coordinator
        coordinator.keeps_open = self._fitted_options.rebuild == "lazy"


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class ExactForestClassifier(_ExactForest, Classifier):
    """A forest that always equals the one trained from scratch on the remaining examples.

    The two are equal bit for bit, not only nearly or in distribution: every split, count and prediction, and
    :meth:`digest`, whatever the order of the calls. The forest is a function of the live examples with their ids, the
    parameters, and ``random_state``.

    Notes
    -----
    A keyed hash of the id chooses the trees of an example; a larger share is slower and often more accurate. Where
    ``rebuild`` is lazy, subtrees wait for the next prediction, digest or save. Missing values are allowed. They go
    right at every split, and one candidate asks whether the value is present.

    ``classes_`` has the classes in order of appearance, including forgotten ones. Trees, predictions and digest do not
    depend on this order. On equal votes the smallest label wins.

    Examples
    --------
    >>> from raydt import ExactForestClassifier
    >>> X, y = [[float(x)] for x in range(100)], [x >= 50 for x in range(100)]
    >>> forest = ExactForestClassifier(n_estimators=20, sample_share=0.5).fit(X, y)
    >>> receipt = forest.forget(range(10))
    >>> other = ExactForestClassifier(n_estimators=20, sample_share=0.5).fit(X[10:], y[10:], ids=range(10, 100))
    >>> receipt.active, forest.predict([[70.0]]).tolist(), forest.digest() == other.digest()
    (90, [True], True)
    """

    class_weight: Literal["balanced"] | dict[Any, float] | None = None

    _fixed: ClassVar[dict[str, Any]] = {}


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class ExactForestRegressor(_ExactForest, Regressor):
    """A forest for regression that always equals the one trained from scratch on the remaining examples.

    It has the attributes (except ``classes_``) and methods of :class:`ExactForestClassifier`.

    Notes
    -----
    Labels count as integers: rounded to 2**-20 of the power of two above the largest absolute live label, or to 2**-40
    of it where most labels are close together, beside an outlier or far from 0. If that changes, all trees are built
    again.

    Examples
    --------
    >>> from raydt import ExactForestRegressor
    >>> X, y = [[float(x)] for x in range(100)], [2.0 * x for x in range(100)]
    >>> forest = ExactForestRegressor(n_estimators=20, sample_share=0.5).fit(X, y)
    >>> forest.forget(range(10)).active, forest.score(X[10:], y[10:]) > 0.9
    (90, True)
    """

    _fixed: ClassVar[dict[str, Any]] = {"criterion": "squared_error"}


# The exact forest for river.


@documented
@dataclass(repr=False, eq=False)
class RiverForestClassifier(RiverClassifier):
    """A forest for river that is, bit for bit, the one trained from nothing on the examples it has not forgotten.

    The first example learned says what the features are: its keys, in the order of their names; strings are
    categories, numbers are numbers. Later examples have exactly these features. None and NaN are missing values; a
    feature of which the first example has none holds numbers, unless ``categorical_features`` names it. Examples are
    numbered as they are learned, and the numbers are their ids.

    Notes
    -----
    Defaults are for streams whose old examples are forgotten. Nothing is forgotten unless ``forget_one`` is called; on
    a stream that changes, forget the example of some steps ago. Ties go to the smallest label.

    Examples
    --------
    >>> from raydt import RiverForestClassifier
    >>> forest = RiverForestClassifier(min_samples_split=2)
    >>> for hours, weather, y in [(1, "dry", False), (2, "wet", False), (8, "dry", True), (9, "wet", True)]:
    ...     forest.learn_one({"hours": hours, "weather": weather}, y)
    >>> forest.forget_one({"hours": 9, "weather": "wet"}, True)
    >>> forest.predict_one({"hours": 7, "weather": "dry"}), forest.audit().feasibility
    (True, 'proven')
    """

    estimator = ExactForestClassifier

    n_estimators: int = 10
    sample_share: float = 1.0
    max_features: int | Literal["auto", "sqrt", "all"] = "sqrt"
    thresholds: int = 2
    max_depth: int = 15
    min_samples_split: int = 4
    rebuild: Literal["auto", "eager", "lazy"] = "lazy"
    random_state: int = 0
    categorical_features: Sequence[Hashable] | None = None
    previous_labels: int = 0

    def _code(self, x: Mapping[Hashable, Any]) -> int:
        """Code of the label that is predicted, of equals the smallest label."""
        assert self._session is not None
        return int(self._session.coordinator.predict(self._encode(x)[0])[0])

    def _opened(self, options: Any) -> InProcessSession:
        session = super()._opened(options)
        coordinator: Any = session.coordinator
        coordinator.keeps_open = self.rebuild == "lazy"
        return session
