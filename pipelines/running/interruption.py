"""SIGINT and SIGTERM as a wish to stop cleanly.

The first signal stops the intake: what has been read is applied, state and summary are written. A second signal,
or one that comes before there is anything to keep, ends the process at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Context in which signals are requests. Outside the main thread, where Python allows no handlers, it does nothing.

    Attributes
    ----------
    signal : signal.Signals or None
        The request, once there is one.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._stop: Callable[[], None] | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def arm(self, stop: Callable[[], None]) -> None:
        """From now on the first signal calls ``stop``."""
        self._stop = stop

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._stop is None or self.signal is not None:
            raise SystemExit(128 + number)  # which nothing on the way takes for an error of the run
        self.signal = signal.Signals(number)
        self._stop()
