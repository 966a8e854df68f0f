"""A folder holds its old contents or its new ones, whole, whichever operation of the storage fails."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

from raydt.errors import ModelFileError
from raydt.folders.arrays import load_folder, publish_component, read_entry, read_manifest, save_folder, write_manifest
from raydt.folders.folder import Folder
from tests.storage_faults import DeathError, Fault, FaultyStorage

#: What happens after the fault: the power stays on, or fails and what was not flushed is lost, or a seed chooses of it.
POWER = dict.fromkeys(Fault, ("stays", 1)) | {Fault.DEATH: ("stays", "fails", 1, 2)}

META = {"learner": {"kind": "x"}, "features": [], "classes": ["a", "b"]}
OLD = {"same": {"a": np.arange(3)}, "changes": {"v": np.arange(4), "n": 1}, "goes": {"a": np.zeros(2)}}
NEW = {"same": {"a": np.arange(3)}, "changes": {"v": np.arange(5), "n": 2}, "comes": {"a": np.ones((2, 2))}}


def save(place, components, filesystem=None):
    save_folder(place, "model", META, components, filesystem=filesystem)


def found(place, filesystem=None):
    """Which of the contents are there."""
    try:
        components = load_folder(place, "model", filesystem=filesystem)[1]
    except ModelFileError:
        assert not Folder(place, filesystem).has("manifest.json")
        return "none"
    for name, contents in (("old", OLD), ("new", NEW)):
        if components.keys() == contents.keys():
            for component, values in contents.items():
                assert components[component].keys() == values.keys()
                for key, value in values.items():
                    np.testing.assert_array_equal(components[component][key], value)
            return name
    raise AssertionError(f"a mixture: {sorted(components)}")


def attempt(place, fault, at, disk=None, filesystem=None):
    """Save the new contents; the storage, and whether it said that it succeeded."""
    with FaultyStorage(fault, at, disk) as storage:
        try:
            save(place, NEW, filesystem)
        except (ModelFileError, DeathError):
            assert storage.failed
            return storage, False
    return storage, True


def files_of(folder):
    return {"manifest.json"} | read_manifest(folder).own


@pytest.mark.parametrize("old", ["old", "none"])
@pytest.mark.parametrize("fault", list(Fault))
def test_every_operation_on_a_local_folder(tmp_path, fault, old):
    before = tmp_path / "before"
    before.mkdir()
    if old == "old":
        save(before / "deep" / "model", OLD)
    at, failed, seen = 0, True, set()
    while failed:
        at += 1
        for power in POWER[fault]:
            disk = tmp_path / f"{at}-{power}"
            shutil.copytree(before, disk)
            place = disk / "deep" / "model"
            storage, succeeded = attempt(place, fault, at, disk)
            if fault is not Fault.DEATH:
                assert not list(disk.rglob(".*")), "something temporary was left"
                if found(place) == "old":
                    assert set(Folder(place).names()) == files_of(Folder(place)), "new files were left"
                elif found(place) == "none":
                    assert not list(place.glob("*")), "new files were left"
            if power != "stays":
                storage.disk.lose_power(None if power == "fails" else random.Random(power))
            assert found(place) == "new" if succeeded else found(place) in (old, "new")
            seen.add(found(place))
            with FaultyStorage(disk=disk) as storage:
                save(place, NEW)
            assert found(place) == "new"
            assert set(Folder(place).names()) == files_of(Folder(place)), "what was killed has left files"
            failed = not succeeded
            shutil.rmtree(disk)
    assert at > 12
    assert seen == {old, "new"}


@pytest.mark.parametrize("old", ["old", "none"])
@pytest.mark.parametrize("fault", list(Fault))
def test_every_operation_on_another_filesystem(fault, old):
    at, succeeded = 0, False
    while not succeeded:
        at += 1
        memory = fs._MockFileSystem()
        folder = Folder("bucket/model", memory)
        if old == "old":
            save("bucket/model", OLD, memory)
        _, succeeded = attempt("bucket/model", fault, at, filesystem=memory)
        state = found("bucket/model", memory)
        assert state == "new" if succeeded else state in (old, "new")
        if fault is not Fault.DEATH:
            assert not [name for name in folder.names() if name.startswith(".")]
            if state == "old":
                assert set(folder.names()) == files_of(folder)
        save("bucket/model", NEW, memory)
        assert found("bucket/model", memory) == "new"
        assert set(folder.names()) == files_of(folder), "what was killed has left files"
    assert at > 8


def test_a_refused_read_names_the_file(tmp_path):
    save(tmp_path, OLD)
    with FaultyStorage() as counted:
        load_folder(tmp_path)
    assert len(counted.operations) > 12
    for at, operation in enumerate(counted.operations, 1):
        with FaultyStorage(Fault.ERROR, at), pytest.raises(ModelFileError, match="Input/output error") as caught:
            load_folder(tmp_path)
        assert Path(operation.split()[-1]).name in str(caught.value)


class TestSharedFiles:
    """Row segments lie beside the folder of the manifest."""

    def test_a_component_beside_the_folder_comes_back(self, tmp_path):
        folder = Folder(tmp_path / "100")
        (entry,) = publish_component(folder, "rows-000", {"X": np.arange(4.0)}, beside="../rows/")
        assert (tmp_path / entry.name.removeprefix("../")).exists()
        np.testing.assert_array_equal(read_entry(folder, entry)["X"], np.arange(4.0))

    def test_plain_values_cannot_be_shared(self, tmp_path):
        with pytest.raises(ValueError, match="name"):
            publish_component(Folder(tmp_path / "100"), "rows-000", {"X": np.arange(4.0), "n": 1}, beside="../rows/")
        assert not list(tmp_path.iterdir())

    def test_another_place_is_refused(self, tmp_path):
        for beside in ("../", "../other/", "/", "rows/", "../../rows/", "../rows/../"):
            with pytest.raises(ValueError, match="name"):
                publish_component(Folder(tmp_path / "100"), "rows-000", {"X": np.arange(4.0)}, beside=beside)
        assert not list(tmp_path.iterdir())

    def test_replacing_a_folder_leaves_what_it_shared(self, tmp_path):
        folder = Folder(tmp_path / "100")
        entries = publish_component(folder, "rows-000", {"X": np.arange(4.0)}, beside="../rows/")
        entries += publish_component(folder, "coordinator", {"a": np.arange(2)})
        write_manifest(folder, "model", META, entries)
        assert load_folder(folder.root)[1].keys() == {"rows-000", "coordinator"}
        save(folder.root, NEW)
        assert found(folder.root) == "new"
        assert (tmp_path / "100" / entries[0].name).exists()
        assert set(folder.names()) == files_of(folder)
