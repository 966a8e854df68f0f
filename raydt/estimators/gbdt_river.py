"""The in-place online GBDT for river."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raydt.estimators.gbdt import OnlineGradientBoostingClassifier
from raydt.estimators.parameters import documented
from raydt.estimators.river import RiverClassifier


@documented
@dataclass(repr=False, eq=False)
class RiverGradientBoostingClassifier(RiverClassifier):
    """Gradient boosted trees for river, updated in place with some examples at a time.

    The first example learned says what the features are: its keys, in the order of their names; strings are
    categories, numbers are numbers. Later examples have exactly these features. None and NaN are missing values; a
    feature of which the first example has none holds numbers, unless ``categorical_features`` names it.

    Notes
    -----
    Trees change a batch at a time: ``learn_one`` and ``forget_one`` collect, and every ``update_every``-th of them
    applies what was collected. So a prediction knows the examples up to the last batch; before the first one the most
    frequent class is predicted. By default a batch is a twentieth of the examples in the model, at least 100. With 1
    every example counts at once, and costs a walk through all trees.

    Examples
    --------
    >>> from raydt import RiverGradientBoostingClassifier
    >>> boosting = RiverGradientBoostingClassifier(max_iter=10)
    >>> for i in range(200):
    ...     boosting.learn_one({"hours": i % 10, "weather": "dry" if i % 7 else "wet"}, i % 10 > 4)
    >>> boosting.predict_one({"hours": 2, "weather": "wet"}), boosting.predict_one({"hours": 8, "weather": "wet"})
    (False, True)
    >>> boosting.forget_one({"hours": 8, "weather": "dry"}, True)
    >>> boosting.audit().conformance
    'holds'
    """

    estimator = OnlineGradientBoostingClassifier

    max_iter: int = 100
    max_leaf_nodes: int = 20
    learning_rate: float = 0.1
    l2_regularization: float = 1.0
    max_bins: int = 1024
    binning: Literal["doubling", "quantile"] = "doubling"
    candidate_fraction: float = 0.1
    robustness_tolerance: float = 0.1
    derivatives: Literal["bounded", "changed_leaves", "retrained", "never"] = "bounded"
    derivative_tolerance: float = 0.3
    update_every: int | Literal["auto"] = "auto"
    retrain: Literal["auto", "never", "always"] = "auto"
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    tol: float = 1e-7
    random_state: int = 0
    categorical_features: Sequence[Hashable] | None = None

    def _options(self) -> Any:
        return self._of_estimator({"update_every": self.update_every})
