"""Rows of a JSON body: to columns, and to the features of a model.

Invariant: a row is encoded as ``raydt predict`` encodes a row of a file: by :class:`raydt.encoding.features
.FeatureEncoder`, whose dictionaries forget new categories after each request, so that no request changes a later one.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Floats
from raydt.encoding.columns import LARGEST_INTEGER, number_of
from raydt.encoding.faults import Fault, Faults, error_of
from raydt.encoding.features import FeatureEncoder
from raydt.encoding.numerals import integer_of
from raydt.encoding.tokens import Tokens
from raydt.errors import InputError
from raydt.learners import traits_of
from raydt.messages import Message, message
from raydt.redaction import marked, quoted
from raydt.sessions.saved_model import SavedModel

#: Values of a request, missing ones too, and shares of classes of an answer: short bodies can mean many of them.
MOST_CELLS = 1 << 22

#: Escapes of JSON that come in pairs in text; one alone cannot be encoded.
_SURROGATES = re.compile(rb"\\u[dD][89a-fA-F]")

_NUMBERS = frozenset({int, float, bool, type(None)})


class Table(NamedTuple):
    """Rows of a request by column."""

    columns: Mapping[str, Sequence[Any]]  #: A value of each row; None where a row does not name the column.
    rows: int
    single: bool  #: The body was one row.


class Encoded(NamedTuple):
    """Rows as predictors take them."""

    X: Floats
    sparse: SparseRows | None
    unseen: list[tuple[int, str]]  #: Row and column of each category that the model does not know.


def parsed(body: bytes) -> Table:
    """Return the rows of a body; InputError if it is not JSON, or none of the three forms."""
    try:
        value = json.loads(body, parse_constant=_refused)
        if _SURROGATES.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise InputError(message("serving.not_json", reason=message("serving.nested"))) from None
    except UnicodeEncodeError:
        raise InputError(message("serving.not_json", reason=message("serving.surrogate"))) from None
    except ValueError as error:  # also text that is not UTF-8, and integers of too many digits
        reason = next((one for one in error.args if isinstance(one, Message)), None) or str(error)
        raise InputError(message("serving.not_json", reason=marked(reason, type(error).__name__))) from None
    if not isinstance(value, dict):
        raise InputError(message("serving.not_object"))
    if value.keys() == {"rows"}:
        return _by_column(value["rows"])
    if value.keys() == {"columns"}:
        columns = value["columns"]
        lists = isinstance(columns, dict) and bool(columns) and all(isinstance(c, list) for c in columns.values())
        if not lists or len({len(column) for column in columns.values()}) > 1:
            raise InputError(message("serving.not_columns"))
        return Table(columns, len(next(iter(columns.values()))), single=False)
    return Table({name: [one] for name, one in value.items()}, 1, single=True)


def _refused(name: str) -> Any:
    raise ValueError(message("serving.constant", name=name))


def _by_column(rows: Any) -> Table:
    if not isinstance(rows, list):
        raise InputError(message("serving.not_rows"))
    names: dict[str, None] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InputError(message("serving.not_row"), row=number)
        if row.keys() != names.keys():
            names.update(dict.fromkeys(row))
            require_few(len(rows), len(names))
    return Table({name: [row.get(name) for row in rows] for name in names}, len(rows), single=False)


def require_few(rows: int, columns: int) -> None:
    """Refuse (InputError) rows of more values than there may be."""
    if rows * columns > MOST_CELLS:
        raise InputError(message("serving.many", most=MOST_CELLS))


def require_known(table: Table, known: frozenset[str]) -> None:
    """Refuse (InputError) rows that name a column that the model does not have."""
    for name, values in table.columns.items():
        if name not in known:
            row = next((place for place, value in enumerate(values) if value is not None), 0)
            raise InputError(message("serving.unknown_column"), row=row, column=marked(name[:60], "a column"))


class RowReader:
    """Encodes rows under the columns of one model; threads take turns."""

    def __init__(self, saved: SavedModel) -> None:
        self.features, reading = saved.features, traits_of(saved.options).reading
        tokens = None
        if self.features.sparse and self.features.sparse_column in saved.categories:
            tokens = Tokens(self.features.sparse_column, grows=False)
            tokens.width = self.features.sparse
        self._encoder = FeatureEncoder(self.features, reading, tokens, saved.categories)
        self._by_value, self._lock = reading.by_value, threading.Lock()
        self._known = {name: len(one) for name, one in self._encoder.categories.items()}
        self._kinds = {name: _kind(one.values) for name, one in self._encoder.categories.items()}
        names = self.features.names
        self._numbers = [(j, name) for j, name in enumerate(names) if name not in self._known]
        self.columns = frozenset(names) | ({self.features.sparse_column} if self.features.sparse else set())

    def read(self, table: Table) -> Encoded:
        """Encode rows; InputError names the row and the column of a value that cannot be used."""
        n, faults = table.rows, Faults(table.rows)
        X = np.zeros((n, len(self.features.names)))
        nothing: Sequence[Any] = [None] * n
        for j, name in self._numbers:
            X[:, j] = _numbers(table.columns.get(name, nothing), name)
        columns = {name: _categories(table.columns.get(name, nothing), name, self._kinds[name]) for name in self._known}
        if self.features.sparse:
            name = self.features.sparse_column
            columns[name] = _lists(table.columns.get(name, nothing), name, tokens=self._encoder.tokens is not None)
        with self._lock:
            X, sparse = self._encoder.check(columns, faults, X=X)
            if faults:
                row = min(faults)
                raise error_of(faults[row], row=row)
            try:
                tokens = self._encoder.encode(columns, X, faults)
                return Encoded(X, sparse if tokens is None else tokens, self._unseen(X))
            finally:
                for name, known in self._known.items():
                    self._encoder.categories[name].cut(known)

    def _unseen(self, X: Floats) -> list[tuple[int, str]]:
        """Find the categories that were new, by what they were encoded to."""
        found = []
        for j, name in enumerate(self.features.names):
            new = self._encoder.categories[name].values[self._known[name] :] if name in self._known else ()
            if new:
                own = [number_of(value) for value in new] if self._by_value else None
                mask = X[:, j] >= self._known[name] if own is None else np.isin(X[:, j], own)
                found += [(row, name) for row in np.flatnonzero(mask).tolist()]
        return sorted(found)


def _numbers(values: Sequence[Any], name: str) -> Any:
    """Numbers of a column, missing ones as NaN."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return values
    if not kinds <= _NUMBERS:
        row, value = next((row, value) for row, value in enumerate(values) if type(value) not in _NUMBERS)
        raise _not(value, row, name, "serving.no_number")
    for row, value in enumerate(values) if int in kinds else ():
        if type(value) is int and abs(value) > LARGEST_INTEGER:
            raise error_of(Fault("inexact", name), row=row)
    return [np.nan if value is None else value for value in values]


