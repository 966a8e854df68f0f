"""Estimators by key read from a folder of models by key, which an estimator or a run has written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from raydt.errors import ModelFileError
from raydt.estimators.keyed import KeyedClassifier, KeyedRegressor
from raydt.estimators.keyed_base import Keyed
from raydt.estimators.keyed_prior import Prior
from raydt.estimators.keyed_saving import OWN
from raydt.estimators.targets import Regressor
from raydt.examples.subjects import objects
from raydt.keyed.awake import Awake
from raydt.keyed.groups import Key, group_of
from raydt.keyed.saved import SavedKeys
from raydt.messages import message
from raydt.sessions.saved_model import BY_KEY, understood


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
