"""Outputs, folders of runs, storage, and links between files."""

from __future__ import annotations

import errno
import json
import math
import os
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from pyarrow import fs
from pyarrow import fs as pafs

from pipelines.operation import dump_yaml
from pipelines.run_folder import RunFolder, default_location
from pipelines.saved_runs import Input, require_apart
from raydt.errors import ConfigError, ExchangeError, InputError, SequenceGapError, StaleEpochError
from raydt.exchange.links import Frame, FrameReader, Links, packed, proof
from raydt.exchange.meetings import AllGather, ReduceScatter, swap_together, unbundled
from raydt.folders import folder as lock
from raydt.folders.folder import LOCK, Folder, locked
from tests.refusals import refused
from tests.storage_faults import Disk, Fault, FaultyStorage
from tests.unit.updatable import JOB

# -- outputs ---------------------------------------------------------------------------------------------------------
# No command writes over what it reads, nor into a run, a model or a state, by whatever name the place is called.


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}


@pytest.fixture
def place(tmp_path, raydt, job):
    """A run, a state made of it, data under several names, and the working directory."""
    assert raydt("replay", job, "--out", tmp_path / "run")[0] == 0
    pq.write_table(pa.table({f"x{i}": [1.0, 2.0] for i in range(3)}), tmp_path / "x.parquet")
    (tmp_path / "more").mkdir()
    pq.write_table(pa.table({f"x{i}": [1.0, 2.0] for i in range(3)}), tmp_path / "more" / "x.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "x.parquet")
    os.link(tmp_path / "x.parquet", tmp_path / "hard.parquet")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "run")
    pq.write_table(pa.table({"id": [3]}), tmp_path / "ids.parquet")
    assert raydt("update", tmp_path / "run", "--delete", tmp_path / "ids.parquet", "--out", tmp_path / "state")[0] == 0
    return tmp_path


def assert_refused(raydt, place, said, *command):
    before = contents(place)
    code, out, err = raydt(*command)
    assert (code, out) == (2, ""), err
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert contents(place) == before


@pytest.mark.parametrize(
    ("data", "out", "said"),
    [
        ("x.parquet", "x.parquet", "this is DATA itself"),
        ("x.parquet", "more/../x.parquet", "this is DATA itself"),
        ("x.parquet", "link.parquet", "this is DATA itself"),
        ("x.parquet", "hard.parquet", "this is DATA itself"),
        ("link.parquet", "hard.parquet", "this is DATA itself"),
        ("*.parquet", "hard.parquet", "this is a file of DATA itself"),
        ("more", "more/x.parquet", "it lies in DATA"),
        ("more", "more/new.parquet", "it lies in DATA"),
        ("x.parquet", "run/metrics/part-00001.parquet", "it lies in MODEL"),
        ("x.parquet", "elsewhere/metrics/part-00001.parquet", "it lies in MODEL"),
        ("x.parquet", "run/metrics/part-00000.parquet", "it lies in MODEL"),
        ("x.parquet", "sweep/new.parquet", "sweep, a run"),
        ("x.parquet", "state/new.parquet", "state, a run"),
    ],
)
def test_predictions(raydt, place, data, out, said):
    (place / "ids.parquet").unlink()  # of other columns
    (place / "sweep").mkdir()
    for name in ("config.yaml", "sweep.json"):
        (place / "sweep" / name).touch()
    assert_refused(raydt, place, said, "predict", place / "run", place / data, "--out", place / out, "--overwrite")


def test_predictions_beside_their_input_are_written(raydt, place):
    for data, out in (("x.parquet", "more/y.parquet"), ("more/x*", "more/y.parquet"), ("x.parquet", "more/x.parquet")):
        code, _, err = raydt("predict", place / "run", place / data, "--out", place / out, "--overwrite")
        assert code == 0, err


@pytest.mark.parametrize("state", ["run", "state"])
@pytest.mark.parametrize("out", ["run/new", "elsewhere/checkpoints/new", "state/new"])
def test_a_new_state(raydt, place, state, out):
    command = ("update", place / state, "--delete", place / "ids.parquet", "--out", place / out)
    assert_refused(raydt, place, "--out", *command)


