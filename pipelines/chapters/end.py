"""Where a chapter ends.

Invariant: a chapter that is found at its end by another process ends there, too; nothing of the model depends on where.
"""

from __future__ import annotations

from collections.abc import Callable

from pipelines.operation import Follow
from raydt.folders.copies import steady_clock

_HOUR = 3600.0


class ChapterEnd:
    """Where a chapter ends: at a number of updates, or at the first batch after a time; never in the warm-up.

    ``begins`` is the update that the chapter begins with, ``since`` the time of that, and ``clock`` gives seconds since
    1970.
    """

    def __init__(
        self,
        follow: Follow,
        begins: int,
        since: float,
        warmup: int,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._least, self._clock = max(begins, warmup), clock or steady_clock()
        every, hours = follow.chapter_updates, follow.chapter_hours
        self._last = None if every is None else (self._least // every + 1) * every
        self._until = None if hours is None else since + hours * _HOUR

    def room(self, updates: int, size: int) -> int:
        """Return how many updates a batch of at most ``size`` can have that begins after ``updates``."""
        return size if self._last is None else max(1, min(size, self._last - updates))

    def reached(self, updates: int) -> bool:
        """Return True if the chapter ends after ``updates``."""
        if updates <= self._least:
            return False
        due = self._until is not None and self._clock() >= self._until
        return due or (self._last is not None and updates >= self._last)
