"""Text ids of a stream at the processes of shards: each has those of its buckets (``raydt.streams.id_part``).

The driver asks, in the thread that reads the stream; shards answer beside their work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actors.liveness import IDS, PARTS, Peer, Watch
from raydt.examples.row_owners import RowOwners
from raydt.folders.folder import Folder
from raydt.folders.manifest import FileEntry
from raydt.folders.text_ids import SavedIds, publish
from raydt.streams.id_part import Moment


class IdsOnShards:
    """The parts of a dictionary of text ids; implements :class:`raydt.streams.id_dictionary.IdParts`.

    ``here`` says whether all processes see the folders of this one; else this one reads and writes local files, those
    of one part after the other. ProcessLostError if a process is lost: its ids are gone with it.
    """

    def __init__(self, shards: Sequence[Peer], watch: Watch, here: bool) -> None:
        self.parts = len(shards)
        self._shards, self._watch, self._here = shards, watch, here
        self._buckets = RowOwners(self.parts).of_all()

    def call(self, method: str, each: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Call a method of each part with arguments of its own, at the same time; None of a part that has none."""
        return self._call(IDS, "ids", [None if given is None else (method, given) for given in each])

    def write(self, moment: Moment, folder: Folder) -> list[FileEntry]:
        """Have the parts write the ids of a moment at the same time; NotWrittenError if one cannot."""
        if self._sees(folder):
            given = [(moment, buckets, plain(folder)) if len(buckets) else None for buckets in self._buckets]
            return [file for files in self._call(PARTS, "write_ids", given) for file in files or ()]
        files: list[FileEntry] = []
        for place, buckets in enumerate(self._buckets):
            if len(buckets):
                aside = self._call(PARTS, "ids", self._for_one(place, ("take", (moment,))))[place]
                files += publish(folder, buckets, aside)
        return files

    def read(self, saved: SavedIds) -> int:
        """Have the parts read their ids of a state, and return how many; ModelFileError if one is damaged."""
        if self._sees(saved.folder):
            given = [(plain(saved.folder), buckets) for buckets in self._buckets]
            return sum(self._call(IDS, "read_ids", given))
        self.call("begin", [()] * self.parts)
        count = 0
        for place, buckets in enumerate(self._buckets):
            for codes, names in saved.of_buckets(buckets):
                self.call("add", self._for_one(place, (names, codes)))
                count += len(codes)
        return count

    def _sees(self, folder: Folder) -> bool:
        """Return True if all processes see a folder."""
        return self._here or not folder.is_local

    def _for_one(self, place: int, given: tuple[Any, ...]) -> list[tuple[Any, ...] | None]:
        return [given if part == place else None for part in range(self.parts)]

    def _call(self, group: str, method: str, each: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        asked = {place: given for place, given in enumerate(each) if given is not None}
        shards = [self._shards[place] for place in asked]
        calls = [
            getattr(shard.handle, method).options(concurrency_group=group).remote(*given)
            for shard, given in zip(shards, asked.values(), strict=True)
        ]
        replies = dict(zip(asked, self._watch.collect(calls, shards), strict=True))
        return [replies.get(place) for place in range(self.parts)]


def plain(folder: Folder) -> Folder:
    """Return the same folder for a process that works elsewhere on this machine."""
    return Folder.at(folder.address) if folder.is_local else folder
