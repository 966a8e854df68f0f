"""A model, or models by key, ready to answer requests.

Invariant: nothing here changes after it was made but caches, so that one reference to it is a whole model.
"""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import Floats
from raydt.encoding.columns import LARGEST_INTEGER, Fault, Faults, Tokens, error_of, integer_of, number_of
from raydt.encoding.features import FeatureEncoder
from raydt.errors import InputError
from raydt.keyed.packing import SavedKeys
from raydt.learners import traits_of
from raydt.messages import Message, marked, message, quoted
from raydt.sessions.saved_model import BY_KEY, SavedModel

# Rows of a JSON body: to columns, and to the features of a model.
#
# Invariant: a row is encoded as ``raydt predict`` encodes a row of a file: by :class:`raydt.encoding.features
# .FeatureEncoder`, whose dictionaries forget new categories after each request, so that no request changes a later one.

#: Values of a request, missing ones too, and shares of classes of an answer: short bodies can mean many of them.
MOST_CELLS = 1 << 22

#: Escapes of JSON that come in pairs in text; one alone cannot be encoded.
_SURROGATES = re.compile(rb"\\u[dD][89a-fA-F]")

#: Types of JSON that a column takes beside null, and the message about any other; of categories by their kind.
_NUMBERS = frozenset({int, float, bool}), "serving.no_number"
_CATEGORIES: dict[type | None, tuple[frozenset[type], str]] = {
    str: (frozenset({str}), "serving.no_text"),
    int: (frozenset({str, int}), "serving.no_text"),
    float: (frozenset({int, float}), "serving.no_number"),
    bool: (frozenset({bool}), "serving.no_number"),
    None: (frozenset({str, int, float, bool}), "serving.no_scalar"),
}


class RequestTable(NamedTuple):
    """Rows of a request by column."""

    columns: Mapping[str, Sequence[Any]]  #: A value of each row; None where a row does not name the column.
    rows: int
    single: bool  #: The body was one row.


class Encoded(NamedTuple):
    """Rows as predictors take them."""

    X: Floats
    sparse: SparseRows | None
    unseen: list[tuple[int, str]]  #: Row and column of each category that the model does not know.


def parsed(body: bytes) -> RequestTable:
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
        return RequestTable(columns, len(next(iter(columns.values()))), single=False)
    return RequestTable({name: [one] for name, one in value.items()}, 1, single=True)


def _refused(name: str) -> Any:
    raise ValueError(message("serving.constant", name=name))


def _by_column(rows: Any) -> RequestTable:
    if not isinstance(rows, list):
        raise InputError(message("serving.not_rows"))
    names: dict[str, None] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InputError(message("serving.not_row"), row=number)
        if row.keys() != names.keys():
            names.update(dict.fromkeys(row))
            require_few(len(rows), len(names))
    return RequestTable({name: [row.get(name) for row in rows] for name in names}, len(rows), single=False)


def require_few(rows: int, columns: int) -> None:
    """Refuse (InputError) rows of more values than there may be."""
    if rows * columns > MOST_CELLS:
        raise InputError(message("serving.many", most=MOST_CELLS))


def require_known(table: RequestTable, known: frozenset[str]) -> None:
    """Refuse (InputError) rows that name a column that the model does not have."""
    for name, values in table.columns.items():
        if name not in known:
            row = next((place for place, value in enumerate(values) if value is not None), 0)
            raise InputError(message("serving.unknown_column"), row=row, column=marked(name[:60], "a column"))


class RequestReader:
    """Encodes rows under the columns of one model; threads take turns."""

    def __init__(self, saved: SavedModel) -> None:
        self.features, reading = saved.features, traits_of(saved.options).reading
        self._previous = saved.previous
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

    def lacks_labels(self, table: RequestTable) -> bool:
        """Return True if the last labels of the run stand for those of the rows before, which no row names."""
        return bool(self._previous) and self._previous.keys().isdisjoint(table.columns)

    def read(self, table: RequestTable) -> Encoded:
        """Encode rows; InputError names the row and the column of a value that cannot be used."""
        n, faults = table.rows, Faults(table.rows)
        X = np.zeros((n, len(self.features.names)))
        given = defaultdict[str, Sequence[Any]](lambda: [None] * n)
        given |= table.columns
        if self.lacks_labels(table):
            given |= {name: [label] * n for name, label in self._previous.items()}
        for j, name in self._numbers:
            X[:, j] = _numbers(given[name], name)
        columns = {name: _categories(given[name], name, self._kinds[name]) for name in self._known}
        if self.features.sparse:
            name = self.features.sparse_column
            columns[name] = _lists(given[name], name, tokens=self._encoder.tokens is not None)
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


