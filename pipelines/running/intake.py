"""The main loop of every job: batches cut from a stream and read ahead, applied by a session, noted by a tally.

Invariant: everything the intake has taken from the stream is handed on before it ends, so that after the end the
position of the stream is that of the model. It ends without raising; :attr:`Intake.error` says why it ended early.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stdout, suppress
from contextvars import copy_context
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

from actors.cluster import Bundle, Cluster, bundles, connect, free_on_nodes
from actors.telemetry import Meter
from pipelines.chapters import ChapterEnd
from pipelines.config import Config
from pipelines.logs import LinesToLog
from pipelines.receipts import may_quote, said
from pipelines.run_folder import RunFolder
from pipelines.running.requests import Marks
from pipelines.saved_runs import no_rows
from raydt.arrays import kernel
from raydt.arrays.kernel_cache import compile_once
from raydt.errors import ConfigError, ProcessLostError, RaydtError, RestartsSpentError, UpdateError
from raydt.evaluation import warmup as warm_up_evaluation
from raydt.examples.updates import BatchResult, Features, UpdateBatch, cut_at
from raydt.exchange.messages import Barrier
from raydt.folders.arrays import parsed
from raydt.learners import learners
from raydt.messages import message
from raydt.parallel import work_seconds
from raydt.presentation.charts import counted, duration
from raydt.sessions.session import BY_KEY, DIVIDED, ONE_MODEL, InProcessSession, Session, compile_missing
from raydt.sources.live.base import LiveSource, SourceAwayError
from raydt.sources.live.followed import FollowedSource, Step
from raydt.streams.base import Skipped, Stream, Tally
from raydt.streams.deletion_log import warmup as warm_up_streams


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
    began = work_seconds() - tally.seconds
    more = True
    while more:
        for batch, result in session.process(intake, skip_refused=config.stream.on_error == "skip"):
            with undivided or nullcontext():
                now, before = work_seconds() - began, tally.seconds
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
    tally.seconds = work_seconds() - began


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


# One incarnation of a learner after another, wherever the config has it run, and how many of them there may be.
#
# Invariant: incarnations are numbered from 1, each is opened after the one before it was closed, and the number of an
# incarnation is never used again in a run: what a late process of an older one says is refused by it. An incarnation on
# Ray is opened only on a Ray that answers.

log = logging.getLogger(__name__)


class _Meanwhile:
    """Work in another thread while Ray starts, which is mostly waiting; what fails is raised when it is needed."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="raydt-warmup", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failed = error

    def require(self) -> None:
        """Wait until the work is done."""
        self._thread.join()
        if self._failed is not None:
            raise self._failed


