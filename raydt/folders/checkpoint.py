"""Checkpoints: states of one run at its batch barriers, which share the rows they have in common.

What never changes of an example is written once, into the segment of its birth (``raydt.exchange.messages``), in the
folder ``rows``; a checkpoint names its segments and has a bitmap of the examples that live in each. Of a *ragged* entry
a segment has ``<name>_lengths`` and ``<name>_values``. ``docs/reference/formats.md`` has the layout. Invariant: a
manifest is written last and is the commit. Whatever fails or is killed, the last complete checkpoint can be read, and
what :func:`read_checkpoint` returns was written, bit for bit. A manifest lists only segments whose files exist then;
one that was removed is written again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import posixpath
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.elementary import Arrays, Bools, Ints
from raydt.errors import ModelFileError, NotWrittenError, ProcessLostError
from raydt.exchange.messages import OWNED, Segment, Snapshot, fault
from raydt.folders.arrays import (
    MANIFEST,
    NUMBER,
    FileEntry,
    complete,
    divided,
    is_folder_file,
    open_folder,
    publish_component,
    read_manifest,
    write_manifest,
)
from raydt.folders.folder import Folder
from raydt.folders.segments import (
    CheckpointPlace,
    PartsElsewhere,
    Written,
    among,
    component_of_segment,
    fitting,
    is_of_segment,
    name_of_segment,
    segments_of,
    with_rows,
    write_parts,
    write_rows,
)
from raydt.messages import message

# Since when checkpoints may hold copies of examples that have been deleted.
#
# Invariant: no example whose copy is in a checkpoint was deleted before the time kept for it here, which is that at
# which a snapshot was asked for. Once a copy may be as old as the ``limit``, its checkpoint is removed, and a segment
# of rows that later checkpoints share is left out, so that its live examples are written again.


def steady_clock() -> Callable[[], float]:
    """Seconds since 1970 as the clock says now, and from now on as they pass: whoever sets the clock moves nothing."""
    begin = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)  # which goes on while a machine sleeps
    return lambda: begin + time.clock_gettime(time.CLOCK_BOOTTIME)


class Copies:
    """Ages of copies in the checkpoints of one run.

    A copy has to go with the next checkpoint from ``limit`` seconds on (None: no limit). ``clock`` gives seconds since
    1970, as a run may be resumed on another machine.
    """

    def __init__(self, limit: float | None, clock: Callable[[], float] | None = None) -> None:
        self.limit, self._clock = limit, clock or steady_clock()
        self._segments: dict[str, float] = {}
        self._checkpoints: dict[int, float] = {}
        self._asked = self._before = self._clock()

    def age(self) -> float:
        """Most seconds for which a deleted example may have been in a checkpoint."""
        return self._clock() - min(self._checkpoints.values(), default=self._clock())

    def ask(self) -> None:
        """A snapshot is about to be asked for."""
        self._asked = self._clock()

    def has_to_go(self, segment: str) -> bool:
        """Return True if the next checkpoint must not share a segment."""
        return self._is_old(self._segments.get(segment))

    def kept(self, numbers: Iterable[int], newest: int) -> list[int]:
        """Checkpoints that may stay besides the ``newest``."""
        return [n for n in numbers if n == newest or not self._is_old(self._checkpoints.get(n, float("-inf")))]

    def wrote(self, number: int, with_deleted: Collection[str]) -> None:
        """A checkpoint was written; segments ``with_deleted`` examples are among its own."""
        self._segments = {name: self._segments.get(name, self._before) for name in with_deleted}
        self._checkpoints = {**self._checkpoints, number: self.since}
        self._before = self._asked

    def since_with(self, with_deleted: Collection[str]) -> float:
        """Time for the manifest of a checkpoint that is being written: of its own copies and of earlier checkpoints."""
        own = [self._segments.get(name, self._before) for name in with_deleted]
        return min([self._asked, *own, *self._checkpoints.values()])

    @property
    def since(self) -> float:
        """Time before which nothing in the newest checkpoint was deleted."""
        return min([self._asked, *self._segments.values()])

    def remain(self, numbers: Collection[int]) -> None:
        """These checkpoints exist."""
        self._checkpoints = {n: since for n, since in self._checkpoints.items() if n in numbers}

    def resume(self, number: int | None, segments: Iterable[str], meta: Mapping[str, object]) -> None:
        """The next checkpoint follows this one (None: none), whose manifest may say how old its copies are.

        If it does not, or says a time to come, because a clock was wrong, they go with the next checkpoint.
        """
        since = meta.get("copies_since")
        if not isinstance(since, float) or not since <= self._clock():
            since = self._clock() - (self.limit or 0.0)
        self._segments = dict.fromkeys(segments, since)
        self._checkpoints = {} if number is None else {number: since}
        self._before = since

    def _is_old(self, since: float | None) -> bool:
        return self.limit is not None and since is not None and self._asked - since >= self.limit


log = logging.getLogger(__name__)


#: Folder of the segments, next to those of the checkpoints; and how a manifest names it.
ROWS = "rows"
BESIDE = f"../{ROWS}/"

#: Folders of checkpoints and of their segments.
_FOLDERS = re.compile(rf"{NUMBER}|{ROWS}")


def is_checkpoint_file(path: str) -> bool:
    """Return True if checkpoints have files of this name in the folder of a run's checkpoints, complete or not."""
    folder, _, name = path.partition("/")
    return _FOLDERS.fullmatch(folder) is not None and is_folder_file(name)


