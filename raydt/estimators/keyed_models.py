"""Fitted models by key: what there is of them, their predictions, and scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray, Bools, Ints
from raydt.errors import HalfAppliedError, InputError
from raydt.estimators.atomic import Locked
from raydt.estimators.base import Estimator
from raydt.estimators.keyed_changes import prepared
from raydt.estimators.keyed_prior import Prior, prior_of
from raydt.estimators.keyed_rows import DividedRows, Form, divided, shown
from raydt.estimators.parameters import Parametrised
from raydt.examples.subjects import objects
from raydt.keyed.awake import Awake
from raydt.keyed.groups import Key, digest_of
from raydt.learners import traits_of
from raydt.messages import message

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
        from raydt.estimators.keyed_saving import save_keyed

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
        """What is copied."""
        self._require_whole()
        return self.__dict__

    # ------------------------------------------------------------ inside

    def _threads(self) -> int | None:
        return self.estimator._threads() if isinstance(self.estimator, Parametrised) else None

    def _divided(self, X: Any, keys: Any) -> DividedRows:
        model = self.estimator_
        lists = traits_of(model._options()).reading.needs_sparse or getattr(model, "n_features", None) is not None
        form = self.__dict__.get("_form")
        return divided(X, self.key, keys, type(self).__name__, lists=lists, form=form)

    # ------------------------------------------------------------ predictions

    def _answers(self, rows: DividedRows, answer: Callable[[Any, Any], Any]) -> Iterable[tuple[Ints, Any]]:
        """Give the places of the rows of each key that has a model, and what its model answers."""
        for key, places in rows.rows.items():
            model = self.models_.get(key)
            if model is not None:
                yield places, prepared(partial(answer, model, rows.X[key]), key, rows.rows)

    def _asked(self, X: Any, keys: Any) -> tuple[DividedRows, Ints]:
        """Return rows to predict, and the places of those of unknown keys, or refuse these."""
        self._require_fitted()
        rows = self._divided(X, keys)
        if self.unknown == "error":
            self._require_models(rows)
        unknown = [places for key, places in rows.rows.items() if key not in self.models_]
        return rows, np.concatenate([np.empty(0, dtype=np.int64), *unknown])

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
