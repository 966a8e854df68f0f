"""One writer at a time for a local folder.

Invariant: of the processes of one machine that ask, at most one is inside :func:`locked` for a folder. The kernel
releases the lock of a process that dies, however it dies. Folders elsewhere have no lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from raydt.errors import STORAGE_REMEDIES, ConfigError, NotWrittenError
from raydt.folders.folder import Folder

LOCK = ".lock"

#: Paths of the locks that this process holds.
_HELD: set[str] = set()

#: What a filesystem that has no locks says (some network mounts).
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked(folder: Folder) -> Iterator[None]:
    """Be the only writer of a folder, which is made if it is not there, while the block runs.

    Raises
    ------
    ConfigError
        Another process is; it is named.
    NotWrittenError
        The folder or the lock in it cannot be made.
    """
    if not folder.is_local:
        yield
        return
    made = not folder.has("")
    path = folder.path(LOCK)
    try:
        with _writing(folder):
            folder.make()
            descriptor = _acquired(folder)
        _HELD.add(path)
        try:
            yield
        finally:
            with suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):  # else it was removed, and it is another's
                    os.unlink(path)  # before it is released: whoever waits finds that its file has no name any more
            _HELD.discard(path)
            os.close(descriptor)
    finally:
        if made:
            with suppress(OSError):
                os.rmdir(folder.root)  # if nothing was put there


@contextmanager
def _writing(folder: Folder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = STORAGE_REMEDIES.get(error.errno or 0)
        raise NotWrittenError(f"cannot be written: {error}", file=folder.location, remedy=remedy) from error


def locked_here(folder: Folder) -> bool:
    """Whether it is this process that is inside :func:`locked` for a folder."""
    return folder.path(LOCK) in _HELD


def _acquired(folder: Folder) -> int:
    """Descriptor of the locked file, which holds our process id."""
    path = folder.path(LOCK)
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)  # not handed on to child processes
        except FileNotFoundError:  # whoever made the folder has just removed it
            folder.make()
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip()
            os.close(descriptor)
            who = f"process {holder}" if holder else "another process"
            raise ConfigError(
                f"{folder.location}: {who} is writing here. Wait until it has ended, or end it (it saves its state on "
                "SIGTERM)"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise
        try:
            same = os.path.samestat(os.fstat(descriptor), os.stat(path))
        except FileNotFoundError:
            same = False
        if same:
            with suppress(OSError):  # on a full disk nobody learns who holds the lock, but it is held
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()} on {os.uname().nodename}\n".encode(), 0)
            return descriptor
        os.close(descriptor)  # its holder ended and removed it between our two steps
