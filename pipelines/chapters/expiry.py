"""Expiry of closed chapters: of whole chapters by number and age, and of their states where copies must not stay.

Invariant: a chapter that expires loses its config first, without which it is no chapter; what is left of one that was
killed then goes the next time. The newest closed chapter stays, since the open one may go on from it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from pipelines.chapters.chapter import is_closed
from pipelines.config import Config
from pipelines.run_files import CHAPTER, CHAPTERS, STATES
from pipelines.run_folder import RunFolder
from pipelines.running.ending import read_summary
from raydt.errors import ConfigError, InputError
from raydt.exchange.faults import fault
from raydt.folders.checkpoint import CheckpointStore, is_checkpoint_file
from raydt.folders.copies import steady_clock
from raydt.folders.lock import locked
from raydt.folders.manifest import complete
from raydt.streams.durations import microseconds

log = logging.getLogger(__name__)

_HOUR = 3600.0


def expire(run: RunFolder, config: Config, now: float | None = None) -> None:
    """Remove closed chapters that are too many or too old (``follow.keep``, ``keep_hours``).

    One that ended less than ``erasure.deadline`` ago stays: it shows that what was deleted in it is gone in time. One
    that another process reads or purges goes the next time.
    """
    now, follow, deadline = time.time() if now is None else now, config.follow, config.erasure.deadline
    chapters = run.chapters()
    closed = chapters if is_closed(chapters[-1]) else chapters[:-1]
    least = 0.0 if deadline is None else microseconds(deadline) / 1e6
    for rank, folder in enumerate(reversed(closed)):
        age = now - ended(folder)
        many = follow.keep is not None and rank >= follow.keep
        old = follow.keep_hours is not None and age >= follow.keep_hours * _HOUR
        if rank and (many or old) and age >= least:
            _remove(folder)
    there = {folder.root for folder in chapters}
    for name in sorted(run.names(CHAPTERS)):
        left = run.inside(f"{CHAPTERS}/{name}")
        if CHAPTER.fullmatch(f"{CHAPTERS}/{name}") and left.root not in there and left.root < chapters[-1].root:
            _remove(left)


def ended(folder: RunFolder) -> float:
    """Return when a chapter ended, in seconds since 1970: now, if its summary does not say it."""
    with suppress(InputError, LookupError, ValueError, TypeError):
        return datetime.fromisoformat(read_summary(folder)["ended"]).timestamp()
    return time.time()


def _remove(folder: RunFolder) -> None:
    """Remove a chapter; files in it that raydt did not write stay."""
    with suppress(ConfigError), locked(folder):
        folder.delete("config.yaml", lasting=True)
        fault("chapter.between_files")
        folder.clear()
        log.info("chapter expired", extra={"event": "chapter_expired", "chapter": folder.location})
    folder.discard()


class ClosedStates:
    """States of closed chapters, which hold examples that were deleted since: none is older than ``limit`` seconds.

    ``clock`` gives seconds since 1970. Without a limit (None) all stay.
    """

    def __init__(self, run: RunFolder, limit: float | None, clock: Callable[[], float] | None = None) -> None:
        self._limit, self._clock = limit, clock or steady_clock()
        folders = [] if limit is None else run.chapters()[:-1]
        self._ended = {folder: ended(folder) for folder in folders if complete(folder.inside(STATES))}

    def age(self) -> float:
        """Return the most seconds for which a deleted example may have been in one of the states."""
        now = self._clock()
        return now - min(self._ended.values(), default=now)

    def expire(self) -> None:
        """Remove states that are too old. The open chapter has a checkpoint of its own."""
        for folder, since in list(self._ended.items()):
            if self._limit is not None and self._clock() - since >= self._limit:
                with suppress(ConfigError), locked(folder):
                    states = folder.inside(STATES)
                    CheckpointStore(states, 1).continue_from(None)
                    states.clear(is_checkpoint_file)
                    states.discard()
                    del self._ended[folder]
