"""Faults of the storage, checkpoints that are waited for, and runs that are cut."""

from __future__ import annotations

import contextlib
import errno
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

import pytest

import pipelines.running.requests
from pipelines import replay
from pipelines.running.checkpoint import CheckpointContent, Checkpointer
from raydt.exchange.messages import injected
from raydt.folders.folder import Folder

# -- storage faults --------------------------------------------------------------------------------------------------
# Storage whose n-th operation fails, or where the process dies, or the power fails, at the n-th operation.
#
# All of ``raydt.folders.folder.Folder`` passes through its underscored methods; here they are counted and made to
# fail. What a disk holds after a power failure is kept as a model: a file's bytes are sure to be there only after
# they have been flushed, a name (made, moved, removed) only after its folder has been. What was not flushed may be
# there or not, in any combination, and a file's bytes may be missing, cut short, or zeros of the right length.


class Fault(Enum):
    """What happens at the n-th operation."""

    ERROR = "it fails with EIO, once; a write has then written half"
    LATE_ERROR = "the n-th that changes anything is carried out, and fails with EIO all the same, once"
    FULL = "the disk is full: the n-th that needs space, and every later one, fails with ENOSPC"
    DEATH = "the process dies before the n-th that changes anything; one of many bytes is half done"


class DeathError(BaseException):
    """The process is dead: nothing it does has any effect."""


class FaultyStorage:
    """Counts the operations of every :class:`Folder` while it is entered, and lets the ``at``-th one fail.

    Parameters
    ----------
    fault : Fault
    at : int
        Counted from 1; 0 lets none fail.
    disk : Path, optional
        A local folder whose contents after a power failure are wanted; nothing is then really flushed.

    Attributes
    ----------
    operations : list of str
        Kind and path of every operation so far that counts.
    """

    def __init__(self, fault: Fault = Fault.ERROR, at: int = 0, disk: Path | None = None) -> None:
        self.fault, self.at = fault, at
        self.operations: list[str] = []
        self.disk = None if disk is None else Disk(disk)
        self._patches = [mock.patch.object(Folder, name, change) for name, change in self._changes().items()]

    def __enter__(self) -> FaultyStorage:
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for patch in self._patches:
            patch.stop()

    @property
    def failed(self) -> bool:
        """Whether the operation that fails has been reached."""
        return 0 < self.at <= len(self.operations)

    def operate(
        self,
        kind: str,
        path: str,
        act: Callable[[], Any],
        half: Callable[[], Any] = lambda: None,
        *,
        takes_space: bool = False,
        changes: bool = True,
    ) -> Any:
        """Carry out one operation, or fail; ``half`` is what is done of it then."""
        counts = {Fault.ERROR: True, Fault.FULL: takes_space}.get(self.fault, changes)
        if not counts and not (self.fault is Fault.DEATH and self.failed):
            return act()  # the same as at the next one that counts
        self.operations.append(f"{kind} {path}")
        number = len(self.operations)
        if not self.at or number < self.at:
            return act()
        if self.fault is Fault.DEATH:
            if number == self.at:
                half()
            raise DeathError
        if self.fault is Fault.FULL:
            half()
            raise OSError(errno.ENOSPC, "No space left on device")
        if number > self.at:
            return act()
        if self.fault is Fault.LATE_ERROR:
            act()
        else:
            half()
        raise OSError(errno.EIO, "Input/output error")

    def _changes(self) -> dict[str, Callable[..., Any]]:
        def simple(name: str, **options: Any) -> Callable[..., Any]:
            original, note = getattr(Folder, name), getattr(self.disk, name, None)

            def changed(folder: Folder, *paths: str) -> Any:
                def act() -> Any:
                    result = original(folder, *paths)
                    if note:
                        note(*paths)
                    return result

                return self.operate(name, " ".join(paths), act, **options)

            return changed

        def flush(name: str) -> Callable[..., Any]:
            original, note = getattr(Folder, name), getattr(self.disk, name, None)

            def changed(folder: Folder, path: str) -> Any:
                return self.operate(name, path, lambda: note(path) if note else original(folder, path))

            return changed

        open_to_write, open_to_read, make = (
            getattr(Folder, name) for name in ("_open_to_write", "_open_to_read", "_make")
        )

        def opened_to_write(folder: Folder, path: str) -> Any:
            def act() -> Any:
                stream = open_to_write(folder, path)
                if self.disk:
                    self.disk.opened(path)
                return stream

            return _Output(self, self.operate("open", path, act, takes_space=True), path)

        def opened_to_read(folder: Folder, path: str) -> Any:
            stream = self.operate("open to read", path, lambda: open_to_read(folder, path), changes=False)
            return _Input(self, stream, path)

        def made(folder: Folder, path: str) -> Any:
            def act() -> None:
                if self.disk:
                    self.disk.will_make(path)
                make(folder, path)

            return self.operate("make", path, act, takes_space=True)

        return {
            **{name: simple(name, changes=False) for name in ("_look", "_list")},
            **{name: simple(name) for name in ("_rename", "_delete_file", "_delete_folder")},
            **{name: flush(name) for name in ("_flush", "_flush_folder")},
            "_open_to_write": opened_to_write,
            "_open_to_read": opened_to_read,
            "_make": made,
        }


class _Stream:
    def __init__(self, faults: FaultyStorage, stream: Any, path: str) -> None:
        self.faults, self.stream, self.path = faults, stream, path

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self.stream.close()


