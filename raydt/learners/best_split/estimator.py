"""The sparse best split as a scikit-learn style classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raydt.errors import InputError
from raydt.estimators.frames import FrameEncoder
from raydt.estimators.sparse import is_sparse_matrix
from raydt.estimators.targets import Classifier
from raydt.learners.best_split.model import Splits, score_of_split
from raydt.sources.indices import N_FEATURES, holds_indices
from raydt.sparse import LARGEST_WIDTH, SparseRows

Self = TypeVar("Self", bound="SparseBestSplit")


class Split(NamedTuple):
    """A split: a feature (-1 if none was seen) and its score, lower is better."""

    feature: int
    score: float


class SparseBestSplit(Classifier):
    """The best split by one sparse binary feature, while rows are inserted and deleted; two classes.

    After every call the split is within (1 + ``alpha``) of the best one, in time that follows the ones of a row and
    not the number of features. Predictions are those of the stump: the majority of each row's side.

    Parameters
    ----------
    finder : {"updgini", "updent", "scan", "auto"}
        ``updgini`` and ``updent`` keep a structure for the Gini index and the entropy; ``scan`` looks at every seen
        feature and is exact; ``auto`` chooses by how sparse the rows of the first call are.
    criterion : {"gini", "entropy"}, optional
        By default that of the finder; Gini of ``scan`` and ``auto``.
    alpha : float, default 0.1
    query_every : int, default 1
        Rows after which the split is searched again.
    n_features : int, optional
        Number of features, where rows are lists of indices; any index up to 2**31 - 2 by default. A sparse matrix has
        its own.
    feature_groups : int, default 16

    Attributes
    ----------
    best_split_ : Split
        Named tuple of ``feature`` and ``score``: the sum over both sides of their share of the rows times their
        impurity, 2p(1 - p) or the entropy in nats.
    classes_ : ndarray
    row_ids_ : ndarray of int64
        Ids of the rows of the last ``fit`` or ``partial_fit``; of a model loaded with its examples, all live ids,
        oldest first.
    n_features_in_ : int

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
    _own: ClassVar[tuple[str, ...]] = ("n_features",)
    categorical_features = None

    def __init__(
        self,
        *,
        finder: Literal["updgini", "updent", "scan", "auto"] = "updgini",
        criterion: Literal["gini", "entropy"] | None = None,
        alpha: float = 0.1,
        query_every: int = 1,
        n_features: int | None = None,
        feature_groups: int = 16,
    ) -> None:
        self.finder = finder
        self.criterion = criterion
        self.alpha = alpha
        self.query_every = query_every
        self.n_features = n_features
        self.feature_groups = feature_groups

    @property
    def best_split_(self) -> Split:
        """The split of the last search."""
        self._require_fitted()
        split = Splits.of_arrays(self._model())
        return Split(int(split.feature[0]), score_of_split(self._fitted_options.entropy, split))

    def _new_encoder(self, categorical: Sequence[str | int] | None) -> FrameEncoder:
        encoder = _IndexEncoder(self.feature_groups, self.n_features)
        encoder.takes_sparse = True
        return encoder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse, tags.classifier_tags.multi_class = True, False
        return tags


class _IndexEncoder(FrameEncoder):
    """Also takes rows as lists of indices, by themselves.

    Parameters
    ----------
    groups : int
    n_features : int or None
    """

    def __init__(self, groups: int, n_features: int | None) -> None:
        super().__init__(None, groups)
        self._width = LARGEST_WIDTH if n_features is None else n_features

    def learn(self, X: Any) -> None:
        """Take the number of features from ``X``, or from the parameter."""
        super().learn(self._frame(X))

    def encode(self, X: Any, estimator: str, grow: bool) -> npt.NDArray[np.float64]:
        """The dense features: none."""
        return super().encode(self._frame(X), estimator, grow)

    def sparse_of(self, X: Any, estimator: str, known: bool = False) -> SparseRows | None:
        """The sparse features of ``X``."""
        return super().sparse_of(self._frame(X), estimator, known)

    def _frame(self, X: Any) -> Any:
        """A table with one column of what is a list of rows; everything else as it is."""
        if isinstance(X, list | tuple):
            try:
                rows = [np.asarray(row) for row in X]
                if any(row.ndim != 1 or (row.size and row.dtype.kind not in "iu") for row in rows):
                    raise ValueError("a row is not a list of integers")
                lengths = np.cumsum([0, *map(len, rows)])
                values = np.concatenate([np.empty(0, dtype=np.int64), *(row.astype(np.int64) for row in rows)])
                X = pa.ListArray.from_arrays(pa.array(lengths, pa.int32()), pa.array(values, pa.int64()))
            except (TypeError, ValueError, pa.ArrowInvalid) as error:
                raise InputError(f"X is not a list of rows, each the indices of its ones: {error}") from error
        if isinstance(X, pa.Array | pa.ChunkedArray) and holds_indices(X.type):
            table = pa.table({"indices": X})
            return table.replace_schema_metadata({N_FEATURES: str(self._width).encode()})
        if is_sparse_matrix(X) or hasattr(X, "schema") or hasattr(X, "columns") or hasattr(X, "to_arrow"):
            return X
        raise InputError(
            f"X is {type(X).__name__}, and rows are lists of indices, an Arrow column of them, or a sparse matrix",
            remedy="Pass scipy.sparse.csr_matrix(X) of a matrix of zeros and ones",
        )
