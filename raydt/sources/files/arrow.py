"""Arrow IPC files and streams (told apart by their first bytes). A file is seekable by batch, a stream is not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from raydt.sources.files.datafile import DataFile

_FILE_MAGIC = b"ARROW1"


class ArrowDataFile(DataFile):
    """One Arrow IPC file (also called Feather 2) or stream."""

    kind = "arrow"
    suffixes = (".arrow", ".arrows", ".feather", ".ipc")

    def _open(self) -> None:
        self._ends = None
        with self.open_input() as source:
            is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
            source.seek(0)
            if not is_file:
                self.schema = pa.ipc.open_stream(source).schema
                return
            self.schema = pa.ipc.open_file(source).schema
            if self.schema.names:  # one column is enough to learn the lengths
                reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=[0]))
                lengths = [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]
                self._ends = np.cumsum(lengths, dtype=np.int64)
                self.n_rows = sum(lengths)
                self.seekable = True

    def _batches(self, columns: list[str], start: int, size: int) -> Iterator[pa.RecordBatch]:
        places = {max(map(self.schema.get_field_index, (name, name.partition(".")[0]))) for name in columns}
        fields = sorted(place for place in places if place >= 0)
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=self.in_threads)
        with self.open_input() as source:
            if self._ends is not None:
                reader = pa.ipc.open_file(source, options=options)
                first = int(np.searchsorted(self._ends, start, side="right"))
                skip = start - (int(self._ends[first - 1]) if first else 0)
                batches = (reader.get_batch(index) for index in range(first, len(self._ends)))
            else:
                skip = start
                batches = iter(pa.ipc.open_stream(source, options=options))
            for batch in batches:
                if skip < batch.num_rows:
                    yield batch.slice(skip)
                skip = max(0, skip - batch.num_rows)
