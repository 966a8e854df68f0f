"""Models and states in folders, faults of the storage, and the number of the format."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import random
import re
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from pipelines import replay
from raydt.errors import FormatVersionError, ModelFileError
from raydt.folders import arrays
from raydt.folders.arrays import (
    FORMAT_VERSION,
    MANIFEST,
    archive,
    encode,
    load_folder,
    newest,
    open_folder,
    publish_component,
    read_entry,
    read_manifest,
    save_folder,
    seal,
    write_manifest,
)
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.messages import message
from tests.cases import CASES
from tests.refusals import refused
from tests.storage_faults import DeathError, Fault, FaultyStorage

# -- persistence -----------------------------------------------------------------------------------------------------
# Folders come back bit for bit, or are refused with an error that names the damaged file.

META = {
    "learner": {"kind": "fudyadt", "epsilon": 0.1},
    "features": [{"name": "größe", "kind": "numeric"}],
    "classes": ["DOWN", "UP"],
    "config_hash": "0" * 64,
    "source_fingerprint": "sha256:ff",
    "offset": 2**60,
}
COMPONENTS = {
    "coordinator": {"file": np.arange(3), "leaf": np.array([[1, 2]], np.int32), "seq": np.array(7)},
    "group-000": {"X": np.array([[0.1, -0.0], [np.nan, 1e-300]])},
    "group-001": {"X": np.empty((2, 0))},
    "stream": {"window": np.array([True, False]), "cursor": 12, "ids": {"a": 0, "b": 1}},
    "empty": {},
}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "state"
    save_folder(path, "state", META, COMPONENTS)
    return path


def assert_equal(loaded, saved):
    assert loaded.keys() == saved.keys()
    for component, values in saved.items():
        assert loaded[component].keys() == values.keys()
        for name, value in values.items():
            found = loaded[component][name]
            if isinstance(value, np.ndarray):
                assert found.dtype == value.dtype
                assert found.shape == value.shape
                assert found.tobytes() == value.tobytes()
                assert found.flags.writeable
            else:
                assert found == value


def reseal(path, change):
    """Change the manifest as an attacker would: with a hash that fits."""
    manifest = json.loads((path / MANIFEST).read_bytes())
    del manifest["sha256"]
    change(manifest)
    (path / MANIFEST).write_bytes(seal(encode(manifest)))


def replace_file(path, component, data):
    """Replace the contents of a component's array file, and what the manifest says of them."""

    def change(manifest):
        (entry,) = [e for e in manifest["files"] if e["component"] == component and e["name"].endswith("npz")]
        entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
        (path / entry["name"]).write_bytes(data)

    reseal(path, change)


@pytest.mark.parametrize("place", ["path", "relative", "uri", "mock", "subtree"])
def test_round_trip(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    path, filesystem = {
        "path": (tmp_path / "deep" / "folder", None),
        "relative": ("folder", None),
        "uri": ((tmp_path / "folder").as_uri(), None),
        "mock": ("bucket/folder/", fs._MockFileSystem()),
        "subtree": ("folder", fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())),
    }[place]
    save_folder(path, "state", META, COMPONENTS, filesystem=filesystem)
    meta, components = load_folder(path, "state", filesystem=filesystem)
    assert meta.pop("kind") == "state"
    assert meta.pop("raydt_version")
    assert meta.pop("format_version") == FORMAT_VERSION
    assert meta == META
    assert_equal(components, COMPONENTS)


def test_equal_contents_give_equal_bytes(folder, tmp_path):
    save_folder(tmp_path / "again", "state", META, COMPONENTS)
    first, second = ({f.name: f.read_bytes() for f in p.iterdir()} for p in (folder, tmp_path / "again"))
    assert first == second
    assert not [name for name in first if name.startswith(".")]


def test_arrays_open_with_plain_numpy(folder):
    (file,) = folder.glob("coordinator.*.npz")
    with np.load(file, allow_pickle=False) as arrays:
        assert arrays["leaf"].tolist() == [[1, 2]]


def test_byte_order_and_layout_are_normalised(tmp_path):
    values = np.arange(6).reshape(2, 3)
    save_folder(tmp_path / "x", "state", META, {"a": {"v": values.astype(">i8").T}})
    found = load_folder(tmp_path / "x")[1]["a"]["v"]
    assert found.dtype == np.dtype("<i8")
    assert (found == values.T).all()


