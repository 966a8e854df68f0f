"""Text ids and the numbers that stand for them in a model: those of live examples, and of a few deleted ones.

Invariant: a code depends on the updates before it alone, not on how they were cut into batches or read ahead. Memory
follows the live examples, not the ids that were ever seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import Ints
from raydt.examples.updates import DELETE, UPDATE

Codes = Ints
#: Text ids of rows, dtype object; None of a row without one.
Names = npt.NDArray[np.object_]


class TextIds:
    """Codes of text ids, in order of first appearance among the rows of a stream.

    An id whose example is deleted, or was never inserted, is forgotten ``remembered`` rows later. If it appears once
    more after that, it is a new id, and gets the next code.
    """

    remembered = 1024

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._died: dict[int, int] = {}  # code: rows that had been given codes then, ascending
        self._next = self._rows = 0

    def __len__(self) -> int:
        return len(self._names)

    def look(self, names: Names) -> Codes:
        """Codes that :meth:`give` would give rows with these ids, all inserts; nothing changes. O(1) a row."""
        found: dict[str | None, int] = {None: -1}
        codes, following = np.empty(len(names), dtype=np.int64), self._next
        for i, name in enumerate(names.tolist()):
            if name not in found:
                code = self._known(name, self._rows + i)
                found[name] = code if code >= 0 else following
                following += code < 0
            codes[i] = found[name]
        return codes

    def give(self, names: Names, op: npt.NDArray[np.int8], *, logged: bool = False) -> Codes:
        """Give the next updates codes, -1 without an id; ``logged`` deletes are no rows and get no codes."""
        self._forget()
        codes = np.empty(len(names), dtype=np.int64)
        for i, (name, kind) in enumerate(zip(names.tolist(), op.tolist(), strict=True)):
            is_row, code = not (logged and kind == DELETE), self._known(name, self._rows)
            if code < 0 and name is not None and is_row:
                code, self._next = self._next, self._next + 1
                self._codes[name], self._names[code], self._died[code] = code, name, self._rows
            if kind == DELETE:
                self._die(code, self._rows)
            elif kind != UPDATE:  # an update is refused unless the id is live
                self._died.pop(code, None)
            codes[i], self._rows = code, self._rows + is_row
        return codes

    def end(self, inserted: Codes, deleted: Mapping[int, int]) -> None:
        """Note deletions that a stream has chosen: of code, after so many of the rows ``inserted``, the last given."""
        for code, rows in sorted(deleted.items(), key=lambda one: one[1]):
            self._die(code, self._rows - len(inserted) + rows)

    def names_of(self, codes: Codes) -> list[str | None]:
        """Ids by code, None of -1, for updates that are not followed by others that have codes already."""
        return [self._names.get(code) for code in codes.tolist()]

    def keep(self, live: set[int]) -> None:
        """Drop all ids but those of some codes."""
        self._names = {code: name for code, name in self._names.items() if code in live}
        self._codes = {name: code for code, name in self._names.items()}
        self._died = {code: row for code, row in self._died.items() if code in live}

    def _known(self, name: str | None, row: int) -> int:
        """The code of an id at the row of a number, or -1."""
        code = -1 if name is None else self._codes.get(name, -1)
        return code if self._died.get(code, row) + self.remembered > row else -1

    def _die(self, code: int, row: int) -> None:
        if code in self._names and code not in self._died:
            self._died[code] = row

    def _forget(self) -> None:
        """Drop what is not remembered any longer. Amortised O(1) for each id."""
        while self._died:
            code, row = next(iter(self._died.items()))
            if row + self.remembered > self._rows:
                break
            del self._died[code]
            name = self._names.pop(code)
            if self._codes[name] == code:
                del self._codes[name]

    def state(self) -> dict[str, Any]:
        """Ids with their codes, and when they died (-1: they live)."""
        self._forget()
        codes = sorted(self._names)
        return {
            "ids": [self._names[code] for code in codes],
            "id_codes": np.array(codes, dtype=np.int64),
            "id_died": np.array([self._died.get(code, -1) for code in codes], dtype=np.int64),
            "id_next": self._next,
            "id_rows": self._rows,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave."""
        codes, died = state["id_codes"].tolist(), state["id_died"].tolist()
        self._names = dict(zip(codes, state["ids"], strict=True))
        self._codes = {name: code for code, name in self._names.items()}
        self._died = {code: row for row, code in sorted(zip(died, codes, strict=True)) if row >= 0}
        self._next, self._rows = int(state["id_next"]), int(state["id_rows"])
