"""The main loop of every job: batches cut from a stream and read ahead, applied by a session, noted by a tally.

Invariant: everything the intake has taken from the stream is handed on before it ends, so that after the end the
position of the stream is that of the model. It ends without raising; :attr:`Intake.error` says why it ended early.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from typing import Any

from pipelines.chapters.end import ChapterEnd
from pipelines.config import Config
from pipelines.running.marks import Marks
from pipelines.saved_runs import no_rows
from raydt.errors import ProcessLostError, UpdateError
from raydt.examples.updates import BatchResult, UpdateBatch, cut_at
from raydt.exchange.snapshot import Barrier
from raydt.sessions.session import Session
from raydt.streams.base import Skipped, Stream
from raydt.streams.tally import Tally


class Intake:
    """The updates of a stream as messages of at most ``size``, with results at every multiple of ``every``.

    What is recorded at multiples of ``every`` does not depend on ``size``: either no message crosses one, or the
    learner reports what was ``within`` a message. Messages of the ``warmup`` have up to ``large`` updates, if that is
    more: what is recorded within them follows. ``ahead`` messages are read ahead in a background thread; 0 reads in
    the caller's. ``barrier`` is called with the stream and its number of updates after every batch, and returns the
    wish for a snapshot, or None. ``marks`` say where the model's digest is wanted. ``end`` is where the chapter ends,
    if the run has chapters: then the intake is ``full``, and takes nothing more. ``error`` is what ended the stream
    early. Where the source pauses, ``paused`` is called when all that was read is applied, and ``waited`` after it, if
    the run goes on.
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
        large: int = 0,
        warmup: int = 0,
        marks: Marks | None = None,
        end: ChapterEnd | None = None,
    ) -> None:
        self._end, self.full = end, False
        self._marks = marks
        self.paused: Callable[[], object] = lambda: None
        self.waited: Callable[[], object] = lambda: None
        self._barrier, self._within, self._large, self._warmup = barrier, within, large, warmup
        self._stream, self._size, self._every, self._ahead = stream, size if within else min(size, every), every, ahead
        self._stop = threading.Event()
        # With each row the end of its batch, or of the last batch before it and True.
        self._skipped: deque[tuple[tuple[int, bool], Skipped]] = deque()
        self.error: Exception | None = None
        self._read_to = 0  # of the last batch
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

    def resumes(self) -> bool:
        """Wait where the source pauses; True if there may be more to read, False if the stream has ended."""
        pause = getattr(self._stream.source, "pause", None)
        if self.error is None and not self.stopped:
            self.paused()
        if pause is None or self.error is not None or self.stopped:
            return False
        more = pause(self._stop)
        self._note_end(self._read_to)
        if not more or self.stopped:
            return False
        self.waited()
        return True

    @property
    def stopped(self) -> bool:
        """Return True once :meth:`stop` was called, or the chapter is full: the intake reads no more rows."""
        return self._stop.is_set()

    def take_skipped(self, updates: int, *, ended: bool = False) -> list[Skipped]:
        """Return rows passed over up to update ``updates``, not those read ahead, but all if it ``ended``."""
        taken = []
        while self._skipped and self._skipped[0][0] <= (updates, ended):
            taken.append(self._skipped.popleft()[1])
        return taken

    def _read(self) -> Generator[UpdateBatch, None, None]:
        batches, stop = self._batches(), self._read_to
        if self._end is not None and not stop:
            at = self._stream.state()
            stop = self._read_to = at["seq"]
            self._warmup = int(at.get("warmup", self._warmup))
            del at  # while it is there, ids that are elsewhere are kept as they are
            self._note_end(stop)
        try:
            while not self._stop.is_set():
                batch = next(batches, None)
                stop = self._read_to = batch.stop if batch is not None else stop
                if batch is not None and batch.ends_warmup:
                    self._warmup = min(self._warmup, batch.start)
                self._note_skipped(stop, after=batch is None)
                if batch is None:
                    return
                barrier = self._barrier(self._stream, stop)
                if barrier is not None:
                    batch = dataclasses.replace(batch, barrier=barrier)
                self._note_end(stop)
                for piece in [batch] if self._marks is None else self._marks.of(batch):
                    if self._within or (self._large > self._size and batch.stop <= batch.warmup):
                        yield dataclasses.replace(piece, every=self._every)
                    else:
                        yield from split_at_multiples(piece, self._every)
        except ProcessLostError:  # of a shard that reads: nothing about the stream
            raise
        except Exception as error:
            self._note_skipped(stop, after=True)
            self.error = error

    def _batches(self) -> Iterator[UpdateBatch]:
        """Batches of the stream: large ones in its warm-up."""
        if self._large > self._size:
            at = self._stream.state()["seq"]
            while at < self._warmup:
                batch = next(self._stream.batches(min(self._large, self._warmup - at)), None)
                if batch is None:
                    return
                at = batch.stop
                yield batch
        if self._end is None:
            yield from self._stream.batches(self._size)
            return
        while (batch := next(self._stream.batches(self._end.room(self._read_to, self._size)), None)) is not None:
            yield batch

    def _note_end(self, updates: int) -> None:
        """Take nothing more if the chapter ends after ``updates``."""
        if self._end is not None and self._end.reached(updates, self._warmup):
            self.full = True
            self._stop.set()

    def _note_skipped(self, stop: int, *, after: bool) -> None:
        self._skipped.extend(((stop, after), skipped) for skipped in self._stream.take_skipped())

    def _read_ahead(self) -> Generator[UpdateBatch, None, None]:
        pieces = self._read()

        def piece() -> UpdateBatch | None:
            return next(pieces, None)

        def read() -> Future[UpdateBatch | None]:
            return reader.submit(copy_context().run, piece)

        # One worker: the pieces arrive in order, and the generator never runs in two threads at once. It uses as many
        # threads as the run.
        with ThreadPoolExecutor(1, thread_name_prefix="raydt-intake") as reader:
            waiting: deque[Future[UpdateBatch | None]] = deque(read() for _ in range(self._ahead))
            while (batch := waiting.popleft().result()) is not None:
                waiting.append(read())
                yield batch


