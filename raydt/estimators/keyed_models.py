"""Fitted models by key: what there is of them, their predictions, and scikit-learn's conventions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.errors import ConfigError, HalfAppliedError, InputError, ModelFileError, UpdateError
from raydt.estimators.arguments import NO_TYPES, Parametrised, Types, plain_keys, require_type
from raydt.estimators.atomic import AtomicCall, DeferredInterrupt, Locked
from raydt.estimators.base import Estimator
from raydt.estimators.frames import (
    array_of,
    as_table,
    is_sparse_matrix,
    nothing_in,
    require_distinct,
    warning_of_unseen,
)
from raydt.examples.store import objects
from raydt.examples.updates import UNIT
from raydt.folders.arrays import save_folder
from raydt.folders.folder import Folder, locked
from raydt.keyed.groups import Key, digest_of, group_of, in_order
from raydt.keyed.members import Awake
from raydt.keyed.packing import packed
from raydt.learners import traits_of
from raydt.messages import Message, message, quoted
from raydt.sessions.saved_model import BY_KEY, model_meta

# The rows of a call by key: which rows each key has, and the features of these rows.
#
# Invariant: the rows of a key come in the order of the call, and have the columns, and the types of columns, of all
# rows.

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
    X: Any, column: str | None, keys: Any, estimator: str, *, types: Types, lists: bool = False, form: Form = None
) -> DividedRows:
    """Divide rows by key, which ``keys`` are, or the ``column`` of a frame.

    With ``lists``, a list by itself has lists of indices. ``form`` is that of the rows that the models were fitted
    with, if they were: of a frame, its columns are taken. ``types`` has the type of their keys.
    ``InputError`` for a row without a key, a key that is none, and rows of another form. O(n log n) and a copy of X.
    """
    table, found = _features_and_keys(X, column, keys, estimator)
    given = _values(X, lists) if table is None else table
    if table is not None and not table.num_columns:
        raise nothing_in((len(found), 0), "feature")
    n = given.shape[0] if hasattr(given, "shape") else len(given)
    named = checked_keys(found, types, column if keys is None else None)
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


def checked_keys(given: Any, types: Types, column: str | None = None) -> list[Key]:
    """Return keys, text or integers of 64 bits; ``InputError`` with the row, and the column if there is one."""
    try:
        missing = np.isnan(given) if getattr(getattr(given, "dtype", None), "kind", "") == "f" else ()
        found = plain_keys(given if not np.any(missing) else [None if one else 0 for one in missing], "key")
    except InputError as error:
        said = error.message
        if said is not None and said.id == "estimators.id_type":
            raise InputError(_no_key(said.parameters["value"]), row=error.row, column=column) from None
        raise error.but(column=column) from None
    for row, key in enumerate(found):
        if isinstance(key, bool) or not isinstance(key, str | int) or (isinstance(key, int) and abs(key) >= 2**63):
            raise InputError(_no_key(key), row=row, column=column)
    try:
        require_type(found, "key", types)
    except InputError as error:
        raise error.but(column=column) from None
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


# What stands for keys without a model: the labels of the live rows of all keys, by weight.
#
# Invariant: it follows from the live rows alone, not from the order in which they came or how they were divided.


@dataclass(frozen=True)
class Prior:
    """Weights of the rows, in units of 2**-16: of each class, or of all rows with the sum of their numbers."""

    labels: list[Any]
    counts: list[int]
    total: float = 0.0
    saved: bool = False  #: Whether it came with models that have no examples.

    @property
    def mean(self) -> float:
        """Mean of the numbers; 0 without rows, as regressors predict then."""
        weight = sum(self.counts)
        return self.total / (weight / UNIT) if weight else 0.0

    def shares(self, classes: AnyArray) -> Floats:
        """Return the share of each class, shape (classes,); equal ones without rows."""
        counts = dict(zip(self.labels, self.counts, strict=True))
        found = np.array([counts.get(label, 0) for label in classes.tolist()], dtype=np.float64)
        return found / found.sum() if found.any() else np.full(len(classes), 1 / len(classes))

    def as_json(self) -> dict[str, Any]:
        """Return what a manifest says of it."""
        return {"labels": self.labels, "counts": self.counts, "total": self.total}


def prior_of(models: Iterable[Any], classes: AnyArray | None) -> Prior:
    """Return the prior of models with their examples; ``classes`` are None where labels are numbers. O(rows)."""
    counts = dict.fromkeys([None] if classes is None else classes.tolist(), 0)
    numbers: list[float] = []
    for model in models:
        store = model._store()
        slots = store.slots()
        y, given = store.y[slots], store.weights(slots)
        weights = np.full(len(y), UNIT, dtype=np.int64) if given is None else given.astype(np.int64)
        if classes is None:
            counts[None] += int(weights.sum())
            numbers += (y * (weights / UNIT)).tolist()
            continue
        sums = np.zeros(len(model.classes_), dtype=np.int64)
        np.add.at(sums, y, weights)
        for label, weight in zip(model.classes_.tolist(), sums.tolist(), strict=True):
            counts[label] += weight
    return Prior([] if classes is None else list(counts), list(counts.values()), math.fsum(numbers))


# One call that changes the models of several keys: all of them, or none.
#
# Invariant: a change is prepared for every key, which refuses what is wrong with it, before the first model changes.

#: A change of one key's model, prepared: it cannot be refused any more.
Apply = Callable[[], Any]
Places = Mapping[Key, Ints]


def change_together(
    models: Mapping[Key, Any],
    changes: Mapping[Key, Callable[[], Apply]],
    become: Callable[[bool | None], None],
    rows: Places,
) -> dict[Key, Any]:
    """Prepare the changes of some models, then apply them all; return what each returns.

    ``become(None)`` is called once all have changed. If the call is refused or broken off, the models are as before
    and ``become`` is called with whether a change had reached one: this is refused from then on, but for its examples.
    ``rows`` are the rows of each key, for errors.
    """
    interrupt, complete, settled = DeferredInterrupt(), False, False
    begun: list[tuple[Any, AtomicCall]] = []

    def take_back() -> None:
        nonlocal settled
        for model, change in begun:
            change.take_back(model)
        become(any(change.touched for _, change in begun))
        settled = True

    with ExitStack() as locks:
        try:
            ready = {}
            for key, prepare in changes.items():
                model = models[key]
                locks.enter_context(model._lock)
                model._require_whole()
                change = AtomicCall(model, interrupt)
                begun.append((model, change))
                model._change = change
                ready[key] = prepared(prepare, key, rows)
            interrupt.begin()
            results = {key: apply() for key, apply in ready.items()}
            become(None)
            for model, _ in begun:
                model._change = None
            complete = True
            for model, _ in begun:
                model._settle()
            return results
        except BaseException:
            if not complete:
                take_back()
            raise
        finally:
            if not complete and not settled:
                take_back()  # a second Ctrl-C came before the first had been answered
            interrupt.end()


def prepared(step: Callable[[], Any], key: Key, rows: Places) -> Any:
    """Return what a step of one key returns; an error names the key, and the row of the call."""
    try:
        return step()
    except (InputError, ConfigError, ValueError, TypeError) as error:
        named = at_key(error, key, rows.get(key))
        if named is error:
            raise
        raise named from error


def at_key(error: Exception, key: Key, rows: Ints | None = None) -> Exception:
    """Return an error of one key's model with the key, and the row of the call in place of that among ``rows``."""
    if isinstance(error, InputError) and not isinstance(error, ModelFileError):
        row = error.row if error.row is None or rows is None else int(rows[error.row])
        kind = UpdateError if isinstance(error, UpdateError) else InputError
        return kind(**{**error.parts, "problem": _with_key(error.parts["problem"], key), "row": row})
    if isinstance(error, ConfigError) or type(error) in (ValueError, TypeError):
        return type(error)(_with_key(error.args[0] if error.args else "", key))
    return error


