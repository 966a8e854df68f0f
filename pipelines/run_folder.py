"""The folder of one run, on any filesystem that ``pyarrow.fs`` knows.

Invariant: a file is either absent or complete (``raydt.folders.folder``). Parts of tables are moved to their place
when they are closed, and the folders of model and state get their manifest last (``raydt.folders.arrays``). Only the
log grows in place.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs as pafs

from raydt.errors import ConfigError, InputError, ModelFileError, RaydtError
from raydt.folders.arrays import is_folder_file
from raydt.folders.checkpoint import is_checkpoint_file, is_checkpoint_folder
from raydt.folders.folder import LOCK, Folder, final_name, locked, locked_here, taken_away
from raydt.messages import Message, message

# Names of the files in a run folder: code that removes or replaces files there touches no others.
#
# A file that a job writes under a name of its own has to be listed here; every net of purges finds one that is not.

PURGES = "purge.json"
#: The chain of receipts of requests that came through the source, and the key of the ids in it.
RECEIPTS, RECEIPT_KEY = "receipts.jsonl", "receipts.key"

#: Of a run or a sweep, and its folders.
FILES = frozenset(
    {
        LOCK,
        PURGES,
        RECEIPTS,
        RECEIPT_KEY,
        "config.yaml",
        "log.jsonl",
        "summary.json",
        "report.html",
        "plans.jsonl",
        "status.json",
        f".report.html{LOCK}",
    }
    | {"sweep.json", "sweep.html", "sweep.parquet", "curves.parquet"}
)
#: What there can be of a run before anything that is worth keeping.
BEGINNING = ("config.yaml", "log.jsonl", "plans.jsonl", "status.json", RECEIPTS, RECEIPT_KEY)
TABLES = ("metrics", "events", "predictions", "quarantine", "alarms", "keys")
#: Column of the latest event time, in metrics and alarms of a stream that has times.
TIME = "time"

MODEL, STATES = "model", "checkpoints"
#: Of a run that is kept in chapters, each of which is the folder of a run, too; and how it names them.
CHAPTERS = "chapters"
CHAPTER = re.compile(rf"{CHAPTERS}/(\d{{6,}})")

#: A part of a table, hidden or not; and several while they become one.
PART = re.compile(r"\.?part-(\d{5,})\.parquet")
MERGING = ".merging.parquet"


def is_of_run(path: str) -> bool:
    """Return True if a run writes files of this name, complete or not; checkpoints elsewhere as in ``checkpoints``."""
    folder, _, name = _in_chapter(path).partition("/")
    if not name:
        return final_name(folder) in FILES
    if folder in TABLES:
        return name == MERGING or PART.fullmatch(name) is not None
    if folder == MODEL:
        return is_folder_file(name)
    return folder == STATES and (name == LOCK or is_checkpoint_file(name))


def is_named_by_run(path: str) -> bool:
    """Return True if a run writes files or folders of this name."""
    if path == CHAPTERS or CHAPTER.fullmatch(path):
        return True
    path = _in_chapter(path)
    folder, _, name = path.partition("/")
    of_folder = path in (*TABLES, MODEL, STATES) or (folder == STATES and is_checkpoint_folder(name))
    return of_folder or is_of_run(path)


def _in_chapter(path: str) -> str:
    """Return the name of a file within its chapter, if it is in one."""
    found = CHAPTER.match(path)
    return path[found.end() + 1 :] if found and path[found.end() : found.end() + 1] == "/" else path


def is_of_state(name: str) -> bool:
    """Return True if a state outside a run has files of this name, complete or not."""
    return final_name(name) in (LOCK, PURGES) or is_folder_file(name)


def is_unfinished(name: str) -> bool:
    """Return True if a file has this name only until it is complete; a table's part may be hidden for longer."""
    base = name.rpartition("/")[2]
    return base.startswith(".") and base != LOCK


