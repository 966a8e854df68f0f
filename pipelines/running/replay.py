"""The replay job, and how it is resumed: a stream goes through a learner, and a run folder says what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from actors.cluster import Bundle, starts_ray
from actors.placement import Placement
from pipelines.chapter_loop import in_chapters, position_of
from pipelines.chapters import Chapter, earlier, run_of
from pipelines.config import Config, load_config
from pipelines.display import STARTING_RAY, Reporter
from pipelines.keyed.recorder import sessions_of
from pipelines.logs import log_to
from pipelines.receipts import may_quote, quoting
from pipelines.run_folder import BEGINNING, RunFolder, fitting
from pipelines.running.adoption import Adoption
from pipelines.running.checkpoint import newest_meta
from pipelines.running.ending import Interruption, Past, RunResult, new_id, past_of, read_summary, write_report
from pipelines.running.intake import Incarnations
from pipelines.running.loop import GoingOn, Run
from pipelines.running.plans import (
    PlanLog,
    clear_place_of_states,
    features_of,
    location_of,
    refuse_changes,
    require_place_of_states,
    with_address,
)
from pipelines.running.records import writing
from pipelines.running.requests import Requests, requests_of
from pipelines.saved_runs import config_of, inputs_of, last_state, open_stream, require_run_apart, states_of, store_of
from pipelines.validation import place
from raydt.arrays.kernel_cache import work_seconds
from raydt.errors import ConfigError, InputError, RaydtError
from raydt.folders.arrays import MANIFEST, read_manifest
from raydt.folders.folder import locked
from raydt.messages import message
from raydt.parallel import limited
from raydt.sources.base import FileOptions, SourceIdentity
from raydt.sources.divided import files_of
from raydt.sources.live.base import LiveOptions
from raydt.sources.live.followed import FollowedSource
from raydt.streams.base import Stream
from raydt.streams.deletion_log import Changelog

__all__ = ["RunResult", "replay", "resume"]

#: What is done with a live source before a run reads it.
Attend = Callable[[FollowedSource, RunFolder], None]


class Manner(NamedTuple):
    """The way in which a run begins; as of :func:`replay`."""

    given: Config | Mapping[str, Any] | str | Path
    overwrite: bool = False
    progress: Reporter | None = None
    attend: Attend | None = None  #: What is done with a live source, and the run folder, before it is read.


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
    return begin(loaded, out, Manner(config if given is None else given, overwrite, progress))


def begin(config: Config, out: str | Path | None, manner: Manner) -> RunResult:
    """Begin a run; see :func:`replay`."""
    progress = manner.progress or Reporter()
    began = work_seconds()
    threads = limited(config.cluster.most_threads)
    with Interruption() as interruption, quoting(config.output.quote_values), threads:
        location = location_of(out, config.name)
        require_run_apart(RunFolder(location), config, inputs_of(config, manner.given))
        require_place_of_states(states_of(config, RunFolder(location)), RunFolder(location))
        folder = RunFolder.create(location, overwrite=manner.overwrite)
        try:
            if isinstance(config.source, LiveOptions):
                config = config.from_source(config.source.settled())
            source, stream = open_stream(config)
            config = config.placed(place(config, features_of(source, config.learner), source.n_rows))
            with _sole_writer(config, folder, new=True):
                if config.checkpoint.path is not None:
                    clear_place_of_states(states_of(config, folder), overwrite=manner.overwrite)
                interruption.on_cut(folder.discard_beginning)
                start = _Start(config, stream, progress, began, manner.attend)
                work = _RunWork(start, folder, source.identity(), interruption)
                return in_chapters(work, folder) if config.follow.in_chapters else work.whole()
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
    began = work_seconds()
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
                past, position = position_of(config, folder, stream, data)
                start = _Start(config.named(past.name), stream, progress, began, attend)
                work = _RunWork(start, folder, data, interruption, past)
                return in_chapters(work, folder, position)
            summary = _summary(folder)
            store = store_of(config, folder)
            adoption = Adoption(config, folder, store, state) if state is not None else None
            if summary.get("status") == "completed" and not grown and (adoption is None or adoption.done):
                return _completed(folder, progress)
            if adoption is not None:
                with log_to(folder, config.output.quote_values):
                    adoption.run(data, stream)
            past = past_of(folder, summary or None, newest_meta(config, data, stream, store))
            start = _Start(config.named(past.name), stream, progress, began, attend)
            return _RunWork(start, folder, data, interruption, past).whole()


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


class _Start:
    """A run that ``began``; the place of its work is set as soon as that is known."""

    def __init__(self, config: Config, stream: Stream, progress: Reporter, began: float, attend: Attend | None) -> None:
        self.config, self.stream, self.progress, self.began, self.attend = config, stream, progress, began, attend
        self.features = features_of(stream.source, config.learner)
        if config.placement.shards is not None:
            self._announce(config.placement)
        if config.cluster.backend == "ray" and starts_ray(config.cluster.address):
            progress.stage(STARTING_RAY)

    def place(self, free: Sequence[Bundle]) -> Config:
        """The config with a number of shards, from what is free on each node of the cluster."""
        placed = self.config.placed(place(self.config, self.features, self.stream.source.n_rows, free))
        self._announce(placed.placement)
        return placed

    def _announce(self, placement: Placement) -> None:
        self.progress.stage(message("runs.starting", learner=self.config.learner.kind, where=placement.in_words()))


class _RunWork:
    """The work on a run: on the whole of it, or on one chapter after another, with the same session."""

    def __init__(
        self,
        start: _Start,
        folder: RunFolder,
        data: SourceIdentity,
        interruption: Interruption,
        past: Past | None = None,
    ) -> None:
        self._start, self._folder, self._data, self.interruption, self.past = start, folder, data, interruption, past
        self.config = start.config
        self._requests: Requests | None = None
        self._id = past.id if past is not None else new_id()

    @contextmanager
    def begun(self) -> Iterator[Incarnations]:
        """Have a place where the sessions are, and the receipts of the run at hand."""
        start, before = self._start, self.past.epoch if self.past is not None else 0
        make = sessions_of(start.config, start.stream)
        with (
            Incarnations(start.config, start.features, before, start.place, make) as incarnations,
            requests_of(start.config, self._folder, start.stream) as self._requests,
        ):
            yield incarnations

    def whole(self) -> RunResult:
        """Work on the run until it ends."""
        with self.begun() as incarnations:
            return self.on(self._folder, incarnations, self.past)[0]

    def on(
        self,
        folder: RunFolder,
        incarnations: Incarnations,
        past: Past | None,
        chapter: Chapter | None = None,
        going_on: GoingOn | None = None,
    ) -> tuple[RunResult, GoingOn | None]:
        """Work on what is in a folder until it ends; what the next chapter goes on with, if one is to follow."""
        run: Run | None = None
        config, start = incarnations.config, self._start
        try:
            if past is None:
                with writing(folder.location):  # before the log: with its config, a run can be resumed
                    folder.write_text("config.yaml", config.to_yaml())
            with log_to(folder, config.output.quote_values) as context:
                if isinstance(source := start.stream.source, FollowedSource):
                    source.plans = PlanLog(folder, before=earlier(folder))
                    if start.attend is not None and source.pause is None:
                        start.attend(source, self._folder)
                run = Run(
                    folder, incarnations, self.interruption, start.stream, self._data, context, past, chapter, going_on
                )
                run.requests, run.id = self._requests, self._id
                began = start.began if going_on is None else work_seconds()
                return run.run(start.progress, began), run.going_on
        except BaseException:
            if past is None and (run is None or not run.begun):  # nothing to keep, and the error says it all
                for name in BEGINNING:
                    folder.delete(name)
            raise


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
