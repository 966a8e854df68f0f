"""The live examples of a state: a model trained on them from nothing, and their hashes beside a chain of receipts.

Invariant: nothing but the examples in the state, and the entries that are given, decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.updating.changes import StateNames
from raydt.examples.updates import history_of_live
from raydt.sessions.receipt import trained_from_nothing
from raydt.sessions.receipt_chain import Key, gone, inserted_since_deletion
from raydt.sessions.saved_model import SavedModel


def rebuilt_digest(saved: SavedModel) -> str:
    """Return the digest of a model that is trained from nothing on the examples of a state."""
    history = history_of_live(saved.arrays, saved.groups, saved.features)
    trained = trained_from_nothing(saved.options, saved.features, history, saved.class_order, saved.arrays)
    return str(trained.digest())


class Living(NamedTuple):
    """Hashes of what a state has."""

    ids: set[str]
    subjects: set[str]
    left: set[str]  #: Subjects with a row from before their deletion, or that were never deleted.
    against: set[str]  #: Examples that live, although entries say that they are deleted.
    persons: set[str]  #: Subjects of whom one lives that was there before entries say that they are deleted.
    deleted: int  #: How many examples there are of both.


def living_of(saved: SavedModel, entries: Sequence[Mapping[str, Any]], key: Key) -> Living:
    """Return the hashes of what a state has, beside the entries that are about it."""
    stream = saved.components.get("stream", {})
    names = dict(zip(stream["id_codes"].tolist(), stream["ids"], strict=True)) if "id_codes" in stream else {}
    text = saved.meta.get("columns", {}).get("id_kind") == "text"
    codes = saved.arrays["id"]
    hashes = [key.hash(names[one] if text else one) for one in codes.tolist()]
    of_state = StateNames.of(saved)
    whose = [key.hash(one) for one in of_state.subjects.of(codes).tolist()] if of_state.subject_kind else []
    owners = dict(zip(hashes, whose, strict=False))  # none without subjects
    inserted = inserted_since_deletion(entries)
    left = {one for one, subject in owners.items() if one not in inserted.get(subject, ())}
    against, of_persons = gone(entries) & set(hashes), {one for one in left if owners[one] in inserted}
    persons = {owners[one] for one in of_persons}
    return Living(set(hashes), set(whose), {owners[one] for one in left}, against, persons, len(against | of_persons))
