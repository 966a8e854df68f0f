"""Ids and subjects of examples as users give them: integers, or text and other hashable values.

Invariant: a model knows an example by an integer. Ids that are integers are that themselves; of other ids each
insertion gets the next running number, which no insertion before it had, and :class:`ExampleNames` keeps the two
together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray, Bools, Ints
from raydt.errors import InputError
from raydt.estimators.arguments import ids_of, is_missing
from raydt.examples.subjects import objects
from raydt.messages import message

Integers = Ints


def keys_of(given: Any, what: str = "id") -> list[Hashable]:
    """Return ids or subjects as plain values: one value, or several of any container; UUIDs as text.

    InputError, with the row, for a missing one, and for floats, truth values, lengths of time and what has no hash;
    ``what`` is what messages call a value.
    """
    values = _listed(given)
    if isinstance(values, np.ndarray) or all(isinstance(value, int | float) for value in values):
        if not isinstance(values, np.ndarray):
            _refuse_missing(values, what)
        numbers: list[Hashable] = ids_of(values, what).tolist()
        return numbers
    _refuse_missing(values, what)
    keys: list[Hashable] = []
    for row, value in enumerate(values):
        if isinstance(value, list | np.ndarray):
            raise InputError(message("estimators.id_shape", shape=(len(values), len(value))))
        key = str(value) if isinstance(value, UUID) else value
        if isinstance(key, bool | float | timedelta | np.generic) or not _has_hash(key):
            raise InputError(message("estimators.id_type", what=what, value=value), row=row)
        keys.append(key)
    return keys


def index_of(X: Any) -> Any:
    """Return the index of a data frame if it has a name; None if not, or if ``X`` has no index."""
    index = getattr(X, "index", None)
    names = getattr(index, "names", None) or ()
    return index if any(name is not None for name in names) else None


def columns_named(X: Any, features: Sequence[str], **given: Any) -> dict[str, str | None]:
    """Return what a state says of the columns beside the features: names of the series ``given``, by keys of a source.

    Without ``id`` among these, the index of a data frame is the ids if it has a name. No column is one of ``features``.
    """
    names: Sequence[Any] = getattr(index_of(X), "names", ())
    found = {role: getattr(values, "name", None) for role, values in given.items()}
    if given.get("id") is None:
        found["id"] = names[0] if len(names) == 1 else None
    columns: dict[str, str | None] = {
        role: name for role, name in found.items() if name and isinstance(name, str) and name not in features
    }
    return columns | ({"id_kind": "integer"} if "id" in columns else {})


def _listed(given: Any) -> AnyArray | list[Any]:
    """Return values as an array of numbers, or a list of Python's own values."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return [given.item() if isinstance(given, np.generic) else given]
    if hasattr(given, "to_pylist"):  # Arrow
        return list(given.to_pylist())
    kind = getattr(getattr(given, "dtype", None), "kind", "O")
    if kind in "iuf" and hasattr(given, "__array__"):
        return np.asarray(given)
    if hasattr(given, "to_list"):  # pandas, polars
        return list(given.to_list())
    if isinstance(given, np.ndarray):
        if given.ndim != 1:
            raise InputError(message("estimators.id_shape", shape=given.shape))
        given = given.astype("M8[us]") if kind == "M" else given
        return list(given) if kind == "m" else list(given.tolist())
    return [value.item() if isinstance(value, np.generic) else value for value in given]


def _refuse_missing(values: Sequence[Any], what: str) -> None:
    for row, value in enumerate(values):
        if is_missing(value):
            raise InputError(message("estimators.no_key", what=what), row=row)


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class ExampleNames:
    """Ids that are not integers, by numbers of their examples; a number that a model lacks is of a deleted one."""

    def __init__(self) -> None:
        self._names: dict[int, Hashable] = {}
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._names.values())

    def cut(self, n: int) -> None:
        """Forget all insertions but the first ``n``."""
        if len(self._names) > n:
            while len(self._names) > n:
                self._names.popitem()
            self._numbers = {name: number for number, name in self._names.items()}

    def add(self, numbers: Integers, names: Iterable[Hashable]) -> None:
        """Note insertions."""
        for number, name in zip(numbers.tolist(), names, strict=True):
            self._names[number] = name
            self._numbers[name] = number

    def drop(self, numbers: Integers) -> None:
        """Forget the names of deleted examples."""
        for number in numbers.tolist():
            name = self._names.pop(number)
            if self._numbers[name] == number:
                del self._numbers[name]

    def numbers_of(self, names: Sequence[Hashable]) -> tuple[Integers, Bools]:
        """Return the newest number of each name, and whether there is one."""
        found = [self._numbers.get(name) for name in names]
        known = np.array([number is not None for number in found], dtype=np.bool_)
        return np.array([number or 0 for number in found], dtype=np.int64), known

    def names_of(self, numbers: Integers) -> npt.NDArray[np.object_]:
        """Return the names of examples, shape (n,)."""
        return objects([self._names[number] for number in numbers.tolist()])
