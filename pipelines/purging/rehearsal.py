"""A folder that notes what would be written and removed, and changes nothing.

Invariant: whoever reads it finds what would be there by then, as far as names, manifests and other JSON files go. So
the code that writes a checkpoint or a model can be run on it, and its notes say what the same code will do to the
files of the real folder.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyarrow import fs

from pipelines.run_folder import RunFolder


@dataclass
class Notes:
    """Paths of files, as their filesystem has them."""

    gone: set[str] = field(default_factory=set)  #: Files that would be removed.
    rewritten: set[str] = field(default_factory=set)  #: Files that would have other contents.
    #: All files that would be written; the contents of JSON files, else None.
    written: dict[str, bytes | None] = field(default_factory=dict)


class Rehearsal(RunFolder):
    """A folder that changes nothing, and adds to ``notes`` what would change of the real one."""

    def __init__(self, folder: RunFolder, notes: Notes | None = None) -> None:
        self.__dict__.update(folder.__dict__)
        self.notes = Notes() if notes is None else notes

    def publish(self, name: str, data: bytes | memoryview) -> None:
        """Note a file that would be written."""
        path, notes = self.path(name), self.notes
        notes.gone.discard(path)
        notes.rewritten.discard(path)
        notes.written[path] = bytes(data) if name.endswith(".json") else None
        size = super().size(name)
        if size is not None and (size != len(data) or super().read(name) != data):
            notes.rewritten.add(path)

    def delete(self, name: str, *, lasting: bool = False) -> None:
        """Note a file that would be removed."""
        self._remove(self.path(name))

    def discard(self, name: str = "") -> None:
        """Folders stay."""

    def files(self, name: str = "") -> Iterator[str]:
        """Files that would be there."""
        within = f"{self.root}/"
        new = {path.removeprefix(within) for path in self.notes.written if path.startswith(f"{self.path(name)}/")}
        yield from {path for path in super().files(name) if self.path(path) not in self.notes.gone} | new

    def has(self, name: str) -> bool:
        """Whether an entry would exist."""
        path = self.path(name)
        return path in self.notes.written or (path not in self.notes.gone and super().has(name))

    def names(self, name: str = "") -> list[str]:
        """Entries that would be there; folders stay."""
        within = self.path(name).rstrip("/")
        kept = {one for one in super().names(name) if posixpath.join(within, one) not in self.notes.gone}
        new = {path[len(within) + 1 :].split("/")[0] for path in self.notes.written if path.startswith(f"{within}/")}
        return sorted(kept | new)

    def size(self, name: str) -> int | None:
        """Bytes that a JSON file would have."""
        data = self.notes.written.get(self.path(name))
        return super().size(name) if data is None else len(data)

    def read(self, name: str) -> bytes:
        """Contents that a JSON file would have."""
        data = self.notes.written.get(self.path(name))
        return super().read(name) if data is None else data

    def _remove(self, path: str) -> None:
        notes = self.notes
        notes.written.pop(path, None)
        notes.rewritten.discard(path)
        if self._look(path).type == fs.FileType.File:
            notes.gone.add(path)
