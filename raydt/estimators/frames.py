"""From what users hold (NumPy, pandas, polars, Arrow) to the float64 matrix that learners take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from raydt.arrays.blocks import LARGEST_WIDTH, SparseRows, is_clean
from raydt.arrays.elementary import AnyArray, Bools, Floats
from raydt.encoding.columns import (
    LARGEST_INTEGER,
    Dictionary,
    Fault,
    Faults,
    Tokens,
    column_kind,
    column_kinds,
    doubt,
    error_of,
    holds_tokens,
    in_words,
    is_text,
    missing,
    plain,
    repeated,
)
from raydt.encoding.features import (
    N_FEATURES,
    FeatureEncoder,
    declared_width,
    find_indices,
    holds_indices,
    is_empty_list,
    width_of,
)
from raydt.errors import InputError
from raydt.estimators.arguments import columns_of, names_of, warn
from raydt.examples.updates import CLASSES, Features, Reading
from raydt.messages import message
from raydt.parallel import ranges, run, threads

# Sparse features as users hold them: a scipy matrix of ones, or a column of lists of indices in a frame.


def is_sparse_matrix(X: Any) -> bool:
    """Return True if ``X`` is one of scipy's sparse matrices or arrays."""
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


#: Cells that are worth the start of another thread.
_FEW_CELLS = 1 << 17
#: Values of a call of which most may have been seen: fewer are new by chance.
_MANY_VALUES = 10


def as_table(X: Any) -> pa.Table | None:
    """An Arrow table of a data frame, table or record batch; None if ``X`` is not one."""
    if isinstance(X, pa.Table | pa.RecordBatch):
        require_distinct(X.schema.names)
        return X if isinstance(X, pa.Table) else pa.Table.from_batches([X])
    if hasattr(X, "to_arrow"):  # polars
        return _converted_frame(X, lambda frame: frame.to_arrow())
    if hasattr(X, "collect") and hasattr(X, "lazy"):  # polars
        raise InputError(message("estimators.lazy"))
    if hasattr(X, "iloc") and hasattr(X, "columns"):  # pandas
        require_distinct(X.columns)
        return _converted_frame(X, partial(pa.Table.from_pandas, preserve_index=False, nthreads=threads()))
    return None


def require_distinct(names: Iterable[Any]) -> None:
    """Raise InputError for a column name that is given twice, also as a number and as its text."""
    seen: set[str] = set()
    for name in map(str, names):
        if name in seen:
            raise InputError(message("estimators.repeated_column"), column=name)
        seen.add(name)


def _converted_frame(X: Any, convert: Callable[[Any], pa.Table]) -> pa.Table:
    """Convert a frame, or raise InputError with the first column that cannot be converted."""
    errors = (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError)
    try:
        return convert(X)
    except errors as error:
        for name in X.columns:
            try:
                convert(X[[name]])
            except errors as cause:
                said = message("estimators.frame", kind=str(X[name].dtype), reason=str(cause).rstrip("."))
                raise InputError(said, column=str(name)) from error
        raise


#: Code of a category that no example has; one that lacks the value has -1.
_NO_CATEGORY = -2.0

#: How many values of each column of categories no model has ever seen, and how many values there are.
Unseen = dict[str, tuple[int, int]]
_counts: ContextVar[Unseen | None] = ContextVar("_counts", default=None)


@contextmanager
def warning_of_unseen(estimator: str) -> Iterator[Unseen]:
    """Warn after the block of columns of categories of which the models in it have never seen most values.

    A block within another leaves the warning to that one, so that a call warns once, for all the models that it asks.
    """
    if (outer := _counts.get()) is not None:
        yield outer
        return
    found: Unseen = {}
    _counts.set(found)
    try:
        yield found
    finally:
        _counts.set(None)  # after an interrupt a block may end in another context, which has no token of this one
    for name, (rows, n) in found.items():
        if n >= _MANY_VALUES and rows > n / 2:
            warn(message("estimators.unseen", rows=rows, all=n, name=name, estimator=estimator))


