"""Whose rows the live examples are: the subject (a person, an account) of each, for deletions that name a subject.

Invariant: an entry stands for an insertion, by id and number of the update (``born``). Entries of deleted examples, and
subjects that have no entry left, are dropped before anything is saved, and after as many deletions as there are entries
at the latest. Codes follow the order of the entries that are left: they tell nothing of the others.

A stream knows an insertion before the learner has taken it, so that it has an entry of a refused insertion, too, and of
an example deleted by value. Whoever knows which examples live drops these by :meth:`Subjects.keep`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.memory import grown

Integers = npt.NDArray[np.int64]
#: Values as a user gives them, dtype object.
Values = npt.NDArray[np.object_]

#: Deletions are applied together, as soon as there are so many or, if that is more, half as many as entries.
_TOGETHER = 1024


class Subjects:
    """The subject of each live example.

    Memory: 24 bytes for each entry, and each subject once.
    """

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self._entries = np.empty((0, 3), dtype=np.int64)  # id, born and code of each, in order of birth
        self._used = self._dropped = 0
        self._ended: list[tuple[Integers, Integers]] = []  # ids, and the numbers of the updates that delete them
        self._waiting = 0

    def __len__(self) -> int:
        """How many insertions were noted, with those whose entries were dropped."""
        return self._dropped + self._used

    def cut(self, n: int) -> None:
        """Forget the insertions after the first ``n``."""
        self._used -= max(0, len(self) - n)

    def __getstate__(self) -> dict[str, Any]:
        """What is copied: nothing of deleted examples."""
        self._drop_ended()
        self._keep(np.ones(self._used, dtype=np.bool_))
        return self.__dict__

    @property
    def known(self) -> list[Any]:
        """Subjects that have an entry, in the order of their first."""
        self._drop_ended()
        self._keep(np.ones(self._used, dtype=np.bool_))
        return list(self._codes)

    def add(self, ids: Integers, born: Integers, subjects: Sequence[Any] | Values) -> None:
        """Note insertions, later than all before. Amortised O(1) for each."""
        n, codes = len(ids), self._codes
        if self._used + n > len(self._entries):
            self._entries = grown(self._entries, max(self._used + n, 64, self._used + self._used // 2))
        new = self._entries[self._used : self._used + n]
        new[:, 0], new[:, 1] = ids, born
        values = subjects.tolist() if isinstance(subjects, np.ndarray) else subjects
        new[:, 2] = [codes.setdefault(value, len(codes)) for value in values]
        self._used += n

    def end(self, ids: Integers, seq: Integers) -> None:
        """Note deletions: no example with one of the ``ids`` lives that was born before ``seq``, shape (n,), ascending.

        Amortised O(log entries) for each.
        """
        if len(ids):
            self._ended.append((np.array(ids), np.array(seq)))
            self._waiting += len(ids)
            if self._waiting >= max(_TOGETHER, self._used // 2):
                self._drop_ended()

    def keep(self, ids: Integers, born: Integers) -> None:
        """Drop the entries of all but the examples with these ids and births, shape (n,). O(n log n)."""
        self._drop_ended()
        order = np.argsort(born)
        place = np.searchsorted(born, self._born, sorter=order)
        place = order[np.minimum(place, len(born) - 1)] if len(born) else place
        here = np.zeros(self._used, dtype=np.bool_)
        if len(born):
            here = (born[place] == self._born) & (ids[place] == self._id)
        self._keep(here)

    def rows_of(self, subjects: Iterable[Any]) -> tuple[Integers, Integers, Values]:
        """Return ids, births and subjects of the entries of some subjects, in order of birth. O(entries)."""
        self._drop_ended()
        known = {self._codes[subject]: subject for subject in subjects if subject in self._codes}
        entries = self._entries[: self._used]
        chosen = entries[np.isin(entries[:, 2], list(known))]
        return chosen[:, 0].copy(), chosen[:, 1].copy(), _objects([known[code] for code in chosen[:, 2].tolist()])

    def of(self, ids: Integers) -> Values:
        """Return the subjects of live examples, None of one without an entry. O(entries log entries)."""
        self._drop_ended()
        names, order = list(self._codes), np.argsort(self._id, kind="stable")
        place = np.searchsorted(self._id, ids, side="right", sorter=order) - 1
        found = order[place] if self._used else place
        return _objects(
            [
                names[self._entries[entry, 2]] if at >= 0 and self._entries[entry, 0] == id_ else None
                for at, entry, id_ in zip(place.tolist(), found.tolist(), ids.tolist(), strict=True)
            ]
        )

    def state(self) -> dict[str, Any]:
        """Return what :meth:`restore` needs: plain JSON values and NumPy arrays."""
        names = self.known
        return {
            "subjects": names,
            "subject_ids": self._id.copy(),
            "subject_born": self._born.copy(),
            "subject_codes": self._entries[: self._used, 2].astype(np.int32),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave."""
        self._codes = {name: code for code, name in enumerate(state["subjects"])}
        columns = (state["subject_ids"], state["subject_born"], state["subject_codes"])
        self._entries = np.stack([np.asarray(column, dtype=np.int64) for column in columns], axis=1)
        self._used, self._ended, self._waiting, self._dropped = len(self._entries), [], 0, 0

    # ------------------------------------------------------------ inside

    @property
    def _id(self) -> Integers:
        return self._entries[: self._used, 0]

    @property
    def _born(self) -> Integers:
        return self._entries[: self._used, 1]

    def _drop_ended(self) -> None:
        """Apply the deletions that wait: of an id, all entries before its last one."""
        if not self._ended:
            return
        ids, seq = (np.concatenate(column)[::-1] for column in zip(*self._ended, strict=True))
        self._ended, self._waiting = [], 0
        gone, last = np.unique(ids, return_index=True)
        place = np.minimum(np.searchsorted(gone, self._id), len(gone) - 1)
        self._keep((gone[place] != self._id) | (self._born >= seq[last][place]))

    def _keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Drop all other entries, and the subjects that have none then."""
        entries = self._entries[: self._used][chosen]
        codes, first, code = np.unique(entries[:, 2], return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        entries[:, 2] = place[code.reshape(-1)]
        names = list(self._codes)
        self._codes = {names[old]: new for new, old in enumerate(codes[order].tolist())}
        self._dropped += self._used - len(entries)
        self._entries, self._used = entries, len(entries)


def _objects(values: Sequence[Any]) -> Values:
    """Return values as an array of dtype object, shape (n,); tuples stay tuples."""
    return np.fromiter(values, dtype=np.object_, count=len(values))
