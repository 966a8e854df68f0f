"""Text ids of a state that several processes have written: each those of some buckets, in a component of its own.

The bucket of an id is the first byte of the CRC-32 of its UTF-8 text. Such a component, ``ids-<begin>-<end>``, has the
codes, ascending, and the ids of its buckets as a ragged entry. ``stream`` has the ids of deleted examples that are not
forgotten yet (``dead``, with ``dead_codes`` and ``dead_rows``), and neither ``ids`` nor ``id_codes`` nor ``id_died``:
:func:`joined` makes these.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from raydt.arrays.types import Arrays, Ints
from raydt.errors import ModelFileError
from raydt.exchange.messages import Buckets
from raydt.folders.arrays import open_folder, publish_component
from raydt.folders.folder import Folder
from raydt.folders.manifest import FileEntry
from raydt.messages import message

#: Buckets of ids.
BUCKETS = 256
_COMPONENT = re.compile(r"ids-([0-9]{3})-([0-9]{3})")
_CODES, _LENGTHS, _VALUES = "id_codes", "ids_lengths", "ids_values"
#: Rows for which a deleted id is remembered by a run that forgets none.
ALWAYS = 1 << 62


class IdsElsewhere(ABC):
    """The entry ``ids`` of a stream's state whose ids other processes have, as they were when it was taken."""

    @abstractmethod
    def write(self, folder: Folder) -> list[FileEntry]:
        """Have the ids written into the folder of a checkpoint; OSError or NotWrittenError if that fails."""


@dataclass(frozen=True)
class SavedIds:
    """The entry ``ids`` of a stream's state whose ids lie in components of their own, to be read by several."""

    folder: Folder
    parts: Mapping[Buckets, str]  #: Names of the components, by buckets.
    components: Mapping[str, Mapping[str, Any]]  #: Those of the state, each read when it is asked for.

    @classmethod
    def of(cls, folder: Folder) -> SavedIds:
        """Return the ids of the state in a folder; ModelFileError if that is damaged."""
        components = open_folder(folder.root, "state", filesystem=folder.filesystem)[1]
        return cls(folder, parts_in(components), components)

    def of_buckets(self, wanted: Buckets) -> Iterator[tuple[list[int], list[str]]]:
        """Yield codes and ids of some buckets, one component after the other; ModelFileError if one is damaged."""
        for there, component in self.parts.items():
            if there.begin >= wanted.end or wanted.begin >= there.end:
                continue
            try:
                codes, names = unpacked(self.components[component])
            except (KeyError, ValueError) as error:
                raise ModelFileError(message("models.segments", reason=str(error)), file=self.folder.root) from error
            pairs = [*zip(codes.tolist(), names, strict=True)]
            if there.begin < wanted.begin or wanted.end < there.end:
                pairs = [pair for pair in pairs if wanted.begin <= bucket_of(pair[1]) < wanted.end]
            yield [code for code, _ in pairs], [name for _, name in pairs]

    def whole(self, stream: Mapping[str, Any]) -> dict[str, Any]:
        """Return the component ``stream`` of the state as :func:`joined` does; errors as of :meth:`of_buckets`."""
        found = self.of_buckets(Buckets(0, BUCKETS))
        return joined(stream, ((np.array(codes, dtype=np.int64), names) for codes, names in found))


def bucket_of(name: str) -> int:
    """Return the bucket of an id."""
    return crc32(name.encode()) >> 24


def parts_in(components: Iterable[str]) -> dict[Buckets, str]:
    """Return the names of components that have ids, by buckets; ValueError unless none has any, or all are there."""
    found = {Buckets(*map(int, parts.groups())): name for name in components if (parts := _COMPONENT.fullmatch(name))}
    if found and sorted(bucket for part in found for bucket in part) != list(range(BUCKETS)):
        raise ValueError(message("models.uneven", columns=", ".join(found.values()), examples=0))
    return found


def packed(codes: Ints, names: Sequence[str]) -> Arrays:
    """Return the arrays of a component, of ids in the order of their codes."""
    text = pa.array(names, pa.large_string())
    ends, values = text.buffers()[1:]
    offsets = np.frombuffer(ends, dtype=np.int64)[: len(names) + 1] if names else np.zeros(1, dtype=np.int64)
    return {
        _CODES: codes,
        _LENGTHS: np.diff(offsets),
        _VALUES: np.frombuffer(values or b"", dtype=np.uint8)[: offsets[-1]],
    }


