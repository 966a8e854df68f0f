"""The end of a run, orderly or in a hurry: tables are completed, summary and report written.

Invariant: the first error is the one reported. What fails while the end is written down is the run's error only if
it had none, and a report that cannot be written is a warning: the run itself is complete without it. ``summary.json``
is one flat, stable mapping.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import logging
import platform
import signal
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import raydt
from actors.memory import peak_rss_bytes
from pipelines.config import Config
from pipelines.display import how_to_resume
from pipelines.redaction import said
from pipelines.reporting import publish_report
from pipelines.run_folder import RunFolder
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.interruption import HASTE_SECONDS, Interruption
from pipelines.running.records.recorder import Recorder
from pipelines.running.records.recoveries import Recoveries
from pipelines.running.records.table_parts import writing
from raydt.errors import ConfigError, InputError, NotWrittenError, RaydtError, RestartsSpentError, message_of
from raydt.exchange.faults import fault
from raydt.folders.manifest import parsed
from raydt.keyed.session import KeyFailedError
from raydt.learners import description_of
from raydt.messages import Message, message
from raydt.presentation.words import counted
from raydt.sources.base import Source
from raydt.sources.identity import Identity

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1

#: Reason of the end of a closed chapter; the run goes on in the next one.
END_OF_CHAPTER = "end_of_chapter"

#: Statistics of the coordinator that the summary repeats.
_STATISTICS = ("rebuilds", "rebuilt_rows", "nodes", "leaves", "depth", "rounds", "bytes_exchanged")


@dataclass(frozen=True, repr=False)
class RunResult:
    """Result of a run."""

    path: str  #: The run folder: an absolute path or a URI.
    summary: dict[str, Any]  #: Content of ``summary.json``.

    def __repr__(self) -> str:
        return f"RunResult({self.path!r}, {self.status}, {self.summary['updates']:,} updates)"

    @property
    def status(self) -> str:
        """``completed`` or ``interrupted``."""
        return str(self.summary["status"])

    @property
    def exit_code(self) -> int:
        """Exit code of the command line: 0, 130 or 143."""
        return int(self.summary["exit_code"])

    @property
    def digest(self) -> str:
        """Digest of the final model."""
        return str(self.summary["model_digest"])

    @property
    def metrics(self) -> dict[str, Any]:
        """Prequential metrics of the whole run; of a training run those of the rows that were held out."""
        return dict(self.summary["metrics"])


class Ending:
    """Writes down how a run has ended that was first ``started`` then."""

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
        self.startup_seconds = 0.0  #: Connecting, compiling and opening, before the first update.
        self.digest: str | None = None  #: Of the model, once model and state are saved.
        self.work: list[dict[str, Any]] = []  #: Of each shard.
        self.lineage: list[dict[str, Any]] = []  #: Updates from elsewhere that the run has taken in.
        self.holdout: dict[str, Any] | None = None  #: Of a training run, once its score is known.
        self.run = folder.location  #: Of which it may be a chapter.
        self.receipt: str | None = None  #: Hash of the last line of the run's chain, if it has one.
        self.chapter: dict[str, Any] | None = None  #: Number and lineage of a chapter, for the summary.
        self.closes = False  #: It is the chapter that ends, and the run goes on.

    def finish(
        self, recorder: Recorder, source: Source, error: Exception | None
    ) -> tuple[dict[str, Any], Exception | None]:
        """Write tables, summary and report of a run; return the summary, and the first error of it or here."""
        interruption, failure = self._interruption, None
        try:
            self._folder.require_own()
        except RaydtError:
            recorder.abandon()
            raise
        try:
            if interruption.signal is not None and self.digest is None and error is None:
                recorder.abandon()  # there is no checkpoint of what it has
            elif not self.closes:  # the tables go on in the next chapter
                recorder.close()
        except Exception as raised:  # the summary has to say what happened, whatever it was
            error = error or raised
        fault("run.before_summary")
        report_seconds = None
        reports = self._config.output.report and not self.closes  # else the report is written while the run goes on
        if reports and (interruption.signal is None or error is not None):
            failure = self._write(self.summary(recorder, source, error))  # which the report shows
            if failure is None:
                fault("run.before_report")
                report_seconds = self._report()
        error = error or failure
        stop = None if self.closes and error is None else interruption.settle(exit_code_of(error))
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
        statistics, seconds, config = recorder.statistics, recorder.seconds, self._config
        holdout = dict(self.holdout) if self.holdout is not None else None
        scores = {"metrics": recorder.metrics(), "baselines": recorder.baselines()}
        if holdout is not None:
            scores = {name: holdout.pop(name) for name in scores}
        return {
            "schema_version": SCHEMA_VERSION,
            "name": config.name,
            **_end(error, stop, config.output.quote_values, closes=self.closes),
            "learner": config.learner.kind,
            "updates": recorder.applied,
            "inserts": recorder.inserts,
            "deletes": recorder.deletes,
            "replaced": recorder.replaced,
            "queries": recorder.queries,
            "predictions": recorder.predictions,
            "refused": recorder.refused,
            "skipped": recorder.skipped,
            "active": recorder.active,
            "seconds": seconds,
            "updates_per_second": recorder.applied / seconds if seconds else 0.0,
            **scores,
            "holdout": holdout,
            **{name: statistics.get(name, 0) for name in _STATISTICS},
            **recorder.outcome(
                description_of(config.learner), lambda feature: source.features.name(feature, tokens_of(source))
            ),
            "peak_rss_bytes": peak_rss_bytes()
            + sum(each.get("peak_rss_bytes", 0) for each in (statistics, *self.work)),
            "shards": config.placement.shards,
            "backend": config.cluster.backend,
            "where": config.placement.where,
            "restarts": sum(entry["kind"] == "lost" for entry in self._recoveries.entries),
            "recoveries": self._recoveries.entries,
            "lineage": self.lineage,
            **({} if self.receipt is None else {"receipt": self.receipt}),
            **({} if self.chapter is None else {"chapter": self.chapter}),
            "early_warmup": recorder.early_warmup,
            "times": recorder.times_read(),
            "checkpoints": self._checkpointer.figures(),
            "model_digest": self.digest,
            "started": self._started.astimezone(timezone.utc).isoformat(timespec="seconds"),
            "ended": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "raydt_version": raydt.__version__,
            "versions": versions(),
            "config_hash": config.model_hash(),
            "source_fingerprint": self._data.fingerprint,
            "label": getattr(config.source, "label", None),
            "classes": recorder.classes,
            "positive": source.positive,
            "features": source.features.describe(),
            "startup_seconds": self.startup_seconds,
            "report_seconds": None,
            "work": self.work,
            "audit": None,
        }

    def kept(self, summary: dict[str, Any], error: Exception) -> str:
        """Return what a failed run keeps, and how to resume it if the cause can pass."""
        name = "kept_model" if summary["model_digest"] is not None else "kept_tables"
        text = message(f"runs.{name}", updates=counted(summary["updates"], "update"), run=self.run)
        # A bad row is there the next time too, and an error after all restarts names its own remedy.
        stays = isinstance(error, (ConfigError, InputError, KeyFailedError)) and not isinstance(error, NotWrittenError)
        if stays or isinstance(error, RestartsSpentError):
            return text
        return f"{text}; {how_to_resume(summary, self.run)}"

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

    def _interrupted(self, summary: dict[str, Any]) -> Message:
        resume = how_to_resume(summary, self.run)
        return message("runs.interrupted_at", update=summary["updates"], resume=resume)


def write_report(folder: RunFolder) -> bool:
    """Write ``report.html`` of a run that has ended; whether that was possible, which is a warning if it was not."""
    try:
        publish_report(folder)
    except Exception as error:  # whatever it is, the run is what counts
        unwritten = message("runs.no_report", error=message_of(error), run=folder.location)
        log.warning(unwritten, extra={"event": "report_failed"})
        log.info("why the report was not written", exc_info=error)
        return False
    return True


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what the results could depend on; looked up once, since each is read from a package's long text."""
    packages = ("numpy", "numba", "pyarrow", "ray")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def tokens_of(source: Source) -> list[str]:
    """Names of the indices of the sparse features; empty where they are numbers themselves."""
    tokens: list[str] = source.state().get("categories", {}).get(source.features.sparse_column, [])
    return tokens


