"""Predictions of models by key: each row by the model of its key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from raydt.arrays.types import Bools, Floats
from raydt.encoding.columns import number_of
from raydt.keyed.groups import Key, group_of, in_order
from raydt.keyed.saved import SavedKeys, fitting_keys
from raydt.learners import traits_of
from raydt.sessions.saved_model import SavedModel
from raydt.sources.base import Rows
from raydt.sources.file_source import FileSource


class _KeyModel:
    """The model of one key, ready to predict rows with the codes of a file."""

    def __init__(self, saved: SavedModel, whole: SavedModel) -> None:
        self.classes = [whole.classes.index(label) for label in saved.classes]
        self.predictor: Any = saved.predictor() if self.classes or not whole.classes else None
        self._names = [(j, name) for j, name in enumerate(whole.features.names) if name in saved.categories]
        self._by_value = traits_of(whole.options).reading.by_value
        if self._by_value:
            self._known = {name: {number_of(value) for value in saved.categories[name]} for _, name in self._names}
        else:
            self._codes = {name: {v: c for c, v in enumerate(saved.categories[name])} for _, name in self._names}
        self.n_classes = len(saved.classes)

    def own_codes(self, X: Floats, values: Any) -> tuple[Floats, Any]:
        """Return rows with the key's own codes, and which of their values are categories new to the key."""
        X, new = X.copy(), np.zeros(X.shape, dtype=np.bool_)
        for j, name in self._names:
            column = X[:, j].astype(np.int64).tolist()
            if self._by_value:
                new[:, j] = [code >= 0 and code not in self._known[name] for code in column]
                continue
            codes, known = self._codes[name], values[name]
            own = [-1 if code < 0 else codes.get(known[code], len(codes)) for code in column]
            X[:, j] = own
            new[:, j] = [code == len(codes) for code in own]
        return X, new


class KeyedPredictor:
    """Predicts chunks of rows by the models of their keys; ``unknown`` counts the rows of keys without a model."""

    def __init__(self, saved: SavedKeys) -> None:
        self._saved, self.whole = saved, saved.outline()
        self._models: dict[Key, _KeyModel | None] = {}
        self._regression = traits_of(self.whole.options).reading.regression
        self.unknown = 0
        self.unknown_keys: dict[Key, None] = {}

    def _model(self, key: Key) -> _KeyModel | None:
        if key not in self._models:
            with fitting_keys(group_of(key), self._saved.place):
                held = self._saved.named(key)
                self._models[key] = None if held is None else _KeyModel(self._saved.saved(held), self.whole)
        return self._models[key]

    def load(self, keys: list[Key]) -> None:
        """Read the models of keys, group by group."""
        for key in in_order(key for key in keys if key not in self._models):
            self._model(key)

    def predicted(self, source: FileSource, rows: Rows) -> tuple[list[pa.Array], Bools]:
        """Return the columns of predictions, null where there is none, and which values are new to the key."""
        assert rows.key is not None
        n, whole = len(rows), self.whole
        known = {name: one.values for name, one in source.categories().items()}
        keys = source.keys
        self.load([keys[code] for code in np.unique(rows.key).tolist() if code >= 0])
        none, new = np.ones(n, dtype=np.bool_), np.zeros(rows.X.shape, dtype=np.bool_)
        numbers, codes = np.zeros(n), np.zeros(n, dtype=np.int64)
        shares = np.zeros((n, len(whole.classes)))
        good = np.ones(n, dtype=np.bool_)
        good[list(rows.bad)] = False
        order = np.argsort(rows.key, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(rows.key[order])) + 1):
            part = part[good[part]]
            if not len(part):
                continue
            key = keys[int(rows.key[part[0]])]
            model = self._model(key)
            if model is None:
                self.unknown += len(part)
                self.unknown_keys[key] = None
                continue
            if model.predictor is None:
                continue
            X, new[part] = model.own_codes(rows.X[part], known)
            sparse = {} if rows.sparse is None else {"sparse": rows.sparse[part]}
            none[part] = False
            if self._regression:
                numbers[part] = model.predictor.predict(X, **sparse)
                continue
            places = np.array(model.classes, dtype=np.int64)
            codes[part] = places[model.predictor.predict(X, **sparse)]
            shares[np.ix_(part, places)] = model.predictor.predict_proba(X, model.n_classes, **sparse)
        if self._regression:
            return [pa.array(numbers, pa.float64(), mask=none)], new
        if not whole.classes:
            return [pa.nulls(n)], new
        labels = pa.array(whole.classes)
        return [
            labels.take(pa.array(codes, mask=none)),
            *(pa.array(shares[:, k], mask=none) for k in range(shares.shape[1])),
        ], new