def _require(values: Sequence[Any], name: str, taken: tuple[frozenset[type], str]) -> None:
    """Refuse (InputError) a value of another type than those taken, and an integer that no float is equal to."""
    types, id = taken
    found = set(map(type, values)) - {type(None)}
    for row, value in enumerate(values) if int in found or not found <= types else ():
        if value is not None and type(value) not in types:
            if isinstance(value, list | dict):
                raise InputError(message("serving.no_scalar"), row=row, column=name)
            raise InputError(message(id, value=quoted(value, 40)), row=row, column=name)
        if type(value) is int and abs(value) > LARGEST_INTEGER:
            raise error_of(Fault("inexact", name), row=row)


def _numbers(values: Sequence[Any], name: str) -> Any:
    """Numbers of a column, missing ones as NaN."""
    if set(map(type, values)) == {float}:
        return values
    _require(values, name, _NUMBERS)
    return [np.nan if value is None else value for value in values]


def _kind(known: Sequence[Any]) -> type | None:
    """The type of the categories of a column: text, whole numbers as text (int), numbers (float), truth values."""
    if not known:
        return None
    if all(isinstance(value, str) for value in known):
        return int if all(integer_of(value) is not None for value in known) else str
    return bool if isinstance(known[0], bool) else float


def _categories(values: Sequence[Any], name: str, kind: type | None) -> pa.Array:
    """A column of categories as the model knows them."""
    _require(values, name, _CATEGORIES[kind])
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


#: Models of keys that stay in memory, ready.
_READY_KEYS = 4096


class AnsweringModel(NamedTuple):
    """The facts of a model that its answers name."""

    digest: str  #: Of the snapshot: the seal of its manifest.
    update: int | None  #: Updates of the stream that are in the model; None if it was saved without a run.
    written: float  #: When it was written, seconds since 1970.
    place: str

    def described(self) -> dict[str, Any]:
        """Return the fields of an answer."""
        age = round(max(0.0, time.time() - self.written), 3)
        return {"digest": self.digest, "update": self.update, "age_seconds": age}


class _Predicted(NamedTuple):
    labels: list[Any]
    shares: list[list[float]] | None
    unseen: list[tuple[int, str]]


class ServedModel:
    """One model."""

    def __init__(self, saved: SavedModel, snapshot: AnsweringModel, predictor: Any) -> None:
        self.snapshot, self._predictor, self.classes = snapshot, predictor, saved.classes
        self._reader, self._regression = RequestReader(saved), traits_of(saved.options).reading.regression
        self._kind = str(saved.options.kind)
        if predictor is not None:  # so that no request waits for trees to be packed, or for Numba
            features = saved.features
            ones = SparseRows.empty(features.sparse, 1) if features.sparse else None
            self._codes(Encoded(np.zeros((1, len(features.names))), ones, []))

    def answer(self, table: RequestTable) -> dict[str, Any]:
        """Predict rows."""
        require_known(table, self._reader.columns)
        require_few(table.rows, max(len(self._reader.columns), len(self.classes)))
        found = _answer(table, self.predicted(table), None if self._regression else self.classes, self.snapshot)
        return found | ({"last_labels": True} if self._reader.lacks_labels(table) else {})

    def predicted(self, table: RequestTable) -> _Predicted:
        """Return labels, and shares of the classes unless labels are numbers."""
        encoded = self._reader.read(table)
        if not table.rows:
            return _Predicted([], None if self._regression else [], [])
        labels, shares = self._codes(encoded)
        return _Predicted(labels, shares, encoded.unseen)

    def _codes(self, encoded: Encoded) -> tuple[list[Any], list[list[float]] | None]:
        sparse = {} if encoded.sparse is None else {"sparse": encoded.sparse}
        if self._regression:
            return self._predictor.predict(encoded.X, **sparse).tolist(), None
        if not self.classes:  # a model of an empty stream
            return [None] * len(encoded.X), [[] for _ in encoded.X]
        codes = self._predictor.predict(encoded.X, **sparse).tolist()
        shares = self._predictor.predict_proba(encoded.X, len(self.classes), **sparse)
        return [self.classes[code] for code in codes], shares.tolist()

    def description(self) -> dict[str, Any]:
        """Return learner, classes and columns."""
        features = self._reader.features
        columns = {
            name: "category" if coded else "number"
            for name, coded in zip(features.names, features.categorical, strict=True)
        }
        if features.sparse:
            columns[features.sparse_column] = "list"
        return {"learner": self._kind, "classes": None if self._regression else self.classes, "columns": columns}


