"""The in-place online GBDT as scikit-learn style estimators: a classifier and a regressor."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from raydt.arrays.elementary import AnyArray, Floats
from raydt.errors import UpdateError
from raydt.estimators.arguments import documented
from raydt.estimators.base import Classifier, Estimator, Regressor
from raydt.estimators.fitted import SumOfTrees
from raydt.estimators.river import RiverClassifier
from raydt.examples.updates import REFUSALS, TARGET_TOO_FAR, Log, Targets, UpdateBatch
from raydt.messages import message

#: A call of an estimator is one batch D', however many rows it has: it is applied when the call ends.
_UNTIL_THE_CALL_ENDS = 2**62


@dataclass(kw_only=True, repr=False, eq=False)
class _OnlineGradientBoosting(SumOfTrees, Estimator):
    """Parameters and attributes that both estimators have."""

    kind = "gbdt"
    _several = True

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
    retrain: Literal["auto", "never", "always"] = "auto"
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    tol: float = 1e-7
    random_state: int = 0
    categorical_features: Sequence[str | int] | None = None
    feature_groups: int = 16
    n_jobs: int | None = None

    @property
    def n_iter_(self) -> int:
        """Iterations of the model: ``max_iter``, or fewer after early stopping."""
        self._require_fitted()
        n_iter: int = self._predictor().iterations
        return n_iter

    def _described(self) -> Any:
        """Return the predictor of the arrays of the model, which count the rows of every node: O(rows x trees)."""
        return super()._predictor()

    def _predictor(self) -> Any:
        """Return the predictor of the trees in memory; of a model that was loaded, of its arrays."""
        if not hasattr(self, "session_"):
            return self._described()
        coordinator: Any = self.session_.coordinator
        return coordinator.predictor()

    @property
    def last_update_(self) -> dict[str, int | float]:
        """Figures of the last call: ``deletes``, ``trees_retrained``, ``rounds``, ``seconds`` and more.

        Empty where nothing was to be done, and after loading.
        """
        self._require_fitted()
        return dict(getattr(self, "_last_update", {}))

    def _advance(self, batch: UpdateBatch, log: Log) -> None:
        super()._advance(batch, log)
        self._last_update = {name: column[-1].item() for name, column in log.items() if len(column)}

    def _staged(self, X: Any) -> Iterator[Floats]:
        """Return raw scores after 1, 2, ... iterations, shape (n, trees of one), in one array; errors come at once."""
        rows, sparse = self._rows(X)
        staged: Iterator[Floats] = iter(self._described().staged(rows, **sparse))
        return staged


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class OnlineGradientBoostingClassifier(_OnlineGradientBoosting, Classifier):
    """Gradient boosted trees, updated in place when examples are inserted and deleted.

    A call of :meth:`partial_fit`, :meth:`forget` or :meth:`replace_examples` is one batch: it changes the sums of the
    nodes that its rows reach in every tree. A node keeps its split while the split is among the best candidates;
    otherwise its subtree is retrained on the live rows. ``retrain`` decides when a call trains all trees again instead.
    Stored sums always equal recomputed ones bit for bit; :meth:`audit` proves it.

    Notes
    -----
    Lin, Chung, Lao, Zhao, Online Gradient Boosting Decision Tree: In-Place Updates for Efficient Adding/Deleting Data,
    ICML 2025. A missing number has its own bin. A missing category counts as one that the rows of the last
    training do not have.

    Examples
    --------
    >>> from raydt import OnlineGradientBoostingClassifier
    >>> X, y = [[float(x)] for x in range(100)], [x >= 50 for x in range(100)]
    >>> boosting = OnlineGradientBoostingClassifier(max_iter=5).fit(X, y)
    >>> receipt = boosting.forget(boosting.row_ids_[:10])
    >>> receipt.active, boosting.predict([[70.0]]).tolist(), boosting.audit().conformance
    (90, [True], 'holds')
    """

    class_weight: Literal["balanced"] | dict[Any, float] | None = None

    _fixed: ClassVar[dict[str, Any]] = {"update_every": _UNTIL_THE_CALL_ENDS}

    def decision_function(self, X: Any) -> Floats:
        """Raw scores: of two classes the log-odds of the second, shape (n,); of more shape (n, len(classes_)).

        The shares of ``predict_proba`` are their logistic function, or their softmax. A class that has no trees has the
        score -inf.
        """
        rows, sparse = self._rows(X)
        trees = self.tree_sum()
        scores = trees.scores(rows, **sparse)
        if trees.link == "logistic":
            return scores[:, 0]
        found = np.full((len(scores), len(self.classes_)), -np.inf)
        found[:, trees.codes] = scores
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def staged_predict_proba(self, X: Any) -> Iterator[Floats]:
        """Shares of the classes after 1, 2, ... iterations, each of shape (n, len(classes_)).

        O(n) per tree and step of a row's path, for all stages together.
        """
        staged = self._staged(X)
        return (self._predictor().shares_of(F, len(self.classes_)) for F in staged)

    def staged_predict(self, X: Any) -> Iterator[AnyArray]:
        """Labels after 1, 2, ... iterations, each of shape (n,); of equal shares the first class."""
        staged = self._staged(X)
        return (self.classes_[self._predictor().classes_of(F)] for F in staged)


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class OnlineGradientBoostingRegressor(_OnlineGradientBoosting, Regressor):
    """Gradient boosted trees for numbers, that examples are added to and deleted from in place.

    The loss is the squared error. Attributes (but ``classes_``) and methods as of
    :class:`OnlineGradientBoostingClassifier`.

    Notes
    -----
    Each training of all trees takes the scale of the labels from its rows. A later label that lies far outside of it is
    refused.

    Examples
    --------
    >>> from raydt import OnlineGradientBoostingRegressor
    >>> X, y = [[float(x)] for x in range(100)], [2.0 * x for x in range(100)]
    >>> boosting = OnlineGradientBoostingRegressor().fit(X, y)
    >>> boosting.forget(boosting.row_ids_[:10]).active, boosting.score(X[10:], y[10:]) > 0.9
    (90, True)
    """

    _fixed: ClassVar[dict[str, Any]] = {"objective": "squared_error", "update_every": _UNTIL_THE_CALL_ENDS}

    l2_regularization: float = 10.0

    def _encoded(self, given: AnyArray) -> Targets:
        """The numbers; refused before any row is taken if one is far out of the scale of the last training."""
        session = getattr(self, "session_", None)
        ensemble = None if session is None else session.coordinator.ensemble
        far = np.zeros(len(given), dtype=np.bool_) if ensemble is None else ~ensemble.fits(given)
        if far.any():
            problem, remedy = REFUSALS[TARGET_TOO_FAR]
            row = int(np.argmax(far))
            said = message("estimators.refused", subject=str(given[row]), problem=problem, remedy=remedy)
            raise UpdateError(said, row=row)
        return given

    def staged_predict(self, X: Any) -> Iterator[Floats]:
        """Numbers after 1, 2, ... iterations, each of shape (n,)."""
        staged = self._staged(X)
        return (self._predictor().classes_of(F) for F in staged)


# The in-place online GBDT for river.


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
    frequent class is predicted. By default a batch is at most a twentieth of the examples in the model, at least 100.
    With 1 every example counts at once, and costs a walk through all trees.

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
    _own = ("update_every",)

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
    previous_labels: int = 0
