"""A saved state on its own: its dictionaries are rewritten. Its rows are live ones only, as it was written."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from pipelines.purging.dictionaries import Scope, erased_categories, erased_classes, erased_stream, next_running
from pipelines.purging.rehearsal import Notes, Rehearsal
from pipelines.purging.work import Work, foreign_files
from pipelines.run_files import is_of_state
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import open_state
from raydt.errors import InputError
from raydt.folders.arrays import save_folder
from raydt.folders.manifest import MANIFEST, OF_THE_FOLDER
from raydt.messages import message
from raydt.sessions.copies import OF_A_PURGED_STATE


class StatePurge(Work):
    """The purge of a state; InputError if it is damaged, no state, of a run, or a link has a name of ours."""

    clock = f"the time of {MANIFEST}"

    out_of_reach = OF_A_PURGED_STATE

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self._open()
        if self.saved.meta.get("segments") or self.saved.meta.get("config_hash") is not None:
            raise InputError(message("purges.checkpoint"), file=folder.location)
        self.foreign = foreign_files(folder, lambda path: is_of_state(path.removeprefix(f"{folder.root}/")))
        written = folder.filesystem.get_file_info(folder.path(MANIFEST)).mtime
        self.since = written.astimezone(timezone.utc) if written is not None else datetime.now(timezone.utc)

    def _open(self) -> None:
        """Understand the state."""
        self.saved = open_state(self.folder)[0]

    def digest(self) -> str:
        """Return the digest of the model."""
        return str(self.saved.session().digest())

    def prepare(self, scope: Scope) -> None:
        """Find out what the dictionaries will be."""
        saved = self.saved
        self._meta: dict[str, Any] = {key: value for key, value in saved.meta.items() if key not in OF_THE_FOLDER}
        self._meta |= {"classes": erased_classes(saved), "categories": erased_categories(saved, saved.categories)}
        self._meta |= {"next_id": next_running(saved)}
        self._components = {name: saved.components[name] for name in saved.components}
        self._components["coordinator"] = saved.completed()
        if "stream" in self._components:
            self._components["stream"] = erased_stream(saved, self._components["stream"], scope)

    def plan(self) -> Notes:
        """Find out which files would be removed or get other contents."""
        folder = Rehearsal(self.folder)
        self._write(folder)
        return folder.notes

    def rewrite(self) -> None:
        """Write the state again, then remove what interrupted writes have left."""
        self._write(self.folder)

    def _write(self, folder: RunFolder) -> None:
        save_folder(folder, "state", self._meta, self._components)
