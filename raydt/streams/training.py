"""Stream model ``training``: all rows are inserted as one warm-up, so that they build the model in one step.

A share of the rows can be *held out*: a second model is trained on the other rows first, and predicts these. Invariant:
whether a row is held out follows from its id (the row number without one) and the share alone, not from the order of
the rows or from other rows, and a larger share holds out the rows of a smaller one, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from raydt.arrays.rng import stream_key, uniform
from raydt.arrays.types import Bools
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.sources.base import Rows, Source
from raydt.streams.incremental import IncrementalStream
from raydt.streams.reader import END, RowReader
from raydt.streams.row_stream import RowStreamOptions

#: A warm-up that no source completes: the end of the stream ends it.
ALL_ROWS = 1 << 40

_KEY = stream_key(0, "training holdout")


class Training(RowStreamOptions):
    """All rows train the model at once; a share of them is held out first, for a score."""

    model: Literal["training"] = "training"
    warmup: int = Field(ALL_ROWS, ge=ALL_ROWS, le=ALL_ROWS, exclude=True, description="all rows; not to be set")
    holdout: float = Field(
        0.2,
        ge=0.0,
        lt=1.0,
        description="share of the rows, by a hash of the id, that a model trained on the others is scored on, before "
        "all rows train the model; 0: no score",
    )

    def make(self, source: Source, base_dir: str | Path = ".") -> TrainingStream:
        """The stream over ``source``."""
        return TrainingStream(self, source)


class TrainingStream(IncrementalStream):
    """Update t inserts the t-th good row."""

    def __init__(self, options: Training, source: Source) -> None:
        super().__init__(options, source)
        self._options = options

    def rest(self) -> Rest:
        """Return the stream that inserts the rows that are not held out, over the same source, at its beginning."""
        return Rest(self._options, self.source)


class Rest(TrainingStream):
    """Inserts the good rows that are not held out."""

    def _next(self, size: int) -> UpdateBatch | None:
        while n := self._reader.available(size):
            rows = self._reader.take(n)
            rows = rows[~held_out(rows, self._options.holdout)]
            if len(rows):
                op = np.full(len(rows), INSERT, dtype=np.int8)
                if self._text_ids is not None and rows.names is not None:
                    rows = replace(rows, id=self._text_ids.give(rows.names, op))
                return self._batch(op, rows.id, rows, rows.row)
        self._reader.finish()
        return None

    def held_out(self, size: int) -> Iterator[Rows]:
        """Yield the good rows held out, up to ``size`` at a time, once this stream has come to its end."""
        reader = RowReader(self.source, 0, skip_bad=True, recorded=END)
        while n := reader.available(size):
            rows = reader.take(n)
            rows = rows[held_out(rows, self._options.holdout)]
            if len(rows):
                yield rows


def held_out(rows: Rows, share: float) -> Bools:
    """Return which rows are held out; shape (n,). O(n)."""
    if rows.names is None:
        return uniform(_KEY, rows.id) < share
    return np.array([_place(name) < share for name in rows.names.tolist()], dtype=np.bool_)


def _place(name: str) -> float:
    """Return a number in [0, 1) that follows from a text id."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") / 2.0**64