def is_checkpoint_folder(name: str) -> bool:
    """Return True if it is the folder of a checkpoint, or of segments, in the folder of a run's checkpoints."""
    return _FOLDERS.fullmatch(name) is not None


class _Stored(NamedTuple):
    """A segment with the births of its examples, and the files it is in."""

    segment: Segment
    born: Ints | None  #: None where the owners of the rows know.
    files: list[FileEntry]

    @property
    def names(self) -> set[str]:
        """Of the files, in the folder of the segments."""
        return {file.name.removeprefix(BESIDE) for file in self.files}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and found sound, the rows put together."""

    number: int  #: Updates done.
    meta: dict[str, Any]
    #: ``coordinator`` and ``group-000``, ... hold the arrays of all live examples (:func:`with_rows`).
    components: Mapping[str, dict[str, Any]]
    stored: list[_Stored]


class CheckpointContent(NamedTuple):
    """A checkpoint on its way from the barrier to the disk."""

    number: int  #: Updates done.
    meta: Mapping[str, Any]  #: As of a state, see :data:`raydt.folders.arrays.REQUIRED_META`.
    snapshot: Snapshot  #: Taken with :attr:`CheckpointStore.segments`.
    components: Mapping[str, Mapping[str, Any]]  #: What else belongs to it (stream, tables).


class CheckpointStore:
    """The checkpoints of one run, at most ``keep``, whose ``copies`` have limits; one thread writes."""

    def __init__(self, folder: Folder, keep: int, copies: Copies | None = None) -> None:
        self.folder, self.keep = folder, keep
        self.copies = Copies(None) if copies is None else copies
        self._stored: list[_Stored] = []

    @property
    def segments(self) -> list[Segment]:
        """Return the segments that the next snapshot can omit: those of the last checkpoint that exist and may stay."""
        self.copies.ask()
        kept: Iterable[_Stored] = self._stored
        with contextlib.suppress(OSError):  # the write looks again, and says what is wrong
            missing = self._missing(self._stored)
            if missing:
                log.warning(message("models.segment_again", folder=self.folder.location, segment=min(missing)))
            kept = takewhile(lambda stored: missing.isdisjoint(stored.names), self._stored)
        kept = takewhile(lambda stored: not self.copies.has_to_go(name_of_segment(stored.segment)), kept)
        return [stored.segment for stored in kept]

    def _missing(self, stored: Iterable[_Stored]) -> set[str]:
        """Names of the files of segments that do not exist."""
        names = {name for entry in stored for name in entry.names}
        return names - set(self.folder.names(ROWS)) if names else names

    def numbers(self) -> list[int]:
        """Of the complete checkpoints, ascending."""
        return complete(self.folder)

    def continue_from(self, checkpoint: Checkpoint | None) -> None:
        """Have the next checkpoint follow this one (None: none); remove later ones, or raise NotWrittenError."""
        self._stored = checkpoint.stored if checkpoint is not None else []
        number, meta = (checkpoint.number, checkpoint.meta) if checkpoint is not None else (None, {})
        self.copies.resume(number, (name_of_segment(stored.segment) for stored in self._stored), meta)
        for number in self.numbers():
            if checkpoint is None or number > checkpoint.number:
                try:
                    self.folder.delete(f"{number}/{MANIFEST}", lasting=True)
                except OSError as error:
                    said = message("models.not_removed", reason=str(error))
                    raise NotWrittenError(said, file=self.folder.path(str(number))) from error

    def write(self, content: CheckpointContent) -> int:
        """Write a checkpoint, remove those that are too many, and return the bytes; after an error none is changed."""
        number, meta, snapshot, components = content
        folder = self.folder.inside(str(number))
        try:
            written, files, rest = self._write_rows(folder, number, snapshot)
            stored, with_deleted = list[_Stored](), list[str]()
            live: Arrays = {OWNED: snapshot.owned.counts} if snapshot.owned is not None else {}
            kept = [*(e for e in self._stored if e.segment.first < snapshot.since), *written]
            for entry, (examples, alive) in zip(kept, _alive_of(kept, snapshot), strict=True):
                if examples:
                    stored.append(entry)
                    with_deleted += [name_of_segment(entry.segment)] if examples < entry.segment.rows else []
                    if alive is not None:
                        live[name_of_segment(entry.segment)] = np.packbits(alive)
            components, of_ids = divided(components, folder)
            files += of_ids
            small = {"coordinator": rest, "live": live, **components}
            files += [file for name, part in small.items() if part for file in publish_component(folder, name, part)]
            shared = [file for entry in stored for file in entry.files]
            segments: dict[str, Any] = {"segments": [entry.segment.range for entry in stored]}
            if self.copies.limit is not None:
                segments["copies_since"] = self.copies.since_with(with_deleted)
            missing = self._missing(stored)
            if missing:
                raise FileNotFoundError(errno.ENOENT, message("models.segment_removed"), f"{ROWS}/{min(missing)}")
            fault("checkpoint.before_manifest")
            write_manifest(folder, "state", {**meta, **segments}, files + shared)
            fault("checkpoint.after_manifest")
            self._stored = stored
            self.copies.wrote(number, with_deleted)
            self._prune(number, {file.name for file in files + shared})
        except (OSError, NotWrittenError, ProcessLostError) as error:
            with contextlib.suppress(OSError):
                self._sweep()  # what was written of it; where the disk is full, the next one needs the space
            if not isinstance(error, OSError):
                raise
            raise NotWrittenError(message("machine.not_written", reason=str(error)), file=folder.root) from error
        return sum(file.bytes for file in files) + sum(file.bytes for entry in written for file in entry.files)

    def write_alone(self, number: int, meta: Mapping[str, Any], components: Mapping[str, Mapping[str, Any]]) -> None:
        """Write a state with all its rows as the only checkpoint; NotWrittenError if others cannot be removed."""
        folder = self.folder.inside(str(number))
        try:
            files = []
            for name, part in components.items():
                files += publish_component(folder, name, part, beside=self._beside(name))
            fault("checkpoint.before_manifest")
            write_manifest(folder, "state", meta, files)
            fault("checkpoint.after_manifest")
            for other in self.numbers():
                if other != number:
                    self.folder.delete(f"{other}/{MANIFEST}", lasting=True)
            self._sweep()
        except OSError as error:
            raise NotWrittenError(message("machine.not_written", reason=str(error)), file=folder.root) from error

    def _beside(self, component: str) -> str:
        """Return the folder of a component of a state that is alone."""
        return ""

    def _write_rows(
        self, folder: Folder, number: int, snapshot: Snapshot
    ) -> tuple[list[_Stored], list[FileEntry], Mapping[str, Any]]:
        """Write what shards have set aside, and the rows that are new, if there are any.

        Returns the new segment, files of the checkpoint, and what else the coordinator has.
        """
        here, since, owned = Written([], []), snapshot.since, snapshot.owned
        rest: Mapping[str, Any] = snapshot.state
        born: Ints | None = None
        if owned is not None:
            segment = Segment(since, number, owned.live[-1], owned=True)
            place = CheckpointPlace(folder, BESIDE, segment, none_live=not any(owned.live))
        else:
            born = snapshot.born[np.searchsorted(snapshot.born, since) :]
            place = CheckpointPlace(folder, BESIDE, Segment(since, number, len(born)), none_live=not len(snapshot.born))
            rest = write_rows(place, "coordinator", {**snapshot.rows, "born": born}, snapshot.state, here, len(born))
        if isinstance(snapshot.parts, PartsElsewhere):
            all_written = [here, *snapshot.parts.write(place)]
        else:
            all_written = [here, *(write_parts(place, part) for part in snapshot.parts)]
        files = [file for written in all_written for file in written.of_segment]
        files.sort(key=lambda file: file.component)
        stored = [_Stored(place.segment, born, files)] if place.segment.rows else []
        return stored, [file for written in all_written for file in written.rest], rest

    def _prune(self, number: int, names: set[str]) -> None:
        """Remove the checkpoints that are too many, and those after ``number``, just written with files ``names``."""
        numbers = self.numbers()
        kept = self.copies.kept([other for other in numbers if other <= number][-self.keep :], number)
        for other in set(numbers) - set(kept):
            self.folder.delete(f"{other}/{MANIFEST}")  # first: without it the rest is no checkpoint
        self._sweep({str(number): names})
        self.copies.remain(kept)

    def _sweep(self, known: Mapping[str, set[str]] | None = None) -> None:
        """Remove what interrupted writes have left; ``known`` as of :meth:`left_over`."""
        for path in self.left_over(known):
            self.folder.delete(path)
        for name in self.folder.names():
            if is_checkpoint_folder(name):
                self.folder.discard(name)

    def left_over(self, known: Mapping[str, set[str]] | None = None) -> list[str]:
        """Return the files of checkpoints that no complete one refers to, and no others.

        ``known`` has the names of files of checkpoints, by number: to read a manifest of many keys takes a second.
        """
        wanted, unknown = set(), set()
        for number in map(str, self.numbers()):
            try:
                names = (known or {}).get(number)
                if names is None:
                    names = {file.name for file in read_manifest(self.folder.inside(number)).files}
            except ModelFileError:
                unknown |= {number, ROWS}  # it may be readable next time, and its rows have to be there then
                continue
            wanted |= {posixpath.normpath(f"{number}/{name}") for name in (*names, MANIFEST)}
        files = filter(is_checkpoint_file, self.folder.files())
        return [path for path in files if path not in wanted and path.partition("/")[0] not in unknown]


def _alive_of(stored: Sequence[_Stored], snapshot: Snapshot) -> Iterator[tuple[int, Bools | None]]:
    """Yield how many examples of each segment live and which, unless their owners know."""
    for number, entry in enumerate(stored):
        alive = None if entry.born is None else among(entry.born, snapshot.born)
        if snapshot.owned is not None:
            yield snapshot.owned.live[number], None
        elif alive is not None:
            yield int(np.count_nonzero(alive)), alive


def read_checkpoint(folder: Folder, *, apart: bool = False) -> Checkpoint:
    """Read a checkpoint or state, but what is ``apart``, after checking it; ModelFileError names a bad file."""
    meta, components = open_folder(folder.root, "state", filesystem=folder.filesystem)
    with fitting(folder.root):
        number = int(meta["offset"])
    files = read_manifest(folder).files
    whole = with_rows(meta, components, folder.root, apart=apart)
    stored = []
    for segment in segments_of(meta, components):
        own = [file for file in files if is_of_segment(file.component, segment)]
        born = None if segment.owned else components[component_of_segment(segment)]["born"]
        stored.append(_Stored(segment, born, own))
    return Checkpoint(number, meta, whole, stored)
