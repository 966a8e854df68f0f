"""From what users hold (NumPy, pandas, polars, Arrow) to the float64 matrix that learners take."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raydt.arrays.sparse import SparseRows
from raydt.errors import InputError
from raydt.estimators.arguments import columns_of, names_of
from raydt.estimators.sparse import (
    is_sparse_matrix,
    rows_of_column,
    rows_of_matrix,
    rows_of_tokens,
    width_of_column,
    width_of_matrix,
)
from raydt.examples.features import Features
from raydt.examples.reading import CLASSES, Reading
from raydt.sources.columns.encoding import (
    LARGEST_INTEGER,
    Dictionary,
    column_kind,
    in_words,
    inexact,
    infinite,
    is_text,
    missing,
    numbers,
    plain,
)
from raydt.sources.columns.indices import find_indices, holds_indices
from raydt.sources.columns.numerals import doubt
from raydt.sources.columns.tokens import holds_tokens

_REMEDY = "Fill or drop such rows"


def as_table(X: Any) -> pa.Table | None:
    """An Arrow table of a data frame, table or record batch; None if ``X`` is not one."""
    if isinstance(X, pa.Table):
        return X
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    if hasattr(X, "to_arrow"):  # polars
        return X.to_arrow()
    if hasattr(X, "columns") and hasattr(X, "iloc"):  # pandas
        try:
            return pa.Table.from_pandas(X, preserve_index=False)
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            raise InputError(f"the data frame cannot be converted to Arrow: {error}") from error
    return None


class FrameEncoder:
    """Remembers the columns of the first frame and encodes later ones the same way.

    Parameters
    ----------
    categorical : sequence of str, int or bool, optional
        Columns that hold categories, by name or position, or a truth value for each column; text columns of frames
        always do.
    groups : int
        Feature groups of :class:`Features`.
    reading : Reading
        What the learner takes. Where values may be missing, numbers are then NaN, and categories -1, as unseen ones
        are.
    """

    def __init__(self, categorical: Sequence[str | int] | None, groups: int, reading: Reading = CLASSES) -> None:
        self._wanted, self._groups, self._reading = categorical, groups, reading
        self.features: Features | None = None
        self.named = False
        self.dictionaries: dict[str, Dictionary] = {}

    def learn(self, X: Any) -> None:
        """Take names and kinds of the columns from ``X``."""
        table = as_table(X)
        lists = None
        if self._reading.sparse and is_sparse_matrix(X):
            if len(names_of(self._wanted)):
                raise InputError("categorical_features names columns, but a sparse matrix has no categorical ones")
            self.features = Features((), (), self._groups, width_of_matrix(X))
            return
        if table is None:
            columns = names = tuple(f"x{j}" for j in range(matrix_of(X).shape[1]))
            text = [False] * len(names)
        else:
            columns = names = tuple(str(name) for name in table.column_names)
            lists = find_indices({n: f.type for n, f in zip(names, table.schema, strict=True)}, None, self._reading)
            if lists is not None and holds_tokens(table.schema.field(lists).type):
                remedy = "Replace every token by its index, as CountVectorizer(binary=True) does"
                raise InputError("it holds lists of text, but lists of indices are needed", column=lists, remedy=remedy)
            names = tuple(name for name in names if name != lists)
            text = [column_kind(field) == "text" for field in table.schema if field.name != lists]
        wanted = columns_of(self._wanted, columns)
        unknown = sorted(str(name) for name in wanted - set(names))
        if lists is not None and lists in wanted:
            problem = "it holds sparse features, which are not categories"
            raise InputError(problem, column=lists, remedy="Leave it out of categorical_features")
        if unknown:
            raise InputError(f"categorical_features names {unknown[0]!r}, which X does not have")
        if table is not None:
            _warn_of_numbers(table, [name for name, t in zip(names, text, strict=True) if t and name not in wanted])
        self.named = table is not None
        categorical = tuple(t or n in wanted for n, t in zip(names, text, strict=True))
        self.features = Features(names, categorical, self._groups)
        if lists is not None:
            width = width_of_column(table, lists)
            self.features = Features(names, categorical, self._groups, width, lists)
        by_value = self._reading.by_value
        self.dictionaries = {
            n: Dictionary(by_value=by_value) for n, c in zip(names, self.features.categorical, strict=True) if c
        }

    def take(self, features: Features, named: bool, values: Mapping[str, Sequence[Any]]) -> None:
        """Go on from a saved model; ``values`` of its categories and tokens, by column, in the order of their codes."""
        self.features, self.named = features, named
        categorical = [name for name, kind in zip(features.names, features.categorical, strict=True) if kind]
        known: dict[str, Sequence[Any]] = {**dict.fromkeys(categorical, ()), **values}
        self.dictionaries = {
            name: Dictionary(column, self._reading.by_value and name in categorical) for name, column in known.items()
        }

    def encode(self, X: Any, estimator: str, grow: bool) -> npt.NDArray[np.float64]:
        """The matrix of ``X``, shape (n, d), C order, finite or missing; categories as codes.

        Parameters
        ----------
        estimator : str
            Its name, for messages.
        grow : bool
            Whether new categories get codes; otherwise they get -1, which no split equals.

        Raises
        ------
        InputError
            Other columns than those learnt, NaN or infinite values, values that are not numbers, integers beyond 2**53.
        """
        assert self.features is not None
        table = as_table(X)
        names = self.features.names
        if self.features.sparse and table is None:
            if not is_sparse_matrix(X) or names:
                what = "a frame with the column of lists" if self.named else "a sparse matrix"
                raise InputError(f"{estimator} was fitted with {what}", remedy="Pass X as it was when fitted")
            return np.empty((X.shape[0], 0))
        if table is None:
            out = matrix_of(X)
            if out.shape[1] != len(names):
                raise InputError(
                    f"X has {out.shape[1]} features, but {estimator} is expecting {len(names)} features as input"
                )
            columns: list[Any] = [pa.array(out[:, j]) for j in range(len(names))] if self.dictionaries else []
        else:
            lacking = [name for name in names if name not in table.column_names]
            if lacking and self.named:
                raise InputError(f"X lacks the column {lacking[0]!r}, which {estimator} was fitted with")
            chosen = table.select(list(names)) if self.named or self.features.sparse else table
            if chosen.num_columns != len(names):
                raise InputError(
                    f"X has {chosen.num_columns} features, but {estimator} is expecting {len(names)} features as input"
                )
            columns = [_one_chunk(column) for column in chosen.columns]
            out = np.empty((table.num_rows, len(names)))
            for j, (name, column) in enumerate(zip(names, columns, strict=True)):
                coded = name in self.dictionaries
                nothing = (coded or self._reading.missing) and pa.types.is_null(column.type)
                text = not nothing and column_kind(chosen.schema.field(j)) == "text"
                if coded:
                    continue
                if text:
                    raise InputError(
                        f"it holds {in_words(column.type)}, but held numbers when the model was fitted",
                        column=name,
                        remedy="Convert the column to numbers",
                    )
                _require_exact(inexact(column), name)
                out[:, j] = numbers(column)
        for j, name in enumerate(names):
            if name in self.dictionaries:
                out[:, j] = self._codes(name, columns[j], grow)
        bad = ~np.isfinite(out)
        if self._reading.missing:
            absent = np.isnan(out)
            out[absent] = np.nan  # of all NaNs one, so that equal rows have equal bytes
            bad &= ~absent
        if bad.any():
            row, j = (int(i) for i in np.argwhere(bad)[0])
            kind = "NaN" if np.isnan(out[row, j]) else "infinity"
            raise InputError(f"Input X contains {kind}", row=row, column=names[j], remedy=_REMEDY)
        out += 0.0  # -0.0 equals 0.0
        return out

    def sparse_of(self, X: Any, estimator: str, known: bool = False) -> SparseRows | None:
        """The sparse features of ``X``, n rows, which :meth:`encode` has taken; None where there are none.

        Parameters
        ----------
        known : bool
            Every token has to be known; otherwise those that are not are no features. Only of a model of tokens, which
            a run has made.

        Raises
        ------
        InputError
            A value other than 0 and 1, indices or tokens that cannot be used, or no such column.
        """
        assert self.features is not None
        if not self.features.sparse:
            return None
        table, name = as_table(X), self.features.sparse_column
        if table is None:
            return rows_of_matrix(X, self.features.sparse, estimator)
        if name not in table.column_names:
            raise InputError(f"X lacks the column {name!r}, which {estimator} was fitted with")
        column = _one_chunk(table.column(name))
        if name in self.dictionaries:
            return rows_of_tokens(column, name, self.features.sparse, self.dictionaries[name], known)
        if not holds_indices(column.type):
            problem = f"it holds {in_words(column.type)}, but held lists of indices when the model was fitted"
            raise InputError(problem, column=name, remedy="Convert the column to lists")
        return rows_of_column(column, name, self.features.sparse)

    def _codes(self, name: str, column: pa.Array, grow: bool) -> npt.NDArray[np.int64]:
        dictionary = self.dictionaries[name]
        absent = missing(column)
        refused = infinite(column) if self._reading.missing else absent
        if refused is not None:
            what = "infinity" if self._reading.missing else "a missing value, NaN or infinity"
            row = int(np.flatnonzero(refused)[0])
            raise InputError(f"it holds {what}, which is not a category", row=row, column=name, remedy=_REMEDY)
        if absent is not None and absent.all():
            return np.full(len(column), -1, dtype=np.int64)
        if dictionary.values and isinstance(dictionary.values[0], str) != (in_words(column.type) == "text"):
            was = "text" if isinstance(dictionary.values[0], str) else "numbers"
            raise InputError(
                f"it holds {in_words(column.type)}, but held {was} when the model was fitted",
                column=name,
                remedy=f"Convert the column to {was}",
            )
        if not grow:
            return dictionary.find(column)
        return dictionary.encode(column, 0, None if absent is None else ~absent)


def _warn_of_numbers(table: pa.Table, names: list[str]) -> None:
    """Warn of columns of text that look like numbers; columns of dictionaries are meant as categories."""
    for name in names:
        column = table.column(name)[:1000]
        words = doubt(plain(column.unique())) if is_text(column.type) else None
        if words is not None:
            message = f"column {name!r} {words}, or name the column in categorical_features if they are names."
            warnings.warn(message, UserWarning, stacklevel=6)


def _require_exact(beyond: npt.NDArray[np.bool_] | None, name: str) -> None:
    """Refuse the integers that float64 would round."""
    if beyond is not None and beyond.any():
        problem = "it holds an integer beyond 2**53, which has no exact float64"
        remedy = "Scale the column, or pass a data frame and list it under categorical_features"
        raise InputError(problem, row=int(np.flatnonzero(beyond)[0]), column=name, remedy=remedy)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return plain(combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks))


def nothing_in(shape: tuple[int, ...], what: str) -> ValueError:
    """The field's usual error of a matrix without samples, or without features."""
    return ValueError(f"Found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required.")


def matrix_of(X: Any) -> npt.NDArray[np.float64]:
    """A float64 copy of an array-like, shape (n, d), with the field's usual messages when it is none."""
    if is_sparse_matrix(X):
        raise TypeError("Sparse data was passed, but dense data is required. Use '.toarray()' to convert it.")
    array = np.asarray(X)
    if np.iscomplexobj(array):
        raise ValueError(f"Complex data not supported\n{array}\n")
    if array.ndim != 2:
        raise ValueError(f"Expected 2D array, got {array.ndim}D array instead. Reshape your data with .reshape(-1, 1)")
    if array.shape[0] == 0:
        raise nothing_in(array.shape, "sample")
    if array.shape[1] == 0:
        raise nothing_in(array.shape, "feature")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        beyond = array > LARGEST_INTEGER
        if array.dtype.kind == "i":
            beyond |= array < -LARGEST_INTEGER
        for j in np.flatnonzero(beyond.any(axis=0))[:1].tolist():
            _require_exact(beyond[:, j], f"x{j}")
    try:
        return np.array(array, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        message = f"X needs numbers ({error}). Pass text columns in a data frame or an Arrow table"
        raise type(error)(message) from error
