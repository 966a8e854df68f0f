"""The digest of the live rows of a store: made once, then kept up with what changes.

Nothing is kept before somebody asks. From then on the ids of changed rows are noted, a batch at a time, and the next
digest costs O(log n) for each. When more rows have changed than a new tree would cost, the tree is dropped.

Invariant: the digest is a function of the live rows and of the columns given, the same whether it was kept up or made
from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from raydt.arrays.digest import Part
from raydt.examples.row_tree import Ids, RowTree
from raydt.examples.store import ExampleStore

Slots = npt.NDArray[np.int32]
#: What a digest has of some rows, by name; the first column is their ids.
Columns = Callable[[Slots], Mapping[str, npt.NDArray[np.generic]]]

#: A tree of so few rows, or of fewer than eight times the changes, is made anew.
_FEW = 64


class RowDigest:
    """Digest of the rows of one store.

    Parameters
    ----------
    store : ExampleStore
    """

    def __init__(self, store: ExampleStore) -> None:
        self._store, self._filled = store, store.filled
        self._tree: RowTree | None = None
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

    def part(self, columns: Columns) -> Part:
        """Part of a digest: the columns with their types as its name, and the root of the rows."""
        store = self._store
        if self._filled != store.filled:
            self.forget()
            self._filled = store.filled
        if self._tree is None:
            self._tree = RowTree(store.id[store.slots()])
        elif self._changed:
            ids = np.unique(np.concatenate(self._changed))
            self._tree.change(ids, store.find(ids) >= 0)
        self._changed, self._changes = [], 0
        names: list[str] = []

        def records(ids: Ids) -> npt.NDArray[np.uint8]:
            given = {name: np.asarray(column) for name, column in columns(store.find(ids)).items()}
            names[:] = [_described(name, column) for name, column in given.items()]
            return np.concatenate([_bytes(column) for column in given.values()], axis=1)

        root = self._tree.root(records)
        if not names:  # nothing was stale
            records(np.empty(0, dtype=np.int64))
        return "rows " + ",".join(names), np.frombuffer(root, dtype=np.uint8)


def _described(name: str, column: npt.NDArray[np.generic]) -> str:
    """Name and little-endian type of a column, with its width if it has one."""
    width = f"({column.shape[1]})" if column.ndim > 1 else ""
    return f"{name}{column.dtype.newbyteorder('<').str}{width}"


def _bytes(column: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Bytes of a column, little-endian, uint8, shape (rows, width)."""
    little = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<"))
    wide = int(np.prod(little.shape[1:], dtype=np.int64)) * little.itemsize
    return little.reshape(-1).view(np.uint8).reshape(len(little), wide)
