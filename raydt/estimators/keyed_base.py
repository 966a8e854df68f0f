"""One model for each value of a key, behind scikit-learn's interface: stores, zones, customers, machines.

Invariant: the model of a key is, bit for bit, the inner estimator to which the same calls were made with the rows of
this key alone, under the same ids. A call that is refused for one key changes no key.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np

from raydt.arrays.types import AnyArray
from raydt.errors import ConfigError, InputError
from raydt.estimators.arguments import require_some_weight, weights_of
from raydt.estimators.keyed_changes import Apply, change_together, prepared
from raydt.estimators.keyed_models import KeyedModels
from raydt.estimators.keyed_requests import KeyedReceipt, found_by_key
from raydt.estimators.keyed_rows import DividedRows, chosen
from raydt.estimators.keys import index_of, keys_of
from raydt.estimators.named import Beside
from raydt.examples.subjects import objects
from raydt.examples.updates import running_ids
from raydt.keyed.awake import Awake
from raydt.keyed.groups import Key
from raydt.messages import message
from raydt.sessions.receipt import Receipt
from raydt.sessions.receipt_entry import checked_note

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
            of_key = after._examples(rows, X, y, None, Beside(ids, subjects, sample_weight))
            for key, (part, target, beside) in of_key.items():
                begin = partial(after._new_model()._begin, part, target, None, beside, warmup=True)
                after.models_[key] = prepared(begin, key, rows.rows)
                after.models_[key]._rest()
            after._set_fitted()
            after._awake.use(of_key)
            self.__dict__ = after.__dict__
        return self

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
            found = found_by_key(self.models_, ids, subjects, missing)
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
            gone = found_by_key(self.models_, ids, None, "error").by_key
            after = self._copy()
            rows = after._divided(X, keys)
            of_key = after._examples(rows, X, y, None, Beside(new_ids, subjects, sample_weight))
            changes: dict[Key, Callable[[], Apply]] = {}
            for key, asked in gone.items():
                if key not in of_key:
                    changes[key] = partial(self.models_[key]._deletion, asked.ids, None, "error", digests)
            for key, (part, target, beside) in of_key.items():
                if key in self.models_:
                    leaving = gone[key].ids if key in gone else []
                    changes[key] = partial(self.models_[key]._replacement, leaving, part, target, beside, digests)
            after._begin_new(of_key, rows)
            return self._receipt(self._together(changes, after, rows), (), note)

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

    def _more(self: Self, X: Any, y: Any, classes: Any, beside: Beside, keys: Any) -> Self:
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
        return self

    def _begin_new(self, of_key: Mapping[Key, tuple[Any, Any, Beside]], rows: DividedRows) -> None:
        """Make the models of keys that have none yet."""
        for key, (part, target, beside) in of_key.items():
            if key not in self.models_:
                model, classes = self._new_model(), self._declared_classes()
                self.models_[key] = prepared(partial(model._more, part, target, classes, beside), key, rows.rows)

    def _examples(
        self, rows: DividedRows, X: Any, y: Any, classes: Any, beside: Beside
    ) -> dict[Key, tuple[Any, Any, Beside]]:
        """Return the examples of each key, and note what all models know of them; or an error."""
        self.estimator_._beside(beside.ids, beside.subjects, beside.weights)
        self._learn_targets(given := self._checked(y, rows.n), classes)
        ids = self._ids(index_of(X) if beside.ids is None else beside.ids, rows.n)
        whose = None if beside.subjects is None else keys_of(beside.subjects, "subject")
        if whose is not None and len(whose) != rows.n:
            raise InputError(message("estimators.other_subjects", rows=rows.n, subjects=len(whose)))
        if self._with_subjects not in (None, whose is not None):
            raise InputError(message("estimators.subjects_always"))
        self._with_subjects = whose is not None
        if beside.weights is not None:
            weights_of(beside.weights, rows.n)
        weights = None if beside.weights is None else np.asarray(beside.weights)
        self._form = rows.form if self._form is None else self._form
        parts = [chosen(values, rows.rows) for values in (given, ids, whose, weights)]
        return {
            key: (rows.X[key], parts[0][key], Beside(parts[1][key], parts[2][key], parts[3][key])) for key in rows.rows
        }

    def _ids(self, given: Any, n: int) -> Any:
        """Return the ids of ``n`` rows, and note them: given ones, or running numbers of the rows of all keys."""
        if given is None:
            ids: Any = running_ids(self._next_id, n)
            self.row_ids_ = ids
        else:
            ids = keys_of(given)
            if len(ids) != n:
                raise InputError(message("estimators.other_ids", rows=n, shape=(len(ids),)))
            whole = all(isinstance(one, int) for one in ids)
            self.row_ids_ = np.array(ids, dtype=np.int64) if whole else objects(ids)
        whole_numbers = (one for one in self.row_ids_.tolist() if isinstance(one, int))
        self._next_id = max(self._next_id, 1 + max(whole_numbers, default=-1))
        return ids

    def _new_model(self) -> Any:
        return _clone(self.estimator_)

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

    @abstractmethod
    def _checked(self, y: Any, n: int) -> AnyArray:
        """One target per row as the user gives it, shape (n,), or an error."""

    def _learn_targets(self, given: AnyArray, classes: Any) -> None:
        """Take from the targets of a call what all models know of them."""

    def _declared_classes(self) -> Any:
        """All classes, if they were declared."""
        return None


def _clone(estimator: Any) -> Any:
    """Return an estimator of the same class and parameters that is not fitted."""
    return type(estimator)(**copy.deepcopy(estimator.get_params()))
