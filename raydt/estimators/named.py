"""Examples by the ids and subjects that their users know, of an estimator with a live model.

Invariant: what a request names is found before anything is changed, or refused, all of it in one error.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import AnyArray, Bools, Floats, Int32s, Ints
from raydt.errors import InputError, UpdateError
from raydt.estimators.fitted import Fitted
from raydt.estimators.keys import ExampleNames, keys_of
from raydt.examples.targets import Targets
from raydt.examples.updates import DUPLICATE_ID, REFUSALS, UNKNOWN_ID, refuse_numbered, running_ids
from raydt.examples.weights import Weights
from raydt.messages import message


class Asked(NamedTuple):
    """A request to delete: live examples, the subjects that it names, and what it names that is not there."""

    key: Ints
    slots: Int32s
    subjects: tuple[Hashable, ...] = ()
    missing: tuple[Hashable, ...] = ()


class Beside(NamedTuple):
    """Ids, weights and subjects of new examples, as a user gives them beside X and y."""

    ids: Any
    subjects: Any
    weights: Any


class NewExamples(NamedTuple):
    """Examples to insert; where ids are not integers, ``names`` is the table to note ``ids`` in."""

    key: Ints
    rows: Floats
    sparse: SparseRows | None
    targets: Targets
    ids: list[Hashable] | None
    names: ExampleNames | None
    subjects: list[Hashable] | None
    weight: Weights | None  #: In units; None if all are 1.


def require_names(ids: Any, subjects: Any, missing: str) -> None:
    """Refuse a request to delete that names nothing, or does not say what is to be done about what is missing."""
    if missing not in ("error", "skip"):
        raise InputError(message("estimators.missing_choice", given=missing))
    if ids is None and subjects is None:
        raise InputError(message("estimators.nothing_named"))


def refuse_unknown(unknown: Sequence[tuple[str, Hashable]], ids: Sequence[Hashable]) -> None:
    """Refuse a request among whose ``ids`` and subjects some have no live example: ``("id", 7)``."""
    if len(unknown) == 1 and unknown[0][0] == "id":
        problem, remedy = REFUSALS[UNKNOWN_ID]
        said = message("estimators.refused", subject=f"id {unknown[0][1]}", problem=problem, remedy=remedy)
        raise UpdateError(said, row=ids.index(unknown[0][1]))
    raise UpdateError(message("estimators.unknown", names=", ".join(f"{what} {one}" for what, one in unknown)))


class NamedExamples(Fitted, ABC):
    """Base of :class:`raydt.estimators.base.Estimator`."""

    @property
    def live_ids_(self) -> AnyArray:
        """Ids of the live examples, oldest first: int64, or objects where they are not integers."""
        with self._lock:
            self._require_fitted()
            self._require_examples()
            return self._shown(self._store().id[self._store().in_order_of_birth()])

    def __contains__(self, id: Any) -> bool:
        """Return True if an example with this id is live."""
        with self._lock:
            self._require_fitted()
            self._require_examples()
            return bool((self._find(keys_of([id]))[1] >= 0).all())

    # ------------------------------------------------------------ inside

    def _asked(self, ids: Any, subjects: Any, missing: str) -> Asked:
        """Find what a request names, ids first, each example once; or an error that names all that is not there."""
        self._require_fitted()
        self._require_examples()
        require_names(ids, subjects, missing)
        given = [] if ids is None else keys_of(ids)
        named = list(dict.fromkeys(given))
        key, slots = self._find(named)
        refuse_numbered(self._numbered, key)
        live = slots >= 0
        unknown = [("id", one) for one, lives in zip(named, live.tolist(), strict=True) if not lives]
        key, slots = key[live], slots[live]
        whose: list[Hashable] = []
        if subjects is not None:
            more, whose = self._rows_of_subjects(asked := list(dict.fromkeys(keys_of(subjects, "subject"))))
            found = set(whose)
            unknown += [("subject", one) for one in asked if one not in found]
            key = np.concatenate([key, more[~np.isin(more, key)]])
            slots = self._store().find(key)
        if unknown and missing == "error":
            refuse_unknown(unknown, given)
        return Asked(key, slots, tuple(dict.fromkeys(whose)), tuple(one for _, one in unknown))

    def _find(self, ids: Sequence[Hashable]) -> tuple[Ints, Int32s]:
        """Return number and slot of the live example of each id; where there is none, the slot is -1."""
        if self._names is not None:
            key, known = self._names.numbers_of(ids)
        else:
            known = np.array([isinstance(one, int) for one in ids], dtype=np.bool_)
            key = np.array([one if isinstance(one, int) else 0 for one in ids], dtype=np.int64)
        return key, np.where(known, self._store().find(key), -1).astype(np.int32)

    def _rows_of_subjects(self, subjects: Sequence[Hashable]) -> tuple[Ints, list[Hashable]]:
        """Return the numbers of the live examples of some subjects, oldest first, and whose each is."""
        if self._subjects is None:
            raise InputError(message("estimators.no_subjects"))
        key, born, whose = self._subjects.rows_of(subjects)
        slots = self._store().find(key)
        live = (slots >= 0) & (self._store().born[slots] == born) if len(key) else slots >= 0
        return key[live], whose[live].tolist()

    def _shown(self, key: Ints) -> AnyArray:
        """Return the ids of examples as the user knows them."""
        return key if self._names is None else self._names.names_of(key)

    def _settle(self) -> None:
        """Drop names and subjects of the examples that the call has deleted."""
        key, start = self.__dict__.pop("_gone", (np.empty(0, dtype=np.int64), 0))
        if self._names is not None:
            self._names.drop(key)
        if self._subjects is not None:
            self._subjects.end(key, np.full(len(key), start))

    def _named(self, ids: Any, n: int, gone: Ints) -> tuple[Ints, list[Hashable] | None, ExampleNames | None]:
        """Return numbers for ``n`` examples to insert; where ids are not integers, the ids and their table, too.

        An error if an id is live, and not among the numbers ``gone``, or is repeated.
        """
        running = running_ids(self._next_id, n)
        if ids is None and self._names is None:
            self._refuse((self._store().find(running) >= 0) & ~np.isin(running, gone), running, DUPLICATE_ID)
            return running, None, None
        shown = running.tolist() if ids is None else keys_of(ids)
        if len(shown) != n:
            raise InputError(message("estimators.other_ids", rows=n, shape=(len(shown),)))
        self._refuse_repeated(shown)
        key, slots = self._find(shown)
        self._refuse((slots >= 0) & ~np.isin(key, gone), shown, DUPLICATE_ID)
        if self._names is None and all(isinstance(one, int) for one in shown):
            return key, None, None
        names = self._names
        if names is None:  # ids were integers up to now
            live = self._store().id[self._store().in_order_of_birth()]
            names = ExampleNames()
            names.add(live, live.tolist())
        return running, shown, names

    def _refuse(self, bad: Bools, key: Sequence[Any] | AnyArray, reason: int) -> None:
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            problem, remedy = REFUSALS[reason]
            said = message("estimators.refused", subject=f"id {key[row]}", problem=problem, remedy=remedy)
            raise UpdateError(said, row=row)

    def _refuse_repeated(self, ids: Sequence[Hashable]) -> None:
        seen: set[Hashable] = set()
        for one in ids if len(set(ids)) < len(ids) else ():
            if one in seen:
                raise UpdateError(message("estimators.repeated_id", id=one))
            seen.add(one)
