"""One run: incarnations of a learner, one after another, until the stream has ended.

Invariant: whatever ends a run, every update before that point has taken effect exactly once, and tables, model,
state and summary describe the same update number, unless there was no time for that (an interruption), or no model any
more; then the last checkpoint is what counts. When a process is lost, everything goes back to the last
checkpoint, and from there on the stream is replayed; since no result depends on a clock or a process, the result
is what would have come out without the loss.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any, NamedTuple

from actors.cluster import Bundle, starts_ray
from actors.placement import Placement
from actors.telemetry import Meter, Telemetry, metrics_served
from pipelines.chapters import Chapter, ClosedStates, earlier, expire, is_closed
from pipelines.config import Config
from pipelines.display import STARTING_RAY, Reporter
from pipelines.logs import LogContext, log_to
from pipelines.run_folder import BEGINNING, CHAPTERS, RunFolder
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.ending import Ending, Interruption, Past, RunResult, kept, new_id, write_report
from pipelines.running.intake import Incarnations, Intake, RestartBudget, feed
from pipelines.running.keyed import recorder_of, sessions_of
from pipelines.running.plans import PlanLog, features_of, warnings_of
from pipelines.running.records import Recorder, Recoveries, writing
from pipelines.running.requests import Requests, requests_of
from pipelines.running.scoring import SCORED, parts_of, score_holdout
from pipelines.saved_runs import run_meta, state_meta, store_of
from pipelines.validation import WARMUP_ROWS, divide, divide_ids, place
from raydt.errors import ConfigError, InputError, ProcessLostError, RaydtError, UpdateError, shortage
from raydt.examples.updates import BatchResult, UpdateBatch
from raydt.exchange.messages import Snapshot, fault
from raydt.folders.arrays import IdsElsewhere, save_folder
from raydt.folders.checkpoint import CheckpointContent, Copies
from raydt.folders.folder import locked
from raydt.keyed.stream import ROWS, KeyedStream, KeyWeights
from raydt.learners import description_of, traits_of
from raydt.learners.base import WeightSum
from raydt.messages import message
from raydt.parallel import work_seconds
from raydt.presentation.charts import duration
from raydt.sessions.session import Session
from raydt.sources.base import SourceIdentity
from raydt.sources.live.followed import FollowedSource
from raydt.streams.base import Stream
from raydt.streams.windows import Training

# The parts of a run at work, and those that a closed chapter hands over to the next one.


class GoingOn(NamedTuple):
    """The parts that a closed chapter hands over: the session, which goes on, the recorder where it is, the meter."""

    session: Session
    recorder: Recorder
    meter: Meter


@dataclass
class Incarnation:
    """Parts of a running run."""

    session: Session
    recorder: Recorder
    intake: Intake
    begun: dict[str, Any]  #: State of the stream at its beginning, or at a later checkpoint.

    def pass_on(self, checkpoint: dict[str, Any]) -> None:
        """Let go of text ids elsewhere as they were before a checkpoint: they are kept for as long as anybody asks."""
        if isinstance(self.begun.get("ids"), IdsElsewhere):
            self.begun = checkpoint


#: What is done with a live source before a run reads it.
Attend = Callable[[FollowedSource, RunFolder], None]

# A job: a run that is begun or resumed, in one folder or in chapters, one after another.
#
# Invariant: a chapter begins when its config is written, which is after the one before it was closed. So wherever a
# process is killed, the newest chapter is either open, and resumes like any run, or closed, and the next one begins.


class Manner(NamedTuple):
    """The way in which a process works on a run; as of :func:`pipelines.replay`."""

    began: float  #: Seconds of work before.
    progress: Reporter | None = None
    attend: Attend | None = None  #: What is done with a live source, and the run folder, before it is read.


class Position(NamedTuple):
    """The position at which a process takes up a run in chapters."""

    number: int = 1  #: Of a chapter.
    past: Past | None = None  #: Of that chapter; None if it is to begin.
    meta: dict[str, Any] | None = None  #: Of its newest checkpoint.


class Job:
    """The work on a run that a process begins, or resumes where the run is ``past``.

    A run is worked on as a whole, or chapter by chapter with the same session; ``data`` is the identity of the source
    of its stream.
    """

    incarnations: Incarnations
    requests: Requests | None  #: Receipts of what the source asks for, if the run writes some.
    meter: Meter  #: Of a run in this process.

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        stream: Stream,
        data: SourceIdentity,
        interruption: Interruption,
        manner: Manner,
        past: Past | None = None,
    ) -> None:
        self.config, self.stream, self.data, self.interruption = config, stream, data, interruption
        self._folder, self._manner, self._past = folder, manner, past
        self.id = past.id if past is not None else new_id()  #: All chapters have that of the first.
        self._features, self._progress = features_of(stream.source, config.learner), manner.progress or Reporter()
        if config.placement.shards is not None:
            self._announce(config.placement)
        if config.cluster.backend == "ray" and starts_ray(config.cluster.address):
            self._progress.stage(STARTING_RAY)

    def work(self, position: Position | None = None) -> RunResult:
        """Work on the run until it ends, from the position of its newest chapter, if it is kept in chapters."""
        config, before = self.config, self._past.epoch if self._past is not None else 0
        make = sessions_of(config, self.stream)
        own_port = config.cluster.metrics_port if config.cluster.backend == "in_process" else None
        with (
            metrics_served(own_port, self._folder.location.rpartition("/")[2]) as self.meter,
            Incarnations(config, self._features, before, self._place, make) as self.incarnations,
            requests_of(config, self._folder, self.stream) as self.requests,
        ):
            if config.follow.in_chapters:
                return self._in_chapters(*(position or Position()))
            return self._on(self._folder, self._past)[0]

    def _in_chapters(self, number: int, past: Past | None, meta: dict[str, Any] | None) -> RunResult:
        run, config, going_on = self._folder, self.incarnations.config, None
        with ThreadPoolExecutor(1, thread_name_prefix="raydt-report") as reports:  # of closed chapters

            def report(folder: RunFolder) -> None:
                if config.output.report and not folder.has("report.html"):
                    reports.submit(copy_context().run, _report_closed, folder)

            for folder in filter(is_closed, run.chapters()):
                report(folder)
            new = not run.has("config.yaml")
            if new:
                with writing(run.location):
                    run.write_text("config.yaml", config.to_yaml())
            try:
                while True:
                    chapter = Chapter.of(run, number, meta)
                    with locked(chapter.folder):
                        chapter.folder.sweep()
                        result, going_on = self._on(chapter.folder, past, chapter, going_on)
                    if going_on is None:
                        if result.status == "completed" and config.output.report:
                            write_report(run)
                        return result
                    fault("chapter.closed")
                    report(chapter.folder)
                    expire(run, config)
                    gc.collect()  # what a chapter leaves: a command looks for garbage seldom (``pipelines.cli``)
                    number, past, meta = number + 1, None, None
            except BaseException:
                if new and not run.chapters():
                    for name in BEGINNING:
                        run.delete(name)
                    run.discard(CHAPTERS)
                raise

    def _on(
        self, folder: RunFolder, past: Past | None, chapter: Chapter | None = None, going_on: GoingOn | None = None
    ) -> tuple[RunResult, GoingOn | None]:
        """Work on what is in a folder until it ends; what the next chapter goes on with, if one is to follow."""
        run: Run | None = None
        config, manner = self.incarnations.config, self._manner
        try:
            if past is None:
                with writing(folder.location):  # before the log: with its config, a run can be resumed
                    folder.write_text("config.yaml", config.to_yaml())
            with log_to(folder, config.output.quote_values) as context:
                if isinstance(source := self.stream.source, FollowedSource):
                    source.plans = PlanLog(folder, before=earlier(folder))
                    if manner.attend is not None and source.pause is None:
                        manner.attend(source, self._folder)
                run = Run(self, folder, context, past, chapter, going_on)
                began = manner.began if going_on is None else work_seconds()
                return run.run(self._progress, began), run.going_on
        except BaseException:
            if past is None and (run is None or not run.begun):  # nothing to keep, and the error says it all
                for name in BEGINNING:
                    folder.delete(name)
            raise

    def _place(self, free: Sequence[Bundle]) -> Config:
        """Return the config with a number of shards, from what is free on each node of the cluster."""
        placed = self.config.placed(place(self.config, self._features, self.stream.source.n_rows, free))
        self._announce(placed.placement)
        return placed

    def _announce(self, placement: Placement) -> None:
        self._progress.stage(message("runs.starting", learner=self.config.learner.kind, where=placement.in_words()))


def _report_closed(folder: RunFolder) -> None:
    """Write the report of a closed chapter, unless another process is at work there."""
    with suppress(ConfigError), locked(folder):
        if folder.has("summary.json"):
            write_report(folder)


log = logging.getLogger(__name__)

#: Messages read ahead of a session on Ray.
READ_AHEAD = 3

#: Least time between two updates of the progress shown.
SHOW_SECONDS = 0.2


class Run:
    """One run folder of a job, from its first update (or the checkpoint it resumes from) to its summary.

    The stream is at its beginning, and every incarnation restores it; ``context`` is that of the log, ``past`` of a run
    that resumes. ``begun`` tells whether an update could be applied: until then, nothing of a run that is resumed has
    changed.

    Of a run that is kept in chapters it is one ``chapter``, and ``going_on`` is what the one before has handed over:
    then the stream is where that has ended.
    """

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        context: LogContext,
        past: Past | None = None,
        chapter: Chapter | None = None,
        going_on: GoingOn | None = None,
    ) -> None:
        incarnations, interruption, stream, data = job.incarnations, job.interruption, job.stream, job.data
        self.id, self.requests = job.id, job.requests
        self.config = config = incarnations.config
        self.chapter, self._handed = chapter, going_on
        self.folder, self.data, self.context = folder, data, context
        self.stream, self._beginning = stream, stream.state() if going_on is None else {}
        self.description = description_of(config.learner)
        self.incarnations, self.interruption = incarnations, interruption
        copies = Copies(config.checkpoint.copies_limit)
        self._by_key = isinstance(stream, KeyedStream)
        self.unit = "row" if self._by_key else "update"  #: By which progress and checkpoints count.
        store = store_of(config, folder, copies)
        whole = folder if chapter is None else chapter.run
        on_ray, name = config.cluster.backend == "ray", whole.location.rpartition("/")[2]
        holdout = past.holdout if past is not None else None
        of_one = isinstance(config.stream, Training) and config.stream.holdout > 0.0 and not self._by_key
        scores = of_one and holdout is None
        first = incarnations.epoch + 1 + scores * (1 + len(parts_of(config)))  # sessions that score come before
        self.meter = going_on.meter if going_on is not None else Telemetry(name, first) if on_ray else job.meter
        closed = None if chapter is None else ClosedStates(chapter.run, config.checkpoint.copies_limit)
        deadline = config.erasure.deadline
        self.checkpointer = Checkpointer(config.checkpoint, store, meter=self.meter, deadline=deadline, closed=closed)
        self.budget, self.undivided = RestartBudget(), threading.Lock()
        self.begun, self._past = False, past
        self.recoveries = Recoveries(past.recoveries if past is not None else ())
        self.lineage = past.lineage if past is not None else []
        self.started = past.started if past is not None else datetime.now(timezone.utc)
        self.ending = Ending(config, folder, data, interruption, self.checkpointer, self.recoveries, self.started)
        self.ending.holdout, self.ending.run = holdout, whole.location
        self.ending.chapter = None if chapter is None else chapter.values()
        self._latest: Incarnation | None = None

    def run(self, progress: Reporter, began: float) -> RunResult:
        """Apply the stream of a job that ``began`` then, save what came out, and raise what stopped it."""
        self.interruption.on_cut(lambda: self._cut_short(progress))
        log.info(
            "run started" if self._past is None else "run resumed",
            extra={
                "event": "run_started" if self._past is None else "run_resumed",
                "folder": self.folder.location,
                "config": self.config.name,
                "id": self.id,
                "config_hash": self.config.model_hash(),
            },
        )
        error: Exception | None = None
        try:
            error = self._incarnate(progress, began)
        except SystemExit:
            if self.interruption.signal is None or not self.begun:
                self._withdraw()
                raise
        except Exception as raised:
            if not self.begun:
                self._withdraw()
                raise
            error = raised
        finally:
            with suppress(SystemExit):
                self.interruption.hold()  # whatever comes now, it must be possible to write down how the run has ended
            progress.stop()
            self.checkpointer.close()
        error = error and (shortage(error) or error)
        now = self._now
        summary, error = self.ending.finish(now.recorder, self.stream.source, error)
        if self.ending.closes:
            self.interruption.on_cut(lambda: None)  # its summary stays as it is
        if error is not None:
            log.error("run failed", exc_info=error, extra={"event": "run_failed"})
            if isinstance(error, RaydtError):
                error.kept = self.ending.kept(summary, error)
            raise error
        log.info(
            "run ended", extra={"event": "run_ended", "status": summary["status"], "digest": summary["model_digest"]}
        )
        return RunResult(self.ending.run, summary)

    @property
    def going_on(self) -> GoingOn | None:
        """Session, recorder and meter for the next chapter, once this one is closed; None of a run that has ended."""
        now = self._now
        return GoingOn(now.session, now.recorder, self.meter) if self.ending.closes else None

    def _incarnate(self, progress: Reporter, began: float) -> Exception | None:
        """Open incarnations until one comes to an end; return what ended the stream early, or None."""
        begins_after = self.chapter is not None and self.chapter.before is not None
        restoring = self._past is not None or (begins_after and self._handed is None)
        if self._past is not None:
            more = self._past.ended == "end_of_stream"
            what = message("runs.resumed_with_files" if more else "runs.resumed", ended=self._past.ended)
            self.recoveries.begin("resumed", what, self.incarnations.epoch, self._past.updates)
        while True:
            try:
                self.interruption.disarm()
                began += self._score(progress)
                self._open(restoring)
                if not self.begun:
                    self.ending.startup_seconds = work_seconds() - began
                    self._begin()
                    if restoring and self.checkpointer.last is not None:
                        progress.stage(self.checkpointer.continuing(self.unit))
                    progress.start(self.stream.length(), f"{self.unit}s", done=self._now.recorder.updates)
                error = self._apply(progress)
                self._conclude(error)
                return error
            except ProcessLostError as lost:
                self.interruption.disarm()
                self._recover_from(lost)
                restoring = True

    def _score(self, progress: Reporter) -> float:
        """Score a model on the rows that a training run holds out, unless that was done; return how long it took."""
        stream = self.config.stream
        if self.ending.holdout is not None or not isinstance(stream, Training):
            return 0.0
        if stream.holdout:
            progress.stage(message("runs.holding_out", share=stream.holdout, rest=1.0 - stream.holdout))
        self.ending.holdout = score_holdout(self.config, self.incarnations)
        told = {name: value for name, value in self.ending.holdout.items() if name != "of_keys"}
        log.info("holdout scored", extra={"event": SCORED, "holdout": told})
        return float(self.ending.holdout["seconds"])

    def _withdraw(self) -> None:
        """An attempt that has changed nothing does not count."""
        if not self.begun:
            self.recoveries.withdraw()

    def _begin(self) -> None:
        """From here on a resumed run differs from the earlier one: in its config, and because it has not ended."""
        if self._past is not None:
            with writing(self.folder.location):
                self.folder.write_text("config.yaml", self.config.to_yaml())
                self.folder.delete("summary.json")
        self.begun = True

    def _open(self, restoring: bool) -> None:
        """A new incarnation at the newest checkpoint, or at the beginning; or the one that goes on in a new chapter."""
        config, handed = self.config, self._handed
        self.ending.closes = False
        self._handed, begins_after = None, None if self.chapter is None else self.chapter.before
        session = self.incarnations.open() if handed is None else handed.session
        self.context.epoch = self.incarnations.epoch
        pids = [entry["pid"] for entry in session.work()]
        log.info("incarnation %d opened", self.incarnations.epoch, extra={"event": "session_opened", "pids": pids})
        if handed is None:
            divide_ids(session, self.stream)
        found, store, large = None, self.checkpointer.store, 0
        if restoring:
            now = (self.stream, self.data, session, self.lineage)
            found = self.checkpointer.newest_restorable(config, self.folder, *now, before=begins_after)
        if handed is not None:
            recorder = recorder_of(self.folder, config, self.stream)
            recorder.continue_from(handed.recorder)
        elif found is not None:
            found.restore(store, self._abandon)
            recorder, self.lineage = found.recorder, found.lineage
        else:
            self._abandon()
            self.stream.restore(self._beginning)
            on_ray = config.cluster.backend == "ray"  # where shards may read the first rows themselves
            large = WARMUP_ROWS if on_ray and divide(config, session, self.stream, self.incarnations.features) else 0
            recorder = recorder_of(self.folder, config, self.stream)
            if restoring:
                recorder.clear()
        marks = None
        if self.requests is not None:
            state = found and found.recorded.get("requests")
            begin = partial(self.requests.begin, state, self.id, self.lineage, session.digest)
            marks = (self.requests.go_on if handed is not None else begin)(self.stream, recorder)
        self.ending.lineage, begun = self.lineage, self.stream.state()
        self.context.seq = done = recorder.updates
        if restoring and self.recoveries.entries:  # none of a chapter that another process begins
            self.recoveries.restored(done)
        self.meter.begin(recorder.statistics, done)
        self.checkpointer.begin(done, done if found is not None or handed is not None else None)
        intake = Intake(
            self.stream,
            config.cluster.batch_size * (ROWS if self._by_key else 1),
            config.output.metrics_every,
            READ_AHEAD if config.cluster.backend == "ray" else 0,
            self.checkpointer.barrier,
            within=self._by_key or traits_of(config.learner).reports_within,  # keys record their figures themselves
            large=min(large, config.checkpoint.every_updates or large),
            warmup=config.stream.warmup,
            marks=marks,
            end=None if self.chapter is None else self.chapter.end(config, self.started),
        )
        if self.requests is not None:
            intake.paused = partial(self.requests.pause, session.digest)
        intake.waited = lambda: self.checkpointer.write_of_pause(
            recorder.updates, lambda segments: self._content(self.stream.state(), session.snapshot(segments))
        )
        self._latest = Incarnation(session, recorder, intake, begun)
        self.interruption.arm(intake.stop)

    @property
    def _now(self) -> Incarnation:
        """The incarnation that works, or has worked last; there is one as soon as the run has begun."""
        assert self._latest is not None
        return self._latest

    def _abandon(self) -> None:
        """Let go of the tables of the incarnation before: not earlier, as they count if there is no next one."""
        if self._latest is not None:
            self._latest.recorder.abandon()

    def _apply(self, progress: Reporter) -> Exception | None:
        """Feed the session, and show now and then how far it is; what ended the stream early, if anything."""
        now, show_at = self._now, time.perf_counter()
        recorder, attending = now.recorder, getattr(self.stream.source, "pause", None)
        stream: Any = self.stream
        weighed: Any = KeyWeights(stream.source) if isinstance(stream, KeyedStream) else WeightSum()
        weighed = None if recorder.updates else weighed  # a run that is resumed was warned when it began
        if attending is not None:
            attending.note(recorder.updates, -1, self.meter)

        def warn_of_weights() -> None:
            nonlocal weighed
            if weighed is not None and (said := weighed.too_little(traits_of(self.config.learner))) is not None:
                log.warning(said, extra={"event": "little_weight"})
                weighed = None

        def recorded(batch: UpdateBatch, result: BatchResult) -> None:
            nonlocal show_at, weighed
            for event, said in warnings_of(batch, recorder.early_warmup, self.config, self.stream.source):
                log.warning(said, extra={"event": event})
            weighed = None if weighed is None else weighed.with_batch(batch)
            if batch.stop >= batch.warmup:
                warn_of_weights()
            if self.requests is not None:
                self.requests.note(batch, result)
            self.context.seq = recorder.updates
            recovered = self.recoveries.has_result()
            if recovered is not None and recovered["kind"] == "lost":
                took, place = duration(recovered["seconds"]), recovered["from_update"]
                progress.stage(message("runs.recovered", duration=took, unit=self.unit, place=place))
            fault("driver.recorded")
            self.meter.batch(recorder.statistics, recorder.updates, now.session.under_way)
            if attending is not None:
                attending.note(recorder.updates, int(batch.row.max(initial=-1)), self.meter)
            self.checkpointer.require_success()
            self.checkpointer.require_deadline()
            if batch.barrier is not None and result.snapshot is not None:
                self.folder.require_own()
                self.checkpointer.write(self._content(batch.barrier.stream, result.snapshot))
            if recorder.updates % self.config.output.metrics_every == 0:
                progress.scored(recorder.updates, dict([recorder.prequential.headline()], active=recorder.active))
            if time.perf_counter() >= show_at:
                score = recorder.prequential.headline()
                progress.update(recorder.updates, recorder.active, self.description.size(recorder.statistics), score)
                show_at = time.perf_counter() + SHOW_SECONDS

        try:
            feed(self.config, now.session, now.intake, recorder, recorded, self.undivided)
            warn_of_weights()  # of rows that are all warm-up, too
        except InputError as error:  # of the stream, or a refused update: the learner is sound
            return error
        finally:
            now.intake.close()
        return now.intake.error

    def _conclude(self, error: Exception | None) -> None:
        """Take from the session what is wanted of it in the end: digest, last checkpoint, model."""
        self.folder.require_own()
        session, recorder = self._now.session, self._now.recorder
        recorder.statistics, self.ending.work = recorder.totals(session.statistics()), session.work()
        self.meter.batch(recorder.statistics, recorder.updates, 0)
        digest = session.digest()
        self.checkpointer.settle()
        if isinstance(error, UpdateError):
            # The stream has gone on beyond the refused update.
            self.stream.restore(self._now.begun)
            while (done := self.stream.state()["seq"]) < recorder.updates:
                next(self.stream.batches(min(self.config.cluster.batch_size, recorder.updates - done)))
        snapshot = session.snapshot(self.checkpointer.last_segments())
        complete = error is None and self.interruption.signal is None
        self.ending.closes = complete and self._now.intake.full
        if complete:
            recorder.complete(session, (self.ending.holdout or {}).get("of_keys", ()))
            if not self.ending.closes:  # else the tables go on in the next chapter
                recorder.close()
            fault("run.before_compaction")
            recorder.compact()
        if self.requests is not None:
            self.requests.end(digest, complete=complete and not self.ending.closes)
            self.ending.receipt = self.requests.head
        self.ending.of_stream = self.stream.figures()
        if complete and not self.ending.closes:
            self.stream.let_go()
        at = self.stream.state()
        self.checkpointer.write_last(self._content(at, snapshot), alone=self.ending.closes)
        meta = run_meta(self.config, self.stream, at, recorder.updates, self.data.fingerprint) | self._lineage()
        model: Any = session.model()
        place = self.folder.inside("model")
        with writing(place.location):
            save_folder(place, "model", meta, model if self._by_key else {"arrays": model})
        if complete:
            recorder.finish_compaction()
        else:
            recorder.close()
        self.ending.digest = digest

    def _content(self, at: dict[str, Any], snapshot: Snapshot) -> CheckpointContent:
        """Return a checkpoint of the position of the recorder, where the state of the stream was ``at``."""
        recorder = self._now.recorder
        self._now.pass_on(at)
        recorded = recorder.state()
        if self.requests is not None:
            recorded["requests"] = self.requests.state()
        components = {"stream": at, "scores": recorded.pop("prequential"), "recorder": recorded}
        meta = state_meta(self.config, self.stream, at, recorder.updates, recorder.next_id, self.data)
        entries = self.recoveries.entries
        run = {"run": kept(self.config, self.id, self.started, self.incarnations.epoch, entries, self.ending.holdout)}
        return CheckpointContent(recorder.updates, meta | run | self._lineage(), snapshot, components)

    def _lineage(self) -> dict[str, Any]:
        own = {} if self.chapter is None else {"chapter": self.chapter.values()}
        return {"lineage": self.lineage, **own} if self.lineage else own

    def _recover_from(self, lost: ProcessLostError) -> None:
        """Give up what the lost process was part of; an error if that happens too often."""
        self.folder.require_own()
        log.warning("%s", lost, extra={"event": "process_lost", "actor": lost.actor, "shard": lost.shard})
        self.checkpointer.settle()
        self.checkpointer.require_success()
        last = self.checkpointer.newest_after(lost)
        # A run that has not begun leaves nothing that could be gone on with.
        there = self.begun or self._past is not None
        self.budget.spend(lost, time.monotonic(), run=self.folder.location if there else None, checkpoint=last)
        self.meter.restarted()
        done = self._latest.recorder.updates if self._latest is not None else 0
        self.recoveries.begin("lost", str(lost), self.incarnations.epoch, done)

    def _cut_short(self, progress: Reporter) -> str | None:
        """The last words of a run that has no time for an orderly end. Called in another thread."""
        if self._latest is None or not self.begun:
            self.folder.discard_beginning()
            return None
        with suppress(Exception):
            progress.stop()
        return self.ending.cut_short(self._latest.recorder, self.stream.source, self.undivided)
