"""Waiting for a live source that a run follows, and saying how far behind it the run is.

Invariant: nothing here changes what is read; only when. While nothing new is there, pauses grow, so that waiting costs
next to no processor; while the source does not answer they grow further, and one line says so.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from actors.telemetry import Meter
from pipelines.run_folder import RunFolder
from raydt.messages import message
from raydt.presentation.words import duration
from raydt.sources.live.followed import FollowedSource

log = logging.getLogger(__name__)

STATUS = "status.json"

#: First and longest pause, in seconds: while nothing new is there, and while the source does not answer.
IDLE, AWAY = (0.02, 1.0), (0.5, 60.0)
#: Least seconds between two writings of the status while rows come, between two while none come, between log lines.
BUSY_EVERY, IDLE_EVERY, LOG_EVERY = 1.0, 10.0, 60.0


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
        self._level = self._last_new = clock()  #: When the run was last at the newest, and when a plan last came.
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
            self._level = now
            if self._away_since is not None:
                took = duration(now - self._away_since)
                log.warning("%s", message("live.back", duration=took), extra={"event": "source_back"})
                self._away_since, self._pause = None, IDLE[0]
            if self._until_idle is not None and now - self._last_new >= self._until_idle:
                self._write(now)
                return False
        self.note(self._updates, self._meter, every=IDLE_EVERY)
        longest = (IDLE if away is None else AWAY)[1]
        stop.wait(min(self._pause, longest))
        self._pause = min(2 * self._pause, longest)
        return not stop.is_set()

    def note(self, updates: int, meter: Meter, every: float = BUSY_EVERY) -> None:
        """Take note of the updates done; now and then status, metrics and log say how far behind the run is."""
        now = self._clock()
        self._updates, self._meter = updates, meter
        if now - self._written >= (BUSY_EVERY if updates != self._told else every):
            self._write(now)

    def lag(self) -> dict[str, Any]:
        """How far behind the source the run is: by what the source counts, and in seconds since it was not."""
        step, live = self._source.last, self._source.live
        behind = live.behind(None if step is None else step.plan)
        seconds = self._clock() - self._level if behind or self._source.away is not None else 0.0
        return {"behind": behind, "unit": live.unit, "seconds": round(seconds, 3)}

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
