"""FuDyADT as scikit-learn style estimators: a classifier and a regressor."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from raydt.estimators.arguments import documented
from raydt.estimators.base import Classifier, Regressor
from raydt.estimators.fitted import SumOfTrees
from raydt.estimators.river import RiverClassifier


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class FullyDynamicTreeClassifier(SumOfTrees, Classifier):
    """A decision tree that stays epsilon-feasible while examples are inserted and deleted.

    After every update each node's split is within ``beta`` of the best Gini gain, unless a given ``epsilon`` is above
    the bound of the theorem; :meth:`audit` proves it on the live model.
    A missing number goes to the side of a split that has the greater gain or, where none was learned, to the side with
    more examples; a missing category is a category of its own.

    Notes
    -----
    Bressan, Damay, Sozio, Fully-Dynamic Decision Trees, AAAI 2023. Amortised O(d h log n / epsilon) per update.

    Examples
    --------
    >>> from raydt import FullyDynamicTreeClassifier
    >>> tree = FullyDynamicTreeClassifier().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> receipt = tree.forget(tree.row_ids_[:1])
    >>> receipt.active, tree.predict([[2.5]]).tolist(), tree.audit().feasibility
    (3, [1], 'proven')
    """

    kind = "fudyadt"

    epsilon: float | Literal["auto"] = "auto"
    schedule: Literal["auto", "certificate", "published"] = "auto"
    alpha: float = 0.02
    beta: float = 0.2
    max_depth: int | None = 20
    min_samples_split: int = 2
    smoothing: float = 30.0
    class_weight: Literal["balanced"] | dict[Any, float] | None = None
    categorical_features: Sequence[str | int] | None = None
    feature_groups: int = 16
    n_jobs: int | None = None


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class FullyDynamicTreeRegressor(SumOfTrees, Regressor):
    """A regression tree that stays feasible while examples are inserted and deleted.

    The gain of a split is the decrease of variance at its node. After every update each node's split is
    within ``beta`` of the best gain; :meth:`audit` proves it on the live model.

    Notes
    -----
    ``alpha`` and ``beta`` are in units of the range of the labels squared, in which no variance is above 0.25. A
    prediction is the mean of the labels in a leaf, drawn towards those of the nodes above it (``smoothing``). Labels
    count in units of a power of two, at most the range / 32768. If deletions have emptied a leaf, it predicts as the
    nearest node above it that has examples.

    Examples
    --------
    >>> from raydt import FullyDynamicTreeRegressor
    >>> tree = FullyDynamicTreeRegressor(smoothing=0).fit([[0.0], [1.0], [2.0], [3.0]], [1.0, 1.0, 5.0, 7.0])
    >>> receipt = tree.forget(tree.row_ids_[3:])
    >>> receipt.active, tree.predict([[0.5], [2.5]]).tolist(), tree.audit().feasibility
    (3, [1.0, 5.0], 'proven')
    """

    kind = "fudyadt"
    _fixed: ClassVar[dict[str, Any]] = {"criterion": "squared_error"}

    epsilon: float | Literal["auto"] = "auto"
    schedule: Literal["auto", "certificate", "published"] = "auto"
    alpha: float = 0.005
    beta: float = 0.01
    label_range: tuple[float, float] | None = None
    max_depth: int | None = 20
    min_samples_split: int = 2
    smoothing: float = 30.0
    categorical_features: Sequence[str | int] | None = None
    feature_groups: int = 16
    n_jobs: int | None = None


# FuDyADT for river.


@documented
@dataclass(repr=False, eq=False)
class RiverTreeClassifier(RiverClassifier):
    """A decision tree for river that stays epsilon-feasible while examples are learned and forgotten.

    The first example learned says what the features are: its keys, in the order of their names; strings are
    categories, numbers are numbers. Later examples have exactly these features. None and NaN are missing values; a
    feature of which the first example has none holds numbers, unless ``categorical_features`` names it.

    Notes
    -----
    Without ``smoothing`` by default: an example that comes one at a time often resembles the last ones of its leaf. The
    tree is that of :class:`raydt.FullyDynamicTreeClassifier` on the same stream. Updates by the thousand cost a few
    microseconds there; here one by one, most of it Python, a few times river's own trees;
    ``benchmarks/river_adapter.py`` prints it. Ties of the majority go to the label seen first.

    Examples
    --------
    >>> from raydt import RiverTreeClassifier
    >>> tree = RiverTreeClassifier()
    >>> for hours, weather, y in [(1, "dry", False), (2, "wet", False), (8, "dry", True), (9, "wet", True)]:
    ...     tree.learn_one({"hours": hours, "weather": weather}, y)
    >>> tree.predict_one({"hours": 7, "weather": "wet"})
    True
    >>> tree.forget_one({"hours": 9, "weather": "wet"}, True)
    >>> tree.predict_proba_one({"hours": 7, "weather": "wet"}), tree.audit().feasibility
    ({False: 0.0, True: 1.0}, 'proven')
    """

    estimator = FullyDynamicTreeClassifier

    epsilon: float | Literal["auto"] = "auto"
    alpha: float = 0.02
    beta: float = 0.2
    max_depth: int | None = 20
    min_samples_split: int = 2
    smoothing: float = 0.0
    categorical_features: Sequence[Hashable] | None = None
    schedule: Literal["auto", "certificate", "published"] = "auto"
    previous_labels: int = 0
