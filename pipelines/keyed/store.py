"""Checkpoints of models by key: a file for each group, shared by the checkpoints in which it has not changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raydt.exchange.snapshot import Snapshot
from raydt.folders.arrays import publish_component
from raydt.folders.checkpoint import BESIDE, ROWS, Checkpoint, CheckpointStore
from raydt.folders.folder import Folder
from raydt.folders.manifest import FileEntry, read_manifest


class KeyedStore(CheckpointStore):
    """The checkpoints of one run; a snapshot has the groups that have changed since the one before."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._groups: dict[str, FileEntry] = {}  # of the checkpoint written or read last, by component

    def continue_from(self, checkpoint: Checkpoint | None) -> None:
        """Have the next checkpoint follow this one; see the base class."""
        super().continue_from(checkpoint)
        self._groups = {}
        if checkpoint is not None:
            files = read_manifest(self.folder.inside(str(checkpoint.number))).files
            self._groups = {file.component: file for file in files if file.name.startswith(BESIDE)}

    def _write_rows(self, folder: Folder, number: int, snapshot: Snapshot) -> tuple[list[Any], Any, Mapping[str, Any]]:
        """Write the groups that have changed, or whose files are gone, beside the checkpoint."""
        for part in snapshot.parts:
            for group, found in part.items():
                component = f"group-{group:03d}"
                (entry,) = publish_component(folder, component, found.state, beside=BESIDE)
                self._groups[component] = entry
        there = set(self.folder.names(ROWS))
        missing = [one.name for one in self._groups.values() if one.name.removeprefix(BESIDE) not in there]
        if missing:
            raise FileNotFoundError(missing[0])
        return [], sorted(self._groups.values(), key=lambda file: file.component), snapshot.state
