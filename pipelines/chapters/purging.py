"""The purge of a run that is kept in chapters: of each closed chapter that no other one has still to go on from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipelines.chapters.chapter import is_closed, run_of
from pipelines.run_files import STATES
from pipelines.run_folder import RunFolder
from pipelines.running.ending import read_summary
from raydt.errors import InputError
from raydt.folders.manifest import complete
from raydt.messages import message

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
    """Purge the chapters that have ended, and return what :func:`pipelines.purging.job.purge` does, of all together.

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
