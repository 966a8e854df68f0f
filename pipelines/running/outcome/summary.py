"""``summary.json``: what a run was and what came out of it, in one flat, stable mapping."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
import signal
from datetime import datetime, timezone
from typing import Any, NamedTuple

import raydt
from actors.memory import peak_rss_bytes
from pipelines.config import Config
from pipelines.redaction import said
from pipelines.run_folder import RunFolder
from pipelines.running.records.recorder import Recorder
from raydt.errors import InputError, RaydtError
from raydt.folders.manifest import parsed
from raydt.learners import description_of
from raydt.sources.base import Source

SCHEMA_VERSION = 1

#: Statistics of the coordinator that the summary repeats.
_STATISTICS = ("rebuilds", "rebuilt_rows", "nodes", "leaves", "depth", "rounds", "bytes_exchanged")


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what the results could depend on; looked up once, since each is read from a package's long text."""
    packages = ("numpy", "numba", "pyarrow", "ray")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def tokens_of(source: Source) -> list[str]:
    """Names of the indices of the sparse features; empty where they are numbers themselves."""
    tokens: list[str] = source.state().get("categories", {}).get(source.features.sparse_column, [])
    return tokens


def _peak(statistics: dict[str, int], work: list[dict[str, Any]]) -> int:
    """Peak memory of this process and, on Ray, of the coordinator and the shards."""
    elsewhere = [statistics, *work]
    total: int = peak_rss_bytes() + sum(entry.get("peak_rss_bytes", 0) for entry in elsewhere)
    return total


class Ended(NamedTuple):
    """How a run has ended."""

    error: Exception | None  #: The error it failed with.
    stop: signal.Signals | None  #: The signal that interrupted it, if it has not failed.
    digest: str | None  #: None if the model was lost with its processes.
    fingerprint: str  #: Of the source.
    work: list[dict[str, Any]]  #: Work of each shard.
    started: datetime  #: When the run was started first, whichever processes have resumed it.
    startup_seconds: float  #: Connecting, compiling and opening, before the first update.
    recoveries: list[dict[str, Any]]  #: One entry for each time the run was rolled back to a checkpoint.
    lineage: list[dict[str, Any]]  #: Updates from elsewhere that the run has taken in.
    checkpoints: dict[str, Any]  #: Figures of the checkpoints written by this process.


def run_summary(config: Config, source: Source, recorder: Recorder, ended: Ended) -> dict[str, Any]:
    """The summary of a run that has ended, however it ended."""
    statistics, work = recorder.statistics, ended.work
    seconds = recorder.seconds
    return {
        "schema_version": SCHEMA_VERSION,
        "name": config.name,
        **_ending(ended.error, ended.stop, config.output.quote_values),
        "learner": config.learner.kind,
        "updates": recorder.updates,
        "inserts": recorder.inserts,
        "deletes": recorder.deletes,
        "replaced": recorder.replaced,
        "queries": recorder.queries,
        "predictions": recorder.predictions,
        "refused": recorder.refused,
        "skipped": recorder.skipped,
        "active": recorder.active,
        "seconds": seconds,
        "updates_per_second": recorder.updates / seconds if seconds else 0.0,
        "metrics": recorder.metrics(),
        "baselines": recorder.baselines(),
        **{name: statistics.get(name, 0) for name in _STATISTICS},
        **description_of(config.learner).outcome(
            statistics, lambda feature: source.features.name(feature, tokens_of(source))
        ),
        "peak_rss_bytes": _peak(statistics, work),
        "shards": config.placement.shards,
        "backend": config.cluster.backend,
        "where": config.placement.where,
        "restarts": sum(entry["kind"] == "lost" for entry in ended.recoveries),
        "recoveries": ended.recoveries,
        "lineage": ended.lineage,
        "checkpoints": ended.checkpoints,
        "model_digest": ended.digest,
        "started": ended.started.astimezone(timezone.utc).isoformat(timespec="seconds"),
        "ended": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "raydt_version": raydt.__version__,
        "versions": versions(),
        "config_hash": config.model_hash(),
        "source_fingerprint": ended.fingerprint,
        "label": getattr(config.source, "label", None),
        "classes": recorder.classes,
        "positive": source.positive,
        "features": source.features.describe(),
        "startup_seconds": ended.startup_seconds,
        "report_seconds": None,
        "work": work,
        "audit": None,
    }


def exit_code_of(error: Exception | None) -> int | None:
    """Exit code of the command line after an error; None without one."""
    return None if error is None else error.exit_code if isinstance(error, RaydtError) else 1


def _ending(error: Exception | None, stop: signal.Signals | None, quote: bool) -> dict[str, Any]:
    """How a run has ended: ``exit_reason`` is ``end_of_stream``, the name of a signal, or the class of the error."""
    if error is not None:
        status, reason, code = "failed", type(error).__name__, exit_code_of(error)
    elif stop is not None:
        status, reason, code = "interrupted", stop.name, 128 + stop
    else:
        status, reason, code = "completed", "end_of_stream", 0
    text = said(error, quote) if error is not None else None
    return {"status": status, "exit_reason": reason, "exit_code": code, "error": text}


def write_summary(folder: RunFolder, summary: dict[str, Any]) -> None:
    """Write or replace ``summary.json`` at once."""
    folder.write_text("summary.json", json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_summary(folder: RunFolder) -> dict[str, Any]:
    """The summary of a run.

    Raises
    ------
    InputError
        It is damaged.
    """
    try:
        summary = parsed(folder.read_text("summary.json"))
    except (OSError, ValueError) as error:
        raise damaged_summary(folder, f"it cannot be read ({error})") from error
    needed = ("status", "exit_reason", "error", "updates", "model_digest")
    if not isinstance(summary, dict) or any(name not in summary for name in needed):
        raise damaged_summary(folder, "it is not the summary of a run")
    return summary


def damaged_summary(folder: RunFolder, problem: str) -> InputError:
    """The error of a summary that cannot be used."""
    file = f"{folder.location}/summary.json"
    return InputError(problem, file=file, remedy="Restore the run folder from a copy, or run the replay again")
