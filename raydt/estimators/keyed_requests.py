"""Requests to delete examples of models by key, and the receipt of all keys.

Invariant: what a request names is found under exactly one key before anything is changed, or refused in one error.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.types import Bools
from raydt.errors import InputError
from raydt.estimators.keyed_rows import checked_keys, shown
from raydt.estimators.keys import keys_of
from raydt.estimators.named import refuse_unknown, require_names
from raydt.keyed.groups import Key
from raydt.messages import message
from raydt.redaction import quoted
from raydt.sessions.receipt import Receipt


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
    """What a request names of one key; None: nothing of this kind."""

    ids: list[Hashable] | None = None
    subjects: list[Hashable] | None = None


class Request(NamedTuple):
    """A request by key, and what it names that is not there."""

    by_key: dict[Key, OfKey]
    missing: tuple[Hashable, ...]


def found_by_key(models: Mapping[Key, Any], ids: Any, subjects: Any, missing: str) -> Request:
    """Find what a request names, ids first; or an error that names all that is not there, or under several keys."""
    require_names(ids, subjects, missing)
    found: dict[Key, OfKey] = {}
    unknown: list[tuple[str, Hashable]] = []
    named: list[Hashable] = []
    if isinstance(ids, Mapping):
        for key, asked in zip(checked_keys(list(ids)), ids.values(), strict=True):
            model = models.get(key)
            if model is None:
                raise InputError(message("estimators.no_model", key=quoted(key)))
            of_key = list(dict.fromkeys(keys_of(asked)))
            there = _live(model, of_key)
            unknown += [("id", one) for one, lives in zip(of_key, there.tolist(), strict=True) if not lives]
            named += of_key
            if there.any():
                found[key] = OfKey([one for one, lives in zip(of_key, there.tolist(), strict=True) if lives])
    elif ids is not None:
        named = list(dict.fromkeys(keys_of(ids)))
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
        asked = list(dict.fromkeys(keys_of(subjects, "subject")))
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
