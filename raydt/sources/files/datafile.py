"""Files of a source: finding them on any file system, and what each file format offers.

Invariant: the files of a folder or pattern come in the order of their sorted paths, those of a list in its order.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from raydt.arrays.elementary import Ints
from raydt.errors import InputError, shortage
from raydt.messages import Message, marked, message, quoted
from raydt.sources.files.content import END_BYTES, content_hash, diagnosis, without_flaws

# Table formats whose folders hold more than the table's rows: Delta, Iceberg, Hudi, Paimon.
#
# Such a table keeps the files of deleted and replaced rows, and a log that says which files, and which of their rows,
# are live. The files alone would bring deleted rows back.
#
# Invariant: no file in such a table is read, by whatever path, pattern or link it is named.


class _TableFormat(NamedTuple):
    name: str
    #: Pattern of the files in the folder of the log.
    files: str
    #: What reads the live rows.
    reader: str


#: By the name of the folder that holds the log.
_FORMATS = {
    "_delta_log": _TableFormat("a Delta table", "*", "deltalake: DeltaTable(path).to_pyarrow_table()"),
    "metadata": _TableFormat("an Iceberg table", "*.metadata.json*", "pyiceberg: table.scan().to_arrow()"),
    ".hoodie": _TableFormat("a Hudi table", "*", "Spark or hudi-rs"),
    "manifest": _TableFormat("a Paimon table", "manifest-list-*", "Spark or pypaimon"),
}


def refuse_tables(filesystem: Any, listed: Iterable[Any]) -> None:
    """Raise an InputError, with format and remedy, if the log of such a table is in a listing."""
    for info in listed:
        form = _FORMATS.get(info.base_name)
        if form is None or info.type != pafs.FileType.Directory:
            continue
        logged = filesystem.get_file_info(pafs.FileSelector(info.path, allow_not_found=True))
        if any(fnmatchcase(file.base_name, form.files) for file in logged):
            or_else = ", or follow the table with source.kind: delta" if info.base_name == "_delta_log" else ""
            said = message("files.table", form=form.name, log=info.base_name, reader=form.reader, or_else=or_else)
            raise InputError(said, file=info.path.rpartition("/")[0])


def refuse_tables_above(filesystem: Any, paths: Iterable[str]) -> None:
    """Raise an InputError if one of these paths, as where a link leads to, is or lies in such a table."""
    given = list(paths)
    if isinstance(filesystem, pafs.LocalFileSystem):
        given += [os.path.realpath(path) for path in given]
    folders = {str(folder) for path in given for folder in (PurePosixPath(path), *PurePosixPath(path).parents)}
    for folder in sorted(folders - {"."}):
        logs = [f"{folder.rstrip('/')}/{name}" for name in _FORMATS]
        with contextlib.suppress(OSError, pa.ArrowException):  # a folder that this user may not list tells nothing
            refuse_tables(filesystem, filesystem.get_file_info(logs))


_URI = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")
_MAGIC = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class FilePlace:
    """One file: its file system, its path there, its name for messages, its size in bytes, when it was changed (ns)."""

    filesystem: Any
    path: str
    name: str
    size: int
    modified: int | None = None


def find_files(path: str | list[str], base_dir: str | Path, suffixes: tuple[str, ...]) -> list[FilePlace]:
    """Return the files that a path, relative to ``base_dir``, stands for, each once.

    It is a file, a folder, a pattern (``**`` at the end is a folder), a URI or a list of these; names that begin with a
    dot or an underscore are passed over. InputError if nothing is there, a file is listed twice, or it belongs to a
    table with a log (:mod:`raydt.sources.files.datafile`).
    """
    if isinstance(path, list):
        entry_of: dict[Hashable, int] = {}
        places = []
        for number, one in enumerate(path):
            for place in find_files(one, base_dir, suffixes):
                other = entry_of.setdefault(_file_itself(place.filesystem, place.path), number)
                if other != number:
                    raise InputError(message("files.twice", first=path[other], second=one), file=place.name)
                places.append(place)
        return places
    if "\0" in path:
        raise InputError(message("files.nul"), file=path.replace("\0", "\\0"))
    uri = _URI.match(path)
    try:
        where = path if uri else str(Path(base_dir, Path(path).expanduser()).absolute())
    except RuntimeError:
        raise InputError(message("files.no_home"), file=path) from None
    prefix = f"{uri.group(1)}://" if uri and uri.group(1) != "file" else ""
    if uri and uri.group(1).lower() in ("http", "https"):
        raise InputError(message("files.web"), file=where)
    with reading(where):
        start, infos, filesystem = _look_up(where, bool(uri), suffixes)
        is_local = isinstance(filesystem, pafs.LocalFileSystem)  # elsewhere there are no links, and questions cost time
        refuse_tables_above(filesystem, [start, *(info.path for info in infos if is_local)])
    if not infos:
        is_folder = where.endswith(start) and filesystem.get_file_info(start).type == pafs.FileType.Directory
        said = message("files.empty_folder" if is_folder else "files.nothing", suffixes=", ".join(suffixes))
        raise InputError(said, file=where)
    for info in infos:
        if info.type == pafs.FileType.Unknown:
            raise InputError(message("files.no_file"), file=info.path)
    return [FilePlace(filesystem, info.path, prefix + info.path, info.size, info.mtime_ns) for info in infos]


def _look_up(where: str, uri: bool, suffixes: tuple[str, ...]) -> tuple[str, list[Any], Any]:
    parts = where.split("/")
    magic = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), None)
    if magic is not None and not uri and Path(where).exists():
        magic = None  # a file that is really called that
    root = where if magic is None else "/".join(parts[:magic]) or "/"
    filesystem, start = pafs.FileSystem.from_uri(root) if uri else (pafs.LocalFileSystem(), root)
    if magic is not None:
        found = _matching(filesystem, start, parts[magic:])
        if parts[-1] == "**":  # names no kind of file, like a folder
            found = [info for info in found if info.path.lower().endswith(suffixes)]
        return start, found, filesystem
    info = filesystem.get_file_info(start)
    if info.type in (pafs.FileType.File, pafs.FileType.Unknown):
        return start, [info], filesystem
    if info.type != pafs.FileType.Directory:
        return start, [], filesystem
    if isinstance(filesystem, pafs.LocalFileSystem):
        inside = _matching(filesystem, start, ["**"])
    else:  # one listing, and no links
        depth = len(start.rstrip("/"))
        listed = filesystem.get_file_info(pafs.FileSelector(start, recursive=True))
        refuse_tables(filesystem, listed)
        inside = [i for i in listed if not any(part.startswith((".", "_")) for part in i.path[depth:].split("/"))]
    files = [i for i in inside if i.type == pafs.FileType.File and i.path.lower().endswith(suffixes)]
    return start, sorted(files, key=lambda i: i.path), filesystem


def _matching(filesystem: Any, start: str, pattern: list[str]) -> list[Any]:
    """Files below ``start`` whose path matches, sorted; ``pattern`` has a part for each level, ``**`` for any number.

    Level by level, so that of the paths to one file the shortest is met first. No folder is searched twice for the same
    rest of the pattern: links cannot make the search endless.
    """
    found: dict[Hashable, Any] = {}
    searched: set[tuple[Hashable, int]] = set()
    waiting = deque([(start, tuple(pattern))])
    while waiting:
        folder, parts = waiting.popleft()
        key = _file_itself(filesystem, folder), len(parts)
        if key in searched:
            continue
        searched.add(key)
        head, tail = parts[0], parts[1:]
        if head == "**" and tail:
            waiting.append((folder, tail))
        infos = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        refuse_tables(filesystem, infos)
        for info in sorted(infos, key=lambda info: info.path):
            if info.base_name.startswith((".", "_")) and not head.startswith((".", "_")):
                continue
            is_folder = info.type == pafs.FileType.Directory
            if head == "**" and is_folder:
                waiting.append((info.path, parts))
            elif fnmatchcase(info.base_name, head):
                if tail and is_folder:
                    waiting.append((info.path, tail))
                elif not tail and not is_folder:
                    found.setdefault(_file_itself(filesystem, info.path), info)
    return sorted(found.values(), key=lambda info: info.path)


def _file_itself(filesystem: Any, path: str) -> Hashable:
    """Key that is equal for two paths exactly if they lead to one file or folder."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        with contextlib.suppress(OSError):  # a link to nothing is opened later, and named then
            status = os.stat(path)
            return status.st_dev, status.st_ino
    return filesystem.type_name, path


