"""Arrays that are read when they are asked for, so that not all of them are in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

Key = TypeVar("Key")


class Lazy(Mapping[Key, dict[str, Any]]):
    """Named parts, each made when it is asked for; arrays of ``keep_bytes`` in all are kept once made."""

    def __init__(self, keys: Iterable[Key], make: Callable[[Key], dict[str, Any]], keep_bytes: int = 0) -> None:
        self._parts: dict[Key, dict[str, Any] | None] = dict.fromkeys(keys)
        self._make, self._room = make, keep_bytes

    def __getitem__(self, key: Key) -> dict[str, Any]:
        part = self._parts[key]
        if part is None:
            part = self._make(key)
            if self._room:
                needed = sum(value.nbytes for value in part.values() if isinstance(value, np.ndarray))
                if needed <= self._room:
                    self._room -= needed
                    self._parts[key] = part
        return part

    def __iter__(self) -> Iterator[Key]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, key: object) -> bool:
        return key in self._parts
