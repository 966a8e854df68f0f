"""Checkpoints: states of one run at its batch barriers, which share the rows they have in common.

What never changes of an example is written once, into the segment of its birth (``raydt.exchange.snapshot``), in the
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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.lazy import Lazy
from raydt.errors import ModelFileError, NotWrittenError, ProcessLostError
from raydt.examples.row_owners import buckets_in, joined_buckets
from raydt.examples.weights import filled, unless_equal
from raydt.exchange.faults import fault
from raydt.exchange.snapshot import Segment, Snapshot
from raydt.folders.arrays import open_folder, publish_component
from raydt.folders.copies import Copies
from raydt.folders.folder import Folder
from raydt.folders.manifest import MANIFEST, NUMBER, FileEntry, complete, is_folder_file, read_manifest, write_manifest
from raydt.folders.parts import (
    PartsElsewhere,
    Place,
    Written,
    among,
    chosen,
    component_of_segment,
    name_of_segment,
    write_parts,
    write_rows,
)
from raydt.messages import message

log = logging.getLogger(__name__)

#: Folder of the segments, next to those of the checkpoints; and how a manifest names it.
ROWS = "rows"
BESIDE = f"../{ROWS}/"

#: Folders of checkpoints and of their segments.
_FOLDERS = re.compile(rf"{NUMBER}|{ROWS}")

#: Components of a state that stay in memory while it is restored; larger ones are read group by group.
KEEP_BYTES = 1 << 28


def is_checkpoint_file(path: str) -> bool:
    """Whether checkpoints have files of this name in the folder of a run's checkpoints, complete or not."""
    folder, _, name = path.partition("/")
    return _FOLDERS.fullmatch(folder) is not None and is_folder_file(name)


def is_checkpoint_folder(name: str) -> bool:
    """Whether it is the folder of a checkpoint, or of segments, in the folder of a run's checkpoints."""
    return _FOLDERS.fullmatch(name) is not None


class _Stored(NamedTuple):
    """A segment with the births of its examples and the files it is in."""

    segment: Segment
    born: npt.NDArray[np.int64]
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
    meta: Mapping[str, Any]  #: As of a state, see :data:`raydt.folders.manifest.REQUIRED_META`.
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
            stored, live, with_deleted = [], {}, []
            for entry in [*(e for e in self._stored if e.segment.first < snapshot.since), *written]:
                alive = among(entry.born, snapshot.born)
                if alive.any():
                    stored.append(entry)
                    live[name_of_segment(entry.segment)] = np.packbits(alive)
                    with_deleted += [name_of_segment(entry.segment)] if not alive.all() else []
            small = {"coordinator": rest, "live": live, **components}
            files += [file for name, part in small.items() if part for file in publish_component(folder, name, part)]
            shared = [file for entry in stored for file in entry.files]
            segments: dict[str, Any] = {"segments": [list(entry.segment) for entry in stored]}
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
            self._prune(number)
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
            files = [file for name, part in components.items() for file in publish_component(folder, name, part)]
            fault("checkpoint.before_manifest")
            write_manifest(folder, "state", meta, files)
            fault("checkpoint.after_manifest")
            for other in self.numbers():
                if other != number:
                    self.folder.delete(f"{other}/{MANIFEST}", lasting=True)
            self._sweep()
        except OSError as error:
            raise NotWrittenError(message("machine.not_written", reason=str(error)), file=folder.root) from error

    def _write_rows(
        self, folder: Folder, number: int, snapshot: Snapshot
    ) -> tuple[list[_Stored], list[FileEntry], Mapping[str, Any]]:
        """Write what is new of the rows; return the segment, its files, and what else the coordinator has."""
        born = snapshot.born[np.searchsorted(snapshot.born, snapshot.since) :]
        place = Place(folder, BESIDE, Segment(snapshot.since, number, len(born)), none_live=not len(snapshot.born))
        here = Written([], [])
        rest = write_rows(place, "coordinator", {**snapshot.rows, "born": born}, snapshot.state, here)
        if isinstance(snapshot.parts, PartsElsewhere):
            all_written = [here, *snapshot.parts.write(place)]
        else:
            all_written = [here, *(write_parts(place, part) for part in snapshot.parts)]
        files = [file for written in all_written for file in written.of_segment]
        files.sort(key=lambda file: file.component)
        stored = [_Stored(place.segment, born, files)] if len(born) else []
        return stored, [file for written in all_written for file in written.rest], rest

    def _prune(self, number: int) -> None:
        """Remove the checkpoints that are too many, and those after ``number``, which was just written."""
        numbers = self.numbers()
        kept = self.copies.kept([other for other in numbers if other <= number][-self.keep :], number)
        for other in set(numbers) - set(kept):
            self.folder.delete(f"{other}/{MANIFEST}")  # first: without it the rest is no checkpoint
        self._sweep()
        self.copies.remain(kept)

    def _sweep(self) -> None:
        """Remove the files of checkpoints that no complete one refers to, and no others."""
        wanted, unknown = set(), set()
        for number in map(str, self.numbers()):
            try:
                names = {file.name for file in read_manifest(self.folder.inside(number)).files}
            except ModelFileError:
                unknown |= {number, ROWS}  # it may be readable next time, and its rows have to be there then
                continue
            wanted |= {posixpath.normpath(f"{number}/{name}") for name in (*names, MANIFEST)}
        for path in filter(is_checkpoint_file, list(self.folder.files())):
            if path not in wanted and path.partition("/")[0] not in unknown:
                self.folder.delete(path)
        for name in self.folder.names():
            if is_checkpoint_folder(name):
                self.folder.discard(name)


