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
from raydt.estimators.keyed_prior import Prior, prior_of
from raydt.estimators.targets import Regressor
from raydt.examples.subjects import objects
from raydt.folders.arrays import save_folder
from raydt.folders.folder import Folder
from raydt.folders.lock import locked
from raydt.keyed.groups import Key, group_of, in_order
from raydt.keyed.packing import packed, unpacked
from raydt.messages import message
from raydt.sessions.saved_model import BY_KEY, model_meta, understood

#: Entry of ``meta`` with what an estimator knows of all keys; of a key's values, with what its model knows.
_OWN = "estimator"


def save_keyed(keyed: Keyed, path: Any, with_examples: bool) -> None:
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
        groups.setdefault(group_of(key), {})[key] = {_OWN: own, **components}
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


def load_keyed(meta: Mapping[str, Any], components: Mapping[str, dict[str, Any]], path: str) -> Keyed:
    """Return the estimator of a folder whose ``meta`` has :data:`BY_KEY`."""
    try:
        own = meta[_OWN]
        held: dict[Key, dict[str, Any]] = {}
        for name in components:
            held |= unpacked(components[name])
        models = {key: _model(meta, held[key], path) for key in own["keys"]}
        first = next(iter(models.values()))
        kind = KeyedRegressor if isinstance(first, Regressor) else KeyedClassifier
        template = type(first)(**first.get_params())
        template.categorical_features = own["categorical_features"]
        if own["n_features"] is not None:
            template.n_features = own["n_features"]
        keyed: Keyed = kind(template, meta[BY_KEY], unknown=own["unknown"])
        keyed.estimator_ = type(first)(**template.get_params())
        keyed.models_, keyed._next_id, keyed._with_subjects = models, own["next_id"], own["with_subjects"]
        keyed._form = tuple(own["form"]) if isinstance(own["form"], list) else own["form"]
        keyed._prior = None if own["prior"] is None else Prior(**own["prior"], saved=True)
        if isinstance(keyed, KeyedClassifier):
            keyed.classes_, keyed._declared = np.array(meta["classes"]), own["declared"]
    except (KeyError, ValueError, TypeError, AttributeError, StopIteration) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(message("models.unfit", kind=meta["kind"], reason=repr(error)), file=path) from error
    keyed._set_fitted()
    if meta["kind"] == "state":
        parts = [model.row_ids_ for model in models.values()]
        whole = all(part.dtype != object for part in parts)
        keyed.row_ids_ = np.concatenate(parts) if whole else objects([one for part in parts for one in part.tolist()])
    return keyed


def _model(meta: Mapping[str, Any], held: Mapping[str, Any], path: str) -> Any:
    """Return the model of one key, checked as one of a folder of its own."""
    of_key = {**{name: value for name, value in meta.items() if name not in (BY_KEY, _OWN)}, **held[_OWN]}
    components = {name: value for name, value in held.items() if name != _OWN}
    saved = understood(of_key, components, path)
    return estimator_of(saved.options).from_saved(saved)


def _plain(categorical: Any) -> Any:
    """Return names, positions or a mask as JSON values."""
    if categorical is None:
        return None
    return [one.item() if isinstance(one, np.generic) else one for one in categorical]
