"""Stream model ``random_updates``: inserts and deletes of random examples, by a coin.

(The program released with the paper always deletes the smallest point; here it is drawn uniformly.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from raydt.arrays.kernel import kernel
from raydt.arrays.rng import below_at, stream_key, uniform, uniform_at
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.sources.base import Rows, Source
from raydt.streams.row_stream import RowStream, RowStreamOptions


class RandomUpdates(RowStreamOptions):
    """Insert the next row with ``insert_probability``, else delete a live example drawn uniformly."""

    model: Literal["random_updates"] = "random_updates"
    insert_probability: float = Field(
        0.5, ge=0.0, le=1.0, description="probability that an update is an insert, else it is a delete (p)"
    )
    seed: int = Field(7, description="seed of the draws; any integer")

    def make(self, source: Source, base_dir: str | Path = ".") -> RandomUpdatesStream:
        """The stream over ``source``."""
        return RandomUpdatesStream(self, source)


class Chance(NamedTuple):
    """Keys of the coin and of the choice among active ids, probability of an insert, and where the warm-up ends."""

    coin: np.uint64
    pick: np.uint64
    insert: float
    warmup: int


@kernel
def _draw(chance: Any, seq: int, ids: Any, active: Any, n_active: int, op: Any, deleted: Any) -> tuple[int, int, int]:
    """Draw updates ``seq``, ``seq + 1``, ... while a row remains and ``op`` has room.

    Returns how many updates, how many of them inserts, and how many active ids.

    ``active[:n_active]`` is the list of active ids: an insert appends, a delete moves the last one into the gap.
    """
    taken, m = 0, 0
    while m < len(op) and taken < len(ids):
        t = seq + m
        if n_active == 0 or t < chance.warmup or uniform_at(chance.coin, t) < chance.insert:
            op[m] = INSERT
            active[n_active] = ids[taken]
            n_active += 1
            taken += 1
        else:
            op[m] = DELETE
            drawn = below_at(chance.pick, t, n_active)
            deleted[m - taken] = active[drawn]
            n_active -= 1
            active[drawn] = active[n_active]
        m += 1
    return m, taken, n_active


class RandomUpdatesStream(RowStream):
    """Update t is an insert if nothing is active, t < warmup, or the coin of t says so; else a delete.

    Coin and choice are pure functions of (seed, t). The stream ends with the insert of the last row. O(1) per update.
    """

    chooses_deletes = True

    def __init__(self, options: RandomUpdates, source: Source) -> None:
        super().__init__(options, source)
        self._p = options.insert_probability
        self._coin = stream_key(options.seed, "random_updates coin")
        self._pick = stream_key(options.seed, "random_updates pick")
        self._active = np.empty(0, dtype=np.int64)
        self._n_active = 0

    def _next(self, size: int) -> UpdateBatch | None:
        available = self._available(size)
        if not available:
            self._reader.finish()
            return None
        ids = self._peek(available).id
        if self._live is not None and int(ids[0]) in self._live:
            size = 1  # a delete, after which the row is looked at again
        if self._n_active + available > len(self._active):
            grown = np.empty(2 * (self._n_active + available), dtype=np.int64)
            grown[: self._n_active] = self._active[: self._n_active]
            self._active = grown
        op = np.empty(size, dtype=np.int8)
        deleted = np.empty(size, dtype=np.int64)
        chance = Chance(self._coin, self._pick, self._p, self.warmup)
        drawn = _draw(chance, self._seq - self._foreign, ids, self._active, self._n_active, op, deleted)
        m, taken, self._n_active = drawn
        return self._spread(op[:m], self._take(taken), deleted[: m - taken])

    def _deletes_before(self, row: Rows) -> bool:
        """Whether the next update is a delete."""
        at = np.array([self._seq - self._foreign])
        return self._n_active > 0 and self._seq >= self.warmup and bool(uniform(self._coin, at)[0] >= self._p)

    def length(self) -> None:
        """Not known in advance."""

    def state(self) -> dict[str, Any]:
        """Position, dictionaries, and the list of active ids in its order."""
        return {**super().state(), "active": self._active[: self._n_active].copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        super().restore(state)
        self._active = state["active"].astype(np.int64)
        self._n_active = len(self._active)


def warmup() -> None:
    """Compile the kernel once, so that processes started later load it from Numba's cache."""
    key = stream_key(0, "warmup")
    ids, op = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int8)
    _draw(Chance(key, key, 0.5, 0), 0, ids, ids.copy(), 0, op, ids.copy())
