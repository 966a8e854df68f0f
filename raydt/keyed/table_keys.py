"""The keys of the ids of a table that changes: a deletion names no key, and an update may name another one.

Invariant: what is known follows from the rows before alone, whatever the models did with them. An id belongs to the key
of the newest row that the table has of it, usable or not, until the table deletes it. In a table of keys A and B:

    =====================  ===================================  =========
    row                    what the models of the keys get      key of 7
    =====================  ===================================  =========
    insert 7 of A          A: insert                            A
    update 7 of A          A: update                            A
    update 7 of B          A: delete, B: insert                 B
    insert 7 of A          none: a bad row, since 7 is there    B
    update 7 of A, bad     B: delete                            B
    update 7 of A          A: insert                            A
    delete 7               A: delete                            none
    delete 7 of A          none: a bad row                      none
    =====================  ===================================  =========
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.encoding.operations import IGNORED
from raydt.errors import InputError
from raydt.examples.updates import DELETE, DUPLICATE_ID, INSERT, REFUSALS, UNKNOWN_ID, UPDATE
from raydt.keyed.groups import Key
from raydt.messages import message
from raydt.redaction import quoted
from raydt.sources.base import Rows
from raydt.sources.live.followed import FollowedSource
from raydt.streams.absent import restored_ids, saved_ids

#: The key of an id whose only row names none: no model has it.
NO_KEY = -1
#: A request to delete what no model has, beside the codes of operations.
MISSING = -4

Ops = npt.NDArray[np.int8]


class TableKeys:
    """The key of each id of the table that a source follows; O(1) for each row, about 100 bytes for each id."""

    def __init__(self, source: FollowedSource) -> None:
        self._source = source
        #: Says of an id, once, whether a receipt shows it as erased: that it has no key is no fault then.
        self.erased: Callable[[Any], bool] | None = None
        self._keys: dict[Any, int] = {}  # codes of keys; of an id whose newest row is bad what _spoilt makes of them

    def settle(self, rows: Rows, *, strict: bool) -> tuple[Rows, Ops]:
        """Return the next rows, each with the key of its example, and what each is to its id.

        That is the operation of the update that a run with one model would make of it, or :data:`MISSING`. A row that
        the table cannot have is bad; ``strict`` leaves off at the first one.
        """
        assert rows.op is not None
        assert rows.key is not None
        op, key, bad = rows.op.copy(), rows.key.copy(), dict(rows.bad)
        told, moved = rows.op.copy(), np.full(len(rows), NO_KEY, dtype=np.int64)
        told[[*bad]] = IGNORED
        names = rows.id.tolist() if rows.names is None else rows.names.tolist()
        for at, (id, kind, named) in enumerate(zip(names, rows.op.tolist(), key.tolist(), strict=True)):
            if kind not in (INSERT, DELETE, UPDATE):
                continue
            known = self._keys.get(id)
            spoilt = known is not None and known < 0
            of = _spoilt(known) if known is not None and known < 0 else known
            if at in bad:
                if kind == DELETE:
                    continue
                if kind == UPDATE:
                    told[at] = MISSING if spoilt or of is None else DELETE
                elif of is not None and not spoilt:  # it says nothing about the row that the table has
                    op[at] = op[at] if of == named else IGNORED
                    continue
                if of is None or of == NO_KEY:
                    of = named
                elif kind == UPDATE:
                    key[at] = of
                elif named != of:
                    op[at] = IGNORED
                self._keys[id] = _spoilt(of)
            elif kind == DELETE:
                erased = self.erased is not None and self.erased(id)  # asked of every deletion, since it says so once
                if of is None:  # whatever key it names: no model takes note of it
                    op[at], told[at], key[at] = IGNORED, MISSING, NO_KEY
                    if not erased:
                        bad[at] = self._error("keyed.no_owner", id, UNKNOWN_ID, int(rows.row[at]))
                else:
                    del self._keys[id]
                    op[at] = IGNORED if of == NO_KEY else DELETE
                    key[at], told[at] = of, MISSING if spoilt else DELETE
            elif of is None:
                if kind == INSERT:  # an update of an unknown id is refused by the key that it names
                    self._keys[id] = named
            elif kind == INSERT and not spoilt and of != named:
                bad[at] = self._error("keyed.live_elsewhere", id, DUPLICATE_ID, int(rows.row[at]))
                op[at] = told[at] = IGNORED
            else:
                self._keys[id] = named
                if of == NO_KEY:
                    op[at] = INSERT
                elif of != named:
                    moved[at] = of
                if spoilt:
                    told[at] = INSERT
            if strict and len(bad) > len(rows.bad):
                break
        return replace(rows, op=op, key=key, moved=moved if (moved >= 0).any() else None, bad=bad), told

    def _error(self, said: str, id: Any, reason: int, row: int) -> InputError:
        problem, remedy = REFUSALS[reason]
        file, line = self._source.where(row)
        said_of_id = message(said, id=quoted(id), problem=problem, remedy=remedy)
        return InputError(said_of_id, file=file, row=line, column=self._source.id_column)

    def follow_update(self, key: Key, gone: Iterable[Any], new: Iterable[Any]) -> None:
        """Take in which ids an update from elsewhere has deleted from a key, and inserted into it."""
        code = self._source.code_of_key(key)
        for id in gone:
            if self._keys.get(id) == code:
                del self._keys[id]
        self._keys |= dict.fromkeys(new, code)

    def state(self) -> dict[str, Any]:
        """Return ids, ascending, and their keys."""
        return _saved(self._keys)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave; ValueError if a key is not known."""
        keys, known = _restored(state), len(self._source.keys)
        if any(not -2 - known < key < known for key in keys.values()):
            raise ValueError(message("keyed.uneven", name="table_keys"))
        self._keys = keys