def _with_key(problem: str, key: Key) -> str:
    place = f"key {quoted(key)}"
    return problem.at(place) if isinstance(problem, Message) else f"{place}: {problem}"


Self = TypeVar("Self", bound="KeyedModels")


class KeyedModels(Parametrised, Locked):
    """Base of :class:`raydt.estimators.keyed_base.Keyed`, which changes the models."""

    estimator: Any
    key: str | None
    unknown: Literal["error", "prior"]
    #: The fitted estimator of each key, in the order in which keys appeared: to be read. Calls that change a model are
    #: made to this estimator.
    models_: dict[Key, Any]
    estimator_: Any  #: Not fitted: models of keys that are new begin as its copies.
    n_features_in_: int  #: Features, of which the key is none.
    feature_names_in_: AnyArray  #: Only for data frames: names, dtype object.
    row_ids_: AnyArray  #: Ids of the rows of the last ``fit`` or ``partial_fit``.
    _inner: ClassVar[type[Estimator]]
    _example: ClassVar[str]
    _form: Form
    _next_id: int
    _awake: Awake  #: Models that had a change in the last calls; the others use little memory.
    #: Types of the keys, ids and subjects, from the first examples on.
    _types: Types = NO_TYPES
    #: Whether examples have subjects; None before there are examples.
    _with_subjects: bool | None
    #: What stands for keys without a model, once it was needed; of a model without its examples, always.
    _prior: Prior | None
    #: Whether a change was broken off where it could not be undone.
    _broken: bool = False

    # ------------------------------------------------------------ what there is

    @property
    def keys_(self) -> npt.NDArray[np.object_]:
        """Keys that have a model, in the order in which they appeared, dtype object."""
        self._require_fitted()
        return objects(list(self.models_))

    @property
    def live_ids_(self) -> AnyArray:
        """Ids of all live examples, key by key, the oldest of each first."""
        with self._lock:
            self._require_fitted()
            parts = [model.live_ids_ for model in self.models_.values()]
        if all(part.dtype != object for part in parts):
            return np.concatenate(parts)
        return objects([one for part in parts for one in part.tolist()])

    def __contains__(self, id: Any) -> bool:
        """Return True if an example with this id is live under a key."""
        with self._lock:
            self._require_fitted()
            return any(id in model for model in self.models_.values())

    def digest(self) -> str:
        """Digest over all keys and the digests of their models, whatever their order."""
        with self._lock:
            self._require_fitted()
            digests = {}
            for key, model in self.models_.items():
                digests[key] = model.digest()
                model._rest()
            return digest_of(digests)

    def has_model(self, X: Any, *, keys: Any = None) -> Bools:
        """Return which rows are of a key that has a model, shape (n,); the others are unknown to ``predict``."""
        self._require_fitted()
        rows = self._divided(X, keys)
        known = np.ones(rows.n, dtype=np.bool_)
        for key, places in rows.rows.items():
            known[places] = key in self.models_
        return known

    def save(self, path: Any, with_examples: bool = False) -> None:
        """Write one folder, whatever the number of keys, that :func:`raydt.load_model` reads; as the inner ``save``."""

        with self._lock:
            save_keyed(self, path, with_examples)

    # ------------------------------------------------------------ scikit-learn

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; if ``deep``, with those of the estimator as ``estimator__name``."""
        found = super().get_params()
        inner = self.estimator.get_params() if deep and hasattr(self.estimator, "get_params") else {}
        return found | {f"estimator__{name}": value for name, value in inner.items()}

    def set_params(self: Self, **params: Any) -> Self:
        """Set parameters for the next ``fit``, also those of the estimator, as ``estimator__name``."""
        inner = {name: value for name, value in params.items() if name.startswith("estimator__")}
        super().set_params(**{name: value for name, value in params.items() if name not in inner})
        if inner:
            self.estimator.set_params(**{name.partition("__")[2]: value for name, value in inner.items()})
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")

    def __sklearn_tags__(self) -> Any:
        return self.estimator.__sklearn_tags__()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that a copy has."""
        self._require_whole()
        return self.__dict__

    # ------------------------------------------------------------ inside

    def _threads(self) -> int | None:
        return self.estimator._threads() if isinstance(self.estimator, Parametrised) else None

    def _divided(self, X: Any, keys: Any) -> DividedRows:
        model = self.estimator_
        lists = traits_of(model._options()).reading.needs_sparse or getattr(model, "n_features", None) is not None
        form = self.__dict__.get("_form")
        return divided(X, self.key, keys, type(self).__name__, types=self._types, lists=lists, form=form)

    # ------------------------------------------------------------ predictions

    def _answers(self, rows: DividedRows, answer: Callable[[Any, Any], Any]) -> list[tuple[Ints, Any]]:
        """Return the places of the rows of each key that has a model, and what its model answers."""
        models = [(key, places, self.models_[key]) for key, places in rows.rows.items() if key in self.models_]
        with warning_of_unseen(type(self).__name__):
            return [
                (places, prepared(partial(answer, model, rows.X[key]), key, rows.rows)) for key, places, model in models
            ]

    def _asked(self, X: Any, keys: Any) -> tuple[DividedRows, Ints]:
        """Return rows to predict, and the places of those of unknown keys, or refuse these."""
        self._require_fitted()
        rows = self._divided(X, keys)
        if self.unknown == "error":
            self._require_models(rows)
        unknown = [places for key, places in rows.rows.items() if key not in self.models_]
        return rows, np.concatenate([np.empty(0, dtype=np.int64), *unknown])

    def _predicted(self, X: Any, keys: Any, guess: Callable[[Prior], Any]) -> AnyArray:
        """Return the prediction of the model of each row's key; of an unknown one a ``guess`` from the prior."""
        rows, unknown = self._asked(X, keys)
        out = np.empty(rows.n, dtype=getattr(self, "classes_", np.empty(0)).dtype)
        for places, found in self._answers(rows, lambda model, part: model.predict(part)):
            out[places] = found
        if len(unknown):
            out[unknown] = guess(self._prior_of_all())
        return out

    def _require_models(self, rows: DividedRows) -> None:
        unknown = {key: places for key, places in rows.rows.items() if key not in self.models_}
        if unknown:
            n, first = sum(map(len, unknown.values())), min(int(places[0]) for places in unknown.values())
            said = message("estimators.unknown_keys", rows=n, all=rows.n, keys=len(unknown), shown=shown(unknown))
            raise InputError(said, row=first)

    def _prior_of_all(self) -> Prior:
        with self._lock:
            if self._prior is None:
                self._prior = prior_of(self.models_.values(), getattr(self, "classes_", None))
            return self._prior

    def _require_examples(self) -> None:
        self._require_fitted()
        next(iter(self.models_.values()))._require_examples()

    def _require_whole(self) -> None:
        if self._broken:
            raise HalfAppliedError(message("estimators.interrupted", estimator=type(self).__name__))

    def _require_fitted(self) -> None:
        self._require_whole()
        if not self.__sklearn_is_fitted__():
            Estimator._require_fitted(self)  # type: ignore[arg-type]