def exit_code_of(error: Exception | None) -> int | None:
    """Exit code of the command line after an error; None without one."""
    return None if error is None else error.exit_code if isinstance(error, RaydtError) else 1


def _end(error: Exception | None, stop: signal.Signals | None, quote: bool, *, closes: bool) -> dict[str, Any]:
    """Return status, exit code and reason of an end: that of stream or chapter, a signal, or the class of an error."""
    if error is not None:
        status, reason, code = "failed", type(error).__name__, exit_code_of(error)
    elif stop is not None:
        status, reason, code = "interrupted", stop.name, 128 + stop
    else:
        status, reason, code = "completed", END_OF_CHAPTER if closes else "end_of_stream", 0
    text = said(error, quote) if error is not None else None
    return {"status": status, "exit_reason": reason, "exit_code": code, "error": text}


def write_summary(folder: RunFolder, summary: dict[str, Any]) -> None:
    """Write or replace ``summary.json`` at once."""
    folder.write_text("summary.json", json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_summary(folder: RunFolder) -> dict[str, Any]:
    """Read the summary of a run; InputError if it is damaged."""
    try:
        summary = parsed(folder.read_text("summary.json"))
    except (OSError, ValueError) as error:
        raise damaged_summary(folder, str(error)) from error
    known = summary if isinstance(summary, dict) else {}
    missing = [name for name in ("status", "exit_reason", "error", "updates", "model_digest") if name not in known]
    if missing:
        raise damaged_summary(folder, message("runs.missing_keys", keys=", ".join(missing)))
    return known


def damaged_summary(folder: RunFolder, problem: str) -> InputError:
    """Return the error of a summary that cannot be used."""
    return InputError(message("runs.damaged_summary", problem=problem), file=f"{folder.location}/summary.json")
