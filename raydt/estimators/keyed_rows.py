"""The rows of a call by key: which rows each key has, and the features of these rows.

Invariant: the rows of a key come in the order of the call, and have the columns, and the types of columns, of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raydt.arrays.types import Ints
from raydt.errors import InputError
from raydt.estimators.frames import array_of, as_table, nothing_in, require_distinct
from raydt.estimators.keys import keys_of
from raydt.estimators.sparse import is_sparse_matrix
from raydt.keyed.groups import Key
from raydt.messages import Message, message
from raydt.redaction import quoted

#: Names of the features of a frame, or the number of those of a matrix; None of lists of indices by themselves.
Form = tuple[str, ...] | int | None

_SHOWN = 5


class DividedRows(NamedTuple):
    """The rows of a call by key; keys are in the order in which they appear."""

    n: int
    rows: dict[Key, Ints]  #: Places of the rows of each key, ascending.
    X: dict[Key, Any]  #: Their features, in the same order.
    form: Form


def divided(
    X: Any, column: str | None, keys: Any, estimator: str, *, lists: bool = False, form: Form = None
) -> DividedRows:
    """Divide rows by key, which ``keys`` are, or the ``column`` of a frame.

    With ``lists``, a list by itself has lists of indices. ``form`` is that of the rows that the models were fitted
    with, if they were: of a frame, its columns are taken.
    ``InputError`` for a row without a key, a key that is none, and rows of another form. O(n log n) and a copy of X.
    """
    table, found = _features_and_keys(X, column, keys, estimator)
    given = _values(X, lists) if table is None else table
    if table is not None and not table.num_columns:
        raise nothing_in((len(found), 0), "feature")
    n = given.shape[0] if hasattr(given, "shape") else len(given)
    named = checked_keys(found, column if keys is None else None)
    if len(named) != n:
        raise InputError(message("estimators.other_keys", rows=n, keys=len(named)))
    if not n:
        raise nothing_in((n,), "sample")
    places: dict[Key, int] = {}
    codes = np.fromiter((places.setdefault(key, len(places)) for key in named), np.int64, n)
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(places) + 1))
    if form is not None:
        given = _of_form(given, form, estimator)
    sorted_rows = given if len(places) == 1 else _taken(given, order)
    parts = dict(zip(places, zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True), strict=True))
    return DividedRows(
        n,
        {key: order[begin:end] for key, (begin, end) in parts.items()},
        {key: _part(sorted_rows, begin, end) for key, (begin, end) in parts.items()},
        _form(given),
    )


def checked_keys(given: Any, column: str | None = None) -> list[Key]:
    """Return keys as text and integers of 64 bits; ``InputError`` with the row, and the column if there is one."""
    try:
        missing = np.isnan(given) if getattr(getattr(given, "dtype", None), "kind", "") == "f" else ()
        found = keys_of(given if not np.any(missing) else [None if one else 0 for one in missing], "key")
    except InputError as error:
        said = error.message
        if said is not None and said.id == "estimators.id_type":
            raise InputError(_no_key(said.parameters["value"]), row=error.row, column=column) from None
        raise error.but(column=column) from None
    for row, key in enumerate(found):
        if isinstance(key, bool) or not isinstance(key, str | int) or (isinstance(key, int) and abs(key) >= 2**63):
            raise InputError(_no_key(key), row=row, column=column)
    return found  # type: ignore[return-value]


def _no_key(value: Any) -> Message:
    return message("estimators.key_type", value=quoted(value))


def shown(keys: Any) -> str:
    """Return some of many keys for a message."""
    listed = list(keys)
    return ", ".join(map(quoted, listed[:_SHOWN])) + (", ..." if len(listed) > _SHOWN else "")


def _features_and_keys(X: Any, column: str | None, keys: Any, estimator: str) -> tuple[pa.Table | None, Any]:
    """Return the table of features, if ``X`` is a frame, and the keys as they were given."""
    is_pandas = hasattr(X, "iloc") and hasattr(X, "columns")
    there = column is not None and is_pandas and column in X.columns
    if is_pandas:
        require_distinct(X.columns)
    if there and keys is None:  # before Arrow, which takes no column of text and integers
        return as_table(X.drop(columns=[column])), X[column]
    table = as_table(X)
    there = there or (table is not None and column in table.column_names)
    if keys is not None:
        if there:
            raise InputError(message("estimators.two_keys", name=column))
        return table, keys
    if column is None:
        raise InputError(message("estimators.no_keys", estimator=estimator))
    if table is None or not there:
        raise InputError(message("estimators.no_key_column", name=column))
    return table.drop_columns([column]), table.column(column)


def _values(X: Any, lists: bool) -> Any:
    """Return rows that are no frame as what can be divided: a matrix, a column of lists, or a list of lists."""
    if is_sparse_matrix(X):
        return X.tocsr()
    return X if lists and getattr(X, "ndim", 1) == 1 else array_of(X)


def _form(given: Any) -> Form:
    if isinstance(given, pa.Table):
        return tuple(given.column_names)
    return int(given.shape[1]) if len(getattr(given, "shape", ())) == 2 else None


def _of_form(given: Any, form: Form, estimator: str) -> Any:
    """Return rows as those that the models were fitted with, or refuse them."""
    found = _form(given)
    if isinstance(form, tuple) and isinstance(found, tuple):
        lacking = [name for name in form if name not in found]
        if lacking:
            raise InputError(message("estimators.no_column", name=lacking[0], estimator=estimator))
        return given if found == form else given.select(list(form))
    if isinstance(form, int) and isinstance(found, int) and form != found:
        raise InputError(message("estimators.other_width", width=found, estimator=estimator, wanted=form))
    if isinstance(form, tuple) != isinstance(found, tuple):
        words = {True: "a frame", False: "a matrix or lists"}
        was, now = words[isinstance(form, tuple)], words[isinstance(found, tuple)]
        raise InputError(message("estimators.other_form", estimator=estimator, was=was, found=now))
    return given


def _taken(given: Any, order: Ints) -> Any:
    if isinstance(given, list | tuple):
        return [given[row] for row in order.tolist()]
    return given.take(pa.array(order)) if hasattr(given, "to_pylist") else given[order]


def _part(given: Any, begin: int, end: int) -> Any:
    return given.slice(begin, end - begin) if hasattr(given, "to_pylist") else given[begin:end]


def chosen(values: Any, rows: Mapping[Key, Ints]) -> dict[Key, Any]:
    """Return the values of the rows of each key; None and numbers stand for all rows."""
    if isinstance(values, list):
        return {key: [values[row] for row in places.tolist()] for key, places in rows.items()}
    if values is None or np.ndim(values) == 0:
        return dict.fromkeys(rows, values)
    return {key: values[places] for key, places in rows.items()}