def test_long_lists_are_the_same_json(tmp_path):
    ids = [f'"{number}",\n' for number in range(10_000)]
    for n in (4096, 4097, 8192, 10_000):  # around the number of entries that are encoded at once
        values = {"source": {"ids": ids[:n], "nested": [list(range(n)), {}]}, "last": [[], {"x": None}]}
        assert json.loads(encode(values)) == values
        save_folder(tmp_path / str(n), "state", META, {"stream": values})
        assert load_folder(tmp_path / str(n))[1]["stream"] == values


@pytest.mark.parametrize("length", [1, 5000])
def test_no_nan_is_written_however_long_the_list(length):
    with pytest.raises(ValueError, match="JSON compliant"):
        encode({"a": [float("nan")] * length})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers() | st.none(), inner, max_size=4)
    ),
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_json_without_long_lists_is_that_of_the_standard_encoder(value):
    assert encode(value) == (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


ARRAYS = st.builds(
    lambda dtype, shape, first: (np.arange(int(np.prod(shape))) + first).astype(dtype).reshape(shape),
    st.sampled_from(["|b1", "|i1", "<u2", "<i4", "<i8", "<f4", "<f8"]),
    st.lists(st.integers(0, 4), max_size=3),
    st.integers(0, 100),
)


@given(st.dictionaries(st.text(max_size=8) | st.from_regex(r"[a-z]{1,9}/[a-z]{1,9}#[if]8#1", fullmatch=True), ARRAYS))
def test_an_archive_is_that_of_the_standard_library(values):
    by_library = io.BytesIO()
    with zipfile.ZipFile(by_library, "w", zipfile.ZIP_STORED) as members:
        for name, array in values.items():
            with members.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, (1, 0), allow_pickle=False)
    assert archive(values) == by_library.getvalue()


def test_an_archive_beyond_the_limits_is_by_the_standard_library(monkeypatch):
    """There the format needs records that only the standard library writes."""
    values = {f"x{i}": np.arange(i) for i in range(9)}
    whole = bytes(archive(values))
    written = []
    by_library = arrays._by_zipfile
    monkeypatch.setattr(arrays, "_by_zipfile", lambda given: written.append(len(given)) or by_library(given))
    for limit, above in (("_MOST_MEMBERS", 8), ("_MOST_BYTES", len(whole) - 1)):
        with monkeypatch.context() as patch:
            patch.setattr(arrays, limit, above)
            assert archive(values) == whole
    assert written == [9, 9]
    assert archive(values) == whole
    assert written == [9, 9]


def test_a_manifest_has_the_arrays_of_a_file_on_one_line(folder):
    """Readers take any layout under the seal."""
    text = (folder / MANIFEST).read_text()
    lines = [line for line in text.splitlines() if '"arrays": ' in line]
    assert len(lines) == 4
    assert all(line.rstrip(",").endswith("}}") and '"dtype": ' in line for line in lines)
    rest = json.loads(text)
    assert rest.pop("sha256")
    (folder / MANIFEST).write_bytes(seal((json.dumps(rest, indent=1) + "\n").encode()))  # as former versions wrote it
    assert_equal(load_folder(folder)[1], COMPONENTS)


def test_replacing_removes_the_old_files_and_no_others(folder):
    (folder / "notes.txt").write_text("mine")
    save_folder(folder, "model", META, {"model": {"x": np.arange(2)}})
    names = {file.name.split(".")[0] for file in folder.iterdir()}
    assert names == {"manifest", "model", "notes"}
    assert load_folder(folder, "model")[1]["model"]["x"].tolist() == [0, 1]


def test_every_byte_of_the_manifest_counts(folder):
    file = folder / MANIFEST
    data = file.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        file.write_bytes(flipped)
        with pytest.raises(ModelFileError, match=r"manifest\.json"):
            load_folder(folder)
    for extra in (b" ", b"\n", b"\0"):
        file.write_bytes(data + extra)
        with pytest.raises(ModelFileError, match=r"manifest\.json"):
            load_folder(folder)


