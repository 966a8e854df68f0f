"""The replay job, and how it is resumed: a stream goes through a learner, and a run folder says what happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from pipelines.chapters import is_closed, run_of
from pipelines.config import Config, load_config
from pipelines.display import Reporter
from pipelines.logs import log_to
from pipelines.receipts import may_quote, quoting
from pipelines.run_folder import RunFolder, fitting
from pipelines.running.adoption import Adoption
from pipelines.running.checkpoint import newest_meta
from pipelines.running.ending import Interruption, Past, RunResult, past_of, read_summary, write_report
from pipelines.running.loop import Attend, Job, Manner, Position
from pipelines.running.plans import (
    clear_place_of_states,
    features_of,
    location_of,
    refuse_changes,
    require_place_of_states,
    with_address,
)
from pipelines.saved_runs import config_of, inputs_of, last_state, open_stream, require_run_apart, states_of, store_of
from pipelines.validation import place
from raydt.errors import ConfigError, InputError, RaydtError
from raydt.folders.arrays import MANIFEST, read_manifest
from raydt.folders.folder import locked
from raydt.messages import message
from raydt.parallel import limited, work_seconds
from raydt.sources.base import FileOptions, SourceIdentity
from raydt.sources.divided import files_of
from raydt.sources.live.base import LiveOptions
from raydt.streams.base import Stream
from raydt.streams.deletion_log import Changelog

__all__ = ["RunResult", "replay", "resume"]


def replay(
    config: Config | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    address: str | None = None,
    overwrite: bool = False,
    progress: Reporter | None = None,
    given: Config | Mapping[str, Any] | str | Path | None = None,
) -> RunResult:
    """Run a stream of insertions and deletions through a learner.

    On Ray, whatever this process prints during the run goes to its ``log.jsonl``, also what other threads print.

    Parameters
    ----------
    config : Config, mapping or path of a YAML file
    out : path or URI, optional
        Run folder, new or empty; ``runs/<UTC>-<config>`` by default.
    overrides : sequence of str
        ``dotted.key=value``, as ``--set`` on the command line.
    address : str, optional
        Ray cluster to use, instead of ``cluster.address``.
    overwrite : bool
        Remove the run that ``out`` holds, and the checkpoints that ``checkpoint.path`` holds.
    progress : Reporter, optional
    given : Config, mapping or path, optional
        Where the config came from, if not from ``config``: a file that ``out`` must not replace.

    Returns
    -------
    RunResult
        Of a run that reached the end of its stream, or was interrupted by a signal.

    Raises
    ------
    ConfigError
        A config that cannot be run, an output folder that is not empty, or one that another process writes. Nothing
        has been written.
    SystemExit
        A signal came before there was anything to keep. Nothing has been written.
    InputError
        A bad row or update. The run folder holds everything before it, with status ``failed``.
    """
    loaded = load_config(config, with_address(overrides, address))
    return begin(loaded, out, given=config if given is None else given, overwrite=overwrite, progress=progress)


def begin(
    config: Config,
    out: str | Path | None,
    *,
    given: Config | Mapping[str, Any] | str | Path,
    overwrite: bool = False,
    progress: Reporter | None = None,
    attend: Attend | None = None,
) -> RunResult:
    """Begin a run; see :func:`replay`, and :func:`resume` for ``attend``."""
    manner = Manner(work_seconds(), progress, attend)
    threads = limited(config.cluster.most_threads)
    with Interruption() as interruption, quoting(config.output.quote_values), threads:
        location = location_of(out, config.name)
        require_run_apart(RunFolder(location), config, inputs_of(config, given))
        require_place_of_states(states_of(config, RunFolder(location)), RunFolder(location))
        folder = RunFolder.create(location, overwrite=overwrite)
        try:
            if isinstance(config.source, LiveOptions):
                config = config.from_source(config.source.settled())
            source, stream = open_stream(config)
            config = config.placed(place(config, features_of(source, config.learner), source.n_rows))
            with _sole_writer(config, folder, new=True):
                if config.checkpoint.path is not None:
                    clear_place_of_states(states_of(config, folder), overwrite=overwrite)
                interruption.on_cut(folder.discard_beginning)
                return Job(config, folder, stream, source.identity(), interruption, manner).work()
        except BaseException:
            folder.discard_if_empty()
            raise


def resume(
    run: str | Path,
    *,
    state: str | Path | None = None,
    overrides: Sequence[str] = (),
    address: str | None = None,
    progress: Reporter | None = None,
    attend: Attend | None = None,
) -> RunResult:
    """Go on with a run that was killed, interrupted or has failed, from its newest checkpoint.

    The result is identical to an uninterrupted run. A completed run is not changed, unless it is of a live source, or
    of a change log in a folder or pattern that has new files behind those it has read: then it goes on with these. The
    newest chapter of a run is the run; a closed one is not changed.

    Parameters
    ----------
    run : path or URI
        A run folder.
    state : path or URI, optional
        A state that ``update`` made from the last state of this run, or from one of its checkpoints: it becomes the
        only checkpoint of the run, which continues its stream from there. A completed run takes it in, too.
    overrides : sequence of str
        As of :func:`replay`. ``stream.on_error``, ``cluster``, ``checkpoint`` (but its path), ``erasure``,
        ``output.report`` and ``output.quote_values`` may change, and the folders that the data lie in.
    address, progress
        As of :func:`replay`.
    attend : callable, optional
        What is done with a live source, and the run folder, before it is read.

    Returns
    -------
    RunResult

    Raises
    ------
    ConfigError
        Another model config, other data, another process that writes the run, or a checkpoint that is older than an
        update of the run. Nothing has been changed.
    InputError
        No run is there, its config is damaged, or ``state`` does not belong to it. Nothing has been changed. Otherwise
        as of :func:`replay`.
    """
    progress = progress or Reporter()
    manner = Manner(work_seconds(), progress, attend)
    with Interruption() as interruption, ExitStack() as stack:
        folder = _existing(run)
        if (found := run_of(folder)) is not None:
            if folder.root != found[0].newest().root:
                return _completed(folder, progress)
            folder = found[0]
        grown = state is None and _has_grown(folder, overrides)
        completed = state is None and not grown and _summary(folder).get("status") == "completed"
        lacks_report = completed and _lacks_report(folder)
        if completed and not overrides and not lacks_report:
            return _completed(folder, progress)
        there = config_of(folder.newest())
        config = load_config(there, with_address(overrides, None if completed else address))
        refuse_changes(there.resolved(), config.resolved(), f"{folder.location}/config.yaml")
        if completed:
            with locked(folder) if lacks_report else nullcontext():
                return _completed(folder, progress)
        stack.enter_context(quoting(config.output.quote_values))
        stack.enter_context(limited(config.cluster.most_threads))
        source, stream = open_stream(config)
        config = config.placed(place(config, features_of(source, config.learner), source.n_rows))
        data = source.identity()
        require_place_of_states(states_of(config, folder), folder)
        with _sole_writer(config, folder):
            if config.follow.in_chapters:
                if state is not None:
                    raise ConfigError(message("runs.no_update_of_chapters").at(folder.location))
                past, position = _position(config, folder, stream, data)
                return Job(config.named(past.name), folder, stream, data, interruption, manner, past).work(position)
            summary = _summary(folder)
            store = store_of(config, folder)
            adoption = Adoption(config, folder, store, state) if state is not None else None
            if summary.get("status") == "completed" and not grown and (adoption is None or adoption.done):
                return _completed(folder, progress)
            if adoption is not None:
                with log_to(folder, config.output.quote_values):
                    adoption.run(data, stream)
            past = past_of(folder, summary or None, newest_meta(config, data, stream, store))
            return Job(config.named(past.name), folder, stream, data, interruption, manner, past).work()


@contextmanager
def _sole_writer(config: Config, folder: RunFolder, *, new: bool = False) -> Iterator[None]:
    """Be the only process that writes the folder, in which is nothing if it is ``new``, and that of the checkpoints."""
    states = states_of(config, folder)
    with locked(folder):
        if new:
            folder.require_untouched()
        folder.sweep()
        if config.checkpoint.path is None:
            yield
        else:
            with locked(states):
                yield


def _position(config: Config, run: RunFolder, stream: Stream, data: SourceIdentity) -> tuple[Past, Position]:
    """Return the past of a run in chapters, by the newest one, and where it is to be taken up."""
    newest = run.newest()
    meta = newest_meta(config, data, stream, store_of(config, newest))
    past = past_of(newest, _summary(newest) or None, meta)
    if (found := run_of(newest)) is None:  # not even the first chapter has begun
        return past, Position()
    number = found[1]
    return past, Position(number + 1) if is_closed(newest) else Position(number, past, meta)


def _existing(run: str | Path) -> RunFolder:
    """Return the folder of a run that has begun; InputError if there is none."""
    folder = RunFolder(run)
    if folder.has("sweep.json"):
        raise InputError(message("runs.sweep"), file=folder.location)
    if not folder.has("config.yaml"):
        said = message("runs.saved_model" if folder.has(MANIFEST) else "runs.no_run")
        raise InputError(said, file=folder.location)
    return folder


def _summary(folder: RunFolder) -> dict[str, Any]:
    """Return the summary the last process wrote of the run; empty if there is no readable one."""
    with suppress(InputError):
        return read_summary(folder) if folder.has("summary.json") else {}
    return {}


def _has_grown(folder: RunFolder, overrides: Sequence[str]) -> bool:
    """Return True if a completed run is of a live source, or of a change log with more files than at its end."""
    if _summary(folder).get("status") != "completed":
        return False
    with suppress(RaydtError), fitting(folder.location):
        config = load_config(config_of(folder), overrides)
        if isinstance(config.source, LiveOptions):
            return True
        if isinstance(config.stream, Changelog) and isinstance(config.source, FileOptions):
            known = read_manifest(last_state(states_of(config, folder))).meta["source"]["files"]
            return len(files_of(config.source)) > len(known)
    return False


def _completed(folder: RunFolder, progress: Reporter) -> RunResult:
    """The result of a run that has completed; of its report too, if its last process did not get to that."""
    if _lacks_report(folder):
        progress.stage(message("runs.report_missing").at(folder.location))
        with log_to(folder, may_quote(folder.location)):
            write_report(folder)
    else:
        progress.stage(message("runs.completed").at(folder.location))
    return RunResult(folder.location, read_summary(folder))


def _lacks_report(folder: RunFolder) -> bool:
    with suppress(InputError):
        return config_of(folder).output.report and not folder.has("report.html")
    return False
