"""What estimators of one tree say about it: the importance of features, and what moved each prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import LARGEST_WIDTH
from raydt.errors import InputError
from raydt.estimators.fitted import Fitted
from raydt.examples.features import Features
from raydt.learners.shapley import Explanation


def require_counted(features: Features) -> None:
    """Refuse an answer with an entry for each feature where nobody has said how many there are.

    Raises
    ------
    InputError
        The rows were lists of indices, without a number of features.
    """
    if features.sparse == LARGEST_WIDTH:
        raise InputError(
            "the number of sparse features is not known", remedy="Set n_features, or fit a scipy sparse matrix"
        )


class OneTree(Fitted):
    """An estimator whose model is one decision tree."""

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """Share of each feature in the impurity that all splits take away, shape (d,); all 0 without a split.

        Impurity is the Gini index, or the variance where labels are numbers, times the live examples of a node. It is
        computed from the counts of the live examples, so that deleted examples take no part.
        """
        self._require_fitted()
        require_counted(self._features())
        shares: npt.NDArray[np.float64] = self._predictor().importances()
        return shares

    def explain(self, X: Any) -> Explanation:
        """Shapley values: how much each feature of a row moves its prediction from the mean of the tree.

        Parameters
        ----------
        X : as of ``predict``
            n rows.

        Returns
        -------
        Explanation
            ``values``, shape (n, d, classes), and ``base``, shape (classes,): ``values.sum(axis=1) + base`` is
            ``predict_proba(X)``. Of a regressor shape (n, d) and a number, which add up to ``predict(X)``.

        Notes
        -----
        Path-dependent: features that are not known are averaged with the live examples of the tree's nodes. O(leaves x
        depth^2) a row; n x d x classes numbers, also of sparse features.
        """
        rows = self._rows(X)
        require_counted(self._features())
        outputs = len(getattr(self, "classes_", ()))
        found: Explanation = self._predictor().explain(rows, outputs, **self._sparse_of(X))
        return found
