"""One model for each value of a key, behind scikit-learn's interface: stores, zones, customers, machines.

Invariant: the model of a key is, bit for bit, the inner estimator to which the same calls were made with the rows of
this key alone, under the same ids. A call that is refused for one key changes no key.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats
from raydt.errors import ConfigError, InputError, ModelFileError
from raydt.estimators.arguments import (
    Types,
    distinct_labels,
    ids_of_rows,
    index_of,
    keys_of,
    labels_of,
    require_labels,
    require_some_weight,
    subjects_of_rows,
    types_of,
    warn,
    weights_of,
)
from raydt.estimators.base import Classifier, Regressor, accuracy, r_squared, with_unseen
from raydt.estimators.fitted import ExampleMetadata, refuse_unknown, require_names, require_running
from raydt.estimators.keyed_models import (
    OWN,
    Apply,
    DividedRows,
    KeyedModels,
    Prior,
    change_together,
    checked_keys,
    chosen,
    prepared,
    shown,
)
from raydt.examples.store import objects
from raydt.examples.updates import running_ids
from raydt.keyed.groups import Key, group_of
from raydt.keyed.members import Awake
from raydt.keyed.packing import SavedKeys
from raydt.learners.base import too_little_of_keys
from raydt.messages import message, quoted
from raydt.sessions.receipt import Receipt, checked_note
from raydt.sessions.saved_model import BY_KEY, understood

# Requests to delete examples of models by key, and the receipt of all keys.
#
# Invariant: what a request names is found under exactly one key before anything is changed, or refused in one error.


@dataclass(frozen=True, repr=False)
class KeyedReceipt:
    """Changes made by one call to the models of some keys."""

    receipts: dict[Key, Receipt]  #: The receipt of each key whose model was changed.
    active: int  #: Live examples of all keys after the call.
    missing: tuple[Any, ...]  #: Ids and subjects without a live example, which the call passed over.
    note: str = ""  #: Who asked, or the number of the case.

    def __repr__(self) -> str:
        deleted = sum(len(receipt.ids) for receipt in self.receipts.values())
        inserted = sum(len(receipt.inserted) for receipt in self.receipts.values())
        keys = f"{len(self.receipts):,} key{'' if len(self.receipts) == 1 else 's'}"
        return f"KeyedReceipt({deleted:,} deleted, {inserted:,} inserted, {keys}, {self.active:,} live)"

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values; the receipts are a list, whose entries have their ``key``."""
        return {
            "receipts": [{"key": key, **receipt.as_dict()} for key, receipt in self.receipts.items()],
            "active": self.active,
            "missing": list(self.missing),
            "note": self.note,
        }


@dataclass
class OfKey:
    """The ids and subjects that a request names of one key; None: nothing of this kind."""

    ids: list[Hashable] | None = None
    subjects: list[Hashable] | None = None


class Request(NamedTuple):
    """A request by key, and what it names that is not there."""

    by_key: dict[Key, OfKey]
    missing: tuple[Hashable, ...]


def found_by_key(models: Mapping[Key, Any], types: Types, ids: Any, subjects: Any, missing: str) -> Request:
    """Find what a request names, ids first; or an error that names all that is not there, or under several keys.

    ``types`` are those of the keys, ids and subjects of the models.
    """
    require_names(ids, subjects, missing)
    found: dict[Key, OfKey] = {}
    unknown: list[tuple[str, Hashable]] = []
    named: list[Hashable] = []
    if isinstance(ids, Mapping):
        for key, asked in zip(checked_keys(list(ids), types), ids.values(), strict=True):
            model = models.get(key)
            if model is None:
                raise InputError(message("estimators.no_model", key=quoted(key)))
            of_key = list(dict.fromkeys(keys_of(asked, "id", types)))
            there = _live(model, of_key)
            unknown += [("id", one) for one, lives in zip(of_key, there.tolist(), strict=True) if not lives]
            named += of_key
            if there.any():
                found[key] = OfKey([one for one, lives in zip(of_key, there.tolist(), strict=True) if lives])
    elif ids is not None:
        named = list(dict.fromkeys(keys_of(ids, "id", types)))
        places: list[list[Key]] = [[] for _ in named]
        whole = np.array([isinstance(one, int) for one in named], dtype=np.bool_)
        numbers = np.array([one if isinstance(one, int) else 0 for one in named], dtype=np.int64)
        by_key: dict[Key, list[Hashable]] = {}
        for key, model in models.items():
            there = (model._store().find(numbers) >= 0) & whole if model._names is None else _live(model, named)
            for place in np.flatnonzero(there).tolist():
                places[place].append(key)
        for one, keys in zip(named, places, strict=True):
            if len(keys) > 1:
                raise InputError(message("estimators.shared_id", id=one, keys=shown(keys)))
            if keys:
                by_key.setdefault(keys[0], []).append(one)
            else:
                unknown.append(("id", one))
        found = {key: OfKey(of_key) for key, of_key in by_key.items()}
    if subjects is not None:
        asked = list(dict.fromkeys(keys_of(subjects, "subject", types)))
        seen: set[Hashable] = set()
        with_subjects = {key: model for key, model in models.items() if model._subjects is not None}
        if not with_subjects:
            raise InputError(message("estimators.no_subjects"))
        for key, model in with_subjects.items():
            whose = list(dict.fromkeys(model._rows_of_subjects(asked)[1]))
            if whose:
                seen.update(whose)
                found.setdefault(key, OfKey()).subjects = whose
        unknown += [("subject", one) for one in asked if one not in seen]
    if unknown and missing == "error":
        refuse_unknown(unknown, named)
    return Request(found, tuple(one for _, one in unknown))


