"""The rows of a state, which its segments and their owners have, put together.

A segment has what never changes of its examples. Which of them live says a bitmap of the coordinator or, where shards
own the rows (``raydt.examples.row_owners``), the births in each owner's part.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydt.arrays.blocks import Lazy
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Ints
from raydt.errors import ModelFileError
from raydt.examples.row_owners import (
    are_in,
    joined_buckets,
    joined_by_birth,
    parts_for,
    require_all_buckets,
)
from raydt.examples.updates import filled, unless_equal
from raydt.exchange.messages import OWNED, STORED, Buckets, GroupSnapshot, Parts, Segment, buckets_in, component_of
from raydt.folders.arrays import FileEntry, of_format_1, parts_in, publish_component, unpacked
from raydt.folders.arrays import joined as joined_ids
from raydt.folders.folder import Folder
from raydt.messages import Message, message

# The files of a checkpoint that hold what shards have set aside, written by whichever process has it.

#: How the two arrays of a ragged entry are called.
_LENGTHS, _VALUES = "_lengths", "_values"
#: Examples that are looked for at once.
_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class CheckpointPlace:
    """The folder in which a checkpoint is being written."""

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
    def write(self, place: CheckpointPlace) -> Iterator[Written]:
        """Have the parts written, those of each process; OSError or NotWrittenError if one cannot be."""


def write_parts(place: CheckpointPlace, parts: Parts) -> Written:
    """Write parts that are in this process; ValueError if their arrays do not have an entry for each example."""
    return write_each(place, parts.items())


def write_each(place: CheckpointPlace, parts: Iterable[tuple[int | Buckets, GroupSnapshot]]) -> Written:
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
    place: CheckpointPlace, name: str, rows: Arrays, state: Arrays, written: Written, examples: int
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
    if alive.all():
        return dict(arrays)
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
    """Return for how many examples each array has entries; -1 where values are not as many as their lengths say."""
    entries = {column: len(values) for column, values in arrays.items()}
    for column, values in arrays.items():
        lengths = _ragged(arrays, column)
        if lengths is not None:
            counts = arrays[lengths]
            sound = counts.min(initial=0) >= 0 and int(counts.sum(dtype=np.int64)) == len(values)
            entries[column] = entries[lengths] if sound else -1
    return entries


Components = Mapping[str, Mapping[str, Any]]
Alive = Bools

#: Components of a state that stay in memory while it is restored; larger ones are read group by group.
KEEP_BYTES = 1 << 28


def with_rows(
    meta: Mapping[str, Any],
    components: Components,
    file: str,
    *,
    apart: bool = False,
    check: bool = True,
    less: int = 0,
) -> Lazy[str]:
    """Return the components of a state with the live rows of all its segments in ``coordinator`` and the groups.

    What shards have written of the rows in their buckets is in ``coordinator``, too, or in components of its own if
    wanted ``apart``. Where they have written all of the rows, the groups then have all that are stored, and each owner
    knows which of its own live (:func:`whole_rows`).

    Each is put together once here, one after the other, unless ``check`` is False, so that all that could be wrong with
    them is found. Components apart are not, nor are the groups then: who restores them reads them. Those that need more
    than :data:`KEEP_BYTES` in all, or than that halved ``less`` times, are put together again when they are asked for.
    ModelFileError, which names ``file``, if a segment or its bitmap is missing or does not fit; also later.
    """
    with fitting(file):
        rows = _StoredRows(meta, components, apart)

    def put_together(name: str) -> dict[str, Any]:
        with fitting(file):
            return rows.put_together(name)

    # What is no group is needed by all that read a state, and first.
    order = sorted(rows.names, key=lambda name: (name.startswith(("group-", "buckets-")), name))
    # Who does not check them takes parts, and has what it needs of these then.
    whole = Lazy(order, put_together, KEEP_BYTES >> (less if check else 4))
    for name in order if check else ():
        if not (apart and rows.is_apart(name)):
            whole[name]
    return whole


def rows_in(
    meta: Mapping[str, Any], components: Components, own: Buckets, file: str
) -> tuple[Arrays, Mapping[int, Arrays]]:
    """Return what owners have written of the rows in some buckets, in the order of birth, and of these each group.

    Groups are read when they are asked for, one segment of one group at a time. ModelFileError, which names ``file``,
    if something is missing or does not fit, also later.
    """
    with fitting(file):
        stored = _StoredRows(meta, components, apart=True)
        rows = stored.owned(own)

    def of_group(group: int) -> dict[str, Any]:
        with fitting(file):
            return stored.of_group(f"group-{group:03d}", rows["born"])

    return rows, Lazy((int(name[6:]) for name in stored.names if name.startswith("group-")), of_group)


def whole_rows(
    state: Arrays, groups: Mapping[int, Arrays], buckets: Mapping[Buckets, Mapping[str, Any]]
) -> tuple[Arrays, Mapping[int, Arrays]]:
    """Return a state with the rows in it that were apart. ValueError if these do not fit each other."""
    if not buckets:
        return state, groups
    if "id" in state:  # the coordinator has written all that leaves and ledger do not need
        return {**state, **joined_buckets(state["id"], buckets)}, groups
    rows, alive = _joined(buckets)
    own = {name: array for name, array in state.items() if name != OWNED}
    return {**own, **rows}, Lazy(groups, lambda group: with_live(groups[group], alive))


def _joined(parts: Mapping[Buckets, Mapping[str, Any]]) -> tuple[Arrays, Alive]:
    """Put together what owners have written of all rows; and which of all that are stored live."""
    stored = list[Ints]()

    def rows_of(part: Buckets) -> Arrays:
        arrays = dict(parts[part])
        stored.append(arrays.pop(STORED))
        return arrays

    rows = joined_by_birth(Lazy(parts, rows_of))
    return rows, among(np.sort(np.concatenate(stored)), rows["born"])


def with_live(group: Mapping[str, Any], alive: Alive) -> dict[str, Any]:
    """Return what a group has, of the examples that live."""
    by_row = {name: array for name, array in group.items() if name == "X" or name.startswith("sparse_")}
    return {**group, **chosen(by_row, alive)}


class _StoredRows:
    """Components of a state, and the segments of its rows. KeyError or ValueError if one is missing or does not fit."""

    def __init__(self, meta: Mapping[str, Any], components: Components, apart: bool) -> None:
        self._components, self._apart = components, apart
        self._segments = segments_of(meta, components)
        self.buckets = {part: name for name in components if (part := buckets_in(name)) is not None}
        self.ids = parts_in(components)
        #: Segments that the coordinator has written, each with which of its examples live.
        self._alive = {segment: _alive(components, segment) for segment in self._segments if not segment.owned}
        self._are_owned = OWNED in components.get("live", {})
        self._all_alive: Alive | None = None
        self.names = {name for name in components if name != "live" and not name.startswith("rows-")}
        unused = {name for name in components if name.startswith("rows-")}
        for segment in self._segments:
            prefix = component_of_segment(segment)
            of_segment = {name for name in unused if is_of_segment(name, segment)}
            unused -= of_segment
            self.names |= {name.removeprefix(f"{prefix}-") for name in of_segment if "-group-" in name} | {
                "coordinator"
            }
        if unused or any(segment.owned != self._are_owned for segment in self._segments):
            missing = min(unused, default=component_of_segment(self._segments[0]) if self._segments else "")
            raise ValueError(message("models.no_segment", component=missing))
        self.names -= set() if apart else {*self.buckets.values(), *self.ids.values()}
        if not self.names & {"coordinator", "arrays"}:
            raise ValueError(message("models.no_entry", name="coordinator"))
        if self._are_owned:
            require_all_buckets(self.buckets, sum(segment.rows for segment in self._segments))

    def is_apart(self, name: str) -> bool:
        """Return whether a component is for who owns the rows, or their features, to read."""
        return name in (*self.buckets.values(), *self.ids.values()) or (self._are_owned and name.startswith("group-"))

    def put_together(self, name: str) -> dict[str, Any]:
        """Return a component with its rows."""
        part = buckets_in(name)
        if part is not None:
            return self._part(part) if self._are_owned else dict(self._components[name])
        whole = dict(self._components.get(name, {}))
        if name == "stream" and self.ids and not self._apart:
            return joined_ids(whole, (unpacked(self._components[part]) for part in self.ids.values()))
        if name == "stream" and "ids" in whole.get("source", {}):
            return of_format_1(whole, self.put_together("coordinator")["id"])
        if name == "coordinator" and self._are_owned:
            if self._apart:
                return whole | {OWNED: self._components["live"][OWNED]}
            rows, self._all_alive = _joined(self._parts)
            return whole | rows
        columns: dict[str, list[AnyArray]] = {}
        for segment in self._segments:
            prefix, alive = component_of_segment(segment), self._alive.get(segment)
            found = dict(self._components.get(prefix if name == "coordinator" else f"{prefix}-{name}", {}))
            if alive is not None:
                found = chosen(found, alive)
            elif problem := uneven(found, segment.rows):
                raise ValueError(problem)
            if name == "coordinator":  # a segment of rows that all have a weight of 1 has no weights
                found["weight"] = filled(found.get("weight"), len(found["born"]))
            for column, values in found.items():
                columns.setdefault(column, []).append(values)
        whole |= {column: np.concatenate(parts) if parts[1:] else parts[0] for column, parts in columns.items()}
        if unless_equal(whole.get("weight")) is None:
            whole.pop("weight", None)
        if self._are_owned and not self._apart and name.startswith("group-"):
            return with_live(whole, self._alive_of_all())
        if name == "coordinator" and self.buckets and not self._apart:
            return whole_rows(whole, {}, self._parts)[0]
        return whole

    def owned(self, own: Buckets) -> dict[str, Any]:
        """Return what owners have written of the rows in some buckets, in the order of birth."""
        files = list[Arrays]()
        for part in parts_for([own], self.buckets):
            found = self._part(part)
            found.pop(STORED)
            found["weight"] = filled(found.get("weight"), len(found["born"]))
            files.append(chosen(found, are_in(found["id"], own)))
        rows = dict(_together(files))
        if unless_equal(rows["weight"]) is None:
            rows.pop("weight")
        return rows

    def of_group(self, name: str, born: Ints) -> dict[str, Any]:
        """Return what a group has of the rows with some births, ascending, of those that owners have written."""
        columns: dict[str, list[AnyArray]] = {}
        for segment in self._segments:
            inside = born[(born >= segment.first) & (born < segment.stop)]
            place = np.zeros(len(inside), dtype=np.int64)
            for births in self._births(segment):
                place += np.searchsorted(births, inside)
            mine = np.zeros(segment.rows, dtype=np.bool_)
            mine[place] = True
            of_segment = self._components[f"{component_of_segment(segment)}-{name}"]
            for column, values in chosen(of_segment, mine).items():
                columns.setdefault(column, []).append(values)
        of_segments = {column: np.concatenate(values) for column, values in columns.items()}
        return {**self._components.get(name, {}), **of_segments}

    def _births(self, segment: Segment) -> Iterator[Ints]:
        """Yield the births in each file of a segment that owners have written, ascending."""
        prefix = component_of_segment(segment)
        for name in self._components:
            if name.startswith(f"{prefix}-") and buckets_in(name.removeprefix(f"{prefix}-")) is not None:
                yield np.sort(self._components[name]["born"])

    @property
    def _parts(self) -> Mapping[Buckets, Mapping[str, Any]]:
        """The parts that shards have written of the rows in their buckets, read on demand."""
        return Lazy(self.buckets, lambda part: self.put_together(self.buckets[part]))

    def _alive_of_all(self) -> Alive:
        """Return which of all examples that owners have stored live."""
        if self._all_alive is None:
            self._all_alive = _joined(self._parts)[1]
        return self._all_alive

    def _part(self, part: Buckets) -> dict[str, Any]:
        """Return what an owner has written of its rows, with what its segments have of these."""
        found, stored = dict(self._components[self.buckets[part]]), [np.empty(0, dtype=np.int64)]
        columns: dict[str, list[AnyArray]] = {}
        for segment in self._segments:
            of_segment = _together(list(self._own_of(segment, part)))
            stored.append(of_segment["born"])
            alive = among(of_segment["born"], found["born"])
            for column, values in chosen(of_segment, alive).items():
                columns.setdefault(column, []).append(values)
        of_segments = {column: np.concatenate(values) for column, values in columns.items()}
        if columns and not np.array_equal(of_segments["born"], found["born"]):
            raise ValueError(message("models.uneven", columns=self.buckets[part], examples=len(found["born"])))
        if unless_equal(of_segments.get("weight")) is None:
            of_segments.pop("weight", None)
        return {**found, **of_segments, STORED: np.concatenate(stored)}

    def _own_of(self, segment: Segment, part: Buckets) -> Iterator[Arrays]:
        """Yield what each file of a segment has of the rows in some buckets."""
        prefix = component_of_segment(segment)
        for name in self._components:
            there = buckets_in(name.removeprefix(f"{prefix}-")) if name.startswith(f"{prefix}-") else None
            if there is not None and parts_for([part], [there]):
                arrays = dict(self._components[name])
                if problem := uneven(arrays, len(arrays["born"])):
                    raise ValueError(problem)
                arrays["weight"] = filled(arrays.get("weight"), len(arrays["born"]))
                yield chosen(arrays, are_in(arrays["id"], part))


def _together(files: Sequence[Arrays]) -> Arrays:
    """Put together what files have of some rows, in the order of birth."""
    order = np.argsort(np.concatenate([arrays["born"] for arrays in files]), kind="stable")
    return {name: np.concatenate([arrays[name] for arrays in files])[order] for name in files[0]}


def segments_of(meta: Mapping[str, Any], components: Iterable[str]) -> list[Segment]:
    """Return the segments of a state."""
    segments = [Segment(int(first), int(stop), int(rows)) for first, stop, rows in meta.get("segments", [])]
    names = set(components)
    return [segment._replace(owned=component_of_segment(segment) not in names) for segment in segments]


def is_of_segment(component: str, segment: Segment) -> bool:
    """Return whether a segment has this component."""
    prefix = component_of_segment(segment)
    return component == prefix or component.startswith((f"{prefix}-group-", f"{prefix}-buckets-"))


@contextlib.contextmanager
def fitting(file: str) -> Iterator[None]:
    """Context in which segments that are missing, or of other kinds or lengths, are damage of ``file``."""
    try:
        yield
    except ModelFileError:
        raise  # it names the file that is damaged
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ModelFileError(message("models.segments", reason=str(error)), file=file) from error


def _alive(components: Components, segment: Segment) -> Alive:
    """Return which examples of a segment live."""
    prefix = component_of_segment(segment)
    if len(components[prefix]["born"]) != segment.rows:
        raise ValueError(message("models.uneven", columns=prefix, examples=segment.rows))
    live = components["live"][name_of_segment(segment)]
    if live.dtype != np.uint8 or live.shape != ((segment.rows + 7) // 8,):
        raise ValueError(message("models.uneven", columns=f"the bitmap of {prefix}", examples=segment.rows))
    return np.unpackbits(live, count=segment.rows).astype(np.bool_)
