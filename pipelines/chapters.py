"""One chapter: what it goes on from.

Invariant: where a chapter begins is where the last state of the chapter before is, and its digest is that one's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipelines.config import Config
from pipelines.operation import Follow
from pipelines.run_folder import CHAPTER, CHAPTERS, STATES, RunFolder
from pipelines.running.ending import END_OF_CHAPTER, read_summary
from pipelines.saved_runs import last_state
from raydt.audits.recorded_tree import AuditReport
from raydt.errors import ConfigError, InputError
from raydt.exchange.messages import fault
from raydt.folders.arrays import complete
from raydt.folders.checkpoint import CheckpointStore, is_checkpoint_file, steady_clock
from raydt.folders.folder import locked
from raydt.messages import message
from raydt.streams.base import microseconds

# Where a chapter ends.
#
# Invariant: a chapter that is found at its end by another process ends there, too; nothing of the model depends on
# where.

_HOUR = 3600.0


class ChapterEnd:
    """The end of a chapter: a number of updates, or the first batch after a time; never in the ``warmup``.

    ``begins`` is the update that the chapter begins with, ``since`` the time of that, and ``clock`` gives seconds since
    1970. A warm-up that ends early, which is known at its end, leaves the end that a shorter one would have.
    """

    def __init__(
        self,
        follow: Follow,
        begins: int,
        since: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._begins, self._every, self._clock = begins, follow.chapter_updates, clock or steady_clock()
        self._until = None if follow.chapter_hours is None else since + follow.chapter_hours * _HOUR

    def room(self, updates: int, size: int) -> int:
        """Return how many updates a batch of at most ``size`` can have that begins after ``updates``.

        A chapter may end at each multiple, since a warm-up may end with any batch.
        """
        return size if self._every is None else min(size, self._every - updates % self._every)

    def reached(self, updates: int, warmup: int) -> bool:
        """Return True if the chapter ends after ``updates``."""
        least, every = max(self._begins, warmup), self._every
        if updates <= least:
            return False
        due = self._until is not None and self._clock() >= self._until
        return due or (every is not None and updates >= (least // every + 1) * every)


@dataclass(frozen=True)
class Chapter:
    """A chapter that a process works on."""

    run: RunFolder
    number: int  #: From 1.
    begins: int  #: Updates of the chapters before.
    digest_before: str | None  #: Of the model at the end of the chapter before.

    @classmethod
    def of(cls, run: RunFolder, number: int, meta: Mapping[str, Any] | None = None) -> Chapter:
        """Return a chapter, by ``meta`` of its newest checkpoint or, if it has none, by the chapter before.

        InputError if it goes on from a chapter without a state or a digest.
        """
        if number == 1:
            return cls(run, 1, 0, None)
        if meta is not None and "chapter" in meta:
            known = meta["chapter"]
            return cls(run, number, int(known["begins"]), known["digest_before"])
        before = run.chapter(number - 1)
        state = last_state(before.inside(STATES))
        return cls(run, number, int(state.root.rpartition("/")[2]), str(read_summary(before)["model_digest"]))

    @property
    def folder(self) -> RunFolder:
        """Return the folder of the chapter."""
        return self.run.chapter(self.number)

    @property
    def before(self) -> RunFolder | None:
        """Return the folder of the chapter before; None of the first one."""
        return self.run.chapter(self.number - 1) if self.number > 1 else None

    def end(self, config: Config, since: datetime) -> ChapterEnd:
        """Return where the chapter ends that began then."""
        return ChapterEnd(config.follow, self.begins, since.timestamp())

    def values(self) -> dict[str, Any]:
        """Return the lineage that summary, model and states have: plain JSON values."""
        return {"number": self.number, "begins": self.begins, "digest_before": self.digest_before}


def run_of(folder: RunFolder) -> tuple[RunFolder, int] | None:
    """Return the run that a folder is a chapter of, and its number; None if it is none."""
    place, _, name = folder.location.rpartition("/")
    above = place.rpartition("/")[0]
    found = CHAPTER.fullmatch(f"{place.rpartition('/')[2]}/{name}")
    if found is None or not (run := RunFolder(above)).has("config.yaml"):
        return None
    return run, int(found[1])


def earlier(folder: RunFolder) -> list[RunFolder]:
    """Return the folders of the chapters before one that have not expired, newest first."""
    if (found := run_of(folder)) is None:
        return []
    run, number = found
    return [one for one in reversed(run.chapters()) if int(one.root.rpartition("/")[2]) < number]


def is_closed(folder: RunFolder) -> bool:
    """Return True if a chapter has ended, and another one is to follow."""
    with suppress(InputError):
        return folder.has("summary.json") and read_summary(folder)["exit_reason"] == END_OF_CHAPTER
    return False


def begins_from(folder: RunFolder) -> RunFolder | None:
    """Return the state that a chapter went on from, if it is still there as it was then; else None."""
    found = run_of(folder)
    if found is None or found[1] == 1:
        return None
    before = found[0].chapter(found[1] - 1)
    states = before.inside(STATES)
    if before.has("purge.json") or not before.has("config.yaml") or not (numbers := complete(states)):
        return None
    return states.inside(str(numbers[-1]))


# Expiry of closed chapters: of whole chapters by number and age, and of their states where copies must not stay.
#
# Invariant: a chapter that expires loses its config first, without which it is no chapter; what is left of one that was
# killed then goes the next time. The newest closed chapter stays, since the open one may go on from it.

log = logging.getLogger(__name__)


def expire(run: RunFolder, config: Config, now: float | None = None) -> None:
    """Remove closed chapters that are too many or too old (``follow.keep``, ``keep_hours``).

    One that ended less than ``erasure.deadline`` ago stays: it shows that what was deleted in it is gone in time. One
    that another process reads or purges goes the next time.
    """
    now, follow, deadline = time.time() if now is None else now, config.follow, config.erasure.deadline
    chapters = run.chapters()
    closed = chapters if is_closed(chapters[-1]) else chapters[:-1]
    least = 0.0 if deadline is None else microseconds(deadline) / 1e6
    for rank, folder in enumerate(reversed(closed)):
        age = now - ended(folder)
        many = follow.keep is not None and rank >= follow.keep
        old = follow.keep_hours is not None and age >= follow.keep_hours * _HOUR
        if rank and (many or old) and age >= least:
            _remove(folder)
    there = {folder.root for folder in chapters}
    for name in sorted(run.names(CHAPTERS)):
        left = run.inside(f"{CHAPTERS}/{name}")
        if CHAPTER.fullmatch(f"{CHAPTERS}/{name}") and left.root not in there and left.root < chapters[-1].root:
            _remove(left)


def ended(folder: RunFolder) -> float:
    """Return when a chapter ended, in seconds since 1970: now, if its summary does not say it."""
    with suppress(InputError, LookupError, ValueError, TypeError):
        return datetime.fromisoformat(read_summary(folder)["ended"]).timestamp()
    return time.time()


def _remove(folder: RunFolder) -> None:
    """Remove a chapter; files in it that raydt did not write stay."""
    with suppress(ConfigError), locked(folder):
        folder.delete("config.yaml", lasting=True)
        fault("chapter.between_files")
        folder.clear()
        log.info("chapter expired", extra={"event": "chapter_expired", "chapter": folder.location})
    folder.discard()


class ClosedStates:
    """States of closed chapters, which hold examples that were deleted since: none is older than ``limit`` seconds.

    ``clock`` gives seconds since 1970. Without a limit (None) all stay.
    """

    def __init__(self, run: RunFolder, limit: float | None, clock: Callable[[], float] | None = None) -> None:
        self._limit, self._clock = limit, clock or steady_clock()
        folders = [] if limit is None else run.chapters()[:-1]
        self._ended = {folder: ended(folder) for folder in folders if complete(folder.inside(STATES))}

    def age(self) -> float:
        """Return the most seconds for which a deleted example may have been in one of the states."""
        now = self._clock()
        return now - min(self._ended.values(), default=now)

    def expire(self) -> None:
        """Remove states that are too old. The open chapter has a checkpoint of its own."""
        for folder, since in list(self._ended.items()):
            if self._limit is not None and self._clock() - since >= self._limit:
                with suppress(ConfigError), locked(folder):
                    states = folder.inside(STATES)
                    CheckpointStore(states, 1).continue_from(None)
                    states.clear(is_checkpoint_file)
                    states.discard()
                    del self._ended[folder]


# The audit of a run that is kept in chapters: of each that has ended.


def audit_chapters(run: RunFolder, audit: Callable[[str], AuditReport]) -> AuditReport:
    """Audit all chapters that have ended and have a state; return the report on the newest, with failures of all."""
    found = {folder: audit(folder.location) for folder in run.chapters() if _can_be_audited(folder)}
    if not found:
        raise InputError(message("runs.no_summary"), file=run.location)
    *_, report = found.values()
    failures = [
        f"{folder.location.rpartition('/')[2]}: {said}" for folder, one in found.items() for said in one.failures
    ]
    if any(one.conformance == "violated" for one in found.values()):
        report.conformance = "violated"
    if any(one.feasibility == "violated" for one in found.values()):
        report.feasibility = "violated"
    report.checked, report.failures = {**report.checked, "chapters": len(found)}, failures
    return report


def _can_be_audited(folder: RunFolder) -> bool:
    return folder.has("summary.json") and bool(complete(folder.inside(STATES)))


# The purge of a run that is kept in chapters: of each closed chapter that no other one has still to go on from.

#: What a purge of a folder returns, given whether it is a dry run.
Purge = Callable[[RunFolder, bool], dict[str, Any]]


def require_free(folder: RunFolder) -> None:
    """Refuse (InputError) the purge of a chapter that the next one has still to go on from."""
    if _is_needed(folder):
        raise InputError(message("purges.needed_chapter"), file=folder.location)


def _is_needed(folder: RunFolder) -> bool:
    found = run_of(folder)
    return found is not None and is_closed(folder) and not complete(found[0].chapter(found[1] + 1).inside(STATES))


def purge_chapters(run: RunFolder, purge: Purge, *, dry_run: bool) -> dict[str, Any]:
    """Purge the chapters that have ended, and return what :func:`pipelines.purging.steps.purge` does, of all together.

    Nothing is changed if one of them cannot be purged. InputError if none has ended.
    """
    ended = [folder for folder in run.chapters() if _has_ended(folder) and not _is_needed(folder)]
    if not ended:
        raise InputError(message("purges.no_chapter"), file=run.location)
    found = [purge(folder, True) for folder in ended]
    if not dry_run:
        found = [purge(folder, False) for folder in ended]
    names = [folder.location.removeprefix(f"{run.location}/") for folder in ended]
    together: dict[str, Any] = {
        key: [f"{name}/{file}" for name, done in zip(names, found, strict=True) for file in done[key]]
        for key in ("replaced", "rewritten", "left_alone")
    }
    away = list(dict.fromkeys(place for done in found for place in done["out_of_reach"]))
    together |= {"young": all(done["young"] for done in found), "chapters": len(ended)}
    together["out_of_reach"] = [*away, message("purges.later_deleted")]
    return {**found[-1], "folder": run.location, **together}


def _has_ended(folder: RunFolder) -> bool:
    return folder.has("summary.json") and read_summary(folder)["status"] == "completed"


# Chapters: a run that has no end, kept as the folders of runs that have ended, one after another.
#
# ``RUN/chapters/000001``, ``000002``, ... are run folders. All but the newest are closed: they have model, state,
# tables, summary and report, and no process writes there. The newest goes on from the last state of the one before it,
# until it has a checkpoint of its own. Nothing else is written in ``RUN`` but its config, ``status.json``, and the
# report about all chapters, where the run ends or ``raydt report`` asks for it.
#
# Invariant: the model, and the rows of the tables of all chapters, are those of the same run without chapters.
