"""Rows with their dense and sparse features, as kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.features import Features
from raydt.sparse import SparseRows, concatenated


class Rows(NamedTuple):
    """n rows: ``X``, shape (n, dense features), and the sparse features that are 1 (``indptr``, ``indices``)."""

    X: npt.NDArray[np.float64]
    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]

    @classmethod
    def of(cls, X: npt.NDArray[np.float64], sparse: SparseRows | None = None) -> Rows:
        """Rows of a matrix and, if there are some, its sparse features."""
        sparse = sparse or SparseRows.empty(0, len(X))
        return cls(np.ascontiguousarray(X, dtype=np.float64), sparse.indptr, sparse.indices)

    @classmethod
    def none(cls, features: Features) -> Rows:
        """No rows."""
        return cls.of(np.empty((0, len(features.names))))

    def sparse(self, n_features: int) -> SparseRows:
        """The sparse features alone."""
        return SparseRows(self.indptr, self.indices, n_features)

    def take(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows.of(self.X[rows], self.sparse(0)[rows])


def joined_rows(parts: Sequence[Rows]) -> Rows:
    """All rows, one part after the other."""
    return Rows.of(np.concatenate([p.X for p in parts]), concatenated([p.sparse(0) for p in parts]))
