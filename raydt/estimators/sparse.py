"""Sparse features as users hold them: a scipy matrix of ones, or a column of lists of indices in a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from raydt.arrays.sparse import LARGEST_WIDTH, SparseRows
from raydt.encoding.indices import declared_width, width_of
from raydt.errors import InputError


def is_sparse_matrix(X: Any) -> bool:
    """Whether ``X`` is one of scipy's sparse matrices or arrays."""
    return hasattr(X, "tocsr")


def width_of_matrix(X: Any) -> int:
    """Number of features of a sparse matrix."""
    if X.shape[1] > LARGEST_WIDTH:
        raise InputError(f"X has {X.shape[1]} features; at most {LARGEST_WIDTH} can be sparse")
    return int(X.shape[1])


def rows_of_matrix(X: Any, width: int, estimator: str) -> SparseRows:
    """Rows of a sparse matrix, in which everything stored is 1 or 0. O(stored).

    Raises
    ------
    InputError
        Another number of features, or a value that is neither.
    """
    if X.shape[1] != width:
        raise InputError(f"X has {X.shape[1]} features, but {estimator} is expecting {width} features as input")
    matrix = X.tocsr(copy=True)
    matrix.sum_duplicates()  # sorts, too
    matrix.eliminate_zeros()
    wrong = np.flatnonzero(matrix.data != 1)
    if len(wrong):
        row = int(np.searchsorted(matrix.indptr, wrong[0], side="right")) - 1
        raise InputError(
            f"a sparse matrix may hold only ones, but this one holds {matrix.data[wrong[0]].item()!r}",
            row=row,
            column=f"x{matrix.indices[wrong[0]]}",
            remedy="Pass X.toarray() if the values matter, or X != 0 if they do not",
        )
    return SparseRows.of_lengths(np.diff(matrix.indptr), matrix.indices.astype(np.int32), width)


def width_of_column(table: pa.Table, name: str) -> int:
    """Number of sparse features of a frame: ``n_features`` of its schema's metadata, or the largest index + 1."""
    return declared_width([table.schema], [None]) or max((width_of(c) for c in table.column(name).chunks), default=1)
