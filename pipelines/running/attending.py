"""Waiting for a live source that a run follows, and saying how far behind it the run is.

Invariant: nothing here changes what is read; only when. While nothing new is there, pauses grow, so that waiting costs
next to no processor; while the source does not answer they grow further, and one line says so.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from actors.telemetry import Meter
from pipelines.run_folder import RunFolder
from raydt.messages import message
from raydt.presentation.words import duration
from raydt.sources.live.base import LiveSource
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
        self._source, self._folder, self._until_idle, self._clock = source, folder, until_idle, clock
        self._arrivals, self._row = Arrivals(source.live), -1
        self._last_new = clock()  #: When a plan last came.
        self._seen, self._pause = -1, IDLE[0]
        self._away_since: float | None = None
        self._written = self._logged = -LOG_EVERY
        self._updates, self._meter = 0, Meter()
        self._told = 0  #: Updates that the status has.

    def __call__(self, stop: threading.Event) -> bool:
        """Wait for a while; whether reading goes on."""
        now, step = self._clock(), self._source.last
        number = -1 if step is None else step.number
        if number != self._seen:
            self._seen, self._last_new, self._pause = number, now, IDLE[0]
        if (away := self._source.away) is not None:
            if self._away_since is None:
                log.warning("%s", message("live.waiting", error=str(away)), extra={"event": "source_away"})
                self._away_since, self._pause = now, AWAY[0]
        else:
            if self._away_since is not None:
                took = duration(now - self._away_since)
                log.warning("%s", message("live.back", duration=took), extra={"event": "source_back"})
                self._away_since, self._pause = None, IDLE[0]
            if self._until_idle is not None and now - self._last_new >= self._until_idle:
                self._write(now)
                return False
        self._arrivals.look(now, step)
        self._report(now, IDLE_EVERY)
        longest = (IDLE if away is None else AWAY)[1]
        stop.wait(min(self._pause, longest))
        self._pause = min(2 * self._pause, longest)
        return not stop.is_set()

    def note(self, updates: int, row: int, meter: Meter) -> None:
        """Take note of the updates done, up to a row; now and then say how far behind the run is."""
        now = self._clock()
        self._updates, self._row, self._meter = updates, max(row, self._row), meter
        self._arrivals.look(now, self._source.done_by(self._row) or self._resumed())
        self._report(now, BUSY_EVERY)

    def _resumed(self) -> Step | None:
        """Return the plan that a resumed run goes on with, until the run has done it: those before are forgotten."""
        last = self._source.last
        return last if last is not None and last.number and self._arrivals.step is None else None

    def _report(self, now: float, every: float) -> None:
        """Write status, metrics and log, if the last time was so many seconds ago."""
        if now - self._written >= (BUSY_EVERY if self._updates != self._told else every):
            self._write(now)

    def lag(self) -> dict[str, Any]:
        """Return the lag of the model behind the source, in units of the source and in seconds."""
        now, away_since = self._clock(), self._away_since
        lag = self._arrivals.lag(now)
        return lag if away_since is None else lag | {"seconds": max(lag["seconds"], round(now - away_since, 3))}

    def _write(self, now: float) -> None:
        self._written, self._told, lag, step = now, self._updates, self.lag(), self._source.last
        self._meter.lag(lag["behind"], lag["seconds"])
        away = self._source.away
        status = {
            "state": "away" if away is not None else "behind" if lag["behind"] else "level",
            "updates": self._updates,
            "source": self._source.live.name,
            "place": None if step is None else self._source.live.place(step.plan),
            **lag,
            "away": None if away is None else str(away),
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        }
        self._folder.write_text(STATUS, json.dumps(status, indent=2) + "\n")
        if now - self._logged >= LOG_EVERY:
            self._logged = now
            log.info("following", extra={"event": "following", **status})
