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
import os
import platform
import secrets
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from types import FrameType, TracebackType
from typing import Any

import raydt
from actors.processes import end_private_ray, peak_rss_bytes
from pipelines.config import Config
from pipelines.display import how_to_resume
from pipelines.logs import LOG
from pipelines.receipts import said
from pipelines.reporting import publish_report
from pipelines.run_folder import RunFolder
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.records import WITHDRAWN, Recorder, Recoveries, writing
from raydt.errors import ConfigError, InputError, NotWrittenError, RaydtError, RestartsSpentError, message_of
from raydt.exchange.messages import fault
from raydt.folders.arrays import parsed
from raydt.keyed.session import KeyFailedError
from raydt.learners import description_of
from raydt.messages import Message, escaped, message
from raydt.parallel import PREPARATION
from raydt.presentation.charts import counted
from raydt.sources.base import Source, SourceIdentity

# SIGINT and SIGTERM: an orderly end if there is time for it, and an end in any case.
#
# The first signal stops the intake and starts a clock. An orderly end (what was read is applied and saved) has
# :data:`GRACE_SECONDS`. Then, or at a second signal, a thread of its own writes the summary of the job, nothing
# more, and ends the process: the main thread may be in a compiled kernel, in a read or in Ray, where no Python handler
# runs. A resume from the last checkpoint repeats the lost updates exactly.
#
# Invariant: from the first signal to the end of the process no more than :data:`LIMIT_SECONDS` pass, and what was
# written by then says the exit code: either the main thread has settled it, or that thread does, never both.

SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: From the first signal: when the job is cut short, and when the process ends whatever the summary is waiting for.
#: ``ray job stop`` kills after 3 seconds; memory of many gigabytes takes some tenths of one to be given back.
GRACE_SECONDS, LIMIT_SECONDS = 1.2, 2.3

#: How long the summary may take after a second signal.
HASTE_SECONDS = 0.15

#: What wraps a command (``timeout``, package managers) hands on a signal that the terminal or the system has sent to
#: the whole group already. The same signal within this time is that, not a second wish.
REPEATED_SECONDS = 0.03