@contextlib.contextmanager
def reading(file: str, kind: str = "", row: int | None = None) -> Iterator[None]:
    """Turn what Arrow or the system raises into an InputError about ``file``, sound before ``row``."""
    try:
        yield
    except (InputError, UnicodeEncodeError):  # of a name, about which the file says nothing
        raise
    except FileNotFoundError:
        raise InputError(message("files.absent"), file=file) from None
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        short = shortage(error, file)
        if short is not None:
            raise short from error
        if kind == "parquet" and isinstance(error, OSError) and error.errno is None and "ecrypt" in str(error):
            raise InputError(message("files.encrypted"), file=file) from error  # columns are, and the footer is not
        name, said = type(error).__name__, getattr(error, "strerror", None) or str(error)
        reason = said.strip().splitlines()[0][:200].rstrip(".") if said.strip() else name
        if not getattr(error, "strerror", None):
            reason = marked(reason, name)  # Arrow quotes values that it cannot convert
        what = "unreadable_from" if row is not None else "unreadable_as" if kind else "unreadable"
        raise InputError(message(f"files.{what}", kind=kind, reason=reason), file=file, row=row) from error


class DataFile(ABC):
    """One file of one format."""

    kind: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    schema: pa.Schema  #: Columns and types, known once the file is opened.
    n_rows: int | None = None  #: Where the format says it without reading the rows, or once they were counted.
    untyped: frozenset[str] = frozenset()  #: Columns whose type is a guess because no value was seen (text formats).
    seekable = False  #: Reading from a later row does not cost reading the rows before it.
    in_threads = True  #: Whether Arrow may decode columns in threads of its own.

    def __init__(self, place: FilePlace) -> None:
        self.place, self.name = place, place.name
        #: Rows among those read so far that the file does not give as a whole; they are there, with null for what is
        #: lost. Whoever reads takes them out.
        self.flaws: dict[int, InputError] = {}
        self._absent: dict[str, pa.DataType] = {}  # columns that the file lacks, and is read as if it had them, empty
        self._hash: str | None = None  # once it was asked for
        try:
            with reading(self.name, self.kind):
                self._open()
                self.names = list(self.schema.names)  # fails here where a name is not UTF-8
        except InputError as error:
            raise self._explained(error) from error

    def _explained(self, error: InputError) -> InputError:
        """Return a better message than Arrow's for a file that could not be opened, if there is one."""
        if error.__cause__ is None:
            return error
        found = diagnosis(*self._ends_of_file(), self.kind)
        if found is None and isinstance(error.__cause__, UnicodeDecodeError):
            found = message("files.undecoded_name", name=quoted(error.__cause__.object))
        return error if found is None else InputError(found, file=self.name)

    @abstractmethod
    def _open(self) -> None:
        """Read ``schema`` and, if it is cheap, ``n_rows``."""

    @abstractmethod
    def _batches(self, columns: list[str], start: int, size: int) -> Generator[pa.RecordBatch, None, None]:
        """Record batches with at least ``columns`` from row ``start`` on, of any size.

        ``a.b`` is also the field b of a struct column a, of which only the fields named need be read. Columns that the
        file lacks are left out.
        """

    def expect(self, types: Mapping[str, pa.DataType]) -> None:
        """Have columns of these types, too, without a value in any row."""
        self._absent |= {name: kind for name, kind in types.items() if name not in self.names}
        self.schema = pa.schema([*self.schema, *(pa.field(name, types[name]) for name in self._absent)])
        self.names = list(self.schema.names)

    def batches(self, columns: list[str], start: int, size: int) -> Generator[pa.RecordBatch, None, None]:
        """Yield batches of at most ``size`` rows from ``start`` on; InputError if the file is not as it was found."""
        self.require_unchanged()
        empty = [name for name in columns if name in self._absent]
        here, row = [name for name in columns if name not in self._absent], start
        with contextlib.closing(self._batches(here, start, size)) as source:
            while True:
                with reading(self.name, self.kind, row):
                    batch = next(source, None)
                    if batch is None:
                        self.require_unchanged()
                        return
                    batch = self._valid(batch, row)
                for name in empty:
                    batch = batch.append_column(name, pa.nulls(batch.num_rows, self._absent[name]))
                for offset in range(0, batch.num_rows, size):
                    yield batch.slice(offset, size)
                row += batch.num_rows

    def _valid(self, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """The batch, whose lengths, indices and UTF-8 Arrow has taken on trust; flaws in its rows are noted."""
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid:
            batch, found = without_flaws(batch)
            for position, (column, said) in found.items():
                self.note_flaw(row + position, said, column)
        return batch

    def note_flaw(self, row: int, said: Message, column: str | None = None) -> None:
        """Remember that a row cannot be used."""
        self.flaws[row] = InputError(said, file=self.name, row=row, column=column)

    def take_flaws(self, start: int, length: int) -> dict[int, InputError]:
        """Take out the flaws of ``length`` rows from ``start`` on, by position among these."""
        if not self.flaws:
            return {}
        return {i: self.flaws.pop(start + i) for i in range(length) if start + i in self.flaws}

    def _ends_of_file(self) -> tuple[bytes, bytes]:
        with reading(self.name), self.open_input() as file:
            size = file.size()
            return file.read_at(min(END_BYTES, size), 0), file.read_at(min(END_BYTES, size), max(0, size - END_BYTES))

    def require_unchanged(self) -> None:
        """Raise an InputError if a file's size or the time of its last change is not what was found."""
        with reading(self.name):
            info = self.place.filesystem.get_file_info(self.place.path)
            if info.type == pafs.FileType.NotFound:
                raise InputError(message("files.removed"), file=self.name)
            before, now = self.place.modified, info.mtime_ns
            if info.size != self.place.size or (before is not None and now is not None and now != before):
                raise InputError(message("files.changed"), file=self.name)

    def count(self) -> int:
        """Number of rows; where the format does not say it, the file is read through once. O(rows) then."""
        if self.n_rows is None:
            self.n_rows = sum(batch.num_rows for batch in self.batches(self.names[:1], 0, 1 << 16))
        return self.n_rows

    def open_input(self) -> Any:
        """The file for random access."""
        return self.place.filesystem.open_input_file(self.place.path)

    def open_stream(self) -> Any:
        """The bytes in their order, decompressed if the name says so."""
        return self.place.filesystem.open_input_stream(self.place.path)

    def described(self, rows: int | None) -> dict[str, Any]:
        """The file as it is: the last component of its path, ``rows`` as given, size, and :meth:`content_hash`."""
        name = self.place.path.rpartition("/")[2]
        return {"name": name, "rows": rows, "bytes": self.place.size, "sha256": self.content_hash()}

    def content_hash(self) -> str:
        """Return the hash of the bytes (:func:`raydt.sources.files.content.content_hash`), which are read once."""
        self.require_unchanged()
        if self._hash is None:
            with reading(self.name), self.open_input() as file:
                self._hash = content_hash(self.place.size, file.read_at)
        return self._hash


# Parquet files, read by row group: a seek decodes only the row groups from the wanted one on.
#
# Times stored as INT96 are read in microseconds: nanoseconds in 64 bits, Arrow's default, wrap after the year 2262.


class ParquetDataFile(DataFile):
    """One Parquet file. Its footer gives schema, rows and row groups."""

    kind = "parquet"
    suffixes = (".parquet", ".pq", ".parq")
    seekable = True

    def _open(self) -> None:
        with self.open_input() as source, _opened(source) as file:
            self.schema = file.schema_arrow
            meta = file.metadata
            groups = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
        self._ends = np.cumsum(groups, dtype=np.int64)
        self.n_rows = sum(groups)

    def _batches(self, columns: list[str], start: int, size: int) -> Generator[pa.RecordBatch, None, None]:
        row = start
        try:
            for batch in self._read(columns, row, size, len(self._ends)):
                yield batch
                row += batch.num_rows
        except (pa.ArrowException, OSError):  # one row group at a time gives what lies before the damage
            yield from self._read(columns, row, size, 1)

    def _read(self, columns: list[str], start: int, size: int, together: int) -> Iterator[pa.RecordBatch]:
        """Batches from row ``start`` on, none of which crosses from one lot of ``together`` row groups to another."""
        first, skip = _part_of(start, self._ends)
        groups = range(first, len(self._ends))
        lots = [list(groups[begin : begin + together]) for begin in range(0, len(groups), together)]
        with self.open_input() as source, _opened(source) as file:
            for lot in lots:
                batches = file.iter_batches(size, row_groups=lot, columns=columns, use_threads=self.in_threads)
                skip = yield from _without_first(batches, skip)


def _part_of(row: int, ends: Ints) -> tuple[int, int]:
    """Return which part of a file has a row, and its place there; ``ends`` are the rows behind each part."""
    part = int(np.searchsorted(ends, row, side="right"))
    return part, row - (int(ends[part - 1]) if part else 0)


def _without_first(batches: Iterable[pa.RecordBatch], skip: int) -> Generator[pa.RecordBatch, None, int]:
    """Yield the rows of batches but the first ``skip``; return how many are still to be skipped."""
    for batch in batches:
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)
    return skip


