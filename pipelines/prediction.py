"""Predictions of a saved model for files of rows.

Invariant: the output has one row for each row of the input, in the same order, and is there completely or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.operation import in_threads_of_its_run
from pipelines.receipts import may_quote, quoting_as_its_run, said
from pipelines.run_folder import fitting
from pipelines.saved_runs import (
    Input,
    find_state,
    load_members,
    load_model,
    new_file,
    open_members,
    require_apart,
    require_erasable,
    writing_alone,
    written,
)
from pipelines.updating.changes import find_rows, open_rows
from raydt.arrays.elementary import Bools, Floats
from raydt.attribution.jackknife import Intervals, guarantee_of, require_alpha
from raydt.attribution.leave_one_out import require_estimator
from raydt.encoding.columns import number_of
from raydt.errors import ConfigError, InputError
from raydt.estimators import estimator_of
from raydt.export import FormatName, Interface, build, sentences, suffix_of, write
from raydt.keyed.groups import Key, group_of, in_order
from raydt.keyed.packing import TEXT_KEY, SavedKeys, fitting_keys
from raydt.learners import traits_of
from raydt.messages import message
from raydt.sessions.saved_model import BY_KEY, SavedModel, require_one
from raydt.sources.base import Rows
from raydt.sources.files.datafile import DataFile
from raydt.trees.shapley import TreeSum, explain, tree_sum_of


@in_threads_of_its_run
@quoting_as_its_run
def predict_file(
    model: str | Path,
    data: str | Path,
    out: str | Path,
    kind: str | None = None,
    *,
    id_column: str | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    overwrite: bool = False,
    interval: float | None = None,
) -> dict[str, Any]:
    """Predict every row of a file.

    ``model`` is a run folder, its ``model``, or a state. ``data`` is Parquet, Arrow IPC or CSV with the model's feature
    columns (other columns are passed over), of a ``kind`` that is by default that of its name. ``out`` is a Parquet
    file with ``prediction``, and ``p_<class>`` for each class (of a regression only ``prediction``, a number), a row
    for each row of ``data``; its first column is ``id_column``, which is held in memory. ``on_error="skip"`` gives a
    row that cannot be used null predictions. ``interval``, from 0 to 1: of numbers the columns ``lower`` and ``upper``,
    too, the ends of intervals of the jackknife+ at this alpha, by all examples of a run or a state
    (:class:`raydt.attribution.JackknifePlusRegressor`); ``guarantee`` says then what they promise.

    Returns ``rows``, ``skipped`` (those without a prediction), ``first_skipped`` (why the first of them has none, or
    None), ``unseen`` (rows with a category that the model does not know, which goes the way of all other categories at
    every split) and ``unseen_columns``, ``last_labels`` (True if the last labels of the run stand for those of the rows
    before, which ``data`` does not have), ``out`` and ``classes``.

    ConfigError if ``out`` is an input, lies in a run, a model or a state, or another process writes it; InputError for
    a damaged model, a missing column, a value that cannot be used, with its row, or an output that cannot be written.
    Nothing has been written then.
    """
    used = _used(model) if interval is None else _WithIntervals(model, interval)
    saved = used.saved
    target = new_file(out, "Parquet", [".parquet", ".pq"], overwrite=overwrite)
    writing = partial(written, target, "the predictions")
    require_apart("--out", out, [Input("MODEL", str(model)), Input("DATA", str(data))])
    wanted = {} if id_column is None else {id_column: "--id"}
    as_text = tuple(saved.meta[name] for name in (TEXT_KEY,) if name in saved.meta)
    files, options = find_rows(
        saved, str(data), kind, wanted={**wanted, **used.wanted}, columns=used.columns, as_text=as_text, predicted=True
    )
    require_apart("--out", out, [Input("a file of DATA", file.name) for file in files])  # by any of its names
    source = open_rows(saved, files, options)
    ids = None if id_column is None else _column(files, id_column)
    schema = _schema(saved, id_column, ids, used.more)
    unfinished = target.with_name(f".{target.name}.unfinished")
    rows, skipped, first = 0, 0, None
    unseen, unseen_columns = 0, np.zeros(len(saved.features.names), dtype=bool)
    with writing_alone(target, "the predictions", new=[] if overwrite else [target]):
        try:
            with writing():
                writer = pq.ParquetWriter(unfinished, schema)
            with writer:
                for chunk in source.rows():
                    if chunk.bad and on_error == "fail":
                        raise _for_prediction(chunk.bad[min(chunk.bad)])
                    if chunk.bad and first is None:
                        first = _for_prediction(chunk.bad[min(chunk.bad)], remedy=False)
                    columns, new = used.predicted(source, chunk)
                    new[list(chunk.bad)] = False
                    unseen, unseen_columns = unseen + int(new.any(axis=1).sum()), unseen_columns | new.any(axis=0)
                    if ids is not None:
                        columns = [ids.slice(chunk.start, len(chunk)), *columns]
                    with writing():
                        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
                    rows, skipped = rows + len(chunk), skipped + len(chunk.bad)
            with writing():
                unfinished.replace(target)
        finally:
            with suppress(OSError):  # it was never written, or has its name by now
                unfinished.unlink()
    return {
        "rows": rows,
        "skipped": skipped,
        "first_skipped": None if first is None else said(first, may_quote(model)),
        "unseen": unseen,
        "unseen_columns": [saved.features.names[j] for j in np.flatnonzero(unseen_columns)],
        "last_labels": bool(source.reading.previous),
        "out": str(target),
        "classes": [str(label) for label in saved.classes],
        **used.found(quote=may_quote(model)),
    }


class _Used:
    """One model, ready to predict."""

    #: What a file has to have beside features, and with which part.
    wanted: Mapping[str, str] = MappingProxyType({})
    columns: Mapping[str, str | None] = MappingProxyType({})
    #: Columns of numbers behind the predictions.
    more: Sequence[str] = ()

    def __init__(self, saved: SavedModel) -> None:
        self.saved, self._predictor, self._unseen = saved, saved.predictor(), _unseen(saved)

    def predicted(self, source: Any, rows: Rows) -> tuple[list[pa.Array], Bools]:
        """Return the columns of predictions, and which values are categories that the model does not know."""
        return _predicted(self.saved, self._predictor, rows), self._unseen(rows.X)

    def found(self, *, quote: bool) -> dict[str, Any]:
        """Return what else there is to say in the end, with values of the data if ``quote``."""
        return {}


def _used(model: str | Path) -> _Used:
    """Return the model, or models by key, of a run, a model or a state."""
    members = load_members(model)
    return KeyedPredictor(members) if BY_KEY in members.meta else _Used(members.outline())


class _WithIntervals(_Used):
    """The model of a state, whose predictions have an interval each."""

    more = ("lower", "upper")

    def __init__(self, state: str | Path, alpha: float) -> None:
        require_alpha(alpha)
        members = open_members(find_state(state).folder)
        require_one(members.meta, members.place)
        super().__init__(require_erasable(members).saved(None))
        if not traits_of(self.saved.options).reading.regression:
            raise ConfigError(message("attribution.of_classes"))
        self._alpha, self._model = alpha, estimator_of(self.saved.options).from_saved(self.saved)
        require_estimator(self._model)

    @cached_property
    def _intervals(self) -> Intervals:
        """The errors without each example, once a file has rows."""
        return Intervals(self._model)

    def predicted(self, source: Any, rows: Rows) -> tuple[list[pa.Array], Bools]:
        """Return the columns of predictions and ends, and which values are categories that the model does not know."""
        columns, new = super().predicted(source, rows)
        X, sparse, bad = _usable(rows)
        ends = self._intervals.of(self._model, X, sparse, self._alpha)
        return [*columns, *(pa.array(side, pa.float64(), mask=bad) for side in ends.T)], new

    def found(self, *, quote: bool) -> dict[str, Any]:
        """Return what the intervals promise."""
        return {"guarantee": str(guarantee_of(self._model))}


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
        #: The last labels of the key, as the features of its next row.
        self.last = [self._entered(name, label) for name, label in saved.previous.items()]

    def _entered(self, name: str, label: Any) -> float:
        """Return a label as the value of a feature."""
        if all(name != other for _, other in self._names):
            return np.nan if label is None else float(label)
        if label is None:
            return -1.0
        return number_of(label) if self._by_value else self._codes[name][label]

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


class KeyedPredictor(_Used):
    """Models by key: a row of a key without a model has no prediction."""

    def __init__(self, keys: SavedKeys) -> None:
        self._keys, self.saved, column = keys, keys.outline(), keys.meta[BY_KEY]
        self._models: dict[Key, _KeyModel | None] = {}
        self._regression = traits_of(self.saved.options).reading.regression
        self._unknown, self._unknown_keys = 0, dict[Key, None]()
        self.wanted, self.columns = {column: "source.key"}, {"key": column}

    def found(self, *, quote: bool) -> dict[str, Any]:
        """Return the rows of keys without a model."""
        return {"without_model": self._unknown, "unknown_keys": [*self._unknown_keys][:20] if quote else []}

    def _model(self, key: Key) -> _KeyModel | None:
        if key not in self._models:
            with fitting_keys(group_of(key), self._keys.place):
                held = self._keys.named(key)
                self._models[key] = None if held is None else _KeyModel(self._keys.saved(held), self.saved)
        return self._models[key]

    def load(self, keys: list[Key]) -> None:
        """Read the models of keys, group by group."""
        for key in in_order(key for key in keys if key not in self._models):
            self._model(key)

    def predicted(self, source: Any, rows: Rows) -> tuple[list[pa.Array], Bools]:
        """Return the columns of predictions, null where there is none, and which values are new to the key."""
        assert rows.key is not None
        n, whole = len(rows), self.saved
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
                self._unknown += len(part)
                self._unknown_keys[key] = None
                continue
            if model.predictor is None:
                continue
            X, new[part] = model.own_codes(rows.X[part], known)
            if source.reading.previous:  # the file has no labels of the rows before
                X[:, -len(model.last) :] = model.last
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


def _unseen(saved: SavedModel) -> Callable[[Floats], Bools]:
    """Return a function that finds, in rows of shape (n, d), categories that the model does not know."""
    known = [saved.categories.get(name) for name in saved.features.names]
    if traits_of(saved.options).reading.by_value:
        numbers = [None if values is None else [-1.0, *map(number_of, values)] for values in known]

        def other(X: Floats) -> Bools:
            new = [np.zeros(len(X), np.bool_) if n is None else ~np.isin(X[:, j], n) for j, n in enumerate(numbers)]
            return np.stack(new, axis=1)

        return other
    sizes = np.array([np.inf if values is None else len(values) for values in known])
    return lambda X: np.greater_equal(X, sizes)  # codes are given in the order of appearance, after the model's


def _column(files: list[DataFile], name: str) -> pa.ChunkedArray:
    """A column of all files as it stands there."""
    tables = []
    for file in files:
        schema = pa.schema([file.schema.field(name)])
        batches = [batch.select([name]) for batch in file.batches([name], 0, 1 << 16)]
        table = pa.Table.from_batches(batches) if batches else schema.empty_table()
        try:
            tables.append(table.cast(schema))  # a text format gives text, whatever it holds
        except pa.ArrowInvalid:
            tables.append(table)
    try:
        return pa.concat_tables(tables, promote_options="permissive").column(name)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InputError(message("predictions.mixed_ids"), column=name) from error


def _for_prediction(error: InputError, *, remedy: bool = True) -> InputError:
    """A bad row, with what can be done about it here."""
    return error.but(remedy=message("predictions.bad_row") if remedy else None)


def _usable(rows: Rows) -> tuple[Floats, dict[str, Any], Bools]:
    """Return features that can be predicted, sparse ones as a keyword, and which rows are bad: these are zeros."""
    bad = np.zeros(len(rows), dtype=bool)
    bad[list(rows.bad)] = True
    X = np.where(bad[:, None], 0.0, rows.X) if bad.any() else rows.X
    return X, {} if rows.sparse is None else {"sparse": rows.sparse}, bad


def _predicted(saved: SavedModel, predictor: Any, rows: Rows) -> list[pa.Array]:
    """Columns of the predictions; null in rows that cannot be used."""
    X, sparse, bad = _usable(rows)
    if traits_of(saved.options).reading.regression:
        return [pa.array(predictor.predict(X, **sparse), pa.float64(), mask=bad)]
    if not saved.classes:  # a model of an empty stream
        return [pa.nulls(len(rows))]
    codes, shares = predictor.predict(X, **sparse), predictor.predict_proba(X, len(saved.classes), **sparse)
    labels = pa.array(saved.classes)
    return [
        labels.take(pa.array(codes, mask=bad)),
        *(pa.array(shares[:, k], mask=bad) for k in range(shares.shape[1])),
    ]


def _schema(saved: SavedModel, id_column: str | None, ids: pa.ChunkedArray | None, more: Sequence[str]) -> pa.Schema:
    with fitting("the classes of the model"):
        target = pa.float64() if traits_of(saved.options).reading.regression else pa.array(saved.classes).type
    fields = [("prediction", target), *((name, pa.float64()) for name in (*map("p_{}".format, saved.classes), *more))]
    if id_column is not None and ids is not None:
        if id_column in dict(fields):
            raise InputError(message("predictions.taken_id"), column=id_column)
        fields.insert(0, (id_column, ids.type))
    return pa.schema(fields)


# Exports of saved models, and the explanation of one row: the commands ``export`` and ``predict --explain``.


@in_threads_of_its_run
@quoting_as_its_run
def export_model(
    model: str | Path, to: FormatName, out: str | Path, *, key: str | None = None, overwrite: bool = False
) -> dict[str, Any]:
    """Write the model of a run, a model or a state in the format of another library; ``out``.json describes it.

    Of models by key that of ``key``. ConfigError if ``out`` may not be written; InputError for a damaged model, an
    absent library, or what a format cannot say.
    """
    saved = load_model(model, key)
    trees, interface = trees_of(saved), interface_of(saved)
    target = new_file(out, to, [suffix_of(to)], overwrite=overwrite, beside=[".json"])
    require_apart("--out", str(out), [Input("MODEL", str(model))])
    new = [] if overwrite else [target, target.with_name(target.name + ".json")]
    with writing_alone(target, "the model", new=new):
        beside = write(build(trees, interface, to), trees, interface, to, target)
    return {
        "out": str(target),
        "interface": str(beside),
        "format": to,
        "trees": trees.trees,
        "nodes": len(trees.feature),
        "outputs": interface.describe(trees)["outputs"],
    }


def trees_of(saved: SavedModel) -> TreeSum:
    """Return the trees of a model or state; InputError if it is no sum of trees, or has seen no class."""
    if not saved.classes and not traits_of(saved.options).reading.regression:
        raise InputError(message("predictions.no_class"))
    return tree_sum_of(saved.predictor(), len(saved.classes))


def interface_of(saved: SavedModel) -> Interface:
    """Return columns and classes of a model."""
    by_value = traits_of(saved.options).reading.by_value
    return Interface.of(saved.features, saved.categories, saved.classes, by_value)


@in_threads_of_its_run
@quoting_as_its_run
def explain_row(
    model: str | Path, data: str | Path, row: int, tree: int = 0, kind: str | None = None, key: str | None = None
) -> dict[str, Any]:
    """Explain the prediction of one row of a file, by its number from 0, and put its path in one ``tree`` into words.

    Of models by key that of ``key``.
    ``values`` are the features that move an output, the largest first, each ``[name, [value of each output]]``.
    """
    saved = load_model(model, key)
    trees, interface = trees_of(saved), interface_of(saved)
    rows, at = _row(saved, str(data), row, kind)
    X = rows.X[at : at + 1]
    sparse = None if rows.sparse is None else rows.sparse[np.array([at])]
    found = explain(trees, X, sparse)
    values, base = found.values[0], found.base
    largest = np.abs(values).max(axis=1)
    order = np.argsort(-largest, kind="stable")
    return {
        "row": row,
        "tree": tree,
        "trees": trees.trees,
        "path": sentences(trees, X, sparse, tree, interface)[0],
        "meaning": interface.describe(trees)["meaning"],
        "outputs": interface.describe(trees)["outputs"],
        "base": base.tolist(),
        "output": trees.scores(X, sparse)[0].tolist(),
        "values": [[interface.name(j), values[j].tolist()] for j in order.tolist() if largest[j] > 0],
    }


def _row(saved: SavedModel, data: str, row: int, kind: str | None) -> tuple[Rows, int]:
    """Return the rows that hold one row of a file, and its place among them."""
    files, options = find_rows(saved, data, kind, wanted={}, predicted=True)
    for chunk in open_rows(saved, files, options).rows():
        if chunk.start <= row < chunk.start + len(chunk):
            at = row - chunk.start
            if at in chunk.bad:
                raise chunk.bad[at].without_skipping()
            return chunk, at
    raise InputError(message("predictions.no_row"), file=data, row=row)
