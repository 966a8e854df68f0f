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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

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


class _Change(NamedTuple):
    """A row that changes the table."""

    at: int  #: Its place in the block.
    id: Any
    op: int
    key: int  #: Code of the key that it names.


class _Owner(NamedTuple):
    """To whom an id of the table belongs."""

    key: int  #: Code of the key; :data:`NO_KEY` if no row has named one.
    spoilt: bool  #: The newest row of the id is bad, so that no model has it.


class _Block:
    """Rows while they are settled: what becomes of their operations and keys, and which are bad."""

    def __init__(self, rows: Rows) -> None:
        assert rows.op is not None
        assert rows.key is not None
        self._rows, self._op, self._key = rows, rows.op, rows.key
        self.op, self.key, self.told, self.bad = rows.op.copy(), rows.key.copy(), rows.op.copy(), dict(rows.bad)
        self.told[[*self.bad]] = IGNORED
        self.moved = np.full(len(rows), NO_KEY, dtype=np.int64)  #: Old keys of rows that move.

    def listed(self) -> Iterator[tuple[Any, int, int]]:
        """Return id, operation and code of the key of each row, as it came."""
        ids = self._rows.id if self._rows.names is None else self._rows.names
        return zip(ids.tolist(), self._op.tolist(), self._key.tolist(), strict=True)

    def number(self, row: _Change) -> int:
        """Return the number of a row over all files."""
        return int(self._rows.row[row.at])

    def settled(self) -> Rows:
        """Return the rows as they are settled."""
        moved = self.moved if (self.moved >= 0).any() else None
        return replace(self._rows, op=self.op, key=self.key, moved=moved, bad=self.bad)


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
        block = _Block(rows)
        for at, (id, op, key) in enumerate(block.listed()):
            held = self._keys.get(id)
            if op not in (INSERT, DELETE, UPDATE) or (op == UPDATE and held == key and at not in block.bad):
                continue  # most rows of a table that changes: an update that moves nothing
            row = _Change(at, id, op, key)
            owner = None if held is None else _Owner(held if held >= 0 else _spoilt(held), spoilt=held < 0)
            if at in block.bad:
                self._settle_bad(block, row, owner)
            elif op == DELETE:
                self._settle_deletion(block, row, owner)
            else:
                self._settle_good(block, row, owner)
            if strict and len(block.bad) > len(rows.bad):
                break
        return block.settled(), block.told

    def _settle_bad(self, block: _Block, row: _Change, owner: _Owner | None) -> None:
        """Settle a row that cannot be used: an update takes the old row away from the model that has it."""
        if row.op == DELETE:
            return
        if row.op == INSERT and owner is not None and not owner.spoilt:
            # It says nothing about the row that the table has; another key is not to hear of it.
            block.op[row.at] = row.op if owner.key == row.key else IGNORED
            return
        if row.op == UPDATE:
            block.told[row.at] = MISSING if owner is None or owner.spoilt else DELETE
        key = row.key if owner is None or owner.key == NO_KEY else owner.key
        if row.op == UPDATE:
            block.key[row.at] = key
        elif row.key != key:
            block.op[row.at] = IGNORED
        self._keys[row.id] = _spoilt(key)

    def _settle_deletion(self, block: _Block, row: _Change, owner: _Owner | None) -> None:
        """Settle a deletion, which goes to the key of its id, whatever key it names."""
        erased = self.erased is not None and self.erased(row.id)  # asked of every deletion, since it says so once
        if owner is None:  # no model takes note of it
            block.op[row.at], block.told[row.at], block.key[row.at] = IGNORED, MISSING, NO_KEY
            if not erased:
                block.bad[row.at] = self._error("keyed.no_owner", row.id, UNKNOWN_ID, block.number(row))
            return
        del self._keys[row.id]
        block.op[row.at] = IGNORED if owner.key == NO_KEY else DELETE
        block.key[row.at], block.told[row.at] = owner.key, MISSING if owner.spoilt else DELETE

    def _settle_good(self, block: _Block, row: _Change, owner: _Owner | None) -> None:
        """Settle an insertion, or an update, which may move its row from one key to another."""
        if owner is None:
            if row.op == INSERT:  # an update of an unknown id is refused by the key that it names
                self._keys[row.id] = row.key
            return
        if row.op == INSERT and not owner.spoilt and owner.key != row.key:
            block.bad[row.at] = self._error("keyed.live_elsewhere", row.id, DUPLICATE_ID, block.number(row))
            block.op[row.at] = block.told[row.at] = IGNORED
            return
        self._keys[row.id] = row.key
        if owner.key == NO_KEY:
            block.op[row.at] = INSERT
        elif owner.key != row.key:
            block.moved[row.at] = owner.key
        if owner.spoilt:
            block.told[row.at] = INSERT

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