class RunFolder(Folder):
    """A run folder: a path or a URI (``s3://``, ``gs://``, ``hdfs://``); ConfigError if it cannot be opened."""

    _created = _made = False

    def __init__(self, location: str | Path) -> None:
        try:
            super().__init__(location)
        except InputError as error:
            raise ConfigError((error.message or Message(error.problem)).at(str(location)[:300])) from error

    @classmethod
    def create(cls, location: str | Path, *, overwrite: bool = False) -> RunFolder:
        """Make a new run folder, or clear that of a run to ``overwrite``; ConfigError if it holds anything else."""
        folder = cls(location)
        place = "--out " + folder.location.replace("\0", "\\0")[:300]
        try:
            found = folder.filesystem.get_file_info(folder.root).type
        except (OSError, ValueError) as error:
            said = message("runs.inaccessible", reason=getattr(error, "strerror", None) or str(error))
            raise ConfigError(said.at(place)) from error
        if found == pafs.FileType.File:
            raise ConfigError(message("runs.file").at(place))
        if not folder.is_empty():
            run = folder.run_status()
            if run is None:
                raise ConfigError(message("runs.other_files").at(place))
            if not overwrite:
                raise ConfigError(message("runs.other_run", status=run).at(place))
        folder._created, folder._made = True, not folder.has("")
        try:
            if overwrite and not folder.is_empty():  # else what has come meanwhile is another run's
                with locked(folder):
                    folder.clear()
            folder.filesystem.create_dir(folder.root, recursive=True)
        except OSError as error:
            raise ConfigError(message("runs.not_created", reason=error.strerror or str(error)).at(place)) from error
        if folder.is_local and not os.access(folder.root, os.W_OK | os.X_OK):
            raise ConfigError(message("runs.not_writable").at(place))
        return folder

    def is_empty(self) -> bool:
        """Return True if nothing is in the folder but a lock, what :meth:`sweep` removes, or the trace of no run."""
        return {*self.names()} <= {LOCK, *self._unfinished(), *self._never_begun()}

    def require_untouched(self) -> None:
        """Refuse (ConfigError) a folder that another run has filled since :meth:`create`; for the writer of the run."""
        begun = {path for path in self.files() if is_of_run(path)} - {LOCK, *self._unfinished(), *self._never_begun()}
        if begun:
            raise ConfigError(message("runs.other_writer").at(f"--out {self.location}"))

    def sweep(self) -> None:
        """Remove what a process that died while it wrote a file has left. Only for the one who writes here."""
        for name in self._unfinished():
            self.delete(name)

    def _never_begun(self) -> tuple[str, ...]:
        """Return the key and the empty chain of a process that died before it wrote the config."""
        return () if self.has("config.yaml") or self.size(RECEIPTS) else (RECEIPT_KEY, RECEIPTS)

    def _unfinished(self) -> list[str]:
        return [name for name in self.names() if is_of_run(name) and is_unfinished(name)]

    def clear(self, is_ours: Callable[[str], bool] = is_named_by_run) -> None:
        """Remove all files of a run, or those that are ours, but the lock; and the folders that are empty then."""
        removed = [path for path in self.files() if path != LOCK and is_ours(path)]
        for path in removed:
            self.delete(path)
        above = {str(folder) for path in removed for folder in PurePosixPath(path).parents}
        for folder in sorted(above - {"."}, reverse=True):
            self.discard(folder)

    def discard_table(self, name: str) -> None:
        """Remove the parts of a table, and its folder, if nothing else is in it."""
        for path in filter(is_of_run, list(self.files(name))):
            self.delete(path)
        self.discard(name)

    def run_status(self) -> str | None:
        """Return the status of the run or sweep here; ``unfinished`` without a summary, None if there is none."""
        if self.chapters():
            return self.newest().run_status() or "unfinished"
        ending = next((name for name in ("summary.json", "sweep.json") if self.has(name)), "")
        if not self.has("config.yaml") or not (ending or self.has("log.jsonl")):
            return None
        try:
            return str(json.loads(self.read_text(ending))["status"]) if ending else "unfinished"
        except (OSError, ValueError, KeyError, TypeError):
            return "unfinished"

    def discard_if_empty(self) -> None:
        """Remove the folder if :meth:`create` made it and nothing at all is in it: a lock is another process's."""
        if not self._made:
            return
        self.discard()

    def discard_beginning(self) -> None:
        """Remove config, log and then the empty folder, if a job has written nothing else there so far."""
        for chapter in self.chapters()[:1]:
            chapter._made = True
            chapter.discard_beginning()
            self.discard(CHAPTERS)
        found = set(self.names())
        if self._created and found <= {*BEGINNING, LOCK} and (LOCK not in found or locked_here(self)):
            for name in (*BEGINNING, LOCK):
                self.delete(name)
            self.discard_if_empty()

    def chapters(self) -> list[RunFolder]:
        """Return the folders of the chapters of a run that is kept in chapters, ascending; else none."""
        numbers = [int(found[1]) for name in self.names(CHAPTERS) if (found := CHAPTER.fullmatch(f"{CHAPTERS}/{name}"))]
        folders = [self.chapter(number) for number in sorted(numbers)]
        return [folder for folder in folders if folder.has("config.yaml")]

    def chapter(self, number: int) -> RunFolder:
        """Return the folder of a chapter, counted from 1, whether it is there or not."""
        return self.inside(f"{CHAPTERS}/{number:06d}")

    def newest(self) -> RunFolder:
        """Return the newest chapter of a run that is kept in chapters; of another the run itself."""
        return next(reversed(self.chapters()), self)

    @classmethod
    def existing(cls, location: str | Path) -> RunFolder:
        """Open the folder of a run, or the newest of its chapters, that has a summary; InputError if there is none."""
        folder = cls(location)
        folder = next((one for one in reversed(folder.chapters()) if one.has("summary.json")), folder.newest())
        if not folder.has("summary.json") and folder.has("config.yaml"):
            raise InputError(message("runs.not_ended", run=shlex.quote(folder.location)), file=folder.location)
        if not folder.has("summary.json"):
            raise InputError(message("runs.no_summary"), file=f"{folder.location}/summary.json")
        return folder

    @classmethod
    def near(cls, place: str | Path) -> RunFolder | None:
        """Return the run that a place is, or in which a model or state lies there; None if there is none."""
        folder = cls(place)
        above = folder.location.rpartition("/")[0]
        places = [folder, *(cls(one) for one in (above, above.rpartition("/")[0]) if one)]
        return next((one for one in places if one.has("config.yaml")), None)

    def require_own(self) -> None:
        """Refuse (RaydtError) to write, inside :func:`locked`, where the folder was removed meanwhile."""
        if taken_away(self):
            raise RaydtError(message("runs.removed").at(self.location))

    def require_saved(self) -> None:
        """Refuse (ModelFileError) a run that has saved neither model nor last state, so that nothing stands for it."""
        if not self.has("config.yaml") or self.has("sweep.json"):
            return
        try:
            summary = json.loads(self.read_text("summary.json")) if self.has("summary.json") else {}
        except (OSError, ValueError):
            return
        if not isinstance(summary, dict) or summary.get("model_digest") is not None:
            return
        status = summary.get("status")
        name = status if status in ("interrupted", "failed") else "unsaved"
        error = summary.get("error") or "the summary names no error"
        raise ModelFileError(message(f"runs.{name}", error=error, run=shlex.quote(self.location)), file=self.location)

    def write_text(self, name: str, text: str) -> None:
        """Write or replace a text file at once."""
        self.publish(name, text.encode())

    def read_text(self, name: str) -> str:
        """A text file's content."""
        return self.read(name).decode()

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


def read_table(folder: RunFolder, name: str) -> Iterator[pa.Table]:
    """Yield the complete parts of a table, in order; none if there is no such table."""
    import pyarrow.parquet as pq

    for part in folder.names(name):
        if PART.fullmatch(part) and not is_unfinished(part):
            # Not pq.read_table, which imports pandas.
            yield pq.ParquetFile(folder.path(f"{name}/{part}"), filesystem=folder.filesystem).read()


@contextmanager
def fitting(place: str) -> Iterator[None]:
    """Context in which values that are missing, or of another kind, are damage of the files at ``place``.

    Only around what reads, compares or shows values of a file: there a value of another kind can be met anywhere. An
    attribute that an object of ours lacks is our own fault, and stays what it is.
    """
    try:
        yield
    except RaydtError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, AttributeError) and type(error.obj).__module__.startswith(
            ("raydt", "actors", "pipelines")
        ):
            raise
        reason = f"{error} is missing" if isinstance(error, KeyError) else "; ".join(str(error).splitlines()[:3])
        raise ModelFileError(message("runs.unfit", reason=reason), file=place) from error


def default_location(name: str) -> Path:
    """``runs/<UTC>-<name>`` under the working directory."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return Path("runs") / f"{stamp}-{name}"