def _kind(known: Sequence[Any]) -> type | None:
    """What the categories of a column are: text, whole numbers written as text (int), numbers (float), truth values."""
    if not known:
        return None
    if all(isinstance(value, str) for value in known):
        return int if all(integer_of(value) is not None for value in known) else str
    return bool if isinstance(known[0], bool) else float


def _categories(values: Sequence[Any], name: str, kind: type | None) -> pa.Array:
    """A column of categories as the model knows them."""
    for row, value in enumerate(values):
        if value is None:
            continue
        if isinstance(value, list | dict):
            raise InputError(message("serving.no_scalar"), row=row, column=name)
        whole = type(value) is int
        if kind in (str, int) and not isinstance(value, str) and not (kind is int and whole):
            raise _not(value, row, name, "serving.no_text")
        if (kind is float and type(value) not in (int, float)) or (kind is bool and not isinstance(value, bool)):
            raise _not(value, row, name, "serving.no_number")
        if whole and abs(value) > LARGEST_INTEGER:
            raise error_of(Fault("inexact", name), row=row)
    if kind in (str, int, None):
        return pa.array([None if v is None else v if isinstance(v, str) else str(v) for v in values], pa.string())
    return pa.array(values, pa.bool_() if kind is bool else pa.float64())


def _lists(values: Sequence[Any], name: str, *, tokens: bool) -> pa.Array:
    """A column of lists of indices or tokens."""
    kind, what = (str, "text") if tokens else (int, "indices")
    for row, value in enumerate(values):
        if value is not None and not (
            isinstance(value, list) and all(one is None or type(one) is kind for one in value)
        ):
            raise InputError(message("serving.no_list", what=what), row=row, column=name)
        if not tokens and any(one is not None and abs(one) > LARGEST_INTEGER for one in value or ()):
            raise InputError(message("serving.no_list", what=what), row=row, column=name)
    return pa.array(values, pa.list_(pa.string() if tokens else pa.int64()))


def _not(value: Any, row: int, name: str, id: str) -> InputError:
    if isinstance(value, list | dict):
        return InputError(message("serving.no_scalar"), row=row, column=name)
    return InputError(message(id, value=quoted(value, 40)), row=row, column=name)
