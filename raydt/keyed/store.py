"""Checkpoints of models by key: a file for each group, shared by the checkpoints in which it has not changed."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Mapping
from typing import Any

from raydt.exchange.snapshot import Parts, Segment, Snapshot
from raydt.folders.arrays import publish_component
from raydt.folders.checkpoint import BESIDE, ROWS, Checkpoint, CheckpointContent, CheckpointStore
from raydt.folders.folder import Folder
from raydt.folders.manifest import FileEntry, read_manifest
from raydt.folders.parts import PartsElsewhere, Place, Written
from raydt.messages import message

log = logging.getLogger(__name__)


def write_groups(place: Place, parts: Parts) -> Written:
    """Write the groups of keys beside the checkpoint, to be shared."""
    files = []
    for group, found in parts.items():
        files += publish_component(place.folder, f"group-{group:03d}", found.state, beside=place.beside)
    return Written([], files)


class KeyedStore(CheckpointStore):
    """The checkpoints of one run; a snapshot has the groups that have changed since the one before, or are not stored.

    A file of a group holds the live rows of its keys at the time of its snapshot. None of them was deleted since, or
    the group would have changed: so a checkpoint has no older copies than itself.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._groups: dict[str, FileEntry] = {}  # of the checkpoint written or read last, by component

    @property
    def segments(self) -> list[Segment]:
        """Return what the next snapshot can omit: the groups of the last checkpoint whose files exist."""
        self.copies.ask()
        with contextlib.suppress(OSError):  # the write looks again, and says what is wrong
            missing = self._missing_groups()
            if missing:
                log.warning(message("models.segment_again", folder=self.folder.location, segment=min(missing)))
            self._groups = {name: file for name, file in self._groups.items() if file.name not in missing}
        groups = [int(name.removeprefix("group-")) for name in self._groups]
        return [Segment(group, group + 1, 0) for group in sorted(groups)]

    def _missing_groups(self) -> set[str]:
        there = set(self.folder.names(ROWS)) if self._groups else set()
        return {file.name for file in self._groups.values() if file.name.removeprefix(BESIDE) not in there}

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

    def write(self, content: CheckpointContent) -> int:
        """Write a checkpoint; after an error the next one has all groups, since its snapshot forgot which changed."""
        try:
            return super().write(content)
        except BaseException:
            self._groups = {}
            raise

    def _write_rows(self, folder: Folder, number: int, snapshot: Snapshot) -> tuple[list[Any], Any, Mapping[str, Any]]:
        """Write the groups of the snapshot; the others are shared. FileNotFoundError if a file of one is gone."""
        place, parts = Place(folder, BESIDE, Segment(0, number, 0), none_live=True), snapshot.parts
        written_by = (
            parts.write(place) if isinstance(parts, PartsElsewhere) else (write_groups(place, p) for p in parts)
        )
        for written in written_by:
            self._groups |= {entry.component: entry for entry in written.rest}
        missing = self._missing_groups()
        if missing:
            raise FileNotFoundError(errno.ENOENT, message("models.segment_removed"), min(missing))
        return [], sorted(self._groups.values(), key=lambda file: file.component), snapshot.state
