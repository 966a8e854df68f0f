"""Rows as lists of the indices of their ones, by themselves: what learners take that need sparse features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from raydt.arrays.sparse import LARGEST_WIDTH, SparseRows
from raydt.arrays.types import Floats
from raydt.encoding.indices import N_FEATURES, holds_indices
from raydt.errors import InputError
from raydt.estimators.frames import FrameEncoder, as_table
from raydt.estimators.sparse import is_sparse_matrix
from raydt.examples.reading import CLASSES, Reading
from raydt.messages import message


class ListEncoder(FrameEncoder):
    """Also takes a sequence of index arrays and an Arrow column of lists, without a frame around it.

    ``n_features`` is the number of sparse features, whatever a frame says; by default a frame's own, and any index
    where there is none. With ``takes_matrix`` a matrix is left to what follows, which says why it has nothing sparse.
    """

    def __init__(
        self,
        categorical: Sequence[str | int] | None,
        groups: int,
        reading: Reading = CLASSES,
        n_features: int | None = None,
        takes_matrix: bool = True,
    ) -> None:
        super().__init__(categorical, groups, replace(reading, sparse=True))
        self._n_features, self._takes_matrix = n_features, takes_matrix

    def learn(self, X: Any) -> None:
        """Take names, kinds and the number of features from ``X``, or the number from the parameter."""
        X = self._frame(X)
        if self._n_features is not None and (table := as_table(X)) is not None:
            X = _declaring(table, self._n_features)
        super().learn(X)

    def encode(
        self, X: Any, estimator: str, *, grow: bool = False, known: bool = False
    ) -> tuple[Floats, SparseRows | None]:
        """Encode n rows; lists by themselves have no dense features."""
        return super().encode(self._frame(X), estimator, grow=grow, known=known)

    def _frame(self, X: Any) -> Any:
        """A table with one column of what is a list of rows; everything else as it is."""
        if isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
            X = _column_of(X)
        if isinstance(X, pa.Array | pa.ChunkedArray) and holds_indices(X.type):
            # The name that a fitted model knows: it may have been fitted with a frame.
            name = "indices" if self.features is None else self.features.sparse_column
            return _declaring(pa.table({name: X}), LARGEST_WIDTH)
        framed = hasattr(X, "schema") or hasattr(X, "columns") or hasattr(X, "to_arrow")
        if framed or is_sparse_matrix(X) or (self._takes_matrix and isinstance(X, np.ndarray)):
            return X
        raise InputError(message("estimators.no_lists", type=type(X).__name__))


def _column_of(X: Any) -> pa.Array:
    """An Arrow column of a sequence of index arrays. O(ones)."""
    try:
        rows = [np.asarray(row) for row in X]
        if any(row.ndim != 1 or (row.size and row.dtype.kind not in "iu") for row in rows):
            raise ValueError(message("estimators.bad_row"))
        lengths = np.cumsum([0, *map(len, rows)])
        values = np.concatenate([np.empty(0, dtype=np.int64), *(row.astype(np.int64) for row in rows)])
        return pa.ListArray.from_arrays(pa.array(lengths, pa.int32()), pa.array(values, pa.int64()))
    except (TypeError, ValueError, pa.ArrowInvalid) as error:
        raise InputError(message("estimators.bad_lists", reason=str(error))) from error


def _declaring(table: pa.Table, width: int) -> pa.Table:
    """The table, whose schema says that there are so many sparse features."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), N_FEATURES: str(width).encode()})