class _Input(_Stream):
    def read(self) -> Any:
        return self.faults.operate("read", self.path, self.stream.read, changes=False)


class _Output(_Stream):
    def write(self, data: Any) -> None:
        data = bytes(data)
        self.faults.operate(
            "write", self.path, lambda: self._write(data), lambda: self._write(data[: len(data) // 2]), takes_space=True
        )

    def _write(self, data: bytes) -> None:
        self.stream.write(data)
        if self.faults.disk:
            self.faults.disk.written(self.path, data)

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self.stream.close()
        if kind is None:
            self.faults.operate("close", self.path, lambda: None, takes_space=True)


class _File:
    def __init__(self, content: bytes, *, flushed: bool) -> None:
        self.content, self.flushed = content, flushed


class Disk:
    """What a local folder holds after a power failure.

    Parameters
    ----------
    root : Path
        What is in it now counts as flushed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {str(p): _File(p.read_bytes(), flushed=True) for p in root.rglob("*") if p.is_file()}
        self.safe: dict[str, _File | None] = {str(p): self.files.get(str(p)) for p in root.rglob("*")}
        self.safe.update({str(p): None for p in (root, *root.parents) if p.exists()})
        self.waiting: list[dict[str, _File | bool | None]] = []  # new names (None: a folder); False: no longer there

    def opened(self, path: str) -> None:
        self.files[path] = _File(b"", flushed=False)
        self.waiting.append({path: self.files[path]})

    def written(self, path: str, data: bytes) -> None:
        self.files[path].content += data

    def will_make(self, path: str) -> None:
        for folder in reversed([Path(path), *Path(path).parents]):
            if not folder.exists():
                self.waiting.append({str(folder): None})

    def lose_power(self, draw: random.Random | None) -> None:
        """Leave in the folder what was flushed, and of the rest nothing, or what ``draw`` chooses."""
        for change in self.waiting:
            if draw and draw.random() < 0.5:
                self._keep(change)
        shutil.rmtree(self.root, ignore_errors=True)
        for path, file in sorted(self.safe.items()):
            above = Path(path).parent
            if not str(above).startswith(str(self.root)) and path != str(self.root):
                continue
            if not above.exists():
                continue  # the folder itself was lost
            if file is None:
                Path(path).mkdir()
                continue
            left = file.content
            if not file.flushed:
                size = len(left)
                left = draw.choice([b"", left[: size // 2], bytes(size), left]) if draw else b""
            Path(path).write_bytes(left)

    def _keep(self, change: dict[str, _File | bool | None]) -> None:
        for path, file in change.items():
            if isinstance(file, bool):
                for name in [name for name in self.safe if name == path or name.startswith(path + "/")]:
                    del self.safe[name]
            else:
                self.safe[path] = file

    def _rename(self, old: str, new: str) -> None:
        self.files[new] = self.files.pop(old)
        self.waiting.append({old: False, new: self.files[new]})

    def _delete_file(self, path: str) -> None:
        del self.files[path]
        self.waiting.append({path: False})

    def _delete_folder(self, path: str) -> None:
        self.waiting.append({path: False})

    def _flush(self, path: str) -> None:
        found = _File(Path(path).read_bytes(), flushed=True)  # it may have been written past Folder
        self.files.setdefault(path, found).flushed = True

    def _flush_folder(self, path: str) -> None:
        within = [change for change in self.waiting if str(Path(next(iter(change))).parent) == path]
        self.waiting = [change for change in self.waiting if change not in within]
        for change in within:
            self._keep(change)


# -- steady ----------------------------------------------------------------------------------------------------------
# Checkpoints that are waited for.


@contextlib.contextmanager
def checkpoints_waited_for() -> Iterator[None]:
    """Wait for each checkpoint, so that which there are does not depend on how fast the machine is."""
    write = Checkpointer.write

    def write_and_wait(checkpointer: Checkpointer, content: CheckpointContent) -> None:
        write(checkpointer, content)
        checkpointer.settle()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Checkpointer, "write", write_and_wait)
        yield


# -- few hashes ------------------------------------------------------------------------------------------------------
# Sets of deleted ids that keep few hashes in memory and have a small filter, as those of long runs do.


@contextmanager
def few_in_memory(recent: int = 1, bits: int = 5) -> Iterator[None]:
    """Keep ``recent`` hashes in memory, and have a filter of 2 to the power of ``bits`` bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines.running.requests, "_RECENT", recent)
        patch.setattr(pipelines.running.requests, "_BITS", bits)
        yield


# -- cut runs --------------------------------------------------------------------------------------------------------
# Runs to which something happens at a point that they pass, such as the death of their driver.

Handler = Callable[[str], None]


class Gone(BaseException):
    """The driver is no more."""


def gone() -> None:
    """End the driver here."""
    raise Gone


def at(n: int, act: Callable[[], object] = gone, point: str = "driver.recorded") -> Handler:
    """Return a handler that does something, by default end the driver, at the n-th pass through a point."""
    passed = iter(range(1, 10**6))

    def handler(name: str) -> None:
        if name == point and next(passed) == n:
            act()

    return handler


def cut(config: dict[str, Any], run: Path, n: int, point: str = "driver.recorded") -> Path:
    """Replay a job until its driver is gone."""
    with injected(at(n, point=point)), pytest.raises(Gone):
        replay(config, run)
    return run
