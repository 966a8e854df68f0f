"""The committed parts of a table: numbered Parquet files, listed by a checkpoint.

Invariant: the rows of a table are those of the listed parts, in the order of the list. A part that is not listed is
deleted on restore, so that what is written again is there once. A listed part is complete; the result of a compaction,
which lies under its hidden name (a dot in front, which dataset readers pass over), gets the visible one on restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.run_files import MERGING, PART
from pipelines.run_folder import RunFolder
from raydt.errors import STORAGE_REMEDIES, InputError, NotWrittenError
from raydt.messages import message

#: Rows of a row group, and so the most that a table keeps in memory.
ROWS_PER_GROUP = 65_536


@contextmanager
def writing(place: str) -> Iterator[None]:
    """Context in which a failure of the storage is a :class:`~raydt.errors.NotWrittenError` of ``place``."""
    try:
        yield
    except OSError as error:
        remedy = STORAGE_REMEDIES.get(error.errno or 0)
        raise NotWrittenError(message("machine.not_written", reason=str(error)), file=place, remedy=remedy) from error


class Parts:
    """The parts of one table, whose folder is made with the first; ``names`` are committed when listed."""

    def __init__(self, folder: RunFolder, table: str) -> None:
        self._here = folder.inside(table)
        self.location = self._here.location
        self.names: list[str] = []
        self._sizes: list[int] = []
        self._replaced: list[str] = []

    def begin(self) -> str:
        """Path of the next part while it is written; the table's folder exists."""
        self._here.make()
        return self._here.path("." + self._next())

    def publish(self) -> None:
        """Let the part that :meth:`begin` named appear: it is complete, and on the disk before its name is."""
        name = self._next()
        self._here.move("." + name, name)
        self.names.append(name)
        self._sizes.append(self._here.size(name) or 0)

    def state(self) -> dict[str, Any]:
        """Names and sizes in bytes, plain JSON values."""
        return {"parts": list(self.names), "bytes": list(self._sizes)}

    def missing(self, state: Mapping[str, Any]) -> InputError | None:
        """The error of the first part that a state lists and that is not there in its full size."""
        return self._missing(state, self._found())

    def _missing(self, state: Mapping[str, Any], sizes: Mapping[str, int]) -> InputError | None:
        for name, size in zip(state["parts"], state["bytes"], strict=True):
            if size not in (sizes.get(name), sizes.get("." + name)):
                found = sizes.get(name, sizes.get("." + name))
                said = "runs.missing_part" if found is None else "runs.other_size"
                return InputError(message(said, found=found, size=size), file=f"{self.location}/{name}")
        return None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Make the listed parts the only ones; can be repeated. InputError, first, if one is missing or damaged."""
        sizes = self._found()
        error = self._missing(state, sizes)
        if error is not None:
            raise error
        self.names, self._sizes, self._replaced = list(state["parts"]), list(state["bytes"]), []
        with writing(self.location):
            for name, size in zip(self.names, self._sizes, strict=True):
                if sizes.get(name) != size:  # only its hidden twin is whole: the crash came before the last step
                    self._here.move("." + name, name)
                    del sizes["." + name]
            for file in sorted(sizes.keys() - set(self.names)):
                self._here.delete(file)

    def renew(self) -> None:
        """List no part any more; those until now stay until :meth:`finish`, for the checkpoint that lists them."""
        self._replaced += self.names
        self.names, self._sizes = [], []

    def merge(self) -> None:
        """Write all parts into one, hidden, and list it in their stead; they stay until :meth:`finish`.

        Nothing happens where there is at most one part. At most about two row groups are in memory. After
        NotWrittenError the parts are as they were.
        """
        if len(self.names) > 1:
            with writing(self.location):
                self._merge(lambda batch: batch)

    def rewrite(self, choose: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Write ``choose`` of all batches of rows into one part, as :meth:`merge` does; none without rows."""
        with writing(self.location):
            self._merge(choose)

    def changed_by(self, state: Mapping[str, Any], choose: Callable[[pa.RecordBatch], pa.RecordBatch]) -> bool:
        """Return True if ``choose`` changes a batch in the parts of a state; InputError for a damaged part."""
        sizes = self._found()
        error = self._missing(state, sizes)
        if error is not None:
            raise error
        for name, size in zip(state["parts"], state["bytes"], strict=True):
            place = self._here.path(name if sizes.get(name) == size else "." + name)
            with pq.ParquetFile(place, filesystem=self._here.filesystem) as file:
                if any(choose(batch) is not batch for batch in file.iter_batches(ROWS_PER_GROUP)):
                    return True
        return False

    def _merge(self, choose: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        whole, sources = self._next(), [self._here.path(name) for name in self.names]
        filesystem, temporary = self._here.filesystem, self._here.path(MERGING)
        schema = pq.read_schema(sources[-1], filesystem=filesystem)
        with pq.ParquetWriter(temporary, schema, filesystem=filesystem, compression="zstd") as writer:
            waiting: list[pa.RecordBatch] = []
            rows = 0
            for source in sources:
                with pq.ParquetFile(source, filesystem=filesystem) as file:
                    for batch in map(choose, file.iter_batches(ROWS_PER_GROUP)):
                        rows += len(batch)
                        waiting.append(_conformed(batch, schema))
                        if sum(len(piece) for piece in waiting) >= ROWS_PER_GROUP:
                            writer.write_table(pa.Table.from_batches(waiting, schema=schema))
                            waiting = []
            if waiting:
                writer.write_table(pa.Table.from_batches(waiting, schema=schema))
        if not rows:
            self._here.delete(MERGING)
            self.renew()
            return
        self._here.move(MERGING, "." + whole)
        self.renew()
        self.names, self._sizes = [whole], [self._here.size("." + whole) or 0]

    def finish(self) -> None:
        """Put new parts in place of the others, after a checkpoint that lists them; a restore does so, too."""
        if self._replaced:
            with writing(self.location):
                if self.names and self._here.size("." + self.names[0]) is not None:  # a merged one
                    self._here.move("." + self.names[0], self.names[0])
                for name in self._replaced:
                    self._here.delete(name)
            self._replaced = []

    def _next(self) -> str:
        known = [*self._replaced, *self.names]
        last = PART.fullmatch(known[-1]) if known else None
        return f"part-{int(last[1]) + 1 if last else 0:05d}.parquet"

    def _found(self) -> dict[str, int]:
        """Sizes of all files that were written here, visible or hidden."""
        ours = [name for name in self._here.names() if PART.fullmatch(name) or name == MERGING]
        found = self._here.filesystem.get_file_info([self._here.path(name) for name in ours])
        return {entry.base_name: entry.size for entry in found if entry.is_file}


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows under another schema: a column that an earlier version did not write is null."""
    if batch.schema.names == schema.names:
        return batch
    columns = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
