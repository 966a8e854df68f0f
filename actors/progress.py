"""Whether a process that has not answered yet is at work: the processor time of its working threads.

An actor publishes its :class:`Pulse` by a control method that Ray answers on another thread. While a working
thread computes, its clock advances, however long the computation; a process that is stopped does not answer, and
one that waits for ever answers with the same figure each time. Kernels release Python's lock, or the control
method could not be answered at the same time.

Ray pickles what a method returns on the method's own thread, so that handing over something large shows as well. It
copies each array above a megabyte by threads of the moment, whose time counts nowhere; the clock stands still for
as long as one array takes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import NamedTuple

from raydt.parallel.threads import clocks


class Progress(NamedTuple):
    """How far an actor is: processor seconds of its working threads, and whether it waits for another shard."""

    seconds: float
    waits: bool = False


class Pulse:
    """Processor time of the threads that have called :meth:`beat` and of their helpers, for any thread to read (Linux).

    They must last as long as the process, as those do on which Ray calls the methods of an actor.
    """

    def __init__(self) -> None:
        self._clocks: dict[int, int] = {}

    def beat(self) -> None:
        """Declare the calling thread to be a working one."""
        thread = threading.get_ident()
        self._clocks[thread] = time.pthread_getcpuclockid(thread)

    def seconds(self) -> float:
        """Processor time of all working threads so far, and of those that work for them; 0 before the first beat."""
        seconds = 0.0
        for clock in [*self._clocks.values(), *clocks()]:
            with contextlib.suppress(OSError):  # at the end of the process threads end one by one
                seconds += time.clock_gettime(clock)
        return seconds
