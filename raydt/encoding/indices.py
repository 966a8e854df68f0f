"""A column of lists of indices: the sparse features of a source, all of them in one column.

Invariant: what is read is what the file says. A null list, a null, negative or repeated index, and one beyond the
number of features make their row bad; only the order within a list, which says nothing, is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.sparse import LARGEST_WIDTH, SparseRows
from raydt.arrays.types import AnyArray, Ints
from raydt.encoding.columns import in_words, named_features
from raydt.encoding.faults import Faults, Mask
from raydt.encoding.tokens import holds_tokens
from raydt.errors import InputError
from raydt.examples.reading import Reading
from raydt.messages import message

#: Key of a schema's metadata with the number of sparse features.
N_FEATURES = b"n_features"


def holds_indices(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists of integers, or lists that are all empty."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_null(kind.value_type))


def is_empty_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists in which there is no value, so that they could be of any kind."""
    return bool((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_null(kind.value_type))


def find_indices(types: Mapping[str, pa.DataType], file: str | None, reading: Reading) -> str | None:
    """Return the one column of lists of integers or text; InputError for several, or if the learner takes none."""
    found = [name for name, kind in types.items() if holds_indices(kind) or holds_tokens(kind)]
    if found and not reading.sparse:
        from raydt.learners import instead  # needed for the message only: compiled kernels are imported with it

        others, kind = instead("", lambda other: other.sparse), in_words(types[found[0]])
        said = message("columns.sparse", kind=kind, others=others, features=named_features(file))
        raise InputError(said, file=file, column=found[0])
    if len(found) > 1:
        kind = in_words(types[found[1]])
        said = message("columns.two_lists", kind=kind, other=found[0], features=named_features(file))
        raise InputError(said, file=file, column=found[1])
    return found[0] if found else None


def declared_width(schemas: Sequence[pa.Schema], files: Sequence[str | None]) -> int | None:
    """Return the most sparse features by metadata; None if a file lacks it, InputError if it is no such number."""
    widths = []
    for schema, file in zip(schemas, files, strict=True):
        text = (schema.metadata or {}).get(N_FEATURES)
        if text is None:
            return None
        if not text.isdigit() or not 1 <= int(text) <= LARGEST_WIDTH:
            shown = text.decode(errors="replace")[:40]
            raise InputError(message("columns.bad_width", width=shown, largest=LARGEST_WIDTH), file=file)
        widths.append(int(text))
    return max(widths, default=None)


def width_of(column: pa.Array) -> int:
    """The largest index + 1, at least 1 and at most what int32 holds. O(ones)."""
    largest = pc.max(pc.list_flatten(column)).as_py() if holds_indices(column.type) else None
    return max(1, min(int(largest or 0) + 1, LARGEST_WIDTH))


def read_indices(column: pa.Array, name: str, width: int, needed: Mask | None, faults: Faults) -> SparseRows:
    """Return the lists of indices below ``width`` of a column, and mark rows that cannot be used. O(ones log)."""
    n = len(column)
    faults.mark("no_list", name, np.asarray(column.is_null()), needed)
    if pa.types.is_null(column.type):
        return SparseRows.empty(width, n)
    lengths = np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
    flat = pc.list_flatten(column)  # without what lies under a null
    values, row = _as_int64(flat), np.repeat(np.arange(n), lengths)
    if flat.null_count:
        faults.mark("null_index", name, _first(np.asarray(flat.is_null()), row, values, n)[0], needed)
    wrong = (values < 0) | (values >= width)
    if wrong.any():
        found, first = _first(wrong, row, values, n)
        faults.mark("negative_index", name, found & (first < 0), needed, first)
        faults.mark("index_beyond", name, found, needed, first, width=width)
    if ((np.diff(values) <= 0) & (np.diff(row) == 0)).any():
        values = values[np.lexsort((values, row))]
        again = (np.diff(values) == 0) & (np.diff(row) == 0)
        found, first = _first(again, row[1:], values[1:], n)
        faults.mark("repeated_index", name, found, needed, first)
    keep = faults.keep(needed)
    if keep is not None:
        values, lengths = values[keep[row]], np.where(keep, lengths, 0)
    return SparseRows.of_lengths(lengths, values.astype(np.int32), width)


def _first(wrong: Mask, row: AnyArray, values: Ints, n: int) -> tuple[Mask, Ints]:
    """Return which of n rows have a wrong value, and the first such value of each, shape (n,) both."""
    found, first = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.int64)
    found[row[wrong]] = True
    first[row[wrong][::-1]] = values[wrong][::-1]  # of repeated rows the last assignment stays
    return found, first


def _as_int64(flat: pa.Array) -> Ints:
    """Indices, null as 0; those of uint64 that do not fit as the largest that does."""
    values = np.asarray(flat.fill_null(0)) if len(flat) else np.empty(0, dtype=np.int64)
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
    return values.astype(np.int64)
