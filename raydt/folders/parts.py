"""The files of a checkpoint that hold what shards have set aside, written by whichever process has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydt.arrays.types import AnyArray, Arrays, Bools, Ints
from raydt.examples.row_owners import component_of
from raydt.exchange.messages import Buckets, GroupSnapshot
from raydt.exchange.snapshot import Parts, Segment
from raydt.folders.arrays import publish_component
from raydt.folders.folder import Folder
from raydt.folders.manifest import FileEntry
from raydt.messages import Message, message

#: How the two arrays of a ragged entry are called.
_LENGTHS, _VALUES = "_lengths", "_values"
#: Examples that are looked for at once.
_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Place:
    """Where a checkpoint is being written."""

    folder: Folder  #: Of the checkpoint.
    beside: str  #: How it names the folder of the segments.
    segment: Segment  #: Of the new examples.
    #: Whether no example lives. Then there is no segment: types and shapes of no rows go with the rest.
    none_live: bool


@dataclass(frozen=True)
class Written:
    """Files of some parts: of the segment, and of the checkpoint."""

    of_segment: list[FileEntry]
    rest: list[FileEntry]


class PartsElsewhere(ABC, Iterable[Parts]):
    """Parts of a snapshot in other processes, which can write them. Once they are iterated over or written."""

    @abstractmethod
    def write(self, place: Place) -> Iterator[Written]:
        """Have the parts written, those of each process; OSError or NotWrittenError if one cannot be."""


def write_parts(place: Place, parts: Parts) -> Written:
    """Write parts that are in this process; ValueError if their arrays do not have an entry for each example."""
    return write_each(place, parts.items())


def write_each(place: Place, parts: Iterable[tuple[int | Buckets, GroupSnapshot]]) -> Written:
    """As :func:`write_parts`, one after the other."""
    written = Written([], [])
    for whose, part in parts:
        if isinstance(whose, Buckets):
            name, examples = component_of(whose), len(part.rows["born"])
        else:
            name, examples = f"group-{whose:03d}", place.segment.rows
        rest = write_rows(place, name, part.rows, part.state, written, examples)
        if rest:
            written.rest.extend(publish_component(place.folder, name, rest))
    return written


def write_rows(
    place: Place, name: str, rows: Arrays, state: Arrays, written: Written, examples: int
) -> Mapping[str, Any]:
    """Write what never changes of so many new examples; returns what else the component ``name`` has."""
    if problem := uneven(rows, examples):
        raise ValueError(problem.at(name))
    if place.segment.rows and rows:
        component = component_of_segment(place.segment) + ("" if name == "coordinator" else f"-{name}")
        written.of_segment.extend(publish_component(place.folder, component, rows, beside=place.beside))
    return {**state, **rows} if place.none_live else state


def name_of_segment(segment: Segment) -> str:
    """Return the name of a segment."""
    return f"{segment.first}-{segment.stop}"


def component_of_segment(segment: Segment) -> str:
    """Return the name of the component that holds what the coordinator has of the examples of a segment."""
    return f"rows-{name_of_segment(segment)}"


def uneven(arrays: Mapping[str, AnyArray], examples: int) -> Message | None:
    """Return what is wrong with arrays that do not have an entry for each example."""
    found = [column for column, entries in _entries(arrays).items() if entries != examples]
    return message("models.uneven", columns=", ".join(found), examples=examples) if found else None


def among(born: Ints, living: Ints) -> Bools:
    """Return which births are among others, which ascend. O(n log n), and a byte of memory for each."""
    found = np.zeros(len(born), dtype=np.bool_)
    for begin in range(0, len(born) if len(living) else 0, _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        place = np.minimum(np.searchsorted(living, born[part]), len(living) - 1)
        found[part] = living[place] == born[part]
    return found


def chosen(arrays: Mapping[str, AnyArray], alive: Bools) -> Arrays:
    """Return the entries of the examples that live."""
    if problem := uneven(arrays, len(alive)):
        raise ValueError(problem)
    found = {}
    for column, values in arrays.items():
        lengths = _ragged(arrays, column)
        found[column] = values[alive if lengths is None else np.repeat(alive, arrays[lengths])]
    return found


def _ragged(arrays: Mapping[str, AnyArray], column: str) -> str | None:
    """Name of the lengths, if a column is the values of a ragged entry."""
    lengths = column.removesuffix(_VALUES) + _LENGTHS
    return lengths if column.endswith(_VALUES) and lengths in arrays else None


def _entries(arrays: Mapping[str, AnyArray]) -> dict[str, int]:
    """How many examples each array has entries for; -1 where values are not as many as their lengths say."""
    entries = {column: len(values) for column, values in arrays.items()}
    for column, values in arrays.items():
        lengths = _ragged(arrays, column)
        if lengths is not None:
            counts = arrays[lengths]
            sound = counts.min(initial=0) >= 0 and int(counts.sum(dtype=np.int64)) == len(values)
            entries[column] = entries[lengths] if sound else -1
    return entries
