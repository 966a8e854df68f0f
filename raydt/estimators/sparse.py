"""Sparse features as users hold them: a scipy matrix of ones, or a column of lists of indices in a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from raydt.arrays.sparse import LARGEST_WIDTH, SparseRows
from raydt.errors import InputError
from raydt.sources.columns.bad_rows import BadRows
from raydt.sources.columns.encoding import Dictionary, in_words
from raydt.sources.columns.indices import SAY_HOW_MANY, declared_width, is_empty_list, read_indices, width_of
from raydt.sources.columns.tokens import Tokens, holds_tokens


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


def rows_of_column(column: pa.Array, name: str, width: int) -> SparseRows:
    """Rows of a column of lists.

    Raises
    ------
    InputError
        Of the first row that cannot be used.
    """
    bad = BadRows("", 0, len(column), {})
    rows = read_indices(column, name, width, None, bad)
    if bad:
        first = bad[min(bad)]
        beyond = ", or say in the metadata of the schema how many n_features there are"
        remedy = "Correct the row" + (beyond if first.remedy == SAY_HOW_MANY else "")
        raise InputError(first.problem, row=first.row, column=name, remedy=remedy)
    return rows


def rows_of_tokens(column: pa.Array, name: str, width: int, dictionary: Dictionary, known: bool) -> SparseRows:
    """Rows of a column of lists of tokens, for a model that a run has made of such.

    Raises
    ------
    InputError
        Of the first row that cannot be used; if ``known``, also of one with a token that the model does not know.
    """
    if not holds_tokens(column.type) and not is_empty_list(column.type):
        problem = f"it holds {in_words(column.type)}, but held lists of text when the model was made"
        raise InputError(problem, column=name, remedy="Convert the column to lists of tokens")
    bad, tokens = BadRows("", 0, len(column), {}), Tokens(name, grows=False)
    tokens.dictionary, tokens.width = dictionary, width
    tokens.check(column, None, bad)
    if bad:
        first = bad[min(bad)]
        raise InputError(first.problem, row=first.row, column=name, remedy="Correct the row")
    new = tokens.unknown(column) if known else None
    if new is not None:
        row, token = new
        remedy = "Replay them: a run has room for new tokens with source.n_features"
        raise InputError(f"the model does not know the token {token[:40]!r}", row=row, column=name, remedy=remedy)
    return tokens.encode(column, 0, None, bad)
