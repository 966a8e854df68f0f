"""Since when checkpoints may hold copies of examples that have been deleted.

Invariant: no example whose copy is in a checkpoint was deleted before the time kept for it here, which is that at which
a snapshot was asked for. Once a copy may be as old as the ``limit``, its checkpoint is removed, and a segment of rows
that later checkpoints share is left out, so that its live examples are written again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping


def steady_clock() -> Callable[[], float]:
    """Seconds since 1970 as the clock says now, and from now on as they pass: whoever sets the clock moves nothing."""
    begin = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)  # which goes on while a machine sleeps
    return lambda: begin + time.clock_gettime(time.CLOCK_BOOTTIME)


class Copies:
    """Ages of copies in the checkpoints of one run.

    A copy has to go with the next checkpoint from ``limit`` seconds on (None: no limit). ``clock`` gives seconds since
    1970, as a run may be resumed on another machine.
    """

    def __init__(self, limit: float | None, clock: Callable[[], float] | None = None) -> None:
        self.limit, self._clock = limit, clock or steady_clock()
        self._segments: dict[str, float] = {}
        self._checkpoints: dict[int, float] = {}
        self._asked = self._before = self._clock()

    def age(self) -> float:
        """Most seconds for which a deleted example may have been in a checkpoint."""
        return self._clock() - min(self._checkpoints.values(), default=self._clock())

    def ask(self) -> None:
        """A snapshot is about to be asked for."""
        self._asked = self._clock()

    def has_to_go(self, segment: str) -> bool:
        """Whether the next checkpoint must not share a segment."""
        return self._is_old(self._segments.get(segment))

    def kept(self, numbers: Iterable[int], newest: int) -> list[int]:
        """Checkpoints that may stay besides the ``newest``."""
        return [n for n in numbers if n == newest or not self._is_old(self._checkpoints.get(n, float("-inf")))]

    def wrote(self, number: int, with_deleted: Collection[str]) -> None:
        """A checkpoint was written; segments ``with_deleted`` examples are among its own."""
        self._segments = {name: self._segments.get(name, self._before) for name in with_deleted}
        self._checkpoints = {**self._checkpoints, number: self.since}
        self._before = self._asked

    def since_with(self, with_deleted: Collection[str]) -> float:
        """Time for the manifest of a checkpoint that is being written: of its own copies and of earlier checkpoints."""
        own = [self._segments.get(name, self._before) for name in with_deleted]
        return min([self._asked, *own, *self._checkpoints.values()])

    @property
    def since(self) -> float:
        """Time before which nothing in the newest checkpoint was deleted."""
        return min([self._asked, *self._segments.values()])

    def remain(self, numbers: Collection[int]) -> None:
        """These checkpoints exist."""
        self._checkpoints = {n: since for n, since in self._checkpoints.items() if n in numbers}

    def resume(self, number: int | None, segments: Iterable[str], meta: Mapping[str, object]) -> None:
        """The next checkpoint follows this one (None: none), whose manifest may say how old its copies are.

        If it does not, or says a time to come, because a clock was wrong, they go with the next checkpoint.
        """
        since = meta.get("copies_since")
        if not isinstance(since, float) or not since <= self._clock():
            since = self._clock() - (self.limit or 0.0)
        self._segments = dict.fromkeys(segments, since)
        self._checkpoints = {} if number is None else {number: since}
        self._before = since

    def _is_old(self, since: float | None) -> bool:
        return self.limit is not None and since is not None and self._asked - since >= self.limit