@pytest.mark.parametrize("command", [["replay"], ["sweep", "--grid", "learner.epsilon=0.1,0.2"]])
@pytest.mark.parametrize(
    ("path", "out", "said"),
    [
        ("run/more", "run", "source.path lies in it"),
        ("elsewhere/more/*.parquet", "run", "source.path lies in it"),
        ("run/more/y.parquet", "elsewhere", "source.path lies in it"),
        ("more", "more/run", "it lies in source.path"),
        ("mo**", "more/run", "it lies in source.path"),
        ("more/y.parquet", "run/metrics/new", "run, a run"),
        ("more/y.parquet", "state/new", "state, a run"),
    ],
)
def test_a_run_and_a_sweep(raydt, place, command, path, out, said):
    for folder in (place / "more", place / "run" / "more"):
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": [1.0, 2.0], "y": ["u", "v"]}), folder / "y.parquet")
    (place / "job2.yaml").write_text(dump_yaml({**JOB, "source": {"kind": "parquet", "path": path}}))
    assert_refused(raydt, place, said, *command, place / "job2.yaml", "--out", place / out, "--overwrite")


def test_the_config_is_not_removed_with_its_run(raydt, place):
    run = place / "run"
    said = f"CONFIG lies in it ({run}/config.yaml)"
    assert_refused(raydt, place, said, "replay", run / "config.yaml", "--out", run, "--overwrite")


def test_checkpoints(raydt, place, job):
    command = ("replay", job, "--out", place / "new", "--set")
    assert_refused(raydt, place, "run, a run", *command, f"checkpoint.path={place}/elsewhere/metrics")
    assert not (place / "new").exists()
    own = f"checkpoint.path={place}/run/states"
    assert raydt("replay", job, "--out", place / "run", "--overwrite", "--set", own)[0] == 0


@pytest.mark.parametrize("out", ["run/comparison.html", "run/report.html", "elsewhere/metrics/x.html", "state/x.html"])
def test_a_comparison(raydt, place, job, out):
    raydt("replay", job, "--out", place / "other")
    command = ("report", place / "run", place / "other", "--out", place / out)
    assert_refused(raydt, place, "a run, model", *command)


def test_a_report_in_its_own_run_is_written(raydt, place):
    assert raydt("report", place / "run", "--out", place / "elsewhere" / "report.html")[0] == 0
    before = contents(place)
    assert raydt("report", place / "state" / ".." / "run", "--out", place / "run" / "notes.html")[0] == 2
    assert contents(place) == before


def test_uris_are_compared_by_their_text():
    with refused("outputs.around_input", ConfigError, name="source.path"):
        require_apart("--out", "s3://bucket/run", [Input("source.path", "s3://bucket/run/data/*.parquet")])
    with refused("outputs.same", ConfigError, name="DATA"):
        require_apart("--out", "s3://bucket/x", [Input("DATA", "s3://bucket/x/")])
    require_apart("--out", "s3://bucket/run", [Input("source.path", "s3://bucket/runs/x"), Input("CONFIG", "job.yaml")])
    with refused("outputs.same", ConfigError, name="DATA"):
        require_apart("--out", str(Path(__file__)), [Input("DATA", Path(__file__).as_uri())])


# -- run folder ------------------------------------------------------------------------------------------------------
# Run folders: refused where something is, complete or absent, the same on every file system.


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


# -- storage ---------------------------------------------------------------------------------------------------------
# Files of a folder are absent or complete, on every filesystem, whatever operation fails.


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


# -- links -----------------------------------------------------------------------------------------------------------
# Frames between shards survive any cut of their bytes, and are taken in order, each once.

DTYPES = st.sampled_from([np.dtype(name) for name in ("?", "i1", "u2", "<i4", ">i8", "f4", "f8")])
ARRAYS = DTYPES.flatmap(lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
CONTENTS = st.one_of(ARRAYS, st.dictionaries(st.text(min_size=1, max_size=5), ARRAYS, max_size=3))


def read(data, cuts=()):
    """The frames in some bytes that come in pieces."""
    reader, frames, pieces = FrameReader(), [], []
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        pieces.append(data[begin:end])
    for piece in pieces:
        while piece:
            space = reader.space
            count = min(len(space), len(piece))
            space[:count] = piece[:count]
            frame = reader.take(count)
            piece = piece[count:]
            frames += [] if frame is None else [frame]
    return frames


def named(content):
    return content if isinstance(content, dict) else {"": content}


def exactly(content):
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in named(content).items()}


@given(st.lists(CONTENTS, min_size=1, max_size=3), st.data())
def test_frames_arrive_as_they_were_whatever_the_pieces(contents, data):
    sent = [Frame(7, seq, content) for seq, content in enumerate(contents, 1)]
    stream = b"".join(bytes(piece) for frame in sent for piece in packed(frame))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    found = read(stream, cuts)
    assert [(frame.epoch, frame.seq) for frame in found] == [(7, seq) for seq in range(1, len(sent) + 1)]
    assert [exactly(frame.content) for frame in found] == [exactly(frame.content) for frame in sent]


