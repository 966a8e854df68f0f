"""Files of a folder are absent or complete, on every filesystem, whatever operation fails."""

from __future__ import annotations

import errno
import os

import pytest
from pyarrow import fs

from raydt.errors import InputError
from raydt.folders.folder import Folder
from tests.refusals import refused
from tests.storage_faults import Disk, Fault, FaultyStorage


@pytest.fixture(params=["path", "uri", "mock", "subtree"])
def folder(request, tmp_path):
    return {
        "path": lambda: Folder(tmp_path / "deep" / "folder"),
        "uri": lambda: Folder((tmp_path / "folder").as_uri()),
        "mock": lambda: Folder("bucket/folder/", fs._MockFileSystem()),
        "subtree": lambda: Folder("folder", fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())),
    }[request.param]()


class TestEveryFilesystem:
    def test_what_is_published_is_read(self, folder):
        folder.publish("a", b"1")
        folder.publish("deep/er/b", memoryview(b"22"))
        folder.publish("a", b"333")
        assert (folder.read("a"), folder.read("deep/er/b")) == (b"333", b"22")
        assert folder.names() == ["a", "deep"]
        assert folder.names("deep") == ["er"]
        assert (folder.size("a"), folder.size("deep"), folder.size("no")) == (3, None, None)
        assert (folder.has("a"), folder.has("deep"), folder.has("no")) == (True, True, False)

    def test_what_is_not_there(self, folder):
        assert not folder.has("")
        assert folder.names() == folder.names("no") == []
        folder.delete("no")
        folder.discard("no")
        with pytest.raises(FileNotFoundError):
            folder.read("no")
        folder.make()
        folder.make()
        assert folder.has("")
        folder.delete("no")
        folder.discard("no")

    def test_moved_and_removed(self, folder):
        folder.publish("a", b"1")
        folder.publish("b", b"2")
        folder.move("a", "b")
        assert (folder.names(), folder.read("b")) == (["b"], b"1")
        folder.publish("c/d/e", b"")
        assert sorted(folder.files()) == ["b", "c/d/e"]
        folder.discard("c/d")
        folder.delete("b")
        assert list(folder.files("c")) == ["c/d/e"]
        folder.delete("c/d/e")
        folder.discard("c/d")
        folder.discard("c")
        assert folder.names() == []

    def test_a_folder_inside_and_beside(self, folder):
        inside = folder.inside("c")
        inside.publish("x", b"1")
        inside.publish("../rows/y", b"2")
        assert type(inside) is Folder
        assert folder.read("c/x") == b"1"
        assert folder.names() == ["c", "rows"]
        assert folder.inside("rows").read("y") == inside.read("../rows/y") == b"2"
        assert inside.location == f"{folder.location}/c"

    def test_a_file_is_no_folder(self, folder):
        folder.publish("a", b"1")
        with pytest.raises(OSError):  # noqa: PT011
            folder.publish("a/b", b"2")
        assert folder.names() == ["a"]


def test_what_is_local_and_where(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Folder("x").location == Folder("x").root == str(tmp_path / "x")
    assert Folder("x").is_local
    assert Folder(f"file://{tmp_path}/x").root == str(tmp_path / "x")
    mock = Folder("bucket/x/", fs._MockFileSystem())
    assert (mock.location, mock.is_local) == ("bucket/x", False)
    with refused("models.uri", InputError, file="nonsense://x"):
        Folder("nonsense://x")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES])
def test_a_folder_that_cannot_be_flushed_is_no_error_but_a_file_is(tmp_path, monkeypatch, number):
    folder, fsync = Folder(tmp_path), os.fsync

    def refuse(descriptor, of=os.path.isdir):
        if of(f"/proc/self/fd/{descriptor}"):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    folder.publish("a", b"1")
    assert folder.read("a") == b"1"
    monkeypatch.setattr(os, "fsync", lambda descriptor: refuse(descriptor, os.path.isfile))
    with pytest.raises(OSError, match=os.strerror(number)):
        folder.publish("b", b"1")
    assert folder.names() == ["a"]


class TestTheModelOfTheDisk:
    """The storage of the tests notices what it is there to notice."""

    def test_bytes_that_were_not_flushed_are_lost(self, tmp_path, monkeypatch):
        monkeypatch.setattr(Disk, "_flush", lambda disk, path: None)
        with FaultyStorage(disk=tmp_path) as storage:
            Folder(tmp_path).publish("a", b"1")
        storage.disk.lose_power(None)
        assert (tmp_path / "a").read_bytes() == b""

    def test_a_name_that_was_not_flushed_is_lost(self, tmp_path, monkeypatch):
        Folder(tmp_path).publish("a", b"old")
        monkeypatch.setattr(Disk, "_flush_folder", lambda disk, path: None)
        with FaultyStorage(disk=tmp_path) as storage:
            Folder(tmp_path).publish("a", b"new")
            Folder(tmp_path).publish("b/c", b"new")
        storage.disk.lose_power(None)
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]

    def test_a_removal_may_be_undone(self, tmp_path):
        for name in ("a", "b/c"):
            Folder(tmp_path).publish(name, b"1")
        with FaultyStorage(disk=tmp_path) as storage:
            for name in ("a", "b/c"):
                Folder(tmp_path).delete(name)
            Folder(tmp_path).discard("b")
        storage.disk.lose_power(None)
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "c"]

    def test_a_full_disk_still_removes(self, tmp_path):
        folder = Folder(tmp_path)
        folder.publish("a", b"1")
        with FaultyStorage(Fault.FULL, 1):
            folder.delete("a")
            with pytest.raises(OSError, match="No space"):
                folder.publish("e", b"1")
        assert not list(tmp_path.iterdir())

    def test_a_folder_with_something_in_it_stays(self, folder):
        folder.publish("c/d", b"1")
        folder.discard("c")
        assert list(folder.files()) == ["c/d"]
