"""The dictionary of the text ids of a stream: in one process, or divided among several by a hash of the id.

:class:`~raydt.streams.text_ids.TextIds` decides which update gets which code; a dictionary only keeps the codes.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from raydt.examples.row_owners import RowOwners
from raydt.folders.folder import Folder
from raydt.folders.manifest import FileEntry
from raydt.folders.text_ids import IdsElsewhere, SavedIds, bucket_of
from raydt.streams.id_part import Change, Moment

#: Ids that are handed over at a time.
_AT_ONCE = 1 << 16


class IdDictionary(Protocol):
    """Codes of ids, and ids of codes. An id may have an old code, which is to be removed, and the present one."""

    def __len__(self) -> int:
        """Return how many codes there are."""

    def codes_of(self, names: Sequence[str | None]) -> dict[str, int]:
        """Return codes of at least these ids, -1 or nothing without one; whoever adds ids puts them in first."""

    def add(self, new: Collection[tuple[int, str]]) -> None:
        """Add codes that are larger than all before, of ids that were put into what :meth:`codes_of` returned last."""

    def remove(self, old: Iterable[tuple[int, str]]) -> None:
        """Remove codes."""

    def names_of(self, codes: Sequence[int]) -> list[str | None]:
        """Return the ids of some codes, None of one that is not there."""


class OwnIds:
    """All ids in this process."""

    def __init__(self, pairs: Iterable[tuple[int, str]] = ()) -> None:
        self.names = dict(pairs)
        self._codes = {name: code for code, name in self.names.items()}

    def __len__(self) -> int:
        return len(self.names)

    def codes_of(self, names: Sequence[str | None]) -> dict[str, int]:
        """Return all codes. O(1)."""
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
    """Several :class:`~raydt.streams.id_part.IdPart`, which have the buckets of the shards of ``RowOwners``."""

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
