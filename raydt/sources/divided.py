"""The driver's half of a divided reading: it reads ids, labels and times, and has the shards read the features.

The driver reads its columns block by block and asks the shards to read theirs, a few blocks ahead. If a block is good
for everybody, its rows go on without features: those are at the shards already, and only categories that are new have
to be told. A block with a bad row is read as ever, in full, so that its messages, and what counts as the first
appearance of a category, are the same.

Invariant: the rows, their order and numbers, all codes and all errors are those of reading the source as a whole. At
most the first ``warmup`` good rows come without features.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, Protocol

from raydt.arrays.types import Ints
from raydt.errors import InputError
from raydt.exchange.blocks import Block
from raydt.messages import Message, message
from raydt.sources.base import Rows
from raydt.sources.feature_reader import BlockReport

log = logging.getLogger(__name__)

#: Blocks that the shards read ahead of the one whose rows are handed out.
BLOCKS_AHEAD = 3
#: Rows of a block.
BLOCK_ROWS = 1 << 16


class Readers(Protocol):
    """The shards, as those who read features."""

    def check(self, start: int, stop: int, unwanted: Sequence[int]) -> Callable[[], Sequence[BlockReport]]:
        """Have every shard read a block of rows; the call returns their reports. Blocks at ``unwanted`` are dropped."""


class DividedReading:
    """Rows of a source from its first on, of which the first come without features.

    ``source`` is at its beginning. Blocks have ``block_rows`` rows, or
    :data:`BLOCK_ROWS`.
    """

    def __init__(self, source: Any, readers: Readers, warmup: int, block_rows: int = 0) -> None:
        self._source, self._readers, self._block_rows = source, readers, block_rows or BLOCK_ROWS
        self._end = warmup if source.n_rows is None else min(warmup, source.n_rows)
        self._blocks: list[Block] = []

    def blocks_of(self, rows: Ints) -> tuple[Block, ...]:
        """Return the blocks in which these rows lie, ascending numbers of rows that came without features."""
        first, last = (bisect_right(self._blocks, row, key=lambda block: block.start) for row in rows[[0, -1]].tolist())
        return tuple(self._blocks[first - 1 : last])

    def rows(self) -> Generator[Rows, None, None]:
        """Yield chunks of rows; ``X`` of those without features has no columns."""
        keys = self._source.part((), keys=True)
        asked: deque[tuple[int, int, Callable[[], Sequence[BlockReport]]]] = deque()
        position = begin = 0  # the first row not handed out, and not asked for
        unwanted: list[int] = []  # blocks that some shard or the driver cannot use
        while position < self._end:
            while len(asked) < BLOCKS_AHEAD and begin < self._end:
                stop = min(begin + self._block_rows, self._end)
                asked.append((begin, stop, self._readers.check(begin, stop, tuple(unwanted))))
                begin = stop
                unwanted.clear()
            start, stop, wait = asked.popleft()
            reports = wait()
            good = all(report.good for report in reports)
            chunks = self._keys(keys, start, stop) if good else []
            length = sum(map(len, chunks or ()))
            problem = _problem(reports, length if good and chunks is not None else None)
            if chunks is None or problem is not None:
                yield from self._instead(position, stop, problem)
                return
            good = good and not any(chunk.bad for chunk in chunks)
            if good and (block := self._known(start, start + length, reports)) is not None:
                self._blocks.append(block)
                self._source.hand_out(start + length)
                yield from chunks
                position = start + length
                if position < stop:
                    return
            elif self._source.seekable:
                unwanted.append(start)
                with closing(self._whole(start)) as found:
                    for rows in found:
                        yield _until(rows, stop)
                        position = min(stop, rows.start + len(rows))
                        if position == stop:
                            break
                if position < stop:  # the source has no more rows
                    return
            else:
                break
        yield from self._whole(position)

    def _keys(self, keys: Any, start: int, stop: int) -> list[Rows] | None:
        """Read ids, labels and times of a block; None if that fails, and then no label of the block is known."""
        try:
            return list(keys.block(start, stop))
        except InputError:
            self._source.forget_labels(start)
            return None

    def _known(self, start: int, stop: int, reports: Sequence[BlockReport]) -> Block | None:
        """Give the categories and tokens of a good block their codes; None if there are more tokens than may be."""
        codes, dictionaries, features = {}, self._source.categories(), self._source.features
        known = {name: len(dictionary) for name, dictionary in dictionaries.items()}
        for report in reports:
            for name, (values, rows) in report.categories.items():
                codes[name] = dictionaries[name].learn(values, rows)
        if features.sparse and len(dictionaries.get(features.sparse_column, ())) > features.sparse:
            for name, dictionary in dictionaries.items():
                dictionary.cut(known[name])
            return None
        return Block(start, stop, codes)

    def _instead(self, start: int, stop: int, problem: Message | None) -> Generator[Rows, None, None]:
        """Yield all rows from ``start`` on, since the shards do not get beyond the block that ends before ``stop``.

        If the driver does, it warns of their problem. Else the file is damaged for all, and the error says so.
        """
        with closing(self._whole(start, from_beginning=True)) as found:
            for rows in found:
                if problem is not None and rows.start + len(rows) >= stop:
                    log.warning("%s", message("runs.rows_sent", why=problem), extra={"event": "rows_sent"})
                    problem = None
                yield rows

    def _whole(self, start: int, *, from_beginning: bool = False) -> Generator[Rows, None, None]:
        """Yield rows with all features, in chunks ``from_beginning`` where an error may name the chunk before it."""
        with closing(self._source.rows(0 if from_beginning else start)) as found:
            for rows in found:
                cut = max(0, start - rows.start)
                if cut < len(rows):
                    yield _from(rows, cut) if cut else rows


def _problem(reports: Sequence[BlockReport], length: int | None) -> Message | None:
    """Return why a block cannot be that of the driver, if one of the shards cannot read it on, or reads other rows.

    The driver has found ``length`` rows in it; None if it has not looked.
    """
    for shard, report in enumerate(reports):
        if report.problem is not None:
            return message("sources.shard_unread", shard=shard, problem=report.problem)
        if length is not None and report.rows not in (None, length):
            return message("sources.shard_unlike", shard=shard, rows=report.rows, length=length)
    return None


def _from(rows: Rows, cut: int) -> Rows:
    return Rows(**rows[cut:].columns(), bad={place - cut: error for place, error in rows.bad.items() if place >= cut})


def _until(rows: Rows, stop: int) -> Rows:
    length = min(len(rows), stop - rows.start)
    return Rows(**rows[:length].columns(), bad={place: e for place, e in rows.bad.items() if place < length})