def _live(model: Any, ids: list[Hashable]) -> Bools:
    """Return which ids have a live example in a model."""
    live: Bools = model._find(ids)[1] >= 0
    return live


Self = TypeVar("Self", bound="Keyed")


class Keyed(KeyedModels):
    """Base of :class:`KeyedClassifier` and :class:`KeyedRegressor`, which know what ``y`` is."""

    # ------------------------------------------------------------ calls that change models

    def fit(
        self: Self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        keys: Any = None,
        ids: Any = None,
        subjects: Any = None,
    ) -> Self:
        """Forget everything and build the model of each key; after an error the old models are still there.

        Parameters
        ----------
        X : data frame, Arrow table or array-like, shape (n, d)
            Of a frame, the column ``key`` is the key of each row and no feature.
        y : array-like, shape (n,)
        sample_weight, subjects : array-like, shape (n,), optional
            As of the inner estimator.
        keys : array-like, shape (n,), optional
            The key of each row: text or integers, where ``X`` has no column of them.
        ids : array-like, shape (n,), optional
            As of the inner estimator; running integers count the rows of all keys.

        Raises
        ------
        ConfigError
            A parameter has a value that is not allowed, or the estimator is none of raydt.
        InputError
            A row without a key, or rows that the inner estimator refuses: the error names the key.
        """
        with self._lock:
            after = self._empty()
            after.estimator_._require_classes(y)
            require_some_weight(sample_weight)
            rows = after._divided(X, keys)
            of_key = after._examples(rows, X, y, None, ExampleMetadata(ids, subjects, sample_weight))
            after._begin_new(of_key, rows, warmup=True)
            after._set_fitted()
            self._together({}, after, rows)
        return self._warned(of_key)

    def forget(
        self,
        ids: Any = None,
        *,
        subjects: Any = None,
        missing: Literal["error", "skip"] = "error",
        digests: bool = True,
        note: str = "",
    ) -> KeyedReceipt:
        """Delete examples by id, or all examples of some subjects, of whatever key; all of them or none.

        Parameters
        ----------
        ids : array-like, or mapping of key to array-like, optional
            Ids that one key has: the key is looked up. A mapping names the keys, and is needed where several have an
            id. Looking up takes O(keys x ids) steps of some nanoseconds.
        subjects : array-like, optional
            As of the inner estimator; their examples of all keys are deleted.
        missing, digests, note
            As of the inner estimator.

        Raises
        ------
        UpdateError
            An id or a subject has no live example.
        InputError
            An id is live under several keys; the error names them.
        """
        checked_note(note)
        with self._lock:
            self._require_examples()
            found = found_by_key(self.models_, self._types, ids, subjects, missing)
            changes = {
                key: partial(self.models_[key]._deletion, of_key.ids, of_key.subjects, "error", digests)
                for key, of_key in found.by_key.items()
            }
            receipts = self._together(changes, self._copy())
            return self._receipt(receipts, found.missing, note)

    def replace_examples(
        self,
        ids: Any,
        X: Any,
        y: Any,
        *,
        keys: Any = None,
        sample_weight: Any = None,
        new_ids: Any = None,
        subjects: Any = None,
        digests: bool = True,
        note: str = "",
    ) -> KeyedReceipt:
        """Delete examples by id, as :meth:`forget`, and insert others, each into the model of its key; all or nothing.

        A key that has both gets them in one batch. The receipt is of the keys that had a model.
        """
        checked_note(note)
        with self._lock:
            self._require_examples()
            gone = found_by_key(self.models_, self._types, ids, None, "error").by_key
            after = self._copy()
            rows = after._divided(X, keys)
            of_key = after._examples(rows, X, y, None, ExampleMetadata(new_ids, subjects, sample_weight))
            changes: dict[Key, Callable[[], Apply]] = {}
            for key, asked in gone.items():
                if key not in of_key:
                    changes[key] = partial(self.models_[key]._deletion, asked.ids, None, "error", digests)
            for key, (part, target, beside) in of_key.items():
                if key in self.models_:
                    leaving = gone[key].ids if key in gone else []
                    changes[key] = partial(self.models_[key]._replacement, leaving, part, target, beside, digests)
            after._begin_new(of_key, rows)
            receipt = self._receipt(self._together(changes, after, rows), (), note)
        self._warned(of_key)
        return receipt

    def forget_examples(self, X: Any, y: Any, *, keys: Any = None, digests: bool = True) -> KeyedReceipt:
        """Delete examples by value: for each row the oldest live example of its key that equals it; all or none."""
        with self._lock:
            self._require_examples()
            rows = self._divided(X, keys)
            self._require_models(rows)
            targets = chosen(self._checked(y, rows.n), rows.rows)
            changes = {
                key: partial(self.models_[key]._deletion_by_value, rows.X[key], targets[key], digests)
                for key in rows.rows
            }
            return self._receipt(self._together(changes, self._copy(), rows), (), "")

    # ------------------------------------------------------------ inside

    def _copy(self: Self) -> Self:
        """Return what the estimator is to be after a call, as it is before."""
        after = type(self).__new__(type(self))
        after.__dict__ = self.__dict__ | {"models_": dict(self.models_)}
        if self._prior is not None and not self._prior.saved:
            after._prior = None
        return after

    def _empty(self: Self) -> Self:
        """Return an estimator of the same parameters without models, or refuse the parameters."""
        if not isinstance(self.estimator, self._inner):
            wanted, given = f"a {self._inner.__name__.lower()}", repr(self.estimator)
            said = message("estimators.not_keyed", given=given, wanted=wanted, example=self._example)
            raise ConfigError(said)
        if self.unknown not in ("error", "prior"):
            raise ConfigError(message("estimators.unknown_choice", given=self.unknown))
        own = {name for kind in type(self).__mro__ for name in vars(kind).get("__annotations__", ())}
        after = type(self)(**{name: getattr(self, name) for name in self._parameter_names()})
        # Others may have attributes of their own here: scikit-learn keeps metadata requests and callbacks so.
        after.__dict__ |= {name: value for name, value in self.__dict__.items() if name not in own}
        after.estimator_ = _clone(self.estimator)
        after.estimator_._options()  # or an error
        after.models_, after._form, after._next_id = {}, None, 0
        after._with_subjects, after._prior, after._awake = None, None, Awake()
        return after

    def _more(self: Self, X: Any, y: Any, classes: Any, beside: ExampleMetadata, keys: Any) -> Self:
        with self._lock:
            self._require_whole()
            there: Mapping[Key, Any] = {}
            if fitted := self.__sklearn_is_fitted__():
                self._require_examples()
                there = self.models_
            after = self._copy() if fitted else self._empty()
            rows = after._divided(X, keys)
            of_key = after._examples(rows, X, y, classes, beside)
            changes = {
                key: partial(there[key]._insertion, *examples, False)
                for key, examples in of_key.items()
                if key in there
            }
            after._begin_new(of_key, rows)
            after._set_fitted()
            self._together(changes, after, rows)
        return self._warned(of_key)

    def _warned(self: Self, keys: Iterable[Key]) -> Self:
        """Warn, after a call has taken effect, if the weights of some keys are too small to split a node."""
        sums = [(key, self.models_[key]._weighed) for key in keys]
        if sums and (said := too_little_of_keys(sums, self.models_[sums[0][0]]._traits)) is not None:
            warn(said.shown(quote=True))
        return self

    def _begin_new(
        self, of_key: Mapping[Key, tuple[Any, Any, ExampleMetadata]], rows: DividedRows, warmup: bool = False
    ) -> None:
        """Make the models of keys that have none yet, all rows of which are a ``warmup`` if they are all for now."""
        for key, (part, target, beside) in of_key.items():
            if key not in self.models_:
                model = _clone(self.estimator_)
                begin = partial(model._begin, warmup=True) if warmup else model._more
                given = part, target, self._declared_classes(), beside
                self.models_[key] = prepared(partial(begin, *given), key, rows.rows)

    def _examples(
        self, rows: DividedRows, X: Any, y: Any, classes: Any, beside: ExampleMetadata
    ) -> dict[Key, tuple[Any, Any, ExampleMetadata]]:
        """Return the examples of each key, and note what all models know of them; or an error."""
        self.estimator_._beside(beside.ids, beside.subjects, beside.weights)
        self._learn_targets(given := self._checked(y, rows.n), classes)
        ids = self._ids(index_of(X) if beside.ids is None else beside.ids, rows.n)
        whose = subjects_of_rows(beside.subjects, rows.n, self._types, self._with_subjects)
        self._with_subjects = whose is not None
        if beside.weights is not None:
            weights_of(beside.weights, rows.n)
        weights = None if beside.weights is None else np.asarray(beside.weights)
        self._form = rows.form if self._form is None else self._form
        if not self._types:
            self._types = {"key": types_of(rows.rows), "id": types_of(self.row_ids_[:1].tolist())}
            self._types |= {} if whose is None else {"subject": types_of(whose)}
        parts = [chosen(values, rows.rows) for values in (given, ids, whose, weights)]
        return {
            key: (rows.X[key], parts[0][key], ExampleMetadata(parts[1][key], parts[2][key], parts[3][key]))
            for key in rows.rows
        }

    def _ids(self, given: Any, n: int) -> Any:
        """Return the ids of ``n`` rows, and note them: given ones, or running numbers of the rows of all keys."""
        if given is None:
            require_running(self._types)
            ids: Any = running_ids(self._next_id, n)
            self.row_ids_ = ids
        else:
            ids = ids_of_rows(given, n, self._types)
            self.row_ids_ = np.array(ids, dtype=np.int64) if types_of(ids) == ("integer",) else objects(ids)
        whole_numbers = (one for one in self.row_ids_.tolist() if isinstance(one, int))
        self._next_id = max(self._next_id, 1 + max(whole_numbers, default=-1))
        return ids

    def _set_fitted(self) -> None:
        model = next(iter(self.models_.values()))
        self.n_features_in_ = model.n_features_in_
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_

    def _together(
        self: Self, changes: Mapping[Key, Callable[[], Apply]], after: Self, rows: DividedRows | None = None
    ) -> dict[Key, Any]:
        """Change models, all of them or none, and become what ``after`` is."""
        before = self.__dict__

        def become(broken: bool | None) -> None:
            """Be what the call has made of this, or, as it was broken off, what this was before."""
            self.__dict__ = after.__dict__ if broken is None else before | ({"_broken": True} if broken else {})

        results = change_together(after.models_, changes, become, {} if rows is None else rows.rows)
        used = changes if rows is None else {**changes, **rows.rows}
        for key in used:
            self.models_[key]._rest()
        for key in self._awake.use(used):
            self.models_[key]._trim()
        return results

    def _receipt(self, receipts: Mapping[Key, Receipt], missing: tuple[Hashable, ...], note: str) -> KeyedReceipt:
        noted = {key: replace(receipt, note=note) for key, receipt in receipts.items()}
        active = sum(model._store().live for model in self.models_.values())
        return KeyedReceipt(noted, active, missing, note)

    # ------------------------------------------------------------ what y is

    def _checked(self, y: Any, n: int) -> AnyArray:
        """Return one target per row as the user gives it, shape (n,), or an error."""
        given: AnyArray = self.estimator_._checked(y)
        require_labels(given, n)
        return given

    def _learn_targets(self, given: AnyArray, classes: Any) -> None:
        """Take from the targets of a call what all models know of them."""

    def _declared_classes(self) -> Any:
        """All classes, if they were declared."""
        return None


