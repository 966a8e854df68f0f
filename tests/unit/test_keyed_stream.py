"""Blocks of a stream of many keys: rows that are read apart come together, with the bad ones among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from raydt.errors import InputError
from raydt.keyed import stream
from raydt.keyed.stream import KeyedStream
from raydt.messages import message
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles
from tests.small_tables import written

N, KEYS, BAD = 90, 20, (41, 77)


def opened(folder: Path, *, skip_bad: bool) -> KeyedStream:
    """A stream of a file that is read two rows at a time, two of which have no number where one is wanted."""
    x: list[float | None] = [None if row in BAD else row / 7 for row in range(N)]
    key = [f"k{row % KEYS}" for row in range(N)]
    table = pa.table({"x": pa.array(x, pa.float64()), "y": [row % 2 for row in range(N)], "key": key})
    source: Any = open_source(ArrowFiles(path=str(written(folder / "rows.arrow", table)), label="y", key="key"))
    source._chunk_rows = 2
    return KeyedStream(source, skip_bad=skip_bad)


def test_blocks_grow_with_the_keys_and_have_all_rows_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are cut by: at most as many rows as keys call for, or as memory allows."""
    for most in (1 << 22, 30):
        monkeypatch.setattr(stream, "MOST_CELLS", most)
        blocks = list(opened(tmp_path, skip_bad=True).batches(3))
        assert np.concatenate([block.rows.row for block in blocks]).tolist() == list(range(N))
        assert [block.start for block in blocks] == [int(block.rows.row[0]) for block in blocks]
        assert len(blocks[0]) == 3
        assert 10 < max(map(len, blocks)) <= most + 1  # they end with what is read together
        bad = [block.start + place for block in blocks for place in sorted(block.rows.bad)]
        assert tuple(bad) == BAD


def test_the_rows_before_a_bad_one_come_first(tmp_path: Path) -> None:
    rows: list[int] = []
    blocks = (block.rows.row.tolist() for block in opened(tmp_path, skip_bad=False).batches(3))
    with pytest.raises(InputError, match=f"row {BAD[0]}"):
        rows.extend(row for block in blocks for row in block)
    assert rows == list(range(BAD[0]))


def test_a_stream_goes_on_where_it_was_left(tmp_path: Path) -> None:
    """Though rows beyond had been read."""
    whole = list(opened(tmp_path, skip_bad=True).batches(3))
    before = opened(tmp_path, skip_bad=True)
    blocks = before.batches(3)
    taken = [next(blocks) for _ in range(3)]
    state = before.state()
    after = opened(tmp_path, skip_bad=True)
    after.restore(state)
    taken += after.batches(3)
    rows = np.concatenate([block.rows.row for block in taken])
    assert rows.tolist() == list(range(N))
    assert state["row"] == whole[2].stop


def fresh_each_time(keyed: KeyedStream) -> Iterator[int]:
    """Rows of blocks, each of which is asked for anew."""
    while (block := next(keyed.batches(3), None)) is not None:
        yield from block.rows.row.tolist()


def in_one_go(keyed: KeyedStream) -> Iterator[int]:
    """Rows of blocks, one after the other."""
    for block in keyed.batches(3):
        yield from block.rows.row.tolist()


@pytest.mark.parametrize("rows_of", [fresh_each_time, in_one_go])
@pytest.mark.parametrize("breaks", [False, True])
def test_what_is_good_before_an_error_comes_first(breaks: bool, rows_of: Any, tmp_path: Path) -> None:
    """Of a file that breaks off as of one with a bad row, and also if somebody goes on after a block."""
    keyed, end = opened(tmp_path, skip_bad=breaks), 54 if breaks else BAD[0]
    read = keyed.source.rows

    def broken(start: int = 0) -> Iterator[Any]:
        for rows in read(start):
            if rows.start >= 54:
                raise InputError(message("sources.no_path"), row=54)
            yield rows

    if breaks:
        keyed.source.rows = broken  # type: ignore[method-assign, assignment]
    rows: list[int] = []
    with pytest.raises(InputError, match=f"row {end}"):
        rows.extend(rows_of(keyed))
    assert rows == list(range(end))
