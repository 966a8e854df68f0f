"""Small checkpoints, and a file system that crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs as pafs

from raydt.errors import ModelFileError
from raydt.exchange.messages import GroupSnapshot, Snapshot
from raydt.folders.arrays import read_manifest
from raydt.folders.checkpoint import Checkpoint, CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.sessions.session import next_segment

# -- small checkpoints -----------------------------------------------------------------------------------------------
# A run of made-up examples, small and quick to write, whose state at every checkpoint is known.

#: Updates done at each checkpoint; a large segment comes first, later ones are superseded.
NUMBERS = (100, 110, 120, 130, 140, 150)
META = {"learner": {}, "features": [], "classes": [], "config_hash": "c", "source_fingerprint": "s"}


def alive(number: int) -> np.ndarray:
    """Births of the examples that live after ``number`` updates: of the older ones, each fifth is deleted."""
    born = np.arange(number)
    return born[(born % 5 != 0) | (born > number - 15)]


def rows(born: np.ndarray) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """What never changes of examples: the coordinator's part, and that of two groups, one with a ragged entry."""
    own, groups = {"ids": born * 7, "y": (born % 3).astype(np.int32)}, [{"X": born[:, None] * 0.5 + g} for g in (0, 1)]
    lengths = (born % 4).astype(np.int32)
    values = np.repeat(born, lengths).astype(np.int32)
    return own, [groups[0], {**groups[1], "sparse_lengths": lengths, "sparse_values": values}]


def snapshot(number: int, store: CheckpointStore) -> Snapshot:
    """The run after ``number`` updates."""
    born = alive(number)
    since = next_segment(born, store.segments)
    own, groups = rows(born[born >= since])
    parts = [{0: GroupSnapshot(groups[0], {"sums": born * 1.5})}, {1: GroupSnapshot(groups[1], {})}]
    return Snapshot(since, born, own, {"tree": np.arange(number // 10)}, aside=0, parts=parts)


def write(store: CheckpointStore, number: int) -> int:
    """Write the checkpoint after ``number`` updates."""
    return store.write(
        CheckpointContent(number, {**META, "offset": number}, snapshot(number, store), {"stream": {"seq": number}})
    )


def assert_right(checkpoint: Checkpoint) -> None:
    """It is the state of the run after the updates it says it has done."""
    number, born = checkpoint.number, alive(checkpoint.number)
    own, groups = rows(born)
    expected: dict[str, dict[str, Any]] = {
        "coordinator": {**own, "born": born, "tree": np.arange(number // 10)},
        "group-000": {**groups[0], "sums": born * 1.5},
        "group-001": groups[1],
        "stream": {"seq": number},
    }
    assert checkpoint.components.keys() == expected.keys()
    for name, part in expected.items():
        assert checkpoint.components[name].keys() == part.keys()
        for key, value in part.items():
            np.testing.assert_array_equal(checkpoint.components[name][key], value, strict=isinstance(value, np.ndarray))


def newest(store: CheckpointStore) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is sound, which is right, and the complaints about those after it."""
    complaints = []
    for number in reversed(store.numbers()):
        try:
            checkpoint = read_checkpoint(store.folder.inside(str(number)))
        except ModelFileError as error:
            complaints.append(str(error))
            continue
        assert checkpoint.number == number
        assert_right(checkpoint)
        return checkpoint, complaints
    return None, complaints


def fill(place: Path, count: int, keep: int = 3) -> Checkpoint | None:
    """Write the first checkpoints of the run; the last one is returned, and continues a copy of the folder too."""
    store = CheckpointStore(Folder(place), keep)
    for number in NUMBERS[:count]:
        write(store, number)
    return newest(store)[0]


def assert_clean(folder: Folder) -> None:
    """Nothing is there but what the manifests name."""
    numbers = CheckpointStore(folder, 1).numbers()
    shared: set[str] = set()
    for number in numbers:
        manifest = read_manifest(folder.inside(str(number)))
        shared |= {file.name.removeprefix("../rows/") for file in manifest.files if "/" in file.name}
        assert set(folder.names(str(number))) == {"manifest.json"} | manifest.own
    assert set(folder.names("rows")) == shared
    assert set(folder.names()) == {"rows"} | {str(number) for number in numbers}


# -- crashing --------------------------------------------------------------------------------------------------------
# A filesystem whose process dies at its n-th change, in memory of what it had written till then.


class Died(BaseException):
    """The process is gone: nobody catches this."""


class Dying(pafs.FileSystemHandler):
    """A local filesystem that dies at its ``last``-th change: instead of it, or right after it.

    Changes are: a folder made, a file deleted, moved, opened for writing, written to, closed. After death nothing
    more reaches the disk, whatever destructors try.
    """

    def __init__(self, root, last=None, *, after=False):
        self._real = pafs.SubTreeFileSystem(str(root), pafs.LocalFileSystem())
        self._last, self._after, self.changes, self.dead = last, after, 0, False

    def change(self, act, *arguments):
        if self.dead:
            raise Died
        self.changes += 1
        self.dead = self.changes == self._last
        if self.dead and not self._after:
            raise Died
        done = act(*arguments)
        if self.dead:
            raise Died
        return done

    def get_type_name(self):
        return "dying"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self._real.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self._real.get_file_info(selector)

    def open_input_stream(self, path):
        return self._real.open_input_stream(path)

    def open_input_file(self, path):
        return self._real.open_input_file(path)

    def create_dir(self, path, recursive):
        if self._real.get_file_info(path).type != pafs.FileType.Directory:
            self.change(lambda: self._real.create_dir(path, recursive=recursive))

    def delete_file(self, path):
        self.change(self._real.delete_file, path)

    def move(self, old, new):
        self.change(self._real.move, old, new)

    def open_output_stream(self, path, metadata):
        return pa.PythonFile(_Writing(self, self.change(self._real.open_output_stream, path)), mode="w")

    def open_append_stream(self, path, metadata):
        raise NotImplementedError

    def copy_file(self, old, new):
        raise NotImplementedError

    def delete_dir(self, path):
        raise NotImplementedError

    def delete_dir_contents(self, path, missing_dir_ok=False):
        raise NotImplementedError

    def delete_root_dir_contents(self):
        raise NotImplementedError


class _Writing:
    """An open file of a process that can die."""

    def __init__(self, owner, stream):
        self._owner, self._stream, self.closed = owner, stream, False

    def write(self, data):
        if not self._owner.dead:  # a destructor may still try
            self._owner.change(self._stream.write, data)
            self._stream.flush()
        return len(data)

    def flush(self):
        pass

    def close(self):
        if not self.closed and not self._owner.dead:
            self._owner.change(self._stream.close)
        self.closed = True
