"""Stream model ``batches``: the active set goes through a list of sizes, up by insertions, down by deletions.

On the way up the inactive rows of the source are inserted in their order, those that were never inserted and those
that were removed alike; rows are read again from the source, not kept. On the way down active examples are deleted.

Invariant: every good row before ``_low`` is active, so that an upward way starts to read there. Bad rows before
``_seen`` have been recorded, and all good rows before it have been read at some time.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from raydt.arrays.rng import below, stream_key
from raydt.arrays.types import Ints
from raydt.errors import ConfigError
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.messages import message
from raydt.sources.base import Rows, Source
from raydt.streams.active import ActiveList
from raydt.streams.reader import END, RowReader
from raydt.streams.row_stream import RowStream, RowStreamOptions


def _step(value: Any) -> Any:
    if isinstance(value, bool) or not (
        (isinstance(value, int) and value >= 0) or (isinstance(value, float) and 0.0 < value <= 1.0)
    ):
        raise ValueError(message("streams.step"))
    return value


_Rows = Annotated[int, Field(ge=0)]
_Share = Annotated[float, Field(gt=0.0, le=1.0)]
Step = Annotated[_Rows | _Share, BeforeValidator(_step)]


class Batches(RowStreamOptions):
    """The set of live examples grows and shrinks to each of ``steps`` in turn."""

    model: Literal["batches"] = "batches"
    steps: list[Step] = Field(
        min_length=1,
        description="sizes of the set of live examples, one after the other: a number of rows, or a share of all, such "
        "as 0.5",
    )
    removal_order: Literal["fifo", "lifo", "random"] = Field(
        "fifo", description="examples to delete first: fifo the oldest, lifo the newest, random drawn uniformly"
    )
    seed: int = Field(7, description="seed of removal_order: random; any integer")

    @model_validator(mode="after")
    def _fits(self) -> Batches:
        if any(step == 1 and isinstance(step, int) for step in self.steps) and any(
            isinstance(step, float) for step in self.steps
        ):
            raise ValueError(message("streams.mixed_steps"))
        first = self.steps[0]
        if isinstance(first, int) and self.warmup > first:
            raise ValueError(message("streams.warmup_beyond_step", warmup=self.warmup, first=first))
        return self

    def make(self, source: Source, base_dir: str | Path = ".") -> BatchesStream:
        """The stream over ``source``."""
        return BatchesStream(self, source)


class BatchesStream(RowStream):
    """Inserts or deletes until the size of each step is reached, or the rows run out.

    A share counts the source's rows, bad ones included, and is rounded to the nearest number, half to even. No batch
    holds updates of two steps. Of rows with one id only the first good one is ever inserted, since every way up begins
    at the first row that is not active.
    """

    chooses_deletes = True

    def __init__(self, options: Batches, source: Source) -> None:
        super().__init__(options, source)
        shares = any(isinstance(step, float) for step in options.steps)
        n = source.count_rows() if shares else 0
        self._targets = [step if isinstance(step, int) else round(Fraction(str(step)) * n) for step in options.steps]
        if self.warmup > self._targets[0]:
            raise ConfigError(message("streams.warmup_beyond_rows", warmup=self.warmup, first=self._targets[0], rows=n))
        self._order = options.removal_order
        self._pick = stream_key(options.seed, "batches pick")
        self._step = 0
        self._active = ActiveList(np.empty((0, 2), dtype=np.int64))  # id and row of each, oldest insertion first
        self._low = self._seen = 0
        self._removed = False  # since the reader was made

    def begin_with(self, rows: Iterator[Rows]) -> None:
        """Take the rows from here; the reader that has them stays, although a position may have been restored."""
        super().begin_with(rows)
        self._removed = False

    def _next(self, size: int) -> UpdateBatch | None:
        while self._step < len(self._targets):
            missing = self._targets[self._step] - len(self._active)
            if missing < 0:
                return self._remove(min(size, -missing))
            if missing > 0 and (batch := self._insert(min(size, missing))) is not None:
                return batch
            self._step += 1
        return None

    def _insert(self, size: int) -> UpdateBatch | None:
        if self._removed:
            skipped = self._reader.skipped
            active = np.sort(self._active.view()[:, 1])
            self._reader.close()
            self._reader = RowReader(self.source, self._low, self._skip_bad, without=active, recorded=self._seen)
            self._reader.skipped = skipped
            self._removed = False
        rows = self._take(self._available(size))
        if not len(rows):
            self._reader.finish()
            self._seen = END
            return None
        self._low = self._reader.position
        self._seen = max(self._seen, self._low)
        self._active.push(np.stack([rows.id, rows.row], axis=1))
        return self._batch(np.full(len(rows), INSERT, dtype=np.int8), rows.id, rows, rows.row)

    def _remove(self, size: int) -> UpdateBatch:
        op = np.full(size, DELETE, dtype=np.int8)
        if self._seq < self.warmup:  # the rows ran out before the first step was reached
            self._cut_warmup(op)
        if self._order == "random":
            removed = self._draw(size)
        elif self._order == "fifo":
            removed = self._active.take_first(size).copy()
        else:
            removed = self._active.take_last(size)[::-1].copy()
        self._low = min(self._low, int(removed[:, 1].min()))
        self._removed = True
        return self._batch(op, removed[:, 0].copy(), self._reader.peek(0), np.full(size, -1, dtype=np.int64))

    def _draw(self, k: int) -> Ints:
        """Remove ``k`` entries, each drawn uniformly from those left; the last one moves into its place."""
        active = self._active.view()
        left = len(active) - np.arange(k)
        drawn = below(self._pick, self._seq + np.arange(k), left)
        moved: dict[int, int] = {}  # place: where its entry was before
        taken = []
        for place, last in zip(drawn.tolist(), (left - 1).tolist(), strict=True):
            taken.append(moved.get(place, place))
            moved[place] = moved.pop(last, last)
        removed = active[taken]
        moved = {place: origin for place, origin in moved.items() if place < len(active) - k}
        active[list(moved)] = active[list(moved.values())]
        self._active.take_last(k)
        return removed

    def follow_update(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: the next way up would insert the deleted examples again."""
        raise ConfigError(message("streams.batches_after_update"))

    def length(self) -> int | None:
        """Rows inserted and deleted on all ways, where the number of rows is known; bad rows not considered."""
        n = self.source.n_rows
        if n is None:
            return None
        sizes = np.minimum([0, *self._targets], n)
        return int(np.abs(np.diff(sizes)).sum())

    def state(self) -> dict[str, Any]:
        """Return position, dictionaries as before row ``seen``, and ids and rows of active examples, in order."""
        active = self._active.array()
        return {
            **super().state(),
            "row": self._low,
            "source": self.source.state(self._seen),
            "seen": self._seen,
            "step": self._step,
            "active": active[:, 0].copy(),
            "active_row": active[:, 1].copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        super().restore(state)
        self._step, self._low, self._seen = int(state["step"]), int(state["row"]), int(state["seen"])
        self._active = ActiveList(np.stack([state["active"], state["active_row"]], axis=1))
        self._removed = True
