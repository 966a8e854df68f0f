"""Models by key as one folder, whatever the number of keys: each of at most 256 groups of keys is one file.

Invariant: what :func:`load_keyed` returns goes on, bit for bit, as what :func:`save_keyed` has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raydt.errors import InputError, ModelFileError
from raydt.estimators import estimator_of
from raydt.estimators.keyed import KeyedClassifier, KeyedRegressor
from raydt.estimators.keyed_base import Keyed
from raydt.estimators.keyed_changes import at_key
from raydt.estimators.keyed_models import KeyedModels
from raydt.estimators.keyed_prior import Prior, prior_of
from raydt.estimators.targets import Regressor
from raydt.examples.subjects import objects
from raydt.folders.arrays import save_folder
from raydt.folders.folder import Folder
from raydt.folders.lock import locked
from raydt.keyed.groups import Key, group_of, in_order
from raydt.keyed.packing import packed
from raydt.keyed.saved import BY_KEY, SavedKeys
from raydt.messages import message
from raydt.sessions.saved_model import model_meta, understood

#: Entry of ``meta`` with what an estimator knows of all keys; of a key's values, with what its model knows.
_OWN = "estimator"


def save_keyed(keyed: KeyedModels, path: Any, with_examples: bool) -> None:
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
        groups.setdefault(group_of(key), {})[key] = {**_of_run(own, components), _OWN: own}
    first, classes = next(iter(sound.values())), getattr(keyed, "classes_", None)
    prior = keyed._prior
    if prior is None and not with_examples:
        prior = prior_of(sound.values(), classes)
    meta = model_meta(first._fitted_options, first._features(), [] if classes is None else classes.tolist(), {})
    meta |= {BY_KEY: keyed.key}
    meta[_OWN] = {
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
    categories, classes = own["categories"], own["classes"]
    if "arrays" in components:
        return {**components, "classes": classes, "categories": categories}
    source = {"categories": categories, "labels": {"classes": classes}}
    stream = {**components.get("stream", {}), "source": source, "n_classes": len(classes)}
    return {**components, "stream": stream, "recorder": {"next_id": own["next_id"], "updates": own["offset"]}}


def load_keyed(saved: SavedKeys) -> Keyed:
    """Return the estimator of a folder of models by key, which :func:`save_keyed` or a run has written."""
    meta = saved.meta
    try:
        own = meta.get(_OWN, {})
        keys = list(saved.keys())
        found = {key: _model(saved, key) for key in keys}
        models = {key: found[key] for key in own.get("keys", found)}
        first = next(iter(models.values()))
        kind = KeyedRegressor if isinstance(first, Regressor) else KeyedClassifier
        template = type(first)(**first.get_params())
        if own:
            template.categorical_features = own["categorical_features"]
        if own.get("n_features") is not None:
            template.n_features = own["n_features"]
        keyed: Keyed = kind(template, meta[BY_KEY], unknown=own.get("unknown", "error"))
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


def _model(saved: SavedKeys, key: Key) -> Any:
    """Return the model of one key, checked as one of a folder of its own."""
    held = saved.of_group(group_of(key))[key]
    if _OWN not in held:  # of a run
        one = saved.saved(key)
    else:
        meta = {name: value for name, value in saved.meta.items() if name not in (BY_KEY, _OWN)}
        one = understood({**meta, **held[_OWN]}, held, saved.place)
    return estimator_of(one.options).from_saved(one)


def _plain(categorical: Any) -> Any:
    """Return names, positions or a mask as JSON values."""
    if categorical is None:
        return None
    return [one.item() if isinstance(one, np.generic) else one for one in categorical]
