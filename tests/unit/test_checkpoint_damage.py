"""Checkpoints that are damaged, and storage that fails while they are written."""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

from raydt.errors import ModelFileError, NotWrittenError
from raydt.exchange.messages import GroupSnapshot, Snapshot
from raydt.folders.arrays import encode, read_manifest, seal
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.folders.segments import with_rows
from raydt.messages import message
from tests.refusals import refused
from tests.storage_faults import DeathError, Fault, FaultyStorage
from tests.unit.small_checkpoints import META, NUMBERS, assert_clean, assert_right, fill, newest, snapshot, write

# -- checkpoint damage -----------------------------------------------------------------------------------------------
# A damaged checkpoint is refused by name, and the one before it is there; never a wrong state.

#: The checkpoints there are: the last three of five.
FIRST, BEFORE, LAST = NUMBERS[2:5]


@pytest.fixture
def place(tmp_path):
    fill(tmp_path, 5)
    return tmp_path


def files_of(place, number):
    """All files a checkpoint needs, but its manifest."""
    folder = Folder(place / str(number))
    return [Path(folder.path(entry.name)) for entry in read_manifest(folder).files]


def used_by(place, file):
    """Numbers of the checkpoints that need a file."""
    return {number for number in (FIRST, BEFORE, LAST) if file in files_of(place, number)}


def test_the_checkpoints_share_rows_and_are_right(place):
    assert CheckpointStore(Folder(place), 3).numbers() == [FIRST, BEFORE, LAST]
    for number in (FIRST, BEFORE, LAST):
        assert_right(read_checkpoint(Folder(place / str(number))))
    uses = [len(used_by(place, file)) for file in (place / "rows").iterdir()]
    assert {1, 3} <= set(uses), "some rows are shared, others not"


def test_a_state_whose_manifest_lists_no_coordinator_is_refused(tmp_path):
    place = Folder(tmp_path / "0")
    store = CheckpointStore(Folder(tmp_path), 3)
    store.write_alone(0, {**META, "offset": 0}, {"stream": {"seq": 0}})
    with refused(
        "models.segments", ModelFileError, file=place.root, reason=message("models.no_entry", name="coordinator")
    ):
        read_checkpoint(place)


def test_segments_removed_while_the_run_goes_on_are_written_again(tmp_path, caplog):
    fill(tmp_path / "before", 4)
    shared = [file.name for file in files_of(tmp_path / "before", NUMBERS[3]) if file.parent.name == "rows"]
    assert len({name.partition("-group-")[0].partition(".")[0] for name in shared}) > 1, "several segments"
    for name in shared:
        place = tmp_path / name
        store = CheckpointStore(Folder(place), 3)
        for number in NUMBERS[:4]:
            write(store, number)
        (place / "rows" / name).unlink()
        caplog.clear()
        write(store, NUMBERS[4])
        assert [record.getMessage() for record in caplog.records] == [
            message("models.segment_again", folder=str(place), segment=name)
        ]
        write(store, NUMBERS[5])
        assert len(caplog.records) == 1
        for number in NUMBERS[4:]:
            assert_right(read_checkpoint(store.folder.inside(str(number))))


def test_a_checkpoint_whose_segment_is_removed_after_its_snapshot_is_not_written(tmp_path):
    store, number = CheckpointStore(Folder(tmp_path), 3), NUMBERS[4]
    for before in NUMBERS[:4]:
        write(store, before)
    taken = snapshot(number, store)
    assert taken.since > 0
    shutil.rmtree(tmp_path / "rows")
    with refused("machine.not_written", NotWrittenError, file=str(tmp_path / str(number))) as caught:
        store.write(CheckpointContent(number, {**META, "offset": number}, taken, {"stream": {"seq": number}}))
    assert f"{message('models.segment_removed')}: 'rows/rows-0-" in str(caught.value)
    assert number not in store.numbers()
    write(store, NUMBERS[5])
    assert_right(read_checkpoint(store.folder.inside(str(NUMBERS[5]))))


def test_the_run_goes_on_from_the_one_before_and_the_damaged_one_goes(place):
    for file in ("coordinator", "manifest.json"):
        (damaged,) = (place / str(LAST)).glob(f"{file}*")
        damaged.write_bytes(damaged.read_bytes()[:-1])
        store = CheckpointStore(Folder(place), 3)
        checkpoint, (complaint,) = newest(store)
        assert checkpoint.number == BEFORE
        assert damaged.name in complaint
        store.continue_from(checkpoint)
        write(store, LAST)
        assert newest(store)[0].number == LAST
        assert_clean(Folder(place))


