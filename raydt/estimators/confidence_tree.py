"""The confidence tree as a scikit-learn style classifier."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from raydt.estimators.arguments import documented, warn
from raydt.estimators.base import Classifier
from raydt.estimators.fitted import ExampleMetadata, SumOfTrees
from raydt.estimators.frames import FrameEncoder, ListEncoder
from raydt.estimators.river import RiverClassifier, Row
from raydt.learners.confidence_tree.bounds import Criterion, RuleName
from raydt.learners.confidence_tree.naive_bayes import LeafPrediction
from raydt.sessions.session import InProcessSession

Self = TypeVar("Self", bound="ConfidenceTreeClassifier")


@documented
@dataclass(kw_only=True, repr=False, eq=False)
class ConfidenceTreeClassifier(SumOfTrees, Classifier):
    """A decision tree that splits a leaf once a confidence interval says which split is best (C-Tree, VFDT).

    A leaf predicts by its majority, by naive Bayes on counts, or by naive Bayes with normally distributed numbers,
    whichever has been right most often for the examples that it has counted. Bins of features are made from the rows of
    the first call, and again from the live rows as more come (``renew_bins``), so that the first call may be short.
    Numeric features may have NaN, which goes right at every split. After a deletion all counts are those of the
    examples that remain, in the same structure; splits stay. Predictions of naive Bayes follow from no path through
    splits: to explain or export the tree, set ``leaf_prediction="majority"`` before training.

    Notes
    -----
    R. De Rosa, N. Cesa-Bianchi, Splitting with Confidence in Decision Trees with Application to Stream Mining. A row
    takes O(depth + features * classes), with ``leaf_prediction="adaptive_inherited"`` O(features * bins * classes)
    more, every ``grace_period`` of them at a leaf that much more in any case, and new bins O(features * log(rows)) for
    each row in the mean. The first ``predict`` after a change takes O(leaves * features * bins * classes) besides the
    rows, unless leaves predict their majority: many rows in a call are faster than many calls.

    Examples
    --------
    >>> from raydt import ConfidenceTreeClassifier
    >>> X, y = [[i % 10, i % 7] for i in range(200)], [i % 10 > 4 for i in range(200)]
    >>> tree = ConfidenceTreeClassifier(grace_period=50).partial_fit(X, y)
    >>> receipt = tree.forget(tree.row_ids_[:100])
    >>> receipt.active, tree.predict([[2.0, 3.0], [8.0, 3.0]]).tolist(), tree.audit().conformance
    (100, [False, True], 'holds')
    """

    kind = "confidence_tree"

    rule: RuleName = "ctree"
    criterion: Criterion | None = None
    confidence: Literal["theorem", "practical"] = "practical"
    delta: float | Literal["1/t"] = 1e-7
    c: float = 0.01
    tie_threshold: float = 0.0
    grace_period: int = 100
    max_bins: int = 64
    renew_bins: int | None = None
    rival: Literal["feature", "split"] = "feature"
    leaf_prediction: LeafPrediction = "adaptive_inherited"
    class_weight: Literal["balanced"] | dict[Any, float] | None = None
    categorical_features: Sequence[str | int] | None = None
    n_features: int | None = None
    feature_groups: int = 16
    n_jobs: int | None = None

    def _new_encoder(self, categorical: Sequence[str | int] | None) -> FrameEncoder:
        if self.n_features is None:
            return super()._new_encoder(categorical)  # a list is a matrix
        return ListEncoder(categorical, self.feature_groups, self._traits.reading, self.n_features)

    def _insertion(self: Self, X: Any, y: Any, beside: ExampleMetadata, warmup: bool) -> Callable[[], Self]:
        insert = super()._insertion(X, y, beside, warmup)

        def inserted() -> Self:
            taken = insert()
            few = self._fitted_options.outlook(len(self.row_ids_)) if warmup else ""
            if few:
                warn(f"{type(self).__name__}: {few}")
            return taken

        return inserted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.criterion != "kearns_mansour"
        return tags


# The confidence tree for river.

#: Live examples that make the first bins: a few, if more make them again, or all that ever do.
FIRST, ONLY = 20, 200
#: More updates than there will be.
_NEVER = 1 << 60


@documented
@dataclass(repr=False, eq=False)
class RiverConfidenceTreeClassifier(RiverClassifier):
    """A decision tree for river that splits a leaf once a confidence interval says which split is best (C-Tree, VFDT).

    The first example learned says what the features are: its keys, in the order of their names; strings are
    categories, numbers are numbers. Later examples have exactly these features. None and NaN are missing values; a
    feature of which the first example has none holds numbers, unless ``categorical_features`` names it.

    Notes
    -----
    Until there are bins, the majority predicts. The first 20 live examples make them; the first 200 if they are never
    made again, which is so with ``renew_bins=0`` and, by default, with ``confidence="theorem"``. The tree and its
    predictions are those of :class:`raydt.ConfidenceTreeClassifier` with 20 rows in the first call, and of a replay
    with a warm-up of 20. ``forget_one`` leaves the counts of the examples that remain, in the same structure. Updates
    by the thousand cost a few microseconds there; here one by one, most of it Python; ``benchmarks/river_adapter.py``
    prints it. Ties go to the label seen first.

    Examples
    --------
    >>> from raydt import RiverConfidenceTreeClassifier
    >>> tree = RiverConfidenceTreeClassifier(grace_period=50)
    >>> for i in range(200):
    ...     tree.learn_one({"hours": i % 10, "weather": "dry" if i % 7 else "wet"}, i % 10 > 4)
    >>> tree.predict_one({"hours": 2, "weather": "wet"}), tree.predict_one({"hours": 8, "weather": "wet"})
    (False, True)
    >>> tree.forget_one({"hours": 8, "weather": "dry"}, True)
    >>> tree.audit().conformance
    'holds'
    """

    estimator = ConfidenceTreeClassifier

    rule: RuleName = "ctree"
    criterion: Criterion | None = None
    confidence: Literal["theorem", "practical"] = "practical"
    delta: float | Literal["1/t"] = 1e-7
    c: float = 0.01
    tie_threshold: float = 0.0
    grace_period: int = 100
    max_bins: int = 64
    renew_bins: int | None = None
    rival: Literal["feature", "split"] = "feature"
    leaf_prediction: LeafPrediction = "adaptive_inherited"
    categorical_features: Sequence[Hashable] | None = None
    previous_labels: int = 0

    _first = 0  # live examples that end the warm-up; 0 when it has ended

    def _opened(self, options: Any) -> InProcessSession:
        self._first = FIRST if options.renewal else ONLY
        self._warmup = _NEVER  # it ends when enough examples are live: in a warm-up of a stream none is forgotten
        return super()._opened(options)

    def _apply(self, op: int, row: Row, code: int) -> bool:
        taken = super()._apply(op, row, code)
        if self._first and self._session is not None and self._session.coordinator.store.live == self._first:
            self._session.finish()
            self._first = 0
        return taken

    def _shares(self, x: Mapping[Hashable, Any]) -> Row:
        assert self._session is not None
        coordinator: Any = self._session.coordinator
        # Not predict_proba: that takes the counts of all leaves, which change with every example.
        asked = coordinator.shares_now(self._encode(x)[0], len(self._labels))
        shares: Row = self._session.driver.run(asked)[0]
        return shares