def test_a_strided_array_arrives_and_is_writable():
    (frame,) = read(b"".join(map(bytes, packed(Frame(1, 1, np.arange(12).reshape(3, 4)[:, 1:3])))))
    assert frame.content.tolist() == [[1, 2], [5, 6], [9, 10]]
    assert frame.content.flags.writeable


def head(described, length, magic=b"rdt1"):
    return struct.pack("<4sQQIQ", magic, 1, 1, len(described), length) + described


@pytest.mark.parametrize(
    "data",
    [
        head(b"[]", 0, b"GET "),
        head(b"{", 0),
        head(b"7", 0),
        head(json.dumps([["a", "O", 1]]).encode(), 8),
        head(json.dumps([["a", "<i8", -1]]).encode(), 8),
        head(json.dumps([["a", "<i8", 2]]).encode(), 8),
        head(json.dumps([[["a"], "<i8", 1]]).encode(), 8),
        head(json.dumps([["a", "nonsense", 1]]).encode(), 8),
        head(json.dumps([["a", "|u1", True]]).encode(), 1),
        head(json.dumps([["a", "|u1", *[1] * 100]]).encode(), 8) + bytes(8),
        head(json.dumps([["a", "|u1", 0, 1 << 47, 1 << 47]]).encode(), 0),
        head(json.dumps([["a", "V8", 1]]).encode(), 8),
        head(json.dumps([["a", "i8,i8", 1]]).encode(), 16),
        head(json.dumps({"a": "b"}).encode(), 8),
        head(b"[" * (1 << 20), 0),
        head(b"9" * 10_000, 0),
        head(b"\xff\xfe", 0),
        struct.pack("<4sQQIQ", b"rdt1", 1, 1, (1 << 20) + 1, 0),
        struct.pack("<4sQQIQ", b"rdt1", 1, 1, 1 << 30, 0),
    ],
)
def test_what_is_no_frame_is_refused(data):
    with refused("exchange.no_frame", ExchangeError):
        read(data)


def test_a_length_is_checked_before_there_is_room_for_it(monkeypatch):
    """A head that does not fit its description, or describes too much, has the reader make room for neither."""
    made, empty = [], np.empty
    monkeypatch.setattr(np, "empty", lambda length, **given: made.append(length) or empty(length, **given))
    for shape, length in ([1], 1 << 45), ([1 << 42], 8), ([], 1 << 62):
        with refused("exchange.no_frame", ExchangeError):
            read(head(json.dumps([["a", "<i8", *shape]]).encode(), length))
    assert max(made) < 100


@pytest.mark.parametrize("shape", [[1 << 44], [1 << 30, 1 << 29], [1 << 30, 1 << 30]])
def test_more_than_there_is_memory_for_is_refused_before_it_arrives(shape):
    length = 8 * math.prod(shape)
    with refused("exchange.large_frame", ExchangeError, bytes=length):
        read(head(json.dumps([["a", "<i8", *shape]]).encode(), length))


@given(CONTENTS, st.data())
def test_damaged_bytes_are_refused_or_are_a_frame(content, data):
    """Whatever arrives, a reader says that it is no frame, waits for more, or returns arrays."""
    stream = bytearray(b"".join(map(bytes, packed(Frame(1, 1, content)))))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    try:
        frames = read(bytes(stream))
    except ExchangeError:
        return
    assert all(isinstance(part, np.ndarray) for frame in frames for part in named(frame.content).values())


PARTS = CONTENTS.filter(lambda content: not isinstance(content, dict) or len(content) > 0)


@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_shards_of_one_process_meet_by_what_it_sends_other_processes(processes, n, data):
    shards = processes * n
    kind = data.draw(st.sampled_from(["all to all", "the same to all", "sums"]))
    of_each = st.lists(PARTS, min_size=shards, max_size=shards)
    if kind == "all to all":
        made = [data.draw(of_each) for _ in range(shards)]
    elif kind == "the same to all":
        made = [AllGather(part, shards) for part in data.draw(of_each)]
    else:
        made = [ReduceScatter([np.array([3**maker, to]) for to in range(shards)], np.add) for maker in range(shards)]
    sent = []  # by process: what it has for each

    def keep(parts):
        sent.append(parts)
        return [parts[0]] * processes

    def arrived(content):
        (frame,) = read(b"".join(map(bytes, packed(Frame(1, 1, content)))))
        return frame.content

    for process in range(processes):
        swap_together(keep, made[process * n :][:n])
    for process in range(processes):
        theirs = [arrived(parts[process]) if n > 1 else parts[process] for parts in sent]
        received = swap_together(lambda parts, theirs=theirs: theirs, made[process * n :][:n])
        for own, parts in enumerate(received):
            expected = [of_shard[process * n + own] for of_shard in made]
            if kind == "sums":
                assert sum(parts).tolist() == sum(expected).tolist()
            else:
                assert [exactly(part) for part in parts] == [exactly(part) for part in expected]


