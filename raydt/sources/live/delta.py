"""A Delta table: the rows of one version as the first state, then the changes of one version after another.

Invariant: after the rows of version v, the ids that are live are those of the table at v. Within a version each id
changes once at most: what a version takes away and brings back unchanged (an overwrite, a compaction) is no change.

Changes are read from the commit of the version in the log: from its files of changed rows, which a table with a change
data feed writes; otherwise from the files that the commit adds and removes. So a feed may be off for some versions.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from raydt.encoding.columns import one_batch
from raydt.encoding.labels import netted
from raydt.errors import InputError, RaydtError
from raydt.examples.updates import CLASSES, Reading
from raydt.messages import marked, message, quoted
from raydt.sources.live.base import (
    OP,
    HistoryGoneError,
    LiveOptions,
    Part,
    Plan,
    SourceAwayError,
    TableFile,
    first_line,
    library,
    plain_type,
    scan,
)

#: Features of a table's protocol with which files are read as without them.
_READABLE = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "variantType", "variantType-preview"}
#: Column of the kind of change in the files of changed rows.
_CHANGE = "_change_type"
#: What errors say of files that ``vacuum`` or the retention of the log has removed.
_GONE = re.compile(r"no such file|object at location .* not found|log ?segment|metadata or protocol", re.I)
#: What errors say of values that cannot be cast to the newest types.
_UNFIT = re.compile(r"\bcast\b|failed to parse|would lose data|out of bounds|not in range|truncated", re.I)
#: What errors say of a store that does not answer: one of the network, or that the store is overloaded.
_STORE = re.compile(r"error sending request|connection|timed? ?out|dns error|status:? (408|429|5\d\d)|slow ?down", re.I)
_NETWORK = {
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENOTCONN,
    errno.EPIPE,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


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
            if self._is_there():
                raise InputError(message("live.unreadable", reason=first_line(error)), file=self.name) from error
            raise InputError(message("live.no_delta", reason=first_line(error)), file=self.name) from error
        self._table_id = self._table.metadata().id
        store = library("deltalake.fs", "delta").DeltaStorageHandler(self._table.table_uri)
        self._store = library("pyarrow.fs", "delta").PyFileSystem(store)

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
            with self._asking(version):
                try:
                    self._table.update_incremental()
                    if version <= self._table.version():  # read anew, since versions of another table follow as well
                        self._table = self._library.DeltaTable(self._path)
                except Exception:  # perhaps of a feature, which the library names seldom, in one of the new versions
                    with suppress(FileNotFoundError):
                        for new in count(version):
                            self._commit(new)
                    raise
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
        version = plan["version"]
        with self._asking(version):
            schema = self._schema(version, [name for name in columns if name != OP])
            if "snapshot" in plan:
                for rows in scan(self._files(version), schema, self._store, self.name):
                    yield rows.append_column(OP, pa.array(["insert"] * len(rows), pa.string())), {}
                return
            yield one_batch(netted(*self._changes(version, schema), self._id, OP)), {}

    def _commit(self, version: int) -> dict[str, list[Any]]:
        """Return the actions of a version by kind; InputError if the version is not read as its writer meant."""
        commit: dict[str, list[Any]] = {"add": [], "remove": [], "cdc": []}
        for line in self._store.open_input_stream(f"_delta_log/{version:020}.json").read().splitlines():
            for kind, action in json.loads(line).items():
                commit.setdefault(kind, []).append(action)
        for protocol in commit.get("protocol", ()):
            self._require_readable(version, protocol.get("readerFeatures"))
        if any(file.get("deletionVector") for file in (*commit["add"], *commit["remove"])):
            self._require_readable(version, ["deletionVectors"])
        for metadata in commit.get("metaData", ()):
            self._require_readable(version, (), metadata.get("configuration"))
        return commit

    def _changes(self, version: int, schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
        """Rows that a version takes away, and rows that it brings."""
        commit = self._commit(version)
        if commit["cdc"]:
            told = schema.append(pa.field(_CHANGE, pa.string()))
            rows = self._read(map(self._file, commit["cdc"]), told)
            gone = pc.is_in(rows[_CHANGE], pa.array(["delete", "update_preimage"]))
            rows = rows.drop_columns([_CHANGE])
            return rows.filter(gone), rows.filter(pc.invert(gone))
        if not any(file["dataChange"] for file in (*commit["add"], *commit["remove"])):
            return schema.empty_table(), schema.empty_table()
        partitioned = self._table.metadata().partition_columns
        if partitioned and any(file.get("partitionValues") is None for file in commit["remove"]):
            removed, former = {self._file(file).path for file in commit["remove"]}, self._files(version - 1)
            before = [file for file in former if file.path in removed]
        else:
            before = [self._file(file) for file in commit["remove"]]
        return self._read(before, schema), self._read(map(self._file, commit["add"]), schema)

    def _read(self, files: Iterable[TableFile], schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches(scan(files, schema, self._store, self.name), schema)

    def _schema(self, version: int, names: list[str]) -> pa.Schema:
        whole = self.schema()
        gone = next((name for name in names if name not in whole.names), None)
        if gone is not None:
            raise InputError(message("live.no_column", version=version, column=quoted(gone)), file=self.name)
        return pa.schema([whole.field(name) for name in names])

    def _files(self, version: int) -> list[TableFile]:
        """The files of a version."""
        table = self._library.DeltaTable(self._path, version=version)
        self._require_readable(version, table.protocol().reader_features, table.metadata().configuration)
        return [
            self._data_file(one["path"], one.get("partition"), one["num_records"], one.get("null_count"))
            for one in pa.table(table.get_add_actions()).to_pylist()
        ]

    def _file(self, action: Mapping[str, Any]) -> TableFile:
        """The file of an action of a commit."""
        counts = json.loads(action.get("stats") or "{}")
        return self._data_file(
            action["path"], action.get("partitionValues"), counts.get("numRecords"), counts.get("nullCount")
        )

    def _data_file(self, path: str, partition: Any, rows: int | None, nulls: Mapping[str, Any] | None) -> TableFile:
        if re.match(r"/|[A-Za-z][\w+.-]*:", path):
            raise InputError(message("live.outside", path=quoted(path)), file=self.name)
        counted = {} if rows is None else nulls or {}
        filled = {name for name, null in counted.items() if isinstance(null, int) and null < (rows or 0)}
        return TableFile(unquote(path), partition or {}, filled)

    def _require_readable(self, version: int, features: Any, configuration: Mapping[str, Any] | None = None) -> None:
        """Require a version that is read as its writer meant; InputError with the feature of the table otherwise."""
        unread = sorted({*(features or ())} - _READABLE)
        if (configuration or {}).get("delta.columnMapping.mode", "none") != "none":
            unread = ["columnMapping"]
        if unread:
            raise InputError(message("live.feature", version=version, feature=", ".join(unread)), file=self.name)

    @contextmanager
    def _asking(self, version: int) -> Iterator[None]:
        """Say of errors of the library whether the source is away, or why the version cannot be read."""
        try:
            yield
        except (RaydtError, GeneratorExit):
            raise
        except Exception as error:
            said, reason = str(error), first_line(error)
            if _of_network(error) or not self._is_there():
                raise SourceAwayError(message("live.away", reason=reason).at(self.name)) from error
            if isinstance(error, FileNotFoundError) or _GONE.search(said):
                raise HistoryGoneError(message("live.history_gone", version=version), file=self.name) from error
            if _UNFIT.search(said):
                told = message("live.other_type", version=version, reason=marked(reason, "a value"))
                raise InputError(told, file=self.name) from error
            told = message("live.unreadable_version", version=version, reason=marked(reason, "a value"))
            raise InputError(told, file=self.name) from error

    def _is_there(self) -> bool:
        """Return True if the store answers that the table has a log."""
        try:
            return bool(self._library.DeltaTable.is_deltatable(self._path))
        except Exception as error:
            return not _of_network(error)


def _of_network(error: Exception) -> bool:
    """Return True for an error of the network, or of a store that cannot answer now."""
    code = getattr(error, "errno", None) or next(map(int, re.findall(r"os error (\d+)", str(error))), 0)
    return code in _NETWORK or _STORE.search(str(error)) is not None
