"""Checkpoints of models by key whose groups have several files: all of them are named, shared and looked for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_equal

from raydt.exchange.messages import GroupSnapshot
from raydt.exchange.snapshot import Snapshot
from raydt.folders import arrays
from raydt.folders.checkpoint import CheckpointContent, read_checkpoint
from raydt.folders.folder import Folder
from raydt.keyed.groups import group_of
from raydt.keyed.packing import packed, unpacked
from raydt.keyed.store import KeyedStore
from tests.unit.small_checkpoints import META


def held(key: str, version: int) -> dict[str, Any]:
    """What a key holds: two large arrays, and small ones."""
    n = 100 * len(key) + version
    return {"coordinator": {"id": np.arange(n), "leaf": np.arange(n) / 2, "n": np.arange(3)}, "seen": {"updates": n}}


def write(store: KeyedStore, number: int, *changed: str) -> None:
    """Write a checkpoint of which some keys have changed, each in a group of its own."""
    parts = [{group_of(key): GroupSnapshot({}, packed({key: held(key, number)}))} for key in changed]
    taken = Snapshot(0, np.empty(0, dtype=np.int64), {}, {"keys": np.zeros(256, dtype=np.int64)}, 0, parts)
    store.write(CheckpointContent(number, {**META, "offset": number}, taken, {"stream": {"seq": number}}))


def assert_holds(store: KeyedStore, number: int, **versions: int) -> None:
    components = read_checkpoint(store.folder.inside(str(number))).components
    for key, version in versions.items():
        (found,) = unpacked(components[f"group-{group_of(key):03d}"]).values()
        expected = held(key, version)
        assert found["seen"] == expected["seen"]
        assert_equal(found["coordinator"], expected["coordinator"])


def test_a_group_of_several_files_is_shared_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(arrays, "_LARGE", 64)
    store = KeyedStore(Folder(tmp_path), 3)
    write(store, 1, "a", "bb")
    files = {key: sorted((tmp_path / "rows").glob(f"group-{group_of(key):03d}.*")) for key in ("a", "bb")}
    assert [*map(len, files.values())] == [3, 3], "two large arrays, and the small ones"
    assert_holds(store, 1, a=1, bb=1)
    again = KeyedStore(Folder(tmp_path), 3)
    again.continue_from(read_checkpoint(Folder(tmp_path / "1")))
    for which in (store, again):
        assert [segment.first for segment in which.segments] == sorted(map(group_of, files))
    write(again, 2, "bb")
    assert_holds(again, 2, a=1, bb=2)
    gone = files["a"][0]
    gone.unlink()
    with caplog.at_level(logging.WARNING):
        assert [segment.first for segment in again.segments] == [group_of("bb")], "the other is written again"
    assert gone.name in caplog.text
    write(again, 3, "a")
    assert_holds(again, 3, a=3, bb=2)