def _clone(estimator: Any) -> Any:
    """Return an estimator of the same class and parameters that is not fitted."""
    return type(estimator)(**copy.deepcopy(estimator.get_params()))


# Models by key as scikit-learn style estimators: a classifier and a regressor for each store, zone or customer.

C = TypeVar("C", bound="KeyedClassifier")
R = TypeVar("R", bound="KeyedRegressor")


@dataclass(repr=False, eq=False)
class KeyedClassifier(Keyed):
    """A classifier for each value of a key, which is, bit for bit, the one of the rows of its key alone.

    Parameters
    ----------
    estimator : Classifier
        One of raydt's classifiers, not fitted; each key gets a copy.
    key : str or None, default None
        Column of frames whose values, text or integers, say which model a row belongs to. Without it, calls take
        ``keys``.
    unknown : {'error', 'prior'}, default 'error'
        What ``predict`` does about rows of keys without a model: refuse them, all in one error, or answer with the
        shares of the classes among the live rows of all keys. ``has_model`` counts them.

    Notes
    -----
    A key whose rows are all deleted keeps its model without rows. Classes, categories, warm-up and dictionaries belong
    to the key. A call takes O(keys of its rows) calls of inner estimators.

    Examples
    --------
    >>> from raydt import FullyDynamicTreeClassifier, KeyedClassifier
    >>> X = [[0.0], [1.0], [0.0], [1.0]]
    >>> model = KeyedClassifier(FullyDynamicTreeClassifier()).partial_fit(X, [0, 1, 1, 1], keys=["a", "a", "b", "b"])
    >>> receipt = model.forget([0])
    >>> model.predict([[0.0], [0.0]], keys=["a", "b"]).tolist(), sorted(model.models_), receipt.active
    ([1, 1], ['a', 'b'], 3)
    """

    estimator: Any
    key: str | None = None
    unknown: Literal["error", "prior"] = field(default="error", kw_only=True)

    classes_: AnyArray = field(init=False)  #: Labels of all keys, in the order of the columns of ``predict_proba``.
    _declared: bool = field(init=False)
    _inner, _example = Classifier, "FullyDynamicTreeClassifier"

    def partial_fit(
        self: C,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        keys: Any = None,
        ids: Any = None,
        subjects: Any = None,
    ) -> C:
        """Insert examples into the models of their keys; all of them or, if an error is raised, none.

        Parameters
        ----------
        classes : array-like, optional
            All labels that will come, on the first call; also those of keys that are new later have them.
        sample_weight, keys, ids, subjects : array-like, optional
            As of ``fit``.
        """
        return self._more(X, y, classes, ExampleMetadata(ids, subjects, sample_weight), keys)

    def predict(self, X: Any, *, keys: Any = None) -> AnyArray:
        """Labels, shape (n,), each of the model of its row's key."""
        return self._predicted(X, keys, lambda prior: self.classes_[np.argmax(prior.shares(self.classes_))])

    def predict_proba(self, X: Any, *, keys: Any = None) -> Floats:
        """Shares of the classes, shape (n, len(classes_)); 0 for classes that a key has not."""
        rows, unknown = self._asked(X, keys)
        out = np.zeros((rows.n, len(self.classes_)))
        columns = {label: column for column, label in enumerate(self.classes_.tolist())}

        def shares_of(model: Any, part: Any) -> tuple[list[Any], Floats]:
            shares = model.predict_proba(part)
            return model.classes_.tolist(), shares

        for places, (classes, shares) in self._answers(rows, shares_of):
            out[places[:, None], np.array([columns[label] for label in classes])] = shares
        if len(unknown):
            out[unknown] = self._prior_of_all().shares(self.classes_)
        return out

    def predict_log_proba(self, X: Any, *, keys: Any = None) -> Floats:
        """Logarithms of ``predict_proba(X)``, -inf for a share of 0, shape (n, len(classes_))."""
        with np.errstate(divide="ignore"):
            logs: Floats = np.log(self.predict_proba(X, keys=keys))
        return logs

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, keys: Any = None) -> float:
        """Accuracy over the rows of all keys: the share of rows, or of ``sample_weight``, that is predicted right."""
        return accuracy(y, self.predict(X, keys=keys), sample_weight)

    def _learn_targets(self, given: AnyArray, classes: Any) -> None:
        known = self.__dict__.get("classes_")
        if known is None:
            self._declared = classes is not None
            known = np.empty(0, dtype=given.dtype) if classes is None else distinct_labels(labels_of(classes))
        self.classes_ = with_unseen(known, given, self._declared)[0]

    def _declared_classes(self) -> Any:
        return self.classes_ if self._declared else None