class FrameEncoder:
    """Remembers the columns of the first frame and encodes later ones the same way.

    ``categorical`` is the parameter of estimators; text columns of frames always are. Where ``reading`` says that
    values may be missing, numbers are then NaN, and categories -1, as unseen ones are.
    """

    def __init__(self, categorical: Sequence[str | int] | None, groups: int, reading: Reading = CLASSES) -> None:
        self._wanted, self._groups, self._reading = categorical, groups, reading
        self._encoder: FeatureEncoder | None = None
        self.named = False
        #: The last labels of a run, by feature, which stand in frames that have no such columns.
        self.previous: Mapping[str, Any] = {}

    @property
    def features(self) -> Features | None:
        """Names and kinds of the columns, once they are known."""
        return None if self._encoder is None else self._encoder.features

    @property
    def dictionaries(self) -> dict[str, Dictionary]:
        """Categories and tokens by column."""
        return {} if self._encoder is None else self._encoder.dictionaries

    def learn(self, X: Any) -> None:
        """Take names and kinds of the columns from ``X``."""
        table = as_table(X)
        lists = None
        if self._reading.sparse and is_sparse_matrix(X):
            if len(names_of(self._wanted)):
                raise InputError(message("estimators.sparse_categories"))
            self._encoder = FeatureEncoder(Features((), (), self._groups, width_of_matrix(X)), self._reading)
            return
        if table is None:
            columns = names = tuple(f"x{j}" for j in range(array_of(X).shape[1]))
            text = [False] * len(names)
        else:
            columns = names = tuple(str(name) for name in table.column_names)
            lists = find_indices({n: f.type for n, f in zip(names, table.schema, strict=True)}, None, self._reading)
            if lists is not None and holds_tokens(table.schema.field(lists).type):
                raise InputError(message("estimators.text_lists"), column=lists)
            names = tuple(name for name in names if name != lists)
            kinds = column_kinds([field for field in table.schema if field.name != lists])
            text = [kind == "text" for kind in kinds]
        wanted = columns_of(self._wanted, columns)
        unknown = sorted(str(name) for name in wanted - set(names))
        if lists is not None and lists in wanted:
            raise InputError(message("estimators.list_categories"), column=lists)
        if unknown:
            raise InputError(message("estimators.unknown_name", name=unknown[0], rows="X"))
        if table is not None:
            _warn_of_numbers(table, [name for name, t in zip(names, text, strict=True) if t and name not in wanted])
        self.named = table is not None
        categorical = tuple(t or n in wanted for n, t in zip(names, text, strict=True))
        sparse = () if lists is None else (width_of_column(table, lists), lists)
        self._encoder = FeatureEncoder(Features(names, categorical, self._groups, *sparse), self._reading)

    def take(
        self, features: Features, named: bool, values: Mapping[str, Sequence[Any]], previous: Mapping[str, Any]
    ) -> None:
        """Go on from a saved model; ``values`` of its categories and tokens, by column, in the order of their codes."""
        tokens, self.previous = None, previous
        if features.sparse and features.sparse_column in values:
            tokens = Tokens(features.sparse_column, grows=False)
            tokens.width = features.sparse
        self.named, self._encoder = named, FeatureEncoder(features, self._reading, tokens, values)

    def encode(
        self, X: Any, estimator: str, *, grow: bool = False, known: bool = False
    ) -> tuple[Floats, SparseRows | None]:
        """Encode n rows: a float64 matrix, shape (n, d), in C order, finite or missing, and sparse features, if any.

        The matrix is ``X`` itself if nothing in it needs to be changed; nobody writes to it or keeps it.

        With ``grow``, new categories get codes; otherwise -1, which no split equals, or, with ``known``, a code that no
        example has, not even one that lacks the value. ``known`` requires that every token is known, of a model of
        tokens, which a run has made; otherwise new ones are no features. ``estimator`` is its name, for messages.
        ``InputError`` for other columns than those learnt, or for the first row that has an unusable value.
        """
        assert self._encoder is not None
        encoder, features, table, matrix = self._encoder, self._encoder.features, as_table(X), None
        if table is not None and self.previous.keys().isdisjoint(table.column_names):
            for name, label in self.previous.items():
                table = table.append_column(name, repeated(label, table.num_rows))
        self._warn_of_names(table, estimator)
        if table is None and features.sparse:
            if not is_sparse_matrix(X) or features.names:
                name = "wants_frame" if self.named else "wants_matrix"
                raise InputError(message(f"estimators.{name}", estimator=estimator))
            return np.empty((X.shape[0], 0)), rows_of_matrix(X, features.sparse, estimator)
        if table is None:
            given = array_of(X)
            self._require_width(given.shape[1], estimator)
            if not encoder.categories and _is_clean(given):
                return given, None
            matrix = matrix_of(given)
            coded = [j for j, name in enumerate(features.names) if name in encoder.categories]
            # Copies: Arrow may share a column with the matrix, in which the encoder replaces categories by codes.
            columns, n = {features.names[j]: pa.array(matrix[:, j].copy()) for j in coded}, len(matrix)
        else:
            columns, n = self._columns(table, estimator), table.num_rows
        faults = Faults(n)
        out, sparse = encoder.check(columns, faults, X=matrix)
        if known and encoder.tokens is not None:
            encoder.tokens.require_known(columns[encoder.tokens.name], faults)
        if faults:
            row = min(faults)
            raise error_of(faults[row], row=row)
        tokens = encoder.encode(columns, out, faults, grow=grow)
        if not grow and encoder.categories:
            with warning_of_unseen(estimator) as counts:
                for name, unseen, n in self._unseen(columns, out):
                    if known:
                        out[unseen, features.names.index(name)] = _NO_CATEGORY
                    else:
                        rows, total = counts.get(name, (0, 0))
                        counts[name] = rows + int(unseen.sum()), total + n
        return out, sparse if tokens is None else tokens

    def _warn_of_names(self, table: pa.Table | None, estimator: str) -> None:
        """Warn of columns by position where the model knows names, and of names that it does not know."""
        assert self.features is not None
        if self.features.sparse or self.named == (table is not None):
            return
        names = self.features.names if table is None else table.column_names
        if not all(name.isdigit() for name in names):  # numbers stand for names that pandas makes
            warn(message("estimators.names_lost" if table is None else "estimators.names_new", estimator=estimator))

    def _unseen(self, columns: Mapping[str, pa.Array], codes: Floats) -> Iterator[tuple[str, Bools, int]]:
        """Yield columns of categories, which rows have a value that the model has never seen, and how many have one."""
        assert self._encoder is not None
        for j, name in enumerate(self._encoder.features.names):
            if name in self._encoder.categories:
                unseen, n = codes[:, j] == -1, len(codes)
                if unseen.any() and (absent := missing(columns[name])) is not None:
                    unseen, n = unseen & ~absent, n - int(absent.sum())
                yield name, unseen, n

    def _require_width(self, width: int, estimator: str) -> None:
        assert self.features is not None
        wanted = len(self.features.names)
        if width != wanted:
            raise InputError(message("estimators.other_width", width=width, estimator=estimator, wanted=wanted))

    def _columns(self, table: pa.Table, estimator: str) -> dict[str, pa.Array]:
        """The columns of the features, all of the kinds that they had."""
        assert self.features is not None
        names: tuple[str, ...] = self.features.names
        fields = dict(zip(names, table.schema, strict=False))  # by position, unless they had names
        if self.named or self.features.sparse:
            names += (self.features.sparse_column,) if self.features.sparse else ()
            lacking = [name for name in names if name not in table.column_names]
            if lacking:
                raise InputError(message("estimators.no_column", name=lacking[0], estimator=estimator))
            fields = {name: table.schema.field(name) for name in names}
        else:
            self._require_width(table.num_columns, estimator)
        given = [table.column(field.name) for field in fields.values()]
        parts = ranges(len(given), max(1, _FEW_CELLS // max(1, table.num_rows)), each=2)
        whole = [column for part in run([partial(_whole, given[part]) for part in parts]) for column in part]
        columns = dict(zip(fields, whole, strict=True))
        for name, field in fields.items():
            self._require_kind(name, field, columns[name])
        return columns

    def _require_kind(self, name: str, field: pa.Field, column: pa.Array) -> None:
        """Refuse a column of another kind than it had."""
        assert self._encoder is not None
        kind, coded, was = field.type, self._encoder.categories.get(name), None
        if self._encoder.features.sparse and name == self._encoder.features.sparse_column:
            if self._encoder.tokens is None:
                was = None if holds_indices(kind) else "lists of indices"
            else:
                was = None if holds_tokens(kind) or is_empty_list(kind) else "lists of text"
        elif not (pa.types.is_null(kind) and (coded is not None or self._reading.missing)):
            text = column_kind(field) == "text"
            if coded is None:
                was = "numbers" if text else None
            elif coded.values and isinstance(coded.values[0], str) != (in_words(kind) == "text"):
                absent = missing(column)
                was = "text" if isinstance(coded.values[0], str) else "numbers"
                was = None if absent is not None and absent.all() else was
        if was is not None:
            id = {"text": "was_text", "numbers": "was_numbers"}.get(was, "other_column")
            raise InputError(message(f"estimators.{id}", kind=in_words(kind), was=was, name=name), column=name)


def _warn_of_numbers(table: pa.Table, names: list[str]) -> None:
    """Warn of columns of text that look like numbers; columns of dictionaries are meant as categories."""
    for name in names:
        column = table.column(name)[:1000]
        words = doubt(plain(column.unique())) if is_text(column.type) else None
        if words is not None:
            warn(message("estimators.text_numbers", name=name, doubt=words))


def _whole(columns: Sequence[pa.ChunkedArray]) -> list[pa.Array]:
    return [*map(_one_chunk, columns)]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:  # which ``combine_chunks`` would copy
        return plain(column.chunk(0))
    combined = column.combine_chunks()
    return plain(combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks))


def nothing_in(shape: tuple[int, ...], what: str) -> ValueError:
    """The field's usual error of a matrix without samples, or without features."""
    return ValueError(message("estimators.empty", what=what, shape=shape))


def array_of(X: Any) -> AnyArray:
    """``X``, or a copy, as an array of shape (n, d), with the field's usual messages when it is none."""
    if is_sparse_matrix(X):
        raise TypeError(message("estimators.not_dense"))
    array = np.asarray(X)
    if np.iscomplexobj(array):
        raise ValueError(message("estimators.complex", what="X"))
    if array.ndim != 2:
        raise ValueError(message("estimators.not_2d", dimensions=array.ndim))
    if array.shape[0] == 0:
        raise nothing_in(array.shape, "sample")
    if array.shape[1] == 0:
        raise nothing_in(array.shape, "feature")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        beyond = array > LARGEST_INTEGER
        if array.dtype.kind == "i":
            beyond |= array < -LARGEST_INTEGER
        for j in np.flatnonzero(beyond.any(axis=0))[:1].tolist():
            raise error_of(Fault("inexact", f"x{j}"), row=int(np.argmax(beyond[:, j])))
    return array if array.dtype.kind in "biuf" else _converted(array)


def matrix_of(array: AnyArray) -> Floats:
    """A float64 copy of an array of numbers in C order."""
    matrix = np.empty(array.shape)
    run([partial(np.copyto, matrix[part], array[part]) for part in ranges(len(array), _FEW_CELLS // array.shape[1])])
    return matrix


def _converted(array: AnyArray) -> Floats:
    """Numbers that are given as objects or text."""
    try:
        return np.array(array, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise type(error)(message("estimators.not_numbers", reason=str(error))) from error


def _is_clean(array: AnyArray) -> bool:
    """Return True if learners can take an array as it is: float64 in C order, finite, without a negative zero."""
    flags = array.flags
    if array.dtype != np.float64 or not (flags.c_contiguous and flags.aligned and flags.writeable):
        return False
    parts = ranges(len(array), _FEW_CELLS // array.shape[1])
    return all(run([partial(is_clean, array[part].reshape(-1).view(np.int64)) for part in parts]))


# Rows as lists of the indices of their ones, by themselves: what learners take that need sparse features.


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
