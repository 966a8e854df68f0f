"""Sparse features as users hold them: a scipy matrix of ones, or a column of lists of indices in a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from raydt.arrays.sparse import LARGEST_WIDTH, SparseRows
from raydt.encoding.indices import declared_width, width_of
from raydt.errors import InputError
from raydt.messages import message


def is_sparse_matrix(X: Any) -> bool:
    """Whether ``X`` is one of scipy's sparse matrices or arrays."""
    return hasattr(X, "tocsr")


def width_of_matrix(X: Any) -> int:
    """Number of features of a sparse matrix."""
    if X.shape[1] > LARGEST_WIDTH:
        raise InputError(message("estimators.sparse_width", width=X.shape[1], most=LARGEST_WIDTH))
    return int(X.shape[1])


def rows_of_matrix(X: Any, width: int, estimator: str) -> SparseRows:
    """Return the rows of a sparse matrix with ``width`` features, in which everything stored is 1 or 0. O(stored)."""
    if X.shape[1] != width:
        raise InputError(message("estimators.other_width", width=X.shape[1], estimator=estimator, wanted=width))
    matrix = X.tocsr(copy=True)
    matrix.sum_duplicates()  # sorts, too
    matrix.eliminate_zeros()
    wrong = np.flatnonzero(matrix.data != 1)
    if len(wrong):
        row = int(np.searchsorted(matrix.indptr, wrong[0], side="right")) - 1
        raise InputError(
            message("estimators.not_one", value=matrix.data[wrong[0]].item()),
            row=row,
            column=f"x{matrix.indices[wrong[0]]}",
        )
    return SparseRows.of_lengths(np.diff(matrix.indptr), matrix.indices.astype(np.int32), width)


def width_of_column(table: pa.Table, name: str) -> int:
    """Number of sparse features of a frame: ``n_features`` of its schema's metadata, or the largest index + 1."""
    return declared_width([table.schema], [None]) or max((width_of(c) for c in table.column(name).chunks), default=1)