@dataclass(repr=False, eq=False)
class KeyedRegressor(Keyed):
    """A regressor for each value of a key, which is, bit for bit, the one of the rows of its key alone.

    Parameters, attributes (but ``classes_``) and methods as of :class:`KeyedClassifier`. For keys without a model,
    ``unknown="prior"`` answers with the mean of the live rows of all keys.

    Examples
    --------
    >>> from raydt import FullyDynamicTreeRegressor, KeyedRegressor
    >>> X = [[0.0], [1.0], [0.0], [1.0]]
    >>> model = KeyedRegressor(FullyDynamicTreeRegressor(), unknown="prior")
    >>> model = model.fit(X, [1.0, 1.0, 5.0, 5.0], keys=[7, 7, 8, 8])
    >>> model.predict([[0.0], [0.0], [0.0]], keys=[7, 8, 9]).tolist()
    [1.0, 5.0, 3.0]
    """

    estimator: Any
    key: str | None = None
    unknown: Literal["error", "prior"] = field(default="error", kw_only=True)

    _inner, _example = Regressor, "FullyDynamicTreeRegressor"

    def partial_fit(
        self: R,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        keys: Any = None,
        ids: Any = None,
        subjects: Any = None,
    ) -> R:
        """Insert examples into the models of their keys; all of them or, if an error is raised, none."""
        return self._more(X, y, None, ExampleMetadata(ids, subjects, sample_weight), keys)

    def predict(self, X: Any, *, keys: Any = None) -> Floats:
        """Numbers, shape (n,), each of the model of its row's key."""
        return self._predicted(X, keys, lambda prior: prior.mean)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, keys: Any = None) -> float:
        """R squared over the rows of all keys, which may count by ``sample_weight``."""
        return r_squared(y, self.predict(X, keys=keys), sample_weight)


