"""Rows that a source has and the model cannot: their newest state is bad, and was passed over.

Invariant: the set depends on the rows before alone, not on how these were cut into batches or read ahead. With it the
live examples are the good rows of the source. Of one row, id 7, that comes to be good, bad, bad, good and is deleted:

    ====================  ==================  =====================
    row of the log        update              absent afterwards
    ====================  ==================  =====================
    insert 7              insert              no
    update 7, no label    delete              yes
    update 7, no label    delete (tolerated)  yes
    update 7              insert              no
    delete 7              delete              no
    ====================  ==================  =====================

A tolerated deletion may find no live example, which is no fault then. It is an update all the same, and not left out,
so that a log that inserts an id twice loses no deletion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import Bools
from raydt.encoding.operations import RETRACTION
from raydt.examples.updates import DELETE, INSERT, UPDATE
from raydt.sources.base import Rows


class Spoilt(NamedTuple):
    """A bad row of an insertion."""

    row: int  #: Its number over all files.
    id: Any


class AbsentRows:
    """The ids of such rows, as the source names them; O(1) for each row of the log."""

    def __init__(self) -> None:
        self._ids = set[Any]()

    def follow(self, rows: Rows, spoilt: Sequence[Spoilt]) -> tuple[npt.NDArray[np.int8], Bools | None]:
        """Take the next rows of a log and the bad insertions before the last of them, or at the end, into account.

        Return the operations as updates of the model, and which deletions are tolerated (None: none).
        """
        if rows.op is None:  # the end
            self._ids.update(one.id for one in spoilt)
            return np.empty(0, dtype=np.int8), None
        op = rows.op
        retracted = np.flatnonzero(op == RETRACTION).tolist()
        if not self._ids and not spoilt and not retracted:
            return op, None
        names = rows.id.tolist() if rows.names is None else rows.names.tolist()
        new = {one.id for one in spoilt}.union(names[at] for at in retracted)
        op, tolerated, waiting = op.copy(), np.zeros(len(op), dtype=np.bool_), deque(spoilt)
        for at in [at for at, name in enumerate(names) if name in self._ids or name in new]:
            while waiting and waiting[0].row < rows.row[at]:
                self._ids.add(waiting.popleft().id)
            name, kind = names[at], int(op[at])
            if kind == RETRACTION:
                op[at], tolerated[at] = DELETE, True
                self._ids.add(name)
            elif kind in (INSERT, UPDATE, DELETE) and name in self._ids:
                self._ids.remove(name)
                op[at], tolerated[at] = (DELETE, True) if kind == DELETE else (INSERT, False)
        self._ids.update(one.id for one in waiting)
        return op, tolerated if tolerated.any() else None

    def preview(self, rows: Rows, spoilt: Sequence[Spoilt]) -> tuple[npt.NDArray[np.int8], Bools | None]:
        """Return what :meth:`follow` would, and take nothing into account."""
        then = AbsentRows()
        then._ids = set(self._ids)
        return then.follow(rows, spoilt)

    def forget(self, erases: Callable[[Any], bool]) -> None:
        """Forget ids; an update of one of them is then refused."""
        self._ids = {id for id in self._ids if not erases(id)}

    def bring(self, ids: Iterable[Any]) -> None:
        """Note examples that somebody else has inserted."""
        self._ids.difference_update(ids)

    def state(self) -> dict[str, Any]:
        """Return the ids, ascending, as part of the state of a stream; nothing if there are none."""
        return {"absent": saved_ids(self._ids)} if self._ids else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave."""
        self._ids = set(restored_ids(state.get("absent", ())))


def saved_ids(ids: Iterable[Any]) -> Any:
    """Return ids, ascending, as values of a state."""
    ordered = sorted(ids)
    return ordered if not ordered or isinstance(ordered[0], str) else np.array(ordered, dtype=np.int64)


def restored_ids(saved: Any) -> list[Any]:
    """Return the ids of :func:`saved_ids`, ascending."""
    return list(saved.tolist() if isinstance(saved, np.ndarray) else saved)
