"""The exact forest for river."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raydt.estimators.forest import ExactForestClassifier
from raydt.estimators.parameters import documented
from raydt.estimators.river import RiverClassifier
from raydt.sessions.session import InProcessSession


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
    rebuild: Literal["eager", "lazy"] = "lazy"
    random_state: int = 0
    categorical_features: Sequence[Hashable] | None = None

    def _code(self, x: Mapping[Hashable, Any]) -> int:
        """Code of the label that is predicted, of equals the smallest label."""
        assert self._session is not None
        return int(self._session.coordinator.predict(self._encode(x)[0])[0])

    def _opened(self, options: Any) -> InProcessSession:
        session = super()._opened(options)
        coordinator: Any = session.coordinator
        coordinator.keeps_open = self.rebuild == "lazy"
        return session
