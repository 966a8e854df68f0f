"""Whatever operation of the storage fails while a checkpoint is written, the last complete one is there."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import textwrap

import pytest
from pyarrow import fs

from raydt.errors import ModelFileError
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from tests.storage_faults import DeathError, Fault, FaultyStorage
from tests.unit.small_checkpoints import META, NUMBERS, assert_clean, assert_right, fill, newest, snapshot, write

pytestmark = pytest.mark.nightly

#: Checkpoints there are before: none, or as many as are kept.
BEFORE = (0, 3)


def attempt(store, number, fault, at, disk=None):
    """Write a checkpoint; the storage, and whether the store said that it succeeded."""
    with FaultyStorage(fault, at, disk) as storage:
        try:
            write(store, number)
        except (ModelFileError, DeathError):
            assert storage.failed
            return storage, False
    return storage, True


def continuing(folder, checkpoint, keep=3):
    """The store of a process that has restored ``checkpoint``."""
    store = CheckpointStore(folder, keep)
    store.continue_from(checkpoint)
    return store


def assert_one_of(folder, before, after, *, succeeded):
    """The newest sound checkpoint is the one written, or the one before if that was not known to be complete."""
    checkpoint, complaints = newest(CheckpointStore(folder, 3))
    found = checkpoint.number if checkpoint else None
    assert found == after if succeeded else found in (before, after)
    return checkpoint, complaints


@pytest.mark.parametrize("count", BEFORE)
@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.LATE_ERROR, Fault.FULL])
def test_every_operation_that_fails(tmp_path, fault, count):
    last, number, following = [None, *NUMBERS][count], NUMBERS[count], NUMBERS[count + 1]
    before = fill(tmp_path / "before", count)
    (tmp_path / "before").mkdir(exist_ok=True)
    at, failed = 0, True
    while failed:
        at += 1
        folder = Folder(tmp_path / str(at))
        shutil.copytree(tmp_path / "before", folder.root)
        store = continuing(folder, before)
        storage, succeeded = attempt(store, number, fault, at, tmp_path / str(at))
        failed = storage.failed
        assert not assert_one_of(folder, last, number, succeeded=succeeded)[1]
        assert not list((tmp_path / str(at)).rglob(".*")), "something temporary was left"
        # The same process goes on, and then the power fails.
        with FaultyStorage(disk=tmp_path / str(at)) as storage:
            write(store, following)
        assert_clean(folder)
        storage.disk.lose_power(None)
        assert not assert_one_of(folder, following, following, succeeded=True)[1]
        shutil.rmtree(folder.root)
    assert at > 20


@pytest.mark.parametrize("count", BEFORE)
@pytest.mark.parametrize("seed", [None, 1])
def test_every_operation_at_which_the_power_fails(tmp_path, seed, count):
    last, number, following = [None, *NUMBERS][count], NUMBERS[count], NUMBERS[count + 1]
    before = fill(tmp_path / "before" / "checkpoints", count)
    (tmp_path / "before").mkdir(exist_ok=True)
    at, failed = 0, True
    while failed:
        at += 1
        disk = tmp_path / str(at)
        shutil.copytree(tmp_path / "before", disk)
        folder = Folder(disk / "checkpoints")
        storage, succeeded = attempt(continuing(folder, before), number, Fault.DEATH, at, disk)
        failed = storage.failed
        # Nothing that was not flushed is there, or some of it: a power failure each time has its own seed.
        storage.disk.lose_power(None if seed is None else random.Random(1000 * seed + at))
        found, _ = assert_one_of(folder, last, number, succeeded=succeeded)
        with FaultyStorage(disk=disk):
            write(continuing(folder, found), following)
        assert_clean(folder)
        assert not assert_one_of(folder, following, following, succeeded=True)[1]
        shutil.rmtree(disk)
    assert at > 20


@pytest.mark.parametrize("fault", list(Fault))
def test_every_operation_on_another_filesystem(fault):
    at, failed = 0, True
    while failed:
        at += 1
        folder = Folder("bucket/checkpoints", fs._MockFileSystem())
        store = CheckpointStore(folder, 1)
        write(store, NUMBERS[0])
        storage, succeeded = attempt(store, NUMBERS[1], fault, at)
        failed = storage.failed
        found, complaints = assert_one_of(folder, NUMBERS[0], NUMBERS[1], succeeded=succeeded)
        assert not complaints
        for number in store.numbers():  # those that are being removed, too: whole, or no checkpoint any more
            assert_right(read_checkpoint(folder.inside(str(number))))
        if fault is Fault.DEATH:
            store = continuing(folder, found, 1)
        write(store, NUMBERS[2])
        assert_clean(folder)
        assert not assert_one_of(folder, NUMBERS[2], NUMBERS[2], succeeded=True)[1]
    assert at > 20


def test_every_operation_after_a_damaged_checkpoint_was_passed_over(tmp_path):
    fill(tmp_path / "before", 3)
    damaged = next((tmp_path / "before" / str(NUMBERS[2])).glob("coordinator.*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    before, (complaint,) = newest(CheckpointStore(Folder(tmp_path / "before"), 3))
    assert damaged.name in complaint
    between = NUMBERS[1] + 5
    at, failed = 0, True
    while failed:
        at += 1
        folder = Folder(tmp_path / str(at))
        shutil.copytree(tmp_path / "before", folder.root)
        storage, succeeded = attempt(continuing(folder, before), between, Fault.DEATH, at, tmp_path / str(at))
        failed = storage.failed
        found, complaints = assert_one_of(folder, NUMBERS[1], between, succeeded=succeeded)
        assert len(complaints) <= (not succeeded)
        with FaultyStorage(disk=tmp_path / str(at)):
            write(continuing(folder, found), NUMBERS[2])
        assert_clean(folder)
        assert not assert_one_of(folder, NUMBERS[2], NUMBERS[2], succeeded=True)[1]
        shutil.rmtree(folder.root)
    assert at > 20


def test_a_failed_checkpoint_gives_its_space_back(tmp_path):
    before = fill(tmp_path, 3)
    there = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    at, succeeded = 0, False
    while not succeeded:
        at += 1
        _, succeeded = attempt(continuing(Folder(tmp_path), before), NUMBERS[3], Fault.FULL, at)
        assert succeeded or sorted(path for path in tmp_path.rglob("*") if path.is_file()) == there
    assert at > 15


LIMITED = """
    import resource, sys
    from raydt.folders.checkpoint import CheckpointStore, read_checkpoint
    from raydt.errors import ModelFileError
    from raydt.folders.folder import Folder
    from tests.unit.small_checkpoints import NUMBERS, assert_clean, newest, write

    folder = Folder(sys.argv[1])
    store, last, failures = CheckpointStore(folder, 2), None, 0
    for number in NUMBERS:
        for limit in (100, 400, 1000, 2000, 4000, resource.RLIM_INFINITY):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                write(store, number)
            except ModelFileError as error:
                assert "File too large" in str(error), error
                failures += 1
                checkpoint, complaints = newest(CheckpointStore(folder, 2))
                assert not complaints
                assert last == (checkpoint.number if checkpoint else None)
            else:
                break
        last = number
        assert newest(CheckpointStore(folder, 2))[0].number == number
        assert_clean(folder)
    assert failures > 10, failures
"""


def test_files_that_may_not_grow(tmp_path):
    code = textwrap.dedent(LIMITED)
    ended = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_a_number_written_again_replaces_what_was_there(tmp_path):
    folder = Folder(tmp_path)
    first = fill(tmp_path, 1)
    store, number = continuing(folder, first), NUMBERS[1]
    store.write(
        CheckpointContent(number, {**META, "offset": number}, snapshot(number, store), {"stream": {"seq": "another"}})
    )
    write(continuing(folder, first), number)
    assert_clean(folder)
    assert not assert_one_of(folder, number, number, succeeded=True)[1]
