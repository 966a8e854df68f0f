"""The snapshots of a place: where the newest complete one lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pipelines.run_files import STATES
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import config_of, states_of
from raydt.errors import ModelFileError
from raydt.folders.manifest import MANIFEST, complete, newest, read_manifest
from raydt.messages import message
from raydt.sessions.saved_model import MODEL


class Found(NamedTuple):
    """Where a snapshot lies; two with the same mark are the same one."""

    folder: RunFolder
    mark: tuple[str, int, int]  #: Place, time of the last change (ns) and size of its manifest.


class Snapshots:
    """The snapshots of a place: a run, its model, its checkpoints or a state.

    ModelFileError if the place is neither a run, finished or going on, nor a model or state.
    """

    def __init__(self, place: str | Path) -> None:
        self._folder = RunFolder(place)
        self._states: RunFolder | None = None  # of a run
        self._is_run = self._folder.has("config.yaml") and not self._folder.has(MANIFEST)
        self._model: tuple[Any, int] | None = None  # mark of the model, and its update
        if self._is_run:
            self._states = states_of(config_of(self._folder), self._folder)
        elif self.find() is None:
            raise ModelFileError(message("models.no_model"), file=self._folder.location)

    def find(self) -> Found | None:
        """Return the newest complete snapshot; None if there is none yet. A few looks at the storage.

        Of a run in chapters it is that of the newest chapter which has one.
        """
        if self._states is None:
            folder = newest(self._folder)
            return _found(folder) if folder.has(MANIFEST) else None
        chapters = reversed(self._folder.chapters())
        found = (self._find(chapter, chapter.inside(STATES)) for chapter in chapters)
        return next(filter(None, found), None) or self._find(self._folder, self._states)

    def _find(self, run: RunFolder, states: RunFolder) -> Found | None:
        """Return the newest complete snapshot of a run or chapter."""
        numbers = complete(states)
        state = states.inside(str(numbers[-1])) if numbers else None
        inside = run.inside(MODEL)
        if inside.has(MANIFEST):
            found = _found(inside)
            if self._model is None or self._model[0] != found.mark:
                self._model = found.mark, int(read_manifest(inside).meta.get("offset", 0))
            if not numbers or self._model[1] >= numbers[-1]:
                return found
        return None if state is None else _found(state)


def _found(folder: RunFolder) -> Found:
    info = folder.filesystem.get_file_info(folder.path(MANIFEST))
    return Found(folder, (folder.location, info.mtime_ns or 0, info.size or 0))
