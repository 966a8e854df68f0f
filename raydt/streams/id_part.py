"""One part of the text ids of a stream, in a process of its own: those of some buckets, with their codes.

Invariant: codes ascend in the order in which they are added. So the ids at a moment are those that are here with
smaller codes than the next one had then, and those that were removed since, which are kept for as long as somebody may
ask for that moment.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from raydt.arrays.types import Arrays, Ints
from raydt.exchange.messages import Buckets
from raydt.folders.folder import Folder
from raydt.folders.manifest import FileEntry
from raydt.folders.text_ids import SavedIds, packed, publish


class Change(NamedTuple):
    """What is to be done in a part before it is asked, all at once."""

    version: int  #: Number of this change, more than that of the one before.
    oldest: int  #: No moment before this number will be asked for.
    added: list[str]
    codes: list[int]  #: Those of ``added``.
    removed: list[tuple[str, int]]  #: Ids with the codes that end, if they have not got others.


class Moment(NamedTuple):
    """After the change of a number, when some code was the next one."""

    version: int
    following: int


class IdPart:
    """Ids with their codes. Memory follows the ids that are here; ids by code are kept once somebody asks by code."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._names: dict[int, str] | None = None
        self._gone: deque[tuple[int, int, str]] = deque()  # version, code and id of what was removed
        self._lock = threading.Lock()  # moments are taken in another thread than changes are made

    def begin(self) -> None:
        """Forget everything."""
        with self._lock:
            self._codes, self._names = {}, None
            self._gone.clear()

    def add(self, names: Sequence[str], codes: Sequence[int]) -> None:
        """Add ids that are not here, with their codes."""
        with self._lock:
            self._codes.update(zip(names, codes, strict=True))

    def exchange(
        self, change: Change | None, names: Sequence[str], codes: Sequence[int]
    ) -> tuple[Ints, list[str | None]]:
        """Make a change; then return the codes of some ids, -1 without one, and the ids of some codes, or None."""
        with self._lock:
            if change is not None:
                self._make(change)
            if len(codes) and self._names is None:
                self._names = {code: name for name, code in self._codes.items()}
            find, by_code = self._codes.get, self._names or {}
            found = np.fromiter((find(name, -1) for name in names), dtype=np.int64, count=len(names))
            return found, [by_code.get(code) for code in codes]

    def _make(self, change: Change) -> None:
        version, oldest, added, codes, removed = change
        known, by_code = self._codes, self._names
        while self._gone and self._gone[0][0] <= oldest:
            self._gone.popleft()
        ended = [(known[name], name) for name in added if name in known]  # their old codes are forgotten soon
        known.update(zip(added, codes, strict=True))
        if by_code is not None:
            by_code.update(zip(codes, added, strict=True))
        for name, code in removed:
            if known.get(name) == code:
                del known[name]
                ended.append((code, name))
            if by_code is not None:
                by_code.pop(code, None)
        if oldest < version:
            self._gone.extend((version, code, name) for code, name in ended)

    def at(self, moment: Moment) -> tuple[Ints, list[str]]:
        """Return codes and ids at a moment, in the order of their codes. O(n log n)."""
        with self._lock:  # for as short as possible
            names, codes, gone = list(self._codes), list(self._codes.values()), list(self._gone)
        gone = [one for one in gone if one[0] > moment.version]
        names += [name for _, _, name in gone]
        every = np.array([*codes, *(code for _, code, _ in gone)], dtype=np.int64)
        order = np.argsort(every, kind="stable")
        order = order[every[order] < moment.following]
        return every[order], [names[place] for place in order.tolist()]

    def rewind(self, moment: Moment) -> None:
        """Go back to a moment; no later one will be asked for."""
        codes, names = self.at(moment)
        with self._lock:
            self._codes, self._names = dict(zip(names, codes.tolist(), strict=True)), None
            self._gone = deque(one for one in self._gone if one[0] <= moment.version)

    def take(self, moment: Moment) -> Arrays:
        """Return the arrays of the component of a state at a moment."""
        return packed(*self.at(moment))

    def write(self, moment: Moment, buckets: Buckets, folder: Folder) -> list[FileEntry]:
        """Write the component of a state at a moment."""
        return publish(folder, buckets, self.take(moment))

    def read(self, saved: SavedIds, buckets: Buckets) -> int:
        """Replace everything by the ids of some buckets of a state, and return how many; ModelFileError if damaged."""
        self.begin()
        for codes, names in saved.of_buckets(buckets):
            self.add(names, codes)
        return len(self._codes)