def read_checkpoint(folder: Folder, *, apart: bool = False) -> Checkpoint:
    """Read a checkpoint or state, but what is ``apart``, after checking it; ModelFileError names a bad file."""
    meta, components = open_folder(folder.root, "state", filesystem=folder.filesystem)
    with _fitting(folder.root):
        number = int(meta["offset"])
    files = read_manifest(folder).files
    whole = with_rows(meta, components, folder.root, apart=apart)
    stored = []
    for segment in _segments(meta):
        prefix = component_of_segment(segment)
        own = [file for file in files if file.component == prefix or file.component.startswith(f"{prefix}-group-")]
        stored.append(_Stored(segment, components[prefix]["born"], own))
    return Checkpoint(number, meta, whole, stored)


def read_parts(folder: Folder) -> Lazy[str]:
    """Return the components of a state that was found sound, to be read one by one; buckets are apart."""
    meta, components = open_folder(folder.root, "state", filesystem=folder.filesystem)
    return with_rows(meta, components, folder.root, apart=True, check=False)


def with_rows(
    meta: Mapping[str, Any],
    components: Mapping[str, Mapping[str, Any]],
    file: str,
    *,
    apart: bool = False,
    check: bool = True,
) -> Lazy[str]:
    """Return the components of a state with the live rows of all segments, those of buckets also ``apart``.

    All are put together once, unless ``check`` is False, and above :data:`KEEP_BYTES` again when asked for.
    ModelFileError names ``file``, also later, if segments do not fit.
    """
    segments: list[tuple[str, npt.NDArray[np.bool_]]] = []
    buckets = {part: name for name in components if (part := buckets_in(name)) is not None}

    def put_together(name: str) -> dict[str, Any]:
        whole = dict(components.get(name, {}))
        columns: dict[str, list[npt.NDArray[Any]]] = {}
        with _fitting(file):
            for prefix, alive in segments:
                of_segment = prefix if name == "coordinator" else f"{prefix}-{name}"
                found = chosen(components.get(of_segment, {}), alive)
                if name == "coordinator":  # a segment of rows that all have a weight of 1 has no weights
                    found["weight"] = filled(found.get("weight"), int(alive.sum()))
                for column, values in found.items():
                    columns.setdefault(column, []).append(values)
            whole |= {column: np.concatenate(values) for column, values in columns.items()}
            if unless_equal(whole.get("weight")) is None:
                whole.pop("weight", None)
            if name == "coordinator" and buckets and not apart:
                whole |= joined_buckets(whole["id"], {part: components[own] for part, own in buckets.items()})
        return whole

    with _fitting(file):
        own = {name for name in components if name != "live" and not name.startswith("rows-")}
        own -= set() if apart else set(buckets.values())
        unused = {name for name in components if name.startswith("rows-")}
        for segment in _segments(meta):
            prefix = component_of_segment(segment)
            segments.append((prefix, _alive(components, segment)))
            of_groups = {name for name in unused if name.startswith(f"{prefix}-group-")}
            unused -= of_groups | {prefix}
            own |= {name.removeprefix(f"{prefix}-") for name in of_groups} | {"coordinator"}
        if unused:
            raise ValueError(message("models.no_segment", component=min(unused)))
        if not own & {"coordinator", "arrays"}:
            raise ValueError(message("models.no_entry", name="coordinator"))
    # What is no group is needed by all that read a state, and first.
    order = sorted(own, key=lambda name: (name.startswith(("group-", "buckets-")), name))
    whole = Lazy(order, put_together, KEEP_BYTES)
    for name in order if check else ():
        if not (apart and name in buckets.values()):
            whole[name]
    return whole


@contextlib.contextmanager
def _fitting(file: str) -> Iterator[None]:
    """Context in which segments that are missing, or of other kinds or lengths, are damage of ``file``."""
    try:
        yield
    except ModelFileError:
        raise  # it names the file that is damaged
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ModelFileError(message("models.segments", reason=str(error)), file=file) from error


def _alive(components: Mapping[str, Mapping[str, Any]], segment: Segment) -> npt.NDArray[np.bool_]:
    """Which examples of a segment live."""
    prefix = component_of_segment(segment)
    if len(components[prefix]["born"]) != segment.rows:
        raise ValueError(message("models.uneven", columns=prefix, examples=segment.rows))
    live = components["live"][name_of_segment(segment)]
    if live.dtype != np.uint8 or live.shape != ((segment.rows + 7) // 8,):
        raise ValueError(message("models.uneven", columns=f"the bitmap of {prefix}", examples=segment.rows))
    return np.unpackbits(live, count=segment.rows).astype(np.bool_)


def _segments(meta: Mapping[str, Any]) -> Iterator[Segment]:
    return (Segment(*map(int, entry)) for entry in meta.get("segments", []))