# Models by key as one folder, whatever the number of keys: each of at most 256 groups of keys is one file.
#
# Invariant: what ``keyed_loading.load_keyed`` returns goes on, bit for bit, as what :func:`save_keyed` has written.

#: Entry of ``meta`` with what an estimator knows of all keys; of a key's values, with what its model knows.
OWN = "estimator"


def save_keyed(keyed: Any, path: Any, with_examples: bool) -> None:
    """Write all models; those of which a change was broken off, as they were before it."""
    if not keyed._broken:
        keyed._require_fitted()
    sound = {key: model._sound() for key, model in keyed.models_.items()}
    groups: dict[int, dict[Key, dict[str, Any]]] = {}
    for key in in_order(sound):
        try:
            kind, own, components = sound[key]._saved(with_examples)
        except InputError as error:
            raise at_key(error, key) from error
        own = {name: value for name, value in own.items() if name not in ("learner", "config_hash")}
        groups.setdefault(group_of(key), {})[key] = {**_of_run(own, components), OWN: own}
    first, classes = next(iter(sound.values())), getattr(keyed, "classes_", None)
    prior = keyed._prior
    if prior is None and not with_examples:
        prior = prior_of(sound.values(), classes)
    meta = model_meta(first._fitted_options, first._features(), [] if classes is None else classes.tolist(), {})
    meta |= {BY_KEY: keyed.key}
    if first._encoder.previous:
        meta["previous_labels"] = [None] * len(first._encoder.previous)
    meta[OWN] = {
        "unknown": keyed.unknown,
        "keys": list(sound),
        "categorical_features": _plain(keyed.estimator_.categorical_features),
        "n_features": getattr(keyed.estimator_, "n_features", None),
        "declared": keyed.__dict__.get("_declared", False),
        "next_id": keyed._next_id,
        "with_subjects": keyed._with_subjects,
        "form": keyed._form,
        "prior": None if prior is None or with_examples else prior.as_json(),
    }
    if with_examples:
        meta |= {"config_hash": None, "source_fingerprint": None, "offset": 0, "next_id": keyed._next_id}
    with locked(Folder(path)):
        parts = {f"group-{group:03d}": packed(held) for group, held in sorted(groups.items())}
        save_folder(path, kind, meta, parts)


def _of_run(own: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a key holds, as commands read it from the folder of a run."""
    categories, classes, last = own["categories"], own["classes"], own.get("previous_labels", [])
    if "arrays" in components:
        before = {"previous_labels": last} if last else {}
        return {**components, "classes": classes, "categories": categories, **before}
    source = {"categories": categories, "labels": {"classes": classes}}
    stream = {**components.get("stream", {}), "source": source, "n_classes": len(classes)}
    if last:
        codes = [math.nan if label is None else classes.index(label) if classes else label for label in reversed(last)]
        stream["previous"] = np.array(codes, dtype=np.float64)
    return {**components, "stream": stream, "recorder": {"next_id": own["next_id"], "updates": own["offset"]}}


def _plain(categorical: Any) -> Any:
    """Return names, positions or a mask as JSON values."""
    if categorical is None:
        return None
    return [one.item() if isinstance(one, np.generic) else one for one in categorical]
