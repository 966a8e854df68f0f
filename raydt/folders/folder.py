"""A folder on any filesystem that Arrow knows, whose files are either absent or complete.

Invariant: a file gets its name only after its last byte; on a local filesystem its bytes are flushed before the move,
and the folder that holds the name after it. So what :meth:`Folder.publish` has returned from is there after a power
failure too, and a later file never without the earlier ones. Not here: what the files mean
(``raydt.folders.arrays``).
"""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import posixpath
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from filelock import FileLock, Timeout
from pyarrow import fs

from raydt.errors import STORAGE_REMEDIES, ConfigError, InputError, NotWrittenError, UnwritableError
from raydt.messages import message

Self = TypeVar("Self", bound="Folder")

#: How a file is called until it is complete.
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{32}")

#: What some filesystems (network mounts, folders one may enter but not list) answer to the wish to flush a folder.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


def final_name(name: str) -> str:
    """Return the final name of a file that :meth:`Folder.publish` has not completed; any other name as it is."""
    unfinished = _UNFINISHED.fullmatch(name)
    return name if unfinished is None else unfinished[1]


class Folder:
    """A folder, which need not exist; names of entries may hold slashes.

    ``location`` is a path or a URI that names its filesystem (``file``, ``s3``, ``gs``, ``abfs``, ``hdfs``, ...);
    InputError if it cannot be opened. Every operation passes through one of the methods that begin with an underscore;
    tests let those fail.
    """

    def __init__(self, location: str | os.PathLike[str], filesystem: fs.FileSystem | None = None) -> None:
        text = os.fspath(location)
        self.filesystem, root = filesystem or fs.LocalFileSystem(), text
        if filesystem is None and "://" in text:
            try:
                self.filesystem, root = fs.FileSystem.from_uri(text)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise InputError(message("models.uri", reason=str(error)), file=text[:300]) from error
        self.is_local = isinstance(self.filesystem, fs.LocalFileSystem)
        self.root: str = os.path.abspath(root) if self.is_local else root.rstrip("/")
        self.location: str = self.root if self.is_local else text.rstrip("/")
        self._opened = self.location  # what names the filesystem, also of a folder in this one

    @classmethod
    def at(cls: type[Self], address: Sequence[str]) -> Self:
        """Return the folder of an :attr:`address`, in another process too."""
        folder = cls(address[0])
        folder.root, folder.location = address[1:]
        return folder

    @property
    def address(self) -> tuple[str, str, str]:
        """Path or URI of the folder that was opened first, root and location: :meth:`at` opens the same folder by them.

        The location alone does not do: if a URI ends with a query, that of a folder inside is no URI.
        """
        return self._opened, self.root, self.location

    def inside(self: Self, name: str) -> Self:
        """A folder in this one."""
        folder = copy.copy(self)
        folder.root, folder.location = self.path(name), f"{self.location}/{name}"
        return folder

    def path(self, name: str) -> str:
        """Path of an entry, for :attr:`filesystem`; ``..`` is resolved, since object stores do not."""
        path = posixpath.join(self.root, name)
        return posixpath.normpath(path) if ".." in name else path

    def has(self, name: str) -> bool:
        """Return True if an entry exists."""
        return bool(self._look(self.path(name)).type != fs.FileType.NotFound)

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if there is no such file."""
        info = self._look(self.path(name))
        return int(info.size) if info.type == fs.FileType.File else None

    def names(self, name: str = "") -> list[str]:
        """Entries of the folder, or of one in it, sorted; unfinished files too, none if the folder does not exist."""
        return sorted(entry for entry, _ in self._list(self.path(name)))

    def files(self, name: str = "") -> Iterator[str]:
        """Names of all files in the folder, or in one in it, however deep; a link is a file, and nobody follows it."""
        for entry, is_folder in self._list(self.path(name)):
            inner = posixpath.join(name, entry)
            if is_folder:
                yield from self.files(inner)
            else:
                yield inner

    def is_link(self, name: str) -> bool:
        """Return True if an entry is a symbolic link."""
        return self.is_local and os.path.islink(self.path(name))

    def read(self, name: str) -> bytes:
        """A file's content."""
        with self._open_to_read(self.path(name)) as stream:
            return bytes(stream.read())

    def make(self) -> None:
        """Make the folder and its parents, if they are not there."""
        self._make_with_parents(self.root)

    def publish(self, name: str, data: bytes | memoryview) -> None:
        """Write or replace a file at once, with its parents; after OSError nothing temporary is left."""
        final = self.path(name)
        parent, base = posixpath.split(final)
        temporary = posixpath.join(parent, f".{base}.{uuid.uuid4().hex}")
        self._make_with_parents(parent)
        try:
            with self._open_to_write(temporary) as stream:
                stream.write(data)
            self._put(temporary, final)
        except BaseException:
            with contextlib.suppress(OSError):
                self._delete_file(temporary)
            raise

    def move(self, old: str, new: str) -> None:
        """Give a file another name, in place of one that has it; its bytes are flushed first, its name after."""
        self._put(self.path(old), self.path(new))

    def delete(self, name: str, *, lasting: bool = False) -> None:
        """Remove a file, if it is there; ``lasting``: so that it is gone after a power failure too."""
        with contextlib.suppress(FileNotFoundError):
            self._delete_file(self.path(name))
            if lasting and self.is_local:
                self._flush_folder(posixpath.dirname(self.path(name)))

    def discard(self, name: str = "") -> None:
        """Remove the folder, or one in it, if it is there and nothing is in it."""
        with contextlib.suppress(FileNotFoundError):
            if not self._list(self.path(name)):
                self._delete_folder(self.path(name))

    def _put(self, old: str, new: str) -> None:
        if self.is_local:
            self._flush(old)
        self._rename(old, new)
        if self.is_local:
            self._flush_folder(posixpath.dirname(new))

    def _make_with_parents(self, path: str) -> None:
        if self._look(path).type == fs.FileType.Directory:
            return
        missing, above = [path], posixpath.dirname(path)
        while self.is_local and above != posixpath.dirname(above) and self._look(above).type == fs.FileType.NotFound:
            missing.append(above)
            above = posixpath.dirname(above)
        self._make(path)
        if self.is_local:
            for made in missing:
                self._flush_folder(posixpath.dirname(made))

    def _look(self, path: str) -> fs.FileInfo:
        return self.filesystem.get_file_info(path)

    def _list(self, path: str) -> list[tuple[str, bool]]:
        """Entries of a folder, each with whether it is a folder and no link; none if there is no folder."""
        if not self.is_local:
            found = self.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
            return [(info.base_name, info.type == fs.FileType.Directory) for info in found]
        try:
            with os.scandir(path) as entries:  # Arrow takes names in UTF-8 only
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except FileNotFoundError:  # though it may be there by now: others make and remove it
            return []
        except NotADirectoryError:
            if os.path.exists(path):
                raise
            return []

    def _open_to_read(self, path: str) -> Any:
        return self.filesystem.open_input_stream(path)

    def _open_to_write(self, path: str) -> Any:
        return self.filesystem.open_output_stream(path)

    def _make(self, path: str) -> None:
        self.filesystem.create_dir(path, recursive=True)

    def _rename(self, old: str, new: str) -> None:
        self.filesystem.move(old, new)

    def _delete_file(self, path: str) -> None:
        if self.is_local:
            os.unlink(path)  # Arrow takes no link to a folder
        else:
            self.filesystem.delete_file(path)

    def _delete_folder(self, path: str) -> None:
        if not self.is_local:
            self.filesystem.delete_dir(path)
            return
        with contextlib.suppress(OSError):  # something has come into it since
            os.rmdir(path)

    def _flush(self, path: str) -> None:
        """Have the operating system write a file to the disk now."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _flush_folder(self, path: str) -> None:
        """Have the operating system write the names in a folder to the disk now, where that can be asked for."""
        try:
            self._flush(path)
        except OSError as error:
            if error.errno not in _CANNOT_FLUSH:
                raise


# One writer at a time for a local folder, or for a file.
#
# Invariant: of the processes of one machine that ask, at most one is inside :func:`locked` for a place. The kernel
# releases the lock of a process that dies, however it dies. Folders elsewhere have no lock.

LOCK = ".lock"

#: Of the locks that this process holds, the files by their paths.
_HELD: dict[str, os.stat_result] = {}

#: Errors of a filesystem that has no locks (some network mounts).
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked(folder: Folder, name: str = "", *, needed: bool = True) -> Iterator[None]:
    """Be the only writer of a folder, made if needed, or of the file ``name`` in it.

    A block that only reads (not ``needed``) runs without a lock where none can be made. ConfigError names another
    process; NotWrittenError or UnwritableError if there can be no lock.
    """
    if not folder.is_local:
        yield
        return
    root = Path(folder.root)
    made = [above for above in (root, *root.parents) if not os.path.exists(above)]
    path = root / (f".{name}{LOCK}" if name else LOCK)
    lock = FileLock(path, timeout=0.2, mode=0o644)  # long enough to meet a holder who ends and removes the file
    try:
        _acquire(lock, path, f"{folder.location}/{name}".rstrip("/"), folder, needed=needed)
        own = path.stat() if path.exists() else None  # of the lock that is held, as nobody else removes it
        if own is not None:
            _HELD[str(path)] = own
        try:
            yield
        finally:
            with suppress(OSError):
                if own is not None and os.path.samestat(own, os.stat(path)):  # else it is another's
                    path.unlink()  # before it is released: whoever opened it finds that it has no name any more
            _HELD.pop(str(path), None)
            lock.release()
    finally:
        with suppress(OSError):
            for above in made:
                above.rmdir()  # if nothing was put there


def locked_here(folder: Folder) -> bool:
    """Return True if it is this process that is inside :func:`locked` for a folder."""
    return folder.path(LOCK) in _HELD


def taken_away(folder: Folder) -> bool:
    """Return True if a folder for which this process is inside :func:`locked` was removed since, or replaced."""
    path = folder.path(LOCK)
    try:
        return path in _HELD and not os.path.samestat(_HELD[path], os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return True


def _acquire(lock: FileLock, path: Path, place: str, folder: Folder, *, needed: bool) -> None:
    try:
        for chance in range(3):
            try:
                folder.make()
                lock.acquire()
                break
            except FileNotFoundError:  # one that has failed here has removed the folder meanwhile
                if chance == 2:
                    raise
    except Timeout:
        holder = ""
        with suppress(OSError):  # it has ended meanwhile
            holder = path.read_text(encoding="utf-8", errors="replace").strip()
        who = f"process {holder}" if holder else "another process"
        raise ConfigError(message("models.other_writer", place=place, writer=who)) from None
    except OSError as error:
        if needed and error.errno not in NO_LOCKS:
            remedy = STORAGE_REMEDIES.get(error.errno or 0)
            may_not = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
            kind = UnwritableError if may_not else NotWrittenError
            said = message("machine.not_written", reason=error.strerror or str(error))
            raise kind(said, file=place, remedy=remedy) from error
    with suppress(OSError):  # on a full or read-only disk nobody learns who holds the lock
        path.write_text(f"{os.getpid()} on {os.uname().nodename}\n", encoding="utf-8")
