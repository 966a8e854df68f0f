"""How far a job is: one bar on a terminal, one line per interval elsewhere; always on stderr."""

from __future__ import annotations

import math
import sys
import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


class Reporter(Protocol):
    """Receives the progress of one job."""

    def stage(self, text: str) -> None:
        """Something that takes seconds begins, outside the stream of updates."""

    def start(self, total: int | None) -> None:
        """The stream begins; ``total`` updates if known."""

    def update(self, done: int, active: int, leaves: int, accuracy: float) -> None:
        """``done`` updates have been applied; ``accuracy`` is NaN before the first scored prediction."""

    def stop(self) -> None:
        """The stream has ended."""


class Silent:
    """Shows nothing."""

    def stage(self, text: str) -> None:
        """Nothing."""

    def start(self, total: int | None) -> None:
        """Nothing."""

    def update(self, done: int, active: int, leaves: int, accuracy: float) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


class Bar:
    """A bar that is redrawn a few times a second."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.completed:,} updates"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]:,.0f}/s  {task.fields[active]:,} live  {task.fields[leaves]:,} leaves"),
            TextColumn("{task.fields[accuracy]}"),
            TimeRemainingColumn(),
            console=self._console,
            refresh_per_second=5,
            transient=True,
        )
        self._task = self._bar.add_task("replay", total=None, rate=0.0, active=0, leaves=0, accuracy="")

    def stage(self, text: str) -> None:
        """Write a line."""
        self._console.print(text, style="dim", highlight=False)

    def start(self, total: int | None) -> None:
        """Draw the empty bar."""
        self._began = time.monotonic()
        self._bar.update(self._task, total=total)
        self._bar.start()

    def update(self, done: int, active: int, leaves: int, accuracy: float) -> None:
        """Move the bar."""
        rate = done / max(time.monotonic() - self._began, 1e-9)
        shown = _accuracy(accuracy)
        self._bar.update(self._task, completed=done, rate=rate, active=active, leaves=leaves, accuracy=shown)

    def stop(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class Lines:
    """A line now and then: after 1, 2, 4, ... seconds, and from then on every ``interval`` seconds."""

    def __init__(self, interval: float = 30.0) -> None:
        self._interval, self._wait = interval, 1.0

    def stage(self, text: str) -> None:
        """Write a line."""
        _write(text)

    def start(self, total: int | None) -> None:
        """Remember when the stream began."""
        self._total = total
        self._began = self._last = time.monotonic()

    def update(self, done: int, active: int, leaves: int, accuracy: float) -> None:
        """Write a line if it is time for one."""
        now = time.monotonic()
        if now - self._last < self._wait:
            return
        self._last, self._wait = now, min(2 * self._wait, self._interval)
        share = f" of {self._total:,} ({done / self._total:.0%})" if self._total else ""
        rate = done / (now - self._began)
        parts = [f"{done:,}{share} updates", f"{rate:,.0f}/s", f"{active:,} live", f"{leaves:,} leaves"]
        _write(", ".join(filter(None, [*parts, _accuracy(accuracy)])))

    def stop(self) -> None:
        """Nothing."""


def _accuracy(value: float) -> str:
    """Nothing before the first scored prediction."""
    return "" if math.isnan(value) else f"accuracy {value:.3f}"


def _write(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def reporter() -> Reporter:
    """The bar if stderr is a terminal, lines otherwise."""
    return Bar() if sys.stderr.isatty() else Lines()
