"""The thread that looks for newer snapshots of a run, has them loaded and swaps one reference.

Invariant: :attr:`SnapshotReader.current` only ever becomes one whole snapshot; whoever took it keeps it for its answer.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipelines.redaction import may_quote, said
from pipelines.serving.loading import FAILURES, Loader, load
from pipelines.serving.served import Served
from pipelines.serving.snapshots import Found, Snapshots
from raydt.errors import RaydtError
from raydt.messages import message

log = logging.getLogger(__name__)

#: Seconds between two looks, and before a snapshot that could not be used is tried again.
LOOK_SECONDS, AGAIN_SECONDS = 1.0, 30.0


class SnapshotReader:
    """Follows the snapshots of a place; :meth:`start` it, or :meth:`look` yourself."""

    def __init__(self, place: str | Path, every: float = LOOK_SECONDS) -> None:
        self.current: Served | None = None
        self.swaps = self.failures = 0
        self._snapshots, self._every, self._quote = Snapshots(place), every, may_quote(place)
        self._mark: tuple[str, int, int] | None = None
        self._failed: tuple[Any, float] = "", 0.0  # mark of what could not be used, and when it is tried again
        self._loader: Loader | None = None  # of the thread
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="raydt-snapshots", daemon=True)

    def look(self) -> bool:
        """Load the newest snapshot if it is another one; return whether it was swapped in."""
        found = None
        try:
            found = self._snapshots.find()
            if found is None or found.mark == self._mark:
                return False
            if found.mark == self._failed[0] and time.monotonic() < self._failed[1]:
                return False
            served = load(found) if self._loader is None else self._loader.load(found)
        except FAILURES as error:
            if not self._stop.is_set() and not self._is_superseded(found):
                self._keep(found, error)
            return False
        self.current, self._mark = served, found.mark
        self.swaps += 1
        snapshot = served.snapshot
        log.info(message("serving.swapped", update=snapshot.update, digest=snapshot.digest))
        return True

    def _is_superseded(self, found: Found | None) -> bool:
        """Return True if its run has removed a snapshot meanwhile: the next look finds a newer one."""
        with suppress(RaydtError, OSError):
            newest = self._snapshots.find()
            return found is not None and (newest is None or newest.mark != found.mark)
        return False

    def _keep(self, found: Found | None, error: BaseException) -> None:
        """Say once that a snapshot cannot be used."""
        mark = None if found is None else found.mark
        if mark != self._failed[0]:
            now = self.current
            served = message("serving.first") if now is None else _of(now)
            log.warning(message("serving.kept", served=served, reason=said(error, self._quote)))
        self.failures += 1
        self._failed = mark, time.monotonic() + AGAIN_SECONDS

    def start(self) -> None:
        """Look from now on, in the background."""
        self._loader = Loader(self._quote)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        if self._loader is not None:
            self._loader.interrupt()
            self._thread.join()
            self._loader.close()

    def _work(self) -> None:
        if self._loader is not None:
            with suppress(OSError):  # it is begun again when it is needed
                self._loader.begin()
        while not self._stop.wait(self._every):
            try:
                self.look()
            except Exception as error:  # the model that is served stays, whatever a new one does
                self._keep(None, error)


def _of(served: Served) -> str:
    return message("serving.of_update", update=served.snapshot.update)
