"""Which models have not been used for long, of many: they give up what they hold for the next updates.

Invariant: a model that is used in every round, or a little less often, is never among them. Nothing but memory and time
depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from raydt.keyed.groups import Key

#: Rounds without a use, blocks of rows or calls, after which a model is idle.
ROUNDS = 16


class Awake:
    """Keys by their last use, the earliest first; those that are idle already are not among them."""

    def __init__(self) -> None:
        self._last: dict[Key, int] = {}
        self._round = 0

    def use(self, keys: Iterable[Key]) -> list[Key]:
        """Begin a round in which some keys are used; return those that are idle from now on. Amortised O(keys)."""
        self._round += 1
        for key in keys:
            self._last.pop(key, None)
            self._last[key] = self._round
        idle = []
        for key, last in self._last.items():
            if self._round - last < ROUNDS:
                break
            idle.append(key)
        for key in idle:
            del self._last[key]
        return idle