def _opened(source: Any) -> pq.ParquetFile:
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True)


# Arrow IPC files and streams (told apart by their first bytes). A file is seekable by batch, a stream is not.

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

    def _batches(self, columns: list[str], start: int, size: int) -> Generator[pa.RecordBatch, None, None]:
        places = {max(map(self.schema.get_field_index, (name, name.partition(".")[0]))) for name in columns}
        fields = sorted(place for place in places if place >= 0)
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=self.in_threads)
        with self.open_input() as source:
            if self._ends is not None:
                reader = pa.ipc.open_file(source, options=options)
                first, skip = _part_of(start, self._ends)
                yield from _without_first(map(reader.get_batch, range(first, len(self._ends))), skip)
            else:
                yield from _without_first(pa.ipc.open_stream(source, options=options), start)


# A table in memory, read as a file is: what a caller passes in place of a path.


class TableInMemory(DataFile):
    """An Arrow table; ``name`` is what messages call it. It has no path, so that nobody can read it again later."""

    kind = "arrow"
    suffixes = ()
    seekable = True

    def __init__(self, table: pa.Table, name: str) -> None:
        self._table = table
        super().__init__(FilePlace(None, name, name, table.nbytes))

    def _open(self) -> None:
        self.schema, self.n_rows = self._table.schema, self._table.num_rows

    def _batches(self, columns: list[str], start: int, size: int) -> Generator[pa.RecordBatch, None, None]:
        here = [name for name in self._table.column_names if name in columns]
        yield from self._table.select(here).slice(start).to_batches(size)

    def _ends_of_file(self) -> tuple[bytes, bytes]:
        return b"", b""

    def require_unchanged(self) -> None:
        """Nobody changes an Arrow table."""

    def content_hash(self) -> str:
        """Return the SHA-256 of the table as an Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._table.schema) as stream:
            stream.write_table(self._table)
        return "sha256:" + hashlib.sha256(sink.getvalue()).hexdigest()
