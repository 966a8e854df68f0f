"""What many keys hold as one component of a folder: arrays of one name one after another, values as JSON.

Invariant: :func:`unpacked` gives what :func:`packed` was given, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.keyed.groups import Key, bytes_of

Arrays = dict[str, "npt.NDArray[Any]"]

#: Between the names of nested values.
_SEPARATOR = "/"


def packed(values: Mapping[Key, Mapping[str, Any]]) -> Arrays:
    """Return nested mappings of arrays and JSON values, by key, as arrays.

    ``json`` has the keys and what is no array, as UTF-8. For each path of names under which some key has an array there
    are ``<path>`` (all of the one dtype, one after another), ``<path>#shape`` (n, dimensions) and ``<path>#key`` (n,),
    the places of the keys that have one. O(values).
    """
    keys = sorted(values, key=bytes_of)
    found: dict[tuple[str, str, int], tuple[list[int], list[npt.NDArray[Any]]]] = {}
    rest = []
    for place, key in enumerate(keys):
        arrays: list[tuple[str, npt.NDArray[Any]]] = []
        rest.append([key, _taken_apart(values[key], "", arrays)])
        for path, array in arrays:
            places, parts = found.setdefault((path, array.dtype.str, array.ndim), ([], []))
            places.append(place)
            parts.append(array)
    text = json.dumps(rest, allow_nan=False, separators=(",", ":"))
    whole: Arrays = {"json": np.frombuffer(text.encode(), dtype=np.uint8)}
    for (path, dtype, dimensions), (places, parts) in found.items():
        name = f"{path}#{dtype[1:]}#{dimensions}"
        whole[name] = np.concatenate([part.reshape(-1) for part in parts])
        whole[f"{name}#shape"] = np.array([part.shape for part in parts], dtype=np.int64).reshape(len(parts), -1)
        whole[f"{name}#key"] = np.array(places, dtype=np.int64)
    return whole


def _taken_apart(value: Any, path: str, arrays: list[tuple[str, npt.NDArray[Any]]]) -> Any:
    """Return the JSON value without its arrays, which are noted with their paths."""
    if not isinstance(value, Mapping):
        return value
    rest = {}
    for name, one in value.items():
        below = f"{path}{_SEPARATOR}{name}" if path else name
        if isinstance(one, np.ndarray):
            arrays.append((below, one))
        else:
            rest[name] = _taken_apart(one, below, arrays)
    return rest


def unpacked(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[Key, dict[str, Any]]:
    """Return what was packed, by key; KeyError or ValueError if it does not fit together. O(values)."""
    rest = json.loads(bytes(arrays["json"]))
    values = [value for _, value in rest]
    for name, whole in arrays.items():
        if name.count("#") != 2:
            continue
        path = name.split("#", 1)[0].split(_SEPARATOR)
        shapes, places = arrays[f"{name}#shape"], arrays[f"{name}#key"]
        ends = np.cumsum(shapes.prod(axis=1)) if shapes.shape[1] else np.arange(1, len(shapes) + 1)
        if len(places) != len(shapes) or (ends[-1] if len(ends) else 0) != len(whole):
            raise ValueError(name)
        begin = 0
        for place, shape, end in zip(places.tolist(), shapes.tolist(), ends.tolist(), strict=True):
            holder = values[place]
            for part in path[:-1]:
                holder = holder.setdefault(part, {})
            holder[path[-1]] = whole[begin:end].reshape(shape).copy()
            begin = end
    return {key: value for (key, _), value in zip(rest, values, strict=True)}
