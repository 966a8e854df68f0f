"""Digests of everything, in plain loops, after ``docs/reference/formats.md``: nothing is kept from one to the next."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_BITS = 2**64


def key_of(number: int) -> int:
    """Key of an id."""
    z = number % _BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % _BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % _BITS
    return z ^ (z >> 31)


def _hash(person: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32, person=person).digest()


def row_root(records: Mapping[int, bytes]) -> bytes:
    """Root of the tree over rows, given the record of each by its id."""
    keys = {key_of(number): number for number in records}

    def below(chosen: list[int], depth: int) -> bytes:
        if len(chosen) <= 32:
            return _hash(b"raydt-rows-leaf", b"".join(records[keys[key]] for key in sorted(chosen)))
        children: list[list[int]] = [[] for _ in range(16)]
        for key in chosen:
            children[key >> (60 - 4 * depth) & 15].append(key)
        return _hash(b"raydt-rows-node", b"".join(below(child, depth + 1) for child in children))

    return below(list(keys), 0)


def row_parts(ids: npt.NDArray[np.int64], **columns: npt.NDArray[Any]) -> list[tuple[str, npt.NDArray[Any]]]:
    """What rows contribute to a digest: the root over their records, by ids in any order."""
    arrays = {"id": np.asarray(ids, dtype=np.int64), **columns}
    fields = [
        array.astype(array.dtype.newbyteorder("<")).reshape(len(ids), math.prod(array.shape[1:]))
        for array in arrays.values()
    ]
    name = ",".join(
        f"{name}{field.dtype.str}({array.shape[1]})" if array.ndim > 1 else f"{name}{field.dtype.str}"
        for (name, array), field in zip(arrays.items(), fields, strict=True)
    )
    records = {int(ids[i]): b"".join(field[i].tobytes() for field in fields) for i in range(len(ids))}
    root = np.frombuffer(row_root(records), dtype=np.uint8)
    return [(f"rows {name}", root)]


def node_root(tree: Mapping[str, npt.NDArray[Any]], names: list[str]) -> npt.NDArray[np.uint8]:
    """Root of the tree of nodes in preorder: each node's hash is of its numbers, and of the hashes below it."""

    missing = tree.get("missing", np.zeros_like(tree["feature"])).astype(np.int32)
    numbers = {**tree, "feature": np.where(missing > 0, -2 * tree["feature"] - missing, tree["feature"])}

    def below(node: int) -> bytes:
        content = b"".join(
            numbers[name][node].astype(numbers[name].dtype.newbyteorder("<")).tobytes() for name in names
        )
        counts = tree["counts"][node].tolist()
        while counts and counts[-1] == 0:
            counts.pop()
        content += np.array(counts, dtype="<i8").tobytes()
        if tree["feature"][node] < 0:
            return _hash(b"raydt-tree-leaf", content)
        return _hash(b"raydt-tree-node", below(tree["left"][node]) + below(tree["right"][node]) + content)

    return np.frombuffer(below(0), dtype=np.uint8)
