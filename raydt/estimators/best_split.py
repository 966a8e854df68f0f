"""The sparse best split as a scikit-learn style classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from raydt.arrays.elementary import Floats
from raydt.estimators.arguments import documented
from raydt.estimators.base import Classifier
from raydt.estimators.fitted import SumOfTrees, require_counted
from raydt.estimators.frames import FrameEncoder, ListEncoder
from raydt.finders.finder import NO_FEATURE
from raydt.learners.best_split.coordinator import Splits, score_of_split
from raydt.trees.state_schema import unit_of

Self = TypeVar("Self", bound="SparseBestSplit")


class Split(NamedTuple):
    """A split: a feature (-1 if none was seen) and its score, lower is better."""

    feature: int
    score: float


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class SparseBestSplit(SumOfTrees, Classifier):
    """The best split by one sparse binary feature, while rows are inserted and deleted; two classes.

    After every call the split is within (1 + ``alpha``) of the best one, in time proportional to the ones of a row,
    not to the number of features. Predictions are those of the stump: the majority of each row's side.

    Notes
    -----
    N. Tatti, Approximating splits for decision trees quickly in sparse data streams. Rows are a sequence of index
    arrays, an Arrow column of lists, a frame with one such column, or a scipy sparse matrix of ones.

    Examples
    --------
    >>> from raydt import SparseBestSplit
    >>> stump = SparseBestSplit().partial_fit([[0, 7], [7], [0, 3], []], ["spam", "spam", "ham", "ham"])
    >>> stump.best_split_
    Split(feature=7, score=0.0)
    >>> receipt = stump.forget(stump.row_ids_[:2])
    >>> stump.predict([[7]]).tolist(), stump.audit().feasibility
    (['ham'], 'proven')
    """

    kind = "best_split"
    categorical_features = None

    finder: Literal["updgini", "updent", "scan", "auto"] = "updgini"
    criterion: Literal["gini", "entropy"] | None = None
    alpha: float = 0.1
    query_every: int = 1
    class_weight: Literal["balanced"] | dict[Any, float] | None = None
    n_features: int | None = None
    feature_groups: int = 16
    n_jobs: int | None = None

    @property
    def best_split_(self) -> Split:
        """Return the split of the last search.

        ``score`` is the sum over both sides of their share of the rows times their impurity, 2p(1 - p) or the entropy
        in nats.
        """
        self._require_fitted()
        model = self._model()
        split = Splits.of_arrays(model)
        return Split(int(split.feature[0]), score_of_split(self._fitted_options.entropy, split, unit_of(model)))

    @property
    def feature_importances_(self) -> Floats:
        """Return 1 for the feature of the best split and 0 for the others, shape (d,); all 0 before there is one."""
        self._require_fitted()
        require_counted(self._features())
        shares = np.zeros(self.n_features_in_)
        if (feature := self.best_split_.feature) != NO_FEATURE:
            shares[feature] = 1.0
        return shares

    def _new_encoder(self, categorical: Sequence[str | int] | None) -> FrameEncoder:
        return ListEncoder(None, self.feature_groups, n_features=self.n_features, takes_matrix=False)
