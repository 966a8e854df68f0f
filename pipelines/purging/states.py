"""A saved state on its own: its dictionaries are rewritten. Its rows are live ones only, as it was written."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from pipelines.purging.dictionaries import erased_categories, erased_classes, erased_stream, next_running
from pipelines.purging.foreign import foreign_files
from pipelines.purging.receipt import OUT_OF_REACH
from pipelines.purging.rehearsal import Notes, Rehearsal
from pipelines.purging.scope import Scope
from pipelines.run_files import is_of_state
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import open_state
from raydt.errors import InputError
from raydt.folders.arrays import save_folder
from raydt.folders.manifest import MANIFEST
from raydt.sessions.saved_model import SavedModel


class StatePurge:
    """The purge of a state.

    Attributes
    ----------
    saved : SavedModel
    since : datetime
        When the state was written.
    clock : str
        What says so.
    foreign : list of str
        Files in the folder that are not of a state.

    Raises
    ------
    InputError
        It is damaged, a model without its examples, or a checkpoint of a run; or a link has the name of a file.
    """

    clock = f"the time of {MANIFEST}"

    out_of_reach: tuple[str, ...] = (
        "the run or the data that the state was made from, earlier states, and files of ids given to update",
        "models, predictions and reports that were made from it, and receipts that were printed",
        *OUT_OF_REACH,
    )

    def __init__(self, folder: RunFolder) -> None:
        self.saved: SavedModel = open_state(folder.location)[0]
        self._folder = folder
        if self.saved.meta.get("segments") or self.saved.meta.get("config_hash") is not None:
            raise InputError(
                "it is a checkpoint of a run, whose rows lie outside this folder",
                file=folder.location,
                remedy="Give the folder of the run",
            )
        self.foreign = foreign_files(folder, lambda path: is_of_state(path.removeprefix(f"{folder.root}/")))
        self._session = self.saved.session()
        written = folder.filesystem.get_file_info(folder.path(MANIFEST)).mtime
        self.since = written.astimezone(timezone.utc) if written is not None else datetime.now(timezone.utc)

    @property
    def active(self) -> int:
        """Live examples."""
        return int(self._session.coordinator.store.live)

    def digest(self) -> str:
        """Of the model."""
        return str(self._session.digest())

    def prepare(self, scope: Scope) -> None:
        """Find out what the dictionaries will be."""
        saved = self.saved
        self._meta: dict[str, Any] = {key: value for key, value in saved.meta.items() if key not in _OF_THE_FILE}
        self._meta |= {"classes": erased_classes(saved), "categories": erased_categories(saved, saved.categories)}
        self._meta |= {"next_id": next_running(saved)}
        self._components = {name: saved.components[name] for name in saved.components}
        if "stream" in self._components:
            self._components["stream"] = erased_stream(saved, self._components["stream"], scope)

    def plan(self) -> Notes:
        """Find out what :meth:`rewrite` would do, by doing it on a folder that changes nothing."""
        folder = Rehearsal(self._folder)
        self._write(folder)
        return folder.notes

    def rewrite(self) -> None:
        """Write the state again, then remove what interrupted writes have left."""
        self._write(self._folder)

    def name_of(self, path: str) -> str:
        """What the receipt calls a file: its name in the folder."""
        return path[len(self._folder.root) + 1 :]

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return self._folder.has(name)

    def _write(self, folder: RunFolder) -> None:
        save_folder(folder, "state", self._meta, self._components)


#: Of ``meta``: what is written anew.
_OF_THE_FILE = ("kind", "raydt_version", "format_version", "segments")
