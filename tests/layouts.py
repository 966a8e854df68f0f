"""The same values in every container and memory layout that a caller may hold them in, and what their owner would see.

A layout is made from values; :func:`footprint` tells two states of everything that the result owns apart, also of the
memory around what it shows; :func:`overwrite` is the owner, who uses that memory for something else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse as sp

Layouts = Mapping[str, Callable[[Any], Any]]

# -- one value for each row ---------------------------------------------------------------------------------------


def _array(values: Sequence[Any]) -> Any:
    """An array, of objects where text stands beside other values."""
    return np.array(values, dtype=object if len({isinstance(value, str) for value in values}) > 1 else None)


def _every_second(values: Sequence[Any]) -> Any:
    return np.repeat(_array(values), 2)[::2]


def _read_only(array: Any) -> Any:
    shown = array.view()
    shown.flags.writeable = False
    return shown


def _inside(values: Sequence[Any]) -> pa.Array:
    """A slice of an Arrow array that begins within a byte of its bits."""
    return pa.array([values[-1], values[0], values[0], *values, values[0]])[3:-1]


VECTORS: Layouts = {
    "array": _array,
    "every second": _every_second,
    "from the end": lambda values: _array(values)[::-1].copy()[::-1],
    "read-only": lambda values: _read_only(_array(values)),
    "column of a matrix": lambda values: np.stack([_array(values)] * 3, axis=1)[:, 1],
    "objects": lambda values: np.array([*values, None], dtype=object)[:-1],
    "list": list,
    "tuple": tuple,
    "pandas": lambda values: pd.Series(values, index=range(len(values), 0, -1)),
    "pandas of Arrow": lambda values: pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(values)]))),
    "polars": lambda values: pl.Series(values),
    "Arrow": _inside,
}

# -- a matrix of numbers ------------------------------------------------------------------------------------------


def _apart(X: Any) -> Any:
    """A matrix whose rows and columns lie between others."""
    around = np.full((2 * X.shape[0] + 1, 2 * X.shape[1] + 1), 7.5)
    around[1::2, 1::2] = X
    return around[1::2, 1::2]


def _unaligned(X: Any) -> Any:
    shifted = np.zeros(X.nbytes + 1, dtype=np.uint8)
    shifted[1:] = np.frombuffer(X.tobytes(), dtype=np.uint8)
    return shifted[1:].view(np.float64).reshape(X.shape)


def _integers(X: Any) -> Any:
    """Whole numbers as integers; other matrices as they are."""
    return X.astype(np.int32) if np.isfinite(X).all() and (np.floor(X) == X).all() else X.copy()


MATRICES: Layouts = {
    "C": lambda X: X.copy(),
    "Fortran": np.asfortranarray,
    "apart": _apart,
    "from the end": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": lambda X: _read_only(X.copy()),
    "unaligned": _unaligned,
    "big-endian": lambda X: X.astype(">f8"),
    "float32": lambda X: X.astype(np.float32),
    "integers": _integers,
    "objects": lambda X: X.astype(object),
    "lists": lambda X: X.tolist(),
    "rows of arrays": lambda X: tuple(X.copy()),
}

# -- a frame ------------------------------------------------------------------------------------------------------


def _chunked(table: pa.Table) -> pa.Table:
    """The table in pieces that begin within others."""
    cut = len(table) // 3
    return pa.concat_tables([_sliced(table[:cut]), _sliced(table[cut:])]) if cut else _sliced(table)


def _sliced(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table[-1:], table[:1], table[:1], table]).combine_chunks()[3:]


def _coded(table: pa.Table) -> pa.Table:
    """The table whose text is in dictionaries, which hold more than is used, in another order."""
    for j, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(j).combine_chunks()
            words = ["never", *sorted(set(column.drop_null().to_pylist()), reverse=True)]
            places = [None if one is None else words.index(one) for one in column.to_pylist()]
            coded = pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), pa.array(words))
            table = table.set_column(j, field.name, coded)
    return table


def _numbers_of(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if pa.types.is_floating(field.type)]


def _of_a_block(table: pa.Table, order: Any) -> pd.DataFrame:
    """A pandas frame whose numbers are columns of one matrix, which somebody else holds, too."""
    names = _numbers_of(table)
    block = np.array(table.select(names).to_pandas(), order=order) if names else np.empty((len(table), 0))
    frame = pd.DataFrame(block, columns=names, copy=False)
    for name in [name for name in table.column_names if name not in names]:
        frame[name] = table.column(name).to_pandas()
    return frame[table.column_names]


FRAMES: Layouts = {
    "Arrow": lambda table: table.combine_chunks(),
    "Arrow, sliced": _sliced,
    "Arrow, chunked": _chunked,
    "Arrow, coded": _coded,
    "record batch": lambda table: table.combine_chunks().to_batches()[0],
    "pandas": lambda table: table.to_pandas(),
    "pandas, C": lambda table: _of_a_block(table, "C"),
    "pandas, Fortran": lambda table: _of_a_block(table, "F"),
    "pandas of Arrow": lambda table: _chunked(table).to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, categories": lambda table: _coded(table).to_pandas(),
    "pandas, every second": lambda table: table.to_pandas().iloc[np.repeat(np.arange(len(table)), 2)][::2],
    "polars": lambda table: pl.from_arrow(_chunked(table)),
    "polars, sliced": lambda table: pl.from_arrow(_sliced(table)).gather_every(1),
}

# -- rows of ones -------------------------------------------------------------------------------------------------


def _unsorted(matrix: Any) -> Any:
    """A matrix by rows whose indices descend, with stored zeros."""
    zeros = sp.csr_matrix(matrix.toarray() == 0)
    found = sp.csr_matrix(matrix + zeros, dtype=np.float64)
    found.data[:] = matrix.toarray()[np.repeat(np.arange(found.shape[0]), np.diff(found.indptr)), found.indices]
    for begin, end in zip(found.indptr, found.indptr[1:], strict=False):
        found.indices[begin:end] = found.indices[begin:end][::-1].copy()
        found.data[begin:end] = found.data[begin:end][::-1].copy()
    return sp.csr_matrix((found.data, found.indices, found.indptr), shape=found.shape)


SPARSE_MATRICES: Layouts = {
    "CSR": lambda matrix: matrix.copy(),
    "CSR of integers": lambda matrix: matrix.astype(np.int8),
    "CSR, unsorted": _unsorted,
    "CSR array": lambda matrix: sp.csr_array(matrix, copy=True),
    "CSC": lambda matrix: matrix.tocsc(copy=True),
    "COO": lambda matrix: matrix.tocoo(copy=True),
    "LIL": lambda matrix: matrix.tolil(copy=True),
}


def _lists(rows: Sequence[Sequence[int]]) -> pa.Array:
    return pa.array(rows, pa.list_(pa.int32()))


LISTS: Layouts = {
    "lists": lambda rows: [list(row) for row in rows],
    "tuple of tuples": lambda rows: tuple(tuple(row) for row in rows),
    "arrays": lambda rows: [np.array(row, dtype=np.int64) for row in rows],
    "descending arrays": lambda rows: [np.array(row[::-1], dtype=np.int16)[::-1] for row in rows],
    "objects": lambda rows: np.array([*map(list, rows), None], dtype=object)[:-1],
    "Arrow": _lists,
    "Arrow, sliced": lambda rows: _lists([[3], *rows, [3]])[1:-1],
    "Arrow, chunked": lambda rows: pa.chunked_array([_lists(rows[:1]), _lists(rows[1:])]),
    "large lists": lambda rows: pa.array(rows, pa.large_list(pa.int64())),
}

# -- owners -------------------------------------------------------------------------------------------------------


def _roots(given: Any) -> Iterator[Any]:
    """The NumPy arrays that own the memory of what is given, as far as they can be reached."""
    if isinstance(given, np.ndarray):
        while isinstance(given.base, np.ndarray):
            given = given.base
        yield given
    elif isinstance(given, pd.DataFrame):
        for j in range(given.shape[1]):
            yield from _roots(given.iloc[:, j])
    elif isinstance(given, pd.Series):
        if isinstance(given.dtype, np.dtype):
            yield from _roots(given.to_numpy())
    elif sp.issparse(given):
        for name in ("data", "indices", "indptr", "row", "col", "rows"):
            yield from _roots(getattr(given, name, None))
    elif isinstance(given, dict | list | tuple):
        for one in given.values() if isinstance(given, dict) else given:
            yield from _roots(one)


def _parts(given: Any) -> Iterator[bytes]:
    """Return a value and all memory that it owns, as bytes."""
    yield type(given).__name__.encode()
    if isinstance(given, np.ndarray):
        yield repr((given.dtype, given.shape, given.strides, given.flags.writeable)).encode()
        for root in _roots(given):
            yield repr(root.tolist()).encode() if root.dtype == object else root.tobytes()
    elif isinstance(given, pa.Table | pa.RecordBatch):
        yield repr((given.schema, given.schema.metadata)).encode()
        for column in given.columns:
            yield from _parts(column)
    elif isinstance(given, pa.ChunkedArray):
        for chunk in given.chunks:
            yield from _parts(chunk)
    elif isinstance(given, pa.Array):
        yield repr((given.type, given.offset, len(given))).encode()
        for buffer in given.buffers():
            yield b"" if buffer is None else buffer.to_pybytes()
        if isinstance(given, pa.DictionaryArray):
            yield from _parts(given.dictionary)
    elif isinstance(given, pd.DataFrame):
        yield repr((given.columns.tolist(), given.attrs)).encode()
        for j in range(given.shape[1]):
            yield from _parts(given.iloc[:, j])
    elif isinstance(given, pd.Series):
        yield repr((given.name, given.dtype, given.index, given.tolist())).encode()
        for root in _roots(given):
            yield from _parts(root)
    elif isinstance(given, pl.DataFrame | pl.Series):
        yield repr(given.schema if isinstance(given, pl.DataFrame) else (given.name, given.dtype)).encode()
        yield from _parts(given.to_arrow())
    elif sp.issparse(given):
        for name in ("shape", "data", "indices", "indptr", "row", "col", "rows"):
            yield from _parts(getattr(given, name, None))
    elif isinstance(given, dict | list | tuple):
        for one in given.items() if isinstance(given, dict) else given:
            yield from _parts(one)
    else:
        yield repr(given).encode()


def footprint(given: Any) -> str:
    """Digest of what is given and of all memory that it owns."""
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(given):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def overwrite(given: Any) -> None:
    """Use the memory of what was given for something else, as its owner may after the call."""
    if isinstance(given, list):
        for one in given:
            overwrite(one)
        given.clear()
    elif isinstance(given, dict):
        given.clear()
    for root in _roots(given):
        if root.flags.writeable:
            root[...] = None if root.dtype == object else np.zeros(1, root.dtype)[0] if root.dtype.kind == "U" else 3
