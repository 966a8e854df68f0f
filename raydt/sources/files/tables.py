"""Table formats whose folders hold more than the table's rows: Delta, Iceberg, Hudi, Paimon.

Such a table keeps the files of deleted and replaced rows, and a log that says which files, and which of their rows, are
live. The files alone would bring deleted rows back.

Invariant: no file in such a table is read, by whatever path, pattern or link it is named.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from raydt.errors import InputError
from raydt.messages import message


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
