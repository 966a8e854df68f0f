"""The digest of the live rows of a store: made when somebody first asks, then kept up with what changes.

The ids of changed rows are noted, and the next digest costs O(log n) for each; the tree is dropped when more have
changed than a new one would cost. Invariant: the digest is a function of the live rows and of the columns given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.blake2b import SIZE
from raydt.arrays.digest import Part
from raydt.arrays.types import Slots
from raydt.examples.row_tree import OF_LEAVES, Records, RowTree
from raydt.examples.row_trie import MOST, Ids, keys_of
from raydt.examples.store import ExampleStore
from raydt.examples.weights import filled

#: What a digest has of some rows beside their ids, by name.
Columns = Callable[[Slots], Mapping[str, npt.NDArray[np.generic]]]

#: A tree of so few rows, or of fewer than eight times the changes, is made anew.
_FEW = 64


class RowDigest:
    """Digest of the rows of one store."""

    Tree: ClassVar[type[RowTree]] = RowTree

    def __init__(self, store: ExampleStore) -> None:
        self._store, self._filled, self._weighted = store, store.filled, False
        self._tree: Any = None  # a ``Tree``, once somebody has asked
        self._changed: list[Ids] = []
        self._changes = 0

    def note(self, ids: Ids) -> None:
        """Note that rows were inserted, deleted or changed. O(1) before a digest, then O(ids)."""
        if self._tree is None or not len(ids):
            return
        self._changes += len(ids)
        if 8 * self._changes > max(len(self._tree), _FEW):
            self.forget()
        else:
            self._changed.append(ids.copy())

    def forget(self) -> None:
        """All rows may have changed."""
        self._tree, self._changed, self._changes = None, [], 0

    def part(self, columns: Columns, weighted: bool) -> Part:
        """Part of a digest: columns with types (of weights, unless all are 1) as its name, and the root of the rows."""
        store = self._store
        records = self._records(columns, weighted)
        if self._tree is None and store.live <= MOST:
            return _part_of_leaf(store, records)
        none = records(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32))
        return part_of(none.dtype, self._followed().root(records))

    def _records(self, columns: Columns, weighted: bool) -> Records:
        """Return what gives the records of rows, with weights if it is ``weighted``; others are made all anew."""
        store = self._store
        if (self._filled, self._weighted) != (store.filled, weighted):
            self.forget()
            self._filled, self._weighted = store.filled, weighted
        return partial(record_of, partial(with_weights, columns, store) if weighted else columns)

    def _followed(self) -> Any:
        """Return the tree of the rows as they are."""
        store = self._store
        if self._tree is None:
            slots = store.slots()
            self._tree = self.Tree(store.id[slots], slots)
        elif self._changed:
            ids = np.concatenate(self._changed)
            self._tree.change(ids, store.find(ids))
        self._changed, self._changes = [], 0
        return self._tree


def _part_of_leaf(store: ExampleStore, records: Records) -> Part:
    """Return the part of so few rows that their tree is one leaf: to make the tree takes longer than to hash it."""
    slots = store.slots()
    slots = slots[np.argsort(keys_of(store.id[slots]))]
    rows = records(store.id[slots], slots)
    return part_of(rows.dtype, hashlib.blake2b(rows.tobytes(), digest_size=SIZE, person=OF_LEAVES).digest())


def with_weights(columns: Columns, store: ExampleStore, slots: Slots) -> Mapping[str, npt.NDArray[np.generic]]:
    """Return the columns of some rows, and their weights."""
    return {**columns(slots), "weight": filled(store.weights(slots), len(slots))}


def record_of(columns: Columns, ids: Ids, slots: Slots) -> npt.NDArray[np.void]:
    """Return the records of some rows: their ids, and then the columns."""
    given = {"id": ids, **{name: np.asarray(column) for name, column in columns(slots).items()}}
    fields = [(name, column.dtype.newbyteorder("<"), column.shape[1:]) for name, column in given.items()]
    rows = np.empty(len(slots), dtype=fields)
    for name, column in given.items():
        rows[name] = column
    return rows


def part_of(record: np.dtype[np.void], root: bytes) -> Part:
    """Return the part of a digest: names and types of the columns, with their widths if they have one; and the root."""
    kinds = ((name, *(record[name].subdtype or (record[name], ()))) for name in record.names or ())
    named = ",".join(f"{name}{kind.str}{f'({shape[0]})' if shape else ''}" for name, kind, shape in kinds)
    return f"rows {named}", np.frombuffer(root, dtype=np.uint8)
