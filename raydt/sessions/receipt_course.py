"""The course of a chain of receipts: which entries made the model what it is, with gaps, rollbacks and older states.

Invariant: an entry has an effect on the model of now if it is on the *path*: the entries before it, back to the first,
without those that a rollback has undone. With entries 1, 2 and 3, where 3 goes back to the state after 1, the path is
1, 3, and the deletions of 2 are undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Course:
    """Follows the entries of one chain; O(1) for each."""

    def __init__(self) -> None:
        #: The entry whose ``digest_after`` is that of the model now: the last that is not the purge of an older state.
        self.newest: Mapping[str, Any] = {}
        self.gaps: list[int] = []  #: Entries (from 1 on) before which the model was changed without an entry.
        self._taken = self._tip = 0  # entries so far, and the last one on the path
        self._before = [0]  # of each entry (from 1 on) the one before it on the path, 0 of the first
        #: Of each digest the last entry on the path to it (0: none), its live examples, and whose model it was.
        self._states: dict[str, tuple[int, int, tuple[str, str]]] = {}

    def take(self, entry: Mapping[str, Any]) -> bool:
        """Take the next entry; return False if it is a rollback to a state that is not the one it names."""
        before, after, back = entry["digest_before"], entry["digest_after"], entry.get("rolled_back")
        follows = not self.newest or self.newest["digest_after"] == before
        model = entry["learner"], entry["options_hash"]
        if back is not None and self._states.get(after) != (back, entry["active"], model):
            return False
        self._taken += 1
        self._before.append(self._tip if back is None else back)
        if follows or "purged" not in entry or before not in self._states:
            self.gaps += [] if follows else [self._taken]
            self._states.setdefault(before, (self._tip, entry["active_before"], model))
            self.newest, self._tip = entry, self._taken
            if back is None:
                self._states[after] = self._taken, entry["active"], model
        return True

    def rollback_to(self, digest: str, options_hash: str, learner: str) -> dict[str, Any] | None:
        """Return the values of the entry of a rollback; None if no entry has the state, or it is that of now."""
        if not self.newest or self.newest["digest_after"] == digest or digest not in self._states:
            return None
        number, active, model = self._states[digest]
        if model != (learner, options_hash):
            return None
        return {
            "learner": learner,
            "options_hash": options_hash,
            "digest_before": self.newest["digest_after"],
            "digest_after": digest,
            "active_before": self.newest["active"],
            "active": active,
            "deleted": [],
            "inserted": [],
            "rolled_back": number,
        }

    def path(self, number: int | None = None) -> list[int]:
        """Return the entries (from 1 on) that made the model what it was after an entry, by default the last. O(n)."""
        at, found = self._tip if number is None else number, list[int]()
        while at:
            found.append(at)
            at = self._before[at]
        return found[::-1]
