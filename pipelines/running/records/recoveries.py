"""The losses and resumes of a run: the cost of each, for the summary and for the next resume.

Invariant: an entry is in the log before anything is done about it, and again when it is complete, so that a process
that is killed meanwhile leaves it to the next one (:mod:`pipelines.running.previous_run`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

log = logging.getLogger(__name__)

#: Event of an entry that does not count: whoever began it has changed nothing.
WITHDRAWN = "recovery_withdrawn"


class Recoveries:
    """Each return to a checkpoint or the beginning, after those of ``earlier`` processes; for the summary."""

    def __init__(self, earlier: Sequence[Mapping[str, Any]] = ()) -> None:
        self.entries: list[dict[str, Any]] = [dict(entry) for entry in earlier]
        self._earlier = len(self.entries)
        self._began: float | None = None

    def begin(self, kind: Literal["lost", "resumed"], what: str, epoch: int, at_update: int | None) -> None:
        """Something has ended incarnation ``epoch`` after ``at_update`` (None: nobody can say), and is made good."""
        self._began = time.perf_counter()
        unknown = {"from_update": None, "seconds": None}
        self.entries.append({"kind": kind, "what": what, "epoch": epoch, "at_update": at_update, **unknown})
        log.info("going back", extra={"event": "recovery_begun", "recovery": dict(self.entries[-1])})

    def restored(self, updates: int) -> None:
        """The next incarnation resumes here."""
        self.entries[-1]["from_update"] = updates

    def has_result(self) -> dict[str, Any] | None:
        """The incarnation has answered a batch: with the first one the recovery is over, and its entry returned."""
        if self._began is None:
            return None
        self.entries[-1]["seconds"] = time.perf_counter() - self._began
        self._began = None
        log.info("recovered", extra={"event": "recovered", "recovery": dict(self.entries[-1])})
        return self.entries[-1]

    def withdraw(self) -> None:
        """This process has not come to apply an update, and has changed nothing: what it began does not count."""
        for entry in self.entries[self._earlier :]:
            log.info("not recovered", extra={"event": WITHDRAWN, "recovery": dict(entry)})
        del self.entries[self._earlier :]
        self._began = None
