"""One run: incarnations of a learner, one after another, until the stream has ended.

Invariant: whatever ends a run, every update before that point has taken effect exactly once, and tables, model,
state and summary describe the same update number, unless there was no time for that (an interruption), or no model any
more; then the last checkpoint is what counts. When a process is lost, everything goes back to the last
checkpoint, and from there on the stream is replayed; since no result depends on a clock or a process, the result
is what would have come out without the loss.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from actors.telemetry import Meter, Telemetry
from pipelines.chapters import Chapter, ClosedStates
from pipelines.config import Config
from pipelines.display import Reporter
from pipelines.keyed.recorder import recorder_of
from pipelines.logs import LogContext
from pipelines.run_folder import RunFolder
from pipelines.running.checkpoint import Checkpointer, newest_restorable
from pipelines.running.ending import Ending, Interruption, Past, RunResult, kept, new_id
from pipelines.running.intake import Incarnations, Intake, RestartBudget, feed
from pipelines.running.plans import warnings_of
from pipelines.running.records import Recorder, Recoveries, writing
from pipelines.running.requests import Requests
from pipelines.saved_runs import open_stream, run_meta, state_meta, store_of
from pipelines.validation import WARMUP_ROWS, divide, divide_ids
from raydt.arrays.kernel_cache import work_seconds
from raydt.errors import InputError, ProcessLostError, RaydtError, UpdateError, shortage
from raydt.evaluation.scoring import LEVELS
from raydt.examples.updates import NUMBERS, BatchResult, Features, UpdateBatch
from raydt.exchange.messages import Snapshot, fault
from raydt.folders.arrays import IdsElsewhere, save_folder
from raydt.folders.checkpoint import CheckpointContent, Copies
from raydt.keyed.stream import ROWS, KeyedStream, KeyWeights
from raydt.learners import description_of, learners, traits_of
from raydt.learners.base import WeightSum
from raydt.messages import message
from raydt.presentation.charts import duration
from raydt.sessions.session import Session
from raydt.sources.base import SourceIdentity
from raydt.streams.base import Stream, Tally, known
from raydt.streams.windows import ALL_ROWS, Rest, Training, TrainingStream

# The score of a training run: a model trained on the rest of the rows predicts those that are held out.
#
# Invariant: the predictions are those of the saved model (``raydt predict``). The score is a function of source,
# learner and share. It is known before the model of the run, which is trained on all rows, has seen one.

#: Event in the log that has the score.
SCORED = "holdout_scored"

#: Scores that follow the stream, which a fixed model does not.
_OF_STREAMS = ("alarms", "kappa_temporal", "no_change")

#: Rows predicted at a time.
_ROWS = 1 << 14


def score_holdout(config: Config, incarnations: Incarnations) -> dict[str, Any]:
    """Return the entry ``holdout`` of a training run's summary: :func:`scored`, ``share`` and ``seconds``."""
    assert isinstance(config.stream, Training)
    found: dict[str, Any] = {"share": config.stream.holdout, "rows": 0, "trained_on": 0, "seconds": 0.0}
    found |= {"metrics": {}, "baselines": {}}
    if not config.stream.holdout:
        return found
    began, session = work_seconds(), incarnations.open()
    _, stream = open_stream(config)
    assert isinstance(stream, TrainingStream)
    found |= scored(config, session, stream.rest(), incarnations.features)
    return {**found, "seconds": work_seconds() - began}


def scored(config: Config, session: Session, rest: Rest, features: Features) -> dict[str, Any]:
    """Train on ``rest`` and return scores of the rows held out; InputError or UpdateError for a bad one."""
    weighted = config.output.weighted_metrics
    tally, intake = Tally(rest, weighted=weighted), Intake(rest, config.cluster.batch_size, ALL_ROWS)
    feed(config, session, intake, tally)
    if intake.error is not None:
        raise intake.error
    predictor = learners()[config.learner.kind].predictor(config.learner, features, session.model())
    scores, rows = tally.prequential, 0
    for part in rest.held_out(_ROWS) if tally.inserts else ():
        sparse: dict[str, Any] = {} if part.sparse is None else {"sparse": part.sparse}
        rival, levels = np.full(len(part), scores.rivals_now()[1], dtype=part.y.dtype), None
        if part.y.dtype != NUMBERS:
            shares = predictor.predict_proba(part.X, max(2, len(rest.source.classes)), **sparse)
            levels = np.floor(LEVELS * shares[:, 1] + 0.5).astype(np.uint16)
        predicted = np.asarray(predictor.predict(part.X, **sparse)).astype(part.y.dtype)
        scores.score(part.y, predicted, (rival, rival), levels, weight=part.weight if weighted else None)
        rows += len(part)
    figures = _of_a_model(known(scores.figures(len(rest.source.classes)))) if rows else {}
    rivals = _of_a_model(known(scores.baselines())) if rows else {}
    return {"rows": rows, "trained_on": tally.inserts, "metrics": figures, "baselines": rivals}


def _of_a_model(scores: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in scores.items() if name not in _OF_STREAMS and "faded" not in name}


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


log = logging.getLogger(__name__)

#: Messages read ahead of a session on Ray.
READ_AHEAD = 3

#: Least time between two updates of the progress shown.
SHOW_SECONDS = 0.2


class Run:
    """One run, from its first update (or the checkpoint it resumes from) to its summary.

    ``stream`` is at its beginning, and every incarnation restores it; ``data`` is the identity of its source,
    ``context`` that of the log, ``past`` of a run that resumes. ``begun`` tells whether an update could be applied:
    until then, nothing of a run that is resumed has changed.

    Of a run that is kept in chapters it is one ``chapter``, and ``going_on`` is what the one before has handed over:
    then the stream is where that has ended.
    """

    def __init__(
        self,
        folder: RunFolder,
        incarnations: Incarnations,
        interruption: Interruption,
        stream: Stream,
        data: SourceIdentity,
        context: LogContext,
        past: Past | None = None,
        chapter: Chapter | None = None,
        going_on: GoingOn | None = None,
    ) -> None:
        self.id = past.id if past is not None else new_id()  #: All chapters have that of the first.
        self.requests: Requests | None = None  #: Receipts of what the source asks for, if the run writes some.
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
        scores = holdout is None and isinstance(config.stream, Training) and config.stream.holdout > 0.0
        first = incarnations.epoch + 1 + scores  # a session that scores comes before
        self.meter = going_on.meter if going_on is not None else Telemetry(name, first) if on_ray else Meter()
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
            with contextlib.suppress(SystemExit):
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
        log.info("holdout scored", extra={"event": SCORED, "holdout": self.ending.holdout})
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
            found = newest_restorable(config, self.folder, store, *now, before=begins_after)
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
            recorder.complete(session)
            if not self.ending.closes:  # else the tables go on in the next chapter
                recorder.close()
            fault("run.before_compaction")
            recorder.compact()
        if self.requests is not None:
            self.requests.end(digest, complete=complete and not self.ending.closes)
            self.ending.receipt = self.requests.head
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
        with contextlib.suppress(Exception):
            progress.stop()
        return self.ending.cut_short(self._latest.recorder, self.stream.source, self.undivided)
