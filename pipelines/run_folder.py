"""The folder of one run, on any filesystem that ``pyarrow.fs`` knows.

Invariant: a file is either absent or complete. Text is written beside its place and moved there, parts of tables
are moved there when they are closed, and the folders of model and state get their manifest last
(``raydt.persistence``). Only the log grows in place.
"""

from __future__ import annotations

import copy
import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
from pyarrow import fs as pafs

from raydt.errors import ConfigError, InputError


class RunFolder:
    """A run folder that exists.

    Parameters
    ----------
    location : str or Path
        Local path or URI (``s3://``, ``gs://``, ``hdfs://``, ``file://``).

    Attributes
    ----------
    location : str
        Absolute path, or the URI.
    """

    def __init__(self, location: str | Path) -> None:
        text = str(location)
        try:
            if "://" in text:
                self.filesystem, self.root = pafs.FileSystem.from_uri(text)
            else:
                self.filesystem, self.root = pafs.LocalFileSystem(), os.path.abspath(text)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ConfigError(f"{text[:300]}: not a path or URI that can be opened: {error}") from error
        self._made = False
        self.is_local = isinstance(self.filesystem, pafs.LocalFileSystem)
        self.location = self.root if self.is_local else text.rstrip("/")

    @classmethod
    def create(cls, location: str | Path, *, overwrite: bool = False) -> RunFolder:
        """Make a new run folder.

        Parameters
        ----------
        location : str or Path
        overwrite : bool
            Remove what is there first, if it is a run; anything else is never removed.

        Raises
        ------
        ConfigError
            The folder holds something already, is a file, or cannot be written.
        """
        folder = cls(location)
        place = "--out " + folder.location.replace("\0", "\\0")[:300]
        try:
            found = folder.filesystem.get_file_info(folder.root).type
        except (OSError, ValueError) as error:
            raise ConfigError(f"{place}: cannot be looked at: {getattr(error, 'strerror', None) or error}") from error
        if found == pafs.FileType.File:
            raise ConfigError(f"{place}: is a file. Choose a new or empty folder")
        if not folder.is_empty():
            run = folder.run_status()
            if run is None:
                raise ConfigError(f"{place}: the folder is not empty, and holds no run. Choose a new or empty folder")
            if not overwrite:
                raise ConfigError(
                    f"{place}: the folder is not empty: it holds a run ({run}). "
                    "Choose a new or empty folder, or replace the run with --overwrite"
                )
        folder._made = not folder.has("")
        try:
            if not folder.is_empty():
                folder.filesystem.delete_dir_contents(folder.root)
            folder.filesystem.create_dir(folder.root, recursive=True)
        except OSError as error:
            raise ConfigError(f"{place}: cannot be created: {error.strerror or error}") from error
        if folder.is_local and not os.access(folder.root, os.W_OK | os.X_OK):
            raise ConfigError(f"{place}: cannot be written. Choose a folder of your own")
        return folder

    def is_empty(self) -> bool:
        """Whether nothing is in the folder, or it does not exist."""
        return not self.filesystem.get_file_info(pafs.FileSelector(self.root, allow_not_found=True))

    def run_status(self) -> str | None:
        """How the run or sweep that lies here has ended; ``unfinished`` without a summary, None if none lies here."""
        ending = next((name for name in ("summary.json", "sweep.json") if self.has(name)), "")
        if not self.has("config.yaml") or not (ending or self.has("log.jsonl")):
            return None
        try:
            return str(json.loads(self.read_text(ending))["status"]) if ending else "unfinished"
        except (OSError, ValueError, KeyError, TypeError):
            return "unfinished"

    def discard_if_empty(self) -> None:
        """Remove the folder if :meth:`create` made it and nothing is in it."""
        if self._made and self.is_empty():
            self.filesystem.delete_dir(self.root)

    @classmethod
    def existing(cls, location: str | Path) -> RunFolder:
        """Open the folder of a run that has written its summary.

        Raises
        ------
        InputError
            There is no summary.
        """
        folder = cls(location)
        if not folder.has("summary.json"):
            raise InputError(
                "no finished run is here",
                file=f"{folder.location}/summary.json",
                remedy="Give the folder that replay wrote",
            )
        return folder

    def inside(self, name: str) -> RunFolder:
        """A folder in this one."""
        folder = copy.copy(self)
        folder.root, folder.location = self.path(name), f"{self.location}/{name}"
        return folder

    def path(self, name: str) -> str:
        """Path of an entry, for :attr:`filesystem`."""
        return f"{self.root}/{name}"

    def has(self, name: str) -> bool:
        """Whether an entry exists."""
        return bool(self.filesystem.get_file_info(self.path(name)).type != pafs.FileType.NotFound)

    def write_text(self, name: str, text: str) -> None:
        """Write or replace a text file at once."""
        staged = self.path(f".{name}.new")
        with self.filesystem.open_output_stream(staged) as stream:
            stream.write(text.encode())
        self.filesystem.move(staged, self.path(name))

    def read_text(self, name: str) -> str:
        """A text file's content."""
        with self.filesystem.open_input_stream(self.path(name)) as stream:
            return bytes(stream.read()).decode()

    def open_text(self, name: str) -> io.TextIOWrapper:
        """A text file to append lines to."""
        return io.TextIOWrapper(self.filesystem.open_output_stream(self.path(name)), encoding="utf-8")

    def receive(self, file: Path, name: str) -> None:
        """Copy a local file to the entry ``name``."""
        pafs.copy_files(str(file), self.path(name), destination_filesystem=self.filesystem)

    @contextmanager
    def local(self) -> Iterator[Path]:
        """The folder as a local path: itself, or a temporary copy of a remote one."""
        if self.is_local:
            yield Path(self.root)
            return
        with tempfile.TemporaryDirectory(prefix="raydt-") as copied:
            pafs.copy_files(self.root, copied, source_filesystem=self.filesystem)
            yield Path(copied)


def default_location(name: str) -> Path:
    """``runs/<UTC>-<name>`` under the working directory."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return Path("runs") / f"{stamp}-{name}"
