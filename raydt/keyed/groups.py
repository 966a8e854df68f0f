"""The 256 groups of keys: what a process owns, what a file of a checkpoint holds, and a level of the digest.

Invariant: the group of a key, and the digest over all keys, follow from the keys and the models alone: not from the
order in which keys appeared, or from who owns them. A key without live examples is in no digest: it is as one that has
never been there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydt.arrays.elementary import Ints
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import REFUSALS, UNKNOWN_ID
from raydt.messages import message, quoted
from raydt.sources.base import Rows
from raydt.streams.deletion_log import LoggedDeletions

#: Value of a key, as a source or a user gives it.
Key = str | int

#: Fixed: states are divided by it.
GROUPS = 256

_PERSON = b"raydt keys"


def bytes_of(key: Key) -> bytes:
    """Return what stands for a key in hashes; an integer and the text of its digits differ."""
    return b"s" + key.encode("utf-8", "surrogatepass") if isinstance(key, str) else b"i%d" % key


def group_of(key: Key) -> int:
    """Return the group of a key, from 0 to 255: the first byte of a hash."""
    return hashlib.blake2b(bytes_of(key), digest_size=8, person=_PERSON).digest()[0]


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Return keys in an order of their own: by group, then by the bytes that stand for them."""
    return sorted(keys, key=lambda key: (group_of(key), bytes_of(key)))


def digest_of_group(digests: Mapping[Key, str]) -> str:
    """Return the digest of one group: over its keys and the digests of their models; "" of a group without keys."""
    if not digests:
        return ""
    whole = hashlib.sha256(_PERSON)
    for key in sorted(digests, key=bytes_of):
        for part in (bytes_of(key), digests[key].encode()):
            whole.update(len(part).to_bytes(8, "little") + part)
    return f"sha256:{whole.hexdigest()}"


def digest_of_groups(groups: Mapping[int, str]) -> str:
    """Return the digest over all keys, from those of the groups (:func:`digest_of_group`) that have keys.

    Two runs that differ can be compared group by group, then key by key.
    """
    whole = hashlib.sha256(_PERSON)
    for group in sorted(groups):
        if groups[group]:
            whole.update(bytes([group]) + groups[group].encode())
    return f"sha256:{whole.hexdigest()}"


def digest_of(digests: Mapping[Key, str]) -> str:
    """Return the digest over all keys, from the digest of each key's model."""
    parts: dict[int, dict[Key, str]] = {}
    for key, digest in digests.items():
        parts.setdefault(group_of(key), {})[key] = digest
    return digest_of_groups({group: digest_of_group(part) for group, part in parts.items()})


def owners(sizes: Mapping[int, int], processes: int) -> list[int]:
    """Return the process that owns each of the 256 groups, given the sizes of those that have some.

    From the largest group on, each goes to the process that has least so far: a group of more than the mean is alone.
    Groups without a size are dealt in equal parts.

    Examples
    --------
    >>> found = owners({7: 60, 1: 20, 200: 10, 3: 10}, 2)
    >>> found[7], [found[group] for group in (1, 3, 200)]
    (0, [1, 1, 1])
    """
    held, found = [0] * processes, [group * processes // GROUPS for group in range(GROUPS)]
    for group in sorted(sizes, key=lambda group: (-sizes[group], group)):
        found[group] = min(range(processes), key=held.__getitem__)
        held[found[group]] += sizes[group]
    return found


# A deletion log told apart by key: who owns the id that an entry names, and the part of the log of one key.
#
# Invariant: an entry takes effect in the key into which its id was inserted last before it, at the place among the rows
# of this key that corresponds to its place among all rows. So a key's part is what a log of its own rows would say.


@dataclass(frozen=True)
class Due:
    """Entries of a log that take effect by the end of a block of rows, in their order."""

    key: Ints  #: Shape (m,): codes of the keys; -1 of an id that no row had.
    after: Ints  #: Shape (m,): rows of the source before each.
    row: Ints  #: Shape (m,): rows of the log.
    ids: list[Any]

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, places: Any) -> Due:
        """Return some of the entries."""
        chosen = np.arange(len(self.row))[places]
        return Due(self.key[chosen], self.after[chosen], self.row[chosen], [self.ids[i] for i in chosen.tolist()])