def test_a_later_checkpoint_that_cannot_be_removed_is_an_error_that_names_it(place, monkeypatch):
    """It would be taken for the newest one after the next loss."""

    def read_only(folder, name, **_):
        raise OSError(errno.EROFS, "Read-only file system")

    store = CheckpointStore(Folder(place), 3)
    monkeypatch.setattr(Folder, "delete", read_only)
    with refused("models.not_removed", NotWrittenError, file=str(place / str(LAST))):
        store.continue_from(read_checkpoint(Folder(place / str(BEFORE))))
    assert_right(newest(store)[0])


def test_damaged_rows_that_all_share_are_written_again_from_the_beginning(place):
    (shared,) = [file for file in (place / "rows").glob("rows-0-100.*") if len(used_by(place, file)) == 3]
    shared.write_bytes(shared.read_bytes()[:-1] + b"\1")
    store = CheckpointStore(Folder(place), 3)
    checkpoint, complaints = newest(store)
    assert checkpoint is None
    assert all(shared.name in complaint for complaint in complaints)
    store.continue_from(None)
    write(store, NUMBERS[0])
    assert newest(store)[0].number == NUMBERS[0]
    assert_clean(Folder(place))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["meta"]["segments"].pop(),
        lambda m: m["meta"]["segments"].append([140, 141, 1]),
        lambda m: m["meta"]["segments"][0].pop(),
        lambda m: m["meta"]["segments"].insert(0, ["x", 1, 2]),
        lambda m: m["meta"]["segments"][0].__setitem__(2, 7),
        lambda m: m["meta"].update(segments=7),
        lambda m: m["files"].remove(next(f for f in m["files"] if f["component"] == "live")),
        lambda m: m["files"].remove(next(f for f in m["files"] if f["component"] == "rows-0-100")),
    ],
)  # fmt: skip
def test_segments_that_do_not_fit_the_files_are_refused(place, change):
    """Not damage, which the hash finds: a manifest whose hash is right."""
    file = place / str(LAST) / "manifest.json"
    manifest = json.loads(file.read_bytes())
    del manifest["sha256"]
    change(manifest)
    file.write_bytes(seal(encode(manifest)))
    with refused("models.segments", ModelFileError, file=str(place / str(LAST))):
        read_checkpoint(Folder(place / str(LAST)))


def test_rows_of_a_manifest_that_cannot_be_read_now_are_kept(place):
    file = place / str(BEFORE) / "manifest.json"
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    store = CheckpointStore(Folder(place), 3)
    store.continue_from(newest(store)[0])
    write(store, NUMBERS[5])
    file.write_bytes(data)
    assert_right(read_checkpoint(Folder(place / str(BEFORE))))
    write(store, NUMBERS[5] + 10)
    assert_clean(Folder(place))


RAGGED = {"sparse_lengths": np.array([1, 0, 2], np.int32), "sparse_values": np.array([5, 6, 7], np.int32)}


@pytest.mark.parametrize(
    "change",
    [
        {"sparse_lengths": np.array([1, 0, 3], np.int32)},
        {"sparse_lengths": np.array([1, -1, 3], np.int32)},
        {"sparse_lengths": np.array([1, 2], np.int32)},
        {"sparse_values": np.array([5, 6], np.int32)},
    ],
    ids=str,
)
def test_ragged_rows_that_do_not_fit_are_refused(tmp_path, change):
    """Neither written nor, with files that are sound in themselves, read."""
    rows, born = {**RAGGED, **change}, np.arange(3)
    snapshot = Snapshot(0, born, {"y": born}, {}, aside=0, parts=[{0: GroupSnapshot(rows, {})}])
    with refused("models.uneven", ValueError, examples=3):
        CheckpointStore(Folder(tmp_path), 1).write(CheckpointContent(3, {**META, "offset": 3}, snapshot, {}))
    components = {
        "rows-0-3": {"born": born, "y": born},
        "rows-0-3-group-000": rows,
        "live": {"0-3": np.packbits([True, False, True])},
    }
    with refused("models.segments", ModelFileError):
        with_rows({"segments": [[0, 3, 3]]}, components, "state")
    components["rows-0-3-group-000"] = RAGGED
    whole = with_rows({"segments": [[0, 3, 3]]}, components, "state")["group-000"]
    assert {name: values.tolist() for name, values in whole.items()} == {
        "sparse_lengths": [1, 2],
        "sparse_values": [5, 6, 7],
    }


# -- checkpoint faults -----------------------------------------------------------------------------------------------
# Whatever operation of the storage fails while a checkpoint is written, the last complete one is there.

#: Checkpoints there are before: none, or as many as are kept.
BEFORE_FAULTS = (0, 3)


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


@pytest.mark.nightly
@pytest.mark.parametrize("count", BEFORE_FAULTS)
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


@pytest.mark.nightly
@pytest.mark.parametrize("count", BEFORE_FAULTS)
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_files_that_may_not_grow(tmp_path):
    code = textwrap.dedent(LIMITED)
    ended = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.nightly
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
