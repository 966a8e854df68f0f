"""The checkpoints of a run: when one is due, writing it in the background, and going back to the newest.

Invariant: at most one checkpoint is being taken or written, so that each follows the one before it. A checkpoint
that fails is a warning: the ones before it are intact, and the next one is tried when it is due. If several fail one
after the other, a loss would cost more and more work, and the run has to stop. After :meth:`Restorable.restore`
learner, stream and tables are at the same update. A checkpoint that is damaged is passed over with a warning that
names it; one of another config or of other data is an error, before anything is changed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple, Protocol

from actors.telemetry import Meter
from pipelines.config import Config
from pipelines.operation import CheckpointOptions
from pipelines.run_folder import STATES, RunFolder, fitting
from pipelines.running.keyed import recorder_of
from pipelines.running.plans import require_same, require_updated
from pipelines.running.records import Recorder
from pipelines.saved_runs import last_state
from raydt.errors import (
    CheckpointsFailError,
    DeadlineMissedError,
    FormatVersionError,
    InputError,
    ModelFileError,
    ProcessLostError,
    RaydtError,
    message_of,
)
from raydt.exchange.messages import Barrier, Segment
from raydt.folders.arrays import MANIFEST, apart, read_manifest
from raydt.folders.checkpoint import Checkpoint, CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.messages import Message, message
from raydt.presentation.charts import duration
from raydt.sessions.saved_model import BY_KEY, outlined, understood
from raydt.sessions.session import Session
from raydt.sources.base import SourceIdentity
from raydt.streams.base import Stream, microseconds

log = logging.getLogger(__name__)

#: Checkpoints that may fail one after the other before the run stops.
MOST_FAILURES = 5


class _Progress(NamedTuple):
    """Updates done, and the time on the clock."""

    updates: int
    seconds: float


#: Least seconds between checkpoints of pauses, and least pause in multiples of what the last one took.
PAUSE_SECONDS, PAUSE_SHARE = 1.0, 9.0
#: Each leaves a part of every table until the chapter ends: after n of them the next waits for a tenth of n seconds, so
#: that there are 270 after an hour in which changes trickle.
PAUSES_PER_SECOND = 10


class Copied(Protocol):
    """States elsewhere that may hold deleted examples."""

    def age(self) -> float:
        """Most seconds for which a deleted example may have been in one of them."""

    def expire(self) -> None:
        """Remove those that are too old."""


class Checkpointer:
    """Asks for snapshots and writes them.

    ``clock`` gives seconds and never goes back; ``deadline`` is how long checkpoints may have held a deleted example,
    such as ``7d``, and so may those of ``closed`` chapters. The summary has :meth:`figures`: checkpoints ``written``
    and ``failed``, ``seconds`` spent on writing while the run works, ``bytes``, and updates of the ``last`` checkpoint.
    """

    def __init__(
        self,
        options: CheckpointOptions,
        store: CheckpointStore,
        clock: Callable[[], float] = time.monotonic,
        meter: Meter | None = None,
        deadline: str | None = None,
        closed: Copied | None = None,
    ) -> None:
        self.store, self._meter, self._closed = store, meter or Meter(), closed
        self._options, self._clock, self._deadline = options, clock, deadline
        self._lock, self._busy = threading.Lock(), False
        self._taken = self._newest = _Progress(0, clock())  # the last snapshot, and the last place where one was due
        self._passed = False  # there was none at the newest place so far
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="raydt-checkpoint")
        self._writing: Future[None] | None = None
        self.written = self.failed = self.bytes = 0
        self.seconds = 0.0
        self.last: int | None = None
        self._failed_in_a_row, self._cause = 0, ""
        self._ended, self._took = -math.inf, 0.0  # the last one that was written: when, and for how long
        self._pauses = 0  # checkpoints of pauses so far
        self._copied = 0.0  # seconds for which the last one of a pause was copied, when nothing else goes on

    def begin(self, updates: int, last: int | None) -> None:
        """Begin an incarnation after so many updates, at the checkpoint ``last``, if there is one."""
        with self._lock:
            self._taken = self._newest = _Progress(updates, self._clock())
            self._busy = self._passed = False
        self.last = last

    def barrier(self, stream: Stream, updates: int) -> Barrier | None:
        """The wish for a snapshot after ``updates``, where ``stream`` is now; None if none is due.

        Whether there will be one is decided when whoever takes it asks (:meth:`_wanted`): this may be read far ahead.
        """
        with self._lock:
            late = self._passed and not self._busy
            if not self._due(updates, self._taken if late else self._newest):
                return None
            self._newest, self._passed = _Progress(updates, self._clock()), False
        return Barrier(stream.state(), partial(self._wanted, updates))

    def _wanted(self, updates: int) -> list[Segment] | None:
        """Decide whether a snapshot is taken after ``updates``: not while another one is under way to the disk."""
        with self._lock:
            if self._busy or not self._due(updates, self._taken):
                self._passed = True
                return None
            self._busy, self._taken = True, _Progress(updates, self._clock())
        return self.store.segments

    def write_of_pause(self, updates: int, content: Callable[[list[Segment]], CheckpointContent]) -> None:
        """Write a checkpoint where the source pauses after ``updates``, if it has something new: readers wait for it.

        Also if copies of deleted examples have to go, or the last one failed; DeadlineMissedError as of
        :meth:`require_deadline`. Only where checkpoints come by time; at most each second, for a tenth of the time, and
        rarer the more there were.
        """
        self.require_deadline()
        limit = self.store.copies.limit
        with self._lock:
            began = self._clock()
            rest = began - self._ended
            if self._options.every_seconds is None or self._busy:
                return
            if rest < max(PAUSE_SECONDS, PAUSE_SHARE * (self._copied + self._took)):
                return
            wanted = self._failed_in_a_row > 0 or (limit is not None and self.store.copies.age() >= limit)
            late = wanted and self._due(updates, self._taken)
            new = updates > self._taken.updates and rest >= self._pauses / PAUSES_PER_SECOND
            if not (new or late):
                return
            self._busy, self._taken, self._pauses = True, _Progress(updates, began), self._pauses + 1
        copy = content(self.store.segments)
        self._copied = self._clock() - began
        self.write(copy)

    def write(self, content: CheckpointContent) -> None:
        """Write a checkpoint in the background."""
        self._writing = self._writer.submit(copy_context().run, self._try, content)

    def write_last(self, content: CheckpointContent, *, alone: bool = False) -> None:
        """Write a checkpoint now; NotWrittenError or, after which the run is repeated, ProcessLostError.

        Those before it go if it is to be ``alone``, or copies of deleted examples must not stay.
        """
        self.settle()
        if alone or self._options.max_age is not None:
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
        """Stop (DeadlineMissedError) a run whose checkpoints may hold examples that should be gone."""
        age = self.store.copies.age() if self._closed is None else max(self.store.copies.age(), self._closed.age())
        if self._deadline is not None and age * 1e6 > microseconds(self._deadline):
            cause = self._cause or message("runs.late_checkpoint")
            said = message("runs.deadline_missed", deadline=self._deadline, age=duration(age), cause=cause)
            raise DeadlineMissedError(said)

    def require_success(self) -> None:
        """Stop (CheckpointsFailError) a run whose last :data:`MOST_FAILURES` checkpoints have failed."""
        if self._failed_in_a_row >= MOST_FAILURES:
            name = "no_checkpoint" if self.last is None else "old_checkpoint"
            said = {"failed": self._failed_in_a_row, "last": self.last, "cause": self._cause}
            raise CheckpointsFailError(message(f"runs.{name}", **said))

    def settle(self) -> None:
        """Wait for what is being written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """No more checkpoints; what is being written is completed."""
        self._writer.shutdown()

    def newest_restorable(
        self,
        config: Config,
        folder: RunFolder,
        stream: Stream,
        data: SourceIdentity,
        session: Session,
        lineage: Sequence[Mapping[str, Any]] = (),
        before: RunFolder | None = None,
    ) -> Restorable | None:
        """Return the newest sound checkpoint with the updates of ``lineage``, stream and session restored, or None.

        A chapter without a checkpoint goes on from the last state of the chapter ``before``, with empty tables.

        Where shards read their own parts, only they find damage in these. ProcessLostError if a process was lost
        meanwhile.

        ConfigError if it is of another config or other data; RaydtError if none that is there can be used.
        """
        newest: InputError | None = None
        store = self.store

        def restorable(place: Folder, *, tables: bool) -> Restorable:
            recorder = recorder_of(folder, config, stream)
            checkpoint = read_checkpoint(place, apart=True)
            check = outlined if BY_KEY in checkpoint.meta else understood  # each key is checked when it is restored
            saved = check(checkpoint.meta, checkpoint.components, place.location)
            with fitting(place.location):
                require_same(config, data, stream, checkpoint.meta, place.location)
                known = require_updated(checkpoint.meta, lineage, place.location)
                stream.restore(apart(checkpoint.components, place))
                recorded = {**checkpoint.components["recorder"], "prequential": checkpoint.components["scores"]}
                recorded |= {} if tables else {"tables": {}}
                recorder.require(recorded)
            session.restore(saved.arrays, saved.groups, saved.buckets, place)
            return Restorable(checkpoint if tables else None, recorder, recorded, known)

        numbers = _numbers(store)
        for number in reversed(numbers):
            place = store.folder.inside(str(number))
            try:
                return restorable(place, tables=True)
            except FormatVersionError:
                raise
            except InputError as error:
                said = message("runs.checkpoint_skipped", problem=message_of(error.but(remedy=None)))
                said = said if number != numbers[0] else said.alone()
                log.warning(said, extra={"event": "checkpoint_damaged", "at": number})
                newest = newest or error
        if newest is not None:
            places = {"folder": store.folder.location, "run": folder.location}
            raise RaydtError(message("runs.bad_checkpoints", error=message_of(newest), **places)) from newest
        if before is not None:
            return restorable(last_state(before.inside(STATES)), tables=False)
        require_updated({}, lineage, store.folder.location)
        store.continue_from(None)
        log.warning(message("runs.from_beginning"), extra={"event": "restarted"})
        return None

    def newest_after(self, lost: ProcessLostError) -> int | None:
        """Return the newest checkpoint's number once a process is lost; RaydtError if the folder cannot be read."""
        try:
            return max(self.store.numbers(), default=None)
        except OSError as error:
            said = message("runs.no_rollback", lost=str(lost), folder=self.store.folder.location, error=str(error))
            raise RaydtError(said) from error

    def continuing(self, unit: str) -> Message:
        """Return the sentence that names the update, or other unit, of the checkpoint that a run resumes from."""
        last, states = self.last, self.store.folder
        with contextlib.suppress(OSError):
            taken = states.filesystem.get_file_info(states.path(f"{last}/{MANIFEST}")).mtime
            if taken is not None:
                return message("runs.continuing_checkpoint", unit=unit, place=last, time=taken.astimezone())
        return message("runs.continuing", unit=unit, place=last)

    def figures(self) -> dict[str, Any]:
        """For the summary."""
        return {name: getattr(self, name) for name in ("written", "failed", "seconds", "bytes", "last")}

    def _due(self, updates: int, last: _Progress) -> bool:
        seconds, every = self._options.every_seconds, self._options.every_updates
        if every is not None and updates // every > last.updates // every:
            return True
        return seconds is not None and self._clock() - last.seconds >= seconds

    def _try(self, content: CheckpointContent) -> None:
        try:
            self._write(content)
        except Exception as error:  # whatever it was: the run continues, and logs it
            self._note_failure(error)
            extra = {"event": "checkpoint_failed", "at": content.number}
            why = None if isinstance(error, RaydtError) else error
            log.warning(message("runs.checkpoint_failed", error=message_of(error)), extra=extra, exc_info=why)
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
        self._ended, self._took = began + seconds, seconds
        self._meter.checkpointed(seconds)
        if self._closed is not None:
            self._closed.expire()
        what = {"event": "checkpoint_written", "at": content.number, "bytes": size, "seconds": round(seconds, 3)}
        log.info("checkpoint written", extra=what)