class Incarnations:
    """Sessions of the learner of a config: a context that ends the last of them, and Ray if it was started for them.

    The run has had ``before`` incarnations in earlier processes; the first one here has the next number. ``place``
    gives a config without a number of shards its number (:mod:`pipelines.validation`), from what is free on each node
    of the cluster; it is called once, as soon as the cluster is joined. ConfigError if there is no cluster at the
    address, RaydtError if a private Ray could not be started.
    """

    def __init__(
        self,
        config: Config,
        features: Features,
        before: int = 0,
        place: Callable[[Sequence[Bundle]], Config] | None = None,
        session: Callable[[Config, int, Cluster | None, Any], Session] | None = None,
    ) -> None:
        self.epoch = self._before = before  #: Number of the incarnation opened last.
        self.config = config  #: With a number of shards.
        self.features, self._learner = features, learners()[config.learner.kind]
        self._session: Session | None = None
        self._make = session  # of models by key
        self._cluster: Cluster | None = None
        with ExitStack() as opening:
            if config.cluster.backend == "ray":
                # Ray prints what its raylet says of lost processes, and has no switch for it. stdout belongs to
                # results, and the run itself reports each loss.
                opening.enter_context(redirect_stdout(LinesToLog(log, "ray")))
                self._compiled = _Meanwhile(self._compile)
                self._resources = config.cluster.resources.model_dump(exclude_none=True)
                self._cluster = self._connect(config.cluster.address)
                opening.callback(self._disconnect)
                if place is not None and config.placement.shards is None:
                    self.config = place(free_on_nodes())
            self._ending = opening.pop_all()

    def _compile(self) -> None:
        """Compile what the processes of the learner would each compile; one process compiles what it meets."""
        uses = BY_KEY if self._make is not None else DIVIDED if self.config.placement.divided else ONE_MODEL
        weighted = getattr(self.config.source, "weight", None) is not None
        compile_missing(self._learner, self.config.learner, uses, self.features, weighted)
        kernel.load()
        compile_once("streams", "raydt.streams", warm_up_streams)
        compile_once("evaluation", "raydt.evaluation", warm_up_evaluation)

    def _connect(self, address: str | None) -> Cluster:
        requested = bundles(self.config.placement.shards or 1, self._resources)
        return connect(address, requested, metrics_port=self.config.cluster.metrics_port)

    def _disconnect(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def open(self) -> Session:
        """Open the next incarnation, empty; only after ProcessLostError is there sense in calling again."""
        self._leave()
        self.epoch += 1
        shards, plan = self.config.placement.shards or 1, self.config.placement.plan
        if self._make is not None:
            self._session = self._by_key(self._make)
        elif self._cluster is None:
            self._session = InProcessSession(self._learner, self.config.learner, self.features, shards, plan)
        else:
            self._compiled.require()
            self._session = self._on_ray(self._answering(self._cluster), shards)
        return self._session

    def _by_key(self, make: Callable[[Config, int, Cluster | None, Any], Session]) -> Session:
        """Open a session of models by key."""
        if self._cluster is None:
            return make(self.config, self.epoch, None, None)
        self._compiled.require()
        return make(self.config, self.epoch, self._answering(self._cluster), self._resources)

    def _answering(self, cluster: Cluster) -> Cluster:
        """Return a Ray that answers: a private one that is gone is replaced, a cluster that is gone is an error."""
        if cluster.answers():
            return cluster
        if not cluster.started:
            raise RaydtError(message("runs.cluster_gone", address=cluster.address))
        cluster.close()
        self._cluster = self._connect("local")
        return self._cluster

    def _on_ray(self, cluster: Cluster, shards: int) -> Session:
        from actors.session import RaySession  # which imports Ray

        try:
            return RaySession(
                cluster,
                self._learner,
                self.config.learner,
                self.features,
                shards=shards,
                plan=self.config.placement.plan,
                resources=self._resources,
                epoch=self.epoch,
                patience=self.config.cluster.patience_seconds,
            )
        except ConfigError as error:
            if self.epoch == self._before + 1:
                raise
            raise RaydtError(message("runs.after_loss", error=str(error))) from error

    def close(self) -> None:
        """End the last incarnation and leave Ray. Returns also if its processes are stopped, or Ray is gone."""
        with self._ending:
            self._leave()

    def __enter__(self) -> Incarnations:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _leave(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


class RestartBudget:
    """Budget of recoveries, ``most`` in any period of ``seconds``: a fault may not go away by itself."""

    def __init__(self, most: int = 5, seconds: float = 600.0) -> None:
        self.most, self.seconds = most, seconds
        self._losses: list[tuple[float, str, str]] = []  # not the errors, whose tracebacks hold a whole incarnation

    def spend(self, lost: ProcessLostError, now: float, *, run: str | None, checkpoint: int | None) -> None:
        """Note a loss, and permit one restart; RestartsSpentError if the period has had its restarts."""
        self._losses = [loss for loss in self._losses if now - loss[0] < self.seconds]
        self._losses.append((now, str(lost), lost.advice))
        if len(self._losses) <= self.most:
            return
        times = Counter(what for _, what, _ in self._losses)
        losses = "; ".join(what if n == 1 else f"{what} ({n} times)" for what, n in times.items())
        remedies = [text for text in dict.fromkeys(advice for _, _, advice in self._losses) if text]
        if run is not None and checkpoint is None:
            remedies.append(message("runs.missing_checkpoint", run=run))
        elif run is not None:
            remedies.append(message("runs.intact_checkpoint", update=checkpoint, run=run))
        minutes, restarts = max(1, round((now - self._losses[0][0]) / 60)), counted(self.most, "restart")
        said = {"restarts": restarts, "minutes": counted(minutes, "minute"), "losses": losses}
        raise RestartsSpentError(message("runs.restarts_spent", **said, remedy=". ".join(remedies)))


# Waiting for a live source that a run follows, and saying how far behind it the run is.
#
# Invariant: nothing here changes what is read; only when. While nothing new is there, pauses grow, so that waiting
# costs next to no processor; while the source does not answer they grow further, and one line says so. A run is said to
# be level only when it has just asked for all that there is.

STATUS = "status.json"

#: First and longest pause, in seconds: while nothing new is there, and while the source does not answer.
IDLE, AWAY = (0.02, 1.0), (0.5, 60.0)
#: Least seconds between two writings of the status while rows come, between two while none come, between log lines.
BUSY_EVERY, IDLE_EVERY, LOG_EVERY = 1.0, 10.0, 60.0
#: Seconds to which ages are told apart.
TOGETHER = 0.05


class Arrivals:
    """Times at which units of a source came that the model does not have yet, as far as the source has told.

    A unit is counted once: those of a plan are the difference of what is behind the plan before it and behind it. What
    a look finds has come after the look before it: its age is never said too low.
    """

    def __init__(self, live: LiveSource) -> None:
        self._live = live
        self.step: Step | None = None  #: The newest plan that the model has.
        self._taken = self._behind = 0
        self._looked: float | None = None  #: The last moment of a look.
        self._known = deque[tuple[float, int]]()  #: Moments of looks, and the units known at the next one.

    def look(self, now: float, step: Step | None) -> None:
        """Ask what has come by ``now``; the model has the rows of ``step``."""
        before = self._live.behind(None if self.step is None else self.step.plan)
        if step is not None and (self.step is None or step.number > self.step.number):
            self.step = step
        self._behind = self._live.behind(None if self.step is None else self.step.plan)
        self._taken += max(0, before - self._behind)
        known, since = self._taken + self._behind, now if self._looked is None else self._looked
        if not self._known or self._known[-1][1] < known:
            if self._known and since - self._known[-1][0] < TOGETHER:  # so that few moments are kept while it lags
                since, _ = self._known.pop()
            self._known.append((since, known))
        while self._known and self._known[0][1] <= self._taken:
            self._known.popleft()
        self._looked = now

    def lag(self, now: float) -> dict[str, Any]:
        """Return the number of units that the model does not have, and the age of the oldest of them at most."""
        seconds = now - self._known[0][0] if self._known else 0.0
        return {"behind": self._behind, "unit": self._live.unit, "seconds": round(seconds, 3)}


class Attending:
    """Waits for ``source`` whenever it pauses; called with an event that ends the waiting at once.

    It says False, which ends the stream, after nothing new has come for ``until_idle`` seconds.
    """

    def __init__(
        self,
        source: FollowedSource,
        folder: RunFolder,
        until_idle: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self.folder, self._until_idle, self._clock = source, folder, until_idle, clock
        self._arrivals, self._row = Arrivals(source.live), -1
        self._last_new = clock()  #: When a plan last came.
        self._seen, self._pause = -1, IDLE[0]
        self._held_as: str | None = None  #: Why it waits: "away", or "waiting" for a bad row to be repaired.
        self._held_since, self._asked = 0.0, False
        self._written = self._logged = -LOG_EVERY
        self._updates, self._meter = 0, Meter()
        self._applied: Step | None = None  #: The newest plan of which the model has all rows.
        self._told: tuple[int, str | None] = (0, None)  #: Updates that the status has, and why the run waits.

    def __call__(self, stop: threading.Event) -> bool:
        """Wait for a while; whether reading goes on."""
        now, step = self._clock(), self._source.last
        number = -1 if step is None else step.number
        if number != self._seen:
            self._seen, self._last_new, self._pause = number, now, IDLE[0]
        self._asked = self._source.held is None
        self._applied = self._source.read_to()
        self._note_held(now)
        self._arrivals.look(now, self._applied or self._resumed())
        if self._asked and self._until_idle is not None and now - self._last_new >= self._until_idle:
            self._write(now)
            return False
        self._report(now, IDLE_EVERY)
        longest = (AWAY if self._held_as == "away" else IDLE)[1]
        stop.wait(min(self._pause, longest))
        self._pause = min(2 * self._pause, longest)
        return not stop.is_set()

    def _note_held(self, now: float) -> None:
        """Log when a source is held, and when it is no longer."""
        held = self._source.held
        held_as = None if held is None else "away" if isinstance(held, SourceAwayError) else "waiting"
        if held_as == self._held_as:
            return
        if self._held_as is not None:
            name = {"away": "back", "waiting": "repaired"}[self._held_as]
            took = duration(now - self._held_since)
            log.warning("%s", message(f"live.{name}", duration=took), extra={"event": f"source_{name}"})
        if held is not None:
            name = "waiting" if held_as == "away" else "waiting_row"
            log.warning("%s", message(f"live.{name}", error=str(held)), extra={"event": f"source_{held_as}"})
        self._held_as, self._held_since = held_as, now
        self._pause = (AWAY if held_as == "away" else IDLE)[0]

    def note(self, updates: int, row: int, meter: Meter) -> None:
        """Take note of the updates done, up to a row; now and then say how far behind the run is."""
        now = self._clock()
        self._updates, self._row, self._meter, self._asked = updates, max(row, self._row), meter, False
        self._applied = self._source.done_by(self._row) or self._applied or self._source.restored
        self._arrivals.look(now, self._applied or self._resumed())
        self._report(now, BUSY_EVERY)

    def _resumed(self) -> Step | None:
        """Return the plan that a resumed run goes on with, until it is done, where those before are unknown."""
        last = self._source.last
        return last if last is not None and last.number and self._arrivals.step is None else None

    def _report(self, now: float, every: float) -> None:
        """Write status, metrics and log, if the last time was so many seconds ago, or it waits for another reason."""
        told = (self._updates, self._held_as)
        if told[1] != self._told[1] or now - self._written >= (BUSY_EVERY if told != self._told else every):
            self._write(now)

    def lag(self) -> dict[str, Any]:
        """Return the lag of the model behind the source, in units of the source and in seconds."""
        now = self._clock()
        lag = self._arrivals.lag(now)
        if self._held_as is None:
            return lag
        return lag | {"seconds": max(lag["seconds"], round(now - self._held_since, 3))}

    def _write(self, now: float) -> None:
        self._written, self._told, lag = now, (self._updates, self._held_as), self.lag()
        held = self._source.held
        self._meter.lag(lag["behind"], lag["seconds"])
        level = self._asked and not lag["behind"]
        status = {
            "state": self._held_as or ("level" if level else "behind"),
            "reason": None if held is None else said(held, may_quote(self.folder.location)),
            "updates": self._updates,
            "source": self._source.live.name,
            "applied": self._place(self._applied),
            "read": self._place(self._source.last),
            **lag,
        }
        write_status(self.folder, status)
        if now - self._logged >= LOG_EVERY:
            self._logged = now
            log.info("following", extra={"event": "following", **status})

    def _place(self, step: Step | None) -> str | None:
        return None if step is None else self._source.live.place(step.plan)

    def fail(self, reason: str) -> None:
        """Say that the run has failed, and how far the model is."""
        self._write(self._clock())
        write_failure(self.folder, reason)


def write_status(folder: RunFolder, status: Mapping[str, Any]) -> None:
    """Write or replace the status of a run that follows."""
    time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    folder.write_text(STATUS, json.dumps({**status, "time": time}, indent=2) + "\n")


def write_failure(folder: RunFolder, reason: str) -> None:
    """Say in the status of a run that it has failed and why; what else is there stays as the last process wrote it."""
    with suppress(OSError, ValueError):
        known = parsed(folder.read_text(STATUS)) if folder.has(STATUS) else {}
        write_status(folder, {**known, "state": "failed", "reason": reason})