class Interruption:
    """Context in which signals are wishes to end soon; the first is in ``signal``.

    Outside the main thread, where Python allows no handlers, it does nothing. In an interactive session the process is
    the user's, and is not ended: a signal stops the intake, and a second one raises.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._stop: Callable[[], None] | None = None
        self._last_words: Callable[[], str | None] = lambda: None
        self._previous: dict[signal.Signals, Any] = {}
        self._previous_wakeup = self._wakeup = -1
        self._lock, self._ending, self._settled = threading.Lock(), False, False
        self._raised, self._exit_code = False, 0

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            if not hasattr(sys, "ps1"):
                # The interpreter's own handler writes the number to the pipe at once, whatever the main thread does.
                heard, self._wakeup = os.pipe()
                os.set_blocking(self._wakeup, False)
                self._previous_wakeup = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
                threading.Thread(target=self._listen, args=(heard,), name="raydt-signals", daemon=True).start()
            self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        code = error.code if isinstance(error, SystemExit) else None
        self._settle(self._exit_code)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._wakeup >= 0:
            signal.set_wakeup_fd(self._previous_wakeup)
            os.close(self._wakeup)  # which ends the thread
        if code is not None and self.signal is not None and code != 128 + self.signal:
            raise SystemExit(128 + self.signal)  # it was ray.init's handler that raised

    def arm(self, stop: Callable[[], None], last_words: Callable[[], str | None] | None = None) -> None:
        """From now on a signal calls ``stop`` instead of raising SystemExit in the main thread.

        ``stop`` asks for an orderly end, and may be called more than once, in any thread; ``last_words`` are as of
        :meth:`on_cut`. SystemExit if a signal has come since :meth:`disarm`; one that came while another ``stop`` was
        armed calls this one.
        """
        if last_words is not None:
            self._last_words = last_words
        before, self._stop = self._stop, stop
        if self.signal is not None and before is not None:
            stop()
        else:
            self.check()

    def hold(self) -> None:
        """From now on a signal does nothing but start the clock; SystemExit if one has come already."""
        self.arm(_nothing)

    def disarm(self) -> None:
        """From now on a signal raises SystemExit in the main thread; so does this, if one has come already."""
        self._stop = None
        self.check()

    def check(self) -> None:
        """Raise SystemExit if a signal has come."""
        if self.signal is not None:
            self._raised = True
            raise SystemExit(128 + self.signal)

    def on_cut(self, last_words: Callable[[], str | None]) -> None:
        """Set the function that ends the process: called once, in another thread than the main one.

        It may not rely on anything that the main thread is changing, and returns a line to be shown on stderr.
        """
        with self._lock:
            if not self._ending:
                self._last_words = last_words
                return
        threading.Event().wait()  # the other thread is ending the process

    def settle(self, failed: int | None = None) -> signal.Signals | None:
        """Decide how the job has ended: what is written from now on is the truth, and no last words contradict it.

        ``failed`` is the exit code of the error that has ended the job. Returns the signal that has interrupted it; one
        that comes later only shortens what is left to do.
        """
        self._stop = _nothing
        wish = self.signal
        self._settle(failed if failed is not None else 128 + wish if wish is not None else 0)
        return wish

    def _settle(self, code: int) -> None:
        self._stop = self._stop or _nothing
        with self._lock:
            if not self._ending:
                if not self._settled:
                    self._last_words = lambda: None
                self._settled, self._exit_code = True, code
                return
        threading.Event().wait()  # the other thread is ending the process

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of the main thread, which runs when it gets to it."""
        first = self.signal is None
        stop = self._wish(number)
        if (stop is None and not self._raised) or (self._wakeup < 0 and not first):
            self._raised = True
            raise SystemExit(128 + number)  # which nothing on the way takes for an error of the run

    def _wish(self, number: int) -> Callable[[], None] | None:
        if self.signal is None:
            self.signal = signal.Signals(number)
        stop = self._stop
        if stop is not None:
            stop()
        return stop

    def _listen(self, heard: int) -> None:
        """The thread: hears signals, and ends the process in time."""
        poll = select.poll()
        poll.register(heard, select.POLLIN)
        began: float | None = None
        while True:
            if began is not None:
                passed = time.monotonic() - began
                remaining = (LIMIT_SECONDS if self._settled else GRACE_SECONDS) - passed
                if remaining <= 0:
                    self._end(LIMIT_SECONDS - passed)
                    continue
                if not poll.poll(1000 * remaining):
                    continue
            numbers = os.read(heard, 64)
            if not numbers:
                os.close(heard)
                return
            for number in numbers:
                now = time.monotonic()
                if number not in SIGNALS:
                    continue
                if began is None:
                    began = now
                    self._wish(number)
                elif number != self.signal or now - began > REPEATED_SECONDS:
                    self.signal = signal.Signals(number)
                    self._end(HASTE_SECONDS, at_once=True)

    def _end(self, seconds: float, *, at_once: bool = False) -> None:
        """End the process after the last words, which have so many seconds and, once it is settled, only speak."""
        with self._lock:
            settled = self._settled
            if settled and seconds > 0 and not at_once:
                return  # what was settled is being written
            self._ending = True
        assert self.signal is not None
        code = self._exit_code if settled else 128 + self.signal
        for act in (self._speak, end_private_ray):
            acting = threading.Thread(target=_unheard, args=(act,), name="raydt-ending", daemon=True)
            acting.start()
            acting.join(max(seconds, HASTE_SECONDS))
        os._exit(code)

    def _speak(self) -> None:
        line = self._last_words()
        sys.stderr.write(escaped(line or ("interrupted" if self.signal == signal.SIGINT else "terminated")) + "\n")
        sys.stderr.flush()
        sys.stdout.flush()


def _unheard(act: Callable[[], None]) -> None:
    """Call a function at the end of the process, when nothing can report its failure."""
    with contextlib.suppress(BaseException):
        act()


def _nothing() -> None:
    """The signal or error that stops a job."""


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
        data: SourceIdentity,
        interruption: Interruption,
        checkpointer: Checkpointer,
        recoveries: Recoveries,
        started: datetime,
    ) -> None:
        self._config, self._folder, self._data, self._started = config, folder, data, started
        self._interruption, self._checkpointer, self._recoveries = interruption, checkpointer, recoveries
        self.startup_seconds = 0.0  #: Connecting and opening, before the first update.
        self.digest: str | None = None  #: Of the model, once model and state are saved.
        self.work: list[dict[str, Any]] = []  #: Of each shard.
        self.lineage: list[dict[str, Any]] = []  #: Updates from elsewhere that the run has taken in.
        self.holdout: dict[str, Any] | None = None  #: Of a training run, once its score is known.
        self.of_stream: dict[str, Any] = {}  #: What the stream says of itself, once the run is over.
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
            holdout.pop("of_keys", None)  # the table of keys has them
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
            **self.of_stream,
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
            "kernels": {"compiled": PREPARATION.compiled, "seconds": PREPARATION.seconds},
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


