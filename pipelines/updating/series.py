"""A folder of successive states: each is an entry named by its number of updates, and ``latest`` names the newest.

Invariant: an entry is complete once its manifest is there, and then never changed, only removed where it is one too
many. ``latest`` and ``report.html`` follow from the newest complete entry: a process that is killed before it writes
them leaves what the next one puts right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipelines.outputs import Input, require_apart
from pipelines.run_files import is_of_state
from pipelines.run_folder import RunFolder
from pipelines.updating.series_report import series_page
from raydt.errors import ConfigError
from raydt.folders.checkpoint import is_checkpoint_folder
from raydt.folders.folder import final_name
from raydt.folders.lock import LOCK, locked
from raydt.folders.manifest import MANIFEST, complete, read_manifest
from raydt.messages import message

#: Names the newest entry, in a line of text.
LATEST = "latest"
REPORT = "report.html"


class Series:
    """The folder at a location, which need not exist."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @classmethod
    def of_state(cls, location: str | Path) -> Series | None:
        """Return the folder of successive states that a state's location is; None if it is something else."""
        folder = RunFolder(location)
        return cls(folder) if folder.has(LATEST) else None

    @contextmanager
    def open(self, base: RunFolder, taken: Iterable[RunFolder]) -> Iterator[None]:
        """Be the only process that writes the folder, without what a killed one left; ConfigError if it is not free."""
        place = self.folder.location
        require_apart("--out", place, [Input("what is updated", one.location) for one in taken])
        with locked(self.folder):
            names = set(self.folder.names())
            ours = {LOCK, LATEST, REPORT}
            if any(final_name(name) not in ours and not is_checkpoint_folder(name) for name in names):
                raise ConfigError(message("updates.full_folder", folder=place))
            numbers = complete(self.folder)
            if numbers and self.place(numbers[-1]).location != base.location:
                raise ConfigError(message("updates.other_base", folder=place, newest=f"{place}/{numbers[-1]}"))
            for name in names - ours:
                if not is_checkpoint_folder(name):
                    self.folder.delete(name)
                elif int(name) not in numbers:
                    self.folder.inside(name).clear(is_of_state)
                    self.folder.discard(name)
            yield

    @staticmethod
    def require_keep(keep: int | None, series: Series | None) -> None:
        """Refuse (ConfigError) a number of states to keep that is not positive, or where there is no such folder."""
        if keep is not None and (keep < 1 or series is None):
            raise ConfigError(message("updates.nothing_to_keep", keep=keep))

    def place(self, updates: int) -> RunFolder:
        """Return the folder of the state after so many updates."""
        return self.folder.inside(str(updates))

    def point_to_newest(self, keep: int | None = None) -> None:
        """Write ``latest`` and the report, and remove all but the newest ``keep`` states that nobody writes."""
        numbers = complete(self.folder)
        if numbers:
            meta = read_manifest(self.place(numbers[-1])).meta
            self.folder.write_text(REPORT, series_page(meta, self.folder.location))
            self.folder.write_text(LATEST, f"{numbers[-1]}\n")
        for number in numbers[:-keep] if keep is not None else ():
            old = self.place(number)
            with suppress(ConfigError), locked(old):
                old.delete(MANIFEST, lasting=True)  # first: without it the rest is no state, and goes with the next
                old.clear(is_of_state)
            old.discard()
