"""One chapter: what it goes on from.

Invariant: where a chapter begins is where the last state of the chapter before is, and its digest is that one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipelines.chapters.end import ChapterEnd
from pipelines.config import Config
from pipelines.run_files import CHAPTER, STATES
from pipelines.run_folder import RunFolder
from pipelines.running.ending import END_OF_CHAPTER, read_summary
from pipelines.saved_runs import last_state
from raydt.errors import InputError
from raydt.folders.manifest import complete


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