def test_sums_of_processes_are_added_on_their_way_shard_by_shard():
    made = [ReduceScatter([np.array([10 * maker + to]) for to in range(4)], np.add) for maker in range(4)]
    sent = []
    swap_together(lambda parts: sent.append(parts) or list(parts), made[:2])
    first, second = sent[0]
    assert [part.tolist() for part in unbundled(first, 2)] == [[10], [12]]
    assert [part.tolist() for part in unbundled(sent[0].add(first, second), 2)] == [[24], [28]]


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"[]": np.array([0.5])},
        {'[""]': np.array([1])},
        {'[""]': np.array([-1, 0, 0, 1, 3]), "<i8": np.arange(2)},
        {'[""]': np.array([-1, 0, 1, 1, 2]), "<i8": np.arange(2)},
        {'[""]': np.array([-1, 0, 0, 1, 2, -1, 0, 0, 1, 0]), "<i8": np.arange(2)},
        {"lengths": np.array([3]), "": np.arange(2)},
        {"lengths": np.array([1, 1]), "": np.arange(2)},
        {"lengths": np.array([], dtype=np.int64), "": np.arange(0)},
        {"lengths": np.array([2])},
        {"no names": np.array([-1, 0, 0, 1, 2]), "<i8": np.arange(2)},
        np.arange(3),
    ],
)
def test_what_is_no_bundle_is_no_frame(broken):
    with refused("exchange.no_frame", ExchangeError):
        unbundled(broken, 1)


def test_a_shard_may_be_one_meeting_ahead_and_repeats_have_no_effect():
    first, second = Links(0, 2, 1), Links(1, 2, 1)
    ((_, ahead),) = first.begin([np.array([0]), np.array([1])])
    assert second.receive(0, ahead)
    assert second.proceed() == []
    assert second.complete() is None
    ((_, back),) = second.begin([np.array([2]), np.array([3])])
    assert [part.tolist() for part in second.complete()] == [[1], [3]]
    assert first.receive(1, back)
    assert first.proceed() == []
    assert [part.tolist() for part in first.complete()] == [[0], [2]]
    assert first.complete() is None
    assert not first.receive(1, back)
    assert not second.receive(0, ahead)
    ((_, next_one),) = first.begin([np.array([4]), np.array([5])])
    assert first.complete() is None
    assert second.receive(0, next_one)
    with refused("exchange.gap", SequenceGapError, shard=1, seen=2, sent=4):
        second.receive(0, Frame(1, 4, np.array([9])))
    second.begin([np.array([6]), np.array([7])])
    assert [part.tolist() for part in second.complete()] == [[5], [7]]


def test_a_third_frame_that_nobody_has_asked_for_is_refused():
    links = Links(1, 2, 1)
    assert links.receive(0, Frame(1, 1, np.array([1])))
    assert links.receive(0, Frame(1, 2, np.array([1])))
    with refused("exchange.gap", SequenceGapError, shard=1, seen=2, sent=3):
        links.receive(0, Frame(1, 3, np.array([1])))


def test_frames_out_of_order_and_of_other_epochs_are_refused():
    links = Links(1, 3, 5)
    for epoch in (4, 6):
        with refused("exchange.other_epoch", StaleEpochError, shard=1, epoch=5, sent=epoch):
            links.receive(0, Frame(epoch, 1, np.array([1])))
    with refused("exchange.gap", SequenceGapError, shard=1, seen=0, sent=2):
        links.receive(0, Frame(5, 2, np.array([1])))
    assert links.receive(0, Frame(5, 1, np.array([1])))


def test_a_proof_is_of_one_secret_epoch_direction_and_challenge():
    given = (b"secret", 3, 0, 1, b"a" * 32 + b"b" * 32)
    others = [(b"Secret", *given[1:]), (given[0], 4, *given[2:]), (b"secret", 3, 1, 0, given[4])]
    others.append((*given[:4], b"b" * 32 + b"a" * 32))
    assert len(proof(*given)) == 32
    assert proof(*given) == proof(*given)
    assert proof(*given) not in [proof(*other) for other in others]


def test_a_description_that_is_nested_too_deeply_is_no_frame():
    with refused("exchange.no_frame", ExchangeError):
        read(head(b"[" * 100_000, 0))
