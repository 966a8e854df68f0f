"""A run of made-up examples, small and quick to write, whose state at every checkpoint is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from raydt.errors import ModelFileError
from raydt.exchange.messages import GroupSnapshot, Snapshot
from raydt.folders.arrays import read_manifest
from raydt.folders.checkpoint import Checkpoint, CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.sessions.session import next_segment

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
