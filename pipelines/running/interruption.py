"""SIGINT and SIGTERM: an orderly end if there is time for it, and an end in any case.

The first signal stops the intake and starts a clock. An orderly end (what was read is applied and saved) has
:data:`GRACE_SECONDS`. Then, or at a second signal, a thread of its own writes the summary of the job, nothing
more, and ends the process: the main thread may be in a compiled kernel, in a read or in Ray, where no Python handler
runs. A resume from the last checkpoint repeats the lost updates exactly.

Invariant: from the first signal to the end of the process no more than :data:`LIMIT_SECONDS` pass, and what was
written by then says the exit code: either the main thread has settled it, or that thread does, never both.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from actors.processes import end_private_ray
from pipelines.printing import escaped

SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: From the first signal: when the job is cut short, and when the process ends whatever the summary is waiting for.
#: ``ray job stop`` kills after 3 seconds; memory of many gigabytes takes some tenths of one to be given back.
GRACE_SECONDS, LIMIT_SECONDS = 1.2, 2.3

#: How long the summary may take after a second signal.
HASTE_SECONDS = 0.15

#: What wraps a command (``timeout``, package managers) hands on a signal that the terminal or the system has sent to
#: the whole group already. The same signal within this time is that, not a second wish.
REPEATED_SECONDS = 0.03


class Interruption:
    """Context in which signals are wishes to end soon; the first is in ``signal``.

    Outside the main thread, where Python allows no handlers, it does nothing. In an interactive session the process is
    the user's, and is not ended: a signal stops the intake, and a second one raises.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._stop: Callable[[], None] | None = None
        self._last_words: Callable[[], str | None] = lambda: None
        self._previous: dict[signal.Signals, Any] = {}
        self._previous_wakeup = self._wakeup = -1
        self._lock, self._ending, self._settled = threading.Lock(), False, False
        self._raised, self._exit_code = False, 0

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            if not hasattr(sys, "ps1"):
                # The interpreter's own handler writes the number to the pipe at once, whatever the main thread does.
                heard, self._wakeup = os.pipe()
                os.set_blocking(self._wakeup, False)
                self._previous_wakeup = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
                threading.Thread(target=self._listen, args=(heard,), name="raydt-signals", daemon=True).start()
            self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        code = error.code if isinstance(error, SystemExit) else None
        self._settle(self._exit_code)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._wakeup >= 0:
            signal.set_wakeup_fd(self._previous_wakeup)
            os.close(self._wakeup)  # which ends the thread
        if code is not None and self.signal is not None and code != 128 + self.signal:
            raise SystemExit(128 + self.signal)  # it was ray.init's handler that raised

    def arm(self, stop: Callable[[], None], last_words: Callable[[], str | None] | None = None) -> None:
        """From now on a signal calls ``stop`` instead of raising SystemExit in the main thread.

        ``stop`` asks for an orderly end, and may be called more than once, in any thread; ``last_words`` are as of
        :meth:`on_cut`. SystemExit if a signal has come since :meth:`disarm`; one that came while another ``stop`` was
        armed calls this one.
        """
        if last_words is not None:
            self._last_words = last_words
        before, self._stop = self._stop, stop
        if self.signal is not None and before is not None:
            stop()
        else:
            self.check()

    def hold(self) -> None:
        """From now on a signal does nothing but start the clock; SystemExit if one has come already."""
        self.arm(_nothing)

    def disarm(self) -> None:
        """From now on a signal raises SystemExit in the main thread; so does this, if one has come already."""
        self._stop = None
        self.check()

    def check(self) -> None:
        """Raise SystemExit if a signal has come."""
        if self.signal is not None:
            self._raised = True
            raise SystemExit(128 + self.signal)

    def on_cut(self, last_words: Callable[[], str | None]) -> None:
        """Set the function that ends the process: called once, in another thread than the main one.

        It may not rely on anything that the main thread is changing, and returns a line to be shown on stderr.
        """
        with self._lock:
            if not self._ending:
                self._last_words = last_words
                return
        threading.Event().wait()  # the other thread is ending the process

    def settle(self, failed: int | None = None) -> signal.Signals | None:
        """Decide how the job has ended: what is written from now on is the truth, and no last words contradict it.

        ``failed`` is the exit code of the error that has ended the job. Returns the signal that has interrupted it; one
        that comes later only shortens what is left to do.
        """
        self._stop = _nothing
        wish = self.signal
        self._settle(failed if failed is not None else 128 + wish if wish is not None else 0)
        return wish

    def _settle(self, code: int) -> None:
        self._stop = self._stop or _nothing
        with self._lock:
            if not self._ending:
                if not self._settled:
                    self._last_words = lambda: None
                self._settled, self._exit_code = True, code
                return
        threading.Event().wait()  # the other thread is ending the process

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of the main thread, which runs when it gets to it."""
        first = self.signal is None
        stop = self._wish(number)
        if (stop is None and not self._raised) or (self._wakeup < 0 and not first):
            self._raised = True
            raise SystemExit(128 + number)  # which nothing on the way takes for an error of the run

    def _wish(self, number: int) -> Callable[[], None] | None:
        if self.signal is None:
            self.signal = signal.Signals(number)
        stop = self._stop
        if stop is not None:
            stop()
        return stop

    def _listen(self, heard: int) -> None:
        """The thread: hears signals, and ends the process in time."""
        poll = select.poll()
        poll.register(heard, select.POLLIN)
        began: float | None = None
        while True:
            if began is not None:
                passed = time.monotonic() - began
                remaining = (LIMIT_SECONDS if self._settled else GRACE_SECONDS) - passed
                if remaining <= 0:
                    self._end(LIMIT_SECONDS - passed)
                    continue
                if not poll.poll(1000 * remaining):
                    continue
            numbers = os.read(heard, 64)
            if not numbers:
                os.close(heard)
                return
            for number in numbers:
                now = time.monotonic()
                if number not in SIGNALS:
                    continue
                if began is None:
                    began = now
                    self._wish(number)
                elif number != self.signal or now - began > REPEATED_SECONDS:
                    self.signal = signal.Signals(number)
                    self._end(HASTE_SECONDS, at_once=True)

    def _end(self, seconds: float, *, at_once: bool = False) -> None:
        """End the process after the last words, which have so many seconds and, once it is settled, only speak."""
        with self._lock:
            settled = self._settled
            if settled and seconds > 0 and not at_once:
                return  # what was settled is being written
            self._ending = True
        assert self.signal is not None
        code = self._exit_code if settled else 128 + self.signal
        for act in (self._speak, end_private_ray):
            acting = threading.Thread(target=_unheard, args=(act,), name="raydt-ending", daemon=True)
            acting.start()
            acting.join(max(seconds, HASTE_SECONDS))
        os._exit(code)

    def _speak(self) -> None:
        line = self._last_words()
        sys.stderr.write(escaped(line or ("interrupted" if self.signal == signal.SIGINT else "terminated")) + "\n")
        sys.stderr.flush()
        sys.stdout.flush()


def _unheard(act: Callable[[], None]) -> None:
    """Call a function at the end of the process, when nothing can report its failure."""
    with contextlib.suppress(BaseException):
        act()


def _nothing() -> None:
    """The signal or error that stops a job."""