class ServedKeys:
    """A model for each key; all are in memory, and those that were asked for lately are ready."""

    def __init__(self, saved: SavedKeys, snapshot: AnsweringModel) -> None:
        self.snapshot, self._saved, self._column = snapshot, saved, str(saved.meta[BY_KEY])
        self._whole = saved.outline()
        self._regression = traits_of(self._whole.options).reading.regression
        self._reader = RequestReader(self._whole)
        self._known = self._reader.columns | {self._column}
        self._model = functools.lru_cache(_READY_KEYS)(self._made)

    def _made(self, key: Any, _: type) -> ServedModel | None:
        held = self._saved.named(key)
        if held is None:
            return None
        saved = self._saved.saved(held)
        return ServedModel(saved, self.snapshot, predictor_of(saved))

    def answer(self, table: RequestTable) -> dict[str, Any]:
        """Predict rows, each by the model of its key; null where there is none."""
        require_known(table, self._known)
        require_few(table.rows, max(len(self._known), len(self._whole.classes)))
        keys = table.columns.get(self._column, [None] * table.rows)
        of_key: dict[Any, list[int]] = {}
        for row, key in enumerate(keys):
            if isinstance(key, bool) or not isinstance(key, str | int):
                said = message("serving.no_scalar" if isinstance(key, list | dict) else "serving.no_key")
                raise InputError(said, row=row, column=self._column)
            of_key.setdefault((key, type(key)), []).append(row)
        classes = self._whole.classes
        labels: list[Any] = [None] * table.rows
        shares: list[Any] = [None] * table.rows
        unseen, without = list[tuple[int, str]](), list[int]()
        for (key, kind), rows in of_key.items():
            model = self._model(key, kind)
            if model is None:
                without += rows
                continue
            predicted = _of_rows(model, table, rows, self._column)
            places = [classes.index(label) for label in model.classes]
            for place, row in enumerate(rows):
                labels[row] = predicted.labels[place]
                if predicted.shares is not None:
                    own = np.zeros(len(classes))
                    own[places] = predicted.shares[place]
                    shares[row] = own.tolist()
            unseen += [(rows[row], name) for row, name in predicted.unseen]
        predicted = _Predicted(labels, None if self._regression else shares, sorted(unseen))
        found = _answer(table, predicted, None if self._regression else classes, self.snapshot)
        found |= {"last_labels": True} if self._reader.lacks_labels(table) else {}
        return found | ({"without_model": sorted(without)} if without else {})

    def description(self) -> dict[str, Any]:
        """Return learner, classes, columns and the column of keys."""
        return {**ServedModel(self._whole, self.snapshot, None).description(), "key": self._column}


#: What answers requests.
Served = ServedModel | ServedKeys


def predictor_of(saved: SavedModel) -> Any:
    """Return the predictor of a model, or of a state without restoring it, if its learner can."""
    within = None
    if saved.is_state:
        within = saved.learner.model_within(saved.options, saved.features, saved.arrays)
    return saved.predictor() if within is None else saved.learner.predictor(saved.options, saved.features, within)


def _of_rows(model: ServedModel, table: RequestTable, rows: Sequence[int], key: str) -> _Predicted:
    """Predict some rows of a table; an error names the row of the table."""
    columns = {name: [values[row] for row in rows] for name, values in table.columns.items() if name != key}
    try:
        return model.predicted(RequestTable(columns, len(rows), single=False))
    except InputError as error:
        raise error if error.row is None else error.but(row=rows[error.row]) from None


def _answer(
    table: RequestTable, predicted: _Predicted, classes: Sequence[Any] | None, snapshot: AnsweringModel
) -> dict[str, Any]:
    """Put an answer together: of a single row, or of rows in their order."""
    found: dict[str, Any]
    if table.single:
        found = {"prediction": predicted.labels[0]}
        if predicted.shares is not None:
            found |= {"probabilities": predicted.shares[0]}
    else:
        found = {"predictions": predicted.labels}
        if predicted.shares is not None:
            found |= {"probabilities": predicted.shares}
    if classes is not None:
        found["classes"] = list(classes)
    if predicted.unseen:
        found["unseen"] = [{"row": row, "column": name} for row, name in predicted.unseen]
    return found | snapshot.described()
