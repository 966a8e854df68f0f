"""One writer at a time for a local folder, or for a file.

Invariant: of the processes of one machine that ask, at most one is inside :func:`locked` for a place. The kernel
releases the lock of a process that dies, however it dies. Folders elsewhere have no lock.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from raydt.errors import STORAGE_REMEDIES, ConfigError, NotWrittenError, UnwritableError
from raydt.folders.folder import Folder
from raydt.messages import message

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
    """Whether it is this process that is inside :func:`locked` for a folder."""
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