def feed(
    config: Config,
    session: Session,
    intake: Intake,
    tally: Tally,
    recorded: Callable[[UpdateBatch, BatchResult], None] | None = None,
    undivided: AbstractContextManager[Any] | None = None,
) -> None:
    """Feed the session until the stream ends, the intake is stopped, or an update is refused for good.

    What ended the intake early is in its ``error``. ``recorded`` gets every batch and its result; ``undivided`` is
    entered whenever the tally changes. UpdateError, after all updates before it; InputError without rows.
    """
    refused: UpdateError | None = None
    began = time.perf_counter() - tally.seconds
    more = True
    while more:
        for batch, result in session.process(intake, skip_refused=config.stream.on_error == "skip"):
            with undivided or nullcontext():
                now, before = time.perf_counter() - began, tally.seconds
                for piece, answer in answered(batch, result):
                    share = (piece.start + answer.applied - batch.start) / max(1, result.applied)
                    tally.record(piece, answer, before + share * (now - before))
                tally.record_skipped(intake.take_skipped(tally.updates))
            if result.applied < len(batch):
                refused = tally.update_error(batch, result.refused[-1])
            if recorded is not None:
                recorded(batch, result)
        with undivided or nullcontext():
            tally.record_skipped(intake.take_skipped(tally.updates, ended=True))
        more = refused is None and intake.resumes()
    if refused is not None:
        raise refused
    if intake.error is None and not intake.stopped:
        if not tally.updates and not tally.skipped:
            raise no_rows(config)
        tally.record_log(session.finish())
    tally.seconds = time.perf_counter() - began


def answered(batch: UpdateBatch, result: BatchResult) -> Iterator[tuple[UpdateBatch, BatchResult]]:
    """Yield a message and its result in pieces that end at statistics; the last has the log of all."""
    if not result.within:
        yield batch, result
        return
    begin, moments = 0, iter(result.within)
    for piece in split_at_multiples(batch, batch.every):
        end = begin + len(piece)
        here, last = slice(begin, end), end >= result.applied
        refused = [
            dataclasses.replace(refusal, position=refusal.position - begin)
            for refusal in result.refused
            if begin <= refusal.position < end
        ]
        yield (
            piece,
            dataclasses.replace(
                result,
                applied=min(result.applied, end) - begin,
                predictions=result.predictions[here],
                refused=refused,
                log=result.log if last else {},
                path=result.path[here],
                statistics=result.statistics if last else result.statistics | next(moments),
                snapshot=None,
                levels=None if result.levels is None else result.levels[here],
                within=[],
            ),
        )
        if last:
            return
        begin = end


def split_at_multiples(batch: UpdateBatch, every: int) -> Iterator[UpdateBatch]:
    """Yield ``batch`` in pieces, on the same arrays, that end at multiples of ``every``; a barrier is last."""
    first = batch.start + every - batch.start % every
    if first >= batch.stop:
        yield batch
        return
    yield from cut_at(batch, [*range(first - batch.start, len(batch), every)])
