"""The parts of an audit: each has some of the rows, and what all have found adds up to what one would find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Parts(Protocol):
    """Objects with the same methods, in this process or in others."""

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of each part; return the answers in the order of the parts."""


class PartsHere:
    """Parts in this process."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Ask one part after the other."""
        return [getattr(part, method)(*arguments) for part in self._parts]
