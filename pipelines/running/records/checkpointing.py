"""When a checkpoint is due, and writing it in the background.

Invariant: at most one checkpoint is asked for or being written, so that each follows the one before it. A checkpoint
that fails is a warning: the ones before it are intact, and the next one is tried when it is due. If several fail one
after the other, a loss would cost more and more work, and the run has to stop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from actors.telemetry import Meter, Unmetered
from pipelines.config import Checkpoint
from raydt.errors import CheckpointsFailError, DeadlineMissedError, ProcessLostError, RaydtError, message_of
from raydt.exchange.snapshot import Barrier, Segment
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore
from raydt.presentation.words import duration
from raydt.streams.base import Stream
from raydt.streams.durations import microseconds

log = logging.getLogger(__name__)

#: Checkpoints that may fail one after the other before the run stops.
MOST_FAILURES = 5


class Checkpointer:
    """Asks for snapshots and writes them.

    Parameters
    ----------
    options : Checkpoint
    store : CheckpointStore
    clock : callable
        Seconds of a clock that never goes back.
    meter : Meter
        Takes note of every checkpoint.
    deadline : str, optional
        How long checkpoints may have held a deleted example, such as ``7d``.

    Attributes
    ----------
    written, failed : int
    seconds : float
        Spent on writing while the run works.
    bytes : int
    last : int or None
        Updates of the last checkpoint.
    """

    def __init__(
        self,
        options: Checkpoint,
        store: CheckpointStore,
        clock: Callable[[], float] = time.monotonic,
        meter: Meter | None = None,
        deadline: str | None = None,
    ) -> None:
        self.store, self._meter = store, meter or Unmetered()
        self._options, self._clock, self._deadline = options, clock, deadline
        self._lock, self._busy = threading.Lock(), False
        self._at, self._when = 0, clock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="raydt-checkpoint")
        self._writing: Future[None] | None = None
        self.written = self.failed = self.bytes = 0
        self.seconds = 0.0
        self.last: int | None = None
        self._failed_in_a_row, self._cause = 0, ""

    def begin(self, updates: int, last: int | None) -> None:
        """Begin an incarnation after so many updates, at the checkpoint ``last``, if there is one."""
        with self._lock:
            self._at, self._when, self._busy = updates, self._clock(), False
        self.last = last

    def barrier(self, stream: Stream, updates: int) -> Barrier | None:
        """The wish for a snapshot after ``updates``, where ``stream`` is now; None if none is due."""
        with self._lock:
            if self._busy or not self._due(updates):
                return None
            self._busy, self._at, self._when = True, updates, self._clock()
        return Barrier(stream.state(), self.store.segments)

    def write(self, content: CheckpointContent) -> None:
        """Write a checkpoint in the background."""
        self._writing = self._writer.submit(self._try, content)

    def write_last(self, content: CheckpointContent) -> None:
        """Write a checkpoint now.

        Raises
        ------
        NotWrittenError
            It cannot be written.
        ProcessLostError
            A process that has a part of it is lost. Then the run is repeated from the checkpoint before, and comes here
            again; so this counts among those that :meth:`require_success` knows.
        """
        self.settle()
        if self._options.max_age is not None:
            self.store.keep = 1
        try:
            self._write(content)
        except ProcessLostError as error:
            self._note_failure(error)
            raise

    def last_segments(self) -> list[Segment]:
        """Segments that the last snapshot can omit; none where copies of deleted examples must not stay for good."""
        segments = self.store.segments
        return segments if self._options.max_age is None else []

    def require_deadline(self) -> None:
        """Stop a run whose checkpoints may hold examples that should be gone.

        Raises
        ------
        DeadlineMissedError
        """
        age = self.store.copies.age()
        if self._deadline is not None and age * 1e6 > microseconds(self._deadline):
            cause = self._cause or "No checkpoint was written in time, or the clock was wrong when a process began"
            raise DeadlineMissedError(
                f"erasure.deadline = {self._deadline} is missed: checkpoints may have held a deleted example for "
                f"{duration(age)}. {cause}. Fix the cause, then run raydt resume with --set erasure.deadline=null, and "
                "raydt purge"
            )

    def require_success(self) -> None:
        """Stop a run whose checkpoints keep failing.

        Raises
        ------
        CheckpointsFailError
            The last :data:`MOST_FAILURES` checkpoints have failed.
        """
        if self._failed_in_a_row >= MOST_FAILURES:
            last = "there is no checkpoint" if self.last is None else f"the last one is of update {self.last:,}"
            raise CheckpointsFailError(
                f"the last {self._failed_in_a_row} checkpoints could not be written, and {last}: {self._cause}. "
                "Fix the cause, then run raydt resume"
            )

    def settle(self) -> None:
        """Wait for what is being written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """No more checkpoints; what is being written is completed."""
        self._writer.shutdown()

    def figures(self) -> dict[str, Any]:
        """For the summary."""
        return {name: getattr(self, name) for name in ("written", "failed", "seconds", "bytes", "last")}

    def _due(self, updates: int) -> bool:
        seconds, every = self._options.every_seconds, self._options.every_updates
        if every is not None and updates // every > self._at // every:
            return True
        return seconds is not None and self._clock() - self._when >= seconds

    def _try(self, content: CheckpointContent) -> None:
        try:
            self._write(content)
        except Exception as error:  # whatever it was: the run continues, and logs it
            self._note_failure(error)
            extra = {"event": "checkpoint_failed", "at": content.number}
            why = None if isinstance(error, RaydtError) else error
            log.warning("a checkpoint could not be written: %s", error, extra=extra, exc_info=why)
        finally:
            with self._lock:
                self._busy = False

    def _note_failure(self, error: Exception) -> None:
        self.failed += 1
        self._failed_in_a_row += 1
        self._cause = message_of(error)

    def _write(self, content: CheckpointContent) -> None:
        began = self._clock()
        size = self.store.write(content)
        seconds = self._clock() - began
        self.written, self.last, self._failed_in_a_row = self.written + 1, content.number, 0
        self.seconds, self.bytes = self.seconds + seconds, self.bytes + size
        self._meter.checkpointed(seconds)
        what = {"event": "checkpoint_written", "at": content.number, "bytes": size, "seconds": round(seconds, 3)}
        log.info("checkpoint written", extra=what)
