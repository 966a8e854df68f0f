"""Text ids and the numbers that stand for them in a model: those of live examples, and of a few deleted ones.

Invariant: a code depends on the updates before it alone, not on how they were cut into batches or read ahead, nor on
where the ids are kept. Memory follows the live examples, not the ids that were ever seen; of this process not even
those, once there are many and other processes keep them (``id_dictionary``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import Ints
from raydt.examples.reading import NEWEST_RULES
from raydt.examples.updates import DELETE, UPDATE
from raydt.folders.text_ids import ALWAYS, SavedIds
from raydt.streams.id_dictionary import DividedIds, IdParts, OwnIds, TakenIds

Codes = Ints
#: Text ids of rows, dtype object; None of a row without one.
Names = npt.NDArray[np.object_]


class TextIds:
    """Codes of text ids, in order of first appearance among the rows of a stream.

    An id whose example is deleted, or was never inserted, is forgotten ``remembered`` rows later. If it appears once
    more after that, it is a new id, and gets the next code.
    """

    remembered = 1024
    #: Ids that stay in this process although others would keep them: 225 bytes each.
    most_here = 1 << 20

    def __init__(self, rules: int = NEWEST_RULES) -> None:
        if rules < 2:
            self.remembered = ALWAYS
        self._ids: OwnIds | DividedIds = OwnIds()
        self._parts: IdParts | None = None
        #: By code: rows that had been given codes when its example died, ascending, and the id.
        self._died: dict[int, tuple[int, str]] = {}
        self._next = self._rows = 0

    def __len__(self) -> int:
        return len(self._ids)

    def divide(self, parts: IdParts) -> None:
        """Begin anew, to be restored; other processes keep the ids as soon as there are many."""
        self._ids, self._parts = OwnIds(), parts

    def look(self, names: Names) -> Codes:
        """Codes that :meth:`give` would give rows with these ids, all inserts; nothing changes. O(1) a row."""
        every = names.tolist()
        known, found = self._ids.codes_of(every), dict[str | None, int]({None: -1})
        codes, following = np.empty(len(names), dtype=np.int64), self._next
        for i, name in enumerate(every):
            if name not in found:
                code = known.get(name, -1)
                if code in self._died and self._died[code][0] + self.remembered <= self._rows + i:
                    code = -1
                found[name] = code if code >= 0 else following
                following += code < 0
            codes[i] = found[name]
        return codes

    def give(self, names: Names, op: npt.NDArray[np.int8], *, logged: bool = False) -> Codes:
        """Give the next updates codes, -1 without an id; ``logged`` deletes are no rows and get no codes."""
        self._forget()
        every, codes, new = names.tolist(), np.empty(len(names), dtype=np.int64), list[tuple[int, str]]()
        known, died, remembered = self._ids.codes_of(every), self._died, self.remembered
        following, row = self._next, self._rows
        for i, (name, kind) in enumerate(zip(every, op.tolist(), strict=True)):
            is_row, code = not (logged and kind == DELETE), known.get(name, -1)
            if code in died and died[code][0] + remembered <= row:
                code = -1
            if code < 0 and name is not None and is_row:
                code, following = following, following + 1
                known[name] = code
                new.append((code, name))
                if kind == UPDATE:  # it is refused unless the id is live
                    died[code] = row, name
            if kind == DELETE:
                if code >= 0 and code not in died:
                    died[code] = row, name
            elif kind != UPDATE:
                died.pop(code, None)
            codes[i] = code
            row += is_row
        self._next, self._rows = following, row
        self._ids.add(new)
        self._hand_over()
        return codes

    def end(self, inserted: Codes, deleted: Mapping[int, int]) -> None:
        """Note deletions that a stream has chosen: of code, after so many of the rows ``inserted``, the last given."""
        names = dict(zip(deleted, self._names_of(list(deleted)), strict=True))
        for code, rows in sorted(deleted.items(), key=lambda one: one[1]):
            name = names[code]
            if name is not None and code not in self._died:
                self._died[code] = self._rows - len(inserted) + rows, name

    def names_of(self, codes: Codes) -> list[str | None]:
        """Ids by code, None of -1, for updates that are not followed by others that have codes already."""
        return self._names_of(codes.tolist())

    def _names_of(self, codes: list[int]) -> list[str | None]:
        if isinstance(self._ids, OwnIds):
            return self._ids.names_of(codes)
        # Of an id that has got a new code the parts may have the old one no longer.
        found = self._ids.names_of([-1 if code in self._died else code for code in codes])
        return [self._died[code][1] if code in self._died else name for code, name in zip(codes, found, strict=True)]

    def keep(self, live: set[int]) -> None:
        """Drop all ids but those of some codes."""
        assert isinstance(self._ids, OwnIds)
        self._ids = OwnIds((code, name) for code, name in self._ids.names.items() if code in live)
        self._died = {code: died for code, died in self._died.items() if code in live}

    def _forget(self) -> None:
        """Drop what is not remembered any longer. Amortised O(1) for each id."""
        old = []
        for code, (row, name) in self._died.items():
            if row + self.remembered > self._rows:
                break
            old.append((code, name))
        for code, _ in old:
            del self._died[code]
        self._ids.remove(old)

    def _hand_over(self) -> None:
        """Have other processes keep the ids from now on, if there are many, and such processes."""
        ids = self._ids
        if self._parts is not None and isinstance(ids, OwnIds) and len(ids) > self.most_here:
            self._ids = DividedIds.handed(self._parts, ids.names)

    def state(self) -> dict[str, Any]:
        """Ids with their codes, and when they died (-1: they live); or what can be written of those elsewhere."""
        self._forget()
        counts = {"id_next": self._next, "id_rows": self._rows}
        counts |= {} if self.remembered == TextIds.remembered else {"id_remembered": self.remembered}
        if isinstance(self._ids, DividedIds):
            return {
                "ids": self._ids.take(self._next),
                "dead": [name for _, name in self._died.values()],
                "dead_codes": np.array(list(self._died), dtype=np.int64),
                "dead_rows": np.array([row for row, _ in self._died.values()], dtype=np.int64),
                **counts,
            }
        names = self._ids.names
        codes = sorted(names)
        return {
            "ids": [names[code] for code in codes],
            "id_codes": np.array(codes, dtype=np.int64),
            "id_died": np.array([self._died.get(code, (-1,))[0] for code in codes], dtype=np.int64),
            **counts,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave, or from what was written of it; ModelFileError if that is damaged."""
        ids = state["ids"]
        if isinstance(ids, SavedIds) and self._parts is None:
            state, ids = ids.whole(state), None
        if isinstance(ids, TakenIds | SavedIds):
            dead = zip(state["dead_rows"].tolist(), state["dead_codes"].tolist(), state["dead"], strict=True)
            if isinstance(ids, SavedIds):
                assert self._parts is not None
                self._ids = DividedIds.read(self._parts, ids)
            else:
                self._ids = ids.ids
                self._ids.rewind(ids)
        else:
            codes, died = state["id_codes"].tolist(), state["id_died"].tolist()
            self._ids = OwnIds(zip(codes, state["ids"], strict=True))
            dead = zip(died, codes, state["ids"], strict=True)
        self._died = {code: (row, name) for row, code, name in sorted(dead) if row >= 0}
        self._next, self._rows = int(state["id_next"]), int(state["id_rows"])
        self.remembered = int(state.get("id_remembered", TextIds.remembered))
        self._hand_over()