def _saved(keys: Mapping[Any, int]) -> dict[str, Any]:
    ids = saved_ids(keys)
    return {"table_ids": ids, "table_keys": np.array([keys[id] for id in restored_ids(ids)], dtype=np.int64)}


def _restored(state: Mapping[str, Any]) -> dict[Any, int]:
    if "table_keys" not in state:
        return {}
    return dict(zip(restored_ids(state["table_ids"]), state["table_keys"].tolist(), strict=True))


def _spoilt(key: int) -> int:
    """Return what stands for a key in the place of an id whose newest row is bad, and the other way round; < 0."""
    return NO_KEY if key == NO_KEY else -2 - key


def recoded(state: Mapping[str, Any], code: Mapping[int, int], keeps: Any) -> dict[str, Any]:
    """Return what :meth:`TableKeys.state` gave with other codes of keys, and only ids for which ``keeps`` is true.

    ``keeps`` is called with the old code of the key (None: no key) and the id.
    """
    if "table_keys" not in state:
        return {}
    kept: dict[Any, int] = {}
    for id, held in _restored(state).items():
        key = held if held >= 0 else _spoilt(held)
        if keeps(None if key == NO_KEY else key, id):
            new = code.get(key, NO_KEY)
            kept[id] = new if held >= 0 else _spoilt(new)
    return _saved(kept)


def told_apart(rows: Rows) -> Rows:
    """Return rows in which each update that moves an example is a deletion from its old key and an insertion.

    Both halves have the number of the row. O(rows).
    """
    if rows.moved is None:
        return rows
    assert rows.op is not None
    assert rows.key is not None
    moves = rows.moved >= 0
    place = np.repeat(np.arange(len(rows)), np.where(moves, 2, 1))
    second = np.append(False, place[1:] == place[:-1])
    first = np.append(second[1:], False)
    whole = replace(rows, moved=None)[place]
    op, key = rows.op[place], rows.key[place]
    op[first], op[second], key[first] = DELETE, INSERT, rows.moved[place[first]]
    sparse = whole.sparse
    if sparse is not None:  # a deletion has no tokens, which would get codes
        lengths = np.where(first, 0, sparse.lengths)
        indices = sparse.indices[np.repeat(~first, sparse.lengths)]
        sparse = SparseRows(np.append(0, np.cumsum(lengths)), indices, sparse.n_features)
    at = np.flatnonzero(~first)  # where each row is now, its second half of one that moves
    bad = {int(at[one]): error for one, error in rows.bad.items()}
    return replace(whole, op=op, key=key, sparse=sparse, bad=bad)