class LogOwners:
    """The keys of the ids that a log names, as far as rows were read."""

    def __init__(self, log: LoggedDeletions) -> None:
        self.log, self.done = log, 0
        self._named = set(log.ids)
        self._integers = np.array(sorted(self._named), dtype=np.int64) if _are_integers(log.ids) else None
        self._owner: dict[Any, int] = {}

    def take(self, rows: Rows | None, stop: int) -> Due:
        """Take the entries that take effect by the end of the next rows, before row ``stop``. O(rows log entries)."""
        log, first = self.log, self.done
        self.done = int(np.searchsorted(log.after, stop, side="right"))
        row, after = log.row[first : self.done], log.after[first : self.done]
        ids, new = [log.ids[i] for i in row.tolist()], self._inserted(rows)
        key = [self._owner_of(one, new, at) for one, at in zip(ids, after.tolist(), strict=True)]
        self._owner.update((one, places[-1][1]) for one, places in new.items())
        return Due(np.array(key, dtype=np.int64), after, row, ids)

    def _inserted(self, rows: Rows | None) -> dict[Any, list[tuple[int, int]]]:
        """Return where the ids of the log are among rows: number of the row and key, in order."""
        if rows is None or rows.key is None:
            return {}
        if rows.names is None:
            named = [] if self._integers is None else np.flatnonzero(np.isin(rows.id, self._integers)).tolist()
            ids = rows.id[named].tolist()
        else:
            names = rows.names.tolist()
            named = [place for place, name in enumerate(names) if name in self._named]
            ids = [names[place] for place in named]
        found: dict[Any, list[tuple[int, int]]] = {}
        for one, number, key, place in zip(ids, rows.row[named].tolist(), rows.key[named].tolist(), named, strict=True):
            if place not in rows.bad:
                found.setdefault(one, []).append((number, key))
        return found

    def _owner_of(self, one: Any, new: dict[Any, list[tuple[int, int]]], after: int) -> int:
        """Return the key into which an id was inserted last before a row; -1 of none."""
        before = [key for number, key in new.get(one, ()) if number < after]
        return before[-1] if before else self._owner.get(one, -1)

    def unknown(self, due: Due, place: int) -> InputError:
        """Return the error of a deletion of an id that no row before has had."""
        problem, remedy = REFUSALS[UNKNOWN_ID]
        said = message("keyed.no_owner", id=quoted(due.ids[place]), problem=problem, remedy=remedy)
        return InputError(said, file=self.log.name, row=int(due.row[place]), column=self.log.column)

    def state(self) -> dict[str, Any]:
        """Return the owners that are known, and how many entries were taken."""
        codes = np.array(list(self._owner.values()), dtype=np.int64)
        return {
            "deletions": self.done,
            "owned": list(self._owner),
            "owners": codes,
            "log": self.log.described["sha256"],
        }

    def restore(self, state: Mapping[str, Any], keys: int) -> None:
        """Go to a saved position, where so many keys are known; it is a ConfigError if it belongs to another log."""
        if state["log"] != self.log.described["sha256"]:
            raise ConfigError(message("streams.changed_log", file=self.log.name))
        self.done, owners = int(state["deletions"]), state["owners"].tolist()
        if not 0 <= self.done <= len(self.log.after) or any(not 0 <= code < keys for code in owners):
            raise ValueError(message("keyed.uneven", name="owners"))
        self._owner = dict(zip(state["owned"], owners, strict=True))


def _are_integers(ids: list[Any]) -> bool:
    return all(isinstance(one, int) for one in ids)


class KeyLog:
    """The part of a log of one key, as far as its entries are due."""

    by_subject = False

    def __init__(self, column: str, name: str, described: dict[str, Any]) -> None:
        self.column, self.name, self.described = column, name, described
        self.ids: dict[int, Any] = {}
        self.after = self.row = np.empty(0, dtype=np.int64)

    def add(self, due: Due, rows: Ints, read: int) -> None:
        """Add entries before, among or after the next rows of the key, whose numbers over the source are given."""
        self.after = np.append(self.after, read + np.searchsorted(rows, due.after))
        self.row = np.append(self.row, due.row)
        self.ids.update(zip(due.row.tolist(), due.ids, strict=True))

    def go_to(self, done: int) -> None:
        """Go on after so many entries."""
        self.ids, self.after, self.row = {}, np.zeros(done, dtype=np.int64), np.zeros(done, dtype=np.int64)