def unpacked(arrays: Mapping[str, Any]) -> tuple[Ints, list[str]]:
    """Return codes and ids of a component; KeyError or ValueError if its arrays do not fit each other."""
    codes, lengths, values = arrays[_CODES], arrays[_LENGTHS], arrays[_VALUES]
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
    if len(codes) != len(lengths) or lengths.min(initial=0) < 0 or offsets[-1] != len(values):
        raise ValueError(message("models.uneven", columns=f"{_LENGTHS}, {_VALUES}", examples=len(codes)))
    text = pa.LargeStringArray.from_buffers(len(codes), pa.py_buffer(offsets), pa.py_buffer(values))
    text.validate(full=True)
    return codes, text.to_pylist()


def publish(folder: Folder, buckets: Buckets, arrays: Arrays) -> list[FileEntry]:
    """Write the component of some buckets, to which nothing refers yet."""
    return publish_component(folder, f"ids-{buckets.begin:03d}-{buckets.end:03d}", arrays)


def joined(stream: Mapping[str, Any], parts: Iterable[tuple[Ints, list[str]]]) -> dict[str, Any]:
    """Return the component ``stream`` of a state with all ids in it, as one process writes it.

    ValueError if parts do not fit it.
    """
    found = list(parts)
    codes = np.concatenate([np.empty(0, dtype=np.int64), *(codes for codes, _ in found)])
    names = [name for _, some in found for name in some]
    order = np.argsort(codes, kind="stable")
    codes, died = codes[order], np.full(len(codes), -1, dtype=np.int64)
    at = np.searchsorted(codes, stream["dead_codes"])
    if not np.array_equal(codes[np.minimum(at, len(codes) - 1)] if len(codes) else codes, stream["dead_codes"]):
        raise ValueError(message("models.uneven", columns="dead_codes", examples=len(codes)))
    died[at] = stream["dead_rows"]
    rest = {name: value for name, value in stream.items() if not name.startswith("dead")}
    return {**rest, "ids": [names[place] for place in order.tolist()], _CODES: codes, "id_died": died}


def of_format_1(stream: Mapping[str, Any], live: Ints) -> dict[str, Any]:
    """Return the component ``stream`` of format 1, in which the source has the ids by code, as it is written now.

    ``live`` are the codes of live examples; deleted ids are never forgotten. ValueError if a live example has no id.
    """
    source, alive = dict(stream["source"]), set(live.tolist())
    names = source.pop("ids")
    rest = {**stream, "source": source}
    if not names:  # ids are integers, or there are none
        return rest
    found = {code: name for code, name in enumerate(names) if name is not None}  # a purge has erased others
    if not alive <= found.keys():
        raise ValueError(message("models.uneven", columns="ids", examples=len(alive)))
    died = [-1 if code in alive else len(names) for code in found]
    known = {"ids": [*found.values()], _CODES: np.array([*found], dtype=np.int64), "id_died": np.array(died)}
    return {**rest, **known, "id_next": len(names), "id_rows": len(names), "id_remembered": ALWAYS}


def in_format_1(stream: Mapping[str, Any]) -> dict[str, Any]:
    """Return a component that :func:`of_format_1` has made, without ids that are not there any more, as it was."""
    names: list[str | None] = [None] * stream.get("id_next", 0)
    for code, name in zip(stream.get(_CODES, np.empty(0)).tolist(), stream.get("ids", []), strict=True):
        names[code] = name
    own = {"ids", _CODES, "id_died", "id_next", "id_rows", "id_remembered"}
    rest = {name: value for name, value in stream.items() if name not in own}
    return {**rest, "source": {**stream["source"], "ids": names}}


def apart(components: Mapping[str, dict[str, Any]], folder: Folder) -> dict[str, Any]:
    """Return the component ``stream`` of a state that was read with parts apart, its ids to be read by several."""
    stream, parts = components["stream"], parts_in(components)
    return {**stream, "ids": SavedIds(folder, parts, components)} if parts else stream


def divided(
    components: Mapping[str, Mapping[str, Any]], folder: Folder
) -> tuple[Mapping[str, Mapping[str, Any]], list[FileEntry]]:
    """Have ids that are elsewhere written; returns the components without them, and the files."""
    stream = components.get("stream", {})
    ids = stream.get("ids")
    if not isinstance(ids, IdsElsewhere):
        return components, []
    files = ids.write(folder)
    return {**components, "stream": {name: value for name, value in stream.items() if name != "ids"}}, files
