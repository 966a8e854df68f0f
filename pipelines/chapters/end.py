"""Where a chapter ends.

Invariant: a chapter that is found at its end by another process ends there, too; nothing of the model depends on where.
"""

from __future__ import annotations

from collections.abc import Callable

from pipelines.operation import Follow
from raydt.folders.copies import steady_clock

_HOUR = 3600.0


class ChapterEnd:
    """Where a chapter ends: at a number of updates, or at the first batch after a time; never in the ``warmup``.

    ``begins`` is the update that the chapter begins with, ``since`` the time of that, and ``clock`` gives seconds since
    1970. A warm-up that ends early, which is known at its end, leaves the end that a shorter one would have.
    """

    def __init__(
        self,
        follow: Follow,
        begins: int,
        since: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._begins, self._every, self._clock = begins, follow.chapter_updates, clock or steady_clock()
        self._until = None if follow.chapter_hours is None else since + follow.chapter_hours * _HOUR

    def room(self, updates: int, size: int) -> int:
        """Return how many updates a batch of at most ``size`` can have that begins after ``updates``.

        A chapter may end at each multiple, since a warm-up may end with any batch.
        """
        return size if self._every is None else min(size, self._every - updates % self._every)

    def reached(self, updates: int, warmup: int) -> bool:
        """Return True if the chapter ends after ``updates``."""
        least, every = max(self._begins, warmup), self._every
        if updates <= least:
            return False
        due = self._until is not None and self._clock() >= self._until
        return due or (every is not None and updates >= (least // every + 1) * every)
