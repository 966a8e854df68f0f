"""How far a job is: one bar on a terminal, one line per interval elsewhere; always on stderr."""

from __future__ import annotations

import math
import sys
import time

from pipelines.printing import escaped
from raydt.messages import message

#: Said before a private Ray is started, which would otherwise look as if nothing happened.
STARTING_RAY = message("runs.starting_ray")


class Reporter:
    """Receives the progress of one job, and shows nothing: the base of those that do."""

    def stage(self, text: str) -> None:
        """Announce something that takes seconds, outside the stream of updates."""

    def start(self, total: int | None, unit: str = "updates", done: int = 0) -> None:
        """Begin the job, or continue it after ``done`` of ``total`` units, if they are known."""
        self._total, self._unit, self._before, self._began = total, unit, done, time.monotonic()

    def update(self, done: int, active: int, size: str, score: tuple[str, float]) -> None:
        """Show that ``done`` updates have been applied; ``size`` is in words, ``score`` a name and a value."""
        # A recovery may have gone back to before the start.
        rate = max(done - self._before, 0) / max(time.monotonic() - self._began, 1e-9)
        self.advance(done, ", ".join(filter(None, (f"{rate:,.0f}/s", f"{active:,} live", size, _score(*score)))))

    def advance(self, done: int, detail: str) -> None:
        """Show that ``done`` units are done, with ``detail``."""

    def stop(self) -> None:
        """End the display: the stream has ended."""


class Bar(Reporter):
    """A bar that is redrawn a few times a second, and removed at the end."""

    def __init__(self) -> None:
        from rich.console import Console  # imported where a terminal shows it: a tenth of a second
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.completed:,} {task.fields[unit]}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(),
            console=self._console,
            refresh_per_second=5,
            transient=True,
        )
        self._task = self._bar.add_task("job", total=None, unit="", detail="")

    def stage(self, text: str) -> None:
        """Write a line."""
        self._console.print(escaped(text), style="dim", highlight=False)

    def start(self, total: int | None, unit: str = "updates", done: int = 0) -> None:
        """Draw the empty bar."""
        super().start(total, unit, done)
        self._bar.update(self._task, total=total, unit=unit, completed=done)
        self._bar.start()

    def advance(self, done: int, detail: str) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, detail=detail)

    def stop(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class Lines(Reporter):
    """A line now and then: after 1, 2, 4, ... seconds, and from then on every ``interval`` seconds."""

    def __init__(self, interval: float = 30.0) -> None:
        self._interval, self._wait = interval, 1.0

    def stage(self, text: str) -> None:
        """Write a line."""
        _write(text)

    def start(self, total: int | None, unit: str = "updates", done: int = 0) -> None:
        """Remember when the job began."""
        super().start(total, unit, done)
        self._last = self._began

    def advance(self, done: int, detail: str) -> None:
        """Write a line if it is time for one."""
        now = time.monotonic()
        if now - self._last < self._wait:
            return
        self._last, self._wait = now, min(2 * self._wait, self._interval)
        share = f" of {self._total:,} ({done / self._total:.0%})" if self._total else ""
        _write(", ".join(filter(None, [f"{done:,}{share} {self._unit}", detail])))


def _score(name: str, value: float) -> str:
    """Return a score in words: shares with three decimals, errors with four digits; empty before the first one."""
    if math.isnan(value):
        return ""
    return f"{name} {value:.3f}" if name == "accuracy" else f"{name} {value:.4g}"


def _write(line: str) -> None:
    sys.stderr.write(escaped(line) + "\n")
    sys.stderr.flush()


def reporter() -> Reporter:
    """Return the bar if stderr is a terminal, lines otherwise."""
    return Bar() if sys.stderr.isatty() else Lines()
