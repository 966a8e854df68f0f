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
from raydt.arrays.types import Bools, Ints
from raydt.messages import message

#: Values as a user gives them, dtype object.
Values = npt.NDArray[np.object_]

#: Deletions are applied together, as soon as there are so many or, if that is more, half as many as entries.
_TOGETHER = 1024


class Subjects:
    """The subject of each live example, in 24 bytes for each entry, and each subject once."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        #: By entry, in order of birth; those from ``_used`` on are room.
        self._id, self._born, self._code = (np.empty(0, dtype=np.int64) for _ in range(3))
        self._used = self._dropped = 0
        self._ended: list[tuple[Ints, Ints]] = []  # ids, and the numbers of the updates that delete them
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

    def add(self, ids: Ints, born: Ints, subjects: Sequence[Any] | Values) -> None:
        """Note insertions, later than all before. Amortised O(1) for each."""
        n, codes = len(ids), self._codes
        if self._used + n > len(self._id):
            capacity = max(self._used + n, 64, self._used + self._used // 2)
            self._id, self._born, self._code = (grown(one, capacity) for one in (self._id, self._born, self._code))
        new = slice(self._used, self._used + n)
        values = subjects.tolist() if isinstance(subjects, np.ndarray) else subjects
        self._id[new], self._born[new] = ids, born
        self._code[new] = [codes.setdefault(value, len(codes)) for value in values]
        self._used += n

    def end(self, ids: Ints, seq: Ints) -> None:
        """Note that no example with one of the ``ids`` lives that was born before ``seq``, ascending. O(log) each."""
        if len(ids):
            self._ended.append((np.array(ids), np.array(seq)))
            self._waiting += len(ids)
            if self._waiting >= max(_TOGETHER, self._used // 2):
                self._drop_ended()

    def keep(self, ids: Ints, born: Ints) -> None:
        """Drop the entries of all but the examples with these ids and births, shape (n,). O(n log n)."""
        order = np.argsort(born)
        here = np.zeros(self._used, dtype=np.bool_)
        if len(order):
            place = np.searchsorted(born, self._born[: self._used], sorter=order)
            place = order[np.minimum(place, len(order) - 1)]
            here = (born[place] == self._born[: self._used]) & (ids[place] == self._id[: self._used])
        self._ended, self._waiting = [], 0
        self._keep(here)

    def rows_of(self, subjects: Iterable[Any]) -> tuple[Ints, Ints, Values]:
        """Return ids, births and subjects of the entries of some subjects, in order of birth. O(entries)."""
        known = {self._codes[subject]: subject for subject in subjects if subject in self._codes}
        entries = self._without_ended(np.flatnonzero(np.isin(self._code[: self._used], list(known))))
        whose = [known[code] for code in self._code[entries].tolist()]
        return self._id[entries], self._born[entries], objects(whose)

    def of(self, ids: Ints) -> Values:
        """Return the subjects of live examples, shape (n,), None of one without an entry. O(entries)."""
        entries = self._without_ended(np.flatnonzero(np.isin(self._id[: self._used], ids)))
        code = dict(zip(self._id[entries].tolist(), self._code[entries].tolist(), strict=True))
        names = list(self._codes)
        return objects([names[code[one]] if one in code else None for one in ids.tolist()])

    def since(self, born: int) -> dict[int, Any]:
        """Return subjects of insertions from update ``born`` on, by number, before later deletions are noted."""
        first, names = int(np.searchsorted(self._born[: self._used], born)), list(self._codes)
        entries = zip(self._born[first : self._used].tolist(), self._code[first : self._used].tolist(), strict=True)
        return {update: names[code] for update, code in entries}

    def state(self) -> dict[str, Any]:
        """Return what :meth:`restore` needs: plain JSON values and NumPy arrays."""
        names, used = self.known, slice(0, self._used)
        return {
            "subjects": names,
            "subject_ids": self._id[used].copy(),
            "subject_born": self._born[used].copy(),
            "subject_codes": self._code[used].astype(np.int32),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave."""
        self._codes = {name: code for code, name in enumerate(state["subjects"])}
        columns = (state["subject_ids"], state["subject_born"], state["subject_codes"])
        self._id, self._born, self._code = (np.array(column, dtype=np.int64) for column in columns)
        if not len(self._id) == len(self._born) == len(self._code):
            raise ValueError(message("models.unequal_subjects"))
        self._used, self._ended, self._waiting, self._dropped = len(self._id), [], 0, 0

    # ------------------------------------------------------------ inside

    def _without_ended(self, entries: Ints) -> Ints:
        """Return the positions of entries, in order, without those of examples that deletions which wait have ended."""
        if not self._ended or not len(entries):
            return entries
        ids, seq = (np.concatenate(column)[::-1] for column in zip(*self._ended, strict=True))
        gone, last = np.unique(ids, return_index=True)  # of each id the last deletion
        place = np.minimum(np.searchsorted(gone, self._id[entries]), len(gone) - 1)
        left: Ints = entries[(gone[place] != self._id[entries]) | (self._born[entries] >= seq[last][place])]
        return left

    def _drop_ended(self) -> None:
        """Apply the deletions that wait."""
        if self._ended:
            chosen = np.zeros(self._used, dtype=np.bool_)
            chosen[self._without_ended(np.arange(self._used))] = True
            self._ended, self._waiting = [], 0
            self._keep(chosen)

    def _keep(self, chosen: Bools) -> None:
        """Drop all other entries, and the subjects that have none then."""
        used = len(chosen)
        self._id, self._born, code = (one[:used][chosen] for one in (self._id, self._born, self._code))
        codes, first, place = np.unique(code, return_index=True, return_inverse=True)
        order = np.argsort(first)
        new = np.empty(len(order), dtype=np.int64)
        new[order] = np.arange(len(order))
        self._code = new[place.reshape(-1)]
        names = list(self._codes)
        self._codes = {names[old]: place for place, old in enumerate(codes[order].tolist())}
        self._used = len(self._id)
        self._dropped += used - self._used


def objects(values: Sequence[Any]) -> Values:
    """Return values as an array of dtype object, shape (n,); tuples stay tuples."""
    return np.fromiter(values, dtype=np.object_, count=len(values))