def test_every_byte_of_every_file_counts(folder):
    for file in folder.iterdir():
        data = file.read_bytes()
        for position in range(len(data)):
            flipped = bytearray(data)
            flipped[position] ^= 1 << position % 8
            file.write_bytes(flipped)
            with pytest.raises(ModelFileError, match=file.name.replace(".", r"\.")):
                load_folder(folder)
        file.write_bytes(data)
    load_folder(folder)


def test_truncated_and_missing_files(folder):
    for file in list(folder.iterdir()):
        data = file.read_bytes()
        for length in (0, len(data) // 2, len(data) - 1):
            file.write_bytes(data[:length])
            with pytest.raises(ModelFileError, match=file.name.replace(".", r"\.")):
                load_folder(folder)
        file.unlink()
        with pytest.raises(ModelFileError, match=file.name.replace(".", r"\.")):
            load_folder(folder)
        file.write_bytes(data)


def test_another_format_version_is_named(folder):
    for number in (0, FORMAT_VERSION + 1, "2", None, []):
        reseal(folder, lambda manifest, number=number: manifest.update(format_version=number))
        with refused("models.later_format", FormatVersionError, format=number, newest=FORMAT_VERSION):
            load_folder(folder)


def test_another_kind_is_named(folder):
    with refused("models.other_kind", ModelFileError, found="state", wanted="model"):
        load_folder(folder, "model")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["files"][0].update(name="../state/secret.0123456789abcdef.npz"),
        lambda m: m["files"][0].update(name="/etc/passwd"),
        lambda m: m["files"][0].update(name=".."),
        lambda m: m["files"][0].update(name="a\n.0123456789abcdef.npz"),
        lambda m: m["files"][0].update(component="../x"),
        lambda m: m["files"][0].update(bytes=-1),
        lambda m: m["files"][0].update(bytes="12"),
        lambda m: m["files"][0].update(mode="pickle"),
        lambda m: m["files"][0]["arrays"]["file"].update(dtype="|O8"),
        *(lambda m, dtype=dtype: m["files"][0]["arrays"]["file"].update(dtype=dtype) for dtype in ("<b8", "|i8")),
        lambda m: m["files"][0]["arrays"]["file"].update(shape=[-3]),
        lambda m: m.update(kind="program"),
        lambda m: m.update(format="zip"),
        lambda m: m.pop("format"),
        lambda m: m.pop("files"),
        lambda m: m["meta"].pop("offset"),
    ],
)  # fmt: skip
def test_a_forged_manifest_is_refused(folder, change):
    reseal(folder, change)
    with refused("models.not_manifest", ModelFileError, file=str(folder / MANIFEST)):
        load_folder(folder)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"a": NaN', "[" * 100_000, '{"format": 1e999}', "\ud800"])
def test_what_is_no_manifest_at_all(folder, text):
    (folder / MANIFEST).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ModelFileError, match=r"manifest\.json"):
        load_folder(folder)


def cut_short(file, array):
    """Write an array with a header as raydt writes it, but without its last byte."""
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("X.npy", arrays._header(array.dtype.str, array.shape) + array.tobytes()[:-1])


def test_forged_array_files(folder, tmp_path):
    forged = tmp_path / "forged.npz"

    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was loaded",))

    good = COMPONENTS["group-000"]["X"]
    for write, name, complaint in [
        (lambda: np.savez(forged, X=np.array([Bomb()], object)), "other_arrays", "allow_pickle=False"),
        (lambda: np.savez_compressed(forged, X=good), "other_arrays", message("models.compressed")),
        (lambda: np.savez(forged, Y=good), "other_arrays", "X.npy"),
        (lambda: np.savez(forged, X=good.astype(np.float32)), "other_array", "<f4 [2, 2]"),
        (lambda: np.savez(forged, X=good.ravel()), "other_array", "<f8 [4]"),
        (lambda: forged.write_bytes(b"PK"), "other_arrays", "not a zip file"),
        (lambda: cut_short(forged, good), "other_arrays", "expected 32 bytes got 31"),
    ]:
        write()
        replace_file(folder, "group-000", forged.read_bytes())
        with refused(f"models.{name}", ModelFileError) as caught:
            load_folder(folder)
        assert complaint in str(caught.value)
        assert Path(caught.value.file).name.startswith("group-000.")