# Estimators by key read from a folder of models by key, which an estimator or a run has written.


def load_keyed(saved: SavedKeys, estimator_of: Callable[[Any], Any]) -> Keyed:
    """Return the estimator of a folder of models by key, which :func:`save_keyed` or a run has written.

    ``estimator_of`` gives the class of the estimator of a model with some options.
    """
    meta = saved.meta
    try:
        own = meta.get(OWN, {})
        keys = list(saved.keys())
        found = {key: _model(saved, key, estimator_of) for key in keys}
        models = {key: found[key] for key in own.get("keys", found)}
        first = next(iter(models.values()))
        kind = KeyedRegressor if isinstance(first, Regressor) else KeyedClassifier
        template = type(first)(**first.get_params())
        if own:
            template.categorical_features = own["categorical_features"]
        if own.get("n_features") is not None:
            template.n_features = own["n_features"]
        keyed: Keyed = kind(template, meta[BY_KEY], unknown=own.get("unknown", "error"))
        keyed._awake = Awake()
        keyed.estimator_, keyed.models_ = type(first)(**template.get_params()), models
        keyed._next_id = own.get("next_id", max(getattr(model, "_next_id", 0) for model in models.values()))
        keyed._with_subjects = own.get("with_subjects", getattr(first, "_subjects", None) is not None)
        form = own.get("form", first.feature_names_in_.tolist() if hasattr(first, "feature_names_in_") else None)
        held = [getattr(model, "_types", {}) for model in models.values()]
        keyed._types = {"key": types_of(models)} | {
            what: tuple(sorted({one for types in held for one in types.get(what, ())})) for what in ("id", "subject")
        }
        keyed._form = tuple(form) if isinstance(form, list) else form
        keyed._prior = None if own.get("prior") is None else Prior(**own["prior"], saved=True)
        if isinstance(keyed, KeyedClassifier):
            labels = dict.fromkeys(label for model in models.values() for label in model.classes_.tolist())
            keyed.classes_ = np.array(meta["classes"] if own else sorted(labels))
            keyed._declared = own.get("declared", False)
    except (KeyError, ValueError, TypeError, AttributeError, StopIteration) as error:
        if isinstance(error, ModelFileError):
            raise
        said = message("models.unfit", kind=meta["kind"], reason=repr(error))
        raise ModelFileError(said, file=saved.place) from error
    keyed._set_fitted()
    if meta["kind"] == "state":
        parts = [model.row_ids_ for model in models.values()]
        whole = all(part.dtype != object for part in parts)
        keyed.row_ids_ = np.concatenate(parts) if whole else objects([one for part in parts for one in part.tolist()])
    return keyed


def _model(saved: SavedKeys, key: Key, estimator_of: Callable[[Any], Any]) -> Any:
    """Return the model of one key, checked as one of a folder of its own."""
    held = saved.of_group(group_of(key))[key]
    if OWN not in held:  # of a run
        one = saved.saved(key)
    else:
        meta = {name: value for name, value in saved.meta.items() if name not in (BY_KEY, OWN)}
        one = understood({**meta, **held[OWN]}, held, saved.place)
    return estimator_of(one.options).from_saved(one)
