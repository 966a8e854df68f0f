"""Models by key as one folder, whatever the number of keys: each of at most 256 groups of keys is one file.

Invariant: what ``keyed_loading.load_keyed`` returns goes on, bit for bit, as what :func:`save_keyed` has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raydt.errors import InputError
from raydt.estimators.keyed_changes import at_key
from raydt.estimators.keyed_prior import prior_of
from raydt.folders.arrays import save_folder
from raydt.folders.folder import Folder
from raydt.folders.lock import locked
from raydt.keyed.groups import Key, group_of, in_order
from raydt.keyed.packing import packed
from raydt.sessions.saved_model import BY_KEY, model_meta

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
    categories, classes = own["categories"], own["classes"]
    if "arrays" in components:
        return {**components, "classes": classes, "categories": categories}
    source = {"categories": categories, "labels": {"classes": classes}}
    stream = {**components.get("stream", {}), "source": source, "n_classes": len(classes)}
    return {**components, "stream": stream, "recorder": {"next_id": own["next_id"], "updates": own["offset"]}}


def _plain(categorical: Any) -> Any:
    """Return names, positions or a mask as JSON values."""
    if categorical is None:
        return None
    return [one.item() if isinstance(one, np.generic) else one for one in categorical]
