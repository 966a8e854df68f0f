"""The dictionary of the text ids of a stream: in one process, or divided among several by a hash of the id.

:class:`~raydt.streams.id_dictionary.TextIds` decides which update gets which code; a dictionary only keeps the codes.
An id may have an old code, which is to be removed, and the present one. New codes are larger than all before, of ids
that were put into what ``codes_of`` has returned last.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import Arrays, Ints
from raydt.examples.row_owners import RowOwners
from raydt.examples.updates import DELETE, NEWEST_RULES, UPDATE
from raydt.exchange.messages import Buckets
from raydt.folders.arrays import ALWAYS, FileEntry, IdsElsewhere, SavedIds, bucket_of, packed, publish
from raydt.folders.folder import Folder

# One part of the text ids of a stream, in a process of its own: those of some buckets, with their codes.
#
# Invariant: codes ascend in the order in which they are added. So the ids at a moment are those that are here with
# smaller codes than the next one had then, and those that were removed since, which are kept for as long as somebody
# may ask for that moment.


class Change(NamedTuple):
    """The changes of a part, to be made at once before it is asked."""

    version: int  #: Number of this change, more than that of the one before.
    oldest: int  #: No moment before this number will be asked for.
    added: list[str]
    codes: list[int]  #: Those of ``added``.
    removed: list[tuple[str, int]]  #: Ids with the codes that end, if they have not got others.


class Moment(NamedTuple):
    """After the change of a number, when some code was the next one."""

    version: int
    following: int


class IdPart:
    """Ids with their codes. Memory follows the ids that are here; ids by code are kept once somebody asks by code."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._names: dict[int, str] | None = None
        self._gone: deque[tuple[int, int, str]] = deque()  # version, code and id of what was removed
        self._lock = threading.Lock()  # moments are taken in another thread than changes are made

    def begin(self) -> None:
        """Forget everything."""
        with self._lock:
            self._codes, self._names = {}, None
            self._gone.clear()

    def add(self, names: Sequence[str], codes: Sequence[int]) -> None:
        """Add ids that are not here, with their codes."""
        with self._lock:
            self._codes.update(zip(names, codes, strict=True))

    def exchange(
        self, change: Change | None, names: Sequence[str], codes: Sequence[int]
    ) -> tuple[Ints, list[str | None]]:
        """Make a change; then return the codes of some ids, -1 without one, and the ids of some codes, or None."""
        with self._lock:
            if change is not None:
                self._make(change)
            if len(codes) and self._names is None:
                self._names = {code: name for name, code in self._codes.items()}
            find, by_code = self._codes.get, self._names or {}
            found = np.fromiter((find(name, -1) for name in names), dtype=np.int64, count=len(names))
            return found, [by_code.get(code) for code in codes]

    def _make(self, change: Change) -> None:
        version, oldest, added, codes, removed = change
        known, by_code = self._codes, self._names
        while self._gone and self._gone[0][0] <= oldest:
            self._gone.popleft()
        ended = [(known[name], name) for name in added if name in known]  # their old codes are forgotten soon
        known.update(zip(added, codes, strict=True))
        if by_code is not None:
            by_code.update(zip(codes, added, strict=True))
        for name, code in removed:
            if known.get(name) == code:
                del known[name]
                ended.append((code, name))
            if by_code is not None:
                by_code.pop(code, None)
        if oldest < version:
            self._gone.extend((version, code, name) for code, name in ended)

    def at(self, moment: Moment) -> tuple[Ints, list[str]]:
        """Return codes and ids at a moment, in the order of their codes. O(n log n)."""
        with self._lock:  # for as short as possible
            names, codes, gone = list(self._codes), list(self._codes.values()), list(self._gone)
        gone = [one for one in gone if one[0] > moment.version]
        names += [name for _, _, name in gone]
        every = np.array([*codes, *(code for _, code, _ in gone)], dtype=np.int64)
        order = np.argsort(every, kind="stable")
        order = order[every[order] < moment.following]
        return every[order], [names[place] for place in order.tolist()]

    def rewind(self, moment: Moment) -> None:
        """Go back to a moment; no later one will be asked for."""
        codes, names = self.at(moment)
        with self._lock:
            self._codes, self._names = dict(zip(names, codes.tolist(), strict=True)), None
            self._gone = deque(one for one in self._gone if one[0] <= moment.version)

    def take(self, moment: Moment) -> Arrays:
        """Return the arrays of the component of a state at a moment."""
        return packed(*self.at(moment))

    def write(self, moment: Moment, buckets: Buckets, folder: Folder) -> list[FileEntry]:
        """Write the component of a state at a moment."""
        return publish(folder, buckets, self.take(moment))

    def read(self, saved: SavedIds, buckets: Buckets) -> int:
        """Replace everything by the ids of some buckets of a state, and return how many; ModelFileError if damaged."""
        self.begin()
        for codes, names in saved.of_buckets(buckets):
            self.add(names, codes)
        return len(self._codes)


