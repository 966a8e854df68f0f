"""Whether a process that has not answered yet is at work: the processor time of its working threads.

An actor publishes its :class:`Pulse` by a control method on another thread, since kernels release Python's lock. A
process that is stopped does not answer, and one that waits for ever answers with the same figure each time. To hand
over something large shows as well, since Ray pickles on the method's own thread; but threads of the moment copy each
array above a megabyte, during which the clock stands still.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from raydt.errors import NotWrittenError
from raydt.exchange.faults import fault
from raydt.folders.folder import Folder
from raydt.messages import message
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
        self._at_storage, self._counting = 0, threading.Lock()  # calls that wait for a disk or for a network

    def beat(self) -> None:
        """Declare the calling thread to be a working one."""
        thread = threading.get_ident()
        self._clocks[thread] = time.pthread_getcpuclockid(thread)

    @contextlib.contextmanager
    def storage(self) -> Iterator[None]:
        """Context in which this process reads or writes files, which is progress, however long they take."""
        with self._counting:
            self._at_storage += 1
        try:
            yield
        finally:
            with self._counting:
                self._at_storage -= 1

    @contextlib.contextmanager
    def writing(self, folder: Folder) -> Iterator[None]:
        """As :meth:`storage`, to write parts of a snapshot into a folder; NotWrittenError if that fails."""
        try:
            with self.storage():
                yield
        except OSError as error:
            raise NotWrittenError(message("machine.not_written", reason=str(error)), file=folder.root) from error
        finally:
            fault("shard.after_parts")

    def seconds(self) -> float:
        """Processor time of all working threads so far, and of those that work for them; 0 before the first beat.

        Within :meth:`storage` the time of the clock is added: a disk is waited for, as by the driver.
        """
        seconds = time.monotonic() if self._at_storage else 0.0
        for clock in [*self._clocks.values(), *clocks()]:
            with contextlib.suppress(OSError):  # at the end of the process threads end one by one
                seconds += time.clock_gettime(clock)
        return seconds