def test_headers_of_other_writers(folder, tmp_path):
    """Of the same array NumPy may write another header than raydt."""
    good, other = COMPONENTS["group-000"]["X"], tmp_path / "other.npz"
    for array, version in ((good, (2, 0)), (np.asfortranarray(good), (1, 0)), (good, (3, 0))):
        with zipfile.ZipFile(other, "w") as members, members.open("X.npy", "w") as member:
            np.lib.format.write_array(member, array, version)
        replace_file(folder, "group-000", other.read_bytes())
        found = load_folder(folder)[1]["group-000"]["X"]
        assert (found.dtype, found.shape, found.tobytes()) == (good.dtype, good.shape, good.tobytes())


@pytest.mark.parametrize(
    ("meta", "components", "error", "problem"),
    [
        ({**META, "x": np.int64(3)}, {}, TypeError, "int64 is not JSON serializable"),
        ({**META, "x": float("nan")}, {}, ValueError, "Out of range float values are not JSON compliant"),
        ({"learner": {}}, {}, ValueError, "features, classes, config_hash"),
        (META, {"a": {"v": np.array(["text"])}}, TypeError, "'v' has dtype <U4"),
        (META, {"a": {"v": np.array([None])}}, TypeError, "'v' has dtype object"),
        (META, {"a": {"v": [np.arange(3)]}}, TypeError, "ndarray is not JSON serializable"),
        (META, {"../a": {"v": 1}}, ValueError, r"FileEntry\nname\n  String should match pattern"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_the_commit(tmp_path, meta, components, error, problem):
    with pytest.raises(error, match=problem):
        save_folder(tmp_path / "x", "state", meta, components)
    assert not (tmp_path / "x" / MANIFEST).exists()


def test_a_foreign_manifest_is_not_overwritten(tmp_path):
    (tmp_path / MANIFEST).write_text('{"name": "a web page"}')
    with pytest.raises(ModelFileError, match="manifest"):
        save_folder(tmp_path, "state", META, COMPONENTS)
    assert [file.name for file in tmp_path.iterdir()] == [MANIFEST]


def test_places_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("x")
    with refused("machine.not_written", ModelFileError):
        save_folder(tmp_path / "file" / "x", "state", META, COMPONENTS)
    with refused("models.uri", ModelFileError, file="nonsense://x/y"):
        load_folder("nonsense://x/y")
    with refused("models.no_manifest", ModelFileError):
        load_folder(tmp_path / "nowhere")


def test_a_large_array_has_a_file_that_is_read_when_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "_LARGE", 64)
    values = {"leaf": np.arange(9), "n": np.arange(8), "ledger": np.arange(99.0), "seen": {"updates": 3}}
    save_folder(tmp_path, "state", META, {"coordinator": values})
    assert len([*tmp_path.glob("coordinator.*.npz")]) == 3
    assert_equal(load_folder(tmp_path)[1], {"coordinator": values})
    read, real = [], arrays.read_entry
    monkeypatch.setattr(arrays, "read_entry", lambda place, entry: read.append(entry.component) or real(place, entry))
    found = open_folder(tmp_path, file_by_file=True)[1]["coordinator"]
    assert found.keys() == values.keys()
    assert "ledger" in found
    assert found["seen"] == {"updates": 3}
    assert (found["n"] == values["n"]).all()
    assert len(read) == 2, "JSON, and the small arrays"
    assert_equal({"coordinator": dict(found)}, {"coordinator": values})
    assert len(read) == 4


def test_a_large_array_of_a_local_file_is_mapped_and_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "_LARGE", 64)
    ledger, drift = np.arange(300, dtype=np.uint16).reshape(3, 100), np.arange(99.0)
    values = {"n": np.arange(3), "leaf": np.arange(200, dtype=np.uint8), "ledger": ledger, "drift": drift}
    save_folder(tmp_path, "state", META, {"coordinator": values})
    found = open_folder(tmp_path, mapped=True)[1]["coordinator"]
    assert_equal({"coordinator": {name: array.copy() for name, array in found.items()}}, {"coordinator": values})
    assert {name for name, array in found.items() if not array.flags.writeable} == {"leaf", "ledger"}, "aligned ones"
    for file in tmp_path.glob("coordinator.*.npz"):
        sound = file.read_bytes()
        for damaged in (sound[:-1], sound.replace(b"\x05", b"\x06", 1), sound[:200] + b"?" + sound[201:]):
            file.write_bytes(damaged)
            with pytest.raises(ModelFileError, match=file.name):
                open_folder(tmp_path, mapped=True)[1]["coordinator"]
        file.write_bytes(sound)


# -- persistence faults ----------------------------------------------------------------------------------------------
# A folder holds its old contents or its new ones, whole, whichever operation of the storage fails.

#: What happens after the fault: the power stays on, or fails and what was not flushed is lost, or a seed chooses of it.
POWER = dict.fromkeys(Fault, ("stays", 1)) | {Fault.DEATH: ("stays", "fails", 1, 2)}

META_FAULTS = {"learner": {"kind": "x"}, "features": [], "classes": ["a", "b"]}
OLD = {"same": {"a": np.arange(3)}, "changes": {"v": np.arange(4), "n": 1}, "goes": {"a": np.zeros(2)}}
NEW = {"same": {"a": np.arange(3)}, "changes": {"v": np.arange(5), "n": 2}, "comes": {"a": np.ones((2, 2))}}


def save(place, components, filesystem=None):
    save_folder(place, "model", META_FAULTS, components, filesystem=filesystem)


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


@pytest.mark.turns(3)
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
        write_manifest(folder, "model", META_FAULTS, entries)
        assert load_folder(folder.root)[1].keys() == {"rows-000", "coordinator"}
        save(folder.root, NEW)
        assert found(folder.root) == "new"
        assert (tmp_path / "100" / entries[0].name).exists()
        assert set(folder.names()) == files_of(folder)


# -- formats ---------------------------------------------------------------------------------------------------------
# The number of the format changes with the format: what a run writes is compared with what its format is known by.
#
# ``python -m tests.unit.test_persistence`` writes ``tests/former/format.json`` anew.

KNOWN = Path(__file__).parents[1] / "former" / "format.json"
SHIPPED = [trial for trial in CASES if trial.shipped]
KINDS = sorted({trial.learner.kind for trial in SHIPPED})


def parts_of(folder: Folder) -> set[str]:
    """Keys of ``meta``, and arrays and values of each component, with types and numbers of dimensions."""
    manifest = read_manifest(folder)
    found = {f"{manifest.kind} meta {key}" for key in manifest.meta}
    for entry in manifest.files:
        component = re.sub(r"\d+", "N", entry.component)
        arrays = {f"{name} {kind.dtype} {len(kind.shape)}" for name, kind in (entry.arrays or {}).items()}
        values = set() if entry.arrays else set(json.loads(folder.read(entry.name)))
        found |= {f"{manifest.kind} {component} {part}" for part in arrays | values}
    return found


@functools.cache
def schema(kind: str) -> dict[str, Any]:
    """Everything that models, states and configs of a learner consist of."""
    parts: set[str] = set()
    for trial in (trial for trial in SHIPPED if trial.learner.kind == kind):
        with tempfile.TemporaryDirectory() as scratch:
            run = Folder(replay(trial.config(Path(scratch), updates=40), Path(scratch) / "run").path)
            parts |= parts_of(run.inside("model")) | parts_of(newest(run.inside("checkpoints")))
    return {"options": sorted(learners()[kind].Options.model_fields), "parts": sorted(parts)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_the_format_changes_its_number(kind: str) -> None:
    known = json.loads(KNOWN.read_text(encoding="utf-8"))
    assert known["format"] == FORMAT_VERSION, (
        "write tests/former/format.json anew: python -m tests.unit.test_persistence"
    )
    assert schema(kind) == known["learners"][kind], (
        "models or states have changed: raise FORMAT_VERSION (raydt/folders/arrays.py); if the learner does not read "
        "the ones before any more, set its `oldest`; then python -m tests.unit.test_persistence, and make runs of the "
        "new "
        "format with tests/former/runs.py"
    )


def main() -> None:
    """Write down what the present format consists of."""
    content = {"format": FORMAT_VERSION, "learners": {kind: schema(kind) for kind in KINDS}}
    KNOWN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
