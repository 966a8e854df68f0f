"""Checkpoints of models by key: a file for each group, shared by the checkpoints in which it has not changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raydt.exchange.snapshot import Parts, Segment, Snapshot
from raydt.folders.arrays import publish_component
from raydt.folders.checkpoint import BESIDE, ROWS, Checkpoint, CheckpointStore
from raydt.folders.folder import Folder
from raydt.folders.manifest import FileEntry, read_manifest
from raydt.folders.parts import PartsElsewhere, Place, Written


def write_groups(place: Place, parts: Parts) -> Written:
    """Write the groups of keys beside the checkpoint, to be shared."""
    files = []
    for group, found in parts.items():
        files += publish_component(place.folder, f"group-{group:03d}", found.state, beside=place.beside)
    return Written([], files)


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

    def _beside(self, component: str) -> str:
        """Groups lie beside the checkpoint, so that those that follow can share them."""
        return BESIDE if component.startswith("group-") else ""

    def _write_rows(self, folder: Folder, number: int, snapshot: Snapshot) -> tuple[list[Any], Any, Mapping[str, Any]]:
        """Write the groups that have changed; those before are shared. FileNotFoundError if a file of one is gone."""
        place, parts = Place(folder, BESIDE, Segment(0, number, 0), none_live=True), snapshot.parts
        written_by = (
            parts.write(place) if isinstance(parts, PartsElsewhere) else (write_groups(place, p) for p in parts)
        )
        for written in written_by:
            self._groups |= {entry.component: entry for entry in written.rest}
        there = set(self.folder.names(ROWS))
        missing = [one.name for one in self._groups.values() if one.name.removeprefix(BESIDE) not in there]
        if missing:
            raise FileNotFoundError(missing[0])
        return [], sorted(self._groups.values(), key=lambda file: file.component), snapshot.state
