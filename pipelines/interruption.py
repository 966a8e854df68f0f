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
        self._install()
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def arm(self, stop: Callable[[], None]) -> None:
        """From now on the first signal calls ``stop``. Installs the handlers anew, since Ray replaces SIGTERM's."""
        self._stop = stop
        self._install()

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, 0 without a signal."""
        return 128 + self.signal if self.signal is not None else 0

    def _install(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.signal(number, self._handle)
                self._previous.setdefault(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._stop is None or self.signal is not None:
            raise SystemExit(128 + number)
        self.signal = signal.Signals(number)
        self._stop()