#: Ids that are handed over at a time.
_AT_ONCE = 1 << 16


class OwnIds:
    """All ids in this process."""

    def __init__(self, pairs: Iterable[tuple[int, str]] = ()) -> None:
        self.names = dict(pairs)
        self._codes = {name: code for code, name in self.names.items()}

    def __len__(self) -> int:
        return len(self.names)

    def codes_of(self, names: Sequence[str | None]) -> dict[str, int]:
        """Return codes of at least these ids, -1 or nothing without one: here all codes. O(1)."""
        return self._codes

    def add(self, new: Collection[tuple[int, str]]) -> None:
        """Add codes."""
        self.names.update(new)

    def remove(self, old: Iterable[tuple[int, str]]) -> None:
        """Remove codes."""
        for code, name in old:
            del self.names[code]
            if self._codes[name] == code:
                del self._codes[name]

    def names_of(self, codes: Sequence[int]) -> list[str | None]:
        """Return the ids of some codes."""
        return [self.names.get(code) for code in codes]


class IdParts(Protocol):
    """Several :class:`~raydt.streams.id_dictionary.IdPart`, which have the buckets of the shards of ``RowOwners``."""

    parts: int

    def call(self, method: str, each: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Call a method of each part with arguments of its own, at the same time; None of a part that has none."""

    def write(self, moment: Moment, folder: Folder) -> list[FileEntry]:
        """Have the parts write the ids of a moment into the folder of a checkpoint. Called in any thread."""

    def read(self, saved: SavedIds) -> int:
        """Have the parts replace everything by the ids of a state; return how many. ModelFileError if damaged."""


class TakenIds(IdsElsewhere):
    """The ids of a divided dictionary at a moment, for as long as somebody has this object."""

    def __init__(self, ids: DividedIds, parts: IdParts, moment: Moment, count: int) -> None:
        self.ids, self._parts, self.moment, self.count = ids, parts, moment, count

    def write(self, folder: Folder) -> list[FileEntry]:
        """Have the ids written."""
        return self._parts.write(self.moment, folder)


class DividedIds:
    """Ids in parts, each in another process: those of its buckets.

    One round of calls finds the codes of a batch, and makes the changes of the batch before. Here are the ids of one
    batch, and what is not sent yet.
    """

    def __init__(self, parts: IdParts, count: int = 0) -> None:
        self._parts, self._n, self._count = parts, parts.parts, count
        self._owner = [i for i, own in enumerate(RowOwners(self._n).of_all()) for _ in own]
        self._codes: dict[str, int] = {}  # of the batch; -1 without one
        self._names: dict[int, str | None] = {}  # that were asked for since
        self._added: list[list[tuple[int, str]]] = [[] for _ in range(self._n)]
        self._removed: list[list[tuple[str, int]]] = [[] for _ in range(self._n)]
        self._version = 0
        self._taken: list[weakref.ref[TakenIds]] = []

    @classmethod
    def handed(cls, parts: IdParts, names: Mapping[int, str]) -> DividedIds:
        """Hand all ids of one process over to the parts."""
        ids, pairs = cls(parts, len(names)), iter(names.items())
        parts.call("begin", [()] * parts.parts)
        while some := list(islice(pairs, _AT_ONCE)):
            each: list[tuple[list[str], list[int]]] = [([], []) for _ in range(parts.parts)]
            for code, name in some:
                to_names, to_codes = each[ids._owner[bucket_of(name)]]
                to_names.append(name)
                to_codes.append(code)
            parts.call("add", each)
        return ids

    @classmethod
    def read(cls, parts: IdParts, saved: SavedIds) -> DividedIds:
        """Have the parts read the ids of a state; ModelFileError if one is damaged."""
        return cls(parts, parts.read(saved))

    def __len__(self) -> int:
        return self._count

    def codes_of(self, names: Sequence[str | None]) -> dict[str, int]:
        """Return the codes of a batch: one round, or none if all were asked for by the call before."""
        known, wanted = self._codes, dict.fromkeys(name for name in names if name is not None)
        unknown = [name for name in wanted if name not in known]
        found = self._ask(unknown, [])[0] if unknown else {}
        self._codes = {name: known[name] if name in known else found[name] for name in wanted}
        self._names = {}
        return self._codes

    def add(self, new: Collection[tuple[int, str]]) -> None:
        """Add codes."""
        for code, name in new:
            self._added[self._owner[bucket_of(name)]].append((code, name))
        self._count += len(new)

    def remove(self, old: Iterable[tuple[int, str]]) -> None:
        """Remove codes."""
        for code, name in old:
            if self._codes.get(name) == code:
                self._codes[name] = -1
            self._names.pop(code, None)
            self._removed[self._owner[bucket_of(name)]].append((name, code))
            self._count -= 1

    def names_of(self, codes: Sequence[int]) -> list[str | None]:
        """Return the ids of some codes: those of the batch are here, the others take a round."""
        if not self._names:
            self._names = {code: name for name, code in self._codes.items() if code >= 0}
        here = self._names
        unknown = [code for code in dict.fromkeys(codes) if code >= 0 and code not in here]
        if unknown:
            here.update(zip(unknown, self._ask([], unknown)[1], strict=True))
        return [here.get(code) for code in codes]

    def take(self, following: int) -> TakenIds:
        """Return the ids as they are now, when ``following`` is the next code."""
        if any(self._added) or any(self._removed):
            self._ask([], [])
        taken = TakenIds(self, self._parts, Moment(self._version, following), self._count)
        self._taken.append(weakref.ref(taken))
        return taken

    def rewind(self, taken: TakenIds) -> None:
        """Go back to a moment."""
        self._added, self._removed = [[] for _ in range(self._n)], [[] for _ in range(self._n)]
        self._codes, self._names, self._count = {}, {}, taken.count
        self._parts.call("rewind", [(taken.moment,)] * self._n)

    def _ask(self, names: Sequence[str], codes: Sequence[int]) -> tuple[dict[str, int], list[str | None]]:
        """Make the changes that wait, and return the codes of some ids, which are all unlike, and ids of some codes."""
        wanted: list[list[str]] = [[] for _ in range(self._n)]
        for name in names:
            wanted[self._owner[bucket_of(name)]].append(name)
        changes = self._changes()
        each = [
            (change, own, codes) if change is not None or own or codes else None
            for change, own in zip(changes, wanted, strict=True)
        ]
        found, by_code = dict[str, int](), list[str | None]([None] * len(codes))
        for own, reply in zip(wanted, self._parts.call("exchange", each), strict=True):
            if reply is not None:
                found.update(zip(own, reply[0].tolist(), strict=True))
                by_code = [there if here is None else here for here, there in zip(by_code, reply[1], strict=True)]
        return found, by_code

    def _changes(self) -> list[Change | None]:
        """Take the changes that wait, of each part."""
        added, removed = self._added, self._removed
        if not any(added) and not any(removed):
            return [None] * self._n
        self._added, self._removed = [[] for _ in added], [[] for _ in removed]
        self._version += 1
        self._taken = [taken for taken in self._taken if taken() is not None]
        moments = [one.moment.version for taken in self._taken if (one := taken()) is not None]
        oldest = min(moments, default=self._version)
        return [
            Change(self._version, oldest, [n for _, n in new], [c for c, _ in new], old) if new or old else None
            for new, old in zip(added, removed, strict=True)
        ]


# Text ids and the numbers that stand for them in a model: those of live examples, and of a few deleted ones.
#
# Invariant: a code depends on the updates before it alone, not on how they were cut into batches or read ahead, nor on
# where the ids are kept. Memory follows the live examples, not the ids that were ever seen; of this process not even
# those, once there are many and other processes keep them (``id_dictionary``).

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
