"""One run: incarnations of a learner, one after another, until the stream has ended.

Invariant: whatever ends a run, every update before that point has taken effect exactly once, and tables, model,
state and summary describe the same update number, unless there was no time for that (an interruption), or no model any
more; then the last checkpoint is what counts. When a process is lost, everything goes back to the last
checkpoint, and from there on the stream is replayed; since no result depends on a clock or a process, what comes out
is what would have come out without the loss.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from datetime import datetime, timezone
from typing import Any

from actors.telemetry import Telemetry, Unmetered
from pipelines.config import Config
from pipelines.display import going_on
from pipelines.logs import LogContext
from pipelines.progress import Reporter
from pipelines.report.formatting import counted
from pipelines.reporting import publish_report
from pipelines.run_folder import RunFolder
from pipelines.running.checkpointing import Checkpointer
from pipelines.running.feeding import feed
from pipelines.running.incarnations import Incarnations, RestartBudget
from pipelines.running.intake import Intake
from pipelines.running.interruption import HASTE_SECONDS, Interruption
from pipelines.running.past import Past, kept
from pipelines.running.recorder import Recorder
from pipelines.running.restoring import restore_newest
from pipelines.running.result import RunResult
from pipelines.running.summary import exit_code_of, run_summary, write_summary
from pipelines.saving import open_stream, run_meta, state_meta, states_of, stream_at
from raydt.checkpoint import CheckpointStore
from raydt.errors import InputError, ProcessLostError, RaydtError, UpdateError
from raydt.faults import fault
from raydt.persistence import save_folder
from raydt.session import Session
from raydt.snapshot import Snapshot
from raydt.sources.identity import Identity
from raydt.streams.base import Stream
from raydt.updates import BatchResult, UpdateBatch

log = logging.getLogger(__name__)

#: Messages read ahead of a session on Ray.
READ_AHEAD = 3

#: Least time between two updates of the progress shown.
SHOW_SECONDS = 0.2


class Run:
    """One run, from its first update (or the checkpoint it goes on from) to its summary.

    Parameters
    ----------
    config : Config
    folder : RunFolder
    incarnations : Incarnations
    interruption : Interruption
    data : Identity
        Of the source.
    context : LogContext
        Where the run is, for its log.
    past : Past, optional
        Of a run that goes on from the newest checkpoint of its folder.

    Attributes
    ----------
    begun : bool
        Whether an update could be applied. Before, nothing of a run that goes on has been changed.
    """

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        incarnations: Incarnations,
        interruption: Interruption,
        data: Identity,
        context: LogContext,
        past: Past | None = None,
    ) -> None:
        self.config, self.folder, self.data, self.context = config, folder, data, context
        self.incarnations, self.interruption = incarnations, interruption
        store = CheckpointStore(states_of(config, folder), config.checkpoint.keep)
        on_ray, name = config.cluster.backend == "ray", folder.location.rpartition("/")[2]
        self.meter = Telemetry(name, incarnations.epoch + 1) if on_ray else Unmetered()
        self.checkpointer = Checkpointer(config.checkpoint, store, meter=self.meter)
        self.budget = RestartBudget()
        self.undivided = threading.Lock()
        self.begun, self._past = False, past
        self.recoveries = list(past.recoveries) if past is not None else []
        self.started = past.started if past is not None else datetime.now(timezone.utc)
        self.startup_seconds = 0.0
        self._lost_at: float | None = None
        self.digest: str | None = None
        self.work: list[dict[str, Any]] = []
        self.session: Session
        self.stream: Stream
        self.recorder: Recorder
        self.intake: Intake

    def run(self, progress: Reporter, began: float) -> RunResult:
        """Apply the stream, save what came out, and raise what stopped it, if it was an error.

        Parameters
        ----------
        progress : Reporter
        began : float
            When the job began, on ``time.perf_counter``.
        """
        self.interruption.on_cut(lambda: self._cut_short(progress))
        if self._past is None:
            self.folder.write_text("config.yaml", self.config.to_yaml())
        log.info(
            "run started" if self._past is None else "run resumed",
            extra={
                "event": "run_started" if self._past is None else "run_resumed",
                "folder": self.folder.location,
                "config": self.config.name,
                "config_hash": self.config.model_hash(),
            },
        )
        error: Exception | None = None
        try:
            error = self._incarnate(progress, began)
        except SystemExit:
            if self.interruption.signal is None or not self.begun:
                raise
        except Exception as raised:
            if not self.begun:
                raise
            error = raised
        finally:
            progress.stop()
            self.checkpointer.close()
        summary, error = self._finish(error)
        if error is not None:
            log.error("run failed", exc_info=error, extra={"event": "run_failed"})
            if isinstance(error, RaydtError):
                what = "model and state" if summary["model_digest"] is not None else "tables, but no model"
                error.kept = f"{counted(summary['updates'], 'update')} in {self.folder.location} ({what})"
            raise error
        log.info(
            "run ended", extra={"event": "run_ended", "status": summary["status"], "digest": summary["model_digest"]}
        )
        return RunResult(self.folder.location, summary)

    def _incarnate(self, progress: Reporter, began: float) -> Exception | None:
        """One incarnation after another, until one has come to an end; what ended the stream early, if anything.

        Raises
        ------
        RestartsSpentError
            Processes were lost too often.
        SystemExit
            A signal has come, and there is no incarnation that could come to an orderly end.
        Exception
            The learner cannot be trusted any more.
        """
        restoring = self._past is not None
        if self._past is not None:
            self._going_back("resumed", f"resumed after {self._past.ended}", None)
        while True:
            try:
                self.interruption.disarm()
                self._open(restoring)
                if not self.begun:
                    self.startup_seconds = time.perf_counter() - began
                    self._begin()
                    progress.start(self.stream.length())
                error = self._apply(progress)
                self._conclude(error)
                return error
            except ProcessLostError as lost:
                self.interruption.disarm()
                self._recover_from(lost)
                restoring = True

    def _begin(self) -> None:
        """From here on a run that goes on is another than it was: its config, and that it has not ended."""
        if self._past is not None:
            self.folder.write_text("config.yaml", self.config.to_yaml())
            self.folder.delete("summary.json")
        self.begun = True

    def _open(self, restoring: bool) -> None:
        """A new incarnation at the newest checkpoint, or at the beginning."""
        self.session = self.incarnations.open()
        self.context.epoch = self.incarnations.epoch
        restored = None
        if restoring:
            store = self.checkpointer.store
            restored = restore_newest(self.config, self.folder, self.session, store, self.data, self._abandon)
        if restored is not None:
            self.stream, self.recorder = restored
        else:
            self._abandon()
            _, self.stream = open_stream(self.config)
            self.recorder = Recorder(self.folder, self.config.output, self.stream)
            if restoring:
                self.recorder.clear()
        self.context.seq = done = self.recorder.updates
        if restoring:
            self.recoveries[-1]["from_update"] = done
        self.checkpointer.begin(self.stream, done, done if restored is not None else None)
        config = self.config
        self.intake = Intake(
            self.stream,
            config.cluster.batch_size,
            config.output.metrics_every,
            READ_AHEAD if config.cluster.backend == "ray" else 0,
            self.checkpointer.barrier,
        )
        self.interruption.arm(self.intake.stop)

    def _abandon(self) -> None:
        """Let go of the tables of the incarnation before: not earlier, as they count if there is no next one."""
        recorder = getattr(self, "recorder", None)
        if recorder is not None:
            recorder.abandon()

    def _apply(self, progress: Reporter) -> Exception | None:
        """Feed the session, and show now and then how far it is; what ended the stream early, if anything."""
        recorder, show_at = self.recorder, time.perf_counter()

        def recorded(batch: UpdateBatch, result: BatchResult) -> None:
            nonlocal show_at
            self.context.seq = recorder.updates
            if self._lost_at is not None:
                self.recoveries[-1]["seconds"] = time.perf_counter() - self._lost_at
                self._lost_at = None
            fault("driver.recorded")
            self.meter.batch(recorder.statistics, recorder.updates, self.session.under_way)
            if batch.barrier is not None and result.snapshot is not None:
                self._checkpoint(batch.barrier.stream, result.snapshot)
            if time.perf_counter() >= show_at:
                accuracy, _, _ = recorder.prequential.snapshot().shares()
                progress.update(recorder.updates, recorder.active, recorder.statistics["leaves"], accuracy)
                show_at = time.perf_counter() + SHOW_SECONDS

        try:
            feed(self.config, self.session, self.intake, recorder, recorded, self.undivided)
        except InputError as error:  # of the stream, or a refused update: the learner is sound
            return error
        return self.intake.error

    def _conclude(self, error: Exception | None) -> None:
        """Take from the session what is wanted of it in the end: digest, last checkpoint, model."""
        recorder = self.recorder
        recorder.statistics, self.work = recorder.totals(self.session.statistics()), self.session.work()
        self.meter.batch(recorder.statistics, recorder.updates, 0)
        digest = self.session.digest()
        if isinstance(error, UpdateError):
            # The stream has gone on beyond the refused update.
            _, self.stream = stream_at(self.config, recorder.updates)
        self.checkpointer.settle()
        snapshot = self.session.snapshot(self.checkpointer.store.segments)
        complete = error is None and self.interruption.signal is None
        if complete:
            recorder.close()
            fault("run.before_compaction")
            recorder.compact()
        at = self.stream.state()
        self.checkpointer.write_last(recorder.updates, self._meta(at), snapshot, self._components(at))
        meta = run_meta(self.config, self.stream, at, recorder.updates, self.data.fingerprint)
        model, place = {"arrays": self.session.model()}, self.folder.inside("model")
        save_folder(place.root, "model", meta, model, filesystem=place.filesystem)
        if complete:
            recorder.finish_compaction()
        else:
            recorder.close()
        self.digest = digest

    def _checkpoint(self, at: dict[str, Any], snapshot: Snapshot) -> None:
        """Have a checkpoint written of the position the recorder is at."""
        components = self._components(at)
        self.checkpointer.write(self.recorder.updates, self._meta(at), snapshot, components)

    def _meta(self, at: dict[str, Any]) -> dict[str, Any]:
        recorder = self.recorder
        meta = state_meta(self.config, self.stream, at, recorder.updates, recorder.next_id, self.data)
        return meta | {"run": kept(self.config, self.started, self.incarnations.epoch, self.recoveries)}

    def _components(self, at: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What a checkpoint holds beside the learner."""
        recorded = self.recorder.state()
        scores = recorded.pop("prequential")
        return {"stream": at, "recorder": recorded, "scores": scores}

    def _recover_from(self, lost: ProcessLostError) -> None:
        """Give up what the lost process was part of; an error if that happens too often."""
        recorder = getattr(self, "recorder", None)
        log.warning("%s", lost, extra={"event": "process_lost"})
        if recorder is not None:
            self.intake.stop()
        self.checkpointer.settle()
        numbers = self.checkpointer.store.numbers()
        last = numbers[-1] if numbers else None
        self.budget.spend(lost, time.monotonic(), run=self.folder.location, checkpoint=last)
        self.meter.restarted()
        self._going_back("lost", str(lost), recorder.updates if recorder is not None else 0)

    def _going_back(self, kind: str, what: str, at_update: int | None) -> None:
        """Take note of a loss or a new beginning; where it leads, and how long it takes, is seen later."""
        self._lost_at = time.perf_counter()
        self.recoveries.append(
            {
                "kind": kind,
                "what": what,
                "epoch": self.incarnations.epoch,
                "at_update": at_update,
                "from_update": None,
                "seconds": None,
            }
        )

    def _finish(self, error: Exception | None) -> tuple[dict[str, Any], Exception | None]:
        """Write tables, summary and report; an error while saving is the run's, if it had none."""
        recorder, interruption = self.recorder, self.interruption
        try:
            if interruption.signal is not None and self.digest is None and error is None:
                recorder.abandon()  # there is no checkpoint of what it has
            else:
                recorder.close()
        except Exception as raised:  # the summary has to say what happened, whatever it was
            error = error or raised
        fault("run.before_summary")
        report_seconds = None
        if self.config.output.report and (interruption.signal is None or error is not None):
            write_summary(self.folder, self._summary(error))  # which the report shows
            with contextlib.suppress(SystemExit):
                interruption.disarm()
                began = time.perf_counter()
                publish_report(self.folder)
                report_seconds = time.perf_counter() - began
                interruption.hold()
        stop = interruption.settle(exit_code_of(error))
        summary = {**self._summary(error, stop), "report_seconds": report_seconds}
        write_summary(self.folder, summary)
        if summary["status"] == "interrupted":
            interruption.on_cut(lambda: self._interrupted(summary))  # leaving Ray may take longer than there is time
        return summary, error

    def _summary(self, error: Exception | None, stop: signal.Signals | None = None) -> dict[str, Any]:
        """The summary of the run as it is now, ended by an error or a signal."""
        return run_summary(
            config=self.config,
            source=self.stream.source,
            recorder=self.recorder,
            error=error,
            stop=stop,
            digest=self.digest,
            fingerprint=self.data.fingerprint,
            statistics=self.recorder.statistics,
            work=self.work,
            started=self.started,
            startup_seconds=self.startup_seconds,
            recoveries=self.recoveries,
            checkpoints=self.checkpointer.figures(),
        )

    def _cut_short(self, progress: Reporter) -> str | None:
        """The last words of a run that has no time for an orderly end: a summary; also where it goes on, as a line.

        Called in another thread while the main one may be anywhere.
        """
        if not self.begun:
            self.folder.discard_beginning()
            return None
        with contextlib.suppress(Exception):
            progress.stop()
        self.undivided.acquire(timeout=HASTE_SECONDS / 3)
        summary = self._summary(None, self.interruption.signal)
        write_summary(self.folder, summary)
        log.info("run cut short", extra={"event": "interrupted", "last_checkpoint": summary["checkpoints"]["last"]})
        return self._interrupted(summary)

    def _interrupted(self, summary: dict[str, Any]) -> str:
        return f"interrupted at update {summary['updates']:,}; {going_on(summary, self.folder.location)}"
