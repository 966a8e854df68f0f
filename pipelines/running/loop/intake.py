"""Batches on their way from a stream to a session: cut, read ahead, stopped cleanly.

Invariant: everything the intake has taken from the stream is handed on before it ends, so that after the end the
position of the stream is that of the model. It ends without raising; :attr:`Intake.error` says why it ended early.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from pipelines.running.loop.metric_cuts import split_at_multiples
from raydt.examples.updates import UpdateBatch
from raydt.exchange.snapshot import Barrier
from raydt.streams.base import Skipped, Stream


class Intake:
    """The updates of a stream as messages of at most ``size``, with results at every multiple of ``every``.

    What is recorded at multiples of ``every`` does not depend on ``size``: either no message crosses one, or the
    learner reports what was ``within`` a message.

    Parameters
    ----------
    stream : Stream
    size : int
        Updates per message.
    every : int
        Where messages end, unless the learner reports within them.
    ahead : int
        Messages read ahead in a background thread; 0 reads in the caller's.
    barrier : callable, optional
        Called with the stream and its number of updates after every batch: the wish for a snapshot, or None.
    within : bool
        Whether the learner reports within messages.

    Attributes
    ----------
    error : Exception or None
        What ended the stream early.
    """

    def __init__(
        self,
        stream: Stream,
        size: int,
        every: int,
        ahead: int = 0,
        barrier: Callable[[Stream, int], Barrier | None] = lambda stream, updates: None,
        *,
        within: bool = False,
    ) -> None:
        self._barrier, self._within = barrier, within
        self._stream, self._size, self._every, self._ahead = stream, size if within else min(size, every), every, ahead
        self._stop = threading.Event()
        # With each row the end of its batch, or of the last batch before it and True.
        self._skipped: deque[tuple[tuple[int, bool], Skipped]] = deque()
        self.error: Exception | None = None
        self._reading: Generator[UpdateBatch, None, None] = self._read()

    def __iter__(self) -> Iterator[UpdateBatch]:
        self._reading = self._read_ahead() if self._ahead else self._read()
        return self._reading

    def close(self) -> None:
        """Stop, and wait until nobody reads the stream: from then on it can be restored."""
        self.stop()
        self._reading.close()

    def stop(self) -> None:
        """Take nothing more from the stream. Safe in a signal handler and from any thread."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stop.is_set()

    def take_skipped(self, updates: int, *, ended: bool = False) -> list[Skipped]:
        """Rows passed over since the last call, up to the end of the batch that made the number of updates so many.

        Those met while reading ahead are not among them: a resume from a checkpoint taken now meets them again.
        With ``ended``, those after that batch are, if it was the last.
        """
        taken = []
        while self._skipped and self._skipped[0][0] <= (updates, ended):
            taken.append(self._skipped.popleft()[1])
        return taken

    def _read(self) -> Generator[UpdateBatch, None, None]:
        batches, stop = self._stream.batches(self._size), 0
        try:
            while not self._stop.is_set():
                batch = next(batches, None)
                stop = batch.stop if batch is not None else stop
                self._note_skipped(stop, after=batch is None)
                if batch is None:
                    return
                barrier = self._barrier(self._stream, stop)
                if barrier is not None:
                    batch = dataclasses.replace(batch, barrier=barrier)
                if self._within:
                    yield dataclasses.replace(batch, every=self._every)
                else:
                    yield from split_at_multiples(batch, self._every)
        except Exception as error:
            self._note_skipped(stop, after=True)
            self.error = error

    def _note_skipped(self, stop: int, *, after: bool) -> None:
        self._skipped.extend(((stop, after), skipped) for skipped in self._stream.take_skipped())

    def _read_ahead(self) -> Generator[UpdateBatch, None, None]:
        pieces = self._read()

        def read() -> UpdateBatch | None:
            return next(pieces, None)

        # One worker: the pieces arrive in order, and the generator never runs in two threads at once.
        with ThreadPoolExecutor(1, thread_name_prefix="raydt-intake") as reader:
            waiting: deque[Future[UpdateBatch | None]] = deque(reader.submit(read) for _ in range(self._ahead))
            while (batch := waiting.popleft().result()) is not None:
                waiting.append(reader.submit(read))
                yield batch
