"""What other processes know of a source with rows of many keys, from messages: where every row lies."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydt.keyed import source as sent
from raydt.keyed.source import Sending, SentSource
from raydt.sources.divided import open_source
from raydt.sources.options import ParquetFiles


@pytest.mark.parametrize("kept", [2, 100])
def test_every_row_of_many_files_is_found(kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of a source that goes on are forgotten in the end, and files are not: their number is known."""
    monkeypatch.setattr(sent, "KEPT", kept)
    lengths = [3, 1, 0, 4, 2, 5]
    for number, length in enumerate(lengths):
        columns = {"store": [number] * length, "x": [0.5] * length, "y": ["a"] * length}
        types = {"store": pa.int64(), "x": pa.float64(), "y": pa.string()}
        table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    source = open_source(ParquetFiles(path=str(tmp_path / "*.parquet"), label="y", key="store"))
    source._chunk_rows = 2
    there, sending = SentSource.of(source), Sending(source)
    for number, chunk in enumerate(source.rows()):
        news = sending.news()
        there.take(news)
        assert number == 0 or len(news.files) == 1, "files that are known already are sent again"
        for row in range(chunk.start + len(chunk)):
            assert there.where(row) == source.where(row)
