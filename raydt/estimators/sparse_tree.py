"""The sparse fully dynamic tree as a scikit-learn style classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raydt.estimators.arguments import documented
from raydt.estimators.base import Classifier
from raydt.estimators.fitted import SumOfTrees


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class SparseDynamicTreeClassifier(SumOfTrees, Classifier):
    """A decision tree over sparse binary features that stays close to the best splits under insertions and deletions.

    There are two classes. Every node tracks its best split and is rebuilt as soon as another beats it: its score is
    at most 1 + ``finder_alpha`` times the least of the sparse features, plus ``beta``; :meth:`audit` proves it on the
    live model. An update takes time proportional to the ones of its row.

    Notes
    -----
    ``epsilon`` matters for dense columns only. Rows are a sequence of index arrays, an Arrow column of lists, a frame
    with such a column, or a scipy sparse matrix of ones. The finders are those of N. Tatti, Approximating splits for
    decision trees quickly in sparse data streams, which names such a tree as future work.

    Examples
    --------
    >>> from raydt import SparseDynamicTreeClassifier
    >>> tree = SparseDynamicTreeClassifier().fit([[0, 7], [7], [0, 3], []], ["spam", "spam", "ham", "ham"])
    >>> receipt = tree.forget(tree.row_ids_[:1])
    >>> receipt.active, tree.predict([[7]]).tolist(), tree.audit().feasibility
    (3, ['spam'], 'proven')
    """

    kind = "sparse_tree"

    finder: Literal["updgini", "updent"] = "updgini"
    finder_alpha: float = 0.1
    alpha: float = 0.1
    beta: float = 0.2
    epsilon: float | Literal["auto"] = "auto"
    max_depth: int | None = None
    min_samples_split: int = 2
    class_weight: Literal["balanced"] | dict[Any, float] | None = None
    categorical_features: Sequence[str | int] | None = None
    feature_groups: int = 16
    n_jobs: int | None = None
