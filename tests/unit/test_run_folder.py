"""Run folders: refused where something is, complete or absent, the same on every file system."""

from __future__ import annotations

import pytest
from pyarrow import fs as pafs

from pipelines.run_folder import RunFolder, default_location
from raydt.errors import ConfigError
from raydt.folders import folder as lock
from raydt.folders.folder import LOCK, locked
from tests.refusals import refused


@pytest.fixture
def remote(tmp_path):
    """A run folder on a file system that is not local: a sub-tree of the disk, seen through another class."""
    folder = RunFolder(tmp_path / "unused")
    folder.filesystem = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    folder.root, folder.is_local = "run", False
    folder.filesystem.create_dir("run")
    return folder


def test_a_folder_that_holds_something_is_refused(tmp_path):
    (tmp_path / "x").touch()
    with refused("runs.other_files", ConfigError):
        RunFolder.create(tmp_path)
    with refused("runs.file", ConfigError):
        RunFolder.create(tmp_path / "x")


def test_a_run_that_ends_while_another_begins_stays(tmp_path, monkeypatch):
    has = RunFolder.has

    def quicker(self, name):
        if not name:  # the folder was empty when the other looked
            for file in ("config.yaml", "summary.json"):
                (tmp_path / file).write_text("{}")
        return has(self, name)

    monkeypatch.setattr(RunFolder, "has", quicker)
    folder = RunFolder.create(tmp_path)
    assert sorted(folder.files()) == ["config.yaml", "summary.json"]
    with refused("runs.other_writer", ConfigError):
        folder.require_untouched()


def test_a_run_is_replaced_only_on_request_and_nothing_else_ever(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    run.write_text("config.yaml", "")
    run.write_text("notes.txt", "mine")
    with refused("runs.other_files", ConfigError):
        RunFolder.create(tmp_path / "run", overwrite=True)
    run.write_text("log.jsonl", "")
    with refused("runs.other_run", ConfigError, status="unfinished"):
        RunFolder.create(tmp_path / "run")
    run.write_text("summary.json", '{"status": "failed"}')
    with refused("runs.other_run", ConfigError, status="failed"):
        RunFolder.create(tmp_path / "run")
    (run_file := tmp_path / "home" / "part-00000.parquet").parent.mkdir()
    run_file.touch()
    for name in (
        "predictions/part-00000.parquet",
        "predictions/part.bak",
        "checkpoints/20/mine",
        "model/manifest.json",
    ):
        run.publish(name, b"")
    (tmp_path / "run" / "metrics").symlink_to(tmp_path / "home")
    (tmp_path / "run" / "home").symlink_to(tmp_path / "home")
    left = RunFolder.create(tmp_path / "run", overwrite=True)
    assert sorted(left.files()) == ["checkpoints/20/mine", "home", "notes.txt", "predictions/part.bak"]
    assert run_file.exists()


def test_an_empty_folder_is_discarded_only_if_it_was_made_here(tmp_path):
    RunFolder.create(tmp_path / "new").discard_if_empty()
    assert not (tmp_path / "new").exists()
    RunFolder.create(tmp_path).discard_if_empty()
    assert tmp_path.exists()
    used = RunFolder.create(tmp_path / "used")
    used.write_text("a", "")
    used.discard_if_empty()
    assert used.has("a")


def test_a_folder_that_another_process_has_locked_meanwhile_is_not_discarded(tmp_path, monkeypatch):
    first, second = RunFolder.create(tmp_path / "new"), RunFolder.create(tmp_path / "new")
    with locked(first):
        second.discard_if_empty()
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(lock, "_HELD", {})
            second.discard_beginning()
        assert first.has(LOCK)
        first.discard_beginning()  # its own
    assert not (tmp_path / "new").exists()


def test_a_lock_that_is_another_process_s_by_now_stays(tmp_path):
    with locked(RunFolder(tmp_path)):
        (tmp_path / LOCK).unlink()
        (tmp_path / LOCK).write_text("another's")
    assert (tmp_path / LOCK).exists()


def test_a_uri_names_its_file_system(tmp_path):
    folder = RunFolder.create(f"file://{tmp_path}/run")
    folder.write_text("a.txt", "é")
    assert (tmp_path / "run" / "a.txt").read_text(encoding="utf-8") == "é"
    assert folder.location == f"{tmp_path}/run"


def test_what_is_no_uri_is_a_config_error():
    with pytest.raises(ConfigError, match="nothing://x"):
        RunFolder("nothing://x")


def test_a_remote_folder_is_read_through_a_copy(remote, tmp_path):
    remote.write_text("a.txt", "x")
    with remote.local() as copy:
        assert (copy / "a.txt").read_text() == "x"
        (copy / "b.txt").write_text("y")
        remote.receive(copy / "b.txt", "b.txt")
    assert not copy.exists()
    assert (tmp_path / "run" / "b.txt").read_text() == "y"


def test_the_default_place_is_under_the_working_directory():
    place = default_location("job")
    assert place.parts[0] == "runs"
    assert place.name.endswith("Z-job")
