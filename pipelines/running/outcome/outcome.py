"""How a run ends: its tables completed, its summary and report written, by an orderly end or in a hurry.

Invariant: the first error is the one reported. What fails while the end is written down is the run's error only if
it had none, and a report that cannot be written is a warning: the run itself is complete without it.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from datetime import datetime
from typing import Any

from pipelines.config import Config
from pipelines.display import how_to_resume
from pipelines.reporting import publish_report
from pipelines.run_folder import RunFolder
from pipelines.running.interruption import HASTE_SECONDS, Interruption
from pipelines.running.outcome.summary import Ended, exit_code_of, run_summary, write_summary
from pipelines.running.records.checkpointing import Checkpointer
from pipelines.running.records.recorder import Recorder
from pipelines.running.records.recoveries import Recoveries
from pipelines.running.records.table_parts import writing
from raydt.errors import ConfigError, InputError, NotWrittenError, RaydtError, RestartsSpentError
from raydt.exchange.faults import fault
from raydt.presentation.words import counted
from raydt.sources.base import Source
from raydt.sources.identity import Identity

log = logging.getLogger(__name__)


class Ending:
    """Writes down how a run has ended.

    Parameters
    ----------
    config : Config
    folder : RunFolder
    data : Identity
        Of the source.
    interruption : Interruption
    checkpointer : Checkpointer
    recoveries : Recoveries
    started : datetime
        When the run was started first.

    Attributes
    ----------
    startup_seconds : float
    digest : str or None
        Of the model, once model and state are saved.
    work : list of dict
        Work of each shard.
    lineage : list of dict
        Updates that the run has taken in.
    """

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        data: Identity,
        interruption: Interruption,
        checkpointer: Checkpointer,
        recoveries: Recoveries,
        started: datetime,
    ) -> None:
        self._config, self._folder, self._data, self._started = config, folder, data, started
        self._interruption, self._checkpointer, self._recoveries = interruption, checkpointer, recoveries
        self.startup_seconds = 0.0
        self.digest: str | None = None
        self.work: list[dict[str, Any]] = []
        self.lineage: list[dict[str, Any]] = []

    def finish(
        self, recorder: Recorder, source: Source, error: Exception | None
    ) -> tuple[dict[str, Any], Exception | None]:
        """Write tables, summary and report.

        Parameters
        ----------
        recorder : Recorder
        source : Source
        error : Exception or None
            What has ended the run early.

        Returns
        -------
        summary : dict
        error : Exception or None
            The one given, or else what failed here.
        """
        interruption, failure = self._interruption, None
        try:
            self._folder.require_own()
        except RaydtError:
            recorder.abandon()
            raise
        try:
            if interruption.signal is not None and self.digest is None and error is None:
                recorder.abandon()  # there is no checkpoint of what it has
            else:
                recorder.close()
        except Exception as raised:  # the summary has to say what happened, whatever it was
            error = error or raised
        fault("run.before_summary")
        report_seconds = None
        if self._config.output.report and (interruption.signal is None or error is not None):
            failure = self._write(self.summary(recorder, source, error))  # which the report shows
            if failure is None:
                fault("run.before_report")
                report_seconds = self._report()
        error = error or failure
        stop = interruption.settle(exit_code_of(error))
        summary = {**self.summary(recorder, source, error, stop), "report_seconds": report_seconds}
        unwritten = self._write(summary)
        error = error or unwritten
        if summary["status"] == "interrupted":
            # Leaving Ray may take longer than there is time.
            interruption.on_cut(lambda: self._interrupted(summary))
        return summary, error

    def cut_short(self, recorder: Recorder, source: Source, undivided: threading.Lock) -> str:
        """Write the summary of a run that has no time for an orderly end; returns the line that says how to resume.

        Called in another thread while the main one may be anywhere; ``undivided`` is held while the recorder changes.
        """
        try:
            self._folder.require_own()
        except RaydtError as gone:
            return str(gone)
        undivided.acquire(timeout=HASTE_SECONDS / 3)
        summary = self.summary(recorder, source, None, self._interruption.signal)
        write_summary(self._folder, summary)
        log.info("run cut short", extra={"event": "interrupted", "last_checkpoint": summary["checkpoints"]["last"]})
        return self._interrupted(summary)

    def summary(
        self, recorder: Recorder, source: Source, error: Exception | None, stop: signal.Signals | None = None
    ) -> dict[str, Any]:
        """The summary of the run as it is now, ended by an error or a signal."""
        ended = Ended(
            error,
            stop,
            self.digest,
            self._data.fingerprint,
            self.work,
            self._started,
            self.startup_seconds,
            self._recoveries.entries,
            self.lineage,
            self._checkpointer.figures(),
        )
        return run_summary(self._config, source, recorder, ended)

    def kept(self, summary: dict[str, Any], error: Exception) -> str:
        """Return what a failed run keeps, and how to resume it if the cause can pass."""
        what = "model and state" if summary["model_digest"] is not None else "tables, but no model"
        text = f"{counted(summary['updates'], 'update')} in {self._folder.location} ({what})"
        # A bad row is there the next time too, and an error after all restarts names its own remedy.
        stays = isinstance(error, (ConfigError, InputError)) and not isinstance(error, NotWrittenError)
        if stays or isinstance(error, RestartsSpentError):
            return text
        return f"{text}; {how_to_resume(summary, self._folder.location)}"

    def _write(self, summary: dict[str, Any]) -> NotWrittenError | None:
        """Write the summary; the error, if it cannot be written."""
        self._folder.require_own()
        try:
            with writing(f"{self._folder.location}/summary.json"):
                write_summary(self._folder, summary)
        except NotWrittenError as error:
            log.warning("%s", error, extra={"event": "summary_failed"})
            return error
        return None

    def _report(self) -> float | None:
        """Write the report, unless a signal breaks it off; how long it took, None if there is none."""
        seconds = None
        with contextlib.suppress(SystemExit):
            self._interruption.disarm()
            began = time.perf_counter()
            if write_report(self._folder):
                seconds = time.perf_counter() - began
            self._interruption.hold()
        return seconds

    def _interrupted(self, summary: dict[str, Any]) -> str:
        return f"interrupted at update {summary['updates']:,}; {how_to_resume(summary, self._folder.location)}"


def write_report(folder: RunFolder) -> bool:
    """Write ``report.html`` of a run that has ended; whether that was possible, which is a warning if it was not."""
    try:
        publish_report(folder)
    except Exception as error:  # whatever it is, the run is what counts
        log.warning(
            "the report could not be written: %s. The run is complete. Write its report: raydt report %s",
            error,
            folder.location,
            extra={"event": "report_failed"},
        )
        log.info("why the report was not written", exc_info=error)
        return False
    return True
