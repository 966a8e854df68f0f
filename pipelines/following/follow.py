"""The job that follows a live source: a run whose stream ends when a signal says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipelines.chapters.chapter import run_of
from pipelines.config import Config, load_config
from pipelines.progress import Reporter
from pipelines.redaction import may_quote, said
from pipelines.run_folder import RunFolder
from pipelines.running.attending import Attending, write_failure
from pipelines.running.ending import RunResult
from pipelines.running.job import Manner, begin, resume, with_address
from raydt.errors import ConfigError
from raydt.folders.lock import locked
from raydt.messages import message
from raydt.sources.live.base import LiveOptions
from raydt.sources.live.followed import FollowedSource


def follow(
    config: Config | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    address: str | None = None,
    overwrite: bool = False,
    progress: Reporter | None = None,
    until_idle: float | None = None,
) -> RunResult:
    """Follow a live source, until a signal ends the run.

    Parameters
    ----------
    config : Config, mapping or path
        A config, whose source is a live one, or the folder of a run that has one, which goes on.
    out, overrides, address, overwrite, progress
        As of :func:`pipelines.running.job.replay`.
    until_idle : float, optional
        End the run as complete when nothing new has come for so many seconds; not while the source is away, or the run
        waits at a bad row.

    Returns
    -------
    RunResult
        Of a run that a signal has interrupted, or that has ended with ``until_idle``.

    Raises
    ------
    ConfigError
        The source has an end, or as of ``replay``.
    InputError
        As of ``replay`` and ``resume``; what comes next in the source is gone for good. ``status.json`` of a run that
        goes on says ``failed``, and why.
    """

    attending: Attending | None = None

    def attend(source: FollowedSource, folder: RunFolder) -> None:
        nonlocal attending
        source.patient = True
        source.pause = attending = Attending(source, folder, until_idle)

    there = RunFolder(config) if isinstance(config, (str, Path)) and RunFolder(config).has("config.yaml") else None
    try:
        if there is not None:
            return resume(there.location, overrides=overrides, address=address, progress=progress, attend=attend)
        loaded = with_address(load_config(config, overrides), address)
        if not isinstance(loaded.source, LiveOptions):
            raise ConfigError(message("live.has_an_end", kind=loaded.source.kind))
        return begin(loaded, out, Manner(config, overwrite, progress, attend))
    except ConfigError:  # nothing has been changed, and another process may be at work on the run
        raise
    except Exception as error:
        _note_failure(error, there, attending)
        raise


def _note_failure(error: Exception, run: RunFolder | None, attending: Attending | None) -> None:
    """Say in ``status.json`` of a run that it has failed and why, unless another process is at work on it."""
    folder = attending.folder if attending is not None else run
    if folder is None or not folder.has("config.yaml"):  # nothing is kept of it
        return
    folder = folder if (found := run_of(folder)) is None else found[0]
    with suppress(ConfigError, OSError), locked(folder):
        reason = said(error, may_quote(folder.location))
        write_failure(folder, reason) if attending is None else attending.fail(reason)
