"""What a chain of receipts says about one example or subject: when it was deleted, inserted or purged, what holds now.

Invariant: an example is *deleted* if the last entry on the chain's path that names it has deleted it. What a rollback
has undone is in the history, but decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from raydt.sessions.receipt_chain import Chain

#: Keys of an entry that name examples by hashes, and what each says of them, in the order in which it happened.
IDS = (("missing", "missing"), ("deleted", "deleted"), ("inserted", "inserted"))

#: Keys that name subjects. An entry does not say whose the rows are that it inserts.
SUBJECTS = (("missing", "missing"), ("subjects", "deleted"))

#: What says nothing about whether an example is there: it was not when it was to be deleted, or copies were erased.
_PASSING = ("missing", "purged")


class Event(NamedTuple):
    """One entry that names an example."""

    receipt: int  #: Number of the entry, from 1 on.
    time: str
    note: str
    #: ``deleted``, ``inserted``, ``replaced`` (both), ``missing`` (to be deleted, but not there), or ``purged``: copies
    #: were erased.
    what: str
    counts: bool  #: Whether it decides if the example is deleted, and no rollback has undone it.
    undone_by: int | None  #: The rollback that has undone it.
    #: Of a request that came through the source of a run: where it was, the update that it was, and whether that waits
    #: for the learner's next batch.
    place: str | None = None
    update: int | None = None
    waits: bool = False


def events_of(chain: Chain, hashes: Collection[str], named: Sequence[tuple[str, str]] = IDS) -> list[Event]:
    """Return the entries that name an example (or of ``named`` a subject) by any of its ``hashes``, in order."""
    undone, wanted, events = undone_by(chain), set(hashes), list[Event]()
    for number, entry in enumerate(chain.entries, start=1):
        found = [what for key, what in named if not wanted.isdisjoint(entry.get(key, ()))]
        if named is IDS and "purged" in entry and not wanted.isdisjoint(entry["purged"]["ids"] or ()):
            found = ["purged"]
        if found:
            what = "replaced" if found[-2:] == ["deleted", "inserted"] else found[-1]
            by = undone.get(number)
            counts = by is None and what not in _PASSING
            request = _request(chain, entry, wanted) if "source" in entry else ()
            events.append(Event(number, entry["time"], entry.get("note", ""), what, counts, by, *request))
    return events


def _request(chain: Chain, entry: Mapping[str, Any], hashes: Collection[str]) -> tuple[str, int | None, bool]:
    """Return place and update of a request, None if it had no example, and whether its deletion still waits."""
    source = entry["source"]
    at = max((at for hash, at in zip(entry["deleted"], source["at"], strict=True) if hash in hashes), default=None)
    newest = next(one["source"] for one in reversed(chain.entries) if "source" in one)
    return source["place"], at, at is not None and at >= newest.get("waiting", at + 1)


def is_deleted(events: list[Event]) -> Event | None:
    """Return the event that has deleted an example, None if the chain does not say that it is deleted."""
    last = next((event for event in reversed(events) if event.counts), None)
    return last if last is not None and last.what == "deleted" else None


def undone_by(chain: Chain) -> dict[int, int]:
    """Return the rollback (from 1 on) that has undone each entry that is not on the path of now."""
    undone: dict[int, int] = {}
    on_path = set(chain.course.path())
    for number, entry in enumerate(chain.entries, start=1):
        if "rolled_back" in entry:
            kept = set(chain.course.path(number))
            undone |= {n: number for n in range(1, number) if n not in kept and n not in undone and n not in on_path}
    return {n: number for n, number in undone.items() if "purged" not in chain.entries[n - 1]}


def in_effect(chain: Chain) -> list[dict[str, Any]]:
    """Return the entries that made the model what it is now, in order."""
    return [chain.entries[number - 1] for number in chain.course.path()]


def about(entries: Iterable[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """Return what entries of models by key say of the one with this hash, in order.

    A request of a source names no key: its id is that of one row, whatever the key.
    """
    found: list[Mapping[str, Any]] = []
    for entry in entries:
        found += [entry] if "source" in entry else [part for part in entry.get("keys", ()) if part["key"] == key]
    return found


def gone(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the hashes of all ids that entries say are deleted now. O(hashes in them)."""
    found: set[str] = set()
    for entry in entries:
        found.update(entry["deleted"])
        found.difference_update(entry["inserted"])
    return found


def erased_elsewhere(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the hashes of ids that were deleted, but not by a request of a source, and that none has named since."""
    found: set[str] = set()
    for entry in entries:
        found.difference_update(entry["inserted"])
        if "source" in entry:
            found.difference_update(entry["deleted"], entry.get("missing", ()))
        else:
            found.update(entry["deleted"])
    return found


def inserted_since_deletion(entries: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the hashes of the ids that later entries have inserted, by the hash of each deleted subject."""
    inserted: dict[str, set[str]] = {}
    for entry in entries:
        inserted |= {subject: set() for subject in entry.get("subjects", ())}
        for ids in inserted.values():
            ids.update(entry["inserted"])
    return inserted
