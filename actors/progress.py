"""Whether a process that has not answered yet is at work: the processor time of its working thread.

An actor publishes its :class:`Pulse` by a control method that Ray answers on another thread. While the working
thread computes, its clock advances, however long the computation; a process that is stopped does not answer, and
one that waits for ever answers with the same figure each time. Kernels release Python's lock, or the control
method could not be answered beside them.
"""

from __future__ import annotations

import threading
import time


class Pulse:
    """Processor time of the thread that last called :meth:`beat`, readable from any thread (Linux)."""

    def __init__(self) -> None:
        self._clock: int | None = None

    def beat(self) -> None:
        """Declare the calling thread to be the working one."""
        self._clock = time.pthread_getcpuclockid(threading.get_ident())

    def seconds(self) -> float:
        """Processor time of the working thread so far; 0 before the first beat."""
        return 0.0 if self._clock is None else time.clock_gettime(self._clock)
