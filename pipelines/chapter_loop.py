"""The course of a run that is kept in chapters: one after another, with the same session.

Invariant: a chapter begins when its config is written, which is after the one before it was closed. So wherever a
process is killed, the newest chapter is either open, and resumes like any run, or closed, and the next one begins.
"""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from typing import Any, NamedTuple, Protocol

from pipelines.chapters import Chapter, expire, is_closed, run_of
from pipelines.config import Config
from pipelines.run_folder import BEGINNING, CHAPTERS, RunFolder
from pipelines.running.checkpoint import newest_meta
from pipelines.running.ending import Past, RunResult, past_of, read_summary, write_report
from pipelines.running.intake import Incarnations
from pipelines.running.loop import GoingOn
from pipelines.running.records import writing
from pipelines.saved_runs import store_of
from raydt.errors import ConfigError, InputError
from raydt.exchange.messages import fault
from raydt.folders.folder import locked
from raydt.sources.base import SourceIdentity
from raydt.streams.base import Stream


class Position(NamedTuple):
    """The position at which a process takes up a run."""

    number: int = 1  #: Of a chapter.
    past: Past | None = None  #: Of that chapter; None if it is to begin.
    meta: dict[str, Any] | None = None  #: Of its newest checkpoint.


class ChapterWork(Protocol):
    """A job that works on one chapter after another."""

    config: Config

    def begun(self) -> AbstractContextManager[Incarnations]:
        """Have a place where the sessions are."""

    def on(
        self,
        folder: RunFolder,
        incarnations: Incarnations,
        past: Past | None,
        chapter: Chapter | None = None,
        going_on: GoingOn | None = None,
    ) -> tuple[RunResult, GoingOn | None]:
        """Work on a chapter until it ends; what the next one goes on with, if the run has not ended."""


class _Reports:
    """Reports of closed chapters, written in the background: a context that ends with the last of them."""

    def __init__(self, config: Config) -> None:
        self._wanted = config.output.report
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="raydt-report")

    def write(self, folder: RunFolder) -> None:
        """Write the report of a chapter that lacks it, unless another process is at work there."""
        if self._wanted and not folder.has("report.html"):
            self._writer.submit(copy_context().run, self._write, folder)

    def _write(self, folder: RunFolder) -> None:
        with suppress(ConfigError), locked(folder):
            if folder.has("summary.json"):
                write_report(folder)

    def __enter__(self) -> _Reports:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.shutdown()


def position_of(config: Config, run: RunFolder, stream: Stream, data: SourceIdentity) -> tuple[Past, Position]:
    """Return the past of a run, by its newest chapter, and where it is to be taken up."""
    newest = run.newest()
    store = store_of(config, newest)
    meta = newest_meta(config, data, stream, store)
    summary = None
    with suppress(InputError):
        summary = read_summary(newest) if newest.has("summary.json") else None
    past, found = past_of(newest, summary, meta), run_of(newest)
    if found is None:  # not even the first chapter has begun
        return past, Position()
    number = found[1]
    return past, Position(number + 1) if is_closed(newest) else Position(number, past, meta)


def in_chapters(work: ChapterWork, run: RunFolder, position: Position = Position()) -> RunResult:  # noqa: B008 (a constant)
    """Work on a run until it ends, chapter by chapter; errors as of ``replay`` and ``resume``."""
    number, past, meta = position
    going_on: GoingOn | None = None
    with work.begun() as incarnations, _Reports(incarnations.config) as reports:
        for folder in filter(is_closed, run.chapters()):
            reports.write(folder)
        new = not run.has("config.yaml")
        if new:
            with writing(run.location):
                run.write_text("config.yaml", incarnations.config.to_yaml())
        try:
            while True:
                chapter = Chapter.of(run, number, meta)
                with locked(chapter.folder):
                    chapter.folder.sweep()
                    result, going_on = work.on(chapter.folder, incarnations, past, chapter, going_on)
                if going_on is None:
                    if result.status == "completed" and incarnations.config.output.report:
                        write_report(run)
                    return result
                fault("chapter.closed")
                reports.write(chapter.folder)
                expire(run, incarnations.config)
                gc.collect()  # what a chapter leaves: a command looks for garbage seldom (``pipelines.cli``)
                number, past, meta = number + 1, None, None
        except BaseException:
            if new and not run.chapters():
                for name in BEGINNING:
                    run.delete(name)
                run.discard(CHAPTERS)
            raise
