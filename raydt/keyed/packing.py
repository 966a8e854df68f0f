"""What many keys hold as one component of a folder: arrays of one name one after another, values as JSON.

Invariant: :func:`unpacked` gives what :func:`packed` was given, bit for bit.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from raydt.arrays.types import AnyArray, Arrays, Ints
from raydt.folders.manifest import parsed
from raydt.keyed.groups import Key, bytes_of
from raydt.messages import message

#: Between the names of nested values.
_SEPARATOR = "/"

#: Places of keys and their arrays, by path, type and number of dimensions.
_Found = defaultdict[tuple[str, str, int], list[tuple[int, AnyArray]]]


def packed(values: Mapping[Key, Mapping[str, Any]]) -> Arrays:
    """Return nested mappings of arrays and JSON values, by key, as arrays.

    ``json`` has the keys and what is no array, as UTF-8. For each path of names under which some key has an array there
    are ``<path>`` (all of the one dtype, one after another), ``<path>#shape`` (n, dimensions) and ``<path>#key`` (n,),
    the places of the keys that have one. O(values).
    """
    keys = sorted(values, key=bytes_of)
    found: _Found = defaultdict(list)
    rest = [[key, _taken_apart(values[key], "", place, found)] for place, key in enumerate(keys)]
    text = json.dumps(rest, allow_nan=False, separators=(",", ":"))
    whole: Arrays = {"json": np.frombuffer(text.encode(), dtype=np.uint8)}
    for (path, dtype, dimensions), parts in found.items():
        name = f"{path}#{dtype[1:]}#{dimensions}"
        whole[name] = np.concatenate([part for _, part in parts], axis=None)
        whole[f"{name}#shape"] = np.array([part.shape for _, part in parts], dtype=np.int64).reshape(len(parts), -1)
        whole[f"{name}#key"] = np.array([place for place, _ in parts], dtype=np.int64)
    return whole


def _taken_apart(value: Any, path: str, place: int, found: _Found) -> Any:
    """Return the JSON value without its arrays, which are noted with the place of their key."""
    if not isinstance(value, dict | Mapping):  # most are dictionaries, which is asked faster
        return value
    rest = {}
    for name, one in value.items():
        below = f"{path}{_SEPARATOR}{name}" if path else name
        if isinstance(one, np.ndarray):
            found[below, one.dtype.str, one.ndim].append((place, one))
        else:
            rest[name] = _taken_apart(one, below, place, found)
    return rest


def unpacked(arrays: Mapping[str, AnyArray]) -> dict[Key, dict[str, Any]]:
    """Return what was packed, by key; ValueError or TypeError if no :func:`packed` has made it. O(values)."""
    rest = _entries(arrays["json"])
    values = [value for _, value in rest]
    names = [name for name in arrays if name.count("#") == 2]
    wanted = {"json", *(f"{name}{part}" for name in names for part in ("", "#shape", "#key"))}
    if wanted != arrays.keys():
        raise ValueError(message("keyed.uneven", name=min(wanted.symmetric_difference(arrays))))
    for name in names:
        whole, shapes, places = arrays[name], arrays[f"{name}#shape"], arrays[f"{name}#key"]
        path, dtype, dimensions = name.split("#")
        if (
            (whole.dtype.str[1:], whole.ndim, shapes.ndim, shapes.dtype) != (dtype, 1, 2, places.dtype)
            or (places.dtype, places.shape, str(shapes.shape[1])) != (np.dtype(np.int64), shapes.shape[:1], dimensions)
            or not _ascending(places, len(values))
            or shapes.min(initial=0) < 0
        ):
            raise ValueError(message("keyed.uneven", name=name))
        begin = 0
        for place, shape in zip(places.tolist(), shapes.tolist(), strict=True):
            end = begin + math.prod(shape)
            _put(values[place], path.split(_SEPARATOR), whole[begin:end].reshape(shape).copy())
            begin = end
        if begin != len(whole):
            raise ValueError(message("keyed.uneven", name=name))
    return dict(rest)


def _entries(text: AnyArray) -> list[tuple[Key, dict[str, Any]]]:
    """Return the keys, each once and in their order, and what is no array of each."""
    if text.dtype != np.uint8:
        raise ValueError(message("keyed.uneven", name="json"))
    try:
        rest = parsed(text.tobytes())
    except RecursionError as error:
        raise ValueError(str(error)) from error
    for key, value in rest:
        if type(key) not in (str, int) or not isinstance(value, dict):
            raise ValueError(message("keyed.uneven", name="json"))
    names = [bytes_of(key) for key, _ in rest]
    if any(a >= b for a, b in pairwise(names)) or len({type(key) for key, _ in rest}) > 1:
        raise ValueError(message("keyed.uneven", name="json"))
    return [(key, value) for key, value in rest]


def _ascending(places: Ints, end: int) -> bool:
    """Whether places of keys are each there once, in order, from 0 up to before ``end``."""
    return bool(len(places) and places[0] >= 0 and places[-1] < end and (np.diff(places) > 0).all())


def _put(holder: dict[str, Any], path: list[str], array: AnyArray) -> None:
    """Enter an array where nothing is yet."""
    for name in path[:-1]:
        holder = holder.setdefault(name, {})
    if not isinstance(holder, dict) or path[-1] in holder:
        raise ValueError(message("keyed.uneven", name=_SEPARATOR.join(path)))
    holder[path[-1]] = array
