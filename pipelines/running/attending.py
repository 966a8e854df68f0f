"""Waiting for a live source that a run follows, and saying how far behind it the run is.

Invariant: nothing here changes what is read; only when. While nothing new is there, pauses grow, so that waiting costs
next to no processor; while the source does not answer they grow further, and one line says so. A run is said to be
level only when it has just asked for all that there is.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from actors.telemetry import Meter
from pipelines.redaction import may_quote, said
from pipelines.run_folder import RunFolder
from raydt.folders.manifest import parsed
from raydt.messages import message
from raydt.presentation.words import duration
from raydt.sources.live.base import LiveSource, SourceAwayError
from raydt.sources.live.followed import FollowedSource, Step

log = logging.getLogger(__name__)

STATUS = "status.json"

#: First and longest pause, in seconds: while nothing new is there, and while the source does not answer.
IDLE, AWAY = (0.02, 1.0), (0.5, 60.0)
#: Least seconds between two writings of the status while rows come, between two while none come, between log lines.
BUSY_EVERY, IDLE_EVERY, LOG_EVERY = 1.0, 10.0, 60.0
#: Seconds to which ages are told apart.
TOGETHER = 0.05


class Arrivals:
    """When units of a source came that the model does not have yet, as far as the source has told.

    A unit is counted once: those of a plan are the difference of what is behind the plan before it and behind it. What
    a look finds has come after the look before it: its age is never said too low.
    """

    def __init__(self, live: LiveSource) -> None:
        self._live = live
        self.step: Step | None = None  #: The newest plan that the model has.
        self._taken = self._behind = 0
        self._looked: float | None = None  #: The last moment of a look.
        self._known = deque[tuple[float, int]]()  #: Moments of looks, and the units known at the next one.

    def look(self, now: float, step: Step | None) -> None:
        """Ask what has come by ``now``; the model has the rows of ``step``."""
        before = self._live.behind(None if self.step is None else self.step.plan)
        if step is not None and (self.step is None or step.number > self.step.number):
            self.step = step
        self._behind = self._live.behind(None if self.step is None else self.step.plan)
        self._taken += max(0, before - self._behind)
        known, since = self._taken + self._behind, now if self._looked is None else self._looked
        if not self._known or self._known[-1][1] < known:
            if self._known and since - self._known[-1][0] < TOGETHER:  # so that few moments are kept while it lags
                since, _ = self._known.pop()
            self._known.append((since, known))
        while self._known and self._known[0][1] <= self._taken:
            self._known.popleft()
        self._looked = now

    def lag(self, now: float) -> dict[str, Any]:
        """Return the number of units that the model does not have, and the age of the oldest of them at most."""
        seconds = now - self._known[0][0] if self._known else 0.0
        return {"behind": self._behind, "unit": self._live.unit, "seconds": round(seconds, 3)}


class Attending:
    """Waits for ``source`` whenever it pauses; called with an event that ends the waiting at once.

    It says False, which ends the stream, after nothing new has come for ``until_idle`` seconds.
    """

    def __init__(
        self,
        source: FollowedSource,
        folder: RunFolder,
        until_idle: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self.folder, self._until_idle, self._clock = source, folder, until_idle, clock
        self._arrivals, self._row = Arrivals(source.live), -1
        self._last_new = clock()  #: When a plan last came.
        self._seen, self._pause = -1, IDLE[0]
        self._held_as: str | None = None  #: Why it waits: "away", or "waiting" for a bad row to be repaired.
        self._held_since, self._asked = 0.0, False
        self._written = self._logged = -LOG_EVERY
        self._updates, self._meter = 0, Meter()
        self._applied: Step | None = None  #: The newest plan of which the model has all rows.
        self._told: tuple[int, str | None] = (0, None)  #: Updates that the status has, and why the run waits.

    def __call__(self, stop: threading.Event) -> bool:
        """Wait for a while; whether reading goes on."""
        now, step = self._clock(), self._source.last
        number = -1 if step is None else step.number
        if number != self._seen:
            self._seen, self._last_new, self._pause = number, now, IDLE[0]
        self._asked = self._source.held is None
        self._applied = self._source.read_to()
        self._note_held(now)
        self._arrivals.look(now, self._applied if self._asked else self._applied or self._resumed())
        if self._asked and self._until_idle is not None and now - self._last_new >= self._until_idle:
            self._write(now)
            return False
        self._report(now, IDLE_EVERY)
        longest = (AWAY if self._held_as == "away" else IDLE)[1]
        stop.wait(min(self._pause, longest))
        self._pause = min(2 * self._pause, longest)
        return not stop.is_set()

    def _note_held(self, now: float) -> None:
        """Log when a source is held, and when it is no longer."""
        held = self._source.held
        held_as = None if held is None else "away" if isinstance(held, SourceAwayError) else "waiting"
        if held_as == self._held_as:
            return
        if self._held_as is not None:
            name = {"away": "back", "waiting": "repaired"}[self._held_as]
            took = duration(now - self._held_since)
            log.warning("%s", message(f"live.{name}", duration=took), extra={"event": f"source_{name}"})
        if held is not None:
            name = "waiting" if held_as == "away" else "waiting_row"
            log.warning("%s", message(f"live.{name}", error=str(held)), extra={"event": f"source_{held_as}"})
        self._held_as, self._held_since = held_as, now
        self._pause = (AWAY if held_as == "away" else IDLE)[0]

    def note(self, updates: int, row: int, meter: Meter) -> None:
        """Take note of the updates done, up to a row; now and then say how far behind the run is."""
        now = self._clock()
        self._updates, self._row, self._meter, self._asked = updates, max(row, self._row), meter, False
        self._applied = self._source.done_by(self._row) or self._applied
        self._arrivals.look(now, self._source.done_by(self._row) or self._resumed())
        self._report(now, BUSY_EVERY)

    def _resumed(self) -> Step | None:
        """Return the plan that a resumed run goes on with, until the run has done it: those before are forgotten."""
        last = self._source.last
        return last if last is not None and last.number and self._arrivals.step is None else None

    def _report(self, now: float, every: float) -> None:
        """Write status, metrics and log, if the last time was so many seconds ago, or it waits for another reason."""
        told = (self._updates, self._held_as)
        if told[1] != self._told[1] or now - self._written >= (BUSY_EVERY if told != self._told else every):
            self._write(now)

    def lag(self) -> dict[str, Any]:
        """Return the lag of the model behind the source, in units of the source and in seconds."""
        now = self._clock()
        lag = self._arrivals.lag(now)
        if self._held_as is None:
            return lag
        return lag | {"seconds": max(lag["seconds"], round(now - self._held_since, 3))}

    def _write(self, now: float) -> None:
        self._written, self._told, lag = now, (self._updates, self._held_as), self.lag()
        held = self._source.held
        self._meter.lag(lag["behind"], lag["seconds"])
        level = self._asked and not lag["behind"]
        status = {
            "state": self._held_as or ("level" if level else "behind"),
            "reason": None if held is None else said(held, may_quote(self.folder.location)),
            "updates": self._updates,
            "source": self._source.live.name,
            "applied": self._place(self._applied),
            "read": self._place(self._source.last),
            **lag,
        }
        write_status(self.folder, status)
        if now - self._logged >= LOG_EVERY:
            self._logged = now
            log.info("following", extra={"event": "following", **status})

    def _place(self, step: Step | None) -> str | None:
        return None if step is None else self._source.live.place(step.plan)

    def fail(self, reason: str) -> None:
        """Say that the run has failed, and how far the model is."""
        self._write(self._clock())
        write_failure(self.folder, reason)


def write_status(folder: RunFolder, status: Mapping[str, Any]) -> None:
    """Write or replace the status of a run that follows."""
    time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    folder.write_text(STATUS, json.dumps({**status, "time": time}, indent=2) + "\n")


def write_failure(folder: RunFolder, reason: str) -> None:
    """Say in the status of a run that it has failed and why; what else is there stays as the last process wrote it."""
    with suppress(OSError, ValueError):
        known = parsed(folder.read_text(STATUS)) if folder.has(STATUS) else {}
        write_status(folder, {**known, "state": "failed", "reason": reason})