# Facts about a run that an earlier process began: from its summary, its newest checkpoint, or its log.
#
# Invariant: a run has one beginning, one name and one sequence of incarnations, however many processes have worked on
# it.


@dataclass(frozen=True)
class Past:
    """The run until now."""

    name: str  #: Of its config.
    id: str  #: Drawn by its first process; one that has left neither checkpoint nor log counts as none.
    started: datetime  #: When its first process began.
    epoch: int  #: Incarnations so far.
    recoveries: list[dict[str, Any]]  #: As in the summary.
    ended: str  #: What ended its last process, in words.
    lineage: list[dict[str, Any]]  #: Updates that the run has taken in (``raydt resume --from``).
    holdout: dict[str, Any] | None = None  #: Score of a training run, if it is known.
    updates: int | None = None  #: Where that process was then (a keyed one by rows); None if it said nothing.


def kept(
    config: Config,
    id: str,
    started: datetime,
    epoch: int,
    recoveries: Sequence[Mapping[str, Any]],
    holdout: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the JSON values a checkpoint keeps for :func:`past_of`."""
    entries = [dict(entry) for entry in recoveries]
    run = {"name": config.name, "id": id, "started": started.isoformat(), "epoch": epoch, "recoveries": entries}
    return run if holdout is None else {**run, "holdout": dict(holdout)}


def past_of(folder: RunFolder, summary: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> Past:
    """Return the past of a run by the summary of its last process and ``meta`` of its newest checkpoint."""
    records = list(_records(folder))
    saved = dict((meta or {}).get("run", {}))
    known = [dict(summary or {}), saved, _first(records)]  # the best first

    def best(key: str, default: Any) -> Any:
        return next((entry[key] for entry in known if entry.get(key) is not None), default)

    lineages = [entry.get("lineage") or [] for entry in (summary or {}, meta or {}, *records)]
    recoveries = _together([*best("recoveries", []), *_recoveries(records)])
    epochs = [saved.get("epoch"), *(entry.get("epoch") for entry in (*recoveries, *records))]
    return Past(
        name=str(best("name", "run")),
        id=str(best("id", None) or new_id()),
        started=_moment(best("started", None)),
        epoch=max((epoch for epoch in epochs if isinstance(epoch, int)), default=0),
        recoveries=recoveries,
        ended=str(summary["exit_reason"]) if summary is not None else message("runs.driver_lost"),
        lineage=max(lineages, key=len),
        holdout=next((one["holdout"] for one in (saved, *records) if "holdout" in one), None),
        updates=int(summary.get("rows", summary["updates"])) if summary is not None else None,
    )


def _records(folder: RunFolder) -> Iterator[dict[str, Any]]:
    """Records of the log; a line that was cut short is passed over."""
    for line in folder.read(LOG).splitlines() if folder.has(LOG) else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _recoveries(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the recoveries in the log, without those withdrawn later."""
    found: list[dict[str, Any]] = []
    for record in records:
        entry = record.get("recovery")
        if not isinstance(entry, dict):
            continue
        if record.get("event") == WITHDRAWN:
            one = (entry.get("epoch"), entry.get("kind"))
            found = [other for other in found if (other.get("epoch"), other.get("kind")) != one]
        else:
            found.append(entry)
    return found


def _together(entries: Iterable[Any]) -> list[dict[str, Any]]:
    """Return entries of several places, each once, as the first place has it: none of them knows all."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("epoch"), int) and isinstance(entry.get("kind"), str):
            known = found.setdefault((entry["epoch"], entry["kind"]), entry)
            known |= {key: value for key, value in entry.items() if known.get(key) is None}
    return [found[key] for key in sorted(found)]  # of one incarnation, its loss came before the driver's


def _first(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = next((record for record in records if record.get("event") == "run_started"), {})
    return {"name": first.get("config"), "id": first.get("id"), "started": first.get("time")}


def new_id() -> str:
    """Draw the id of a run: 32 hexadecimal digits, which decide nothing."""
    return secrets.token_hex(16)


def _moment(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return datetime.now(timezone.utc)
