"""The contract of a purge, of a run and of a state.

Invariant: nothing that a symbolic link leads to is read or changed. A link under a name of ours is an error, since what
it leads to would keep the deleted examples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime

from pipelines.purging.dictionaries import Scope, read_ids
from pipelines.purging.rehearsal import Notes
from pipelines.run_folder import RunFolder
from raydt.errors import InputError
from raydt.messages import message
from raydt.sessions.saved_model import SavedModel


class Work(ABC):
    """The purge of a run or of a state, found out by doing it on a folder that changes nothing, and then done."""

    saved: SavedModel  #: The last state.
    since: datetime  #: When the run ended, or the state was written.
    clock: str  #: What says so.
    foreign: list[str]  #: Files in the folder that raydt did not write.
    out_of_reach: tuple[str, ...]  #: Where copies may remain.

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @property
    def active(self) -> int:
        """Live examples."""
        return len(self.saved.arrays["id"])

    def read_ids(self, path: str) -> Scope:
        """Read a list of ids; see :func:`pipelines.purging.dictionaries.read_ids`."""
        return read_ids(path, [self.saved])

    @abstractmethod
    def digest(self) -> str:
        """Return the digest of the model."""

    @abstractmethod
    def prepare(self, scope: Scope) -> None:
        """Find out what dictionaries and texts will be, and which tables change."""

    @abstractmethod
    def plan(self) -> Notes:
        """Find out which files :meth:`rewrite` would remove or give other contents."""

    @abstractmethod
    def rewrite(self) -> None:
        """Do all steps."""

    def name_of(self, path: str) -> str:
        """Return what the receipt calls a file: its name in the folder."""
        return path.removeprefix(f"{self.folder.root}/")

    def has(self, name: str) -> bool:
        """Return True if a file that :meth:`name_of` has named is there."""
        return self.folder.has(name)


def foreign_files(folder: RunFolder, is_ours: Callable[[str], bool]) -> list[str]:
    """Return files that are not ours, links among them, sorted; InputError if a link has a name of ours."""
    found = []
    for name in folder.files():
        path = folder.path(name)
        if not is_ours(path):
            found.append(path)
        elif folder.is_link(name):
            raise InputError(message("purges.link"), file=path)
    return sorted(found)
