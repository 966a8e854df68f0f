"""Where simulated drivers keep their checkpoints."""

from __future__ import annotations

import datetime
import posixpath
import random
import sys
from typing import Any

from pyarrow import fs

from raydt.errors import ModelFileError
from raydt.exchange.messages import Segment, Snapshot
from raydt.folders.arrays import MANIFEST, read_manifest
from raydt.folders.checkpoint import ROWS, CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.sessions.saved_model import buckets_of
from raydt.sessions.session import whole
from tests.simulation.network import copied
from tests.simulation.simulator import DriverDied, Saved

#: What a manifest must say, none of which matters here.
_META = {"learner": {}, "features": [], "classes": [], "config_hash": "", "source_fingerprint": ""}


class Memory:
    """The last checkpoint, in full, in memory that survives a driver, and that shards do not see."""

    shared = False

    def __init__(self) -> None:
        self._saved: Saved | None = None
        self.left: list[int | None] = [None]

    def segments(self) -> list[Segment]:
        """Nothing is stored that a snapshot could leave out."""
        return []

    def write(self, position: int, snapshot: Snapshot, stream: dict[str, Any], run: dict[str, Any]) -> None:
        """Keep a checkpoint instead of the one before."""
        state, groups = whole(snapshot)
        self._saved = Saved(copied(state), copied(groups), {}, copied(stream), copied(run))

    def load(self, *, apart: bool) -> Saved | None:
        """The last checkpoint."""
        return self._saved and Saved(**copied(vars(self._saved)))

    def rot(self, draw: random.Random) -> None:
        """This memory does not fail."""

    def new_driver(self) -> None:
        """The driver is dead: what it knew of the store is gone."""


class MortalFolder(Folder):
    """A folder whose owner dies at the ``left``-th operation that changes something; nothing is tidied up after."""

    left: list[int | None]

    def _changes(self) -> None:
        if self.left[0] is not None:
            self.left[0] -= 1
            if self.left[0] < 0:
                raise DriverDied

    def _open_to_write(self, path: str) -> Any:
        self._changes()
        return super()._open_to_write(path)

    def _rename(self, old: str, new: str) -> None:
        self._changes()
        super()._rename(old, new)

    def _delete_file(self, path: str) -> None:
        self._changes()
        super()._delete_file(path)

    def _delete_folder(self, path: str) -> None:
        self._changes()
        super()._delete_folder(path)


class Checkpoints:
    """The product's checkpoints, on a filesystem in memory.

    Attributes
    ----------
    shared : bool
        Shards see the filesystem, and may write to it.
    left : list of one int or None
        So many more operations of the filesystem until the driver dies.
    """

    shared = True

    def __init__(self) -> None:
        self._filesystem = fs._MockFileSystem(datetime.datetime(2000, 1, 1))
        self.left: list[int | None] = [None]
        self.new_driver()

    def segments(self) -> list[Segment]:
        """As of the last checkpoint."""
        return self._store.segments

    def write(self, position: int, snapshot: Snapshot, stream: dict[str, Any], run: dict[str, Any]) -> None:
        """Write a checkpoint, or die at it; ProcessLostError if a shard dies that has a part."""
        try:
            self._store.write(
                CheckpointContent(position, {**_META, "offset": position}, snapshot, {"stream": stream, "run": run})
            )
        finally:
            if not isinstance(sys.exc_info()[1], DriverDied):
                self._require_tidy()

    def _require_tidy(self) -> None:
        """Require that all files belong to a complete checkpoint: what was broken off has left none."""
        folder, wanted = self._store.folder, set()
        for number in map(str, self._store.numbers()):
            try:
                names = [file.name for file in read_manifest(folder.inside(number)).files]
            except ModelFileError:
                return  # a damaged one keeps files of which nobody knows whether they are wanted
            wanted |= {posixpath.normpath(f"{number}/{name}") for name in (*names, MANIFEST)}
        assert set(folder.files()) == wanted

    def load(self, *, apart: bool) -> Saved | None:
        """The last sound checkpoint, which the next one follows; ``apart``: with the parts that shards read."""
        for number in reversed(self._store.numbers()):
            try:
                checkpoint = read_checkpoint(self._store.folder.inside(str(number)), apart=apart)
                parts = dict(checkpoint.components)
            except ModelFileError:
                continue
            self._store.continue_from(checkpoint)
            groups = {int(name[6:]): arrays for name, arrays in parts.items() if name.startswith("group-")}
            return Saved(parts["coordinator"], groups, dict(buckets_of(parts)), parts["stream"], parts["run"])
        self._store.continue_from(None)
        return None

    def rot(self, draw: random.Random) -> None:
        """Change a byte, or lose the second half, of a file of the last checkpoint, its rows among them."""
        folder = self._store.folder
        last = str(max(self._store.numbers(), default=0))
        names = [f"{part}/{name}" for part in (last, ROWS) for name in folder.names(part)]
        if names:
            name = draw.choice(names)
            data = bytearray(folder.read(name))
            if data and draw.random() < 0.5:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            else:
                del data[len(data) // 2 :]
            with self._filesystem.open_output_stream(folder.path(name)) as stream:
                stream.write(bytes(data))

    def new_driver(self) -> None:
        """The driver is dead: what it knew of the store is gone."""
        folder = MortalFolder("run/checkpoints", self._filesystem)
        folder.left = self.left = [None]
        self._store = CheckpointStore(folder, keep=3)
