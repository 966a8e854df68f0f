"""A model, or models by key, ready to answer requests.

Invariant: nothing here changes after it was made but caches, so that one reference to it is a whole model.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pipelines.serving.rows import Encoded, RowReader, Table, require_few, require_known
from raydt.arrays.sparse import SparseRows
from raydt.errors import InputError
from raydt.keyed.saved import SavedKeys
from raydt.learners import traits_of
from raydt.messages import message
from raydt.sessions.saved_model import BY_KEY, SavedModel

#: Models of keys that stay in memory, ready.
_READY_KEYS = 4096


class Snapshot(NamedTuple):
    """What an answer says of its model."""

    digest: str  #: Of the snapshot: the seal of its manifest.
    update: int | None  #: Updates of the stream that are in the model; None if it was saved without a run.
    written: float  #: When it was written, seconds since 1970.
    place: str

    def described(self) -> dict[str, Any]:
        """Return the fields of an answer."""
        age = round(max(0.0, time.time() - self.written), 3)
        return {"digest": self.digest, "update": self.update, "age_seconds": age}


class Served(Protocol):
    """What answers requests."""

    snapshot: Snapshot

    def answer(self, table: Table) -> dict[str, Any]:
        """Predict rows; InputError names row and column of what cannot be predicted."""

    def description(self) -> dict[str, Any]:
        """Return what there is to know about the model."""


class _Predicted(NamedTuple):
    labels: list[Any]
    shares: list[list[float]] | None
    unseen: list[tuple[int, str]]


class ServedModel:
    """One model."""

    def __init__(self, saved: SavedModel, snapshot: Snapshot, predictor: Any) -> None:
        self.snapshot, self._predictor, self.classes = snapshot, predictor, saved.classes
        self._reader, self._regression = RowReader(saved), traits_of(saved.options).reading.regression
        self._kind = str(saved.options.kind)
        if predictor is not None:  # so that no request waits for trees to be packed, or for Numba
            features = saved.features
            ones = SparseRows.empty(features.sparse, 1) if features.sparse else None
            self._codes(Encoded(np.zeros((1, len(features.names))), ones, []))

    def answer(self, table: Table) -> dict[str, Any]:
        """Predict rows."""
        require_known(table, self._reader.columns)
        require_few(table.rows, max(len(self._reader.columns), len(self.classes)))
        predicted = self.predicted(table)
        return _answer(table, predicted, None if self._regression else self.classes, self.snapshot)

    def predicted(self, table: Table) -> _Predicted:
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

    def __init__(self, saved: SavedKeys, snapshot: Snapshot) -> None:
        self.snapshot, self._saved, self._column = snapshot, saved, str(saved.meta[BY_KEY])
        self._whole = saved.outline()
        self._regression = traits_of(self._whole.options).reading.regression
        self._known = RowReader(self._whole).columns | {self._column}
        self._model = functools.lru_cache(_READY_KEYS)(self._made)

    def _made(self, key: Any, _: type) -> ServedModel | None:
        held = self._saved.named(key)
        if held is None:
            return None
        saved = self._saved.saved(held)
        return ServedModel(saved, self.snapshot, predictor_of(saved))

    def answer(self, table: Table) -> dict[str, Any]:
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
        return found | ({"without_model": sorted(without)} if without else {})

    def description(self) -> dict[str, Any]:
        """Return learner, classes, columns and the column of keys."""
        return {**ServedModel(self._whole, self.snapshot, None).description(), "key": self._column}


def predictor_of(saved: SavedModel) -> Any:
    """Return the predictor of a model, or of a state without restoring it, if its learner can."""
    within = None
    if saved.is_state:
        within = saved.learner.model_within(saved.options, saved.features, saved.arrays)
    return saved.predictor() if within is None else saved.learner.predictor(saved.options, saved.features, within)


def _of_rows(model: ServedModel, table: Table, rows: Sequence[int], key: str) -> _Predicted:
    """Predict some rows of a table; an error names the row of the table."""
    columns = {name: [values[row] for row in rows] for name, values in table.columns.items() if name != key}
    try:
        return model.predicted(Table(columns, len(rows), single=False))
    except InputError as error:
        raise error if error.row is None else error.but(row=rows[error.row]) from None


def _answer(table: Table, predicted: _Predicted, classes: Sequence[Any] | None, snapshot: Snapshot) -> dict[str, Any]:
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