class Restorable(NamedTuple):
    """A checkpoint that was found sound; nothing has been changed yet but learner and stream, which are there."""

    checkpoint: Checkpoint | None  #: None of the last state of the chapter before.
    recorder: Recorder
    recorded: dict[str, Any]  #: State of the recorder.
    lineage: list[dict[str, Any]]  #: Updates in the life of the model.

    def restore(self, store: CheckpointStore, abandon: Callable[[], None]) -> None:
        """Restore the tables; ``abandon`` is called before they are changed, which is the last step."""
        # In this order: the tables are cut back when no later checkpoint is left that refers to what is cut.
        store.continue_from(self.checkpoint)
        abandon()
        self.recorder.restore(self.recorded)
        log.info("restored", extra={"event": "restored", "at": self.recorder.updates})


def _numbers(store: CheckpointStore) -> list[int]:
    try:
        return store.numbers()
    except OSError as error:
        raise RaydtError(message("runs.checkpoints_unreadable", error=str(error)).at(store.folder.location)) from error


def newest_meta(config: Config, data: SourceIdentity, stream: Stream, store: CheckpointStore) -> dict[str, Any] | None:
    """Return ``meta`` of the newest checkpoint that has one, or None; ConfigError if it is of another run."""
    for number in reversed(_numbers(store)):
        place = store.folder.inside(str(number))
        try:
            manifest = read_manifest(place)
        except FormatVersionError:
            raise
        except ModelFileError:
            continue  # it is named when it is passed over for good
        meta = {**manifest.meta, **manifest.origin}
        require_same(config, data, stream, meta, place.location)
        return meta
    return None
