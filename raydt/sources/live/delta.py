"""A Delta table: the rows of one version as the first state, then the changes of one version after another.

Invariant: after the rows of version v, the ids that are live are those of the table at v. Within a version each id
changes once at most: what a version takes away and brings back unchanged (an overwrite, a compaction) is no change.

A table without change data feed is followed by its files: what a version adds to those of the version before, and what
it removes. That costs reading both, where the feed has the changed rows only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from raydt.encoding.netting import netted
from raydt.errors import InputError, RaydtError
from raydt.examples.reading import CLASSES, Reading
from raydt.messages import message
from raydt.redaction import marked, quoted
from raydt.sources.live.base import OP, LiveOptions, Part, Plan, SourceAwayError, library
from raydt.sources.live.tables import Files, first_line, one_batch, plain_type, with_columns

_FEED = "delta.enableChangeDataFeed"
#: What errors say of files that ``vacuum`` or the retention of the log has removed.
_GONE = re.compile(r"not found|no such file|LogSegment|missing|invalid (table )?version", re.I)
#: What errors say of values that cannot be cast to the newest types.
_UNFIT = re.compile(r"cast error|failed to parse|unsupported cast|would lose data|out of bounds|truncated", re.I)


class Delta(LiveOptions):
    """A Delta table, from its rows at a version on."""

    kind: Literal["delta"] = "delta"
    path: str = Field(description="folder or URI of the table")
    version: int | None = Field(None, ge=0, description="version to begin from; null: the newest when the run begins")
    op: Literal["_op"] = Field("_op", description="of the changes, which the source finds itself")
    envelope: None = Field(None, description="not of Delta tables")

    def open(self, reading: Reading = CLASSES) -> DeltaChanges:
        """Open the table; see :meth:`raydt.sources.live.base.LiveOptions.open`."""
        return DeltaChanges(self)

    def at(self, plan: Plan) -> Delta:
        """Return the options of the table at the version of a plan."""
        return self.model_copy(update={"version": plan["version"]})


class DeltaChanges:
    """Changes of a Delta table; satisfies :class:`raydt.sources.live.base.LiveSource`. A plan is a version."""

    unit = "versions"

    def __init__(self, options: Delta) -> None:
        self.name, self._path, self._version, self._id = options.path, options.path, options.version, options.id
        self._library = library("deltalake", "delta")
        try:
            self._table = self._library.DeltaTable(self._path)
        except Exception as error:  # of a library that promises no class of errors
            raise InputError(message("live.no_delta", reason=first_line(error)), file=self.name) from error
        self._table_id = self._table.metadata().id

    def schema(self) -> pa.Schema:
        """Columns of the newest version."""
        fields = [pa.field(field.name, plain_type(field.type)) for field in pa.schema(self._table.schema().to_arrow())]
        return pa.schema([*fields, pa.field(OP, pa.string())])

    def describe(self) -> dict[str, Any]:
        """The id of the table, and where reading begins."""
        return {"source": "delta", "table": self._table_id, "version": self._version}

    def begin(self) -> dict[str, Any]:
        """The version."""
        return {"version": self._table.version() if self._version is None else self._version}

    def plan(self, after: Plan | None) -> Plan | None:
        """The next version."""
        if after is None:
            return {**self.begin(), "snapshot": True}
        version = after["version"] + 1
        if version > self._table.version():
            with self._asking():
                self._table.update_incremental()
                if version <= self._table.version():  # read anew, since versions of another table follow as well
                    self._table = self._library.DeltaTable(self._path)
        if self._table.version() < after["version"] or self._table.metadata().id != self._table_id:
            raise InputError(message("live.other_table", version=after["version"]), file=self.name)
        return {"version": version} if version <= self._table.version() else None

    def behind(self, after: Plan | None) -> int:
        """Versions after a plan."""
        return int(self._table.version()) - (-1 if after is None else int(after["version"]))

    def place(self, plan: Plan) -> str:
        """The version."""
        return f"version {plan['version']}"

    def read(self, plan: Plan, columns: Sequence[str]) -> Iterator[Part]:
        """The rows of a version: of a snapshot by file; of changes deletes first, then the others, each by id."""
        version, names = plan["version"], [name for name in columns if name != OP]
        with self._asking(version):
            if "snapshot" in plan:
                files = self._files(version)
                for batch in files.scan(files.paths, names).to_batches():
                    rows = with_columns(pa.Table.from_batches([batch]), self._schema(version, names))
                    yield one_batch(rows.append_column(OP, pa.array(["insert"] * len(rows), pa.string()))), {}
                return
            before, after = self._changes(version, names)
            yield one_batch(netted(before, after, self._id, OP)), {}

    def _changes(self, version: int, names: list[str]) -> tuple[pa.Table, pa.Table]:
        """Rows that a version takes away, and rows that it brings."""
        schema = self._schema(version, names)
        if str(self._table.metadata().configuration.get(_FEED)).lower() == "true":
            try:
                feed = self._table.load_cdf(starting_version=version, ending_version=version)
                rows = pa.RecordBatchReader.from_stream(feed).read_all()
            except Exception as error:
                if "hange data" not in str(error):  # the feed was turned on later
                    raise
            else:
                kinds = pc.cast(rows["_change_type"], pa.string())
                gone = pc.is_in(kinds, pa.array(["delete", "update_preimage"]))
                rows = with_columns(rows, schema)
                return rows.filter(gone), rows.filter(pc.invert(gone))
        former, files = self._files(version - 1), self._files(version)
        before = former.scan(former.paths - files.paths, names).to_table()
        after = files.scan(files.paths - former.paths, names).to_table()
        return with_columns(before, schema), with_columns(after, schema)

    def _schema(self, version: int, names: list[str]) -> pa.Schema:
        whole = self.schema()
        gone = next((name for name in names if name not in whole.names), None)
        if gone is not None:
            raise InputError(message("live.no_column", version=version, column=quoted(gone)), file=self.name)
        return pa.schema([whole.field(name) for name in names])

    def _files(self, version: int) -> Files:
        """The files of a version."""
        return Files(self._library.DeltaTable(self._path, version=version).to_pyarrow_dataset())

    @contextmanager
    def _asking(self, version: int | None = None) -> Iterator[None]:
        """Say of errors of the library whether the source is away, or what a version needs is gone."""
        try:
            yield
        except (RaydtError, GeneratorExit):
            raise
        except Exception as error:
            if version is not None and _GONE.search(str(error)) and self._is_there():
                raise InputError(message("live.history_gone", version=version), file=self.name) from error
            if version is not None and (isinstance(error, pa.ArrowInvalid) or _UNFIT.search(str(error))):
                said = message("live.other_type", version=version, reason=marked(first_line(error), "a value"))
                raise InputError(said, file=self.name) from error
            raise SourceAwayError(message("live.away", reason=first_line(error)).at(self.name)) from error

    def _is_there(self) -> bool:
        try:
            self._library.DeltaTable(self._path)
        except Exception:
            return False
        return True
